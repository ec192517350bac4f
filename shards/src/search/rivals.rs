//! Which of the documents at fixed places, and of those that share a distinct value with one, count where a total is exact: there
//! the interface takes them all for candidates, by their numbers, though all of them are shown.

use ahash::AHashSet;

use crate::facets::distinct::{GroupValue, Groups};
use crate::ids::DocId;

/// Documents at fixed places and those that share a distinct value with one.
#[derive(Default)]
pub(super) struct Rivals {
    /// The values of those at fixed places.
    values: AHashSet<GroupValue>,
    /// All that were met, with their values.
    met: Vec<(DocId, Vec<GroupValue>)>,
}

impl Rivals {
    /// Those at fixed places, with their values.
    pub fn of(pinned: Vec<(DocId, Vec<GroupValue>)>) -> Self {
        let values = pinned.iter().flat_map(|(_, groups)| groups).cloned().collect();
        Self { values, met: pinned }
    }

    /// Meets a document that stays in the order.
    pub fn meet(&mut self, doc: DocId, groups: &[GroupValue]) {
        if groups.iter().any(|group| self.values.contains(group)) {
            self.met.push((doc, groups.to_vec()));
        }
    }

    /// Those that share a value with one before them.
    pub fn uncounted(mut self) -> Vec<DocId> {
        self.met.sort_unstable_by_key(|(doc, _)| *doc);
        let mut groups = Groups::default();
        let dropped = self.met.into_iter().filter_map(|(doc, values)| (!groups.admit(values)).then_some(doc));
        dropped.collect()
    }
}
