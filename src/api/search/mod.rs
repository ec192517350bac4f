//! Searches of one index: from the request to the answer's envelope. Finding, ranking and formatting is the engine's.

pub mod params;
pub mod room;

use std::time::Duration;

use serde_json::{Value, json};
use shards::engine::IndexView;
use shards::facets::{parse_filter, parse_sort};
use shards::search::{PageRequest, SearchAnswer, SearchRequest};

use self::params::SearchParams;
use super::documents::filter_features;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use super::uuids;
use crate::app::App;
use crate::auth::tenant::join_filters;
use crate::http::Response;
use crate::routes;

/// The header that asks for [`metadata`].
const METADATA_HEADER: &str = "meili-include-metadata";

/// The routes of this folder.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/indexes/{uid}/search" Search => get;
        Post "/indexes/{uid}/search" Search => post;
    }
}

async fn get(call: Call<App>) -> Answer {
    let params = SearchParams::from_query(&call.query())?;
    search(call, params).await
}

async fn post(call: Call<App>) -> Answer {
    let params = SearchParams::from_body(&call.json()?)?;
    search(call, params).await
}

async fn search(call: Call<App>, mut params: SearchParams) -> Answer {
    let started = call.app.runtime.unix_time();
    let uid = call.index_uid()?;
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?;
    check_unbuilt(&params, view)?;
    let filter = join_filters(params.filter.take(), call.grant.tenant_filter(uid));
    params.request.filter = match &filter {
        Some(filter) => parse_filter(filter, ErrorCode::InvalidSearchFilter.name())?,
        None => None,
    };
    if let Some(filter) = &params.request.filter {
        filter.check_features(&filter_features(&call))?;
    }
    params.request.sort = match &params.sort {
        Some(criteria) => parse_sort(&criteria.clone().into(), ErrorCode::InvalidSearchSort.name())?,
        None => Vec::new(),
    };
    let request = params.request;
    let (runtime, room) = (&call.app.runtime, &call.app.search_room);
    let wait_max = Duration::from_secs(call.app.options.drop_search_after_seconds);
    let place = room.enter(|| runtime.random_u64(), runtime.sleep(wait_max)).await?;
    let answer = call.app.reader.search(view.clone(), request.clone()).await?;
    drop(place);
    if params.user_context.is_some() {
        let message = "Personalised searches need a reranking service, which this server was started without.";
        return Err(ApiError::new(ErrorCode::FeatureNotEnabled, message));
    }
    let envelope = Envelope {
        request: &request,
        answer,
        took: call.app.runtime.unix_time().saturating_sub(started),
        request_uid: uuids::v7(&*call.app.runtime).to_string(),
        metadata: wants_metadata(&call).then(|| metadata(&call, uid, view)),
        shows_performance: params.show_performance_details,
    };
    Ok(Response::json(200, envelope.write()))
}

/// What the interface has and this server does not do yet is refused, never passed over.
fn check_unbuilt(params: &SearchParams, view: &IndexView) -> Result<(), ApiError> {
    if params.use_network.is_some() {
        return Err(ApiError::feature_not_enabled("Passing `useNetwork`", "network"));
    }
    if params.media.is_some() {
        return Err(ApiError::feature_not_enabled("Passing `media`", "multimodal"));
    }
    let Some(hybrid) = &params.hybrid else { return Ok(()) };
    if !view.settings.embedders.contains_key(&hybrid.embedder) {
        let message = format!("The index has no embedder `{}`.", hybrid.embedder);
        return Err(ApiError::new(ErrorCode::InvalidSearchEmbedder, message));
    }
    if hybrid.semantic_ratio > 0.0 {
        let message = "This server does not search by vectors yet. Set `hybrid.semanticRatio` to 0 to search by words.";
        return Err(ApiError::new(ErrorCode::VectorEmbeddingError, message));
    }
    Ok(())
}

fn wants_metadata(call: &Call<App>) -> bool {
    let header = call.request.headers.get_str(METADATA_HEADER);
    header.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

fn metadata(call: &Call<App>, uid: &str, view: &IndexView) -> Value {
    let mut metadata = json!({"queryUid": uuids::v7(&*call.app.runtime).to_string(), "indexUid": uid});
    if let Some(primary_key) = &view.primary_key {
        metadata["primaryKey"] = primary_key.as_str().into();
    }
    metadata
}

/// Everything that stands around the hits.
struct Envelope<'r> {
    request: &'r SearchRequest,
    answer: SearchAnswer,
    took: Duration,
    request_uid: String,
    metadata: Option<Value>,
    shows_performance: bool,
}

