//! Ranks a search: every partition ranks, the orders are merged, and this repeats if too few documents remain.

use std::ops::Range;
use std::sync::Arc;

use ahash::AHashMap;

use super::Gather;
use crate::facets::columns::{Cut, DEEP_OFFSET, DistinctValues};
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::facets::sort::SortBy as CriterionBy;
use crate::format::FormatPlan;
use crate::ids::DocId;
use crate::query::QueryGraph;
use crate::rank::{LeastScore, RankPlan, Rule, RuleList, SortBy};
use crate::runtime::steps::doing;
use crate::search::answer::{FacetAnswer, SearchError};
use crate::search::ask::unexpected;
use crate::search::merge::{MergeLimits, Ranked, merge, merge_rest};
use crate::search::messages::{PartQuestion, PartReply, PinFacts, RankQuestion, RankedReply};
use crate::search::narrow::{Losses, narrow};
use crate::search::part::{Pacer, free_in_steps};
use crate::search::pins::{PinnedDoc, find_pins};
use crate::search::plan;

/// More documents than the page are ranked when some of them may turn out to belong to one group.
const DISTINCT_SURPLUS: usize = 4;
/// So many times as many are ranked when too few reach a threshold: mostly because very few or none do.
const THRESHOLD_SURPLUS: usize = 16;
/// No more times as many are, whatever share of those ranked before stays.
const TIMES_MAX: usize = 64;
/// Pages that end behind this document are fetched when it is known what is on them.
const HITS_AHEAD_MAX: u64 = 60;

/// What an answer needs of the order.
#[derive(Clone, Copy, Default)]
struct Demand<'d> {
    /// Documents of distinct groups that are met first, since it shows which these are; otherwise any may stand for theirs.
    first_shows: bool,
    /// For an exact total, groups that are counted without an order.
    counts_groups: bool,
    /// Nothing but the documents of the page, as long as none is left out in front of it.
    page_only: bool,
    /// Nothing that comes before this cut of the first rule, before which so many documents are at least.
    behind: Option<&'d (Cut, u64)>,
}

