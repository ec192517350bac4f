//! The order of a search: every partition ranks, and their orders are merged; again where too little of them is left.

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
use crate::search::merge::{MergeLimits, Ranked, merge};
use crate::search::messages::{PartQuestion, PartReply, RankQuestion};
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
        let page_end = usize::try_from(offset + limit).unwrap_or(usize::MAX);
        let pins = find_pins(self.ask, &self.request.pins).await?;
        let distinct = plan::distinct_field(self.request, self.index.settings);
        let is_distinct = distinct.is_some();
        let narrows = is_distinct || self.request.ranking_score_threshold.is_some();
        let facets = self.facet_plan();
        let plan = self.plan_to(page_end, graph, is_distinct);
        let limits = self.merge_limits(&plan, (offset, limit), is_distinct);
        let mut question = RankQuestion {
            plan: Arc::new(plan),
            filter: self.request.filter.clone().map(Arc::new),
            pinned: Arc::new(pins.iter().map(|pin| pin.doc).collect()),
            distinct,
            facets: facets.clone().filter(|_| !narrows),
            show: format.cloned().zip(self.hits_ahead(offset, limit)),
            time_left: self.time_left(),
        };
        loop {
            let (mut ranked, is_complete) = self.ranked_once(question, limits, &pins).await?;
            if ranked.docs.len() >= page_end || ranked.unwanted || is_complete || !is_distinct {
                if narrows {
                    self.count_narrowed(&mut ranked, facets.as_ref()).await?;
                }
                return Ok(ranked);
            }
            question = ranked.question.clone();
            ranked.free(self.pacer).await;
            let plan = Arc::make_mut(&mut question.plan);
            plan.wanted = plan.wanted.saturating_mul(DISTINCT_SURPLUS);
            question.time_left = self.time_left();
        }
    }

    /// Has all partitions rank, and merges their orders. Tells besides whether these hold all that can be returned.
    async fn ranked_once(
        &self,
        question: RankQuestion,
        limits: MergeLimits,
        pins: &[PinnedDoc],
    ) -> Result<(Ranked, bool), SearchError> {
        let mut replies = Vec::with_capacity(usize::from(self.index.partitions));
        for reply in self.ask_all(|| PartQuestion::Rank(question.clone())).await? {
            let PartReply::Ranked(reply) = reply else { return Err(unexpected()) };
            replies.push(*reply);
        }
        let is_complete = replies.iter().all(|reply| reply.part.complete || reply.expired);
        let facets = match &question.facets {
            Some(plan) => {
                let counts: Vec<&FacetCounts> = replies.iter().map(|reply| &*reply.facets).collect();
                Some(facet_answer(plan, &counts, self.pacer).await)
            }
            None => None,
        };
        let mut ranked = merge(question, replies, limits, pins, self.pacer).await;
        ranked.facets = facets;
        if self.request.page.is_exact() && !ranked.question.plan.one_per_group {
            // All documents were met, so those dropped say it all.
            let values = std::mem::take(&mut ranked.removed.values);
            free_in_steps(Arc::into_inner(values).into_iter().flatten(), self.pacer).await;
        }
        Ok((ranked, is_complete))
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

    /// What keeps documents out of the merged order of this plan.
    fn merge_limits(&self, plan: &RankPlan, page: (u64, u64), is_distinct: bool) -> MergeLimits {
        let exact = self.request.page.is_exact();
        let page_end = usize::try_from(page.0 + page.1).unwrap_or(usize::MAX);
        MergeLimits {
            by_groups: is_distinct,
            threshold: self.request.ranking_score_threshold,
            counted: if exact { usize::MAX } else { page_end },
            ranked: if self.counts_groups_exactly() { page_end } else { usize::MAX },
            sorted: !plan.rules.sorts.is_empty(),
            page,
            exact,
        }
    }

    /// How the partitions rank at first, for a page that ends at `page_end`.
    fn plan_to(&self, page_end: usize, graph: QueryGraph, is_distinct: bool) -> RankPlan {
        let mut plan = plan::rank_plan(self.request, self.index.settings, graph, self.field_table(), page_end);
        if let Some(query) = &self.vector {
            plan.rules = RuleList::by_vector(self.index.settings, &plan::sort_by(self.request));
            plan.vector = Some(query.clone());
        }
        let has_threshold = self.request.ranking_score_threshold.is_some();
        let narrows = is_distinct || has_threshold;
        if narrows && (self.request.page.is_exact() || (has_threshold && !plan.rules.sorts.is_empty())) {
            plan.wanted = usize::MAX;
        } else if is_distinct && (has_threshold || self.vector.is_some()) {
            plan.wanted = page_end.saturating_mul(DISTINCT_SURPLUS);
        }
        // A document below the threshold takes no group.
        plan.one_per_group = is_distinct && !has_threshold && self.vector.is_none() && !self.counts_groups_exactly();
        plan.whole_buckets = is_distinct && !plan.rules.rules.is_empty();
        plan
    }

    /// Whether facets are counted over one document of every distinct group. Behind the page that is the one with the least
    /// number, as the interface has it, so that partitions tell of all documents.
    fn counts_groups_exactly(&self) -> bool {
        let request = self.request;
        let is_distinct = plan::distinct_field(request, self.index.settings).is_some();
        let has_threshold = request.ranking_score_threshold.is_some();
        is_distinct && !has_threshold && self.vector.is_none() && request.page.is_exact() && request.facets.is_some()
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
