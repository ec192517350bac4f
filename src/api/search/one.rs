//! A search of one index: validates the request against the index, runs it and builds the response.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shards::engine::IndexView;
use shards::facets::{parse_filter, parse_filter_in_steps, parse_sort};
use shards::runtime::RuntimePace;
use shards::runtime::steps::doing;
use shards::search::{Pin, SearchRequest};
use shards::timestamp::Timestamp;

use super::envelope::Envelope;
use super::params::{ReadAhead, SearchParams};
use super::{hydrate, personalize, semantic};
use crate::api::documents::filter_features;
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::Call;
use crate::api::uuids;
use crate::app::App;
use crate::auth::tenant::join_filters;
use crate::control::{ControlState, Features};

/// Filters with no more text than this are read at once, when they are needed.
const SHORT_FILTER_BYTES: usize = 4 << 10;
/// The header that asks for [`metadata`].
const METADATA_HEADER: &str = "meili-include-metadata";

/// A search of an index that exists, complete but for the checks that the engine makes.
pub(super) struct OneSearch {
    uid: String,
    view: Arc<IndexView>,
    request: SearchRequest,
    user_context: Option<String>,
    shows_performance: bool,
}

impl OneSearch {
    /// The search of index `uid` with `params`, and with the filter that a tenant's token adds.
    ///
    /// # Errors
    /// `index_not_found`, `invalid_search_filter`, `invalid_search_sort`, `feature_not_enabled`, and those of searches by
    /// meaning.
    pub(super) fn new(
        call: &Call<App>,
        state: &ControlState,
        uid: &str,
        params: SearchParams,
    ) -> Result<Self, ApiError> {
        check_network(&params, state.features)?;
        let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?;
        params.check_queries()?;
        let mut request = params.request.clone();
        request.semantic = semantic::query(&params, view, state.features)?;
        read_filter(call, uid, &params, &mut request)?;
        read_sort(&params, &mut request)?;
        request.pins = pins(call, state, uid, &request);
        request.shows_steps = params.show_performance_details;
        Ok(Self {
            uid: uid.into(),
            view: view.clone(),
            request,
            user_context: params.user_context,
            shows_performance: params.show_performance_details,
        })
    }

    /// The name of the index.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Runs the search. Gives its answer with the hits in their usual order, which says that the time since `started` was spent
    /// on it.
    pub(super) async fn answer(&self, call: &Call<App>, started: Duration) -> Result<Envelope<'_>, ApiError> {
        let mut answer = call.app.reader.search(self.view.clone(), self.request.clone()).await?;
        if answer.degraded {
            call.app.counting.degraded_search();
        }
        personalize::check(call, self.user_context.as_deref())?;
        let state = call.app.control.state();
        answer.hits = hydrate::hits(call, &state, &self.view, answer.hits).await?;
        Ok(Envelope {
            request: &self.request,
            answer,
            took: call.app.runtime.unix_time().saturating_sub(started),
            request_uid: uuids::v7(&*call.app.runtime).to_string(),
            metadata: wants_metadata(call).then(|| metadata(call, &self.uid, self.view.primary_key.as_deref())),
            shows_performance: self.shows_performance,
            remote_errors: None,
            personalization: None,
            user_context: self.user_context.as_deref(),
        })
    }

    /// Frees it in steps.
    pub(super) async fn free(self, call: &Call<App>) {
        if let Some(filter) = self.request.filter {
            filter.free(&RuntimePace(&*call.app.runtime)).await;
        }
    }
}

/// Reads a long filter in steps, so that [`read_filter`] finds it read.
pub(super) async fn read_ahead(call: &Call<App>, uid: &str, params: &mut SearchParams) {
    if params.filter.as_ref().is_none_or(|filter| text_bytes(filter) <= SHORT_FILTER_BYTES) {
        return;
    }
    if let Some(filter) = join_filters(params.filter.clone(), call.grant.tenant_filter(uid)) {
        let pace = RuntimePace(&*call.app.runtime);
        doing("filter of a request");
        let parsing = parse_filter_in_steps(&filter, ErrorCode::InvalidSearchFilter.name(), &pace);
        let parsed = Box::pin(parsing).await;
        params.read_ahead = Some(Arc::new(ReadAhead { filter, parsed }));
    }
}

/// Bytes of the expressions of a filter.
fn text_bytes(filter: &Value) -> usize {
    match filter {
        Value::String(text) => text.len(),
        Value::Array(members) => members.iter().map(text_bytes).sum(),
        _ => 0,
    }
}

/// Reads the filter of a request, together with that of a tenant's token.
///
/// # Errors
/// `invalid_search_filter`, `feature_not_enabled`.
pub(super) fn read_filter(
    call: &Call<App>,
    uid: &str,
    params: &SearchParams,
    request: &mut SearchRequest,
) -> Result<(), ApiError> {
    let filter = join_filters(params.filter.clone(), call.grant.tenant_filter(uid));
    if let Some(filter) = &filter {
        let ahead = params.read_ahead.as_ref().filter(|ahead| ahead.filter == *filter);
        request.filter = match ahead {
            Some(ahead) => ahead.parsed.clone()?,
            None => parse_filter(filter, ErrorCode::InvalidSearchFilter.name())?,
        };
    }
    if let Some(filter) = &request.filter {
        filter.check_features(&filter_features(call))?;
    }
    Ok(())
}

/// Reads the sort criteria of a request.
///
/// # Errors
/// `invalid_search_sort`.
pub(super) fn read_sort(params: &SearchParams, request: &mut SearchRequest) -> Result<(), ApiError> {
    if let Some(criteria) = &params.sort {
        request.sort = parse_sort(&criteria.clone().into(), ErrorCode::InvalidSearchSort.name())?;
    }
    Ok(())
}

/// The documents that the search has to place by the rules of the instance.
pub(super) fn pins(call: &Call<App>, state: &ControlState, uid: &str, request: &SearchRequest) -> Vec<Pin> {
    if !state.features.dynamic_search_rules {
        return Vec::new();
    }
    let now = Timestamp::from_unix(call.app.runtime.unix_time()).date();
    state.search_rules.pins(uid, request.query.as_deref(), now)
}

/// Whether a search may name the network.
///
/// # Errors
/// `feature_not_enabled`.
pub(super) fn check_network(params: &SearchParams, features: Features) -> Result<(), ApiError> {
    if params.use_network.is_some() && !features.network {
        return Err(ApiError::feature_not_enabled("Passing `useNetwork`", "network"));
    }
    Ok(())
}

/// Whether the answer is to say which indexes it is about.
pub(super) fn wants_metadata(call: &Call<App>) -> bool {
    let header = call.request.headers.get_str(METADATA_HEADER);
    header.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

/// What names one search of an index to whoever evaluates searches.
pub(super) fn metadata(call: &Call<App>, uid: &str, primary_key: Option<&str>) -> Value {
    let mut metadata = json!({"queryUid": uuids::v7(&*call.app.runtime).to_string(), "indexUid": uid});
    if let Some(primary_key) = primary_key {
        metadata["primaryKey"] = primary_key.into();
    }
    metadata
}
