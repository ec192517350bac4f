//! The documents of one coarse bucket while it is ranked.

use ahash::AHashSet;

use super::evaluate::Evaluator;
use super::plan::{Costs, RankPlan, RankedDoc};
use super::runs::Runs;
use crate::facets::distinct::GroupValue;

/// Of more documents than this their order is made in runs instead of sorting out the best again and again.
const SORTED_OUT_MAX: usize = if cfg!(test) { 8 } else { 4096 };
/// The same where documents that are equal to the last one of use stay: so many may be that to sort them out is long work.
const TIES_MAX: usize = if cfg!(test) { 4 } else { 512 };
/// Documents of one run.
const RUN_DOCS: usize = if cfg!(test) { 8 } else { 512 };
/// Ranked documents are sorted out when there are this many more than wanted, at least.
const SURPLUS_MIN: usize = if cfg!(test) { 2 } else { 64 };

/// A document with its place in the order and the values of its distinct groups.
pub struct Found {
    /// Its place.
    pub doc: RankedDoc,
    /// Its groups; empty unless these are asked for, or when it belongs to none.
    pub values: Vec<GroupValue>,
}

/// Documents in their order: kept as they are answered, so that a long answer has not to be copied once it is known.
#[derive(Default)]
pub struct Order {
    /// Their places.
    pub docs: Vec<RankedDoc>,
    /// For each the values of its distinct groups.
    pub values: Vec<Vec<GroupValue>>,
}

impl Order {
    /// Adds the next document.
    pub fn push(&mut self, found: Found) {
        self.docs.push(found.doc);
        self.values.push(found.values);
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.docs.len()
    }
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

    /// The values, to be freed in steps.
    pub fn into_values(self) -> impl Iterator<Item = GroupValue> {
        self.0.into_iter()
    }

    /// Frees up to `count` of the values; false when none is left.
    pub fn discard(&mut self, count: usize) -> bool {
        self.0.extract_if(|_| true).take(count).count() > 0
    }

    /// Whether any of the values is taken.
    pub fn has(&self, values: &[GroupValue]) -> bool {
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
    /// Sort rules that come before any graph rule.
    leading_sorts: usize,
    /// Whether the order is made in runs.
    in_runs: bool,
    ranked: Vec<Found>,
    /// How many of `ranked` were there when they were last sorted out.
    sorted_out: usize,
    /// What [`BucketWork::bar`] gave last.
    bar: Option<Costs>,
    runs: Runs<Found>,
    /// How many documents were moved into the order.
    settled: usize,
    /// Whether nothing that is left is of use.
    ended: bool,
    /// The best of the documents that were left out: what comes behind it is not known.
    horizon: Option<RankedDoc>,
}

impl BucketWork {
    /// Nothing is evaluated yet.
    pub fn new(docs: Vec<u32>, evaluator: Evaluator, wanted: usize, by_groups: bool, leading_sorts: usize) -> Self {
        Self {
            docs,
            done: 0,
            evaluator,
            cut: false,
            wanted,
            by_groups,
            leading_sorts,
            in_runs: wanted > SORTED_OUT_MAX,
            ranked: Vec::new(),
            sorted_out: 0,
            bar: None,
            runs: Runs::default(),
            settled: 0,
            ended: false,
            horizon: None,
        }
    }

    /// How many documents are of use.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Takes evaluated documents.
    pub fn add(&mut self, found: Vec<Found>, plan: &RankPlan, taken: &Taken) {
        self.ranked.extend(found);
        if !self.in_runs && self.ranked.len() >= self.wanted.saturating_mul(2).max(SURPLUS_MIN) {
            self.sort_out(plan, taken);
        }
        if self.in_runs && self.ranked.len() >= RUN_DOCS {
            self.end_run(plan);
        }
    }

    /// Leaves out what cannot be returned, when enough was added since the last time; goes over to runs where too much stays.
    fn sort_out(&mut self, plan: &RankPlan, taken: &Taken) {
        let ties = self.keeps_ties(plan);
        let enough = if ties { self.sorted_out * 2 } else { self.sorted_out + 1 };
        if self.in_runs || self.ranked.len() < enough.max(self.wanted) {
            return;
        }
        self.keep_wanted(plan, taken);
        self.sorted_out = self.ranked.len();
        if self.ranked.len() >= self.wanted {
            self.lower_bar(plan);
        }
        self.in_runs = ties && self.ranked.len() > self.wanted + TIES_MAX;
    }

