//! Facet search parameters: checks types and ranges, but nothing that needs the index.

use serde_json::Value;

use super::{Paging, SearchParams};
use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};

/// A facet search as it was asked for.
#[derive(Clone, Debug, Default)]
pub struct FacetSearchParams {
    /// Whose documents count.
    pub search: SearchParams,
    /// The facet's dotted path.
    pub name: String,
    /// What the values begin with.
    pub query: Option<String>,
    /// Whether thresholds and distinct groups are followed to the last document.
    pub exhaustive: bool,
}

impl FacetSearchParams {
    /// From the body of `POST /indexes/{uid}/facet-search`. Fields that it does not know are passed over, so that the body
    /// of a search may be sent.
    ///
    /// # Errors
    /// The first bad field in the order of the body; `missing_facet_search_facet_name`.
    pub fn from_body(body: &Value) -> Result<Self, ApiError> {
        let (mut params, mut name) = (Self::default(), None);
        let body = Node::body(body);
        for field in body.fields(ErrorCode::BadRequest)? {
            match field.name() {
                "facetName" => name = Some(field.string(ErrorCode::InvalidFacetSearchFacetName)?),
                "facetQuery" => params.query = field.nullable(|f| f.string(ErrorCode::InvalidFacetSearchQuery))?,
                "exhaustiveFacetCount" => {
                    let code = ErrorCode::InvalidFacetSearchExhaustiveFacetCount;
                    params.exhaustive = field.nullable(|f| f.boolean(code))?.unwrap_or(false);
                }
                "q" | "filter" | "matchingStrategy" | "attributesToSearchOn" | "rankingScoreThreshold" | "locales" => {
                    params.search.read_common(&field, &mut Paging::default())?;
                }
                "vector" | "media" | "hybrid" => {
                    params.search.read_rare(&field)?;
                }
                _ => {}
            }
        }
        params.name = name.ok_or_else(|| body.missing("facetName", ErrorCode::MissingFacetSearchFacetName))?;
        params.search = params.search.finished(&Paging::default());
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_search_may_be_sent() {
        let body = json!({"facetName": "g", "facetQuery": null, "limit": "x", "sort": 1, "q": "a", "exhaustiveFacetCount": true});
        let params = FacetSearchParams::from_body(&body).expect("unknown fields are passed over");
        assert_eq!((params.name.as_str(), params.query, params.exhaustive), ("g", None, true));
        assert_eq!(params.search.request.query.as_deref(), Some("a"));
        for (body, code) in [
            (json!({}), ErrorCode::MissingFacetSearchFacetName),
            (json!({"facetName": null}), ErrorCode::InvalidFacetSearchFacetName),
            (json!({"facetName": "g", "facetQuery": 1}), ErrorCode::InvalidFacetSearchQuery),
            (json!({"facetName": "g", "rankingScoreThreshold": 2}), ErrorCode::InvalidSearchRankingScoreThreshold),
        ] {
            assert_eq!(FacetSearchParams::from_body(&body).map(drop).map_err(|error| error.code), Err(code), "{body}");
        }
    }
}
