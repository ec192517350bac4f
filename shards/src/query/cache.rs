//! What one epoch of a partition remembers of earlier searches.
//!
//! Everything here follows from the epoch alone, so an entry is right as long as it is kept.

use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;
use roaring::RoaringBitmap;

use super::prefix::{PrefixRange, PrefixTable};
use super::resolve::{NodeFacts, NodeQuestion};

/// Bytes of each kind of entry.
const KIND_BYTES: usize = 16 << 20;

/// The memory of one epoch of a partition, bounded to a few times [`KIND_BYTES`].
#[derive(Default)]
pub struct QueryCache {
    facts: RefCell<Kept<(NodeQuestion, bool), Arc<NodeFacts>>>,
    classes: RefCell<Kept<ClassKey, Rc<RoaringBitmap>>>,
    tables: RefCell<Kept<PrefixRange, Rc<PrefixTable>>>,
    filters: RefCell<Kept<String, Rc<RoaringBitmap>>>,
}

/// A node, its class, and at which byte it falls into two words (0: nowhere): that is counted over a network shard where one is
/// searched, so it does not follow from the epoch.
pub type ClassKey = (NodeQuestion, u8, u16);

/// Entries of one kind. Starting over when they are too many is rare, costs nothing to keep track of, and what is in use
/// comes back at once.
struct Kept<K, V> {
    entries: AHashMap<K, V>,
    bytes: usize,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self { entries: AHashMap::new(), bytes: 0 }
    }
}

impl<K: Hash + Eq, V: Clone> Kept<K, V> {
    fn keep(&mut self, key: K, value: &V, bytes: usize) {
        if self.bytes + bytes > KIND_BYTES {
            self.entries.clear();
            self.bytes = 0;
        }
        if bytes <= KIND_BYTES {
            self.bytes += bytes;
            self.entries.insert(key, value.clone());
        }
    }
}

fn kept<K: Hash + Eq + Clone, V: Clone>(
    kind: &RefCell<Kept<K, V>>,
    key: &K,
    make: impl FnOnce() -> V,
    bytes: impl FnOnce(&V) -> usize,
) -> V {
    if let Some(known) = kind.borrow().entries.get(key) {
        return known.clone();
    }
    let value = make();
    kind.borrow_mut().keep(key.clone(), &value, bytes(&value) + 128);
    value
}

impl QueryCache {
    /// Forgets everything.
    pub fn clear(&self) {
        *self.facts.borrow_mut() = Kept::default();
        *self.classes.borrow_mut() = Kept::default();
        *self.tables.borrow_mut() = Kept::default();
        *self.filters.borrow_mut() = Kept::default();
    }

    /// The facts of a node, if they are kept.
    pub fn known_facts(&self, key: &(NodeQuestion, bool)) -> Option<Arc<NodeFacts>> {
        self.facts.borrow().entries.get(key).cloned()
    }

    /// Keeps the facts of a node; they travel to the core that asked.
    pub fn keep_facts(&self, key: (NodeQuestion, bool), facts: &Arc<NodeFacts>) {
        let lists = [&facts.prefixed, &facts.one_typo, &facts.two_typos];
        let words = lists.iter().flat_map(|list| list.iter()).map(|word| word.len() + 32).sum::<usize>();
        self.facts.borrow_mut().keep(key, facts, words + facts.splits.len() * 8 + 128);
    }

    /// The documents of a node in a class, when all fields are searched.
    pub fn class(&self, key: ClassKey, make: impl FnOnce() -> Rc<RoaringBitmap>) -> Rc<RoaringBitmap> {
        kept(&self.classes, &key, make, |docs| docs.serialized_size())
    }

    /// The table of a range of words, if it is kept.
    pub fn known_table(&self, range: &PrefixRange) -> Option<Rc<PrefixTable>> {
        self.tables.borrow().entries.get(range).cloned()
    }

    /// What a filter, written out, selects, if it is kept.
    pub fn known_filter(&self, filter: &str) -> Option<Rc<RoaringBitmap>> {
        self.filters.borrow().entries.get(filter).cloned()
    }

    /// Keeps what a filter selects.
    pub fn keep_filter(&self, filter: String, docs: &Rc<RoaringBitmap>) {
        let bytes = docs.serialized_size() + filter.len() + 128;
        self.filters.borrow_mut().keep(filter, docs, bytes);
    }

    /// Keeps the table of a range of words.
    pub fn keep_table(&self, range: PrefixRange, table: &Rc<PrefixTable>) {
        self.tables.borrow_mut().keep(range, table, table.bytes() + 128);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_made_once_and_memory_is_bounded() {
        let cache = QueryCache::default();
        let mut made = 0;
        for _ in 0..3 {
            cache.class((NodeQuestion::default(), 1, 0), || {
                made += 1;
                Rc::default()
            });
        }
        assert_eq!(made, 1);
        let mut kept = Kept::default();
        for key in 0..100 {
            kept.keep(key, &(), KIND_BYTES / 10);
            assert!(kept.bytes <= KIND_BYTES && kept.entries.len() <= 10);
        }
        kept.keep(100, &(), KIND_BYTES + 1);
        assert!(!kept.entries.contains_key(&100));
    }
}
