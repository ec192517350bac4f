//! The documents of long stretches of the columns' trees, kept in memory.
//!
//! A range over a field of a million numbers meets as many entries, most of which have one document. Once ranges have read many
//! entries of a field, its documents are kept in pieces of a thousand entries: a range takes those that lie wholly within it as
//! they are and reads no more than the rest of the two at its ends. At the next epoch only pieces with changes are read again.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::block_union::BlockUnion;
use super::epoch_cache::{Asked, Derived, EpochCache, Outcome};
use super::keys::{self, Stretch};
use super::reader::{Columns, decode_block};
use super::store::ColumnError;
use super::touched::Touched;
use crate::runtime::pause_at;

/// Entries of a piece, about.
const PIECE_ENTRIES: usize = if cfg!(test) { 3 } else { 1024 };
/// Documents of a piece, about: where values have many, pieces have fewer entries.
const PIECE_DOCUMENTS: u64 = if cfg!(test) { 8 } else { 4096 };
/// Pieces are made of so many times as many entries as were read, at most: of a field with more of them later.
const ENTRIES_PER_READ: u64 = 4;
/// Pieces that are taken over between two looks at whether others wait.
const PIECES_PER_LOOK: usize = if cfg!(test) { 2 } else { 256 };
/// Bytes of all pieces of a partition, about; what would be more is not kept.
const BYTES_MAX: usize = 8 << 20;

/// Pieces of the entries of a stretch.
#[derive(Clone)]
pub(super) struct Pieces {
    /// The least key that each may have.
    starts: Vec<Box<[u8]>>,
    documents: Vec<RoaringBitmap>,
    /// All documents, where none is in two pieces: what is not in some pieces is in the others.
    all: Option<RoaringBitmap>,
    bytes: usize,
}

/// The pieces held by a partition at one epoch. What was read is counted in entries.
pub(super) type CoarseColumns = EpochCache<Stretch, Pieces>;

impl Derived for Pieces {
    const READS_MIN: u64 = if cfg!(test) { 10 } else { 1 << 16 };
    const PART_COST: u64 = 2;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn parts(&self) -> u64 {
        self.documents.len() as u64
    }
}

impl CoarseColumns {
    /// The pieces, if they are held or worth making.
    pub async fn get(
        &self,
        columns: &Columns<'_>,
        stretch: Stretch,
        pace: &dyn Pace,
    ) -> Result<Option<Rc<Pieces>>, ColumnError> {
        let mut builder = match self.ask(stretch, BYTES_MAX, |reads| reads.are_enough()) {
            Asked::Built(pieces) => return Ok(Some(pieces)),
            Asked::Missing => return Ok(None),
            Asked::Build(builder) => builder,
        };
        let outcome = match builder.take_stale() {
            Some((pieces, stale)) => pieces.renew(columns, stretch, &stale, pace).await?,
            None => {
                let entries_max = builder.reads.count.saturating_mul(ENTRIES_PER_READ);
                Pieces::make(columns, stretch, entries_max, pace).await?
            }
        };
        Ok(builder.end(outcome))
    }

    /// Those of the next epoch.
    pub fn after(&self, touched: &Touched) -> Self {
        self.renewed(|stretch, pieces| {
            let keys = touched.blocks(stretch)?;
            Some(keys.iter().map(|key| pieces.place_of(key) as u32).collect())
        })
    }
}

impl Pieces {
    async fn make(
        columns: &Columns<'_>,
        stretch: Stretch,
        entries_max: u64,
        pace: &dyn Pace,
    ) -> Result<Outcome<Self>, ColumnError> {
        let mut made = Self { starts: Vec::new(), documents: Vec::new(), all: None, bytes: 0 };
        if !made.read(columns, stretch, (stretch.start(), None), entries_max, pace).await? {
            return Ok(if made.bytes > BYTES_MAX { Outcome::TooLarge } else { Outcome::TooSoon });
        }
        made.all = Some(made.union(0..made.len(), pace).await);
        Ok(made.checked())
    }

