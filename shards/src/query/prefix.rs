//! All words with one prefix, looked up as if they were one word.

use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::resolve::rest;
use super::source::{FieldTable, TermSource};
use crate::ids::FieldId;

/// Documents whose occurrences are sorted together, as a power of two: a bounded piece of work.
const REGION_BITS: u32 = 12;

/// Occurrences that are looked through in one step.
const STEP_OCCURRENCES: usize = 16 << 10;

/// Which words count: those that begin with the prefix, itself excluded, up to and including the last in byte order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrefixRange {
    /// What they begin with; not empty.
    pub prefix: String,
    /// `None`: all of them.
    pub last: Option<String>,
}

/// The occurrences of the words of a range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrefixTable {
    docs: Rc<RoaringBitmap>,
    /// Document, field, position from the high bits down (32, 16, 16); rising.
    occurrences: Vec<u64>,
}

/// Builds a table in steps of bounded work.
pub struct PrefixTableBuilder {
    range: PrefixRange,
    /// Where the source goes on; `None` when it has told everything.
    resume: Option<Vec<u8>>,
    /// By document number without its low bits.
    regions: Vec<Vec<u64>>,
    sorted: usize,
    table: PrefixTable,
}

impl PrefixRange {
    /// Whether a word belongs to it.
    pub fn has(&self, word: &[u8]) -> bool {
        word.len() > self.prefix.len()
            && word.starts_with(self.prefix.as_bytes())
            && self.last.as_ref().is_none_or(|last| word <= last.as_bytes())
    }
}

impl PrefixTableBuilder {
    /// Nothing is read yet.
    pub fn new(range: PrefixRange) -> Self {
        Self { range, resume: Some(Vec::new()), regions: Vec::new(), sorted: 0, table: PrefixTable::default() }
    }

    /// Does a piece of the work; true when there is more to do.
    pub fn step<S: TermSource + ?Sized>(&mut self, source: &S) -> bool {
        let regions = &mut self.regions;
        if let Some(resume) = self.resume.take() {
            self.resume = source.prefix_occurrences(&self.range, resume, &mut |packed| {
                let region = (packed >> (32 + REGION_BITS)) as usize;
                if region >= regions.len() {
                    regions.resize_with(region + 1, Vec::new);
                }
                regions[region].push(packed);
            });
            return true;
        }
        let Some(region) = regions.get_mut(self.sorted).map(std::mem::take) else { return false };
        self.sorted += 1;
        self.table.take_region(region);
        true
    }

    /// The table, when no work is left.
    pub fn finish(self) -> PrefixTable {
        self.table
    }
}

impl PrefixTable {
    /// Builds a table at once.
    pub fn build<S: TermSource + ?Sized>(source: &S, range: PrefixRange) -> Self {
        let mut builder = PrefixTableBuilder::new(range);
        while builder.step(source) {}
        builder.finish()
    }

    fn take_region(&mut self, mut region: Vec<u64>) {
        region.sort_unstable();
        let mut docs: Vec<u32> = region.iter().map(|packed| (packed >> 32) as u32).collect();
        docs.dedup();
        // Regions come in rising order, so appending cannot fail.
        let _ = Rc::make_mut(&mut self.docs).append(docs);
        self.occurrences.extend_from_slice(&region);
    }

    /// The documents with an occurrence in a searched field.
    pub fn docs(&self, fields: &FieldTable) -> Rc<RoaringBitmap> {
        if fields.searches_all() {
            return self.docs.clone();
        }
        let searched = self.occurrences.iter().filter(|packed| fields.is_searched(FieldId((*packed >> 16) as u16)));
        Rc::new(searched.map(|packed| (packed >> 32) as u32).collect())
    }

    /// [`Self::docs`], in steps of bounded work.
    pub async fn docs_paced(&self, fields: &FieldTable, pace: &dyn Pace) -> Rc<RoaringBitmap> {
        if fields.searches_all() {
            return self.docs.clone();
        }
        let mut docs = RoaringBitmap::new();
        for step in self.occurrences.chunks(STEP_OCCURRENCES) {
            let searched = step.iter().filter(|packed| fields.is_searched(FieldId((*packed >> 16) as u16)));
            docs.extend(searched.map(|packed| (packed >> 32) as u32));
            rest(pace).await;
        }
        Rc::new(docs)
    }

    /// Calls `each` with the occurrences in the documents `docs` (rising): place of the document in `docs`, field, position.
    pub fn within(&self, docs: &[u32], mut each: impl FnMut(usize, FieldId, u16)) {
        let mut rest = self.occurrences.as_slice();
        for (index, doc) in docs.iter().enumerate() {
            rest = &rest[gallop(rest, u64::from(*doc) << 32)..];
            for packed in rest.iter().take_while(|packed| (**packed >> 32) as u32 == *doc) {
                each(index, FieldId((packed >> 16) as u16), *packed as u16);
            }
        }
    }

    /// Bytes held, for a cache's budget.
    pub fn bytes(&self) -> usize {
        self.occurrences.capacity() * 8 + self.docs.serialized_size()
    }
}

/// How many of the rising `values` are below `bound`, found in steps that double: neighbours are near.
fn gallop(values: &[u64], bound: u64) -> usize {
    let mut step = 1;
    while values.get(step - 1).is_some_and(|value| *value < bound) {
        step *= 2;
    }
    let from = step / 2;
    from + values[from..values.len().min(step)].partition_point(|value| *value < bound)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn galloping_counts_what_is_below(mut values in prop::collection::vec(0u64..300, 0..200), bound in 0u64..320) {
            values.sort_unstable();
            prop_assert_eq!(gallop(&values, bound), values.iter().filter(|value| **value < bound).count());
        }
    }

    #[test]
    fn a_range_ends_with_its_last_word() {
        let range = PrefixRange { prefix: "ab".into(), last: Some("abd".into()) };
        let has: Vec<bool> = ["ab", "abc", "abd", "abda", "abe", "b"].map(|word| range.has(word.as_bytes())).into();
        assert_eq!(has, [false, true, true, false, false, false]);
    }
}
