//! The facet search route.

use serde_json::{Value, json};
use shards::facets::facet_search::check_facet_search_enabled;
use shards::search::FacetSearchRequest;

use super::one::{read_ahead, read_filter};
use super::params::facet::FacetSearchParams;
use super::{enter, semantic};
use crate::api::error::ApiError;
use crate::api::router::{Answer, Call};
use crate::app::App;
use crate::http::Response;

pub(super) async fn post(mut call: Call<App>) -> Answer {
    let started = call.app.runtime.unix_time();
    let mut params = call.decoded(|body| FacetSearchParams::from_body(&body)).await?;
    let uid = call.index_uid()?;
    read_ahead(&call, uid, &mut params.search).await;
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?.clone();
    params.search.check_queries()?;
    check_facet_search_enabled(&view.settings)?;
    let mut search = params.search.request.clone();
    search.semantic = semantic::query(&params.search, &view, state.features)?;
    read_filter(&call, uid, &params.search, &mut search)?;
    let FacetSearchParams { name, query, exhaustive, .. } = params;
    let request = FacetSearchRequest { search, name, query: query.clone(), exhaustive };
    let place = enter(&call).await?;
    let found = call.app.reader.facet_search(view, request).await?;
    drop(place);
    let hits: Vec<Value> = found.iter().map(|(value, count)| json!({"value": value, "count": count})).collect();
    let took = call.app.runtime.unix_time().saturating_sub(started).as_millis() as u64;
    let answer = json!({"facetHits": hits, "facetQuery": query, "processingTimeMs": took});
    Ok(Response::json(200, answer.to_string().into_bytes()))
}
