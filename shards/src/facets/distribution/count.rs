//! Counting on one partition, and merging.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use ahash::AHashMap;
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::{EXACT_DOCUMENTS_MAX, FacetPlan};
use crate::facets::columns::{ColumnError, Columns, DocValues, ResidentField};
use crate::facets::source::FacetSource;
use crate::ids::{DocId, FieldId, LocalDocId};
use crate::settings::FacetOrder;

/// Counts of all facets of a plan, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FacetCounts {
    /// One for each planned facet.
    pub(super) facets: Vec<FieldCounts>,
    /// How many documents were counted.
    pub(super) documents: u64,
}

/// Counts of one facet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FieldCounts {
    /// By number bits.
    pub numbers: BTreeMap<u64, u64>,
    /// By normalised string.
    pub strings: BTreeMap<Box<str>, StringCount>,
    /// The bits of the least and the greatest number.
    pub range: Option<(u64, u64)>,
    /// All values of the field, for the order by count; `None` when that is not asked for or there are too many.
    pub all: Option<AllValues>,
}

/// The values that the documents of a field have, counted or not; sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AllValues {
    pub numbers: Vec<u64>,
    pub strings: Vec<Box<str>>,
}

/// Fields of more values are ordered by count without regard to where their values stand among all.
const RANKED_VALUES_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct StringCount {
    pub count: u64,
    /// The least document counted.
    pub first: DocId,
    /// How that document spells the value.
    pub spelling: Box<str>,
}

/// Documents counted between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 32;

/// Counts the facets of a partition's matching documents.
pub async fn count_facets(
    source: &dyn FacetSource,
    plan: &FacetPlan,
    documents: &RoaringBitmap,
    pace: &dyn Pace,
) -> Result<FacetCounts, ColumnError> {
    let counter = Counter { source, columns: source.columns(), documents, pace };
    let exact = documents.len() <= EXACT_DOCUMENTS_MAX;
    let mut facets = Vec::with_capacity(plan.facets.len());
    for facet in &plan.facets {
        let field = facet.field;
        let mut counts = if exact { counter.by_document(field).await? } else { counter.by_value(field).await? };
        if facet.order == FacetOrder::Count {
            counts.all = counter.all_values(field).await?;
        }
        facets.push(counts);
    }
    Ok(FacetCounts { facets, documents: documents.len() })
}

pub(super) struct Counter<'c> {
    pub source: &'c dyn FacetSource,
    pub columns: Columns<'c>,
    pub documents: &'c RoaringBitmap,
    pub pace: &'c dyn Pace,
}

