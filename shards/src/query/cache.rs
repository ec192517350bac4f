//! Caches earlier lookups for one epoch of a partition.
//!
//! Everything here depends only on the epoch, so an entry is valid as long as it is cached.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use ahash::AHashSet;
use roaring::RoaringBitmap;

use super::prefix::{PrefixRange, PrefixTable};
use super::resolve::{NodeFacts, NodeQuestion};
use crate::kept::Kept;

/// Bytes of each kind of entry.
const KIND_BYTES: usize = 16 << 20;
/// Tables of searches under way that are remembered.
const HELD_TABLES_MAX: usize = 1024;

/// The memory of one epoch of a partition, bounded to a few times [`KIND_BYTES`].
#[derive(Default)]
pub struct QueryCache {
    facts: RefCell<Kept<(NodeQuestion, bool), Arc<NodeFacts>>>,
    classes: RefCell<Kept<ClassKey, Rc<RoaringBitmap>>>,
    tables: RefCell<Kept<PrefixRange, Rc<PrefixTable>>>,
    filters: RefCell<Kept<String, Rc<RoaringBitmap>>>,
    /// Tables that searches hold, those too large to be kept among them.
    held_tables: RefCell<Kept<PrefixRange, Weak<PrefixTable>>>,
    building: RefCell<AHashSet<PrefixRange>>,
}

/// Marks the table of a range as being built, as long as it lives: a search may be dropped while it builds.
#[must_use]
pub struct Building<'c> {
    cache: &'c QueryCache,
    range: PrefixRange,
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.cache.building.borrow_mut().remove(&self.range);
    }
}

/// A node, its class, and at which byte it falls into two words (0: nowhere): that is counted over a network shard where one is
/// searched, so it does not follow from the epoch.
pub type ClassKey = (NodeQuestion, u8, u16);

impl QueryCache {
    /// Bytes of all that is kept; tables that are only held belong to searches.
    pub fn bytes(&self) -> usize {
        self.facts.borrow().weight()
            + self.classes.borrow().weight()
            + self.tables.borrow().weight()
            + self.filters.borrow().weight()
    }

    /// Forgets a bounded part of it; false when there is nothing.
    pub fn forget_some(&self) -> bool {
        self.facts.borrow_mut().forget_some()
            || self.classes.borrow_mut().forget_some()
            || self.tables.borrow_mut().forget_some()
            || self.held_tables.borrow_mut().forget_some()
            || self.filters.borrow_mut().forget_some()
    }

    /// The facts of a node, if they are kept.
    pub fn known_facts(&self, key: &(NodeQuestion, bool)) -> Option<Arc<NodeFacts>> {
        self.facts.borrow().get(key).cloned()
    }

    /// Keeps the facts of a node; they travel to the core that asked.
    pub fn keep_facts(&self, key: (NodeQuestion, bool), facts: &Arc<NodeFacts>) {
        let lists = [&facts.prefixed, &facts.prefixed_exact, &facts.one_typo, &facts.two_typos];
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

    /// The table of a range of words, if it is kept or a search holds it.
    pub fn known_table(&self, range: &PrefixRange) -> Option<Rc<PrefixTable>> {
        let kept = self.tables.borrow().get(range).cloned();
        kept.or_else(|| self.held_tables.borrow().get(range)?.upgrade())
    }

    /// Says that the table of a range is being built from now on; `None` when it already is, by another search.
    pub fn start_table(&self, range: &PrefixRange) -> Option<Building<'_>> {
        let is_first = self.building.borrow_mut().insert(range.clone());
        is_first.then(|| Building { cache: self, range: range.clone() })
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

    /// Keeps the table of a range of words. One too large for that is shared by the searches that run together.
    pub fn keep_table(&self, range: PrefixRange, table: &Rc<PrefixTable>) {
        self.held_tables.borrow_mut().keep(range.clone(), Rc::downgrade(table), 1, HELD_TABLES_MAX);
        self.tables.borrow_mut().keep(range, table.clone(), table.bytes() + 128, KIND_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches that run together once built a large table each.
    #[test]
    fn a_table_is_built_by_one_search_and_found_as_long_as_one_holds_it() {
        let (cache, range) = (QueryCache::default(), PrefixRange { prefix: "a".into(), last: None });
        let building = cache.start_table(&range);
        assert!(building.is_some() && cache.start_table(&range).is_none());
        drop(building);
        assert!(cache.start_table(&range).is_some());
        let table = Rc::new(PrefixTable::default());
        cache.keep_table(range.clone(), &table);
        assert!(cache.tables.borrow_mut().forget_some());
        assert!(cache.known_table(&range).is_some_and(|known| Rc::ptr_eq(&known, &table)));
        drop(table);
        assert!(cache.known_table(&range).is_none());
    }

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
