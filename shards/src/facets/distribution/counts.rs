//! Counts as they cross cores and are kept: values in order, in few allocations.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::facets::columns::DocValues;
use crate::ids::DocId;

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
    /// Bits of numbers, ascending, with their counts.
    pub numbers: Vec<(u64, u64)>,
    pub strings: StringCounts,
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
pub(super) const RANKED_VALUES_MAX: usize = 10_000;

/// One string and its count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StringCount<'c> {
    /// Normalised.
    pub value: &'c str,
    pub count: u64,
    /// The least document counted.
    pub first: DocId,
    /// How that document spells the value.
    pub spelling: &'c str,
}

/// Strings with their counts, ascending by bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StringCounts {
    /// Each value, and behind it its spelling where that is another text.
    text: String,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    count: u64,
    first: DocId,
    value_end: usize,
    /// Where the next value starts; a spelling of no bytes is that of a value of none.
    end: usize,
}

impl StringCounts {
    /// Adds a string that is greater than those before.
    pub fn push(&mut self, counted: StringCount<'_>) {
        self.text.push_str(counted.value);
        let value_end = self.text.len();
        if counted.spelling != counted.value {
            self.text.push_str(counted.spelling);
        }
        self.entries.push(Entry { count: counted.count, first: counted.first, value_end, end: self.text.len() });
    }

    /// The strings, ascending.
    pub fn iter(&self) -> impl Iterator<Item = StringCount<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let value = &self.text[start..entry.value_end];
            let spelling = &self.text[entry.value_end..entry.end];
            start = entry.end;
            let spelling = if spelling.is_empty() { value } else { spelling };
            StringCount { value, count: entry.count, first: entry.first, spelling }
        })
    }

    fn merged(&self, other: &Self) -> Self {
        let mut all = Self {
            text: String::with_capacity(self.text.len() + other.text.len()),
            entries: Vec::with_capacity(self.entries.len().max(other.entries.len())),
        };
        let (mut mine, mut theirs) = (self.iter(), other.iter());
        let (mut one, mut other) = (mine.next(), theirs.next());
        loop {
            let order = match (&one, &other) {
                (None, None) => return all,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.value.cmp(other.value),
            };
            let least = if order.is_le() { one } else { None };
            let also = if order.is_ge() { other } else { None };
            let spelled = least.into_iter().chain(also).min_by_key(|counted| counted.first);
            let count = least.into_iter().chain(also).map(|counted| counted.count).sum();
            if let Some(counted) = spelled {
                all.push(StringCount { count, ..counted });
            }
            one = if order.is_le() { mine.next() } else { one };
            other = if order.is_ge() { theirs.next() } else { other };
        }
    }
}

impl FacetCounts {
    /// Adds the counts of another partition under the same plan.
    pub fn merge(&mut self, other: &Self) {
        self.documents += other.documents;
        if self.facets.is_empty() {
            self.facets.clone_from(&other.facets);
            return;
        }
        for (mine, theirs) in self.facets.iter_mut().zip(&other.facets) {
            mine.merge(theirs);
        }
    }

    /// How many values were counted, and those beside which they are ordered.
    pub fn values(&self) -> usize {
        let of = |counts: &FieldCounts| {
            let all = counts.all.as_ref().map_or(0, |all| all.numbers.len() + all.strings.len());
            counts.numbers.len() + counts.strings.entries.len() + all
        };
        self.facets.iter().map(of).sum()
    }
}

impl AllValues {
    pub(super) fn are_few(&self) -> bool {
        self.numbers.len().max(self.strings.len()) <= RANKED_VALUES_MAX
    }

    fn merge(mut self, other: &Self) -> Option<Self> {
        self.numbers.extend(&other.numbers);
        self.strings.extend(other.strings.iter().cloned());
        self.numbers.sort_unstable();
        self.numbers.dedup();
        self.strings.sort_unstable();
        self.strings.dedup();
        Some(self).filter(Self::are_few)
    }
}

impl FieldCounts {
    pub(super) fn new(numbers: Vec<(u64, u64)>, strings: StringCounts) -> Self {
        let range = numbers.first().zip(numbers.last()).map(|(least, greatest)| (least.0, greatest.0));
        Self { numbers, strings, range, all: None }
    }

    fn merge(&mut self, other: &Self) {
        self.all = self.all.take().zip(other.all.as_ref()).and_then(|(mine, theirs)| mine.merge(theirs));
        self.numbers.extend(&other.numbers);
        self.numbers.sort_by_key(|(bits, _)| *bits);
        self.numbers.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        self.strings = self.strings.merged(&other.strings);
        self.range = match (self.range, other.range) {
            (Some(mine), Some(theirs)) => Some((mine.0.min(theirs.0), mine.1.max(theirs.1))),
            (mine, theirs) => mine.or(theirs),
        };
    }
}

/// Counts that come in any order.
#[derive(Default)]
pub(super) struct Gathered<'v> {
    numbers: BTreeMap<u64, u64>,
    strings: BTreeMap<&'v str, StringCount<'v>>,
}

impl<'v> Gathered<'v> {
    /// Counts the values of `count` documents that have the same; `first` is the least of them.
    pub fn add(&mut self, values: DocValues<'v>, count: u64, first: DocId) {
        for bits in values.numbers() {
            *self.numbers.entry(bits).or_default() += count;
        }
        for (value, spelling) in values.strings() {
            let known = self.strings.entry(value).or_insert(StringCount { value, count: 0, first, spelling });
            known.count += count;
            if first < known.first {
                (known.first, known.spelling) = (first, spelling);
            }
        }
    }

    pub fn finish(self) -> FieldCounts {
        let mut strings = StringCounts::default();
        self.strings.into_values().for_each(|counted| strings.push(counted));
        FieldCounts::new(self.numbers.into_iter().collect(), strings)
    }
}
