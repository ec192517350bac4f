//! Finds the next of some documents in the order of a sort, by the pieces that columns are kept in, see [`coarse`].
//!
//! [`coarse`]: super::coarse

use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::TreeId;
use storage_engine::vector::Pace;

use super::coarse::Pieces;
use super::cuts::Cut;
use super::keys::Stretch;
use super::reader::Columns;
use super::store::ColumnError;
use super::value_walk::{ValueWalk, value_of};
use crate::ids::FieldId;
use crate::partition::trees::{FACET_NUMBERS, FACET_STRINGS};

/// Entries that are read in the time in which a document's values are looked up, at least.
const ENTRIES_PER_DOCUMENT: u64 = if cfg!(test) { 1 } else { 4 };
/// Pieces of which the documents are compared with those looked for as they are.
const PLAIN_PIECES: usize = if cfg!(test) { 1 } else { 2 };
/// Of more documents most containers are bitmaps, which tell at once whether they have one.
const SOUGHT_MAX: u64 = 1 << 18;
/// Documents of a piece that are looked up one by one, at most: a piece of one value can have millions.
const LOOKED_UP_MAX: u64 = if cfg!(test) { 6 } else { 1 << 14 };

/// The pieces of a field's values in the order of a sort: numbers, then strings.
pub struct PieceWalk {
    field: FieldId,
    descending: bool,
    numbers: Rc<Pieces>,
    strings: Rc<Pieces>,
    /// How many pieces were passed over.
    passed: usize,
    /// The documents that are looked for, a bit each, once some pieces had none; perhaps others that have been found.
    sought: Vec<u64>,
}

impl PieceWalk {
    fn new((field, descending): (FieldId, bool), numbers: Rc<Pieces>, strings: Rc<Pieces>) -> Self {
        Self { field, descending, numbers, strings, passed: 0, sought: Vec::new() }
    }

    /// Passes over pieces that have none of the documents, up to `count` of them. Gives those that the next piece has, which is
    /// not passed over; none where it may have none either. `None` behind the last piece. Each time only documents of the time
    /// before may be given.
    pub fn seek(&mut self, documents: &RoaringBitmap, count: usize) -> Option<RoaringBitmap> {
        for at in 0..count {
            if at == PLAIN_PIECES && self.sought.is_empty() && documents.len() <= SOUGHT_MAX {
                self.sought = bits_of(documents);
            }
            let here = self.here()?;
            if self.may_have(here) {
                let found = here & documents;
                if !found.is_empty() {
                    return Some(found);
                }
            }
            self.passed += 1;
        }
        self.here().map(|_| RoaringBitmap::new())
    }

    /// Whether a piece may have documents that are looked for. To compare a small set with a large one roaring bitmaps read both.
    fn may_have(&self, piece: &RoaringBitmap) -> bool {
        let is_sought = |document: u32| {
            self.sought.get(document as usize / 64).is_some_and(|word| word >> (document % 64) & 1 == 1)
        };
        self.sought.is_empty() || piece.len() > LOOKED_UP_MAX || piece.iter().any(is_sought)
    }

    /// How many pieces were passed over.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// The documents of the next piece.
    pub fn here(&self) -> Option<&RoaringBitmap> {
        let (_, pieces, at) = self.place();
        (at < pieces.len()).then(|| pieces.get(at).1)
    }

    /// A walk over the values from the next piece on.
    pub fn values(&self) -> ValueWalk {
        let (tree, pieces, at) = self.place();
        // Downwards a walk begins before a key.
        let from = if self.descending { at.wrapping_add(1) } else { at };
        let from = (from < pieces.len()).then(|| pieces.get(from).0);
        ValueWalk::at(self.field, self.descending, tree, from)
    }

    /// Where the next piece begins in the order; `None` before the first of all.
    ///
    /// # Errors
    /// [`ColumnError`].
    pub fn cut(&self) -> Result<Option<Cut>, ColumnError> {
        let (tree, pieces, at) = self.place();
        if self.passed == 0 {
            return Ok(None);
        }
        if at >= pieces.len() {
            return Ok(Some(Cut(None)));
        }
        let value = match self.descending {
            false => value_of(tree, pieces.get(at).0),
            true if at + 1 < pieces.len() => value_of(tree, pieces.get(at + 1).0),
            // The greatest string comes behind the least number.
            true => value_of(FACET_NUMBERS, self.numbers.get(0).0),
        };
        Ok(Some(Cut(Some(value?))))
    }

    /// The next piece's place among those of its kind; beyond them behind the last.
    fn place(&self) -> (TreeId, &Pieces, usize) {
        let (tree, pieces, at) = match self.passed.checked_sub(self.numbers.len()) {
            Some(at) => (FACET_STRINGS, &self.strings, at),
            None => (FACET_NUMBERS, &self.numbers, self.passed),
        };
        let at = if self.descending { (pieces.len().wrapping_sub(1)).wrapping_sub(at) } else { at };
        (tree, pieces, at)
    }
}

/// A bit for each document up to the last.
fn bits_of(documents: &RoaringBitmap) -> Vec<u64> {
    let mut bits = vec![0; documents.max().map_or(0, |last| last as usize / 64 + 1)];
    documents.iter().for_each(|document| bits[document as usize / 64] |= 1 << (document % 64));
    bits
}

impl Columns<'_> {
    /// The pieces of a field, where they are held.
    pub fn held_pieces(&self, field: FieldId, descending: bool) -> Option<PieceWalk> {
        let coarse = &self.resident?.coarse;
        let [numbers, strings] =
            [FACET_NUMBERS, FACET_STRINGS].map(|tree| coarse.built(&Stretch::of_field(tree, field)));
        let (numbers, strings) = numbers.zip(strings)?;
        Some(PieceWalk::new((field, descending), numbers, strings))
    }

    /// Tells that a walk has read so many values of a field.
    pub fn add_walked(&self, field: FieldId, values: u64) {
        if let Some(resident) = self.resident {
            for tree in [FACET_NUMBERS, FACET_STRINGS] {
                resident.coarse.add_reads(Stretch::of_field(tree, field), values);
            }
        }
    }

    /// The pieces of a field, where they are held or worth making: that a sort would read the values of `unread` documents may be why
    /// they are.
    ///
    /// # Errors
    /// [`ColumnError`].
    pub async fn piece_walk(
        &self,
        field: FieldId,
        descending: bool,
        unread: u64,
        pace: &dyn Pace,
    ) -> Result<Option<PieceWalk>, ColumnError> {
        let unread = unread.saturating_mul(ENTRIES_PER_DOCUMENT);
        let Some(numbers) = self.pieces(FACET_NUMBERS, field, unread, pace).await? else { return Ok(None) };
        let Some(strings) = self.pieces(FACET_STRINGS, field, unread, pace).await? else { return Ok(None) };
        Ok(Some(PieceWalk::new((field, descending), numbers, strings)))
    }
}