    /// Leaves out what cannot be returned. Of whole buckets, those equal to the last one wanted stay.
    fn keep_wanted(&mut self, plan: &RankPlan, taken: &Taken) {
        // Where groups count, even just enough documents may be too few.
        let needed = self.wanted.saturating_add(usize::from(!self.by_groups));
        if self.ranked.len() < needed || self.wanted == 0 {
            return;
        }
        if !self.keeps_ties(plan) {
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
    /// whole buckets are wanted, or a sort rule is yet to tell them apart. Never rises: what was once left out for it is not
    /// looked at again.
    pub fn bar(&mut self, plan: &RankPlan, taken: &Taken) -> Option<Costs> {
        self.sort_out(plan, taken);
        self.bar.clone()
    }

    fn lower_bar(&mut self, plan: &RankPlan) {
        let worst = self.ranked.iter().map(|found| &found.doc).max_by(|a, b| plan.compare(a, b));
        let Some(worst) = worst.filter(|_| self.wanted > 0) else { return };
        let rules = &plan.rules.rules[self.leading_sorts..];
        let comparable = rules.iter().take_while(|rule| rule.is_graph()).count();
        let mut bar: Costs = worst.costs.iter().take(comparable).copied().collect();
        // One that is shorter than the costs lets equal ones pass as it is.
        if bar.len() == worst.costs.len()
            && (plan.whole_buckets || comparable < rules.len())
            && let Some(last) = bar.last_mut()
        {
            *last += 1;
        }
        if self.bar.as_ref().is_none_or(|known| bar < *known) {
            self.bar = Some(bar);
        }
    }

    /// Sorts what was found since the last run.
    fn end_run(&mut self, plan: &RankPlan) {
        let mut run = std::mem::take(&mut self.ranked);
        run.sort_unstable_by(|a, b| plan.compare(&a.doc, &b.doc));
        self.runs.push(run, |a, b| plan.compare(&a.doc, &b.doc));
    }

    /// Moves up to `count` documents into the order, once all were evaluated; then frees as many of those that are left. False
    /// when there is none.
    pub fn settle(&mut self, count: usize, plan: &RankPlan, taken: &mut Taken, out: &mut Order) -> bool {
        if self.ended {
            return self.runs.discard(count);
        }
        if !self.ranked.is_empty() {
            if !self.in_runs {
                self.keep_wanted(plan, taken);
            }
            self.end_run(plan);
        }
        for _ in 0..count {
            let Some(found) = self.runs.pop(|a, b| plan.compare(&a.doc, &b.doc)) else { return false };
            if self.is_behind_use(&found.doc, plan, out) {
                self.ended = true;
                return true;
            }
            if !self.by_groups || taken.admit(&found.values) {
                self.settled += 1;
                out.push(found);
            }
        }
        true
    }

    /// Frees up to `count` of the documents that were evaluated; false when none is left.
    pub fn discard(&mut self, count: usize) -> bool {
        let left = self.ranked.len();
        self.ranked.truncate(left.saturating_sub(count));
        left > 0 || self.runs.discard(count)
    }

    /// Whether the next document, and with it all behind it, is of no use: it may come after one that was left out, or after
    /// the ties of the last one of use.
    fn is_behind_use(&mut self, next: &RankedDoc, plan: &RankPlan, out: &Order) -> bool {
        if self.is_behind_horizon(next, plan) {
            return true;
        }
        let rules = plan.rules.rules.len();
        let has_all = self.keeps_ties(plan) && self.wanted > 0 && self.settled >= self.wanted;
        let last = out.docs.last().filter(|_| has_all);
        let is_behind = last.is_some_and(|last| plan.compare_rules(last, next, rules).is_ne());
        self.cut |= is_behind;
        is_behind
    }

    /// Whether a document is of no use because one that comes before it, or is equal, was left out.
    pub fn is_behind_horizon(&self, doc: &RankedDoc, plan: &RankPlan) -> bool {
        let rules = plan.rules.rules.len();
        self.horizon.as_ref().is_some_and(|horizon| plan.compare_rules(doc, horizon, rules).is_ge())
    }

    /// Whether documents that are equal to the last one of use stay.
    fn keeps_ties(&self, plan: &RankPlan) -> bool {
        self.by_groups || plan.whole_buckets
    }
}
