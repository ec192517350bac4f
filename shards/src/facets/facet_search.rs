//! Facet search: the values of a facet that begin with what a user has typed, allowing typos.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use crate::error::UserError;
use crate::facets::columns::{ColumnError, Counted, CountedSet, DocValues, Guide, Speller};
use crate::facets::folding::Folding;
use crate::facets::source::FacetSource;
use crate::ids::{DocId, LocalDocId};
use crate::runtime::pause_at;
use crate::settings::{FacetOrder, Settings};

mod matcher;

use matcher::{Matcher, Wanted};

/// Checks that the index can be searched for facets; fails with `facet_search_disabled`.
pub fn check_facet_search_enabled(settings: &Settings) -> Result<(), UserError> {
    if settings.facet_search {
        return Ok(());
    }
    Err(UserError::new("facet_search_disabled", "the facet search is disabled for this index"))
}

/// Checks that a field can be searched for its values; fails with `invalid_facet_search_facet_name`.
pub fn check_facet_name(field: &str, settings: &Settings) -> Result<(), UserError> {
    if settings.filterable(field).is_some_and(|features| features.facet_search) {
        return Ok(());
    }
    let message = format!("attribute `{field}` is not facet-searchable");
    Err(UserError::new("invalid_facet_search_facet_name", message))
}

/// The values found that matching documents have, of one partition or of several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FacetHits {
    /// Normalised values, rising, each with the number of matching documents that have it. In alphabetical order no more than
    /// the first up to the facet's limit: a value that is among the first of all partitions is among the first of each that has
    /// it, with all its matching documents there, since whatever is before it there is before it among all.
    hits: Vec<(Box<str>, u64)>,
}

/// Values that are merged or put into order between two looks at whether others wait.
const VALUES_PER_LOOK: usize = 128;

/// To read a document's values takes about as long as to count the documents of so many blocks.
const BLOCKS_PER_DOCUMENT: u64 = if cfg!(test) { 2 } else { 16 };

/// Finds the strings of a field that match, and how many of `documents` have each. Without a query, which comes folded as
/// [`Folding::of_query`] does it, all strings match. Numbers are never found.
pub async fn search_facet(
    source: &dyn FacetSource,
    field: &str,
    query: Option<&str>,
    documents: &RoaringBitmap,
    pace: &dyn Pace,
) -> Result<FacetHits, ColumnError> {
    let Some(number) = source.fields().id(field) else { return Ok(FacetHits::default()) };
    if documents.is_empty() {
        return Ok(FacetHits::default());
    }
    let (columns, settings) = (source.columns(), source.settings());
    let set = CountedSet::new(documents, source.documents(), pace).await;
    let wanted = Wanted::new(query, field, settings);
    let mut found = Found::new(&wanted, field, settings);
    let mut blocks_left = documents.len().saturating_mul(BLOCKS_PER_DOCUMENT);
    if columns.count_guided(number, (&set, &mut blocks_left), &mut found, pace).await? {
        return Ok(found.finish());
    }
    // The values are so many more than the documents that reading these is cheaper.
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut read = 0;
    for document in documents {
        let values = columns.values(number, LocalDocId(document))?;
        for (value, _) in values.into_iter().flat_map(DocValues::strings) {
            *counts.entry(value).or_default() += 1;
            read += 1;
            pause_at(read, VALUES_PER_LOOK, pace).await;
        }
        pause_at(0, VALUES_PER_LOOK, pace).await;
    }
    found = Found::new(&wanted, field, settings);
    for (at, (value, count)) in counts.into_iter().enumerate() {
        if found.matcher.takes(value) && found.add(value, count).is_break() {
            break;
        }
        pause_at(at, VALUES_PER_LOOK, pace).await;
    }
    Ok(found.finish())
}

/// For each of some values, which rise: the least document with it, matching or not, and how that spells it. `None` where no
/// document of the partition has it.
pub async fn spellings(
    source: &dyn FacetSource,
    field: &str,
    values: &[Box<str>],
    pace: &dyn Pace,
) -> Result<Vec<Option<Spelled>>, ColumnError> {
    let Some(number) = source.fields().id(field) else { return Ok(vec![None; values.len()]) };
    let mut speller = Speller::new(source.columns(), number);
    let mut spelled = Vec::with_capacity(values.len());
    for values in values.chunks(VALUES_PER_LOOK) {
        let firsts = source.columns().first_with_strings(number, values)?;
        for (value, first) in values.iter().zip(firsts) {
            spelled.push(match first {
                Some(first) => {
                    let spelling = speller.spelling(first, value, pace).await?.into();
                    Some(Spelled { first: source.global(first), spelling })
                }
                None => None,
            });
        }
        pause_at(0, VALUES_PER_LOOK, pace).await;
    }
    Ok(spelled)
}

