//! Many ranges of one attribute at once.
//!
//! A filter may have a hundred thousand of them. Each alone meets up to all values of the attribute, so that one after the other they
//! would take minutes. Joined with OR they are merged first, and each value is met once. Joined with AND they cannot be merged,
//! since a document with several values may have another one in each range; but then each document that is left is judged by its
//! own values, and of the ranges only those matter that no other one implies.

use std::collections::BTreeMap;
use std::ops::Bound;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::tree::{Comparison, Operator};
use crate::facets::columns::{ColumnError, Columns, DocValues};
use crate::facets::normalise::{number_bits, parse_number};
use crate::ids::{FieldId, LocalDocId};
use crate::runtime::pause_at;

/// To read a range takes about as long as to look up the values of so many documents.
const DOCUMENTS_PER_RANGE: u64 = if cfg!(test) { 2 } else { 512 };
/// Ranges, documents or values between two looks at whether others wait.
const ITEMS_PER_LOOK: usize = 32;

/// A place between values: before all, directly before or behind one, behind all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge<T> {
    Start,
    At(T, bool),
    End,
}

/// The values between two edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval<T> {
    from: Edge<T>,
    to: Edge<T>,
}

impl<T: Copy + Ord> Interval<T> {
    fn new(from: Bound<T>, to: Bound<T>) -> Self {
        let from = match from {
            Bound::Included(value) => Edge::At(value, false),
            Bound::Excluded(value) => Edge::At(value, true),
            Bound::Unbounded => Edge::Start,
        };
        let to = match to {
            Bound::Included(value) => Edge::At(value, true),
            Bound::Excluded(value) => Edge::At(value, false),
            Bound::Unbounded => Edge::End,
        };
        Self { from, to }
    }

    fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    /// The bounds that make it.
    fn bounds(&self) -> (Bound<T>, Bound<T>) {
        let from = match self.from {
            Edge::At(value, false) => Bound::Included(value),
            Edge::At(value, true) => Bound::Excluded(value),
            Edge::Start | Edge::End => Bound::Unbounded,
        };
        let to = match self.to {
            Edge::At(value, true) => Bound::Included(value),
            Edge::At(value, false) => Bound::Excluded(value),
            Edge::Start | Edge::End => Bound::Unbounded,
        };
        (from, to)
    }

    /// Whether one of some ascending values lies in it.
    fn holds_any(&self, values: &[T]) -> bool {
        let first = values.partition_point(|value| Edge::At(*value, false) < self.from);
        values.get(first).is_some_and(|value| Edge::At(*value, true) <= self.to)
    }
}

/// The values that a test admits: numbers in one range, where the operands are numbers, and strings in another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'f> {
    numbers: Option<Interval<u64>>,
    strings: Interval<&'f str>,
}

impl<'f> Range<'f> {
    /// `None` for an operator that is about no range. Strings are compared with the operand as it was written: not normalised.
    pub fn of(operator: &'f Operator) -> Option<Self> {
        let (from, to) = match operator {
            Operator::Compare(Comparison::Less, operand) => (Bound::Unbounded, Bound::Excluded(operand)),
            Operator::Compare(Comparison::LessOrEqual, operand) => (Bound::Unbounded, Bound::Included(operand)),
            Operator::Compare(Comparison::Greater, operand) => (Bound::Excluded(operand), Bound::Unbounded),
            Operator::Compare(Comparison::GreaterOrEqual, operand) => (Bound::Included(operand), Bound::Unbounded),
            Operator::Between(from, to) => (Bound::Included(from), Bound::Included(to)),
            _ => return None,
        };
        let number = |bound: Bound<&'f String>| match bound {
            Bound::Included(operand) => parse_number(operand).map(|number| Bound::Included(number_bits(number))),
            Bound::Excluded(operand) => parse_number(operand).map(|number| Bound::Excluded(number_bits(number))),
            Bound::Unbounded => Some(Bound::Unbounded),
        };
        let numbers = number(from).zip(number(to)).map(|(from, to)| Interval::new(from, to));
        Some(Self { numbers, strings: Interval::new(from.map(String::as_str), to.map(String::as_str)) })
    }
}

