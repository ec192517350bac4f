//! Counts how many documents of a set have each value of a field, without making a set for each value.

use std::ops::ControlFlow;

use roaring::RoaringBitmap;
use storage_engine::TreeId;
use storage_engine::vector::Pace;

use super::block::{Block, DocumentBits};
use super::keys;
use super::reader::{Columns, decode_block};
use super::store::ColumnError;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::{FACET_NUMBERS, FACET_STRINGS};
use crate::runtime::pause_at;

/// Documents put into a set between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 4096;

/// Blocks of other values that are passed over before a value is looked for by its key.
const PASSED_MAX: usize = if cfg!(test) { 1 } else { 16 };

/// A set of documents of which every one can be looked at at once. Most values of a large field have a single document, and a
/// compressed set would be searched for each.
pub struct CountedSet {
    /// `None` for all documents that there are.
    pub(super) bits: Option<DocumentBits>,
}

/// What a walk counted of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// Documents of the set that have it; at least 1.
    pub count: u64,
    /// The least of these.
    pub first: LocalDocId,
}

impl Counted {
    /// This and what was counted of other blocks of the same value.
    pub(super) fn and(self, others: Option<Self>) -> Self {
        let Some(others) = others else { return self };
        Self { count: self.count + others.count, first: self.first.min(others.first) }
    }
}

/// Called with each value that a document of the set has; `Break` ends the walk.
pub type CountVisit<'v, V> = dyn FnMut(&V, Counted) -> Result<ControlFlow<()>, ColumnError> + 'v;

impl CountedSet {
    /// The set of those documents, of a partition that has `all`.
    pub async fn new(documents: &RoaringBitmap, all: &RoaringBitmap, pace: &dyn Pace) -> Self {
        if all.is_subset(documents) {
            return Self { bits: None };
        }
        let (mut bits, mut rest) = (DocumentBits::default(), documents.iter());
        while rest.len() > 0 {
            bits.extend(rest.by_ref().take(DOCUMENTS_PER_LOOK));
            pause_at(0, 1, pace).await;
        }
        Self { bits: Some(bits) }
    }

    pub(super) fn count(&self, base: u32, block: Block<'_>) -> Option<Counted> {
        let (count, first) = match &self.bits {
            None => (block.len(), block.first()),
            Some(bits) => block.count_in(bits.get(base)?),
        };
        let first = first?;
        Some(Counted { count, first: LocalDocId(base | u32::from(first)) })
    }
}

