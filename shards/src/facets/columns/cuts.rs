//! Passes over the first documents of a sort without walking their values: by the pieces that columns are kept in, see [`coarse`].
//!
//! [`coarse`]: super::coarse

use std::cmp::Ordering;
use std::ops::Bound;
use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::TreeId;
use storage_engine::vector::Pace;

use super::coarse::Pieces;
use super::keys::Stretch;
use super::reader::Columns;
use super::store::ColumnError;
use super::value_walk::{FieldValue, value_of};
use crate::ids::FieldId;
use crate::partition::trees::{FACET_NUMBERS, FACET_STRINGS};
use crate::runtime::pause_at;

/// Pages of a sort that begin before this document are walked to.
pub const DEEP_OFFSET: u64 = if cfg!(test) { 3 } else { 16_384 };

/// Between two values of a field in the order of a sort: right in front of this value where the least come first, right behind it
/// where the greatest do; `None` behind all.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut(pub Option<FieldValue>);

/// How many documents have a value that comes before a cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The cut.
    pub cut: Cut,
    /// Documents.
    pub before: u64,
}

/// A sort by a field, in which a document counts with its first value, or with its first number and its first string (`twice`).
#[derive(Clone, Copy, Debug)]
pub struct FieldOrder {
    /// What is sorted by.
    pub field: FieldId,
    /// Whether the greatest value comes first.
    pub descending: bool,
    /// Whether numbers and strings count apart.
    pub twice: bool,
}

/// What comes before a cut.
#[derive(Debug, Default)]
pub struct Before {
    /// How often a document does.
    pub count: u64,
    /// The documents that do with a value of the kind that the cut is among.
    pub documents: RoaringBitmap,
}

impl Cut {
    /// The order of cuts in a sort.
    pub fn compare(&self, other: &Self, descending: bool) -> Ordering {
        let turned = |order: Ordering| if descending { order.reverse() } else { order };
        let kind = |cut: &Self| match &cut.0 {
            Some(FieldValue::Number(_)) => 0,
            Some(FieldValue::String(_)) => 1,
            None => 2,
        };
        match (&self.0, &other.0) {
            (Some(FieldValue::Number(a)), Some(FieldValue::Number(b))) => turned(a.cmp(b)),
            (Some(FieldValue::String(a)), Some(FieldValue::String(b))) => turned(a.cmp(b)),
            _ => kind(self).cmp(&kind(other)),
        }
    }

    /// The last cut before which surely no more than `offset` documents of all partitions are, given the marks of each, and how
    /// many these are at least. `None` when there is no such cut.
    pub fn before_page(parts: &[Vec<Mark>], descending: bool, offset: u64) -> Option<(Self, u64)> {
        let mut best: Option<(&Self, u64)> = None;
        for mark in parts.iter().flatten() {
            let cut = &mark.cut;
            if best.is_some_and(|(best, _)| cut.compare(best, descending).is_le()) {
                continue;
            }
            let (mut least, mut most) = (0, Some(0));
            for marks in parts {
                let at = marks.partition_point(|mark| mark.cut.compare(cut, descending).is_lt());
                let met = marks.get(at);
                most = most.zip(met).map(|(most, met)| most + met.before);
                let is_met = met.is_some_and(|met| met.cut == *cut);
                let known = if is_met { met } else { at.checked_sub(1).map(|at| &marks[at]) };
                least += known.map_or(0, |known| known.before);
            }
            if least > 0 && most.is_some_and(|most| most <= offset) {
                best = Some((cut, least));
            }
        }
        best.map(|(cut, least)| (cut.clone(), least))
    }
}

