//! Finds the documents of one partition that are nearest to a vector.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use roaring::RoaringBitmap;
use storage_engine::vector::{Neighbor, Pace, SearchOptions};

use crate::ids::LocalDocId;
use crate::rank::groups::{Group, Groups, RUN_DOCS};
use crate::rank::runs::Runs;
use crate::rank::sort_source::SortSource;
use crate::rank::{NO_VECTOR, RankPlan, RankedDoc, RankedPart, Rule, SortBy, SortValue, VectorQuery};
use crate::runtime::{pause, pause_at};
use crate::search::answer::SearchError;
use crate::search::part::{Pacer, SearchPartition};
use crate::vectors::stored::Graph;

/// Of how many documents values are read at most when time has run out: enough to fill a page.
const LATE_DOCS: usize = 4096;

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
    /// Whether a filter chose the candidates.
    pub filtered: bool,
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
    pub async fn rank(&self, candidates: &Rc<RoaringBitmap>) -> Result<RankedPart, SearchError> {
        let rules = &self.plan.rules.rules;
        let leading = rules.iter().take_while(|rule| **rule != Rule::Vector).count();
        let by_vector = leading < rules.len();
        let mut part = RankedPart { candidates: candidates.len(), ..RankedPart::default() };
        let mut groups = Groups::new(candidates.clone());
        let mut read = 0;
        while part.docs.len() < self.plan.wanted {
            while groups.step(self.plan, self.sorter, leading).map_err(SearchError::Partition)? {
                read += RUN_DOCS;
                if read >= self.plan.wanted.min(LATE_DOCS) && self.pace.stopped() {
                    groups.end_reading();
                } else if let Some(making) = self.sorter.prepare(self.pace) {
                    making.await.map_err(SearchError::Partition)?;
                }
                pause(self.pace).await;
            }
            let Some(Group { docs, sorts }) = groups.pop() else { break };
            let wanted = self.plan.wanted - part.docs.len();
            let ranked =
                if by_vector { self.group(&docs, wanted, leading).await? } else { unranked(&docs, wanted, self.plan) };
            for (at, candidate) in ranked.into_iter().enumerate() {
                pause_at(at, RUN_DOCS, self.pace).await;
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
        while groups.discard(RUN_DOCS) {
            pause(self.pace).await;
        }
        part.complete = part.docs.len() as u64 >= part.candidates;
        let (_, count) = self.partition.place();
        let docs: Vec<u32> = part.docs.iter().map(|ranked| ranked.doc.local(count).0).collect();
        part.values = self.sorter.group_values(&docs).map_err(SearchError::Partition)?.unwrap_or_default();
        Ok(part)
    }

    /// The first `wanted` documents of a group, and with them all that are as near as the last where that matters.
    async fn group(&self, docs: &RoaringBitmap, wanted: usize, leading: usize) -> Result<Vec<Candidate>, SearchError> {
        let later = &self.plan.rules.sorts[leading..];
        let whole = !later.is_empty() || self.plan.whole_buckets;
        let found = self.nearest(docs, wanted, whole).await?;
        let mut none = RoaringBitmap::new();
        if found.len() < wanted {
            // Documents without a vector are found as well, behind all others.
            none = self.with_vectors().map_or_else(|| docs.clone(), |with| docs - with);
        }
        let room = if whole { usize::MAX } else { wanted.saturating_sub(found.len()) };
        let near = found.iter().map(|near| (VectorQuery::cost(near.distance), near.doc));
        let ranked = near.chain(none.iter().take(room).map(|doc| (NO_VECTOR, doc)));
        let kept = if self.plan.whole_buckets { usize::MAX } else { wanted };
        first_of(ranked, (later, self.sorter), kept, self.pace).await
    }

    /// The vectors that the query can be compared with: those of a length from before a change of settings are not.
    fn graph(&self) -> Option<&Graph> {
        self.partition.vectors()?.get(&self.query.embedder)?.graph_of(self.query.vector.len())
    }

    fn with_vectors(&self) -> Option<&RoaringBitmap> {
        Some(self.graph()?.snapshot.documents())
    }

    /// The nearest documents, equal distances by number; with `whole` all that are as near as the last one wanted.
    async fn nearest(&self, docs: &RoaringBitmap, wanted: usize, whole: bool) -> Result<Vec<Neighbor>, SearchError> {
        let Some(graph) = self.graph() else { return Ok(Vec::new()) };
        let all = docs.len() == crate::facets::FacetSource::documents(&**self.partition).len();
        let allowed = (!all).then_some(docs);
        let partitions = self.partition.place().1;
        let mut limit = if whole { wanted.saturating_add(1) } else { wanted };
        loop {
            let options =
                SearchOptions { limit, allowed, filtered: self.filtered, partitions, ..SearchOptions::default() };
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

/// The first `wanted` documents by cost, then by their values under the criteria, then by number. They are given with their costs,
/// and read in runs; when time runs out, those count whose values were read by then, as long as they fill a page.
async fn first_of(
    mut ranked: impl Iterator<Item = (u32, u32)>,
    (sorts, sorter): (&[SortBy], &dyn SortSource),
    wanted: usize,
    pace: &dyn Pace,
) -> Result<Vec<Candidate>, SearchError> {
    let order = |a: &Candidate, b: &Candidate| {
        a.cost.cmp(&b.cost).then_with(|| compare(sorts, &a.later, &b.later)).then(a.doc.cmp(&b.doc))
    };
    let (mut runs, mut read) = (Runs::default(), 0);
    loop {
        let mut run: Vec<(u32, u32)> = ranked.by_ref().take(RUN_DOCS).collect();
        let fills_page = read >= wanted.min(LATE_DOCS);
        if run.is_empty() || (fills_page && !sorts.is_empty() && pace.stopped()) {
            break;
        }
        read += run.len();
        // Columns are read by rising number.
        run.sort_unstable_by_key(|(_, doc)| *doc);
        let numbers: Vec<u32> = run.iter().map(|(_, doc)| *doc).collect();
        let valued = run.into_iter().zip(values(sorts, sorter, &numbers)?);
        let mut sorted: Vec<Candidate> = valued.map(|((cost, doc), later)| Candidate { doc, cost, later }).collect();
        sorted.sort_unstable_by(order);
        sorted.truncate(wanted);
        runs.push(sorted, order);
        pause(pace).await;
    }
    let mut first = Vec::with_capacity(read.min(wanted));
    while first.len() < wanted
        && let Some(next) = runs.pop(order)
    {
        first.push(next);
        pause_at(first.len(), RUN_DOCS, pace).await;
    }
    while runs.discard(RUN_DOCS) {
        pause(pace).await;
    }
    Ok(first)
}

/// For each document its values under the criteria.
fn values(sorts: &[SortBy], sorter: &dyn SortSource, docs: &[u32]) -> Result<Vec<Vec<SortValue>>, SearchError> {
    let mut values: Vec<Vec<SortValue>> = vec![Vec::with_capacity(sorts.len()); docs.len()];
    for by in sorts {
        let column = sorter.sort_values(by, docs).map_err(SearchError::Partition)?;
        values.iter_mut().zip(column).for_each(|(values, value)| values.push(value));
    }
    Ok(values)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use futures_lite::future::{block_on, poll_once};
    use serde_json::{Value, json};

    use super::*;
    use crate::facets::test_support::filterable;
    use crate::ids::PartitionNo;
    use crate::rank::RuleList;
    use crate::search::ask::Ask;
    use crate::search::messages::{PartQuestion, PartReply, RankQuestion};
    use crate::search::replay::MemIndex;

    /// Values that follow from the documents' numbers; counts how many are read, and the most in one step.
    #[derive(Default)]
    struct Values {
        read: Cell<usize>,
        most: Cell<usize>,
    }

    fn value(doc: u32) -> f64 {
        f64::from(doc.wrapping_mul(2_654_435_761) % 1000)
    }

    impl SortSource for Values {
        fn sort_values(&self, _: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String> {
            assert!(docs.is_sorted());
            self.read.set(self.read.get() + docs.len());
            self.most.set(self.most.get().max(docs.len()));
            Ok(docs.iter().map(|doc| SortValue::Number(value(*doc))).collect())
        }
    }

    /// Pauses whenever it is asked, and stops after so many pauses.
    struct Ending(Cell<usize>);

    impl Pace for Ending {
        fn due(&self) -> bool {
            true
        }

        fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
            self.0.set(self.0.get().saturating_sub(1));
            Box::pin(std::future::ready(()))
        }

        fn stopped(&self) -> bool {
            self.0.get() == 0
        }
    }

    /// The values of all documents without a vector were once read and sorted in one step, whatever time was left.
    #[test]
    fn many_documents_are_read_in_runs_until_time_ends() {
        let sorts = [SortBy::Field { name: "n".into(), descending: false }];
        let ranked = || (0..10_000u32).rev().map(|doc| (doc % 3, doc));
        let mut expected: Vec<(u32, u32)> = ranked().collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0).then(value(a.1).total_cmp(&value(b.1))).then(a.1.cmp(&b.1)));
        let sorter = Values::default();
        for wanted in [1, 20, 300, usize::MAX] {
            let pace = Ending(Cell::new(usize::MAX));
            let first = block_on(first_of(ranked(), (&sorts, &sorter), wanted, &pace)).expect("memory does not fail");
            let found: Vec<(u32, u32)> = first.iter().map(|candidate| (candidate.cost, candidate.doc)).collect();
            assert_eq!(found, expected[..wanted.min(10_000)]);
            assert_eq!(sorter.most.get(), RUN_DOCS);
            assert!(usize::MAX - pace.0.get() >= 10_000 / RUN_DOCS);
        }
        let sorter = Values::default();
        let first = block_on(first_of(ranked(), (&sorts, &sorter), 20, &Ending(Cell::new(2)))).expect("as above");
        assert_eq!((first.len(), sorter.read.get()), (20, 20usize.next_multiple_of(RUN_DOCS)));
    }

    /// Sort rules once had the values of all candidates read in one step, whatever time was left.
    #[test]
    fn sort_rules_give_way_and_end_in_time() {
        let docs: Vec<Value> = (0..100).map(|id| json!({"id": id, "n": 100 - id})).collect();
        let index = MemIndex::new(&filterable(&["n"]), &docs, 1);
        let vector = VectorQuery { embedder: "none".into(), vector: [1.0].into(), shift: None };
        let sorts = vec![SortBy::Field { name: "n".into(), descending: false }];
        for (rules, late) in [
            (vec![Rule::Sort(0), Rule::Vector], vec![99, 0, 1, 2, 3]),
            (vec![Rule::Vector, Rule::Sort(0)], vec![5, 4, 3, 2, 1]),
        ] {
            let is_walked = rules[0] == Rule::Sort(0);
            let rules = RuleList { rules, sorts: sorts.clone(), ..RuleList::default() };
            let plan = Arc::new(RankPlan { rules, wanted: 5, vector: Some(vector.clone()), ..RankPlan::default() });
            let found = |time_left| {
                let question = RankQuestion::new(plan.clone(), None, time_left);
                let (mut asked, mut pauses) = (index.ask(PartitionNo(0), PartQuestion::Rank(question)), 0);
                let reply = loop {
                    match block_on(poll_once(&mut asked)) {
                        Some(reply) => break reply.expect("memory does not fail"),
                        None => pauses += 1,
                    }
                };
                let PartReply::Ranked(reply) = reply else { panic!("not a ranking") };
                (reply.part.docs.iter().map(|ranked| ranked.doc.0).collect::<Vec<_>>(), reply.expired, pauses)
            };
            let (docs, expired, pauses) = found(Duration::from_secs(1));
            assert_eq!((docs, expired), (vec![99, 98, 97, 96, 95], false));
            assert!(pauses >= if is_walked { 3 } else { 100 / RUN_DOCS }, "{pauses}");
            let (docs, expired, _) = found(Duration::ZERO);
            assert_eq!((docs, expired), (late, true), "what was read by then leads, and fills a page");
        }
    }
}