/// A spelling and the document that has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spelled {
    /// The document.
    pub first: DocId,
    /// How it spells the value.
    pub spelling: Box<str>,
}

/// Gathers the values of a partition that match.
struct Found<'w> {
    matcher: Matcher<'w>,
    hits: Gathered,
}

enum Gathered {
    /// As they come, up to so many.
    Rising(Vec<(Box<str>, u64)>, usize),
    /// The first by folded value.
    Folded(First<(String, Box<str>), u64>),
}

impl Guide for Found<'_> {
    fn wants(&mut self, value: &str, next: &mut Vec<u8>) -> bool {
        let last = match &self.hits {
            Gathered::Folded(first) => first.last().map(|(folded, _)| folded.as_str()),
            Gathered::Rising(..) => None,
        };
        self.matcher.takes_next(value, last, next)
    }

    fn take(&mut self, value: &str, counted: Counted) -> ControlFlow<()> {
        self.add(value, counted.count)
    }
}

impl<'w> Found<'w> {
    fn new(wanted: &'w Wanted, field: &str, settings: &Settings) -> Self {
        let hits = match settings.faceting.order(field) {
            FacetOrder::Alpha if !matches!(wanted, Wanted::All) => Gathered::Folded(First::new(limit(settings))),
            FacetOrder::Alpha => Gathered::Rising(Vec::new(), limit(settings)),
            FacetOrder::Count => Gathered::Rising(Vec::new(), usize::MAX),
        };
        Self { matcher: Matcher::new(wanted, field, settings), hits }
    }

    /// Takes a value that matches and is greater than those before. `Break` when no more are needed.
    fn add(&mut self, value: &str, count: u64) -> ControlFlow<()> {
        match &mut self.hits {
            Gathered::Rising(hits, limit) => {
                hits.push((value.into(), count));
                if hits.len() >= *limit {
                    return ControlFlow::Break(());
                }
            }
            Gathered::Folded(first) => {
                first.add((self.matcher.folding.fold(value).into_owned(), value.into()), count);
            }
        }
        ControlFlow::Continue(())
    }

    fn finish(self) -> FacetHits {
        let hits = match self.hits {
            Gathered::Rising(hits, _) => hits,
            Gathered::Folded(first) => {
                let mut hits: Vec<_> = first.finish().into_iter().map(|((_, value), count)| (value, count)).collect();
                hits.sort_unstable();
                hits
            }
        };
        FacetHits { hits }
    }
}

impl FacetHits {
    /// These and what another partition found for the same question.
    pub async fn merged(self, other: Self, pace: &dyn Pace) -> Self {
        let mut hits = Vec::with_capacity(self.hits.len().max(other.hits.len()));
        let (mut mine, mut theirs) = (self.hits.into_iter().peekable(), other.hits.into_iter().peekable());
        while let Some((value, mut count)) = match (mine.peek(), theirs.peek()) {
            (Some((one, _)), Some((other, _))) if other < one => theirs.next(),
            (Some(_), _) => mine.next(),
            (None, _) => theirs.next(),
        } {
            count += theirs.next_if(|(other, _)| *other == value).map_or(0, |(_, count)| count);
            hits.push((value, count));
            pause_at(hits.len(), VALUES_PER_LOOK, pace).await;
        }
        Self { hits }
    }