impl Columns<'_> {
    /// Marks along the order, which rise, as far as `enough` (at least one) of the documents are before them; to the end where there
    /// are not so many. `None` where the field is not kept in pieces. That a walk would read `walked` entries may be why it is from
    /// now on.
    pub async fn marks(
        &self,
        order: FieldOrder,
        documents: &RoaringBitmap,
        (walked, enough): (u64, u64),
        pace: &dyn Pace,
    ) -> Result<Option<Vec<Mark>>, ColumnError> {
        let mut marks = Marks { order, documents, rest: documents.clone(), before: 0, enough, found: Vec::new() };
        for tree in [FACET_NUMBERS, FACET_STRINGS] {
            // Of numbers that were not gone through to the end, strings do not know how many come before them.
            if marks.found.last().is_some_and(|last| last.before >= enough) {
                break;
            }
            let Some(pieces) = self.pieces(tree, order.field, walked, pace).await? else { return Ok(None) };
            marks.add(tree, &pieces, pace).await?;
        }
        if marks.found.last().is_none_or(|last| last.before < enough) {
            marks.mark(Cut(None));
        }
        Ok(Some(marks.found))
    }

    /// What of some documents comes before a cut.
    pub async fn before(
        &self,
        order: FieldOrder,
        cut: &Cut,
        documents: &RoaringBitmap,
        pace: &dyn Pace,
    ) -> Result<Before, ColumnError> {
        let FieldOrder { field, descending, twice } = order;
        let mut numbers = match &cut.0 {
            Some(FieldValue::Number(bits)) => {
                let (from, to) = match descending {
                    true => (Bound::Included(*bits), Bound::Unbounded),
                    false => (Bound::Unbounded, Bound::Excluded(*bits)),
                };
                self.with_number_in(field, from, to, pace).await?
            }
            _ => self.with_number_in(field, Bound::Unbounded, Bound::Unbounded, pace).await?,
        };
        numbers &= documents;
        let mut strings = match &cut.0 {
            Some(FieldValue::Number(_)) => return Ok(Before { count: numbers.len(), documents: numbers }),
            Some(FieldValue::String(value)) => {
                let (from, to) = match descending {
                    true => (Bound::Included(value.as_str()), Bound::Unbounded),
                    false => (Bound::Unbounded, Bound::Excluded(value.as_str())),
                };
                self.with_string_in(field, from, to, pace).await?
            }
            None => self.with_string_in(field, Bound::Unbounded, Bound::Unbounded, pace).await?,
        };
        strings &= documents;
        if twice {
            return Ok(Before { count: numbers.len() + strings.len(), documents: strings });
        }
        strings |= numbers;
        Ok(Before { count: strings.len(), documents: strings })
    }

    /// The pieces of a field's values of one kind, if they are held or worth making.
    pub(super) async fn pieces(
        &self,
        tree: TreeId,
        field: FieldId,
        walked: u64,
        pace: &dyn Pace,
    ) -> Result<Option<Rc<Pieces>>, ColumnError> {
        let Some(resident) = self.resident else { return Ok(None) };
        let stretch = Stretch::of_field(tree, field);
        resident.coarse.add_reads(stretch, walked);
        resident.coarse.get(self, stretch, pace).await
    }
}

/// Marks that are being made.
struct Marks<'d> {
    order: FieldOrder,
    documents: &'d RoaringBitmap,
    /// Those that have not been met.
    rest: RoaringBitmap,
    before: u64,
    enough: u64,
    found: Vec<Mark>,
}