impl Envelope<'_> {
    /// The whole body; hits and facets are spliced in as they are.
    fn write(self) -> Vec<u8> {
        let answer = &self.answer;
        let mut out = Vec::with_capacity(answer.hits.len() + 512);
        out.extend_from_slice(b"{\"hits\":");
        out.extend_from_slice(&answer.hits);
        member(&mut out, "query", &json!(self.request.query.as_deref().unwrap_or_default()));
        member(&mut out, "processingTimeMs", &json!(self.took.as_millis() as u64));
        match self.request.page {
            PageRequest::Window { limit, .. } => {
                member(&mut out, "limit", &limit.into());
                member(&mut out, "offset", &answer.offset.into());
                member(&mut out, "estimatedTotalHits", &answer.total.into());
            }
            PageRequest::Numbered { page, hits_per_page } => {
                let pages = if hits_per_page == 0 { 0 } else { answer.total.div_ceil(hits_per_page) };
                member(&mut out, "hitsPerPage", &hits_per_page.into());
                member(&mut out, "page", &page.into());
                member(&mut out, "totalPages", &pages.into());
                member(&mut out, "totalHits", &answer.total.into());
            }
        }
        if let Some(facets) = &answer.facets {
            out.extend_from_slice(b",\"facetDistribution\":");
            out.extend_from_slice(&facets.distribution);
            out.extend_from_slice(b",\"facetStats\":");
            out.extend_from_slice(&facets.stats);
        }
        member(&mut out, "requestUid", &json!(self.request_uid));
        if let Some(metadata) = &self.metadata {
            member(&mut out, "metadata", metadata);
        }
        if self.shows_performance {
            member(&mut out, "performanceDetails", &json!({"search": format!("{:.2?}", self.took)}));
        }
        out.push(b'}');
        out
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: &Value) {
    out.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
}

#[cfg(test)]
mod tests {
    use shards::search::FacetAnswer;

    use super::*;

    fn written(page: PageRequest, answer: SearchAnswer) -> Value {
        let request = SearchRequest { query: Some(" a\"b ".into()), page, ..SearchRequest::default() };
        let answer = SearchAnswer { hits: b"[{\"id\":1}]".to_vec(), ..answer };
        let envelope = Envelope {
            request: &request,
            answer,
            took: Duration::from_micros(2500),
            request_uid: "u".into(),
            metadata: None,
            shows_performance: false,
        };
        serde_json::from_slice(&envelope.write()).unwrap()
    }

    #[test]
    fn both_ways_of_paging_echo_what_was_asked() {
        let answer = SearchAnswer { total: 41, offset: 7, ..SearchAnswer::default() };
        let window = written(PageRequest::Window { offset: 9, limit: 3 }, answer.clone());
        let wanted = json!({"hits": [{"id": 1}], "query": " a\"b ", "processingTimeMs": 2, "limit": 3, "offset": 7,
            "estimatedTotalHits": 41, "requestUid": "u"});
        assert_eq!(window, wanted);
        let numbered = written(PageRequest::Numbered { page: 2, hits_per_page: 20 }, answer.clone());
        assert_eq!(
            (&numbered["totalPages"], &numbered["totalHits"], &numbered["page"]),
            (&json!(3), &json!(41), &json!(2))
        );
        assert!(numbered.get("limit").is_none());
        assert_eq!(written(PageRequest::Numbered { page: 1, hits_per_page: 0 }, answer)["totalPages"], json!(0));
    }

    #[test]
    fn facets_come_both_or_not_at_all() {
        let facets = FacetAnswer { distribution: b"{\"b\":{},\"a\":{}}".to_vec(), stats: b"{}".to_vec() };
        let answer = SearchAnswer { facets: Some(facets), ..SearchAnswer::default() };
        let body = written(PageRequest::default(), answer);
        assert_eq!((&body["facetDistribution"], &body["facetStats"]), (&json!({"b": {}, "a": {}}), &json!({})));
    }
}
