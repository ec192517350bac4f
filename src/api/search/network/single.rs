//! A search of one index that may involve other instances: to the client it looks like any search.

use std::collections::BTreeMap;
use std::time::Duration;

use shards::runtime::RuntimePace;
use shards::search::federated::FederatedFacets;
use shards::search::{FacetAnswer, PageRequest, SearchAnswer, SearchRequest};

use super::{Found, Replicas, Routed, gather, instances, takes_part};
use crate::api::error::ApiError;
use crate::api::router::Call;
use crate::api::search::envelope::Envelope;
use crate::api::search::federated::all_metadata;
use crate::api::search::one::{OneSearch, wants_metadata};
use crate::api::search::params::SearchParams;
use crate::api::search::params::many::{FederationParams, MergeFacetsParams, QueryParams};
use crate::api::search::{personalize, semantic};
use crate::api::uuids;
use crate::app::App;
use crate::control::ControlState;

/// What the errors of a query begin with, inside a list of queries of which this is the only one.
const PREFIX: &str = "Inside `.queries[0]`: ";

/// A search by its client's `useNetwork`.
pub(in crate::api::search) enum Search {
    /// Of what this instance has.
    Here(Box<OneSearch>),
    /// Of what all instances have.
    Everywhere(Box<NetworkSearch>),
}

/// A search of an index over the network.
pub(in crate::api::search) struct NetworkSearch {
    uid: String,
    routed: Vec<Routed>,
    federation: FederationParams,
    /// As the client asked.
    request: SearchRequest,
    user_context: Option<String>,
}

impl Search {
    /// The search of index `uid` with `params`.
    ///
    /// # Errors
    /// As [`OneSearch::new`].
    pub(in crate::api::search) fn new(
        call: &Call<App>,
        state: &ControlState,
        uid: &str,
        params: SearchParams,
    ) -> Result<Self, ApiError> {
        if !takes_part(&state.routing.network, params.use_network, state.features.network) {
            return OneSearch::new(call, state, uid, params).map(|search| Self::Here(Box::new(search)));
        }
        let request = params.request.clone();
        let facets = request.facets.clone();
        let federation = FederationParams {
            page: request.page,
            merge_facets: facets.as_ref().map(|_| MergeFacetsParams::default()),
            facets_by_index: facets.map(|names| BTreeMap::from([(uid.to_owned(), Some(names))])).unwrap_or_default(),
            distinct: request.distinct.clone(),
            show_performance_details: params.show_performance_details,
            is_hybrid_share: semantic::words_weight(&params).is_some(),
        };
        if let Some(view) = state.index(uid) {
            semantic::query(&params, view, state.features)?;
        }
        let mut query = QueryParams { index_uid: uid.to_owned(), search: params, ..QueryParams::default() };
        // The page is put in order once, when all of it is here.
        let user_context = query.search.user_context.take();
        query.search.request.facets = None;
        query.search.request.distinct = None;
        query.search.request.page = PageRequest::default();
        let routed = instances(&mut Replicas::new(&state.routing, &*call.app.runtime), (0, query), true, true)?;
        let own_name = state.routing.network.own_name.as_deref();
        if routed.iter().any(|query| query.is_own(own_name)) && state.index(uid).is_none() {
            // As inside a list of queries, which is what it is to other instances.
            return Err(ApiError { status: 400, ..ApiError::index_not_found(uid) });
        }
        let search = NetworkSearch { uid: uid.to_owned(), routed, federation, request, user_context };
        Ok(Self::Everywhere(Box::new(search)))
    }

    /// The name of the index.
    pub(in crate::api::search) fn uid(&self) -> &str {
        match self {
            Self::Here(search) => search.uid(),
            Self::Everywhere(search) => &search.uid,
        }
    }

    /// Runs the search. Gives its answer with the hits in their usual order, which says that the time since `started` was spent
    /// on it.
    pub(in crate::api::search) async fn answer(
        &self,
        call: &Call<App>,
        started: Duration,
    ) -> Result<Envelope<'_>, ApiError> {
        match self {
            Self::Here(search) => search.answer(call, started).await,
            Self::Everywhere(search) => Box::pin(search.answer(call, started)).await,
        }
    }
}

impl NetworkSearch {
    /// What all instances have found. A search by words and meaning asks for words first: whether these are enough is for
    /// nobody to say who has only some of the documents.
    async fn found(&self, call: &Call<App>, state: &ControlState) -> Result<Found, ApiError> {
        let weight = self.routed.first().and_then(|routed| semantic::words_weight(&routed.query.search));
        if let Some(weight) = weight {
            let by_words = |routed: &Routed| {
                let mut routed = routed.clone();
                let search = &mut routed.query.search;
                (search.hybrid, search.vector, search.media) = (None, None, None);
                routed
            };
            let found = gather(call, state, self.routed.iter().map(by_words).collect(), &self.federation).await?;
            if found.is_enough_by_words(&self.federation, weight) {
                let mut found = found.merged(call, state, &self.federation).await;
                found.answer.semantic_hits = Some(0);
                return Ok(found);
            }
            found.free(call).await;
        }
        let found = gather(call, state, self.routed.clone(), &self.federation).await?;
        Ok(found.merged(call, state, &self.federation).await)
    }

    async fn answer(&self, call: &Call<App>, started: Duration) -> Result<Envelope<'_>, ApiError> {
        let state = call.app.control.state();
        let found = self.found(call, &state).await.map_err(alone)?;
        personalize::check(call, self.user_context.as_deref())?;
        let remote_errors = (!self.routed.is_empty()).then(|| found.errors_json());
        let asked = self.request.facets.as_ref().filter(|names| !names.is_empty());
        let facets = match found.answer.facets {
            _ if asked.is_none() => None,
            FederatedFacets::Merged(facets) => {
                let pace = RuntimePace(&*call.app.runtime);
                let distribution = facets.distribution_json_in_steps(&pace).await;
                let stats = facets.stats_json();
                facets.free(&pace).await;
                Some(FacetAnswer { distribution, stats })
            }
            _ => Some(FacetAnswer { distribution: b"{}".to_vec(), stats: b"{}".to_vec() }),
        };
        let offset = if let PageRequest::Window { offset, .. } = self.request.page { offset } else { 0 };
        let metadata = wants_metadata(call).then(|| all_metadata(call, &state, &self.routed));
        Ok(Envelope {
            request: &self.request,
            answer: SearchAnswer {
                hits: found.answer.hits,
                hit_count: found.answer.hit_count,
                total: found.answer.total,
                offset,
                facets,
                degraded: found.answer.degraded,
                semantic_hits: found.answer.semantic_hits,
                // It is the same for all instances.
                query_vector: found.answer.query_vectors.into_iter().next().map(|(_, vector)| vector),
                steps: Vec::new(),
            },
            took: call.app.runtime.unix_time().saturating_sub(started),
            request_uid: uuids::v7(&*call.app.runtime).to_string(),
            metadata: metadata.and_then(|all| all.into_iter().next()),
            shows_performance: self.federation.show_performance_details,
            remote_errors,
            personalization: None,
            user_context: self.user_context.as_deref(),
        })
    }
}

/// The error of the only query, told as if there were no list of queries. Its code is that of the list, as the interface has it.
fn alone(error: ApiError) -> ApiError {
    let message = error.message.strip_prefix(PREFIX).unwrap_or(&error.message).to_owned();
    ApiError { message, ..error }
}
