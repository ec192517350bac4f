//! Counting on one partition.

use std::ops::ControlFlow;
use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::counts::{AllValues, FacetCounts, FieldCounts, Gathered, RANKED_VALUES_MAX, StringCount, StringCounts};
use super::{EXACT_DOCUMENTS_MAX, FacetPlan, PlannedFacet};
use crate::facets::columns::{ColumnError, Columns, Counted, CountedSet, ResidentField, Speller};
use crate::facets::source::FacetSource;
use crate::ids::{DocId, FieldId, LocalDocId};
use crate::runtime::pause_at;
use crate::settings::FacetOrder;

/// Documents counted between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 32;

/// To read a document's values takes about as long as to count the documents of so many blocks.
const BLOCKS_PER_DOCUMENT: u64 = if cfg!(test) { 2 } else { 16 };

/// With more than this part of the limit in numbers all strings are sent along: see [`Cut`].
const FEW_NUMBERS: usize = 16;

/// Counts the facets of a partition's matching documents.
pub async fn count_facets(
    source: &dyn FacetSource,
    plan: &FacetPlan,
    documents: &RoaringBitmap,
    pace: &dyn Pace,
) -> Result<FacetCounts, ColumnError> {
    let counter = Counter { source, columns: source.columns(), documents, pace };
    let exact = documents.len() <= EXACT_DOCUMENTS_MAX;
    let set = if exact { None } else { Some(CountedSet::new(documents, source.documents(), pace).await) };
    let mut facets = Vec::with_capacity(plan.facets.len());
    for facet in &plan.facets {
        let (field, by_count) = (facet.field, facet.order == FacetOrder::Count);
        let mut counts = match &set {
            None => counter.by_document(field, by_count).await?,
            Some(set) => counter.by_cost(field, set, Cut::new(plan, facet)).await?,
        };
        if by_count {
            counts.all = counter.all_values(field).await?;
        }
        facets.push(counts);
    }
    Ok(FacetCounts { facets, documents: documents.len() })
}

/// How many of the first values of a facet a partition sends, where they are shown in their own order up to a limit.
///
/// Let a value be among the first `limit` of all partitions together. In a partition that has it, all its own values before it
/// are before it among those of all partitions, too, hence fewer than `limit`: so it is among the partition's first `limit` and
/// comes with this partition's count. Therefore the first `limit` of the union of what the partitions send are the right ones, and
/// their counts are whole; those behind them may lack some, and are not shown. What is counted is only what matches, here and there.
///
/// Numbers are shown before strings, but up to `limit` strings are needed, because the spelling of a string may be the text of a
/// number that is shown already (spellings differ from each other, as the values do). Where the numbers fill the limit, however,
/// all strings are shown. A partition does not know how many numbers the others have; with a good share of the limit it guesses
/// that they fill it, and [`FacetCounts::lack_strings`] tells when this was wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub limit: usize,
    pub all_strings: bool,
}

impl Cut {
    /// `None` where all values are needed: by count any of them may be among the first, and a limit of 0 is none.
    fn new(plan: &FacetPlan, facet: &PlannedFacet) -> Option<Self> {
        let is_cut = facet.order == FacetOrder::Alpha && plan.values_max > 0;
        is_cut.then(|| Self {
            limit: usize::try_from(plan.values_max).unwrap_or(usize::MAX),
            all_strings: plan.all_strings,
        })
    }

    /// How many strings are sent along with so many numbers.
    pub fn strings(&self, numbers: usize) -> usize {
        match self.all_strings || numbers.saturating_mul(FEW_NUMBERS) >= self.limit {
            true => usize::MAX,
            false => self.limit,
        }
    }
}

pub(super) struct Counter<'c> {
    pub source: &'c dyn FacetSource,
    pub columns: Columns<'c>,
    pub documents: &'c RoaringBitmap,
    pub pace: &'c dyn Pace,
}

