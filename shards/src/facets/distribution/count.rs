//! Counting on one partition.

use std::ops::ControlFlow;
use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::counts::{AllValues, FacetCounts, FieldCounts, Gathered, RANKED_VALUES_MAX, StringCount, StringCounts};
use super::{EXACT_DOCUMENTS_MAX, FacetPlan};
use crate::facets::columns::{ColumnError, Columns, ResidentField};
use crate::facets::source::FacetSource;
use crate::ids::{FieldId, LocalDocId};
use crate::settings::FacetOrder;

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
        let (field, by_count) = (facet.field, facet.order == FacetOrder::Count);
        let mut counts =
            if exact { counter.by_document(field, by_count).await? } else { counter.by_value(field).await? };
        if by_count {
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
    /// Reads every document's values; `with_lists` tells whether to keep which stand together.
    pub async fn by_document(&self, field: FieldId, with_lists: bool) -> Result<FieldCounts, ColumnError> {
        if let Some(resident) = self.resident(field).await? {
            let mut counts = Gathered::new(with_lists);
            let lists = resident.lists_of(self.documents, self.pace).await;
            for (number, (list, count, first)) in lists.into_iter().enumerate() {
                if number % DOCUMENTS_PER_LOOK == 0 && self.pace.due() {
                    self.pace.pause().await;
                }
                counts.add(resident.values(list)?, count, self.source.global(LocalDocId(first)));
            }
            return Ok(counts.finish());
        }
        let mut counts = Gathered::new(with_lists);
        for (number, document) in self.documents.iter().map(LocalDocId).enumerate() {
            if number % DOCUMENTS_PER_LOOK == 0 && self.pace.due() {
                self.pace.pause().await;
            }
            if let Some(values) = self.columns.values(field, document)? {
                counts.add(values, 1, self.source.global(document));
            }
        }
        Ok(counts.finish())
    }

    async fn resident(&self, field: FieldId) -> Result<Option<Rc<ResidentField>>, ColumnError> {
        let Some(fields) = self.source.resident_fields() else { return Ok(None) };
        let asked = (self.documents.len(), self.source.documents().len());
        fields.get(&self.columns, field, asked, self.pace).await
    }

    /// Intersects every value's documents.
    pub async fn by_value(&self, field: FieldId) -> Result<FieldCounts, ColumnError> {
        let (mut numbers, mut strings) = (Vec::new(), StringCounts::default());
        let mut visit = |bits: &u64, documents: RoaringBitmap| {
            let count = documents.intersection_len(self.documents);
            if count > 0 {
                numbers.push((*bits, count));
            }
            Ok(ControlFlow::Continue(()))
        };
        self.columns.walk_numbers(field, false, &mut visit, self.pace).await?;
        let mut visit = |value: &str, documents: RoaringBitmap| {
            let documents = documents & self.documents;
            if let Some(first) = documents.min() {
                let spelling = self.spelling(field, LocalDocId(first), value)?;
                let first = self.source.global(LocalDocId(first));
                strings.push(StringCount { value, count: documents.len(), first, spelling: &spelling });
            }
            Ok(ControlFlow::Continue(()))
        };
        self.columns.walk_strings(field, false, &mut visit, self.pace).await?;
        Ok(FieldCounts::new(numbers, strings))
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
