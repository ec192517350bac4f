//! Federated search: several queries whose results become one list (`POST /multi-search` with `federation`).

mod query_checks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shards::engine::IndexView;
use shards::runtime::RuntimePace;
use shards::search::federated::{
    FederatedAnswer, FederatedError, FederatedFacets, FederatedIndex, FederatedQuery, FederatedRequest, FederatedRole,
    MergeFacets, Part, rule_kinds,
};
use shards::search::{PageRequest, SearchRequest, check};
use shards::settings::{FacetOrder, Faceting};
use storage_engine::vector::Pace;

use self::query_checks::{FacetOrders, Rules, check_facet_names, check_query, unused_index};
use super::enter;
use super::envelope::{ROOM_BYTES, member, write_page};
use super::long_body::put_in_front;
use super::multi::inside;
use super::network::share::{self, Asker, GivenWords};
use super::network::{self, Routed};
use super::one::{check_network, metadata, pins, read_ahead, read_filter, read_sort, wants_metadata};
use super::params::many::{FederationParams, QueryParams};
use super::{hydrate, semantic};
use crate::api::error::ApiError;
use crate::api::router::{Answer, Call};
use crate::api::uuids;
use crate::app::App;
use crate::control::ControlState;
use crate::http::Response;
use crate::network::headers::{ASKED_SHARDS, HIT_LINES, HYBRID_SHARE, percent_decode};
use crate::network::routing::Routing;

/// By this header an instance tells another that the request is its share of a larger one.
pub(super) const PROXY_HEADER: &str = "Meili-Proxy-Search";

/// Answers a federated search.
///
/// # Errors
/// Those of [`check_query`], query by query; then, index by index, those of the searches.
pub(super) async fn answer(
    call: &Call<App>,
    mut queries: Vec<QueryParams>,
    mut federation: FederationParams,
    asker: Asker,
) -> Answer {
    let started = call.app.runtime.unix_time();
    for query in &mut queries {
        read_ahead(call, &query.index_uid, &mut query.search).await;
    }
    let state = call.app.control.state();
    let is_instance = matches!(asker, Asker::Instance(_));
    let routed = route(call, &state, queries, &mut federation, asker)?;
    let shows_vectors = routed.iter().any(|routed| routed.query.search.request.retrieve_vectors);
    let metadata = wants_metadata(call).then(|| all_metadata(call, &state, &routed));
    let place = enter(call).await?;
    let (answer, remote_errors) = if routed.iter().all(|query| query.candidates == [None]) {
        match alone(call, &state, routed, &federation, is_instance).await? {
            Answered::List(answer) => (answer, None),
            Answered::Share(part) => {
                drop(place);
                if part.degraded {
                    call.app.counting.degraded_search();
                }
                let body = share::write(&*call.app.runtime, part).await;
                return Ok(Response::with_type(200, share::CONTENT_TYPE, body));
            }
        }
    } else {
        let found = network::gather(call, &state, routed, &federation).await?;
        let found = found.merged(call, &state, &federation).await;
        let errors = found.errors_json();
        (found.answer, Some(errors))
    };
    drop(place);
    if answer.degraded {
        call.app.counting.degraded_search();
    }
    let envelope = Envelope {
        page: federation.page,
        answer,
        took: call.app.runtime.unix_time().saturating_sub(started),
        request_uid: uuids::v7(&*call.app.runtime).to_string(),
        metadata,
        shows_vectors,
        shows_performance: federation.show_performance_details,
        remote_errors,
    };
    Ok(Response::json(200, envelope.write(&RuntimePace(&*call.app.runtime)).await))
}

