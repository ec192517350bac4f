//! Fields whose values are kept in memory for counting, as long as the epoch lasts.
//!
//! Looking up the values of every matching document takes most of the time of a search with facets. Many documents have the same
//! values, so a field is kept as its distinct lists of values plus the number of each document's list. A field is loaded once so
//! many of its values have been looked up one by one that loading all of them would have been cheaper.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::ops::ControlFlow;
use std::rc::Rc;

use ahash::{AHashMap, RandomState};
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::coarse::CoarseColumns;
use super::keys;
use super::places::HeldPlaces;
use super::reader::Columns;
use super::store::ColumnError;
use super::values::DocValues;
use crate::ids::FieldId;
use crate::partition::trees::FACET_VALUES;
use crate::runtime::pause_at;

/// A field whose distinct lists take more bytes is not held.
const LISTS_BYTES_MAX: usize = 4 << 20;
/// Bytes of all fields of a partition, about; those asked for later are not held.
const ALL_BYTES_MAX: usize = 16 << 20;
/// What a list takes besides its bytes, while it is looked for among the others.
const LIST_BYTES: usize = 32;
/// To look up a document's values takes about so many times as long as to come by them in passing.
const LOOK_UP_COST: u64 = 4;

/// Up to so many lists for each document counted it is cheaper to have a place for every list than to look for those met.
const LISTS_PER_DOCUMENT: u64 = 8;

/// Documents of which the lists are counted between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 4096;

/// The values of one field.
pub struct ResidentField {
    lists: Lists,
    /// By document, the number of its list plus 1; 0 for none.
    of_documents: Vec<u32>,
}

/// Lists of values as stored, one behind the other: tens of thousands of pieces of memory would take milliseconds to free.
#[derive(Default)]
struct Lists {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// Finds the numbers of lists by their hashes, for the same reason without a copy of them.
struct ListNumbers<S> {
    hasher: S,
    by_hash: AHashMap<u64, u32>,
}

impl Lists {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, number: usize) -> Option<&[u8]> {
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.bytes[start..end])
    }

    fn push(&mut self, list: &[u8]) {
        self.bytes.extend_from_slice(list);
        // At most `LISTS_BYTES_MAX`.
        self.ends.push(self.bytes.len() as u32);
    }
}

impl<S: BuildHasher> ListNumbers<S> {
    fn new(hasher: S) -> Self {
        Self { hasher, by_hash: AHashMap::new() }
    }

    /// The number of an equal one among these lists; otherwise the next list, which must be this one, is found by it from now on.
    fn find(&mut self, list: &[u8], lists: &Lists) -> Option<u32> {
        let mut hash = self.hasher.hash_one(list);
        loop {
            match self.by_hash.entry(hash) {
                Entry::Occupied(known) if lists.get(*known.get() as usize) == Some(list) => return Some(*known.get()),
                // Another list has this hash.
                Entry::Occupied(_) => hash = hash.wrapping_add(1),
                Entry::Vacant(free) => {
                    free.insert(lists.len() as u32);
                    return None;
                }
            }
        }
    }
}

/// The fields held by a partition at one epoch.
#[derive(Default)]
pub struct ResidentFields {
    held: RefCell<Held>,
    pub(super) coarse: CoarseColumns,
    pub(super) places: HeldPlaces,
}

#[derive(Default)]
struct Held {
    fields: AHashMap<FieldId, State>,
    bytes: usize,
}

enum State {
    /// So many of its values were looked up.
    LookedUp(u64),
    /// Somebody reads it, or it is too large.
    Left,
    Resident(Rc<ResidentField>),
}

/// Has others read the field where its reading fails or is dropped half-way, as it is when its client has gone.
struct Unread<'f> {
    fields: &'f ResidentFields,
    field: FieldId,
    looked_up: u64,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if let Some(state @ State::Left) = self.fields.held.borrow_mut().fields.get_mut(&self.field) {
            *state = State::LookedUp(self.looked_up);
        }
    }
}

