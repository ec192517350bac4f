//! The routes for similar documents.

use serde_json::{Value, json};
use shards::document::primary_key;
use shards::engine::IndexView;
use shards::facets::{Filter, parse_filter};
use shards::search::SimilarRequest;

use super::enter;
use super::envelope::member;
use crate::api::decode::{Node, Params};
use crate::api::documents::filter_features;
use crate::api::documents::read_query::filter_parameter;
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::{Answer, Call};
use crate::app::App;
use crate::auth::tenant::join_filters;
use crate::http::Response;

const LIMIT_DEFAULT: u64 = 20;

/// What was asked, before the index is known.
#[derive(Debug)]
struct SimilarParams {
    request: SimilarRequest,
    /// The document's id, which the request gets once it is checked.
    id: Value,
    /// A filter in any of its forms.
    filter: Option<Value>,
    shows_performance: bool,
}

pub(super) async fn get(call: Call<App>) -> Answer {
    let params = SimilarParams::from_query(&call.query())?;
    answer(call, params).await
}

pub(super) async fn post(mut call: Call<App>) -> Answer {
    let params = call.decoded(|body| SimilarParams::from_body(&body)).await?;
    answer(call, params).await
}

async fn answer(call: Call<App>, params: SimilarParams) -> Answer {
    let started = call.app.runtime.unix_time();
    let uid = call.index_uid()?;
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?.clone();
    let SimilarParams { mut request, id, filter, shows_performance } = params;
    if !view.settings.embedders.contains_key(&request.embedder) {
        let message = format!("The index has no embedder `{}`.", request.embedder);
        return Err(ApiError::new(ErrorCode::InvalidSimilarEmbedder, message));
    }
    request.id = document_id(&id)?;
    let place = enter(&call).await?;
    match read_filter(&call, &view, filter) {
        Ok(filter) => request.filter = filter,
        Err(error) => {
            // A document that is not there is reported before a filter that is wrong.
            call.app.reader.similar(view, SimilarRequest { limit: 0, ..request }).await?;
            return Err(error);
        }
    }
    let found = call.app.reader.similar(view, request.clone()).await?;
    drop(place);
    let took = call.app.runtime.unix_time().saturating_sub(started);
    let mut out = b"{\"hits\":".to_vec();
    out.extend_from_slice(&found.hits);
    member(&mut out, "id", &request.id);
    member(&mut out, "processingTimeMs", &(took.as_millis() as u64));
    member(&mut out, "limit", &request.limit);
    member(&mut out, "offset", &request.offset);
    member(&mut out, "estimatedTotalHits", &found.total);
    if shows_performance {
        member(&mut out, "performanceDetails", &json!({"search": format!("{took:.2?}")}));
    }
    out.push(b'}');
    Ok(Response::json(200, out))
}

/// The filter of the request and of a tenant's token.
fn read_filter(call: &Call<App>, view: &IndexView, filter: Option<Value>) -> Result<Option<Filter>, ApiError> {
    let Some(filter) = join_filters(filter, call.grant.tenant_filter(call.index_uid()?)) else { return Ok(None) };
    let parsed = parse_filter(&filter, ErrorCode::InvalidSimilarFilter.name())?;
    if let Some(filter) = &parsed {
        filter.check_features(&filter_features(call))?;
        filter.check_attributes(&view.settings)?;
    }
    Ok(parsed)
}

impl Default for SimilarParams {
    fn default() -> Self {
        let request = SimilarRequest {
            id: String::new(),
            embedder: String::new(),
            offset: 0,
            limit: LIMIT_DEFAULT,
            filter: None,
            attributes_to_retrieve: None,
            retrieve_vectors: false,
            show_ranking_score: false,
            show_ranking_score_details: false,
            ranking_score_threshold: None,
        };
        Self { request, id: Value::Null, filter: None, shows_performance: false }
    }
}

