//! Multi-search parameters: the queries, and how their results are to be merged into one list.

use std::collections::BTreeMap;

use serde_json::Value;
use shards::search::PageRequest;

use super::{Paging, SearchParams};
use crate::api::decode::{Node, check_index_uid};
use crate::api::error::{ApiError, ErrorCode};

/// Several searches in one request.
#[derive(Clone, Debug, Default)]
pub struct ManyParams {
    /// In the order of the request.
    pub queries: Vec<QueryParams>,
    /// How the results become one list; without it each query has its own.
    pub federation: Option<FederationParams>,
}

/// One of several searches.
#[derive(Clone, Debug, Default)]
pub struct QueryParams {
    /// The index to search.
    pub index_uid: String,
    /// What to search for.
    pub search: SearchParams,
    /// Its part in a federation.
    pub options: Option<FederationOptions>,
    /// Whether it says which part of the result it wants.
    pub has_page: bool,
    /// Whether it says if it wants to know how long each step took.
    pub has_performance: bool,
}

/// What one query means to the federation.
#[derive(Clone, Debug, PartialEq)]
pub struct FederationOptions {
    /// Scores are multiplied by it; 0 or more.
    pub weight: f64,
    /// The instance to ask.
    pub remote: Option<String>,
    /// The number of the query in the answer, when it is not its place in the list.
    pub query_position: Option<u64>,
}

/// How the results of several searches become one list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FederationParams {
    /// The part of the list to show.
    pub page: PageRequest,
    /// The facets to count, by index.
    pub facets_by_index: BTreeMap<String, Option<Vec<String>>>,
    /// Counts the facets of all indexes together.
    pub merge_facets: Option<MergeFacetsParams>,
    /// At most one hit for each value of this attribute.
    pub distinct: Option<String>,
    /// Whether the answer says how long each step took.
    pub show_performance_details: bool,
    /// Whether the queries are the shares of one search by words and meaning. Only instances say so.
    pub is_hybrid_share: bool,
}

/// How facets are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeFacetsParams {
    /// Values shown of each facet.
    pub values_max: Option<u64>,
}