/// Checks the queries, and finds for each the instances that may answer it. Where another instance asks for shares of a search,
/// the queries are told which, and the federation whether that is by words and meaning. That all documents are here is checked
/// for whoever asks: an instance that cannot prove to be one must not be given a part for the whole.
///
/// # Errors
/// Those of [`check_query`], query by query, after those of the headers.
fn route(
    call: &Call<App>,
    state: &ControlState,
    queries: Vec<QueryParams>,
    federation: &mut FederationParams,
    asker: Asker,
) -> Result<Vec<Routed>, ApiError> {
    if !state.features.network && call.request.headers.get_str(PROXY_HEADER).is_some() {
        return Err(ApiError::feature_not_enabled("Passing the header `Meili-Proxy-Search`", "network"));
    }
    let asked_shards = call.request.headers.get_str(ASKED_SHARDS);
    if let Some(asked) = asked_shards {
        state.routing.check(asked)?;
    }
    if let Asker::Instance(_) = asker {
        federation.is_hybrid_share = asked_shards.is_some() && call.request.headers.get(HYBRID_SHARE).is_some();
    }
    for (position, query) in queries.iter().enumerate() {
        check_query(query, federation, state.features).map_err(|error| inside(position, error))?;
    }
    let mut routed = Vec::with_capacity(queries.len());
    let mut replicas = network::Replicas::new(&state.routing, &*call.app.runtime);
    for (position, query) in queries.into_iter().enumerate() {
        let instances = network::instances(&mut replicas, (position, query), false, state.features.network);
        routed.extend(instances.map_err(|error| inside(position, error))?);
    }
    if let (Some(asked), Asker::Instance(words)) = (asked_shards, asker) {
        tell_shares(&mut routed, asked, words);
    }
    Ok(routed)
}

/// The answer to queries that are all for this instance.
enum Answered {
    /// As the interface has it.
    List(FederatedAnswer),
    /// As another instance of this server takes it.
    Share(Part),
}

/// Answers queries that are all for this instance. `is_instance` says that another instance asks, and has proven it.
async fn alone(
    call: &Call<App>,
    state: &ControlState,
    queries: Vec<Routed>,
    federation: &FederationParams,
    is_instance: bool,
) -> Result<Answered, ApiError> {
    let mut plan = Plan::new(call, state, &queries, federation, &[])?;
    let names = plan.request.indexes.iter().map(|index| index.uid.clone());
    let views: Vec<_> = names.zip(plan.views.iter().cloned()).collect();
    let is_part = call.request.headers.get(PROXY_HEADER) == Some(b"true");
    if is_part {
        let name = call.request.headers.get(HIT_LINES).filter(|_| is_instance);
        plan.request.instance = name.and_then(percent_decode).map(|name| Some(name.into()));
        let is_apart = plan.request.instance.is_some();
        plan.request.role = if is_apart { FederatedRole::Part } else { FederatedRole::ForInstance };
    }
    let is_share = plan.request.role == FederatedRole::Part;
    let found = call.app.reader.federated_search(plan.views.clone(), plan.request).await;
    let mut answer = found.map_err(|failed| plan.places.error(failed))?;
    if is_share {
        return Ok(Answered::Share(plan.places.part(answer)));
    }
    // What other indexes have is shown by the grant of whoever asks, which is not that of the asking instance's client.
    if !is_part {
        answer.hits = hydrate::federated(call, state, &views, answer.hits).await?;
    }
    Ok(Answered::List(answer))
}

/// Says of queries which shares of a search they are, where another instance asks for all of them: of which network shards,
/// and by which words.
fn tell_shares(queries: &mut [Routed], asked: &str, words: GivenWords) {
    let shards: Vec<Option<String>> = Routing::asked(asked).collect();
    if shards.len() != queries.len() {
        return;
    }
    let words = words.into_iter().chain(std::iter::repeat(None));
    for ((query, shard), words) in queries.iter_mut().zip(shards).zip(words) {
        (query.shard, query.words) = (shard, words);
    }
}

/// What names the queries to whoever evaluates searches. Where instances are shown, the key of an index is that of remotes
/// alone, as the interface has it.
pub(super) fn all_metadata(call: &Call<App>, state: &ControlState, queries: &[Routed]) -> Vec<Value> {
    let own_name = state.routing.network.own_name.as_deref();
    let shows_instances = queries.iter().any(|query| query.candidates != [None]);
    let of_query = |query: &Routed| {
        let view = state.index(&query.query.index_uid);
        let is_own = query.is_own(own_name);
        if !shows_instances {
            return Some(metadata(call, &query.query.index_uid, view?.primary_key.as_deref()));
        }
        let primary_key = view.filter(|_| !is_own).and_then(|view| view.primary_key.as_deref());
        let mut object = metadata(call, &query.query.index_uid, primary_key);
        object["remote"] = match query.candidates.first() {
            Some(Some(name)) => name.as_str().into(),
            _ => own_name.into(),
        };
        Some(object)
    };
    queries.iter().filter_map(of_query).collect()
}

