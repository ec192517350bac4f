//! Merges the orders of the partitions.

use std::cmp::Ordering;
use std::sync::Arc;

use ahash::{AHashMap, AHashSet};

use super::answer::FacetAnswer;
use super::below::Below;
use super::messages::{RankQuestion, RankedReply, WrittenHits};
use super::part::{Pacer, free_in_steps};
use super::pins::PinnedDoc;
use super::rivals::Rivals;
use super::walk::Walk;
use crate::facets::distinct::GroupValue;
use crate::facets::geo::sort_buckets;
use crate::ids::DocId;
use crate::rank::score::Scorer;
use crate::rank::score_facts::ScoreFacts;
use crate::rank::{RankPlan, RankedDoc, Rule, SortBy, SortValue};
use crate::runtime::pause;
use crate::sorted_lists::take_window;

/// What keeps documents out of the merged order.
#[derive(Clone, Copy)]
pub(super) struct MergeLimits {
    /// At most one document of a distinct group.
    pub by_groups: bool,
    /// The least score.
    pub threshold: Option<f64>,
    /// Documents after which the rest is not looked at.
    pub counted: usize,
    /// Whether sort rules take part, so that scores may rise again on the way down.
    pub sorted: bool,
    /// The page that is asked for: hits to pass over and to return.
    pub page: (u64, u64),
    /// Whether the total is exact, so that the order is walked to its end whatever the page.
    pub exact: bool,
    /// Whether only the documents of the page are needed, as long as none is left out in front of it.
    pub page_only: bool,
    /// Whether it shows in which order documents in front of the page are met: see [`Walk`].
    pub passes_over: bool,
}

impl Ranked {
    /// Leaves out of what counts those documents at fixed places, and those in the order, of which another one of their distinct
    /// group counts.
    pub fn count_one_of_rivals(&mut self) {
        let uncounted = std::mem::take(&mut self.rivals).uncounted();
        self.total -= uncounted.len() as u64;
        self.removed.dropped.extend(uncounted);
    }

    /// Frees all of it in steps.
    pub async fn free(self, pacer: &dyn Pacer) {
        free_in_steps(self.docs, pacer).await;
        self.facts.free(pacer).await;
        // The partitions have answered, so that nobody else holds the values any more.
        free_in_steps(Arc::into_inner(self.removed.values).into_iter().flatten(), pacer).await;
    }
}

impl MergeLimits {
    /// These for a search with documents at fixed places: it ranks for all pages up to the one that is asked for.
    fn with_earlier_pages(self) -> Self {
        let (offset, limit) = self.page;
        Self { page: (0, offset + limit), ..self }
    }

    /// These for a search that has so many candidates. An order is not walked for a page behind its end, nor, where there are
    /// rules, for one without hits: then nothing is left out. An exact total is told all the same, but for the threshold.
    fn of(self, plan: &RankPlan, candidates: u64) -> Self {
        let (offset, limit) = self.page;
        let is_ranked = plan.is_by_rules();
        let is_behind = offset > candidates;
        match self.exact {
            true if is_ranked && is_behind => Self { threshold: None, ..self },
            false if is_behind || (is_ranked && limit == 0) => Self { threshold: None, counted: 0, ..self },
            _ => self,
        }
    }
}

/// The merged order.
pub(super) struct Ranked {
    /// What was asked of the partitions.
    pub question: RankQuestion,
    pub docs: Vec<RankedDoc>,
    /// How many come before these.
    pub passed: u64,
    pub facts: ScoreFacts,
    pub removed: Removed,
    /// Documents at fixed places, in the order of these.
    pub pins: Vec<PinnedDoc>,
    /// These, and those in the order that share a distinct value with one.
    pub rivals: Rivals,
    /// What counts as found, as far as the ranked documents tell.
    pub total: u64,
    pub facets: Option<FacetAnswer>,
    /// How many documents are left when one of each distinct group is, where that was counted.
    pub groups: Option<u64>,
    pub expired: bool,
    /// Whether no document is wanted, whatever the partitions have.
    pub unwanted: bool,
    /// Hits that partitions wrote before they were asked.
    pub shown: Vec<WrittenHits>,
}

