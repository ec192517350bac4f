//! Source of the values that documents are sorted and grouped by.

use futures_util::future::LocalBoxFuture;
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::plan::{SortBy, SortValue};
use crate::facets::columns::{Cut, PieceWalk, RingStep, RingWalk, ValueWalk};
use crate::facets::distinct::GroupValue;

/// The values that documents of a partition are sorted by.
pub trait SortSource {
    /// For each of `docs` (local numbers, rising) its value under the criterion. Fails when the partition cannot be read.
    fn sort_values(&self, by: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String>;

    /// Starts to walk the values of the criterion in its order, from a cut on if one is given; `None` where they are in no order.
    fn walk(&self, by: &SortBy, from: Option<&Cut>) -> Option<ValueWalk> {
        let _ = (by, from);
        None
    }

    /// Goes on with a walk for about `effort` entries: `value` is called with each value and the documents that have it. Gives the
    /// effort it took, `None` at the end. Fails like the other.
    fn walk_on(
        &self,
        walk: &mut ValueWalk,
        effort: usize,
        value: &mut dyn FnMut(SortValue, RoaringBitmap),
    ) -> Result<Option<usize>, String> {
        let _ = (walk, effort, value);
        Ok(None)
    }

    /// The pieces of the criterion's values, if they are held.
    fn pieces(&self, by: &SortBy) -> Option<PieceWalk> {
        let _ = by;
        None
    }

    /// Asks for pieces, where a walk has met few of the documents and `unread` are left. True the first time, if there may be
    /// some once [`SortSource::prepare`] was called.
    fn want_pieces(&self, by: &SortBy, unread: u64) -> bool {
        let _ = (by, unread);
        false
    }

    /// Makes what was asked for, if anything was, which takes long. Fails like the other.
    fn prepare<'a>(&'a self, pace: &'a dyn Pace) -> Option<LocalBoxFuture<'a, Result<(), String>>> {
        let _ = pace;
        None
    }

    /// Starts to look for documents in rings of the criterion's distance; `None` where there is none.
    fn rings(&self, by: &SortBy) -> Option<RingWalk> {
        let _ = by;
        None
    }

    /// Goes on with rings for about `effort` entries. Fails like the other.
    fn rings_on(&self, rings: &mut RingWalk, effort: usize) -> Result<RingStep, String> {
        let _ = (rings, effort);
        Ok(RingStep::End)
    }

    /// For each of `docs` the values of its distinct groups; `None` when documents are not grouped. Fails like the other.
    fn group_values(&self, docs: &[u32]) -> Result<Option<Vec<Vec<GroupValue>>>, String> {
        let _ = docs;
        Ok(None)
    }

    /// The documents of distinct groups, of no more of them once there are so many documents. Fails like the other.
    fn group_members(&self, values: &[GroupValue], most: u64) -> Result<RoaringBitmap, String> {
        let _ = (values, most);
        Ok(RoaringBitmap::new())
    }
}
