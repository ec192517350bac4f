//! Scores over the documents of several instances.
//!
//! The scale of a rule's score depends on the paths through the query that documents of the same bucket use
//! ([`crate::rank::score`]), on whichever instance they are. An instance scores by its own documents; whoever merges recomputes
//! the scores from what all instances report.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::merge::score_values;
use super::search::HITS_PER_LOOK;
use super::{FederatedQuery, Part};
use crate::ids::DocId;
use crate::query::{FieldTable, QueryWords};
use crate::rank::plan::Costs;
use crate::rank::score::Scorer;
use crate::rank::score_facts::ScoreFacts;
use crate::rank::{RankPlan, RankedDoc, SortValue};
use crate::runtime::pause_at;
use crate::search::gather::SearchedIndex;
use crate::search::part::Pacer;
use crate::search::plan::{needs_counts, rank_plan};
use crate::search::request::SearchRequest;

/// By what a hit was ranked, so that it can be scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HitRank {
    /// The place of its query in the request.
    pub(super) query: usize,
    pub(super) costs: Costs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sorts: Vec<SortValue>,
    /// Whether time ran out before it was ranked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) skipped: bool,
}

/// The weight of the list by words of a share of a search by words and meaning; `None` for any other.
pub(super) fn words_share(request: &SearchRequest, is_hybrid: bool) -> Option<f32> {
    let ratio = request.semantic.as_ref().filter(|_| is_hybrid)?.ratio;
    (ratio < 1.0).then_some(1.0 - ratio)
}

/// A hit that has another score among the documents of all instances than among those of its own.
pub struct Rescored {
    /// The part it is in, and its place there.
    pub place: (usize, usize),
    /// Its score times the weight of its query.
    pub weighted: f64,
    /// Its score, where it is shown.
    pub score: Option<f64>,
    /// The steps of the score, where they are shown.
    pub details: Option<Map<String, Value>>,
}

/// The shares of one query that several instances answered.
#[derive(Clone, Debug)]
pub struct Shares {
    /// The query, as any of them was asked.
    pub query: FederatedQuery,
    /// Whether it is one by words and meaning, whose two lists merge by their weights.
    pub is_hybrid: bool,
    /// What all instances together know of its words.
    pub words: QueryWords,
    /// For each share its part, and its place among the queries of that.
    pub places: Vec<(usize, usize)>,
}

/// Scores the hits of a query by what all instances know. The parts take over the new scores; what their hits show is told.
pub async fn score_together(
    index: &SearchedIndex<'_>,
    shares: &Shares,
    parts: &mut [Part],
    pacer: &dyn Pacer,
) -> Vec<Rescored> {
    let Shares { query, words, places, .. } = shares;
    let request = &query.request;
    let mut graph = index.planner.sketch_aside(request, index.settings, index.fields, pacer).await;
    // They must be words of the same query. What they stand for has no part in the scale of a score.
    if words.facts(&graph).is_none() {
        return Vec::new();
    }
    if needs_counts(request, &graph) {
        let Some(counts) = words.counts(graph.term_count) else { return Vec::new() };
        graph.rank_by_frequency(counts);
    }
    let fields = FieldTable::new(index.fields, index.settings, request.attributes_to_search_on.as_deref());
    let plan = rank_plan(request, index.settings, graph, fields, 0);
    let (mut facts, mut fits) = (ScoreFacts::default(), true);
    for (part, number) in places {
        let Some(own) = parts[*part].scores.get_mut(*number).map(std::mem::take) else {
            fits = false;
            continue;
        };
        fits = fits && own.fits(&plan, pacer).await;
        facts.add(own, pacer).await;
    }
    let rescored = match fits {
        true => rescored(index, shares, parts, (&plan, &facts), pacer).await,
        false => Vec::new(),
    };
    facts.free(pacer).await;
    rescored
}

/// Scores the hits of the shares by what all of them follow from.
async fn rescored(
    index: &SearchedIndex<'_>,
    Shares { query, is_hybrid, places, .. }: &Shares,
    parts: &mut [Part],
    (plan, facts): (&RankPlan, &ScoreFacts),
    pacer: &dyn Pacer,
) -> Vec<Rescored> {
    let request = &query.request;
    let share = words_share(request, *is_hybrid).map_or(1.0, f64::from);
    let scorer = Scorer::new(plan, facts);
    let hidden = |field: &str| !index.settings.displayed(field);
    let graph_rules = plan.rules.rules.iter().filter(|rule| rule.is_graph()).count();
    let mut rescored = Vec::new();
    for (part, number) in places {
        for (at, hit) in parts[*part].hits.iter_mut().enumerate() {
            pause_at(at, HITS_PER_LOOK, pacer).await;
            let Some(rank) = hit.rank.as_ref().filter(|rank| rank.query == *number) else { continue };
            let is_whole = rank.costs.len() == graph_rules && rank.sorts.len() == plan.rules.sorts.len();
            if rank.skipped || !is_whole {
                continue;
            }
            let doc = RankedDoc {
                doc: DocId(0),
                costs: Costs::from_slice(&rank.costs),
                sorts: rank.sorts.clone(),
                skipped: false,
            };
            let score = scorer.score(&doc, pacer).await;
            let weighted = score.global() * query.weight;
            // The steps may be others even where their sum is the same.
            if weighted.total_cmp(&hit.score).is_ne() || request.show_ranking_score_details {
                (hit.score, hit.values) = (weighted, score_values(plan, &doc, &score, query.weight * share));
                let details = match request.show_ranking_score_details {
                    true => Some(scorer.details(&doc, &hidden, pacer).await),
                    false => None,
                };
                let score = request.show_ranking_score.then(|| score.global());
                rescored.push(Rescored { place: (*part, at), weighted, score, details });
            }
        }
    }
    rescored
}
