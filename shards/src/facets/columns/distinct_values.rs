//! The values that some documents have on a field, each once, where no document has several.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use roaring::RoaringBitmap;
use storage_engine::TreeId;
use storage_engine::vector::Pace;

use super::block::BlockBits;
use super::counting::CountedSet;
use super::keys;
use super::reader::{Columns, decode_block};
use super::store::ColumnError;
use crate::ids::FieldId;
use crate::partition::trees::{FACET_NUMBERS, FACET_STRINGS};
use crate::runtime::pause_at;

/// Blocks that are read for each document met, at most: to look up a document's values takes about as long as to pass over so many.
const BLOCKS_PER_DOCUMENT: u64 = if cfg!(test) { 2 } else { 16 };
/// Blocks that are read in any case.
const BLOCKS_MIN: u64 = if cfg!(test) { 4 } else { 4096 };
/// Documents whose values are looked up between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = if cfg!(test) { 3 } else { 256 };
/// Values that are put in order, or merged, between two looks.
const VALUES_PER_LOOK: usize = if cfg!(test) { 2 } else { 4096 };

/// The values that some documents have on a field, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DistinctValues {
    /// Documents that have a value.
    pub documents: u64,
    /// Different values.
    pub count: u64,
    /// The bits of those that are numbers, rising; empty where nobody asks which these are.
    numbers: Vec<u64>,
    /// Those that are strings, in the same way.
    strings: Strings,
}

/// Strings, as keys have them, one behind the other.
#[derive(Clone, Debug, Default, PartialEq)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }
}

impl DistinctValues {
    /// What several partitions have together, as far as they told which values they have.
    pub async fn merged(parts: Vec<Self>, pace: &dyn Pace) -> Self {
        let mut parts = parts;
        while parts.len() > 1 {
            let mut merged = Vec::with_capacity(parts.len().div_ceil(2));
            let mut rest = parts.into_iter();
            while let Some(left) = rest.next() {
                merged.push(match rest.next() {
                    Some(right) => Self::of_both(&left, &right, pace).await,
                    None => left,
                });
            }
            parts = merged;
        }
        parts.pop().unwrap_or_default()
    }

    async fn of_both(a: &Self, b: &Self, pace: &dyn Pace) -> Self {
        let mut both = Self { documents: a.documents + b.documents, ..Self::default() };
        both.numbers.reserve(a.numbers.len() + b.numbers.len());
        let order = |left: usize, right: usize| a.numbers[left].cmp(&b.numbers[right]);
        let mut walk = Both::new(a.numbers.len(), b.numbers.len());
        while let Some((left, right)) = walk.next(order) {
            both.numbers.extend(left.map(|at| a.numbers[at]).or_else(|| right.map(|at| b.numbers[at])));
            pause_at(walk.met, VALUES_PER_LOOK, pace).await;
        }
        both.strings.bytes.reserve(a.strings.bytes.len() + b.strings.bytes.len());
        both.strings.ends.reserve(a.strings.len() + b.strings.len());
        let order = |left: usize, right: usize| a.strings.get(left).cmp(b.strings.get(right));
        let mut walk = Both::new(a.strings.len(), b.strings.len());
        while let Some((left, right)) = walk.next(order) {
            let string = left.map(|at| a.strings.get(at)).or_else(|| right.map(|at| b.strings.get(at)));
            both.strings.push(string.unwrap_or_default());
            pause_at(walk.met, VALUES_PER_LOOK, pace).await;
        }
        both.count = (both.numbers.len() + both.strings.len()) as u64;
        both
    }

    /// Takes values in any order, some of them again and again.
    async fn of(mut numbers: Vec<u64>, strings: &Strings, documents: u64, pace: &dyn Pace) -> Self {
        let mut parts = Vec::new();
        for run in numbers.chunks_mut(VALUES_PER_LOOK) {
            run.sort_unstable();
            let mut numbers = run.to_vec();
            numbers.dedup();
            parts.push(Self { numbers, ..Self::default() });
            pause_at(0, 1, pace).await;
        }
        let places: Vec<usize> = (0..strings.len()).collect();
        for run in places.chunks(VALUES_PER_LOOK) {
            let mut run = run.to_vec();
            run.sort_unstable_by(|a, b| strings.get(*a).cmp(strings.get(*b)));
            run.dedup_by(|a, b| strings.get(*a) == strings.get(*b));
            let mut part = Self::default();
            run.iter().for_each(|at| part.strings.push(strings.get(*at)));
            parts.push(part);
            pause_at(0, 1, pace).await;
        }
        let mut all = Self::merged(parts, pace).await;
        (all.count, all.documents) = ((all.numbers.len() + all.strings.len()) as u64, documents);
        all
    }

