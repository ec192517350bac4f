//! Counts in the form in which they are cached and sent between cores: values in order, in few allocations.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use storage_engine::vector::Pace;

use super::count::Cut;
use super::{EXACT_DOCUMENTS_MAX, FacetPlan, PlannedFacet};
use crate::facets::columns::DocValues;
use crate::ids::DocId;
use crate::runtime::pause_at;
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
    /// Bits of numbers, ascending, with their counts.
    pub numbers: Vec<(u64, u64)>,
    pub strings: StringCounts,
    /// Whether there may be more strings than these.
    pub strings_cut: bool,
    /// The bits of the least and the greatest number.
    pub range: Option<(u64, u64)>,
    /// All values of the field, for the order by count; `None` when that is not asked for or there are too many.
    pub all: Option<AllValues>,
    /// For the same order, the lists of several values; `None` where documents were not counted one by one, or these are many.
    pub lists: Option<ValueLists>,
}

/// Which values stand together in documents: lists of at least two, and how many documents have each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ValueLists {
    pub numbers: BTreeMap<Box<[u64]>, u64>,
    pub strings: BTreeMap<Box<[Box<str>]>, u64>,
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

/// Strings with their counts, ascending by bytes. Kept in blocks, since a buffer that grows is copied at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StringCounts {
    blocks: Vec<Block>,
}

/// Strings of a block, at most.
const BLOCK_STRINGS: usize = if cfg!(test) { 2 } else { 256 };

#[derive(Clone, Debug, Default, PartialEq)]
struct Block {
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

impl Block {
    fn push(&mut self, counted: StringCount<'_>) {
        self.text.push_str(counted.value);
        let value_end = self.text.len();
        if counted.spelling != counted.value {
            self.text.push_str(counted.spelling);
        }
        self.entries.push(Entry { count: counted.count, first: counted.first, value_end, end: self.text.len() });
    }

    fn iter(&self) -> impl Iterator<Item = StringCount<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let value = &self.text[start..entry.value_end];
            let spelling = &self.text[entry.value_end..entry.end];
            start = entry.end;
            let spelling = if spelling.is_empty() { value } else { spelling };
            StringCount { value, count: entry.count, first: entry.first, spelling }
        })
    }
}

impl StringCounts {
    /// Adds a string that is greater than those before.
    pub fn push(&mut self, counted: StringCount<'_>) {
        match self.blocks.last_mut().filter(|block| block.entries.len() < BLOCK_STRINGS) {
            Some(block) => block.push(counted),
            None => {
                let mut block = Block::default();
                block.push(counted);
                self.blocks.push(block);
            }
        }
    }

    /// The strings, ascending.
    pub fn iter(&self) -> impl Iterator<Item = StringCount<'_>> {
        self.blocks.iter().flat_map(Block::iter)
    }

    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.entries.len()).sum()
    }

    fn truncated(self, len: usize) -> Self {
        if self.len() <= len {
            return self;
        }
        let mut first = Self::default();
        self.iter().take(len).for_each(|counted| first.push(counted));
        first
    }

    async fn merged(&self, other: &Self, pace: &dyn Pace) -> Self {
        let mut all = Self::default();
        let (mut mine, mut theirs) = (self.iter(), other.iter());
        let (mut one, mut other) = (mine.next(), theirs.next());
        for at in 1_usize.. {
            let order = match (&one, &other) {
                (None, None) => break,
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
            pause_at(at, VALUES_PER_LOOK, pace).await;
        }
        all
    }
}

/// Values that are merged or put into order between two looks at whether others wait.
pub(super) const VALUES_PER_LOOK: usize = 256;

impl FacetCounts {
    /// The counts of several partitions under the same plan together.
    pub async fn merged(parts: &[&Self], pace: &dyn Pace) -> Self {
        let [first, rest @ ..] = parts else { return Self::default() };
        let mut all: Option<Self> = None;
        for other in rest {
            all = Some(all.as_ref().unwrap_or(first).with(other, pace).await);
        }
        all.unwrap_or_else(|| Self::clone(first))
    }

