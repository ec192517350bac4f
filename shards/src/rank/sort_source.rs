//! Source of the values that documents are sorted and grouped by.

use super::plan::{SortBy, SortValue};
use crate::facets::distinct::GroupValue;

/// The values that documents of a partition are sorted by.
pub trait SortSource {
    /// For each of `docs` (local numbers, rising) its value under the criterion. Fails when the partition cannot be read.
    fn sort_values(&self, by: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String>;

    /// For each of `docs` the values of its distinct groups; `None` when documents are not grouped. Fails like the other.
    fn group_values(&self, docs: &[u32]) -> Result<Option<Vec<Vec<GroupValue>>>, String> {
        let _ = docs;
        Ok(None)
    }
}