    /// Without the values themselves.
    fn counted(self) -> Self {
        Self { documents: self.documents, count: self.count, ..Self::default() }
    }
}

/// Goes through two lists that rise, what is equal at the same time.
struct Both {
    left: std::ops::Range<usize>,
    right: std::ops::Range<usize>,
    met: usize,
}

impl Both {
    fn new(left: usize, right: usize) -> Self {
        Self { left: 0..left, right: 0..right, met: 0 }
    }

    /// The places of the next value in the lists that have it.
    fn next(&mut self, order: impl Fn(usize, usize) -> Ordering) -> Option<(Option<usize>, Option<usize>)> {
        self.met += 1;
        let order = match (self.left.is_empty(), self.right.is_empty()) {
            (true, true) => return None,
            (false, true) => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, false) => order(self.left.start, self.right.start),
        };
        let left = if order.is_le() { self.left.next() } else { None };
        let right = if order.is_ge() { self.right.next() } else { None };
        Some((left, right))
    }
}

/// What became of a walk over the values.
enum Walked {
    /// They were all counted.
    Whole,
    /// They are so many more than the documents that it is cheaper to look these up.
    Long,
    /// Some document has several.
    Several,
}

/// A walk over a field's values.
struct ValueSets<'s> {
    set: &'s CountedSet,
    /// By the numbers' upper halves, the documents of which a value was met.
    met: Vec<BlockBits>,
    blocks: u64,
    /// Whether to note which values were met.
    notes: bool,
    found: DistinctValues,
}

impl Columns<'_> {
    /// The values that `documents` of a partition that has `all` have on a field; only how many these are unless `notes` is set.
    /// `None` when some document has several.
    pub async fn distinct_values(
        &self,
        field: FieldId,
        (documents, all): (&RoaringBitmap, &RoaringBitmap),
        notes: bool,
        pace: &dyn Pace,
    ) -> Result<Option<DistinctValues>, ColumnError> {
        if documents.len() <= BLOCKS_MIN / BLOCKS_PER_DOCUMENT {
            return self.values_by_document(field, documents, notes, pace).await;
        }
        let set = CountedSet::new(documents, all, pace).await;
        let mut sets = ValueSets { set: &set, met: Vec::new(), blocks: 0, notes, found: DistinctValues::default() };
        let walked = match self.walk_sets(FACET_NUMBERS, field, &mut sets, pace).await? {
            Walked::Whole => self.walk_sets(FACET_STRINGS, field, &mut sets, pace).await?,
            other => other,
        };
        match walked {
            Walked::Whole => Ok(Some(sets.found)),
            Walked::Several => Ok(None),
            Walked::Long => self.values_by_document(field, documents, notes, pace).await,
        }
    }

    async fn walk_sets(
        &self,
        tree: TreeId,
        field: FieldId,
        sets: &mut ValueSets<'_>,
        pace: &dyn Pace,
    ) -> Result<Walked, ColumnError> {
        let (prefix, set) = (keys::field(field), sets.set);
        let mut current: Vec<u8> = Vec::new();
        let mut walked = Walked::Whole;
        let mut entry = |key: &[u8], value: &[u8]| {
            if !key.starts_with(&prefix) || key.len() < prefix.len() + 2 {
                return Ok(ControlFlow::Break(()));
            }
            let (base, block) = decode_block(tree, key, value)?;
            let at = (base >> 16) as usize;
            let among = match set.bits.as_ref().map(|bits| bits.get(base)) {
                None => None,
                Some(Some(among)) => Some(among),
                Some(None) => return Ok(sets.go_on(&mut walked)),
            };
            if sets.met.len() <= at {
                sets.met.resize_with(at + 1, BlockBits::new);
            }
            let (count, again) = block.meet(among, &mut sets.met[at]);
            if again {
                walked = Walked::Several;
                return Ok(ControlFlow::Break(()));
            }
            let of = &key[..key.len() - 2];
            if count > 0 && *of != *current {
                current.clear();
                current.extend_from_slice(of);
                sets.note(tree, &of[prefix.len()..])?;
            }
            sets.found.documents += count;
            Ok(sets.go_on(&mut walked))
        };
        self.scan((tree, false), &prefix, &mut entry, pace).await?;
        Ok(walked)
    }

    async fn values_by_document(
        &self,
        field: FieldId,
        documents: &RoaringBitmap,
        notes: bool,
        pace: &dyn Pace,
    ) -> Result<Option<DistinctValues>, ColumnError> {
        let (mut numbers, mut strings, mut count) = (Vec::new(), Strings::default(), 0);
        let mut rest = documents.iter();
        let mut several = false;
        loop {
            let docs: Vec<u32> = rest.by_ref().take(DOCUMENTS_PER_LOOK).collect();
            if docs.is_empty() {
                break;
            }
            let each = &mut |_: usize, values: super::DocValues<'_>| {
                let before = numbers.len() + strings.len();
                numbers.extend(values.numbers());
                values
                    .strings()
                    .for_each(|(value, _)| strings.push(&keys::string_prefix(field, value.as_bytes())[2..]));
                several |= numbers.len() + strings.len() > before + 1;
                count += 1;
            };
            self.values_of(field, &docs, each)?;
            if several {
                return Ok(None);
            }
            pause_at(0, 1, pace).await;
        }
        let found = DistinctValues::of(numbers, &strings, count, pace).await;
        Ok(Some(if notes { found } else { found.counted() }))
    }
}