impl ResidentField {
    /// The values of some documents: each list that they have, how many have it, and the first that does.
    pub async fn lists_of(&self, documents: &RoaringBitmap, pace: &dyn Pace) -> Vec<(u32, u64, u32)> {
        let of = |document: u32| self.of_documents.get(document as usize).copied().unwrap_or(0).checked_sub(1);
        let found = documents.iter().filter_map(|document| Some((of(document)?, document))).enumerate();
        if self.lists.len() as u64 > documents.len().saturating_mul(LISTS_PER_DOCUMENT) {
            let mut counts: AHashMap<u32, (u64, u32)> = AHashMap::new();
            for (at, (list, document)) in found {
                counts.entry(list).or_insert((0, document)).0 += 1;
                pause_at(at, DOCUMENTS_PER_LOOK, pace).await;
            }
            return counts.into_iter().map(|(list, (count, first))| (list, count, first)).collect();
        }
        let mut counts: Vec<(u64, u32)> = vec![(0, 0); self.lists.len()];
        for (at, (list, document)) in found {
            let Some((count, first)) = counts.get_mut(list as usize) else { continue };
            *first = if *count == 0 { document } else { *first };
            *count += 1;
            pause_at(at, DOCUMENTS_PER_LOOK, pace).await;
        }
        let counts = counts.into_iter().zip(0..).filter(|((count, _), _)| *count > 0);
        counts.map(|((count, first), list)| (list, count, first)).collect()
    }

    /// The values of a list.
    pub fn values(&self, list: u32) -> Result<DocValues<'_>, ColumnError> {
        let bytes = self.lists.get(list as usize).ok_or(ColumnError::Corrupt(FACET_VALUES))?;
        DocValues::decode(bytes).ok_or(ColumnError::Corrupt(FACET_VALUES))
    }

    fn bytes(&self) -> usize {
        self.of_documents.len() * 4 + self.lists.bytes.len() + self.lists.len() * LIST_BYTES
    }
}

impl ResidentFields {
    /// The field, if it is held or is to be held from now on because `looked_up` documents more are asked about.
    pub async fn get(
        &self,
        columns: &Columns<'_>,
        field: FieldId,
        (looked_up, documents): (u64, u64),
        pace: &dyn Pace,
    ) -> Result<Option<Rc<ResidentField>>, ColumnError> {
        let looked_up = {
            let mut held = self.held.borrow_mut();
            let is_full = held.bytes >= ALL_BYTES_MAX;
            let looked_up = match held.fields.entry(field).or_insert(State::LookedUp(0)) {
                State::Resident(values) => return Ok(Some(values.clone())),
                State::Left => return Ok(None),
                State::LookedUp(so_far) => {
                    *so_far = so_far.saturating_add(looked_up);
                    if is_full || so_far.saturating_mul(LOOK_UP_COST) < documents {
                        return Ok(None);
                    }
                    *so_far
                }
            };
            held.fields.insert(field, State::Left);
            looked_up
        };
        let unread = Unread { fields: self, field, looked_up };
        let values = columns.all_values(field, pace).await?;
        std::mem::forget(unread);
        let Some(values) = values else { return Ok(None) };
        let values = Rc::new(values);
        let mut held = self.held.borrow_mut();
        held.bytes += values.bytes();
        // Where it was forgotten meanwhile somebody else may have read it, too.
        if let Some(State::Resident(before)) = held.fields.insert(field, State::Resident(values.clone())) {
            held.bytes -= before.bytes();
        }
        Ok(Some(values))
    }

    /// Forgets one of them; false when there is none.
    pub fn forget_some(&self) -> bool {
        let mut held = self.held.borrow_mut();
        let Some(field) = held.fields.keys().next().copied() else {
            return self.places.forget() || self.coarse.forget_some();
        };
        if let Some(State::Resident(values)) = held.fields.remove(&field) {
            held.bytes -= values.bytes();
        }
        true
    }

    /// Bytes of all that are held, about.
    pub fn bytes(&self) -> usize {
        self.held.borrow().bytes + self.coarse.bytes() + self.places.bytes()
    }
}