    async fn with(&self, other: &Self, pace: &dyn Pace) -> Self {
        let mut facets = Vec::with_capacity(self.facets.len());
        for (mine, theirs) in self.facets.iter().zip(&other.facets) {
            facets.push(mine.with(theirs, pace).await);
        }
        Self { facets, documents: self.documents + other.documents }
    }

    /// Whether a facet shows strings that partitions left out of these counts: see [`Cut`].
    pub fn lack_strings(parts: &[&Self], plan: &FacetPlan) -> bool {
        let documents: u64 = parts.iter().map(|part| part.documents).sum();
        let lacks = |(at, facet): (usize, &PlannedFacet)| {
            let counts = || parts.iter().filter_map(|part| part.facets.get(at));
            facet.order == FacetOrder::Alpha && counts().any(|counts| counts.strings_cut) && {
                let numbers: BTreeSet<u64> =
                    counts().flat_map(|counts| &counts.numbers).map(|(bits, _)| *bits).collect();
                numbers.len() as u64 >= plan.values_max
            }
        };
        documents > EXACT_DOCUMENTS_MAX && plan.facets.iter().enumerate().any(lacks)
    }

    /// How many values were counted, and those beside which they are ordered.
    pub fn values(&self) -> usize {
        let of = |counts: &FieldCounts| {
            let all = counts.all.as_ref().map_or(0, |all| all.numbers.len() + all.strings.len());
            counts.numbers.len() + counts.strings.len() + all + counts.lists.as_ref().map_or(0, ValueLists::values)
        };
        self.facets.iter().map(of).sum()
    }
}

impl ValueLists {
    fn add(&mut self, values: &DocValues<'_>, count: u64) {
        let numbers: Box<[u64]> = values.numbers().collect();
        if numbers.len() > 1 {
            *self.numbers.entry(numbers).or_default() += count;
        }
        let strings: Box<[Box<str>]> = values.strings().map(|(value, _)| value.into()).collect();
        if strings.len() > 1 {
            *self.strings.entry(strings).or_default() += count;
        }
    }

    fn values(&self) -> usize {
        let numbers = self.numbers.keys().map(|values| values.len());
        numbers.chain(self.strings.keys().map(|values| values.len())).sum()
    }

    /// As few as are put into order in one step. More in one partition are more in all, however documents are spread.
    fn are_few(&self) -> bool {
        self.values() <= RANKED_VALUES_MAX
    }

    fn with(&self, other: &Self) -> Option<Self> {
        let mut all = self.clone();
        for (values, count) in &other.numbers {
            *all.numbers.entry(values.clone()).or_default() += count;
        }
        for (values, count) in &other.strings {
            *all.strings.entry(values.clone()).or_default() += count;
        }
        Some(all).filter(Self::are_few)
    }
}

impl AllValues {
    pub(super) fn are_few(&self) -> bool {
        self.numbers.len().max(self.strings.len()) <= RANKED_VALUES_MAX
    }

    fn with(&self, other: &Self) -> Option<Self> {
        let mut all = self.clone();
        all.numbers.extend(&other.numbers);
        all.strings.extend(other.strings.iter().cloned());
        all.numbers.sort_unstable();
        all.numbers.dedup();
        all.strings.sort_unstable();
        all.strings.dedup();
        Some(all).filter(Self::are_few)
    }
}

impl FieldCounts {
    pub(super) fn new(numbers: Vec<(u64, u64)>, strings: StringCounts) -> Self {
        let range = numbers.first().zip(numbers.last()).map(|(least, greatest)| (least.0, greatest.0));
        Self { numbers, strings, range, ..Self::default() }
    }