    /// Reads the pieces again that are `stale`.
    async fn renew(
        mut self,
        columns: &Columns<'_>,
        stretch: Stretch,
        stale: &RoaringBitmap,
        pace: &dyn Pace,
    ) -> Result<Outcome<Self>, ColumnError> {
        let starts = std::mem::take(&mut self.starts);
        let mut before = std::mem::take(&mut self.documents).into_iter();
        let mut made = Self { starts: Vec::new(), documents: Vec::new(), all: self.all, bytes: 0 };
        let mut at = 0;
        let mut read = BlockUnion::default();
        while at < starts.len() || (at == 0 && !stale.is_empty()) {
            let count = (at..).take_while(|at| stale.contains(*at as u32)).count();
            if count == 0 {
                let documents = before.next().unwrap_or_default();
                made.push(starts[at].clone(), documents);
                at += 1;
                pause_at(at, PIECES_PER_LOOK, pace).await;
                continue;
            }
            // What now comes first of all may be less than what came first before.
            let from = if at == 0 { stretch.start() } else { &starts[at] };
            at += count;
            for gone in before.by_ref().take(count) {
                made.all = made.all.take().map(|all| all - gone);
                pause_at(0, 1, pace).await;
            }
            let known = made.len();
            let until = starts.get(at).map(|next| &**next);
            if !made.read(columns, stretch, (from, until), u64::MAX, pace).await? {
                return Ok(Outcome::TooLarge);
            }
            for documents in &made.documents[known..] {
                read.add_set(documents);
                pause_at(0, 1, pace).await;
            }
        }
        let read = read.finish();
        made.all = made.all.take().map(|all| all | read);
        Ok(made.checked())
    }

    /// Adds the pieces of what lies between two keys. False, and half-done, where these are too many entries or bytes.
    async fn read(
        &mut self,
        columns: &Columns<'_>,
        stretch: Stretch,
        (from, until): (&[u8], Option<&[u8]>),
        entries_max: u64,
        pace: &dyn Pace,
    ) -> Result<bool, ColumnError> {
        let (mut piece, mut first) = (Piece::default(), Box::<[u8]>::default());
        let (mut count, mut last, mut fits, known) = (0u64, Vec::new(), true, self.len());
        let mut entry = |key: &[u8], value: &[u8]| {
            if !key.starts_with(stretch.start()) || until.is_some_and(|until| key >= until) {
                return Ok(ControlFlow::Break(()));
            }
            // A piece begins with a value: sorts take pieces for all that have some values.
            if count == 0 || (piece.is_full(1) && !keys::are_of_one_value(key, &last)) {
                if count > 0 {
                    let before = std::mem::replace(&mut first, keys::first_of_value(key));
                    self.push(before, std::mem::take(&mut piece).union.finish());
                } else {
                    first = keys::first_of_value(key);
                }
            }
            count += 1;
            last.clear();
            last.extend_from_slice(key);
            fits = count <= entries_max && self.bytes <= BYTES_MAX;
            if !fits {
                return Ok(ControlFlow::Break(()));
            }
            let (base, block) = decode_block(stretch.tree(), key, value)?;
            piece.entries += 1;
            piece.documents += block.len();
            piece.union.add(base, block);
            Ok(ControlFlow::Continue(()))
        };
        columns.scan((stretch.tree(), false), from, &mut entry, pace).await?;
        if count > 0 && fits {
            // Else a full piece that grows by an entry would leave a piece of one behind each time.
            if self.len() > known && !piece.is_full(2) {
                if let Some(end) = self.documents.last_mut() {
                    self.bytes -= end.serialized_size();
                    *end |= piece.union.finish();
                    self.bytes += end.serialized_size();
                }
            } else {
                self.push(first, piece.union.finish());
            }
        }
        Ok(fits)
    }

    fn push(&mut self, start: Box<[u8]>, documents: RoaringBitmap) {
        self.bytes += start.len() + size_of::<Box<[u8]>>() + documents.serialized_size() + size_of::<RoaringBitmap>();
        self.starts.push(start);
        self.documents.push(documents);
    }

    /// The same with all documents, if these are right and there is room.
    fn checked(mut self) -> Outcome<Self> {
        let count = self.documents.iter().map(RoaringBitmap::len).sum::<u64>();
        let bytes = self.all.as_ref().filter(|all| all.len() == count).map(|all| self.bytes + all.serialized_size());
        match bytes.filter(|bytes| *bytes <= BYTES_MAX) {
            Some(bytes) => self.bytes = bytes,
            None => self.all = None,
        }
        if self.bytes > BYTES_MAX { Outcome::TooLarge } else { Outcome::Built(self) }
    }