impl Columns<'_> {
    /// The values of all documents on a field; `None` when they would take too much memory.
    async fn all_values(&self, field: FieldId, pace: &dyn Pace) -> Result<Option<ResidentField>, ColumnError> {
        let start = keys::field(field);
        let mut numbers = ListNumbers::new(RandomState::new());
        let mut found = ResidentField { lists: Lists::default(), of_documents: Vec::new() };
        let mut bytes_left = Some(LISTS_BYTES_MAX);
        let mut entry = |key: &[u8], value: &[u8]| {
            let Some(document) = key.strip_prefix(start.as_slice()) else { return Ok(ControlFlow::Break(())) };
            let document = keys::document_of(document).ok_or(ColumnError::Corrupt(FACET_VALUES))?.0 as usize;
            let next = found.lists.len() as u32;
            let number = match numbers.find(value, &found.lists) {
                Some(number) => number,
                None => {
                    bytes_left = bytes_left.and_then(|left| left.checked_sub(value.len() + LIST_BYTES));
                    if bytes_left.is_none() {
                        return Ok(ControlFlow::Break(()));
                    }
                    found.lists.push(value);
                    next
                }
            };
            if found.of_documents.len() <= document {
                found.of_documents.resize(document + 1, 0);
            }
            found.of_documents[document] = number + 1;
            Ok(ControlFlow::Continue(()))
        };
        self.scan((FACET_VALUES, false), &start, &mut entry, pace).await?;
        Ok(bytes_left.map(|_| found))
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use futures_util::FutureExt;
    use serde_json::json;
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::source::FacetSource;
    use crate::facets::test_support::{Busy, Facets, filterable};

    /// A field is held once enough of its values were looked up; one that is too large never.
    #[test]
    fn fields_are_held_when_that_pays() {
        let long = |at: usize| format!("{at:0>450}");
        let documents = (0..9400).map(|at| json!({"few": at % 3, "many": long(at)}));
        let facets = Facets::with(filterable(&["few", "many"]), documents);
        let (few, many) = (facets.fields.id("few").unwrap(), facets.fields.id("many").unwrap());
        let fields = ResidentFields::default();
        let is_held = |field, looked_up| {
            block_on(fields.get(&facets.columns(), field, (looked_up, 9400), &Unpaced)).unwrap().is_some()
        };
        assert_eq!([1000, 1000].map(|looked_up| is_held(few, looked_up)), [false, false]);
        // A search that is dropped while it reads the field once left it to be read by nobody.
        let columns = facets.columns();
        let mut dropped = Box::pin(fields.get(&columns, few, (1000, 9400), &Busy));
        assert!((&mut dropped).now_or_never().is_none() && !is_held(few, 0));
        drop(dropped);
        assert_eq!([0, 0].map(|looked_up| is_held(few, looked_up)), [true, true]);
        assert_eq!([9400, 9400].map(|looked_up| is_held(many, looked_up)), [false, false]);
        while fields.forget_some() {}
        assert!(!is_held(few, 0));
    }

    /// Lists are told apart also where their hashes do not.
    #[test]
    fn lists_of_one_hash_are_found() {
        #[derive(Clone, Default)]
        struct Same;
        impl std::hash::Hasher for Same {
            fn finish(&self) -> u64 {
                u64::MAX
            }
            fn write(&mut self, _: &[u8]) {}
        }
        impl BuildHasher for Same {
            type Hasher = Self;
            fn build_hasher(&self) -> Self {
                Self
            }
        }
        let (mut numbers, mut lists) = (ListNumbers::new(Same), Lists::default());
        for (list, number) in [("a", None), ("", None), ("bc", None), ("a", Some(0)), ("bc", Some(2)), ("", Some(1))] {
            assert_eq!(numbers.find(list.as_bytes(), &lists), number, "{list}");
            if number.is_none() {
                lists.push(list.as_bytes());
            }
        }
        assert_eq!(
            (lists.len(), lists.get(1), lists.get(2), lists.get(3)),
            (3, Some(&b""[..]), Some(&b"bc"[..]), None)
        );
    }
}