impl Gather<'_> {
    /// As [`Self::ranked`], for an answer that needs nothing but the page's hits and their total.
    pub(in crate::search) async fn ranked_page(
        &self,
        graph: QueryGraph,
        format: &Arc<FormatPlan>,
        page: (u64, u64),
    ) -> Result<Ranked, SearchError> {
        let is_distinct = plan::distinct_field(self.request, self.index.settings).is_some();
        if is_distinct && !self.may_count_groups(&graph) {
            return self.ranked(graph, Some(format), page.0, page.1).await;
        }
        let pins = find_pins(self.ask, &self.request.pins).await?;
        if !is_distinct {
            let behind = if pins.is_empty() { Box::pin(self.cut_before(&graph, page)).await? } else { None };
            let demand = Demand { page_only: true, behind: behind.as_ref(), ..Demand::default() };
            return Ok(self.ranked_as(graph, (Some(format), &pins), page, demand).await?.0);
        }
        let demand = Demand { counts_groups: true, ..Demand::default() };
        let (ranked, several_groups) = self.ranked_as(graph.clone(), (Some(format), &pins), page, demand).await?;
        if !several_groups {
            return Ok(ranked);
        }
        ranked.free(self.pacer).await;
        self.ranked(graph, Some(format), page.0, page.1).await
    }

    /// For a page far behind a sort that comes before all else, where its documents begin.
    async fn cut_before(
        &self,
        graph: &QueryGraph,
        (offset, limit): (u64, u64),
    ) -> Result<Option<(Cut, u64)>, SearchError> {
        let request = self.request;
        let shows_scores = request.show_ranking_score || request.show_ranking_score_details;
        if offset < DEEP_OFFSET || shows_scores || self.threshold(graph).is_some() || self.vector.is_some() {
            return Ok(None);
        }
        let page_end = usize::try_from(offset + limit).unwrap_or(usize::MAX);
        let plan = self.plan_to((offset, page_end), graph.clone(), (false, Demand::default()));
        let (Some(Rule::Sort(_)), Some(SortBy::Field { descending, .. })) =
            (plan.rules.rules.first(), plan.rules.sorts.first())
        else {
            return Ok(None);
        };
        if plan.geo_rule().is_some() {
            return Ok(None);
        }
        let descending = *descending;
        let filter = request.filter.clone().map(Arc::new);
        let search = RankQuestion::new(Arc::new(plan), filter, self.time_left());
        let mut parts = Vec::with_capacity(usize::from(self.index.partitions));
        let page = (offset, offset + limit);
        for reply in self.ask_all(|| PartQuestion::Marks { search: search.clone(), page }).await? {
            let PartReply::Marks(marks) = reply else { return Err(unexpected()) };
            let Some(marks) = marks else { return Ok(None) };
            parts.push(marks);
        }
        Ok(Cut::before_page(&parts, descending, offset))
    }

    /// Whether an exact total may follow from how many distinct groups there are.
    fn may_count_groups(&self, graph: &QueryGraph) -> bool {
        self.request.page.is_exact()
            && self.request.facets.is_none()
            && self.threshold(graph).is_none()
            && self.vector.is_none()
            && plan::distinct_field(self.request, self.index.settings).is_some()
    }

    /// Ranks as many documents as the page needs, at least. With a format the likeliest hits are written out as well.
    pub(in crate::search) async fn ranked(
        &self,
        graph: QueryGraph,
        format: Option<&Arc<FormatPlan>>,
        offset: u64,
        limit: u64,
    ) -> Result<Ranked, SearchError> {
        let (may_show, pins) = (self.first_may_show(&graph, offset), find_pins(self.ask, &self.request.pins).await?);
        if may_show && !self.shows_kept && !self.counts_unplaced(&graph) {
            let (ranked, several_groups) =
                self.ranked_as(graph.clone(), (format, &pins), (offset, limit), Demand::default()).await?;
            // Of documents of one group each, any may stand for it: as many groups are met. Of those that are in no order nothing is
            // known.
            if !several_groups {
                return Ok(ranked);
            }
            ranked.free(self.pacer).await;
        }
        let demand = Demand { first_shows: may_show, ..Demand::default() };
        Ok(self.ranked_as(graph, (format, &pins), (offset, limit), demand).await?.0)
    }

    /// Whether an answer may depend on which document of a distinct group is met first in front of the page, or behind it.
    fn first_may_show(&self, graph: &QueryGraph, offset: u64) -> bool {
        let (request, settings) = (self.request, self.index.settings);
        // With an exact total a threshold, though nothing is below it, has the order walked to its end.
        let is_walked = request.page.is_exact() && self.shows_kept && request.ranking_score_threshold.is_some();
        (offset > 0 || request.page.is_exact())
            && !is_walked
            && self.threshold(graph).is_none()
            && self.vector.is_none()
            && plan::distinct_field(request, settings).is_some()
            && !plan::rules(request, settings, graph).rules.is_empty()
    }

    /// Whether documents that no rule can place are counted by their groups.
    fn counts_unplaced(&self, graph: &QueryGraph) -> bool {
        let (request, settings) = (self.request, self.index.settings);
        let is_counted = request.page.is_exact() && self.threshold(graph).is_none() && self.vector.is_none();
        let is_distinct = plan::distinct_field(request, settings).is_some();
        is_counted && is_distinct && plan::rules(request, settings, graph).may_leave_unplaced(graph)
    }

    /// Ranks, and tells besides whether documents in several groups were met: then groups cannot be counted without an order.
    async fn ranked_as(
        &self,
        graph: QueryGraph,
        (format, pins): (Option<&Arc<FormatPlan>>, &[PinnedDoc]),
        (offset, limit): (u64, u64),
        demand: Demand<'_>,
    ) -> Result<(Ranked, bool), SearchError> {
        let page_end = usize::try_from(offset + limit).unwrap_or(usize::MAX);
        let distinct = plan::distinct_field(self.request, self.index.settings);
        let is_distinct = distinct.is_some();
        let threshold = self.threshold(&graph);
        // Groups that were counted without an order are those of all documents.
        let counts_unplaced = !demand.counts_groups && self.counts_unplaced(&graph);
        let narrows = is_distinct || threshold.is_some();
        let facets = self.facet_plan();
        let (first_shows, walks_all) = (demand.first_shows, self.walks_all(demand));
        let mut plan = self.plan_to((offset, page_end), graph, (is_distinct, demand));
        if offset > 0 && !pins.is_empty() {
            // Whether documents in front of the page are sorted out shows when it is known which pins the filter admits.
            plan.least_score = None;
        }
        let limits = MergeLimits {
            by_groups: is_distinct,
            threshold,
            counted: if walks_all { usize::MAX } else { page_end },
            sorted: !plan.rules.sorts.is_empty(),
            page: (offset, limit),
            exact: walks_all,
            page_only: demand.page_only,
            passes_over: plan.is_by_rules() && (first_shows || self.request.ranking_score_threshold.is_some()),
        };
        // Where sort rules take part, others above the threshold may come behind one below it.
        let may_need_more = is_distinct || limits.threshold.is_some() && limits.sorted;
        let surplus = if limits.threshold.is_some() { THRESHOLD_SURPLUS } else { DISTINCT_SURPLUS };
        let filter = self.request.filter.clone().map(Arc::new);
        let mut question = RankQuestion {
            pinned: Arc::new(pins.iter().map(|pin| pin.doc).collect()),
            distinct,
            behind: demand.behind.map(|(cut, _)| cut.clone()),
            count_groups: demand.counts_groups,
            facets: facets.clone().filter(|_| !narrows),
            show: format.cloned().zip(self.hits_ahead(offset, limit)),
            ..RankQuestion::new(Arc::new(plan), filter, self.time_left())
        };
        let (mut several_groups, mut total) = (false, None);
        loop {
            let (mut ranked, is_complete, several) = self.ranked_once(question, limits, pins).await?;
            several_groups |= several;
            if demand.counts_groups {
                total = total.or(ranked.groups.take());
                match total {
                    Some(total) => ranked.total = total,
                    None => return Ok((ranked, true)),
                }
            }
            let is_filled = ranked.docs.len() >= page_end || ranked.unwanted;
            if is_filled || is_complete || !may_need_more {
                let counts_rest = match is_filled {
                    true => first_shows && self.request.page.is_exact(),
                    false => counts_unplaced,
                };
                if counts_rest {
                    Box::pin(self.take_rest(&mut ranked, is_filled)).await?;
                }
                if self.request.page.is_exact() && !demand.counts_groups {
                    ranked.count_one_of_rivals();
                }
                if narrows && !demand.counts_groups {
                    Box::pin(self.count_narrowed(&mut ranked, facets.as_ref())).await?;
                }
                return Ok((ranked, several_groups));
            }
            question = ranked.question.clone();
            question.count_groups = false;
            let times = times_as_many(page_end, ranked.docs.len()).max(surplus);
            ranked.free(self.pacer).await;
            let plan = Arc::make_mut(&mut question.plan);
            plan.wanted = plan.wanted.saturating_mul(times);
            question.time_left = self.time_left();
        }
    }

    /// Has all partitions rank, and merges their orders. Tells besides whether these hold all that can be returned, and whether
    /// documents in several groups were met.
    async fn ranked_once(
        &self,
        question: RankQuestion,
        limits: MergeLimits,
        pins: &[PinnedDoc],
    ) -> Result<(Ranked, bool, bool), SearchError> {
        let mut replies = self.ask_to_rank(&question).await?;
        let is_complete = replies.iter().all(|reply| reply.part.complete || reply.expired);
        let in_several = |reply: &RankedReply| reply.pinned.iter().any(|facts| facts.groups.len() > 1);
        let several_groups = replies.iter().any(|reply| reply.part.several_groups || in_several(reply));
        let pins = self.admitted(pins, &question.plan, &replies);
        let facets = match &question.facets {
            Some(plan) => {
                let counts: Vec<&FacetCounts> = replies.iter().map(|reply| &*reply.facets).collect();
                if FacetCounts::lack_strings(&counts, plan) {
                    let again = self.count_all_strings(&question, plan).await?;
                    let counts: Vec<&FacetCounts> = again.iter().map(|reply| &*reply.facets).collect();
                    Some(facet_answer(plan, &counts, self.pacer).await)
                } else {
                    Some(facet_answer(plan, &counts, self.pacer).await)
                }
            }
            None => None,
        };
        let groups = self.grouped(&mut replies).await;
        let mut ranked = merge(question, replies, limits, pins, self.pacer).await;
        (ranked.facets, ranked.groups) = (facets, groups);
        if limits.exact && !ranked.question.plan.one_per_group {
            // All documents were met, so those dropped say it all.
            let values = std::mem::take(&mut ranked.removed.values);
            free_in_steps(Arc::into_inner(values).into_iter().flatten(), self.pacer).await;
        }
        Ok((ranked, is_complete, several_groups))
    }

    /// The pins whose documents the filter admits.
    fn admitted(&self, pins: &[PinnedDoc], plan: &RankPlan, replies: &[RankedReply]) -> Vec<PinnedDoc> {
        let facts = replies.iter().flat_map(|reply| &reply.pinned).map(|facts| (facts.doc, facts));
        let facts: AHashMap<DocId, &PinFacts> = facts.collect();
        let admitted = pins.iter().filter_map(|pin| Some((*pin, facts.get(&pin.doc)?)));
        let with_distance =
            |(pin, facts): (_, &&PinFacts)| PinnedDoc { geo_distance: self.distance(plan, &facts.sorts), ..pin };
        admitted.map(with_distance).collect()
    }

    /// How many documents are left of all when one of each distinct group is, where the partitions could tell.
    async fn grouped(&self, replies: &mut [RankedReply]) -> Option<u64> {
        let candidates: u64 = replies.iter().map(|reply| reply.part.candidates + reply.pinned.len() as u64).sum();
        let groups: Option<Vec<_>> = replies.iter_mut().map(|reply| reply.groups.take()).collect();
        let groups = DistinctValues::merged(groups?, self.pacer).await;
        Some(candidates - groups.documents + groups.count)
    }

    /// Has the partitions count once more, without ranking anything, for facets that show more strings than they sent.
    async fn count_all_strings(
        &self,
        question: &RankQuestion,
        facets: &FacetPlan,
    ) -> Result<Vec<RankedReply>, SearchError> {
        let mut question = question.clone();
        let plan = Arc::make_mut(&mut question.plan);
        (plan.rules, plan.wanted, plan.scores) = (RuleList::default(), 0, false);
        question.facets = Some(Arc::new(FacetPlan { all_strings: true, ..facets.clone() }));
        question.show = None;
        self.ask_to_rank(&question).await
    }

    async fn ask_to_rank(&self, question: &RankQuestion) -> Result<Vec<RankedReply>, SearchError> {
        let mut replies = Vec::with_capacity(usize::from(self.index.partitions));
        for reply in self.ask_all(|| PartQuestion::Rank(question.clone())).await? {
            let PartReply::Ranked(reply) = reply else { return Err(unexpected()) };
            replies.push(*reply);
        }
        Ok(replies)
    }

    /// Tells apart the groups of the documents behind the page, or of those that no rule can place, for a total that is exact. They are
    /// not ranked, but come by number.
    async fn take_rest(&self, ranked: &mut Ranked, is_filled: bool) -> Result<(), SearchError> {
        let mut question = ranked.question.clone();
        let plan = Arc::make_mut(&mut question.plan);
        plan.rules = RuleList::default();
        (plan.wanted, plan.whole_buckets, plan.one_per_group, plan.scores) = (usize::MAX, false, true, false);
        (question.facets, question.show) = (None, None);
        let replies = self.ask_to_rank(&question).await?;
        merge_rest(ranked, &question.plan, (replies, is_filled), self.pacer).await;
        Ok(())
    }

    /// Has the partitions count what is found, and its facets, without what the merged order left out.
    async fn count_narrowed(&self, ranked: &mut Ranked, facets: Option<&Arc<FacetPlan>>) -> Result<(), SearchError> {
        if facets.is_none() && ranked.removed.values.is_empty() {
            return Ok(());
        }
        let search = (vec![&*ranked], &Losses::default());
        let (total, counts) = narrow((self.index.partitions, self.ask), &[search], facets.cloned(), self.pacer).await?;
        ranked.total = total;
        if let Some(plan) = facets {
            ranked.facets = Some(facet_answer(plan, &[&counts], self.pacer).await);
        }
        Ok(())
    }

    /// The least score of what is found; none where all documents have the same, which is 1: no rule tells how well they match.
    fn threshold(&self, graph: &QueryGraph) -> Option<f64> {
        self.request.ranking_score_threshold.filter(|_| graph.term_count > 0 || self.vector.is_some())
    }

    /// The facets that are asked for.
    fn facet_plan(&self) -> Option<Arc<FacetPlan>> {
        let names = self.request.facets.as_deref()?;
        Some(Arc::new(FacetPlan::new(names, self.index.fields, self.index.settings)))
    }

    /// Whether the order is walked to its end, for an exact total. Where it shows which document of a group is met first, groups behind
    /// the page are told apart without an order.
    fn walks_all(&self, demand: Demand<'_>) -> bool {
        self.request.page.is_exact() && !demand.first_shows && !demand.counts_groups
    }

    /// How the partitions rank at first, for a page that passes over `offset` documents and ends at `page_end`.
    fn plan_to(
        &self,
        (offset, page_end): (u64, usize),
        graph: QueryGraph,
        (is_distinct, demand): (bool, Demand<'_>),
    ) -> RankPlan {
        let has_threshold = self.threshold(&graph).is_some();
        let mut plan = plan::rank_plan(self.request, self.index.settings, graph, self.field_table(), page_end);
        if let Some(query) = &self.vector {
            plan.rules = RuleList::by_vector(self.index.settings, &plan::sort_by(self.request));
            plan.vector = Some(query.clone());
        }
        if let Some((_, before)) = demand.behind {
            plan.wanted = page_end.saturating_sub(usize::try_from(*before).unwrap_or(usize::MAX));
        }
        let narrows = is_distinct || has_threshold;
        if narrows && self.walks_all(demand) {
            plan.wanted = usize::MAX;
        } else if is_distinct && (has_threshold || self.vector.is_some()) {
            plan.wanted = page_end.saturating_mul(DISTINCT_SURPLUS);
        }
        // A document below the threshold takes no group, and which is met first of those in front of the page is told when they are
        // merged.
        plan.one_per_group =
            is_distinct && !has_threshold && self.vector.is_none() && !(demand.first_shows && offset > 0);
        plan.whole_buckets = is_distinct && !plan.rules.rules.is_empty();
        // How far a bucket reaches is not known where documents of groups are left out.
        let may_drop = plan.is_by_rules() && page_end as u64 > offset && (offset == 0 || !is_distinct);
        let threshold = self.threshold(&plan.graph).filter(|_| may_drop);
        plan.least_score = threshold.map(|score| LeastScore { score, in_front: offset });
        plan
    }

    /// Which of its best documents each partition should write out at once, since they are likely to be on the page: that
    /// saves a question. `None` where a hit shows what only the merged order tells, and for large pages.
    fn hits_ahead(&self, offset: u64, limit: u64) -> Option<Range<usize>> {
        let request = self.request;
        let by_distance = request.sort.iter().any(|criterion| matches!(criterion.by, CriterionBy::Point { .. }));
        let plain = !request.show_ranking_score && !request.show_ranking_score_details && !by_distance;
        if !plain || limit == 0 || offset + limit > HITS_AHEAD_MAX {
            return None;
        }
        let (offset, end) = (offset as usize, (offset + limit) as usize);
        match usize::from(self.index.partitions) {
            1 => Some(offset..end),
            // Documents are spread evenly; a few more than their share covers most pages.
            count => Some(0..end.min(end.div_ceil(count) + 4)),
        }
    }
}

/// How many times as many documents should be ranked when only `kept` of those that were stay and `wanted` should.
fn times_as_many(wanted: usize, kept: usize) -> usize {
    let times = wanted.saturating_add(wanted / 4) / kept.max(1) + 1;
    if kept > 0 { times.min(TIMES_MAX) } else { TIMES_MAX }
}

/// The counts of all partitions together.
pub(in crate::search) async fn facet_answer(
    plan: &FacetPlan,
    counts: &[&FacetCounts],
    pacer: &dyn Pacer,
) -> FacetAnswer {
    doing("facet answer");
    let shown = match counts {
        [only] => only.finish(plan, pacer).await,
        several => FacetCounts::merged(several, pacer).await.finish(plan, pacer).await,
    };
    let answer = FacetAnswer { distribution: shown.distribution_json_in_steps(pacer).await, stats: shown.stats_json() };
    shown.free(pacer).await;
    answer
}