impl ValueSets<'_> {
    /// Counts a value that was met.
    fn note(&mut self, tree: TreeId, value: &[u8]) -> Result<(), ColumnError> {
        self.found.count += 1;
        if !self.notes {
            return Ok(());
        }
        if tree == FACET_NUMBERS {
            let bits = value.try_into().map_err(|_| ColumnError::Corrupt(FACET_NUMBERS))?;
            self.found.numbers.push(u64::from_be_bytes(bits));
        } else {
            let value = value.strip_suffix(&[0]).ok_or(ColumnError::Corrupt(FACET_STRINGS))?;
            self.found.strings.push(value);
        }
        Ok(())
    }

    /// Whether to read on, after a block.
    fn go_on(&mut self, walked: &mut Walked) -> ControlFlow<()> {
        self.blocks += 1;
        // What was met so far tells how many blocks are needed to meet them all. Once they are, there may still be second values.
        if self.blocks > BLOCKS_MIN && self.blocks > self.found.documents.saturating_mul(BLOCKS_PER_DOCUMENT) {
            *walked = Walked::Long;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_lite::future::block_on;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::distinct::{GroupValue, group_values};
    use crate::facets::source::FacetSource;
    use crate::facets::test_support::{Facets, filterable};
    use crate::ids::LocalDocId;

    fn value() -> impl Strategy<Value = Value> {
        let scalar = || {
            prop_oneof![
                (-9..90i32).prop_map(Value::from),
                "[\0\u{1}\u{2}aA]{0,3}".prop_map(Value::from),
                Just(Value::Null),
                Just(json!(0.0))
            ]
        };
        prop_oneof![30 => scalar(), 1 => proptest::collection::vec(scalar(), 0..3).prop_map(Value::from)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// As many as by reading every document, over any number of partitions.
        #[test]
        fn values_are_counted_as_by_reading_all(
            parts in proptest::collection::vec((proptest::collection::vec(value(), 0..40), 1..9u32), 1..4),
            notes: bool
        ) {
            let (mut told, mut expected, mut documents, mut several) = (Vec::new(), BTreeSet::new(), 0, false);
            for (values, step) in parts {
                let facets = Facets::with(filterable(&["v", "w"]), values.iter().map(|value| json!({ "v": value, "w": 1 })));
                let asked: RoaringBitmap = facets.documents.iter().filter(|doc| doc % step == 0 || step == 8).collect();
                let mut own: BTreeSet<GroupValue> = BTreeSet::new();
                for doc in &asked {
                    let values = group_values(&facets, "v", LocalDocId(doc)).expect("memory does not fail");
                    several |= values.len() > 1;
                    documents += u64::from(!values.is_empty());
                    own.extend(values);
                }
                let Some(field) = facets.fields.id("v") else { continue };
                let asked = (&asked, &facets.documents);
                let found = block_on(facets.columns().distinct_values(field, asked, notes, &Unpaced)).expect("memory does not fail");
                prop_assert!(found.is_some() || several);
                prop_assert!(found.as_ref().is_none_or(|found| found.count == own.len() as u64));
                expected.extend(own);
                told.push(found);
            }
            let told: Option<Vec<DistinctValues>> = told.into_iter().collect();
            prop_assert_eq!(told.is_none(), several);
            let Some(told) = told.filter(|told| notes || told.len() == 1) else { return Ok(()) };
            let all = block_on(DistinctValues::merged(told, &Unpaced));
            prop_assert_eq!((all.count, all.documents), (expected.len() as u64, documents));
        }
    }
}