impl Counter<'_> {
    /// Reads every document's values; `with_lists` tells whether to keep which stand together.
    pub async fn by_document(&self, field: FieldId, with_lists: bool) -> Result<FieldCounts, ColumnError> {
        if let Some(resident) = self.resident(field).await? {
            let mut counts = Gathered::new(with_lists);
            let lists = resident.lists_of(self.documents, self.pace).await;
            for (number, (list, count, first)) in lists.into_iter().enumerate() {
                if number % DOCUMENTS_PER_LOOK == 0 && self.pace.due() {
                    self.pace.pause().await;
                }
                let first = self.source.global(LocalDocId(first));
                counts.add(resident.values(list)?, (count, first), self.pace).await;
            }
            return Ok(counts.finish(self.pace).await);
        }
        let mut counts = Gathered::new(with_lists);
        for (number, document) in self.documents.iter().map(LocalDocId).enumerate() {
            if number % DOCUMENTS_PER_LOOK == 0 && self.pace.due() {
                self.pace.pause().await;
            }
            if let Some(values) = self.columns.values(field, document)? {
                counts.add(values, (1, self.source.global(document)), self.pace).await;
            }
        }
        Ok(counts.finish(self.pace).await)
    }

    async fn resident(&self, field: FieldId) -> Result<Option<Rc<ResidentField>>, ColumnError> {
        let Some(fields) = self.source.resident_fields() else { return Ok(None) };
        let asked = (self.documents.len(), self.source.documents().len());
        fields.get(&self.columns, field, asked, self.pace).await
    }

    /// Walks the values, unless these turn out to be so many more than the documents that reading these is cheaper.
    pub async fn by_cost(
        &self,
        field: FieldId,
        set: &CountedSet,
        cut: Option<Cut>,
    ) -> Result<FieldCounts, ColumnError> {
        let blocks_max = self.documents.len().saturating_mul(BLOCKS_PER_DOCUMENT);
        match self.by_value(field, (set, blocks_max), cut).await? {
            Some(counts) => Ok(counts),
            None => Ok(self.by_document(field, false).await?.cut(cut)),
        }
    }

    /// Counts every value's documents, up to the cut. `None` when that takes more blocks than it may read.
    pub async fn by_value(
        &self,
        field: FieldId,
        (set, mut blocks_left): (&CountedSet, u64),
        cut: Option<Cut>,
    ) -> Result<Option<FieldCounts>, ColumnError> {
        let left = &mut blocks_left;
        let flow = |len: usize, max: usize| {
            if len < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let (mut numbers, numbers_max) = (Vec::new(), cut.map_or(usize::MAX, |cut| cut.limit));
        let mut visit = |bits: &u64, counted: Counted| {
            numbers.push((*bits, counted.count));
            Ok(flow(numbers.len(), numbers_max))
        };
        let mut is_whole = self.columns.count_numbers((field, false), (set, &mut *left), &mut visit, self.pace).await?;
        let mut greatest = numbers.last().map(|(bits, _)| *bits);
        if is_whole && numbers.len() >= numbers_max {
            let mut visit = |bits: &u64, _: Counted| {
                greatest = Some(*bits);
                Ok(ControlFlow::Break(()))
            };
            is_whole = self.columns.count_numbers((field, true), (set, &mut *left), &mut visit, self.pace).await?;
        }
        if !is_whole {
            return Ok(None);
        }
        let (mut strings, mut len) = (StringCounts::default(), 0);
        let strings_max = cut.map_or(usize::MAX, |cut| cut.strings(numbers.len()));
        let mut visit = |value: &str, counted: Counted| {
            strings.push(StringCount { value, count: counted.count, first: DocId(counted.first.0), spelling: value });
            len += 1;
            Ok(flow(len, strings_max))
        };
        if !self.columns.count_strings(field, (set, left), &mut visit, self.pace).await? {
            return Ok(None);
        }
        let strings = self.spelled(field, strings).await?;
        let mut counts = FieldCounts::new(numbers, strings);
        counts.range = counts.range.zip(greatest).map(|((least, _), greatest)| (least, greatest));
        counts.strings_cut = len >= strings_max;
        Ok(Some(counts))
    }

    /// The strings with the spellings of their first documents, which were known by their numbers in this partition.
    async fn spelled(&self, field: FieldId, strings: StringCounts) -> Result<StringCounts, ColumnError> {
        let mut speller = Speller::new(self.columns, field);
        let mut spelled = StringCounts::default();
        for (at, counted) in strings.iter().enumerate() {
            let first = LocalDocId(counted.first.0);
            let spelling = speller.spelling(first, counted.value, self.pace).await?;
            spelled.push(StringCount { first: self.source.global(first), spelling, ..counted });
            pause_at(at, DOCUMENTS_PER_LOOK, self.pace).await;
        }
        Ok(spelled)
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
        self.columns.walk_numbers((field, false), None, &mut visit, self.pace).await?;
        let mut visit = |value: &str, _: RoaringBitmap| {
            all.strings.push(value.into());
            Ok(go_on(all.strings.len()))
        };
        self.columns.walk_strings((field, false), None, &mut visit, self.pace).await?;
        Ok(Some(all).filter(AllValues::are_few))
    }
}
