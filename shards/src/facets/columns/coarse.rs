//! The documents of long stretches of the columns' trees, kept in memory as long as the epoch lasts.
//!
//! A range over a field of a million numbers meets as many entries, most of which have one document. Once ranges have read many
//! entries of a field, its documents are kept in pieces of a thousand entries: a range takes those that lie wholly within it as
//! they are and reads no more than the rest of the two at its ends.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use ahash::AHashMap;
use roaring::RoaringBitmap;
use storage_engine::TreeId;
use storage_engine::vector::Pace;

use super::block_union::BlockUnion;
use super::keys;
use super::reader::{Columns, decode_block};
use super::store::ColumnError;
use crate::runtime::pause_at;

/// Entries of a piece, about.
const PIECE_ENTRIES: usize = if cfg!(test) { 3 } else { 1024 };
/// Documents of a piece, about: where values have many, pieces have fewer entries.
const PIECE_DOCUMENTS: u64 = if cfg!(test) { 8 } else { 4096 };
/// Entries that ranges read before pieces are first made.
const READ_MIN: u64 = if cfg!(test) { 10 } else { 1 << 16 };
/// Pieces are made of so many times as many entries as were read, at most: of a field with more of them later.
const ENTRIES_PER_READ: u64 = 4;
/// Bytes of all pieces of a partition, about; what would be more is not kept.
const BYTES_MAX: usize = 8 << 20;

/// Pieces of the entries of which the keys begin alike.
pub(super) struct Pieces {
    /// The first key of each.
    starts: Vec<Box<[u8]>>,
    documents: Vec<RoaringBitmap>,
    /// All documents, where none is in two pieces: what is not in some pieces is in the others.
    all: Option<RoaringBitmap>,
    bytes: usize,
}

/// The pieces held by a partition at one epoch.
#[derive(Default)]
pub(super) struct CoarseColumns(RefCell<Held>);

#[derive(Default)]
struct Held {
    by_prefix: AHashMap<(u8, Box<[u8]>), State>,
    bytes: usize,
}

enum State {
    /// So many entries were read; from so many on pieces are to be made.
    Read(u64, u64),
    /// Somebody makes them, or they are too large.
    Left,
    Held(Rc<Pieces>),
}

impl CoarseColumns {
    /// Bytes of all pieces, about.
    pub fn bytes(&self) -> usize {
        self.0.borrow().bytes
    }

    /// Forgets some of them; false when there are none.
    pub fn forget_some(&self) -> bool {
        let mut held = self.0.borrow_mut();
        let Some(prefix) = held.by_prefix.keys().next().cloned() else { return false };
        if let Some(State::Held(pieces)) = held.by_prefix.remove(&prefix) {
            held.bytes -= pieces.bytes;
        }
        true
    }

    /// The pieces, if they are held.
    pub fn held(&self, (tree, prefix): (TreeId, &[u8])) -> Option<Rc<Pieces>> {
        match self.0.borrow().by_prefix.get(&(tree.0, Box::from(prefix)))? {
            State::Held(pieces) => Some(pieces.clone()),
            State::Read(..) | State::Left => None,
        }
    }

    /// The pieces, if they are held or worth making.
    pub async fn get(
        &self,
        columns: &Columns<'_>,
        (tree, prefix): (TreeId, &[u8]),
        pace: &dyn Pace,
    ) -> Result<Option<Rc<Pieces>>, ColumnError> {
        let of = (tree.0, Box::from(prefix));
        let (read, from) = {
            let mut held = self.0.borrow_mut();
            let is_full = held.bytes >= BYTES_MAX;
            match held.by_prefix.entry(of.clone()).or_insert(State::Read(0, READ_MIN)) {
                State::Held(pieces) => return Ok(Some(pieces.clone())),
                State::Left => return Ok(None),
                State::Read(read, from) if *read < *from || is_full => return Ok(None),
                State::Read(read, from) => {
                    let before = (*read, *from);
                    held.by_prefix.insert(of.clone(), State::Left);
                    before
                }
            }
        };
        let unmade = Unmade { columns: self, of: &of, read: (read, from) };
        let made = Pieces::make(columns, (tree, prefix), read.saturating_mul(ENTRIES_PER_READ), pace).await?;
        std::mem::forget(unmade);
        let mut held = self.0.borrow_mut();
        let (state, made) = match made {
            Made::Pieces(pieces) => {
                let pieces = Rc::new(pieces);
                held.bytes += pieces.bytes;
                (State::Held(pieces.clone()), Some(pieces))
            }
            Made::TooManyEntries => (State::Read(read, from.max(read).saturating_mul(2)), None),
            Made::TooLarge => (State::Left, None),
        };
        // Where they were forgotten meanwhile somebody else may have made them, too.
        if let Some(State::Held(before)) = held.by_prefix.insert(of, state) {
            held.bytes -= before.bytes;
        }
        Ok(made)
    }

