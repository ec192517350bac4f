//! The documents of one partition that are nearest to a vector.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use roaring::RoaringBitmap;
use storage_engine::vector::{Neighbor, Pace, SearchOptions};

use crate::ids::LocalDocId;
use crate::rank::ranker::SortSource;
use crate::rank::{NO_VECTOR, RankPlan, RankedDoc, RankedPart, Rule, SortBy, SortValue, VectorQuery};
use crate::search::answer::SearchError;
use crate::search::part::{Pacer, SearchPartition};
use crate::vectors::stored::EmbedderVectors;

/// Nodes that every partition's walk keeps in view, and as many more as are shared among all of them. At these numbers one, two and
/// four partitions find about as many of the nearest.
const VIEW_EACH: usize = 40;
const VIEW_SHARED: usize = 60;

/// Lets others run while vectors are compared, and ends that when time has run out.
pub struct SearchPace<'p> {
    pacer: &'p dyn Pacer,
    deadline: Duration,
}

impl<'p> SearchPace<'p> {
    /// A pace that stops at a moment of the pacer's clock.
    pub fn new(pacer: &'p dyn Pacer, deadline: Duration) -> Self {
        Self { pacer, deadline }
    }
}

impl Pace for SearchPace<'_> {
    fn due(&self) -> bool {
        self.pacer.due()
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.pacer.pause()
    }

    fn stopped(&self) -> bool {
        self.pacer.now() > self.deadline
    }
}

/// Ranks documents by a plan with a vector.
pub struct VectorRanking<'r> {
    /// The partition.
    pub partition: &'r Rc<dyn SearchPartition>,
    /// Values to sort by.
    pub sorter: &'r dyn SortSource,
    /// The plan.
    pub plan: &'r RankPlan,
    /// The plan's.
    pub query: &'r VectorQuery,
    /// When it ends.
    pub pace: &'r SearchPace<'r>,
}

/// A document on its way into the order.
struct Candidate {
    doc: u32,
    cost: u32,
    later: Vec<SortValue>,
}

