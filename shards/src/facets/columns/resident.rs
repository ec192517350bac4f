//! Fields whose values are kept in memory for counting.
//!
//! Looking up the values of every matching document takes most of the time of a search with facets. Many documents have the same
//! values, so a field is kept as its distinct lists of values plus the number of each document's list. A field is loaded once so
//! many of its values have been looked up one by one that loading all of them would have been cheaper. At the next epoch only the
//! values of documents that changed are read again.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::ops::ControlFlow;
use std::rc::Rc;

use ahash::{AHashMap, RandomState};
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::coarse::CoarseColumns;
use super::epoch_cache::{Asked, Derived, EpochCache, Outcome, Reads};
use super::keys;
use super::places::HeldPlaces;
use super::reader::Columns;
use super::store::ColumnError;
use super::touched::{Touched, Touches};
use super::values::DocValues;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::FACET_VALUES;
use crate::runtime::pause_at;

/// A field whose distinct lists take more bytes is not held.
const LISTS_BYTES_MAX: usize = 4 << 20;
/// Bytes of all fields of a partition, about; those asked for later are not held.
const ALL_BYTES_MAX: usize = 16 << 20;
/// What a list takes besides its bytes.
const LIST_BYTES: usize = 32;
/// To look up a document's values takes about so many times as long as to come by them in passing.
const LOOK_UP_COST: u64 = 4;

/// Up to so many lists for each document counted it is cheaper to have a place for every list than to look for those met.
const LISTS_PER_DOCUMENT: u64 = 8;

/// Documents of which the lists are counted between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 4096;

/// The values of one field.
#[derive(Clone)]
pub struct ResidentField {
    lists: Lists,
    numbers: ListNumbers<RandomState>,
    /// By document, the number of its list plus 1; 0 for none.
    of_documents: Vec<u32>,
}

/// Lists of values as stored, one behind the other: tens of thousands of pieces of memory would take milliseconds to free.
#[derive(Clone, Default)]
struct Lists {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// Finds the numbers of lists by their hashes, for the same reason without a copy of them.
#[derive(Clone)]
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

/// What a partition holds in memory of its columns at one epoch.
#[derive(Default)]
pub struct ResidentFields {
    /// What was read without them is counted in values looked up.
    fields: EpochCache<FieldId, ResidentField>,
    pub(super) coarse: CoarseColumns,
    pub(super) places: HeldPlaces,
}

impl Derived for ResidentField {
    const READS_MIN: u64 = 0;
    const PART_COST: u64 = LOOK_UP_COST;

    fn bytes(&self) -> usize {
        self.of_documents.len() * 4 + self.lists.bytes.len() + self.lists.len() * LIST_BYTES
    }

    fn parts(&self) -> u64 {
        self.of_documents.len() as u64
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

    fn new() -> Self {
        let numbers = ListNumbers::new(RandomState::new());
        Self { lists: Lists::default(), numbers, of_documents: Vec::new() }
    }

    /// Sets the values of a document; false where they would take too much memory.
    fn set(&mut self, document: LocalDocId, list: &[u8]) -> bool {
        let next = self.lists.len();
        let number = match self.numbers.find(list, &self.lists) {
            Some(number) => number,
            None if self.lists.bytes.len() + list.len() + (next + 1) * LIST_BYTES > LISTS_BYTES_MAX => return false,
            None => {
                self.lists.push(list);
                next as u32
            }
        };
        let at = document.0 as usize;
        if self.of_documents.len() <= at {
            self.of_documents.resize(at + 1, 0);
        }
        self.of_documents[at] = number + 1;
        true
    }

    /// Reads the values of some documents again; false where they would take too much memory.
    async fn renew(
        &mut self,
        columns: &Columns<'_>,
        field: FieldId,
        documents: &RoaringBitmap,
        pace: &dyn Pace,
    ) -> Result<bool, ColumnError> {
        for document in documents {
            pause_at(0, 1, pace).await;
            match columns.store.get(FACET_VALUES, &keys::values(field, LocalDocId(document)))? {
                Some(list) if !self.set(LocalDocId(document), list) => return Ok(false),
                Some(_) => {}
                None => self.of_documents.get_mut(document as usize).into_iter().for_each(|list| *list = 0),
            }
        }
        Ok(true)
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
        let pays = |reads: &mut Reads| {
            reads.count = reads.count.saturating_add(looked_up);
            reads.count.saturating_mul(LOOK_UP_COST) >= documents
        };
        let mut builder = match self.fields.ask(field, ALL_BYTES_MAX, pays) {
            Asked::Built(values) => return Ok(Some(values)),
            Asked::Missing => return Ok(None),
            Asked::Build(builder) => builder,
        };
        if let Some((mut values, stale)) = builder.take_stale()
            && values.renew(columns, field, &stale, pace).await?
        {
            return Ok(builder.end(Outcome::Built(values)));
        }
        // Where there is no room for what changed there may be without lists that no document has any more.
        let values = columns.all_values(field, pace).await?;
        Ok(builder.end(values.map_or(Outcome::TooLarge, Outcome::Built)))
    }

    /// What is right of it at the next epoch.
    pub fn after(&self, touched: &Touched) -> Self {
        let fields = self.fields.renewed(|field, _| touched.documents(Touches::Values(*field)));
        Self { fields, coarse: self.coarse.after(touched), places: self.places.after(touched) }
    }

    /// Forgets one of them; false when there is none.
    pub fn forget_some(&self) -> bool {
        self.fields.forget_some() || self.places.forget_some() || self.coarse.forget_some()
    }

    /// Bytes of all that are held, about.
    pub fn bytes(&self) -> usize {
        self.fields.bytes() + self.coarse.bytes() + self.places.bytes()
    }
}

impl Columns<'_> {
    /// The values of all documents on a field; `None` when they would take too much memory.
    async fn all_values(&self, field: FieldId, pace: &dyn Pace) -> Result<Option<ResidentField>, ColumnError> {
        let start = keys::field(field);
        let (mut found, mut fits) = (ResidentField::new(), true);
        let mut entry = |key: &[u8], value: &[u8]| {
            let Some(document) = key.strip_prefix(start.as_slice()) else { return Ok(ControlFlow::Break(())) };
            let document = keys::document_of(document).ok_or(ColumnError::Corrupt(FACET_VALUES))?;
            fits = found.set(document, value);
            Ok(if fits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        };
        self.scan((FACET_VALUES, false), &start, &mut entry, pace).await?;
        Ok(fits.then_some(found))
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
