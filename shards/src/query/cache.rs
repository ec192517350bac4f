//! What one epoch of a partition remembers of earlier searches.
//!
//! Everything here follows from the epoch alone, so an entry is right as long as it is kept.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;

use super::prefix::{PrefixRange, PrefixTable};
use super::resolve::{NodeFacts, NodeQuestion};
use crate::kept::Kept;

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

impl QueryCache {
    /// Forgets a bounded part of it; false when there is nothing.
    pub fn forget_some(&self) -> bool {
        self.facts.borrow_mut().forget_some()
            || self.classes.borrow_mut().forget_some()
            || self.tables.borrow_mut().forget_some()
            || self.filters.borrow_mut().forget_some()
    }

    /// The facts of a node, if they are kept.
    pub fn known_facts(&self, key: &(NodeQuestion, bool)) -> Option<Arc<NodeFacts>> {
        self.facts.borrow().get(key).cloned()
    }

    /// Keeps the facts of a node; they travel to the core that asked.
    pub fn keep_facts(&self, key: (NodeQuestion, bool), facts: &Arc<NodeFacts>) {
        let lists = [&facts.prefixed, &facts.one_typo, &facts.two_typos];
        let words = lists.iter().flat_map(|list| list.iter()).map(|word| word.len() + 32).sum::<usize>();
        self.facts.borrow_mut().keep(key, facts.clone(), words + facts.splits.len() * 8 + 128, KIND_BYTES);
    }

    /// The documents of a node in a class, when all fields are searched.
    pub fn class(&self, key: ClassKey, make: impl FnOnce() -> Rc<RoaringBitmap>) -> Rc<RoaringBitmap> {
        if let Some(known) = self.classes.borrow().get(&key) {
            return known.clone();
        }
        let docs = make();
        self.classes.borrow_mut().keep(key, docs.clone(), docs.serialized_size() + 128, KIND_BYTES);
        docs
    }

    /// The table of a range of words, if it is kept.
    pub fn known_table(&self, range: &PrefixRange) -> Option<Rc<PrefixTable>> {
        self.tables.borrow().get(range).cloned()
    }

    /// What a filter, written out, selects, if it is kept.
    pub fn known_filter(&self, filter: &str) -> Option<Rc<RoaringBitmap>> {
        self.filters.borrow().get(filter).cloned()
    }

    /// Keeps what a filter selects.
    pub fn keep_filter(&self, filter: String, docs: &Rc<RoaringBitmap>) {
        let bytes = docs.serialized_size() + filter.len() + 128;
        self.filters.borrow_mut().keep(filter, docs.clone(), bytes, KIND_BYTES);
    }

    /// Keeps the table of a range of words.
    pub fn keep_table(&self, range: PrefixRange, table: &Rc<PrefixTable>) {
        self.tables.borrow_mut().keep(range, table.clone(), table.bytes() + 128, KIND_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_made_once_and_forgotten() {
        let cache = QueryCache::default();
        let mut made = 0;
        for _ in 0..3 {
            cache.class((NodeQuestion::default(), 1, 0), || {
                made += 1;
                Rc::default()
            });
        }
        assert_eq!(made, 1);
        assert!(cache.forget_some() && !cache.forget_some());
    }
}