    /// Tells that ranges have read more.
    pub fn add_read(&self, (tree, prefix): (TreeId, &[u8]), entries: u64) {
        match self.0.borrow_mut().by_prefix.entry((tree.0, Box::from(prefix))) {
            Entry::Occupied(mut known) => {
                if let State::Read(read, _) = known.get_mut() {
                    *read = read.saturating_add(entries);
                }
            }
            Entry::Vacant(free) => {
                free.insert(State::Read(entries, READ_MIN));
            }
        }
    }
}

/// Has others make the pieces where their making fails or is dropped half-way, as it is when its client has gone.
struct Unmade<'c> {
    columns: &'c CoarseColumns,
    of: &'c (u8, Box<[u8]>),
    read: (u64, u64),
}

impl Drop for Unmade<'_> {
    fn drop(&mut self) {
        if let Some(state @ State::Left) = self.columns.0.borrow_mut().by_prefix.get_mut(self.of) {
            *state = State::Read(self.read.0, self.read.1);
        }
    }
}

enum Made {
    Pieces(Pieces),
    TooManyEntries,
    TooLarge,
}

impl Pieces {
    async fn make(
        columns: &Columns<'_>,
        (tree, prefix): (TreeId, &[u8]),
        entries_max: u64,
        pace: &dyn Pace,
    ) -> Result<Made, ColumnError> {
        let mut made = Self { starts: Vec::new(), documents: Vec::new(), all: None, bytes: 0 };
        let (mut union, mut count, mut too) = (BlockUnion::default(), 0u64, None);
        let (mut entries, mut documents, mut last) = (0, 0, Vec::new());
        let mut entry = |key: &[u8], value: &[u8]| {
            if !key.starts_with(prefix) {
                return Ok(ControlFlow::Break(()));
            }
            // A piece begins with a value: sorts take pieces for all that have some values.
            let is_full = entries >= PIECE_ENTRIES || documents >= PIECE_DOCUMENTS;
            if count == 0 || (is_full && !keys::are_of_one_value(key, &last)) {
                if count > 0 {
                    made.end(std::mem::take(&mut union));
                }
                made.starts.push(key.into());
                made.bytes += key.len();
                (entries, documents) = (0, 0);
            }
            (count, entries) = (count + 1, entries + 1);
            last.clear();
            last.extend_from_slice(key);
            if count > entries_max {
                too = Some(Made::TooManyEntries);
            } else if made.bytes > BYTES_MAX {
                too = Some(Made::TooLarge);
            }
            if too.is_some() {
                return Ok(ControlFlow::Break(()));
            }
            let (base, block) = decode_block(tree, key, value)?;
            documents += block.len();
            union.add(base, block);
            Ok(ControlFlow::Continue(()))
        };
        columns.scan((tree, false), prefix, &mut entry, pace).await?;
        if let Some(too) = too {
            return Ok(too);
        }
        if count > 0 {
            made.end(union);
        }
        if made.bytes > BYTES_MAX {
            return Ok(Made::TooLarge);
        }
        let all = made.union(0..made.len(), pace).await;
        let bytes = made.bytes + all.serialized_size();
        if bytes <= BYTES_MAX && all.len() == made.documents.iter().map(RoaringBitmap::len).sum::<u64>() {
            (made.bytes, made.all) = (bytes, Some(all));
        }
        Ok(Made::Pieces(made))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// The first key of a piece, and its documents.
    pub fn get(&self, at: usize) -> (&[u8], &RoaringBitmap) {
        (&self.starts[at], &self.documents[at])
    }

    fn end(&mut self, union: BlockUnion) {
        let documents = union.finish();
        self.bytes += documents.serialized_size() + size_of::<RoaringBitmap>() + size_of::<Box<[u8]>>();
        self.documents.push(documents);
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