/// A federated search, checked.
pub(super) struct Plan {
    pub(super) request: FederatedRequest,
    /// The indexes, in the order of the request.
    pub(super) views: Vec<Arc<IndexView>>,
    /// What its queries were made of.
    pub(super) places: Places,
}

/// For each query of a federated request the place in the list that it was made of, and that in the client's list.
#[derive(Default)]
pub(super) struct Places(Vec<(usize, usize)>);

impl Places {
    /// Why the request failed, as the client is told: inside its query at fault, if one is.
    pub(super) fn error(&self, failed: FederatedError) -> ApiError {
        match failed.query.and_then(|query| self.0.get(query)) {
            Some((_, position)) => inside(*position, failed.error.into()),
            None => failed.error.into(),
        }
    }

    /// What was found in the role of a part, with the queries in the order of the list that the request was made of.
    pub(super) fn part(&self, found: FederatedAnswer) -> Part {
        let places: Vec<usize> = self.0.iter().map(|(place, _)| *place).collect();
        found.into_part().in_order(&places)
    }
}

impl Plan {
    /// The plan of queries for this instance. Other instances search `asked_elsewhere`.
    ///
    /// # Errors
    /// Those of the interface, index by index.
    pub(super) fn new(
        call: &Call<App>,
        state: &ControlState,
        queries: &[Routed],
        federation: &FederationParams,
        asked_elsewhere: &[&str],
    ) -> Result<Self, ApiError> {
        let mut by_index: BTreeMap<&str, Vec<(usize, &Routed)>> = BTreeMap::new();
        for query in queries.iter().enumerate() {
            by_index.entry(&query.1.query.index_uid).or_default().push(query);
        }
        let mut plan = Self { request: request(state, federation), views: Vec::new(), places: Places::default() };
        let (mut orders, mut rules) = (FacetOrders::default(), Rules::default());
        let is_merged = federation.merge_facets.is_some();
        for (uid, asked) in &by_index {
            let missing = || inside(asked[0].1.given, ApiError::index_not_found(uid));
            let view = state.index(uid).ok_or_else(missing)?;
            let facets = federation.facets_by_index.get(*uid).cloned().flatten();
            plan.request.indexes.push(FederatedIndex { uid: (*uid).into(), facets: facets.clone() });
            plan.views.push(view.clone());
            // Orders come before the queries of their index, the facets themselves after them.
            if let Some(names) = facets.as_deref().filter(|_| is_merged) {
                orders.check(uid, names, view)?;
            }
            for (place, routed) in asked {
                let query = plan.query(call, state, routed, &mut rules);
                plan.request.queries.push(query.map_err(|error| inside(routed.given, error))?);
                plan.places.0.push((*place, routed.given));
            }
            if let Some(names) = &facets {
                check_facet_names(names, view)?;
            }
        }
        let is_used = |uid: &str| by_index.contains_key(uid) || asked_elsewhere.contains(&uid);
        let unused = federation.facets_by_index.iter().filter(|(uid, _)| !is_used(uid));
        for (uid, names) in unused {
            let (view, names) = (unused_index(call, state, uid)?, names.as_deref().unwrap_or_default());
            if is_merged {
                orders.check(uid, names, view)?;
            }
            check_facet_names(names, view)?;
        }
        Ok(plan)
    }