/// What was met on the way and left out.
#[derive(Default)]
pub(super) struct Removed {
    /// Values of the groups of the documents that stay.
    pub values: Arc<AHashSet<GroupValue>>,
    /// Documents below the threshold, and further members of groups.
    pub dropped: Vec<DocId>,
    /// Documents that stay but are not returned, as no rule can place them.
    pub unplaced: Vec<DocId>,
    /// Whether everything that was not ranked, but could have been, is below the threshold too.
    pub only_kept: bool,
    /// Whether documents that no rule can place are left out as well: those met at the end of the order, below the threshold.
    pub lost: bool,
}

/// A document and the values of its distinct groups.
pub(super) type Grouped = (RankedDoc, Vec<GroupValue>);
/// Such documents in order.
type GroupedList = Box<dyn ExactSizeIterator<Item = Grouped>>;

/// Documents that are merged between two looks at whether others wait.
pub(super) const DOCS_PER_LOOK: usize = 128;

/// Merges the orders of the partitions; leaves out what is below the threshold and further members of distinct groups.
pub(super) async fn merge(
    question: RankQuestion,
    mut replies: Vec<RankedReply>,
    limits: MergeLimits,
    pins: Vec<PinnedDoc>,
    pacer: &dyn Pacer,
) -> Ranked {
    let plan = &*question.plan;
    let candidates: u64 = replies.iter().map(|reply| reply.part.candidates).sum();
    let lost: u64 = replies.iter().map(|reply| reply.part.lost).sum();
    let expired = replies.iter().any(|reply| reply.expired);
    let limits = if pins.is_empty() { limits } else { limits.with_earlier_pages() };
    let limits = limits.of(plan, candidates + pins.len() as u64);
    if limits.page_only
        && !limits.by_groups
        && limits.threshold.is_none()
        && pins.is_empty()
        && plan.geo_rule().is_none()
    {
        let (docs, passed, facts) = page_of(plan, &mut replies, limits.page, pacer).await;
        let shown = replies.into_iter().map(|reply| reply.shown).collect();
        let (removed, total, unwanted) = (Removed::default(), candidates, limits.counted == 0);
        let (facets, groups) = (None, None);
        return Ranked {
            question,
            docs,
            passed,
            facts,
            removed,
            pins,
            rivals: Rivals::default(),
            total,
            facets,
            groups,
            expired,
            unwanted,
            shown,
        };
    }
    let found = Found { candidates, lost, expired };
    // In a box of its own: most searches come to an end above.
    Box::pin(merge_walked(question, replies, limits, pins, found, pacer)).await
}

/// What all partitions have found.
struct Found {
    /// Documents that the query admits.
    candidates: u64,
    /// How many of them no rule can place.
    lost: u64,
    /// Whether time ran out.
    expired: bool,
}