impl Columns<'_> {
    /// Visits the numbers of a field, as bits, in order, as far as a document of the set has them. False when there
    /// were more blocks than it may read, so that values were missed.
    pub async fn count_numbers(
        &self,
        (field, descending): (FieldId, bool),
        (set, blocks_left): (&CountedSet, &mut u64),
        visit: &mut CountVisit<'_, u64>,
        pace: &dyn Pace,
    ) -> Result<bool, ColumnError> {
        let mut visit = |key: &[u8], counted: Counted| {
            let bits = key.get(2..).and_then(|rest| rest.first_chunk()).ok_or(ColumnError::Corrupt(FACET_NUMBERS))?;
            visit(&u64::from_be_bytes(*bits), counted)
        };
        self.count((FACET_NUMBERS, field, descending), (set, blocks_left), &mut visit, pace).await
    }

    /// As [`Self::count_numbers`], for the normalised strings of a field, upwards.
    pub async fn count_strings(
        &self,
        field: FieldId,
        (set, blocks_left): (&CountedSet, &mut u64),
        visit: &mut CountVisit<'_, str>,
        pace: &dyn Pace,
    ) -> Result<bool, ColumnError> {
        let mut bytes = Vec::new();
        let mut visit = |key: &[u8], counted: Counted| {
            let value = keys::string_into(key, &mut bytes).and_then(|()| std::str::from_utf8(&bytes).ok());
            visit(value.ok_or(ColumnError::Corrupt(FACET_STRINGS))?, counted)
        };
        self.count((FACET_STRINGS, field, false), (set, blocks_left), &mut visit, pace).await
    }

    async fn count(
        &self,
        (tree, field, descending): (TreeId, FieldId, bool),
        (set, blocks_left): (&CountedSet, &mut u64),
        visit: &mut CountVisit<'_, [u8]>,
        pace: &dyn Pace,
    ) -> Result<bool, ColumnError> {
        let prefix = keys::field(field);
        // The value whose blocks are being read, and what was counted of it.
        let (mut current, mut counted): (Vec<u8>, Option<Counted>) = (Vec::new(), None);
        let mut is_whole = true;
        let mut entry = |key: &[u8], value: &[u8]| {
            if !key.starts_with(&prefix) || key.len() < prefix.len() + 2 {
                return Ok(ControlFlow::Break(()));
            }
            let same = keys::are_of_one_value(&current, key);
            if !same {
                if let Some(counted) = counted.take() {
                    let flow = visit(&current, counted)?;
                    if flow.is_break() {
                        return Ok(flow);
                    }
                }
                current.clear();
                current.extend_from_slice(key);
            }
            let Some(left) = blocks_left.checked_sub(1) else {
                is_whole = false;
                counted = None;
                return Ok(ControlFlow::Break(()));
            };
            *blocks_left = left;
            let (base, block) = decode_block(tree, key, value)?;
            if let Some(more) = set.count(base, block) {
                counted = Some(more.and(counted));
            }
            Ok(ControlFlow::Continue(()))
        };
        let after = || keys::after_field(field).unwrap_or_else(|| vec![u8::MAX; 1024]);
        let from = if descending { after() } else { prefix.clone() };
        self.scan((tree, descending), &from, &mut entry, pace).await?;
        if let Some(counted) = counted {
            // The last value has no successor that would end it; whether to go on no longer matters.
            let _ = visit(&current, counted)?;
        }
        Ok(is_whole)
    }

    /// For each of some strings, which rise, the least document with it.
    pub fn first_with_strings(
        &self,
        field: FieldId,
        values: &[Box<str>],
    ) -> Result<Vec<Option<LocalDocId>>, ColumnError> {
        let mut firsts = vec![None; values.len()];
        let mut at = 0;
        while let Some(value) = values.get(at) {
            let mut wanted = keys::string(field, value);
            let from = wanted.clone();
            // Often they are neighbours; else the next one is looked for.
            let mut passed = 0;
            let mut is_over = true;
            let mut entry = |key: &[u8], block: &[u8]| {
                while !key.starts_with(&wanted) && *key > *wanted {
                    at += 1;
                    let Some(value) = values.get(at) else { return Ok(ControlFlow::Break(())) };
                    wanted = keys::string(field, value);
                }
                if key.starts_with(&wanted) {
                    if firsts[at].is_none() {
                        let (base, block) = decode_block(FACET_STRINGS, key, block)?;
                        firsts[at] = block.first().map(|number| LocalDocId(base | u32::from(number)));
                    }
                    passed = 0;
                    return Ok(ControlFlow::Continue(()));
                }
                passed += 1;
                is_over = passed <= PASSED_MAX;
                Ok(if is_over { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            };
            self.store.scan(FACET_STRINGS, &from, &mut entry)?;
            if is_over {
                break;
            }
        }
        Ok(firsts)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use crate::facets::source::FacetSource;
    use crate::facets::test_support::{Facets, filterable};

    proptest! {
        /// Neighbours are found in passing, others by a search: both find what one search for each finds.
        #[test]
        fn strings_are_found_together(
            lists in proptest::collection::vec(proptest::collection::btree_set("[ab]{0,4}", 0..6), 0..12),
            asked: BTreeSet<u8>
        ) {
            let facets = Facets::with(filterable(&["v", "w"]), lists.iter().map(|list| json!({ "v": list, "w": "x" })));
            let names = asked.into_iter().map(|number| format!("{:b}", number % 32).replace('0', "a").replace('1', "b"));
            let values: BTreeSet<Box<str>> = names.map(Into::into).collect();
            let values: Vec<Box<str>> = values.into_iter().collect();
            let Some(field) = facets.fields.id("v") else { return Ok(()) };
            let found = facets.columns().first_with_strings(field, &values).expect("memory does not fail");
            let expected = values.iter().map(|value| facets.columns().with_string(field, value).unwrap().min());
            prop_assert_eq!(found.iter().map(|first| first.map(|first| first.0)).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}
