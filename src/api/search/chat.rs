//! Searches made by a model for its caller, with the caller's rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use shards::document::RawDocument;
use shards::engine::IndexView;
use shards::ids::DocId;
use shards::search::{PageRequest, SearchRequest};
use shards::settings::Settings;
use shards::vectors::template_fields;

use super::one::{read_filter, read_sort};
use super::params::SearchParams;
use super::{enter, semantic};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::Call;
use crate::api::settings::chat_settings;
use crate::app::App;
use crate::archive::aside;
use crate::auth::{Action, AuthError};
use crate::chats::model::SearchableIndex;
use crate::embedders::render_documents;

/// Values of a field that a model is told.
const VALUES_MAX: usize = 10;

/// What a model asks for.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct ModelQuery {
    index_uid: String,
    q: Option<String>,
    filter: Option<String>,
}

/// What a model's search found.
#[derive(Clone, Debug, Default)]
pub struct ModelHits {
    /// The documents, with what is displayed of them.
    pub sources: Vec<Value>,
    /// The documents as the index's template renders them, one after the other.
    pub text: String,
}

/// Why a model's search was not answered.
#[derive(Clone, Debug)]
pub enum ModelSearchError {
    /// The search itself is at fault, which the model may do better.
    Search(ApiError),
    /// Anything else.
    Other(ApiError),
}

/// The indexes that the caller may search, in the order of their names, with the values of their filterable fields.
pub async fn searchable_indexes(call: &Call<App>) -> Result<Vec<SearchableIndex>, ApiError> {
    let state = call.app.control.state();
    let mut indexes = Vec::new();
    for (uid, view) in state.indexes.iter().filter(|(uid, _)| call.grant.sees_index(uid)) {
        let chat = chat_settings(&view.settings);
        let description = chat["description"].as_str().unwrap_or_default().to_owned();
        indexes.push(SearchableIndex { uid: uid.to_string(), description, values: values(call, uid, view).await? });
    }
    indexes.sort_unstable_by(|a, b| a.uid.cmp(&b.uid));
    Ok(indexes)
}

/// The filterable fields that occur, each with its most frequent values in the documents that the caller's token admits.
async fn values(call: &Call<App>, uid: &str, view: &Arc<IndexView>) -> Result<Vec<(String, Vec<String>)>, ApiError> {
    if view.settings.filterable_attributes.is_empty() {
        return Ok(Vec::new());
    }
    let mut request = SearchRequest {
        facets: Some(vec!["*".into()]),
        page: PageRequest::Window { offset: 0, limit: 0 },
        ..SearchRequest::default()
    };
    read_filter(call, uid, &SearchParams::default(), &mut request)?;
    let place = enter(call).await?;
    let answer = call.app.reader.search(view.clone(), request).await?;
    drop(place);
    let counts = answer.facets.map(|facets| facets.distribution).unwrap_or_default();
    let counts: BTreeMap<String, Map<String, Value>> = serde_json::from_slice(&counts).map_err(ApiError::internal)?;
    let frequent = |(field, counts): (String, Map<String, Value>)| {
        let mut counts: Vec<(String, u64)> =
            counts.into_iter().map(|(value, count)| (value, count.as_u64().unwrap_or(0))).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        (field, counts.into_iter().take(VALUES_MAX).map(|(value, _)| value).collect::<Vec<_>>())
    };
    Ok(counts.into_iter().map(frequent).filter(|(_, values)| !values.is_empty()).collect())
}

/// Makes the search that a model asks for.
pub async fn search(call: &Call<App>, query: ModelQuery) -> Result<ModelHits, ModelSearchError> {
    let uid = &query.index_uid;
    let other = ModelSearchError::Other;
    call.grant.check_index(uid).map_err(|error| other(error.into()))?;
    if !call.grant.allows(Action::Search, uid) {
        return Err(other(AuthError::InvalidApiKey.into()));
    }
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| other(ApiError::index_not_found(uid)))?;
    let chat = chat_settings(&view.settings);
    let params = params(&chat["searchParameters"], &query).map_err(other)?;
    params.check_queries().map_err(ModelSearchError::Search)?;
    let mut request = params.request.clone();
    read_filter(call, uid, &params, &mut request).map_err(ModelSearchError::Search)?;
    read_sort(&params, &mut request).map_err(ModelSearchError::Search)?;
    request.semantic = semantic::query(&params, view, state.features).map_err(ModelSearchError::Search)?;
    let place = enter(call).await.map_err(other)?;
    let sources = hits(call, view.clone(), request.clone()).await?;
    let whole = if is_displayed_whole(&view.settings) {
        sources.clone()
    } else {
        let settings = Settings { displayed_attributes: vec!["*".into()], ..Settings::clone(&view.settings) };
        hits(call, Arc::new(IndexView { settings: Arc::new(settings), ..IndexView::clone(view) }), request).await?
    };
    drop(place);
    let text = render(call, view, &chat, whole).await.map_err(other)?;
    Ok(ModelHits { sources, text })
}

fn is_displayed_whole(settings: &Settings) -> bool {
    settings.displayed_attributes.iter().any(|name| name == "*")
}

/// The parameters of the settings with the words and the filter of the model.
fn params(parameters: &Value, query: &ModelQuery) -> Result<SearchParams, ApiError> {
    let given = parameters.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let mut body: Map<String, Value> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
    body.insert("q".into(), query.q.clone().into());
    body.insert("filter".into(), query.filter.clone().filter(|filter| !filter.is_empty()).into());
    SearchParams::from_body(&body.into())
}

async fn hits(call: &Call<App>, view: Arc<IndexView>, request: SearchRequest) -> Result<Vec<Value>, ModelSearchError> {
    let answer = call.app.reader.search(view, request).await;
    let answer = answer.map_err(|error| {
        let error = ApiError::from(error);
        match error.status {
            400..=499 => ModelSearchError::Search(error),
            _ => ModelSearchError::Other(error),
        }
    })?;
    serde_json::from_slice(&answer.hits).map_err(|error| ModelSearchError::Other(ApiError::internal(error)))
}

/// The documents as the index's template renders them.
async fn render(call: &Call<App>, view: &IndexView, chat: &Value, hits: Vec<Value>) -> Result<String, ApiError> {
    let fields = template_fields(&view.settings, &view.fields);
    let stored = |hit: &Value| {
        let fields = hit.as_object().into_iter().flatten();
        let numbered = fields.filter_map(|(name, value)| {
            Some((view.fields.id(name)?, value.to_string().into_bytes().into_boxed_slice()))
        });
        RawDocument { doc: DocId(0), fields: numbered.collect() }
    };
    let documents: Vec<RawDocument> = hits.iter().map(stored).collect();
    let template = chat["documentTemplate"].as_str().unwrap_or_default().to_owned();
    let rendered = aside(&*call.app.runtime, move || render_documents(&template, &fields, &documents)).await;
    let rendered = rendered.map_err(ApiError::internal)?;
    let texts = rendered.map_err(|why| {
        let message = format!("A document cannot be rendered by the template of the index's `chat`: {why}");
        ApiError::new(ErrorCode::InvalidChatSettingDocumentTemplate, message)
    })?;
    Ok(texts.join("\n"))
}