/// Merges the orders document by document, as far as the limits ask.
async fn merge_walked(
    question: RankQuestion,
    mut replies: Vec<RankedReply>,
    limits: MergeLimits,
    pins: Vec<PinnedDoc>,
    Found { candidates, lost, expired }: Found,
    pacer: &dyn Pacer,
) -> Ranked {
    let plan = &*question.plan;
    let shown = replies.iter_mut().map(|reply| std::mem::take(&mut reply.shown)).collect();
    let pinned = replies.iter_mut().flat_map(|reply| std::mem::take(&mut reply.pinned));
    let mut rivals = Rivals::of(pinned.map(|facts| (facts.doc, facts.groups)).collect());
    let mut below = Below::new(&mut replies);
    let (all, facts) = ordered(plan, replies, limits.by_groups, pacer).await;
    let scorer = Scorer::new(plan, &facts);
    let mut taken: AHashSet<GroupValue> = AHashSet::new();
    let mut docs: Vec<RankedDoc> = Vec::with_capacity(all.len());
    let mut removed = Removed::default();
    let mut any_below = false;
    let lost_below = limits.threshold.is_some_and(|least| scorer.lost() < least);
    let (mut walk, mut met) = (Walk::new(plan, limits, all), 0);
    while let Some(((doc, groups), rules)) = walk.next(docs.len(), (&taken, &below), pacer).await {
        if met % DOCS_PER_LOOK == 0 {
            pause(pacer).await;
        }
        met += 1;
        if docs.len() < limits.counted {
            any_below |= below.take_before(plan, Some(&doc), &mut removed.dropped, pacer).await;
        }
        // Groups are told apart bucket by bucket, so the one in which the page ends is walked to its end.
        let in_last_bucket =
            |last: &RankedDoc| plan.whole_buckets && plan.compare_rules(last, &doc, plan.rules.rules.len()).is_eq();
        if docs.len() >= limits.counted && !docs.last().is_some_and(in_last_bucket) {
            break;
        }
        let below = match limits.threshold {
            Some(least) => scorer.score(&doc, pacer).await.of_first(rules) < least,
            None => false,
        };
        any_below |= below;
        if below || groups.iter().any(|group| taken.contains(group)) {
            removed.dropped.push(doc.doc);
            continue;
        }
        rivals.meet(doc.doc, &groups);
        taken.extend(groups);
        docs.push(doc);
    }
    drop(scorer);
    let reached_end = docs.len() < limits.counted;
    if reached_end {
        any_below |= below.take_before(plan, None, &mut removed.dropped, pacer).await;
    }
    below.free(pacer).await;
    removed.only_kept = any_below && !limits.sorted && reached_end;
    // What is left when time runs out follows as if it had been placed.
    removed.lost = reached_end && if expired { any_below } else { lost_below };
    removed.values = Arc::new(taken);
    let total = match removed.only_kept {
        true if removed.lost => docs.len() as u64,
        true => docs.len() as u64 + lost,
        false if removed.lost && !expired => candidates - removed.dropped.len() as u64 - lost,
        false => candidates - removed.dropped.len() as u64,
    };
    let total = total + pins.len() as u64;
    let unwanted = limits.counted == 0;
    Ranked {
        question,
        docs,
        passed: 0,
        facts,
        removed,
        pins,
        rivals,
        total,
        facets: None,
        groups: None,
        expired,
        unwanted,
        shown,
    }
}

/// The documents of a page, how many come before them, and what their scores need.
async fn page_of(
    plan: &RankPlan,
    replies: &mut [RankedReply],
    (offset, limit): (u64, u64),
    pacer: &dyn Pacer,
) -> (Vec<RankedDoc>, u64, ScoreFacts) {
    let passed: u64 = replies.iter().map(|reply| reply.part.passed).sum();
    let mut facts = ScoreFacts::default();
    for reply in &mut *replies {
        facts.add(std::mem::take(&mut reply.part.facts), pacer).await;
    }
    let mut lists: Vec<Vec<RankedDoc>> = replies.iter_mut().map(|reply| std::mem::take(&mut reply.part.docs)).collect();
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let window = (size(offset.saturating_sub(passed)), size(limit));
    let docs = take_window(&mut lists, window, |a, b| order(plan, a, b));
    free_in_steps(lists.into_iter().flatten(), pacer).await;
    (docs, offset.max(passed), facts)
}

/// The order of two documents, those last that were not ranked when time ran out.
fn order(plan: &RankPlan, a: &RankedDoc, b: &RankedDoc) -> Ordering {
    match (a.skipped, b.skipped) {
        (false, false) => plan.compare(a, b),
        (true, true) => a.doc.cmp(&b.doc),
        (a, b) => a.cmp(&b),
    }
}