    /// The queries that are shares of others, each with the place of that in the client's list and with its index.
    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, &FederatedQuery, &Arc<IndexView>)> {
        let queries = self.request.queries.iter().zip(&self.places.0);
        let shares = queries.filter(|(query, _)| query.request.share.is_some());
        shares.map(|(query, (_, given))| (*given, query, &self.views[query.index]))
    }

    /// A query of the index added last.
    fn query(
        &self,
        call: &Call<App>,
        state: &ControlState,
        routed: &Routed,
        rules: &mut Rules,
    ) -> Result<FederatedQuery, ApiError> {
        let (params, position) = (&routed.query, routed.given);
        let (index, view) = (self.views.len() - 1, &self.views[self.views.len() - 1]);
        check_network(&params.search, call.app.control.state().features)?;
        params.search.check_queries()?;
        let mut request = params.search.request.clone();
        request.semantic = semantic::query(&params.search, view, state.features)?;
        read_sort(&params.search, &mut request)?;
        rules.check(position, rule_kinds(&request, &view.settings))?;
        read_filter(call, &params.index_uid, &params.search, &mut request)?;
        let distinct = self.request.distinct.clone().or_else(|| request.distinct.clone());
        check(&SearchRequest { distinct, ..request.clone() }, &view.settings, &view.fields)?;
        request.pins = pins(call, state, &params.index_uid, &request);
        request.share = routed.share();
        let options = params.options.clone().unwrap_or_default();
        let position = options.query_position.unwrap_or(position as u64);
        Ok(FederatedQuery { index, request, weight: options.weight, position })
    }
}

/// How the facets of all indexes are put together: in the orders of those indexes that this instance has, whoever searches them.
pub(super) fn merge_facets(state: &ControlState, federation: &FederationParams) -> Option<MergeFacets> {
    let merge = federation.merge_facets?;
    let asked = federation.facets_by_index.iter();
    let asked = asked.filter_map(|(uid, names)| Some((names.as_deref()?, &state.index(uid)?.settings.faceting)));
    Some(MergeFacets { values_max: merge.values_max, orders: facet_orders(asked) })
}

/// The order of each facet that is named: that of the first index.
fn facet_orders<'n>(asked: impl Iterator<Item = (&'n [String], &'n Faceting)>) -> BTreeMap<String, FacetOrder> {
    let mut orders = BTreeMap::new();
    for (names, faceting) in asked {
        for name in names {
            orders.entry(name.clone()).or_insert_with(|| faceting.order(name));
        }
    }
    orders
}

/// The request before its queries.
fn request(state: &ControlState, federation: &FederationParams) -> FederatedRequest {
    FederatedRequest {
        page: federation.page,
        distinct: federation.distinct.clone(),
        is_hybrid_share: federation.is_hybrid_share,
        merge_facets: merge_facets(state, federation),
        ..FederatedRequest::default()
    }
}

/// Everything that stands around the hits.
struct Envelope {
    page: PageRequest,
    answer: FederatedAnswer,
    took: Duration,
    request_uid: String,
    metadata: Option<Vec<Value>>,
    /// Whether any query asks for vectors: those searched with are shown then, even if there are none.
    shows_vectors: bool,
    shows_performance: bool,
    /// Which instances did not answer, where others were asked.
    remote_errors: Option<Value>,
}

impl Envelope {
    async fn write(mut self, pace: &dyn Pace) -> Vec<u8> {
        let mut facets = Vec::new();
        write_facets(&mut facets, std::mem::take(&mut self.answer.facets), pace).await;
        let hits = std::mem::take(&mut self.answer.hits);
        let mut out = put_in_front(hits, b"{\"hits\":", facets.len() + ROOM_BYTES, pace).await;
        let answer = &self.answer;
        member(&mut out, "processingTimeMs", &(self.took.as_millis() as u64));
        let offset = if let PageRequest::Window { offset, .. } = self.page { offset } else { 0 };
        write_page(&mut out, self.page, offset, answer.total);
        out.extend_from_slice(&facets);
        if let Some(count) = answer.semantic_hits {
            member(&mut out, "semanticHitCount", &count);
        }
        if self.shows_vectors {
            let vectors: BTreeMap<_, _> = answer.query_vectors.iter().map(|(query, vector)| (query, vector)).collect();
            member(&mut out, "queryVectors", &vectors);
        }
        if let Some(metadata) = self.metadata {
            member(&mut out, "metadata", &Value::from(metadata));
        }
        if self.shows_performance {
            member(&mut out, "performanceDetails", &json!({"search": format!("{:.2?}", self.took)}));
        }
        member(&mut out, "requestUid", &self.request_uid);
        if let Some(errors) = &self.remote_errors {
            member(&mut out, "remoteErrors", errors);
        }
        out.push(b'}');
        out
    }
}