/// Tests of ranges that are to be evaluated together, by attribute.
#[derive(Default)]
pub(super) struct PendingRanges<'f>(BTreeMap<FieldId, PendingOf<'f>>);

#[derive(Default)]
pub(super) struct PendingOf<'f> {
    /// Those that are to hold.
    pub plain: Vec<Range<'f>>,
    /// Those that are not to.
    pub negated: Vec<Range<'f>>,
}

impl<'f> PendingRanges<'f> {
    pub fn add(&mut self, field: FieldId, range: Range<'f>, is_negated: bool) {
        let PendingOf { plain, negated } = self.0.entry(field).or_default();
        let list = if is_negated { negated } else { plain };
        list.push(range);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes them out.
    pub fn take(&mut self) -> impl Iterator<Item = (FieldId, PendingOf<'f>)> + use<'f> {
        std::mem::take(&mut self.0).into_iter()
    }
}

/// Intervals that do not touch, by their beginnings.
struct Union<T>(BTreeMap<Edge<T>, Edge<T>>);

impl<T: Copy + Ord> Union<T> {
    fn add(&mut self, interval: Interval<T>) {
        if interval.is_empty() {
            return;
        }
        let Interval { mut from, mut to } = interval;
        if let Some((before, end)) = self.0.range(..=from).next_back()
            && *end >= from
        {
            (from, to) = (*before, to.max(*end));
        }
        while let Some((next, end)) = self.0.range(from..=to).next() {
            let (next, end) = (*next, *end);
            self.0.remove(&next);
            to = to.max(end);
        }
        self.0.insert(from, to);
    }

    fn intervals(&self) -> impl Iterator<Item = Interval<T>> {
        self.0.iter().map(|(from, to)| Interval { from: *from, to: *to })
    }
}

/// Of some intervals those that hold no other one, by their beginnings: their ends ascend, too. Values that meet these meet all.
struct Least<T> {
    intervals: BTreeMap<Edge<T>, Edge<T>>,
    /// Whether one of the intervals holds no value.
    has_empty: bool,
}

impl<T: Copy + Ord> Least<T> {
    fn new() -> Self {
        Self { intervals: BTreeMap::new(), has_empty: false }
    }

    fn add(&mut self, interval: Interval<T>) {
        self.has_empty |= interval.is_empty();
        let Interval { from, to } = interval;
        if self.has_empty || self.intervals.range(from..).next().is_some_and(|(_, end)| *end <= to) {
            return;
        }
        while let Some((before, end)) = self.intervals.range(..=from).next_back()
            && *end >= to
        {
            let before = *before;
            self.intervals.remove(&before);
        }
        self.intervals.insert(from, to);
    }

    /// Whether an interval begins at an edge or behind it and ends in front of a value, or at all where none is given.
    fn has_between(&self, from: Edge<T>, value: Option<T>) -> bool {
        let first = self.intervals.range(from..).next();
        first.is_some_and(|(_, end)| value.is_none_or(|value| *end <= Edge::At(value, false)))
    }

    /// Whether some ascending values meet all intervals.
    async fn are_met(&self, values: &[T], pace: &dyn Pace) -> bool {
        let mut behind = Edge::Start;
        for (at, value) in values.iter().enumerate() {
            if self.has_empty || self.has_between(behind, Some(*value)) {
                return false;
            }
            behind = Edge::At(*value, true);
            pause_at(at + 1, ITEMS_PER_LOOK, pace).await;
        }
        !self.has_empty && !self.has_between(behind, None)
    }
}

/// The documents with a value in one range.
async fn within(
    columns: &Columns<'_>,
    field: FieldId,
    range: &Range<'_>,
    pace: &dyn Pace,
) -> Result<RoaringBitmap, ColumnError> {
    let (from, to) = range.strings.bounds();
    let mut found = columns.with_string_in(field, from, to, pace).await?;
    if let Some((from, to)) = range.numbers.map(|numbers| numbers.bounds()) {
        found |= columns.with_number_in(field, from, to, pace).await?;
    }
    Ok(found)
}

/// The documents with a value in any of the ranges.
pub(super) async fn within_any(
    columns: &Columns<'_>,
    field: FieldId,
    ranges: &[Range<'_>],
    pace: &dyn Pace,
) -> Result<RoaringBitmap, ColumnError> {
    if let [range] = ranges {
        return within(columns, field, range, pace).await;
    }
    let (mut numbers, mut strings) = (Union(BTreeMap::new()), Union(BTreeMap::new()));
    for (at, range) in ranges.iter().enumerate() {
        range.numbers.into_iter().for_each(|interval| numbers.add(interval));
        strings.add(range.strings);
        pause_at(at + 1, ITEMS_PER_LOOK, pace).await;
    }
    let mut found = RoaringBitmap::new();
    for (at, interval) in strings.intervals().enumerate() {
        let (from, to) = interval.bounds();
        found |= columns.with_string_in(field, from, to, pace).await?;
        pause_at(at + 1, ITEMS_PER_LOOK, pace).await;
    }
    for (at, interval) in numbers.intervals().enumerate() {
        let (from, to) = interval.bounds();
        found |= columns.with_number_in(field, from, to, pace).await?;
        pause_at(at + 1, ITEMS_PER_LOOK, pace).await;
    }
    Ok(found)
}

/// Those of some documents that have a value in each of the ranges.
pub(super) async fn within_all(
    columns: &Columns<'_>,
    field: FieldId,
    ranges: &[Range<'_>],
    mut documents: RoaringBitmap,
    pace: &dyn Pace,
) -> Result<RoaringBitmap, ColumnError> {
    for (at, range) in ranges.iter().enumerate() {
        if documents.len() <= DOCUMENTS_PER_RANGE * (ranges.len() - at) as u64 {
            return judged(columns, field, &ranges[at..], &documents, pace).await;
        }
        documents &= within(columns, field, range, pace).await?;
    }
    Ok(documents)
}

/// As [`within_all`], by the values of each document.
async fn judged(
    columns: &Columns<'_>,
    field: FieldId,
    ranges: &[Range<'_>],
    documents: &RoaringBitmap,
    pace: &dyn Pace,
) -> Result<RoaringBitmap, ColumnError> {
    let mut found = RoaringBitmap::new();
    if documents.is_empty() {
        return Ok(found);
    }
    let judge = Judge::new(ranges, pace).await;
    for (at, document) in documents.iter().enumerate() {
        if let Some(values) = columns.values(field, LocalDocId(document))?
            && judge.admits(values, pace).await
        {
            found.insert(document);
        }
        pause_at(at + 1, ITEMS_PER_LOOK, pace).await;
    }
    Ok(found)
}

/// Tells whether a document's values meet all of some ranges.
struct Judge<'r, 'f> {
    ranges: &'r [Range<'f>],
    numbers: Least<u64>,
    /// Whether each of the ranges is one of numbers, too.
    takes_numbers: bool,
    strings: Least<&'f str>,
}

impl<'r, 'f> Judge<'r, 'f> {
    async fn new(ranges: &'r [Range<'f>], pace: &dyn Pace) -> Self {
        let mut judge = Self { ranges, numbers: Least::new(), takes_numbers: true, strings: Least::new() };
        for (at, range) in ranges.iter().enumerate() {
            judge.takes_numbers &= range.numbers.is_some();
            range.numbers.into_iter().for_each(|interval| judge.numbers.add(interval));
            judge.strings.add(range.strings);
            pause_at(at + 1, ITEMS_PER_LOOK, pace).await;
        }
        judge
    }

    async fn admits(&self, values: DocValues<'_>, pace: &dyn Pace) -> bool {
        let numbers: Vec<u64> = values.numbers().collect();
        let strings: Vec<&str> = values.strings().map(|(value, _)| value).collect();
        if self.takes_numbers && !numbers.is_empty() && self.numbers.are_met(&numbers, pace).await {
            return true;
        }
        if !strings.is_empty() && self.strings.are_met(&strings, pace).await {
            return true;
        }
        if numbers.is_empty() || strings.is_empty() {
            return false;
        }
        // Some ranges may hold a number and the others a string.
        for (at, range) in self.ranges.iter().enumerate() {
            if !range.strings.holds_any(&strings) && !range.numbers.is_some_and(|range| range.holds_any(&numbers)) {
                return false;
            }
            pause_at(at + 1, ITEMS_PER_LOOK, pace).await;
        }
        true
    }
}