/// Goes on with documents in the order of their numbers: behind the page, or with those that no rule can place where it is not
/// filled. These replies are of all of them.
pub(super) async fn merge_rest(
    ranked: &mut Ranked,
    plan: &RankPlan,
    (replies, is_filled): (Vec<RankedReply>, bool),
    pacer: &dyn Pacer,
) {
    let (all, _) = ordered(plan, replies, true, pacer).await;
    let Removed { values, dropped, unplaced, .. } = &mut ranked.removed;
    let mut met: AHashSet<DocId> = AHashSet::with_capacity(ranked.docs.len() + dropped.len());
    for (at, doc) in ranked.docs.iter().map(|kept| kept.doc).chain(dropped.iter().copied()).enumerate() {
        if at % DOCS_PER_LOOK == 0 {
            pause(pacer).await;
        }
        met.insert(doc);
    }
    let taken = Arc::make_mut(values);
    for (at, (doc, groups)) in all.into_iter().enumerate() {
        if at % DOCS_PER_LOOK == 0 {
            pause(pacer).await;
        }
        if met.contains(&doc.doc) {
            continue;
        }
        if groups.iter().any(|group| taken.contains(group)) {
            dropped.push(doc.doc);
            ranked.total -= 1;
            continue;
        }
        ranked.rivals.meet(doc.doc, &groups);
        taken.extend(groups);
        if is_filled {
            ranked.docs.push(doc);
        } else {
            unplaced.push(doc.doc);
        }
    }
}

/// Gives the documents of each bucket of a distance sort the distance and point of its first one, so that they compare as
/// equal there. Which documents share a bucket depends on all of them. Returns whether anything changed.
fn share_points(plan: &RankPlan, all: &mut [Grouped], facts: &mut ScoreFacts, candidates: usize) -> bool {
    let mut changed = false;
    for (rule, sort) in plan.rules.rules.iter().enumerate() {
        let Rule::Sort(at) = sort else { continue };
        let at = usize::from(*at);
        let SortBy::Geo { descending, .. } = plan.rules.sorts[at] else { continue };
        let mut shared: AHashMap<u64, SortValue> = AHashMap::new();
        for run in all.chunk_by_mut(|a, b| !a.0.skipped && !b.0.skipped && plan.compare_rules(&a.0, &b.0, rule).is_eq())
        {
            let distances: Vec<(f64, (DocId, usize))> = run
                .iter()
                .enumerate()
                .filter_map(|(place, (doc, _))| match doc.sorts.get(at) {
                    Some(SortValue::Point { own, .. }) => Some((*own, (doc.doc, place))),
                    _ => None,
                })
                .collect();
            let walked = if rule == 0 { candidates } else { run.len() };
            for bucket in sort_buckets(&distances, descending, walked).iter().filter(|bucket| bucket.len() > 1) {
                let first = run[bucket[0].1].0.sorts[at].clone();
                for (_, place) in &bucket[1..] {
                    changed |= share(&mut run[*place].0.sorts[at], &first);
                    if let SortValue::Point { own, .. } = run[*place].0.sorts[at] {
                        shared.insert(own.to_bits(), first.clone());
                    }
                }
            }
        }
        let points = facts.profiles.iter_mut().map(|profile| &mut profile.sorts);
        for sorts in points.chain(facts.used.iter_mut().map(|(sorts, ..)| sorts)) {
            if let Some(SortValue::Point { own, .. }) = sorts.get(at)
                && let Some(first) = shared.get(&own.to_bits())
            {
                share(&mut sorts[at], first);
            }
        }
    }
    changed
}

/// Takes over the point of a bucket's first document; returns whether that was another one.
fn share(value: &mut SortValue, first: &SortValue) -> bool {
    let (SortValue::Point { distance, lat, lng, .. }, SortValue::Point { distance: d, lat: a, lng: o, .. }) =
        (value, first)
    else {
        return false;
    };
    (*distance, *lat, *lng) = (*d, *a, *o);
    true
}