impl Counter<'_> {
    /// Reads every document's values.
    pub async fn by_document(&self, field: FieldId) -> Result<FieldCounts, ColumnError> {
        let mut counts = FieldCounts::default();
        if let Some(resident) = self.resident(field).await? {
            let mut lists = AHashMap::new();
            resident.lists_of(self.documents.iter(), &mut lists);
            for (number, (list, (count, first))) in lists.into_iter().enumerate() {
                if number % DOCUMENTS_PER_LOOK == 0 && self.pace.due() {
                    self.pace.pause().await;
                }
                counts.add(resident.values(list)?, count, self.source.global(LocalDocId(first)));
            }
        } else {
            for (number, document) in self.documents.iter().map(LocalDocId).enumerate() {
                if number % DOCUMENTS_PER_LOOK == 0 && self.pace.due() {
                    self.pace.pause().await;
                }
                if let Some(values) = self.columns.values(field, document)? {
                    counts.add(values, 1, self.source.global(document));
                }
            }
        }
        counts.range = counts.numbers.first_key_value().zip(counts.numbers.last_key_value()).map(|(a, b)| (*a.0, *b.0));
        Ok(counts)
    }

    async fn resident(&self, field: FieldId) -> Result<Option<Rc<ResidentField>>, ColumnError> {
        let Some(fields) = self.source.resident_fields() else { return Ok(None) };
        let asked = (self.documents.len(), self.source.documents().len());
        fields.get(&self.columns, field, asked, self.pace).await
    }

    /// Intersects every value's documents.
    pub async fn by_value(&self, field: FieldId) -> Result<FieldCounts, ColumnError> {
        let mut counts = FieldCounts::default();
        let mut visit = |bits: &u64, documents: RoaringBitmap| {
            let count = documents.intersection_len(self.documents);
            if count > 0 {
                counts.numbers.insert(*bits, count);
            }
            Ok(ControlFlow::Continue(()))
        };
        self.columns.walk_numbers(field, false, &mut visit, self.pace).await?;
        let mut visit = |value: &str, documents: RoaringBitmap| {
            let documents = documents & self.documents;
            if let Some(first) = documents.min() {
                let spelling = self.spelling(field, LocalDocId(first), value)?;
                let first = self.source.global(LocalDocId(first));
                counts.strings.insert(value.into(), StringCount { count: documents.len(), first, spelling });
            }
            Ok(ControlFlow::Continue(()))
        };
        self.columns.walk_strings(field, false, &mut visit, self.pace).await?;
        counts.range = counts.numbers.first_key_value().zip(counts.numbers.last_key_value()).map(|(a, b)| (*a.0, *b.0));
        Ok(counts)
    }

    async fn all_values(&self, field: FieldId) -> Result<Option<AllValues>, ColumnError> {
        let mut all = AllValues::default();
        let go_on = |len: usize| {
            if len <= RANKED_VALUES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut visit = |bits: &u64, _: RoaringBitmap| {
            all.numbers.push(*bits);
            Ok(go_on(all.numbers.len()))
        };
        self.columns.walk_numbers(field, false, &mut visit, self.pace).await?;
        let mut visit = |value: &str, _: RoaringBitmap| {
            all.strings.push(value.into());
            Ok(go_on(all.strings.len()))
        };
        self.columns.walk_strings(field, false, &mut visit, self.pace).await?;
        Ok(Some(all).filter(AllValues::are_few))
    }

    fn spelling(&self, field: FieldId, document: LocalDocId, value: &str) -> Result<Box<str>, ColumnError> {
        let values = self.columns.values(field, document)?;
        let spelling = values.and_then(|values| values.strings().find(|(found, _)| *found == value));
        Ok(spelling.map_or(value, |(_, spelling)| spelling).into())
    }
}

impl FacetCounts {
    /// Adds the counts of another partition under the same plan.
    pub fn merge(&mut self, other: Self) {
        self.documents += other.documents;
        if self.facets.is_empty() {
            self.facets = other.facets;
            return;
        }
        for (mine, theirs) in self.facets.iter_mut().zip(other.facets) {
            mine.merge(theirs);
        }
    }
}

impl AllValues {
    fn are_few(&self) -> bool {
        self.numbers.len().max(self.strings.len()) <= RANKED_VALUES_MAX
    }

    fn merge(mut self, other: Self) -> Option<Self> {
        self.numbers.extend(other.numbers);
        self.strings.extend(other.strings);
        self.numbers.sort_unstable();
        self.numbers.dedup();
        self.strings.sort_unstable();
        self.strings.dedup();
        Some(self).filter(Self::are_few)
    }
}

impl FieldCounts {
    /// Counts the values of `count` documents that have the same; `first` is the least of them.
    fn add(&mut self, values: DocValues<'_>, count: u64, first: DocId) {
        for bits in values.numbers() {
            *self.numbers.entry(bits).or_default() += count;
        }
        for (value, spelling) in values.strings() {
            match self.strings.get_mut(value) {
                None => {
                    self.strings.insert(value.into(), StringCount { count, first, spelling: spelling.into() });
                }
                Some(known) => {
                    known.count += count;
                    if first < known.first {
                        known.first = first;
                        known.spelling = spelling.into();
                    }
                }
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.all = self.all.take().zip(other.all).and_then(|(mine, theirs)| mine.merge(theirs));
        for (bits, count) in other.numbers {
            *self.numbers.entry(bits).or_default() += count;
        }
        for (value, theirs) in other.strings {
            match self.strings.get_mut(&value) {
                None => {
                    self.strings.insert(value, theirs);
                }
                Some(mine) => {
                    mine.count += theirs.count;
                    if theirs.first < mine.first {
                        mine.first = theirs.first;
                        mine.spelling = theirs.spelling;
                    }
                }
            }
        }
        self.range = match (self.range, other.range) {
            (Some(mine), Some(theirs)) => Some((mine.0.min(theirs.0), mine.1.max(theirs.1))),
            (mine, theirs) => mine.or(theirs),
        };
    }
}
