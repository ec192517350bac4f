//! Searches that involve other instances.
//!
//! [`route`] splits a query into one per instance or network shard. [`ask`] sends those for other instances and falls back to the
//! next replica if one fails. [`answer`] reads the responses, or [`share`] if they come from a Skerry instance. This instance's
//! own part runs as a federated search. [`words`] makes sure that all parts used the same words; then all parts are merged by the
//! scores that come with them.

mod answer;
mod ask;
mod body;
mod route;
pub(super) mod share;
mod single;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use shards::engine::IndexView;
use shards::runtime::{Checkpoint, RuntimePace};
use shards::search::federated::{
    Combination, FacetLimits, FederatedAnswer, FederatedQuery, FederatedRole, Part, Shares, combine, is_enough_by_words,
};

use self::ask::Ask;
pub(super) use self::route::{Replicas, Routed, instances, takes_part};
pub(super) use self::single::Search;
use self::words::{Answered, KnownQuery, ROUNDS_MAX, known_queries, take_unsettled};
use super::federated::{Plan, merge_facets};
use super::params::many::FederationParams;
use super::semantic;
use crate::api::error::ApiError;
use crate::api::router::Call;
use crate::app::App;
use crate::control::ControlState;

/// What a search over the network has found.
pub(super) struct Found {
    /// The merged list.
    pub(super) answer: FederatedAnswer,
    /// What each instance that did not answer said, by its name.
    pub(super) errors: BTreeMap<String, ApiError>,
}

impl Found {
    /// `remoteErrors` as it is shown.
    pub(super) fn errors_json(&self) -> Value {
        self.errors.iter().map(|(name, error)| (name.clone(), json!(error.object()))).collect()
    }
}

/// What the instances have found, before it is merged.
pub(super) struct Gathered {
    parts: Vec<Part>,
    errors: BTreeMap<String, ApiError>,
    /// Whether any query goes by meaning.
    is_semantic: bool,
}

/// Queries as this instance searches its own shares of them, with their indexes, by their places in the client's list.
type Planned = BTreeMap<usize, (FederatedQuery, Arc<IndexView>)>;

/// Has queries answered of which some are for other instances.
///
/// # Errors
/// Those of the queries for this instance; a remote that fails is named in the answer.
pub(super) async fn gather(
    call: &Call<App>,
    state: &ControlState,
    routed: Vec<Routed>,
    federation: &FederationParams,
) -> Result<Gathered, ApiError> {
    let own_name = state.routing.network.own_name.as_deref();
    let is_semantic = routed.iter().any(|query| semantic::is_semantic(&query.query.search));
    let indexes: BTreeSet<String> = routed.iter().map(|query| query.query.index_uid.clone()).collect();
    let indexes: Vec<&str> = indexes.iter().map(String::as_str).collect();
    let ask = Ask::new(call, state, federation);
    let (mut answered, mut errors) = (Vec::new(), BTreeMap::new());
    let (mut asked, mut planned, mut known) = (routed, Planned::new(), Vec::new());
    for round in 1..=ROUNDS_MAX {
        let (own, others): (Vec<Routed>, Vec<Routed>) = asked.into_iter().partition(|query| query.is_own(own_name));
        let mut plan = Plan::new(call, state, &own, federation, &indexes)?;
        plan.request.role = FederatedRole::Part;
        plan.request.instance = Some(own_name.map(Into::into));
        for (given, query, view) in plan.shares() {
            planned.entry(given).or_insert_with(|| (query.clone(), view.clone()));
        }
        // The others first, so that they search while this core does.
        let (elsewhere, here) = futures_util::future::join(ask.all(others), search_here(call, plan, own)).await;
        answered.extend(here?);
        answered.extend(elsewhere.0);
        errors.extend(elsewhere.1);
        known = known_queries(&answered);
        let unsettled = if round < ROUNDS_MAX { take_unsettled(&mut answered, &known) } else { Vec::new() };
        asked = Vec::new();
        for Answered { queries, part } in unsettled {
            asked.extend(queries);
            part.free(&RuntimePace(&*call.app.runtime)).await;
        }
        if asked.is_empty() {
            break;
        }
    }
    let parts = scored_together(call, state, federation, (answered, known, planned), &indexes).await;
    Ok(Gathered { parts, errors, is_semantic })
}