impl VectorRanking<'_> {
    /// The best of `candidates`.
    ///
    /// # Errors
    /// [`SearchError::Partition`] when the partition cannot be read.
    pub async fn rank(&self, candidates: &RoaringBitmap) -> Result<RankedPart, SearchError> {
        let rules = &self.plan.rules.rules;
        let leading = rules.iter().take_while(|rule| **rule != Rule::Vector).count();
        let by_vector = leading < rules.len();
        let mut part = RankedPart { candidates: candidates.len(), ..RankedPart::default() };
        let mut groups = self.groups(candidates, &self.plan.rules.sorts[..leading])?.into_iter();
        while part.docs.len() < self.plan.wanted {
            let Some((docs, sorts)) = groups.next() else { break };
            let wanted = self.plan.wanted - part.docs.len();
            let ranked =
                if by_vector { self.group(&docs, wanted, leading).await? } else { unranked(&docs, wanted, self.plan) };
            for candidate in ranked {
                let (number, count) = self.partition.place();
                let mut all = sorts.clone();
                all.extend(candidate.later);
                part.docs.push(RankedDoc {
                    doc: LocalDocId(candidate.doc).global(number, count),
                    costs: if by_vector { [candidate.cost].into_iter().collect() } else { Default::default() },
                    sorts: all,
                    skipped: false,
                });
            }
        }
        part.complete = part.docs.len() as u64 >= part.candidates;
        let (_, count) = self.partition.place();
        let docs: Vec<u32> = part.docs.iter().map(|ranked| ranked.doc.local(count).0).collect();
        part.values = self.sorter.group_values(&docs).map_err(SearchError::Partition)?.unwrap_or_default();
        Ok(part)
    }

    /// Candidates by the sort rules before the vector's.
    fn groups(
        &self,
        candidates: &RoaringBitmap,
        sorts: &[SortBy],
    ) -> Result<Vec<(RoaringBitmap, Vec<SortValue>)>, SearchError> {
        if sorts.is_empty() {
            return Ok(vec![(candidates.clone(), Vec::new())]);
        }
        let docs: Vec<u32> = candidates.iter().collect();
        let mut keyed: Vec<(u32, Vec<SortValue>)> = docs.iter().copied().zip(self.values(sorts, &docs)?).collect();
        let compare = |a: &[SortValue], b: &[SortValue]| compare(sorts, a, b);
        keyed.sort_by(|a, b| compare(&a.1, &b.1).then(a.0.cmp(&b.0)));
        let runs = keyed.chunk_by(|a, b| compare(&a.1, &b.1).is_eq());
        Ok(runs.map(|run| (run.iter().map(|(doc, _)| *doc).collect(), run[0].1.clone())).collect())
    }

    /// For each document its values under the criteria.
    fn values(&self, sorts: &[SortBy], docs: &[u32]) -> Result<Vec<Vec<SortValue>>, SearchError> {
        let mut values: Vec<Vec<SortValue>> = vec![Vec::with_capacity(sorts.len()); docs.len()];
        for by in sorts {
            let column = self.sorter.sort_values(by, docs).map_err(SearchError::Partition)?;
            values.iter_mut().zip(column).for_each(|(values, value)| values.push(value));
        }
        Ok(values)
    }

    /// The first `wanted` documents of a group, and with them all that are as near as the last where that matters.
    async fn group(&self, docs: &RoaringBitmap, wanted: usize, leading: usize) -> Result<Vec<Candidate>, SearchError> {
        let later = &self.plan.rules.sorts[leading..];
        let whole = !later.is_empty() || self.plan.whole_buckets;
        let found = self.nearest(docs, wanted, whole).await?;
        let mut ranked: Vec<(u32, u32)> =
            found.iter().map(|near| (VectorQuery::cost(near.distance), near.doc)).collect();
        if ranked.len() < wanted {
            // Documents without a vector are found as well, behind all others.
            let none = self.with_vectors().map_or_else(|| docs.clone(), |with| docs - with);
            let room = if whole { usize::MAX } else { wanted - ranked.len() };
            ranked.extend(none.iter().take(room).map(|doc| (NO_VECTOR, doc)));
        }
        let mut numbers: Vec<u32> = ranked.iter().map(|(_, doc)| *doc).collect();
        let mut places: Vec<usize> = (0..ranked.len()).collect();
        if !later.is_empty() {
            // Columns are read by rising number.
            places.sort_unstable_by_key(|at| numbers[*at]);
            numbers.sort_unstable();
        }
        let mut values = self.values(later, &numbers)?;
        let mut candidates: Vec<Candidate> = places
            .into_iter()
            .zip(values.drain(..))
            .map(|(at, later)| Candidate { doc: ranked[at].1, cost: ranked[at].0, later })
            .collect();
        let order = |a: &Candidate, b: &Candidate| {
            a.cost.cmp(&b.cost).then_with(|| compare(later, &a.later, &b.later)).then(a.doc.cmp(&b.doc))
        };
        candidates.sort_unstable_by(order);
        if !self.plan.whole_buckets {
            candidates.truncate(wanted);
        }
        Ok(candidates)
    }

    fn vectors(&self) -> Option<&EmbedderVectors> {
        let vectors = self.partition.vectors()?.get(&self.query.embedder)?;
        let fits = |graph: &crate::vectors::stored::Graph| {
            graph.snapshot.config().dimensions as usize == self.query.vector.len()
        };
        // Vectors of a length from before a change of settings are no longer searched.
        Some(vectors).filter(|vectors| vectors.graph.as_ref().is_some_and(fits))
    }

    fn with_vectors(&self) -> Option<&RoaringBitmap> {
        self.vectors()?.documents()
    }

    /// The nearest documents, equal distances by number; with `whole` all that are as near as the last one wanted.
    async fn nearest(&self, docs: &RoaringBitmap, wanted: usize, whole: bool) -> Result<Vec<Neighbor>, SearchError> {
        let Some(graph) = self.vectors().and_then(|vectors| vectors.graph.as_ref()) else { return Ok(Vec::new()) };
        let all = docs.len() == crate::facets::FacetSource::documents(&**self.partition).len();
        let allowed = (!all).then_some(docs);
        let width = view_of(self.partition.place().1);
        let mut limit = if whole { wanted.saturating_add(1) } else { wanted };
        loop {
            let options = SearchOptions { limit, allowed, width, ..SearchOptions::default() };
            let found = graph.snapshot.search(&self.query.vector, &options, self.pace).await;
            let mut found = found.map_err(|error| SearchError::Partition(error.to_string()))?;
            let Some(last) = found.get(wanted.saturating_sub(1)).copied().filter(|_| whole) else { return Ok(found) };
            let ends = found.last().is_some_and(|end| end.distance > last.distance);
            if ends || found.len() < limit || self.pace.stopped() {
                found.retain(|near| near.distance <= last.distance);
                return Ok(found);
            }
            limit = limit.saturating_mul(2);
        }
    }
}

/// Nodes that a walk keeps in view in each of so many partitions. Each has its share of the nearest documents only, and finds
/// them in a narrower view than one that has all.
pub(super) fn view_of(partitions: u16) -> usize {
    VIEW_EACH + VIEW_SHARED / usize::from(partitions.max(1))
}

fn compare(sorts: &[SortBy], a: &[SortValue], b: &[SortValue]) -> std::cmp::Ordering {
    let orders = sorts.iter().zip(a.iter().zip(b)).map(|(by, (a, b))| a.compare(b, by.is_descending()));
    orders.into_iter().find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
}

/// Documents of which no rule says more.
fn unranked(docs: &RoaringBitmap, wanted: usize, plan: &RankPlan) -> Vec<Candidate> {
    let wanted = if plan.whole_buckets { usize::MAX } else { wanted };
    docs.iter().take(wanted).map(|doc| Candidate { doc, cost: 0, later: Vec::new() }).collect()
}
