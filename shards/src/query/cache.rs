//! What one epoch of a partition remembers of earlier searches.
//!
//! Everything here follows from the epoch alone, so an entry is right as long as it is kept.

use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;

use ahash::AHashMap;
use roaring::RoaringBitmap;

use super::resolve::{NodeFacts, NodeQuestion};
use super::source::PrefixTable;

/// Bytes of each kind of entry.
const KIND_BYTES: usize = 16 << 20;

/// The memory of one epoch of a partition, bounded to a few times [`KIND_BYTES`].
#[derive(Default)]
pub struct QueryCache {
    facts: RefCell<Kept<(NodeQuestion, bool), NodeFacts>>,
    classes: RefCell<Kept<(NodeQuestion, u8), RoaringBitmap>>,
    tables: RefCell<Kept<String, PrefixTable>>,
}

/// Entries of one kind. Starting over when they are too many is rare, costs nothing to keep track of, and what is in use
/// comes back at once.
struct Kept<K, V> {
    entries: AHashMap<K, Rc<V>>,
    bytes: usize,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self { entries: AHashMap::new(), bytes: 0 }
    }
}

impl<K: Hash + Eq, V> Kept<K, V> {
    fn keep(&mut self, key: K, value: &Rc<V>, bytes: usize) {
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

fn kept<K: Hash + Eq + Clone, V>(
    kind: &RefCell<Kept<K, V>>,
    key: &K,
    make: impl FnOnce() -> Rc<V>,
    bytes: impl FnOnce(&V) -> usize,
) -> Rc<V> {
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
    }

    /// The facts of a node.
    pub fn facts(&self, key: (NodeQuestion, bool), make: impl FnOnce() -> NodeFacts) -> Rc<NodeFacts> {
        kept(
            &self.facts,
            &key,
            || Rc::new(make()),
            |facts| {
                let lists = [&facts.prefixed, &facts.one_typo, &facts.two_typos];
                lists.iter().flat_map(|list| list.iter()).map(|word| word.len() + 32).sum::<usize>()
                    + facts.splits.len() * 8
            },
        )
    }

    /// The documents of a node in a class, when all fields are searched.
    pub fn class(&self, key: (NodeQuestion, u8), make: impl FnOnce() -> Rc<RoaringBitmap>) -> Rc<RoaringBitmap> {
        kept(&self.classes, &key, make, RoaringBitmap::serialized_size)
    }

    /// The table of a prefix.
    pub fn table(&self, prefix: &str, make: impl FnOnce() -> PrefixTable) -> Rc<PrefixTable> {
        kept(&self.tables, &prefix.to_owned(), || Rc::new(make()), PrefixTable::bytes)
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
            cache.table("st", || {
                made += 1;
                PrefixTable::default()
            });
        }
        assert_eq!(made, 1);
        let mut kept = Kept::default();
        for key in 0..100 {
            kept.keep(key, &Rc::new(()), KIND_BYTES / 10);
            assert!(kept.bytes <= KIND_BYTES && kept.entries.len() <= 10);
        }
        kept.keep(100, &Rc::new(()), KIND_BYTES + 1);
        assert!(!kept.entries.contains_key(&100));
    }
}