impl ManyParams {
    /// From the body of `POST /multi-search`.
    ///
    /// # Errors
    /// The first bad field in the order of the body.
    pub fn from_body(body: &Value) -> Result<Self, ApiError> {
        let body = Node::body(body);
        let (mut queries, mut federation) = (None, None);
        for field in body.fields(ErrorCode::BadRequest)? {
            match field.name() {
                "queries" => {
                    let items = field.items(ErrorCode::BadRequest)?;
                    queries = Some(items.map(|item| QueryParams::read(&item)).collect::<Result<_, _>>()?);
                }
                "federation" => federation = field.nullable(FederationParams::read)?,
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        let queries = queries.ok_or_else(|| body.missing("queries", ErrorCode::BadRequest))?;
        Ok(Self { queries, federation })
    }
}

impl QueryParams {
    fn read(node: &Node<'_>) -> Result<Self, ApiError> {
        let (mut query, mut paging, mut index_uid) = (Self::default(), Paging::default(), None);
        for field in node.fields(ErrorCode::BadRequest)? {
            let is_given = !field.value().is_null();
            match field.name() {
                "indexUid" => {
                    let uid = field.str(ErrorCode::InvalidIndexUid)?;
                    check_index_uid(uid)?;
                    index_uid = Some(uid.to_owned());
                }
                "federationOptions" => query.options = field.nullable(FederationOptions::read)?,
                // Unlike in a search of its own, null means absent here.
                "offset" | "limit" | "showPerformanceDetails" if !is_given => {}
                name => {
                    query.has_page |= is_given && matches!(name, "offset" | "limit" | "page" | "hitsPerPage");
                    query.has_performance |= name == "showPerformanceDetails";
                    query.search.read(&field, &mut paging)?;
                }
            }
        }
        query.index_uid = index_uid.ok_or_else(|| node.missing("indexUid", ErrorCode::MissingIndexUid))?;
        query.search = query.search.finished(&paging);
        Ok(query)
    }
}

impl Default for FederationOptions {
    fn default() -> Self {
        Self { weight: 1.0, remote: None, query_position: None }
    }
}

impl FederationOptions {
    fn read(node: &Node<'_>) -> Result<Self, ApiError> {
        let mut options = Self::default();
        for field in node.fields(ErrorCode::BadRequest)? {
            match field.name() {
                "weight" => {
                    let code = ErrorCode::InvalidMultiSearchWeight;
                    options.weight = field.f64(code)?;
                    if options.weight < 0.0 {
                        return Err(field.expected("a number that is not negative", code));
                    }
                }
                "remote" => options.remote = field.nullable(|f| f.string(ErrorCode::InvalidMultiSearchRemote))?,
                "queryPosition" => {
                    options.query_position = field.nullable(|f| f.u64(ErrorCode::InvalidMultiSearchQueryPosition))?;
                }
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        Ok(options)
    }
}

impl FederationParams {
    fn read(node: &Node<'_>) -> Result<Self, ApiError> {
        let (mut params, mut paging) = (Self::default(), Paging::default());
        for field in node.fields(ErrorCode::BadRequest)? {
            match field.name() {
                "offset" => paging.offset = field.u64(ErrorCode::InvalidSearchOffset)?,
                "limit" => paging.limit = field.u64(ErrorCode::InvalidSearchLimit)?,
                "page" => paging.page = field.nullable(|f| f.u64(ErrorCode::InvalidSearchPage))?,
                "hitsPerPage" => {
                    paging.hits_per_page = field.nullable(|f| f.u64(ErrorCode::InvalidSearchHitsPerPage))?
                }
                "facetsByIndex" => params.facets_by_index = facets_by_index(&field)?,
                "mergeFacets" => params.merge_facets = field.nullable(MergeFacetsParams::read)?,
                "distinct" => params.distinct = field.nullable(|f| f.string(ErrorCode::InvalidSearchDistinct))?,
                "showPerformanceDetails" => {
                    params.show_performance_details = field.boolean(ErrorCode::InvalidSearchShowPerformanceDetails)?;
                }
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        params.page = paging.request();
        Ok(params)
    }
}

impl MergeFacetsParams {
    fn read(node: &Node<'_>) -> Result<Self, ApiError> {
        let mut params = Self::default();
        for field in node.fields(ErrorCode::InvalidMultiSearchMergeFacets)? {
            match field.name() {
                "maxValuesPerFacet" => {
                    params.values_max = field.nullable(|f| f.u64(ErrorCode::InvalidMultiSearchMaxValuesPerFacet))?;
                }
                _ => return Err(field.unknown(ErrorCode::InvalidMultiSearchMergeFacets)),
            }
        }
        Ok(params)
    }
}

fn facets_by_index(node: &Node<'_>) -> Result<BTreeMap<String, Option<Vec<String>>>, ApiError> {
    let code = ErrorCode::InvalidMultiSearchFacetsByIndex;
    let entry = |field: Node<'_>| {
        check_index_uid(field.name()).map_err(|error| ApiError::new(code, error.message))?;
        Ok((field.name().to_owned(), field.nullable(|names| names.strings(code))?))
    };
    node.fields(code)?.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<ManyParams, &'static str> {
        ManyParams::from_body(&body).map_err(|error| error.code.name())
    }

    /// The code of a mistake in the only query of a request, or in its federation.
    fn code(query: Value, federation: Value) -> &'static str {
        let mut object = json!({"indexUid": "a"});
        object.as_object_mut().unwrap().extend(query.as_object().unwrap().clone());
        read(json!({"federation": federation, "queries": [object]})).err().unwrap_or("none")
    }

    #[test]
    fn each_field_has_its_code() {
        for (query, wanted) in [
            (json!({"indexUid": null}), "invalid_index_uid"),
            (json!({"indexUid": "a b"}), "invalid_index_uid"),
            (json!({"colour": 1}), "bad_request"),
            (json!({"q": 1}), "invalid_search_q"),
            (json!({"limit": -1}), "invalid_search_limit"),
            (json!({"limit": null, "offset": null, "showPerformanceDetails": null}), "none"),
            (json!({"federationOptions": []}), "bad_request"),
            (json!({"federationOptions": {"weight": -0.1}}), "invalid_multi_search_weight"),
            (json!({"federationOptions": {"weight": null}}), "invalid_multi_search_weight"),
            (json!({"federationOptions": {"remote": 3}}), "invalid_multi_search_remote"),
            (json!({"federationOptions": {"queryPosition": -1}}), "invalid_multi_search_query_position"),
            (json!({"federationOptions": {"other": 1}}), "bad_request"),
        ] {
            assert_eq!(code(query.clone(), json!({})), wanted, "{query}");
        }
        for (federation, wanted) in [
            (json!([]), "bad_request"),
            (json!({"other": 1}), "bad_request"),
            (json!({"limit": null}), "invalid_search_limit"),
            (json!({"offset": 1.5}), "invalid_search_offset"),
            (json!({"page": "1"}), "invalid_search_page"),
            (json!({"hitsPerPage": -2}), "invalid_search_hits_per_page"),
            (json!({"page": null, "hitsPerPage": null, "distinct": null, "mergeFacets": null}), "none"),
            (json!({"facetsByIndex": null}), "invalid_multi_search_facets_by_index"),
            (json!({"facetsByIndex": {"a b": []}}), "invalid_multi_search_facets_by_index"),
            (json!({"facetsByIndex": {"a": [1]}}), "invalid_multi_search_facets_by_index"),
            (json!({"mergeFacets": {"x": 1}}), "invalid_multi_search_merge_facets"),
            (json!({"mergeFacets": {"maxValuesPerFacet": -1}}), "invalid_multi_search_max_values_per_facet"),
            (json!({"distinct": 3}), "invalid_search_distinct"),
        ] {
            assert_eq!(code(json!({}), federation.clone()), wanted, "{federation}");
        }
        assert_eq!(read(json!({"queries": [{}]})).err(), Some("missing_index_uid"));
        assert_eq!(read(json!({})).err(), Some("bad_request"));
        assert_eq!(read(json!({"queries": [], "other": 1})).err(), Some("bad_request"));
    }

    #[test]
    fn it_is_known_what_a_query_says_itself() {
        let query = |query: Value| {
            let mut params = read(json!({"queries": [query]})).unwrap();
            let query = params.queries.remove(0);
            (query.has_page, query.has_performance, query.search.request.page)
        };
        let window = |offset, limit| PageRequest::Window { offset, limit };
        assert_eq!(query(json!({"indexUid": "a", "limit": null})), (false, false, window(0, 20)));
        assert_eq!(query(json!({"indexUid": "a", "limit": 20})), (true, false, window(0, 20)));
        let numbered = PageRequest::Numbered { page: 2, hits_per_page: 20 };
        assert_eq!(query(json!({"indexUid": "a", "page": 2, "limit": 3})), (true, false, numbered));
        assert!(query(json!({"indexUid": "a", "showPerformanceDetails": false})).1);
    }
}