    /// What is sent of them.
    pub(super) fn cut(mut self, cut: Option<Cut>) -> Self {
        let Some(cut) = cut else { return self };
        self.numbers.truncate(cut.limit);
        let strings_max = cut.strings(self.numbers.len());
        self.strings_cut = self.strings.len() >= strings_max;
        self.strings = self.strings.truncated(strings_max);
        self
    }

    async fn with(&self, other: &Self, pace: &dyn Pace) -> Self {
        let all = self.all.as_ref().zip(other.all.as_ref()).and_then(|(mine, theirs)| mine.with(theirs));
        let strings = self.strings.merged(&other.strings, pace).await;
        let range = match (self.range, other.range) {
            (Some(mine), Some(theirs)) => Some((mine.0.min(theirs.0), mine.1.max(theirs.1))),
            (mine, theirs) => mine.or(theirs),
        };
        let lists = self.lists.as_ref().zip(other.lists.as_ref()).and_then(|(mine, theirs)| mine.with(theirs));
        let numbers = merged_numbers(&self.numbers, &other.numbers, pace).await;
        let strings_cut = self.strings_cut || other.strings_cut;
        Self { numbers, strings, strings_cut, range, all, lists }
    }
}

/// Numbers with their counts out of two lists that are each ascending.
async fn merged_numbers(mine: &[(u64, u64)], theirs: &[(u64, u64)], pace: &dyn Pace) -> Vec<(u64, u64)> {
    let mut all = Vec::with_capacity(mine.len().max(theirs.len()));
    let (mut mine, mut theirs) = (mine.iter().peekable(), theirs.iter().peekable());
    while let Some((bits, mut count)) = match (mine.peek(), theirs.peek()) {
        (Some(one), Some(other)) if other.0 < one.0 => theirs.next().copied(),
        (Some(_), _) => mine.next().copied(),
        (None, _) => theirs.next().copied(),
    } {
        count += theirs.next_if(|other| other.0 == bits).map_or(0, |other| other.1);
        all.push((bits, count));
        pause_at(all.len(), VALUES_PER_LOOK, pace).await;
    }
    all
}

/// Counts that come in any order.
#[derive(Default)]
pub(super) struct Gathered<'v> {
    numbers: BTreeMap<u64, u64>,
    strings: BTreeMap<&'v str, StringCount<'v>>,
    /// Kept only where they are asked for.
    lists: Option<ValueLists>,
}

impl<'v> Gathered<'v> {
    /// Nothing was counted yet; `with_lists` tells whether to keep which values stand together.
    pub fn new(with_lists: bool) -> Self {
        Self { lists: with_lists.then(ValueLists::default), ..Self::default() }
    }

    /// Counts the values of `count` documents that have the same; `first` is the least of them.
    pub async fn add(&mut self, values: DocValues<'v>, (count, first): (u64, DocId), pace: &dyn Pace) {
        if let Some(lists) = &mut self.lists {
            lists.add(&values, count);
        }
        for (at, bits) in values.numbers().enumerate() {
            *self.numbers.entry(bits).or_default() += count;
            pause_at(at + 1, VALUES_PER_LOOK, pace).await;
        }
        for (at, (value, spelling)) in values.strings().enumerate() {
            let known = self.strings.entry(value).or_insert(StringCount { value, count: 0, first, spelling });
            known.count += count;
            if first < known.first {
                (known.first, known.spelling) = (first, spelling);
            }
            pause_at(at + 1, VALUES_PER_LOOK, pace).await;
        }
    }

    pub async fn finish(self, pace: &dyn Pace) -> FieldCounts {
        let mut strings = StringCounts::default();
        for (at, counted) in self.strings.into_values().enumerate() {
            strings.push(counted);
            pause_at(at, VALUES_PER_LOOK, pace).await;
        }
        let lists = self.lists.filter(ValueLists::are_few);
        FieldCounts { lists, ..FieldCounts::new(self.numbers.into_iter().collect(), strings) }
    }
}