/// What instances have found, scored by what all of them know.
async fn scored_together(
    call: &Call<App>,
    state: &ControlState,
    federation: &FederationParams,
    (answered, known, mut planned): (Vec<Answered>, Vec<KnownQuery>, Planned),
    indexes: &[&str],
) -> Vec<Part> {
    let queries = match answered.len() {
        0 | 1 if answered.iter().all(|answer| answer.queries.len() < 2) => Vec::new(),
        _ => known,
    };
    let asked: Vec<Option<(FederatedQuery, Arc<IndexView>)>> = queries
        .iter()
        .map(|(places, _)| {
            let (at, number) = places.first()?;
            let query = &answered[*at].queries[*number];
            // All shares are scored alike, and to plan one takes a while.
            planned.remove(&query.given).or_else(|| {
                let mut plan = Plan::new(call, state, std::slice::from_ref(query), federation, indexes).ok()?;
                Some((plan.request.queries.pop()?, plan.views.pop()?))
            })
        })
        .collect();
    let mut parts: Vec<Part> = answered.into_iter().map(|answer| answer.part).collect();
    let mut checkpoint = Checkpoint::default();
    for ((places, words), query) in queries.into_iter().zip(asked) {
        let Some((query, view)) = query else { continue };
        let shares = Shares { query, is_hybrid: federation.is_hybrid_share, words, places };
        let (scored, changed) = call.app.reader.score_together(view, shares, parts).await;
        parts = scored;
        for rescored in changed {
            let hit = &mut parts[rescored.place.0].hits[rescored.place.1];
            if let Some(json) = answer::with_score(&hit.json, &rescored) {
                hit.json = json;
            }
            checkpoint.look(&*call.app.runtime).await;
        }
    }
    parts
}

/// What this instance has for the queries of a plan.
async fn search_here(call: &Call<App>, plan: Plan, queries: Vec<Routed>) -> Result<Option<Answered>, ApiError> {
    if queries.is_empty() {
        return Ok(None);
    }
    match call.app.reader.federated_search(plan.views.clone(), plan.request).await {
        Ok(found) => Ok(Some(Answered { part: plan.places.part(found), queries })),
        Err(failed) => Err(plan.places.error(failed)),
    }
}

impl Gathered {
    /// Whether words alone answer a search of which they have this weight.
    pub(super) fn is_enough_by_words(&self, federation: &FederationParams, weight: f64) -> bool {
        is_enough_by_words(&self.parts, federation.page, weight)
    }

    /// Frees all of it, where it is of no use.
    pub(super) async fn free(self, call: &Call<App>) {
        for part in self.parts {
            part.free(&RuntimePace(&*call.app.runtime)).await;
        }
    }

    /// All parts as one list.
    pub(super) async fn merged(self, call: &Call<App>, state: &ControlState, federation: &FederationParams) -> Found {
        let combination = Combination {
            page: federation.page,
            is_distinct: federation.distinct.is_some(),
            merge_facets: merge_facets(state, federation),
            limits: limits(state, federation),
            counts_semantic: self.is_semantic,
        };
        let answer = combine(self.parts, &combination, &RuntimePace(&*call.app.runtime)).await;
        Found { answer, errors: self.errors }
    }
}

/// How this instance shows the facets of the indexes asked for, as far as it has them.
fn limits(state: &ControlState, federation: &FederationParams) -> BTreeMap<String, FacetLimits> {
    let of_index = |(uid, names): (&String, &Option<Vec<String>>)| {
        let faceting = &state.index(uid)?.settings.faceting;
        let orders = &faceting.sort_facet_values_by;
        // Only a facet that was named itself has an order of its own.
        let named = names.iter().flatten().filter_map(|name| Some((name.clone(), *orders.get(name)?)));
        let usual = faceting.order("*");
        let limits = FacetLimits { orders: named.collect(), usual, values_max: faceting.max_values_per_facet };
        Some((uid.clone(), limits))
    };
    federation.facets_by_index.iter().filter_map(of_index).collect()
}