    /// Those whose spelling is needed: in the order by count, where spellings decide between equals, these may be more than the
    /// facet's limit.
    pub async fn to_spell(self, field: &str, query: Option<&str>, settings: &Settings, pace: &dyn Pace) -> Self {
        let mut hits = self.hits;
        match settings.faceting.order(field) {
            FacetOrder::Alpha if query.is_none() => hits.truncate(limit(settings)),
            FacetOrder::Alpha => {
                let folding = Folding::of_values(field, settings);
                let mut first = First::new(limit(settings));
                for (at, (value, count)) in hits.into_iter().enumerate() {
                    first.add((folding.fold(&value).into_owned(), value), count);
                    pause_at(at, VALUES_PER_LOOK, pace).await;
                }
                hits = first.finish().into_iter().map(|((_, value), count)| (value, count)).collect();
                hits.sort_unstable();
            }
            FacetOrder::Count => {
                let mut first = First::new(limit(settings));
                for (at, (_, count)) in hits.iter().enumerate() {
                    first.add(Reverse(*count), ());
                    pause_at(at, VALUES_PER_LOOK, pace).await;
                }
                match first.finish().last() {
                    Some((Reverse(least), ())) => hits.retain(|(_, count)| count >= least),
                    None => hits.clear(),
                }
            }
        }
        Self { hits }
    }

    /// The values, rising, so many together.
    pub fn values(&self, together: usize) -> impl Iterator<Item = Arc<[Box<str>]>> {
        self.hits.chunks(together).map(|hits| hits.iter().map(|(value, _)| value.clone()).collect())
    }

    /// The values to answer with their counts, in the facet's order and cut to its limit. Takes their spellings in the same
    /// order; `query` says whether there was one.
    pub async fn finish(
        self,
        spelled: Vec<Option<Spelled>>,
        (field, query): (&str, Option<&str>),
        settings: &Settings,
        pace: &dyn Pace,
    ) -> Vec<(String, u64)> {
        let order = settings.faceting.order(field);
        let folding = Folding::of_values(field, settings);
        let mut first = First::new(limit(settings));
        for (at, ((value, count), spelled)) in self.hits.into_iter().zip(spelled).enumerate() {
            let spelling = spelled.map_or(value.clone(), |spelled| spelled.spelling);
            let key = match order {
                // By normalised value as they are, or by value without accents first.
                FacetOrder::Alpha if query.is_none() => (Reverse(0), Reverse(Box::default()), String::new(), at),
                FacetOrder::Alpha => (Reverse(0), Reverse(Box::default()), folding.fold(&value).into_owned(), at),
                FacetOrder::Count => (Reverse(count), Reverse(spelling.clone()), String::new(), at),
            };
            first.add(key, (spelling, count));
            pause_at(at, VALUES_PER_LOOK, pace).await;
        }
        first.finish().into_iter().map(|(_, (spelling, count))| (spelling.into(), count)).collect()
    }
}

/// Joins the spellings of several partitions: that of the least document stands.
pub fn join_spellings(all: &mut [Option<Spelled>], others: Vec<Option<Spelled>>) {
    for (known, other) in all.iter_mut().zip(others) {
        if let Some(other) = other
            && known.as_ref().is_none_or(|known| other.first < known.first)
        {
            *known = Some(other);
        }
    }
}

fn limit(settings: &Settings) -> usize {
    usize::try_from(settings.faceting.max_values_per_facet).unwrap_or(usize::MAX)
}

/// Keeps the first items by key, up to a limit.
struct First<K, T> {
    limit: usize,
    best: Vec<(K, T)>,
    /// Whether the last one is the greatest that counts.
    is_cut: bool,
}

impl<K: Ord, T> First<K, T> {
    fn new(limit: usize) -> Self {
        Self { limit, best: Vec::new(), is_cut: false }
    }

    fn add(&mut self, key: K, item: T) {
        // After a cut the item at the limit stays where it is until the next.
        if self.is_cut && self.limit.checked_sub(1).is_none_or(|last| key >= self.best[last].0) {
            return;
        }
        self.best.push((key, item));
        // Items often come in order: the first cut leaves those that stay.
        let most = if self.is_cut { self.limit.saturating_mul(2).saturating_add(VALUES_PER_LOOK) } else { self.limit };
        if self.best.len() >= most {
            self.cut();
        }
    }

    /// A key such that items with greater ones are not among the first.
    fn last(&self) -> Option<&K> {
        let last = self.limit.checked_sub(1).filter(|_| self.is_cut)?;
        self.best.get(last).map(|(key, _)| key)
    }

    fn cut(&mut self) {
        self.best.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        self.best.truncate(self.limit);
        self.is_cut = self.best.len() >= self.limit;
    }

    fn finish(mut self) -> Vec<(K, T)> {
        self.cut();
        self.best
    }
}

#[cfg(test)]
mod tests;
