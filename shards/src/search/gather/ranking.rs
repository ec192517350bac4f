//! Ranks a search: every partition ranks, the orders are merged, and this repeats if too few documents remain.

use std::ops::Range;
use std::sync::Arc;

use super::Gather;
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::facets::sort::SortBy as CriterionBy;
use crate::format::FormatPlan;
use crate::query::QueryGraph;
use crate::rank::{RankPlan, RuleList};
use crate::runtime::steps::doing;
use crate::search::answer::{FacetAnswer, SearchError};
use crate::search::ask::unexpected;
use crate::search::merge::{MergeLimits, Ranked, merge, merge_rest};
use crate::search::messages::{PartQuestion, PartReply, RankQuestion, RankedReply};
use crate::search::narrow::{Losses, narrow};
use crate::search::part::{Pacer, free_in_steps};
use crate::search::pins::{PinnedDoc, find_pins};
use crate::search::plan;

/// More documents than the page are ranked when some of them may turn out to belong to one group.
const DISTINCT_SURPLUS: usize = 4;
/// Pages that end behind this document are fetched when it is known what is on them.
const HITS_AHEAD_MAX: u64 = 60;

impl Gather<'_> {
    /// Ranks as many documents as the page needs, at least. With a format the likeliest hits are written out as well.
    pub(in crate::search) async fn ranked(
        &self,
        graph: QueryGraph,
        format: Option<&Arc<FormatPlan>>,
        offset: u64,
        limit: u64,
    ) -> Result<Ranked, SearchError> {
        let (may_show, pins) = (self.first_may_show(&graph, offset), find_pins(self.ask, &self.request.pins).await?);
        // Facets are those of the documents that are met first.
        if may_show && self.request.facets.is_none() {
            let (ranked, several_groups) =
                self.ranked_as(graph.clone(), (format, &pins), (offset, limit), false).await?;
            // Of documents of one group each, any may stand for it: as many groups are met.
            if !several_groups {
                return Ok(ranked);
            }
            ranked.free(self.pacer).await;
        }
        Ok(self.ranked_as(graph, (format, &pins), (offset, limit), may_show).await?.0)
    }

    /// Whether an answer may depend on which document of a distinct group is met first in front of the page, or behind it.
    fn first_may_show(&self, graph: &QueryGraph, offset: u64) -> bool {
        let (request, settings) = (self.request, self.index.settings);
        (offset > 0 || request.page.is_exact())
            && request.ranking_score_threshold.is_none()
            && self.vector.is_none()
            && plan::distinct_field(request, settings).is_some()
            && !plan::rules(request, settings, graph).rules.is_empty()
    }

    /// Ranks by the documents of groups that are met first, where it shows which these are (`first_shows`), or by any. Tells besides
    /// whether documents in several groups were met.
    async fn ranked_as(
        &self,
        graph: QueryGraph,
        (format, pins): (Option<&Arc<FormatPlan>>, &[PinnedDoc]),
        (offset, limit): (u64, u64),
        first_shows: bool,
    ) -> Result<(Ranked, bool), SearchError> {
        let page_end = usize::try_from(offset + limit).unwrap_or(usize::MAX);
        let distinct = plan::distinct_field(self.request, self.index.settings);
        let is_distinct = distinct.is_some();
        let narrows = is_distinct || self.request.ranking_score_threshold.is_some();
        let facets = self.facet_plan();
        let walks_all = self.walks_all(first_shows);
        let plan = self.plan_to((offset, page_end), graph, (is_distinct, first_shows));
        let limits = MergeLimits {
            by_groups: is_distinct,
            threshold: self.request.ranking_score_threshold,
            counted: if walks_all { usize::MAX } else { page_end },
            sorted: !plan.rules.sorts.is_empty(),
            page: (offset, limit),
            exact: walks_all,
            passes_over: plan.is_by_rules() && (first_shows || self.request.ranking_score_threshold.is_some()),
        };
        let mut question = RankQuestion {
            plan: Arc::new(plan),
            filter: self.request.filter.clone().map(Arc::new),
            pinned: Arc::new(pins.iter().map(|pin| pin.doc).collect()),
            distinct,
            facets: facets.clone().filter(|_| !narrows),
            show: format.cloned().zip(self.hits_ahead(offset, limit)),
            time_left: self.time_left(),
        };
        let mut several_groups = false;
        loop {
            let (mut ranked, is_complete, several) = self.ranked_once(question, limits, pins).await?;
            several_groups |= several;
            let is_filled = ranked.docs.len() >= page_end || ranked.unwanted;
            if is_filled || is_complete || !is_distinct {
                if is_filled && self.request.page.is_exact() && first_shows {
                    self.take_rest(&mut ranked).await?;
                }
                if narrows {
                    self.count_narrowed(&mut ranked, facets.as_ref()).await?;
                }
                return Ok((ranked, several_groups));
            }
            question = ranked.question.clone();
            ranked.free(self.pacer).await;
            let plan = Arc::make_mut(&mut question.plan);
            plan.wanted = plan.wanted.saturating_mul(DISTINCT_SURPLUS);
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
        let replies = self.ask_to_rank(&question).await?;
        let is_complete = replies.iter().all(|reply| reply.part.complete || reply.expired);
        let several_groups = replies.iter().any(|reply| reply.part.several_groups);
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
        let mut ranked = merge(question, replies, limits, pins, self.pacer).await;
        ranked.facets = facets;
        if limits.exact && !ranked.question.plan.one_per_group {
            // All documents were met, so those dropped say it all.
            let values = std::mem::take(&mut ranked.removed.values);
            free_in_steps(Arc::into_inner(values).into_iter().flatten(), self.pacer).await;
        }
        Ok((ranked, is_complete, several_groups))
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

    /// Tells apart the groups of the documents behind the page, for a total that is exact. They are not ranked, but come by number.
    async fn take_rest(&self, ranked: &mut Ranked) -> Result<(), SearchError> {
        let mut question = ranked.question.clone();
        let plan = Arc::make_mut(&mut question.plan);
        plan.rules = RuleList::default();
        (plan.wanted, plan.whole_buckets, plan.one_per_group, plan.scores) = (usize::MAX, false, true, false);
        (question.facets, question.show) = (None, None);
        let replies = self.ask_to_rank(&question).await?;
        merge_rest(ranked, &question.plan, replies, self.pacer).await;
        Ok(())
    }

    /// Has the partitions count what is found, and its facets, without what the merged order left out.
    async fn count_narrowed(&self, ranked: &mut Ranked, facets: Option<&Arc<FacetPlan>>) -> Result<(), SearchError> {
        if facets.is_none() && ranked.removed.values.is_empty() {
            return Ok(());
        }
        let (total, counts) =
            narrow((self.index.partitions, self.ask), &[&*ranked], Losses::default(), facets.cloned(), self.pacer)
                .await?;
        ranked.total = total;
        if let Some(plan) = facets {
            ranked.facets = Some(facet_answer(plan, &[&counts], self.pacer).await);
        }
        Ok(())
    }

    /// The facets that are asked for.
    fn facet_plan(&self) -> Option<Arc<FacetPlan>> {
        let names = self.request.facets.as_deref()?;
        Some(Arc::new(FacetPlan::new(names, self.index.fields, self.index.settings)))
    }

    /// Whether the order is walked to its end, for an exact total. Where it shows which document of a group is met first, groups behind
    /// the page are told apart without an order.
    fn walks_all(&self, first_shows: bool) -> bool {
        self.request.page.is_exact() && !first_shows
    }

    /// How the partitions rank at first, for a page that passes over `offset` documents and ends at `page_end`.
    fn plan_to(
        &self,
        (offset, page_end): (u64, usize),
        graph: QueryGraph,
        (is_distinct, first_shows): (bool, bool),
    ) -> RankPlan {
        let mut plan = plan::rank_plan(self.request, self.index.settings, graph, self.field_table(), page_end);
        if let Some(query) = &self.vector {
            plan.rules = RuleList::by_vector(self.index.settings, &plan::sort_by(self.request));
            plan.vector = Some(query.clone());
        }
        let has_threshold = self.request.ranking_score_threshold.is_some();
        let narrows = is_distinct || has_threshold;
        if narrows && (self.walks_all(first_shows) || (has_threshold && !plan.rules.sorts.is_empty())) {
            plan.wanted = usize::MAX;
        } else if is_distinct && (has_threshold || self.vector.is_some()) {
            plan.wanted = page_end.saturating_mul(DISTINCT_SURPLUS);
        }
        // A document below the threshold takes no group, and which is met first of those in front of the page is told when they are
        // merged.
        plan.one_per_group = is_distinct && !has_threshold && self.vector.is_none() && !(first_shows && offset > 0);
        plan.whole_buckets = is_distinct && !plan.rules.rules.is_empty();
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
    FacetAnswer { distribution: shown.distribution_json(), stats: shown.stats_json() }
}