impl Marks<'_> {
    fn mark(&mut self, cut: Cut) {
        self.found.push(Mark { cut, before: self.before });
    }

    async fn add(&mut self, tree: TreeId, pieces: &Rc<Pieces>, pace: &dyn Pace) -> Result<(), ColumnError> {
        let descending = self.order.descending;
        if self.order.twice && tree == FACET_STRINGS {
            self.rest.clone_from(self.documents);
        }
        let count = pieces.len();
        for step in 0..count {
            let at = if descending { count - 1 - step } else { step };
            let (start, documents) = pieces.get(at);
            let cut = Cut(Some(value_of(tree, start)?));
            if !descending {
                self.mark(cut.clone());
            }
            if self.before >= self.enough {
                return Ok(());
            }
            let left = self.rest.len();
            self.rest -= documents;
            self.before += left - self.rest.len();
            if descending {
                self.mark(cut);
            }
            pause_at(step, 4, pace).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::source::FacetSource;
    use crate::facets::test_support::{Facets, filterable};

    fn value() -> impl Strategy<Value = Value> {
        let scalar = || prop_oneof![3 => (0..200i32).prop_map(Value::from), 2 => "[ab]{0,3}".prop_map(Value::from)];
        prop_oneof![9 => scalar(), 1 => proptest::collection::vec(scalar(), 0..4).prop_map(Value::from)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Marks count what a look at every document's first value counts, and the cut that is taken for a page passes over none of it.
        #[test]
        fn cuts_pass_over_what_comes_before(
            parts in proptest::collection::vec(proptest::collection::vec(value(), 20..90), 1..4),
            (descending, twice) in (any::<bool>(), any::<bool>()),
            (step, offset, enough) in (1..4u32, 0..120u64, 1..150u64),
        ) {
            let mut of_parts = Vec::new();
            let parts: Vec<Facets> = parts
                .into_iter()
                .map(|values| Facets::with(filterable(&["v"]), values.into_iter().map(|value| json!({ "v": value }))))
                .collect();
            let counts = |facets: &Facets, order: FieldOrder, cut: &Cut| -> u64 {
                let columns = facets.columns();
                let is_before = |value: FieldValue| {
                    let place = Cut(Some(value)).compare(cut, descending);
                    if descending { place.is_le() } else { place.is_lt() }
                };
                let of = |doc: u32| {
                    let Ok(Some(values)) = columns.values(order.field, crate::ids::LocalDocId(doc)) else { return 0 };
                    let number = values.numbers().any(|bits| is_before(FieldValue::Number(bits)));
                    let string = values.strings().any(|(value, _)| is_before(FieldValue::String(value.into())));
                    if twice { u64::from(number) + u64::from(string) } else { u64::from(number || string) }
                };
                (0..facets.json.len() as u32).filter(|doc| doc % step == 0).map(of).sum()
            };
            let mut all = 0;
            for facets in &parts {
                let Some(field) = facets.fields.id("v") else { return Ok(()) };
                let order = FieldOrder { field, descending, twice };
                let columns = facets.columns().held_by(facets.resident_fields());
                let documents: RoaringBitmap = facets.documents.iter().filter(|doc| doc % step == 0).collect();
                let marks = block_on(columns.marks(order, &documents, (1000, enough), &Unpaced)).expect("memory does not fail");
                let marks = marks.expect("enough was read");
                prop_assert!(marks.windows(2).all(|pair| pair[0].cut.compare(&pair[1].cut, descending).is_lt()));
                for mark in &marks {
                    prop_assert_eq!(mark.before, counts(facets, order, &mark.cut), "{:?}", mark);
                    let before = block_on(columns.before(order, &mark.cut, &documents, &Unpaced)).expect("memory does not fail");
                    prop_assert_eq!(before.count, mark.before);
                }
                prop_assert!(marks.last().is_none_or(|last| last.cut.0.is_none() || last.before >= enough));
                all += marks.len();
                of_parts.push((order, marks));
            }
            let marks: Vec<Vec<Mark>> = of_parts.iter().map(|(_, marks)| marks.clone()).collect();
            if let Some((cut, least)) = Cut::before_page(&marks, descending, offset) {
                let before: u64 = parts.iter().zip(&of_parts).map(|(facets, (order, _))| counts(facets, *order, &cut)).sum();
                prop_assert!(least <= before && before <= offset, "{} {} {}", least, before, all);
            } else if let [marks] = &*marks {
                prop_assert!(marks.iter().all(|mark| mark.before == 0 || mark.before > offset));
            }
        }
    }
}