impl SimilarParams {
    /// The first bad field in the order of the body.
    fn from_body(body: &Value) -> Result<Self, ApiError> {
        let mut params = Self::default();
        let (mut id, mut embedder) = (None, None);
        let body = Node::body(body);
        for field in body.fields(ErrorCode::BadRequest)? {
            let request = &mut params.request;
            match field.name() {
                "id" => id = Some(field.value().clone()),
                "embedder" => embedder = Some(field.string(ErrorCode::InvalidSimilarEmbedder)?),
                "offset" => request.offset = field.u64(ErrorCode::InvalidSimilarOffset)?,
                "limit" => request.limit = field.u64(ErrorCode::InvalidSimilarLimit)?,
                "filter" => params.filter = field.nullable(|f| Ok(f.value().clone()))?,
                "attributesToRetrieve" => {
                    request.attributes_to_retrieve =
                        field.nullable(|f| f.strings(ErrorCode::InvalidSimilarAttributesToRetrieve))?;
                }
                "retrieveVectors" => {
                    request.retrieve_vectors = field.boolean(ErrorCode::InvalidSimilarRetrieveVectors)?;
                }
                "showRankingScore" => {
                    request.show_ranking_score = field.boolean(ErrorCode::InvalidSimilarShowRankingScore)?;
                }
                "showRankingScoreDetails" => {
                    request.show_ranking_score_details =
                        field.boolean(ErrorCode::InvalidSimilarShowRankingScoreDetails)?;
                }
                "showPerformanceDetails" => {
                    params.shows_performance = field.boolean(ErrorCode::InvalidSimilarShowPerformanceDetails)?;
                }
                "rankingScoreThreshold" => {
                    request.ranking_score_threshold =
                        field.nullable(|f| f.ratio(ErrorCode::InvalidSimilarRankingScoreThreshold))?;
                }
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        params.id = id.ok_or_else(|| body.missing("id", ErrorCode::BadRequest))?;
        params.request.embedder = embedder.ok_or_else(|| body.missing("embedder", ErrorCode::BadRequest))?;
        Ok(params)
    }

    /// As [`Self::from_body`], from a query string.
    fn from_query(query: &Params) -> Result<Self, ApiError> {
        let mut params = Self::default();
        let (mut id, mut embedder) = (None, None);
        for param in query.iter() {
            let request = &mut params.request;
            match param.name() {
                "id" => id = Some(param.text().into()),
                "embedder" => embedder = Some(param.text().to_owned()),
                "offset" => request.offset = param.u64(ErrorCode::InvalidSimilarOffset)?,
                "limit" => request.limit = param.u64(ErrorCode::InvalidSimilarLimit)?,
                "filter" => params.filter = filter_parameter(param),
                "attributesToRetrieve" => request.attributes_to_retrieve = Some(param.list()),
                "retrieveVectors" => {
                    request.retrieve_vectors = param.boolean(ErrorCode::InvalidSimilarRetrieveVectors)?;
                }
                "showRankingScore" => {
                    request.show_ranking_score = param.boolean(ErrorCode::InvalidSimilarShowRankingScore)?;
                }
                "showRankingScoreDetails" => {
                    request.show_ranking_score_details =
                        param.boolean(ErrorCode::InvalidSimilarShowRankingScoreDetails)?;
                }
                "showPerformanceDetails" => {
                    params.shows_performance = param.boolean(ErrorCode::InvalidSimilarShowPerformanceDetails)?;
                }
                "rankingScoreThreshold" => {
                    request.ranking_score_threshold =
                        Some(param.ratio(ErrorCode::InvalidSimilarRankingScoreThreshold)?);
                }
                _ => return Err(param.unknown()),
            }
        }
        let missing = |name: &str| ApiError::bad_request(format!("The query parameter `{name}` is missing."));
        params.id = id.ok_or_else(|| missing("id"))?;
        params.request.embedder = embedder.ok_or_else(|| missing("embedder"))?;
        Ok(params)
    }
}

/// The text of an id.
///
/// # Errors
/// `invalid_similar_id` for what no document has for an id.
fn document_id(id: &Value) -> Result<String, ApiError> {
    match id {
        Value::String(text) if primary_key::is_valid(text) => return Ok(text.to_owned()),
        Value::Number(number) if number.is_i64() || number.is_u64() => return Ok(number.to_string()),
        _ => {}
    }
    let message = format!(
        "`{id}` is no document id: an id is an integer, or at most 511 bytes of letters (a-z, A-Z), digits, hyphens and \
         underscores."
    );
    Err(ApiError::new(ErrorCode::InvalidSimilarId, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_code() {
        let code = |more: Value| {
            let mut body = json!({"id": 1, "embedder": "e"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            SimilarParams::from_body(&body).map_or_else(|error| error.code.name(), |_| "")
        };
        for (more, wanted) in [
            (json!({}), ""),
            (json!({"id": "a-b_1", "filter": null, "attributesToRetrieve": null, "rankingScoreThreshold": null}), ""),
            (json!({"embedder": null}), "invalid_similar_embedder"),
            (json!({"offset": -1}), "invalid_similar_offset"),
            (json!({"limit": null}), "invalid_similar_limit"),
            (json!({"attributesToRetrieve": "t"}), "invalid_similar_attributes_to_retrieve"),
            (json!({"retrieveVectors": null}), "invalid_similar_retrieve_vectors"),
            (json!({"showRankingScore": 1}), "invalid_similar_show_ranking_score"),
            (json!({"showRankingScoreDetails": 1}), "invalid_similar_show_ranking_score_details"),
            (json!({"showPerformanceDetails": 1}), "invalid_similar_show_performance_details"),
            (json!({"rankingScoreThreshold": 1.01}), "invalid_similar_ranking_score_threshold"),
            (json!({"q": "x"}), "bad_request"),
        ] {
            assert_eq!(code(more.clone()), wanted, "{more}");
        }
        let missing = |body: Value| SimilarParams::from_body(&body).unwrap_err().code.name();
        assert_eq!((missing(json!({"id": 1})), missing(json!({"embedder": "e"}))), ("bad_request", "bad_request"));
    }

    #[test]
    fn ids_are_integers_or_short_words() {
        let id = |id: Value| document_id(&id).map_err(|error| error.code.name());
        assert_eq!((id(json!("a-b_1")), id(json!(-7))), (Ok("a-b_1".into()), Ok("-7".into())));
        for bad in [json!(1.5), json!(null), json!("a b"), json!(""), json!([1])] {
            assert_eq!(id(bad.clone()), Err("invalid_similar_id"), "{bad}");
        }
    }

    #[test]
    fn query_strings_say_the_same() {
        let read = |query: &str| SimilarParams::from_query(&Params::parse(query));
        let params =
            read("id=7&embedder=e&limit=3&attributesToRetrieve=a,b&filter=x%20%3D%201&showRankingScore=true").unwrap();
        assert_eq!((params.id, params.request.limit, params.request.show_ranking_score), (json!("7"), 3, true));
        assert_eq!(params.request.attributes_to_retrieve, Some(vec!["a".into(), "b".into()]));
        assert_eq!(params.filter, Some(json!("x = 1")));
        for (query, wanted) in [
            ("embedder=e", "bad_request"),
            ("id=1", "bad_request"),
            ("id=1&embedder=e&retrieveVectors=1", "invalid_similar_retrieve_vectors"),
            ("id=1&embedder=e&rankingScoreThreshold=x", "invalid_similar_ranking_score_threshold"),
            ("id=1&embedder=e&other=1", "bad_request"),
        ] {
            assert_eq!(read(query).unwrap_err().code.name(), wanted, "{query}");
        }
    }
}