async fn write_facets(out: &mut Vec<u8>, facets: FederatedFacets, pace: &dyn Pace) {
    match facets {
        FederatedFacets::None => {}
        FederatedFacets::ByIndex(indexes) => {
            out.extend_from_slice(b",\"facetsByIndex\":{");
            for (at, (uid, facets)) in indexes.into_iter().enumerate() {
                let comma = if at > 0 { "," } else { "" };
                out.extend_from_slice(format!("{comma}{}:{{\"distribution\":", json!(uid)).as_bytes());
                out.extend_from_slice(&facets.distribution_json_in_steps(pace).await);
                out.extend_from_slice(b",\"stats\":");
                out.extend_from_slice(&facets.stats_json());
                out.push(b'}');
                facets.free(pace).await;
            }
            out.push(b'}');
        }
        FederatedFacets::Merged(facets) => {
            out.extend_from_slice(b",\"facetDistribution\":");
            out.extend_from_slice(&facets.distribution_json_in_steps(pace).await);
            out.extend_from_slice(b",\"facetStats\":");
            out.extend_from_slice(&facets.stats_json());
            facets.free(pace).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use shards::facets::distribution::{Distribution, FacetValues};
    use storage_engine::vector::Unpaced;

    use super::*;

    #[test]
    fn named_facets_have_the_order_of_the_first_index() {
        let by = |orders: &[(&str, FacetOrder)]| Faceting {
            sort_facet_values_by: orders.iter().map(|(name, order)| ((*name).to_owned(), *order)).collect(),
            ..Faceting::default()
        };
        let (first, second) = (by(&[("*", FacetOrder::Count), ("a", FacetOrder::Alpha)]), by(&[]));
        let names = ["a", "b", "c"].map(str::to_owned);
        let orders = facet_orders([(&names[..2], &first), (&names[1..], &second)].into_iter());
        let expected = [("a", FacetOrder::Alpha), ("b", FacetOrder::Count), ("c", FacetOrder::Alpha)];
        assert_eq!(orders, expected.map(|(name, order)| (name.to_owned(), order)).into());
    }

    /// What is spliced must be valid JSON whatever is in it.
    #[test]
    fn an_envelope_is_an_object() {
        let facet = FacetValues { name: "g\"".into(), values: vec![("a\\".into(), 2)], stats: Some((1.0, 2.0)) };
        let distribution = Distribution { facets: vec![facet] };
        let written = |facets, page| {
            let hits = b"[{}]".to_vec();
            let answer = FederatedAnswer { hits, hit_count: 1, total: 5, facets, ..FederatedAnswer::default() };
            let envelope = Envelope {
                page,
                answer,
                took: Duration::from_millis(3),
                request_uid: "u".into(),
                metadata: Some(vec![json!({"indexUid": "a"})]),
                shows_vectors: true,
                shows_performance: false,
                remote_errors: None,
            };
            serde_json::from_slice::<Value>(&block_on(envelope.write(&Unpaced))).unwrap()
        };
        let window = PageRequest::Window { offset: 9000, limit: 1 };
        let by_index = vec![("a".into(), distribution.clone()), ("b".into(), Distribution::default())];
        let body = written(FederatedFacets::ByIndex(by_index), window);
        let of_a = json!({"distribution": {"g\"": {"a\\": 2}}, "stats": {"g\"": {"min": 1.0, "max": 2.0}}});
        assert_eq!(body["facetsByIndex"], json!({"a": of_a, "b": {"distribution": {}, "stats": {}}}));
        assert_eq!((&body["offset"], &body["estimatedTotalHits"]), (&json!(9000), &json!(5)));
        let body = written(FederatedFacets::Merged(distribution), PageRequest::Numbered { page: 1, hits_per_page: 2 });
        assert_eq!((&body["facetDistribution"], &body["totalPages"]), (&json!({"g\"": {"a\\": 2}}), &json!(3)));
        assert_eq!((&body["metadata"], &body["queryVectors"]), (&json!([{"indexUid": "a"}]), &json!({})));
        assert!(written(FederatedFacets::None, window).get("facetsByIndex").is_none());
    }
}
