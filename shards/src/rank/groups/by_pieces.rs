//! Groups documents of a field of which the first values are those of others: pieces of the field that have none of them are passed
//! over, in a piece that has few these are read, and one that has many is walked.

use roaring::RoaringBitmap;

use super::{Read, Walk};
use crate::facets::columns::PieceWalk;
use crate::rank::plan::{SortBy, SortValue};
use crate::rank::sort_source::SortSource;

/// Of up to so many documents in a piece the values are read.
const READ_DOCS: u64 = if cfg!(test) { 2 } else { 256 };
/// And only where the piece has so many times as many: else a walk over it soon meets them.
const SPARSITY: u64 = if cfg!(test) { 2 } else { 8 };
/// Entries that are walked over before pieces are looked at again: a piece's, about.
const WALKED_ENTRIES: usize = if cfg!(test) { 3 } else { 1024 };
/// Pieces looked at in one step.
const LOOKED_AT: usize = if cfg!(test) { 2 } else { 32 };

/// How far the pieces of a field were gone through.
pub(super) struct ByPieces {
    pieces: PieceWalk,
    /// The documents of a piece that are read.
    read: Option<(RoaringBitmap, Read)>,
    /// A walk, and how many pieces are before the one where it began.
    walk: Option<(Walk, usize)>,
}

/// What a step has found.
pub(super) enum Found {
    Nothing,
    /// Documents of one value, which further rules may tell apart.
    OfValue(SortValue, RoaringBitmap),
    /// Documents that are equal under all rules, with their values.
    OfValues(Vec<SortValue>, RoaringBitmap),
    /// All documents were found.
    End,
}

impl ByPieces {
    /// Before the first piece.
    pub fn new(pieces: PieceWalk) -> Self {
        Self { pieces, read: None, walk: None }
    }

    /// Does a piece of the work: takes out of the documents what it finds. Fails when a value cannot be read.
    pub fn step(
        &mut self,
        documents: &mut RoaringBitmap,
        sorts: &[SortBy],
        sorter: &dyn SortSource,
    ) -> Result<Found, String> {
        if let Some((docs, read)) = &mut self.read {
            if read.next.is_some() {
                read.go_on(docs, sorts, sorter)?;
            } else if let Some((values, docs)) = read.merge(sorts) {
                *documents -= &docs;
                return Ok(Found::OfValues(values, docs));
            } else if read.group.is_none() {
                self.read = None;
            }
            return Ok(Found::Nothing);
        }
        let walk = self.walk.as_mut().map(|(walk, _)| walk);
        if let Some((value, docs)) = walk.and_then(|walk| walk.met.pop_front()) {
            return Ok(Found::OfValue(value, docs));
        }
        if documents.is_empty() {
            return Ok(Found::End);
        }
        if self.walk.as_ref().is_none_or(|(walk, _)| walk.budget == 0) {
            self.look(documents);
        }
        if let Some((walk, _)) = self.walk.as_mut().filter(|(walk, _)| self.read.is_none() && walk.budget > 0) {
            walk.go_on(documents, sorter)?;
        }
        Ok(Found::Nothing)
    }

    /// Looks for the next of the documents, and starts to read or walk there.
    fn look(&mut self, documents: &mut RoaringBitmap) {
        let Some(found) = self.pieces.seek(documents, LOOKED_AT) else {
            // The others have no values.
            let mut walk = Walk::ended();
            walk.end(documents);
            self.walk = Some((walk, self.pieces.passed()));
            return;
        };
        if found.is_empty() {
            return;
        }
        let all = self.pieces.here().map_or(0, RoaringBitmap::len);
        if found.len() <= READ_DOCS && found.len() <= all / SPARSITY {
            self.read = Some((found, Read::default()));
            return;
        }
        match &mut self.walk {
            // It has not got beyond this piece.
            Some((walk, at)) if *at == self.pieces.passed() => walk.budget = WALKED_ENTRIES,
            _ => self.walk = Some((Walk::new(self.pieces.values(), WALKED_ENTRIES), self.pieces.passed())),
        }
    }

    /// Ends all reading: the walk that has met what was met, and what was not as if it had no values.
    pub fn end(&mut self, documents: &mut RoaringBitmap) -> Walk {
        let mut walk = self.walk.take().map_or_else(Walk::ended, |(walk, _)| walk);
        walk.end(documents);
        walk
    }

    /// Frees some of what was read; false when none is left.
    pub fn discard(&mut self, count: usize) -> bool {
        self.read.as_mut().is_some_and(|(_, read)| read.runs.discard(count))
            || self.walk.as_mut().is_some_and(|(walk, _)| walk.discard(count))
    }
}