    /// The piece that a key belongs to.
    fn place_of(&self, key: &[u8]) -> usize {
        self.starts.partition_point(|start| **start <= *key).saturating_sub(1)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// The first key of a piece, and its documents.
    pub fn get(&self, at: usize) -> (&[u8], &RoaringBitmap) {
        (&self.starts[at], &self.documents[at])
    }

    /// The documents of some pieces.
    async fn union(&self, places: Range<usize>, pace: &dyn Pace) -> RoaringBitmap {
        if let Some(all) = &self.all
            && places.len() > self.len() / 2
        {
            let mut documents = all.clone();
            for piece in self.documents[..places.start].iter().chain(&self.documents[places.end..]) {
                documents -= piece;
                pause_at(0, 1, pace).await;
            }
            return documents;
        }
        let mut union = BlockUnion::default();
        for piece in &self.documents[places] {
            union.add_set(piece);
            pause_at(0, 1, pace).await;
        }
        union.finish()
    }

    /// What a range takes from them: the documents of those wholly within it, the key where the first of these begins, and that
    /// where the range goes on behind the last, if it does. `None` when it holds no whole piece.
    pub async fn within(
        &self,
        prefix: &[u8],
        (from, before): (&[u8], Option<&[u8]>),
        pace: &dyn Pace,
    ) -> Option<(RoaringBitmap, &[u8], Option<&[u8]>)> {
        let first = self.starts.partition_point(|start| **start < *from);
        // A key that is greater than all with this beginning ends the last piece.
        let inner = before.filter(|before| before.starts_with(prefix) || *before < prefix);
        let end = match inner {
            Some(before) => self.starts.partition_point(|start| **start <= *before).saturating_sub(1),
            None => self.documents.len(),
        };
        if first >= end {
            return None;
        }
        let documents = self.union(first..end, pace).await;
        Some((documents, &self.starts[first], inner.map(|_| &*self.starts[end])))
    }
}

/// A piece that is being read.
#[derive(Default)]
struct Piece {
    union: BlockUnion,
    entries: usize,
    documents: u64,
}

impl Piece {
    /// Whether it has what a piece has, divided by `part`.
    fn is_full(&self, part: u64) -> bool {
        self.entries as u64 * part >= PIECE_ENTRIES as u64 || self.documents * part >= PIECE_DOCUMENTS
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use futures_lite::future::block_on;
    use futures_util::FutureExt;
    use proptest::prelude::*;
    use serde_json::json;
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::source::FacetSource;
    use crate::facets::test_support::{Busy, Facets, filterable};

    fn bound(number: u64, kind: u8) -> Bound<u64> {
        match kind {
            0 => Bound::Included(number),
            1 => Bound::Excluded(number),
            _ => Bound::Unbounded,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Ranges find the same with pieces and without.
        #[test]
        fn pieces_change_nothing(
            values in proptest::collection::vec(proptest::collection::vec(-9..30i32, 0..3), 12..40),
            ranges in proptest::collection::vec((-10..31i32, -10..31i32, 0..3u8, 0..3u8), 1..12),
            values_max in 1..3usize,
        ) {
            let both = |number: &i32| [json!(number), json!(format!("{number:03}"))];
            let of = |list: &Vec<i32>| list.iter().take(values_max).flat_map(both).collect::<Vec<_>>();
            let facets = Facets::with(filterable(&["v"]), values.iter().map(|list| json!({ "v": of(list), "w": 1 })));
            let field = facets.fields.id("v").expect("met");
            let (plain, held) = (facets.columns(), facets.columns().held_by(facets.resident_fields()));
            let bits = |number: i32| crate::facets::normalise::number_bits(f64::from(number));
            for (from, to, from_kind, to_kind) in ranges {
                let range = (bound(bits(from), from_kind), bound(bits(to), to_kind));
                let find = |columns: Columns<'_>| block_on(columns.with_number_in(field, range.0, range.1, &Unpaced)).unwrap();
                prop_assert_eq!(find(held), find(plain));
                let (from, to) = (format!("{from:03}"), format!("{to:03}"));
                let range = (bound(0, from_kind).map(|_| &*from), bound(0, to_kind).map(|_| &*to));
                let find = |columns: Columns<'_>| block_on(columns.with_string_in(field, range.0, range.1, &Unpaced)).unwrap();
                prop_assert_eq!(find(held), find(plain));
            }
            let coarse = &facets.resident.coarse;
            let before = coarse.bytes();
            while coarse.forget_some() {}
            prop_assert_eq!((coarse.bytes(), facets.resident.bytes()), (0, 0), "{} before", before);
        }
    }

    /// A range of a field that was read enough takes its pieces.
    #[test]
    fn fields_that_ranges_read_are_kept_in_pieces() {
        let facets = Facets::with(filterable(&["v"]), (0..30).map(|at| json!({ "v": at })));
        let field = facets.fields.id("v").expect("met");
        let columns = facets.columns().held_by(facets.resident_fields());
        let all =
            || block_on(columns.with_number_in(field, Bound::Unbounded, Bound::Unbounded, &Unpaced)).unwrap().len();
        assert_eq!((all(), facets.resident.bytes()), (30, 0));
        // A search that is dropped while it makes them once left them to be made by nobody.
        let mut dropped = Box::pin(columns.with_number_in(field, Bound::Unbounded, Bound::Unbounded, &Busy));
        assert!((&mut dropped).now_or_never().is_none());
        assert_eq!((all(), facets.resident.bytes()), (30, 0), "somebody makes them");
        drop(dropped);
        assert_eq!(all(), 30);
        assert!(facets.resident.bytes() > 0);
        assert_eq!(all(), 30);
    }
}
