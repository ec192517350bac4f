//! The documents of one coarse bucket while they are ranked.

use ahash::AHashSet;

use super::evaluate::Evaluator;
use super::plan::{Costs, RankPlan, RankedDoc};
use super::runs::Runs;
use crate::facets::distinct::GroupValue;

/// Of more documents than this their order is made in runs instead of sorting out the best again and again.
const SORTED_OUT_MAX: usize = if cfg!(test) { 8 } else { 4096 };
/// Ranked documents are sorted out when there are this many more than wanted, at least.
const SURPLUS_MIN: usize = if cfg!(test) { 2 } else { 64 };

/// A document with its place in the order and the values of its distinct groups.
pub struct Found {
    /// Its place.
    pub doc: RankedDoc,
    /// Its groups; empty unless these are asked for, or when it belongs to none.
    pub values: Vec<GroupValue>,
}

/// Values of distinct groups that are surely taken by a document that was met.
///
/// A document that was not met yet, here or in another partition, may come before one that was and take its place. So only
/// documents of a single value surely take it: whatever they give way to has the same.
#[derive(Default)]
pub struct Taken(AHashSet<GroupValue>);

impl Taken {
    /// Whether a document has none of the values; it then takes its own, if it surely does.
    pub fn admit(&mut self, values: &[GroupValue]) -> bool {
        if self.has(values) {
            return false;
        }
        if let [value] = values {
            self.0.insert(value.clone());
        }
        true
    }

    fn has(&self, values: &[GroupValue]) -> bool {
        values.iter().any(|value| self.0.contains(value))
    }
}

/// What is left to do of a coarse bucket.
pub struct BucketWork {
    /// Its documents, rising.
    pub docs: Vec<u32>,
    /// How many of them were evaluated.
    pub done: usize,
    /// Evaluates them.
    pub evaluator: Evaluator,
    /// Whether documents were left out because better ones are enough.
    pub cut: bool,
    /// How many of its documents are of use.
    wanted: usize,
    /// Whether at most one document of each distinct group is of use.
    by_groups: bool,
    ranked: Vec<Found>,
    runs: Runs<Found>,
    /// The best of the documents that were left out: what comes behind it is not known.
    horizon: Option<RankedDoc>,
}

impl BucketWork {
    /// Nothing is evaluated yet.
    pub fn new(docs: Vec<u32>, evaluator: Evaluator, wanted: usize, by_groups: bool) -> Self {
        let (ranked, runs) = (Vec::new(), Runs::default());
        Self { docs, done: 0, evaluator, cut: false, wanted, by_groups, ranked, runs, horizon: None }
    }

    /// How many documents are of use.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Takes evaluated documents.
    pub fn add(&mut self, found: Vec<Found>, plan: &RankPlan, taken: &Taken) {
        self.ranked.extend(found);
        if self.wanted > SORTED_OUT_MAX {
            if self.ranked.len() >= SORTED_OUT_MAX {
                self.end_run(plan);
            }
        } else if self.ranked.len() >= self.wanted.saturating_mul(2).max(SURPLUS_MIN) {
            self.keep_wanted(plan, taken);
        }
    }

    /// Leaves out what cannot be returned. Of whole buckets, those equal to the last one wanted stay.
    fn keep_wanted(&mut self, plan: &RankPlan, taken: &Taken) {
        if self.ranked.len() <= self.wanted || self.wanted == 0 {
            return;
        }
        if !self.by_groups && !plan.whole_buckets {
            self.ranked.select_nth_unstable_by(self.wanted - 1, |a, b| plan.compare(&a.doc, &b.doc));
            self.ranked.truncate(self.wanted);
            self.cut = true;
            return;
        }
        self.ranked.sort_unstable_by(|a, b| plan.compare(&a.doc, &b.doc));
        let mut met = Taken::default();
        if self.by_groups {
            self.ranked.retain(|found| !taken.has(&found.values) && met.admit(&found.values));
        }
        let Some(last) = self.ranked.get(self.wanted - 1) else { return };
        let rules = plan.rules.rules.len();
        let equal = |found: &&Found| plan.compare_rules(&found.doc, &last.doc, rules).is_eq();
        let end = self.wanted + self.ranked[self.wanted..].iter().take_while(equal).count();
        if let Some(first) = self.ranked.get(end) {
            self.cut = true;
            if self.horizon.as_ref().is_none_or(|horizon| plan.compare(&first.doc, horizon).is_lt()) {
                self.horizon = Some(first.doc.clone());
            }
            self.ranked.truncate(end);
        }
    }

    /// Costs that a document must undercut to be of use, when there are enough others: those of the worst that was kept, as
    /// far as no sort rule comes between. Documents come by rising number, so that an equal one comes too late; not so where
    /// whole buckets are wanted, nor where a sort rule is yet to tell them apart.
    pub fn bar(&mut self, plan: &RankPlan, leading_sorts: usize, taken: &Taken) -> Option<Costs> {
        if self.wanted > SORTED_OUT_MAX || self.ranked.len() < self.wanted || self.wanted == 0 {
            return None;
        }
        self.keep_wanted(plan, taken);
        if self.ranked.len() < self.wanted {
            return None;
        }
        let worst = self.ranked.iter().map(|found| &found.doc).max_by(|a, b| plan.compare(a, b))?;
        let rules = &plan.rules.rules[leading_sorts..];
        let comparable = rules.iter().take_while(|rule| rule.is_graph()).count();
        let mut bar: Costs = worst.costs.iter().take(comparable).copied().collect();
        if (plan.whole_buckets || comparable < rules.len())
            && let Some(last) = bar.last_mut()
        {
            *last += 1;
        }
        Some(bar)
    }

    /// Sorts what was found since the last run.
    fn end_run(&mut self, plan: &RankPlan) {
        let mut run = std::mem::take(&mut self.ranked);
        run.sort_unstable_by(|a, b| plan.compare(&a.doc, &b.doc));
        self.runs.push(run, |a, b| plan.compare(&a.doc, &b.doc));
    }

    /// Moves up to `count` documents into the order, once all were evaluated; false when none is left.
    pub fn settle(&mut self, count: usize, plan: &RankPlan, taken: &mut Taken, out: &mut Vec<Found>) -> bool {
        if !self.ranked.is_empty() {
            if self.wanted <= SORTED_OUT_MAX {
                self.keep_wanted(plan, taken);
            }
            self.end_run(plan);
        }
        let rules = plan.rules.rules.len();
        for _ in 0..count {
            let Some(found) = self.runs.pop(|a, b| plan.compare(&a.doc, &b.doc)) else { return false };
            if self.horizon.as_ref().is_some_and(|horizon| plan.compare_rules(&found.doc, horizon, rules).is_ge()) {
                return false;
            }
            if !self.by_groups || taken.admit(&found.values) {
                out.push(found);
            }
        }
        true
    }
}