/// The documents of all partitions in order, as far as the order is known, each with the values of its groups.
async fn ordered(
    plan: &RankPlan,
    replies: Vec<RankedReply>,
    by_groups: bool,
    pacer: &dyn Pacer,
) -> (Vec<Grouped>, ScoreFacts) {
    let candidates = replies.iter().map(|reply| reply.part.candidates).sum::<u64>() as usize;
    let mut facts = ScoreFacts::default();
    let mut lists: Vec<GroupedList> = Vec::with_capacity(replies.len());
    let mut incomplete_ends: Vec<RankedDoc> = Vec::new();
    let is_complete = replies.iter().all(|reply| reply.part.complete);
    for reply in replies {
        if by_groups && !reply.part.complete {
            incomplete_ends.extend(reply.part.docs.last().cloned());
        }
        facts.add(reply.part.facts, pacer).await;
        let mut values = reply.part.values.into_iter();
        let docs = reply.part.docs.into_iter();
        lists.push(Box::new(docs.map(move |doc| (doc, values.next().unwrap_or_default()))));
    }
    let order = |a: &RankedDoc, b: &RankedDoc| order(plan, a, b);
    let mut all = match plan.geo_rule() {
        // Within a bucket of distances a list has an order of its own.
        Some(_) => {
            let mut all: Vec<Grouped> = lists.into_iter().flatten().collect();
            all.sort_by(|a, b| order(&a.0, &b.0));
            all
        }
        None => merge_lists(lists, order, pacer).await,
    };
    if plan.geo_rule().is_some() && share_points(plan, &mut all, &mut facts, candidates) {
        all.sort_unstable_by(|a, b| order(&a.0, &b.0));
    }
    // What a partition holds beyond its last document is unknown, so the merged order is known up to the first such end; to
    // the end of its bucket where partitions answer whole buckets.
    if let Some(end) = incomplete_ends.iter().min_by(|a, b| order(a, b)) {
        let rules = plan.rules.rules.len();
        let same = |doc: &RankedDoc| {
            plan.whole_buckets && !doc.skipped && !end.skipped && plan.compare_rules(doc, end, rules) == Ordering::Equal
        };
        let known = all.partition_point(|(doc, _)| order(doc, end).is_le() || same(doc));
        all.truncate(known);
    }
    // The same where groups do not matter: each partition has told at least so many of its best.
    if !by_groups && !is_complete {
        all.truncate(plan.wanted);
    }
    (all, facts)
}

/// One list out of several that are each in order.
async fn merge_lists(
    mut lists: Vec<GroupedList>,
    order: impl Fn(&RankedDoc, &RankedDoc) -> Ordering,
    pacer: &dyn Pacer,
) -> Vec<Grouped> {
    loop {
        let mut merged: Vec<Vec<Grouped>> = Vec::with_capacity(lists.len().div_ceil(2));
        let mut rest = lists.into_iter();
        while let Some(left) = rest.next() {
            let right = rest.next();
            let mut both = Vec::with_capacity(left.len() + right.as_ref().map_or(0, |right| right.len()));
            let (mut left, mut right) = (left.peekable(), right.into_iter().flatten().peekable());
            loop {
                let next = match right.peek() {
                    Some(next) => left.next_if(|head| order(&head.0, &next.0).is_le()).or_else(|| right.next()),
                    None => left.next(),
                };
                let Some(next) = next else { break };
                both.push(next);
                if both.len() % DOCS_PER_LOOK == 0 {
                    pause(pacer).await;
                }
            }
            merged.push(both);
        }
        if merged.len() <= 1 {
            return merged.pop().unwrap_or_default();
        }
        lists = merged.into_iter().map(|list| Box::new(list.into_iter()) as GroupedList).collect();
    }
}
