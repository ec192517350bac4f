//! Tables of bodies and query strings with the code of each mistake.

use serde_json::json;

use super::*;

/// With the checks that follow the look for the index.
fn checked(params: Result<SearchParams, ApiError>) -> Result<SearchParams, &'static str> {
    let params = params.and_then(|params| params.check_queries().map(|()| params));
    params.map_err(|error| error.code.name())
}

fn post(body: Value) -> Result<SearchParams, &'static str> {
    checked(SearchParams::from_body(&body))
}

fn get(query: &str) -> Result<SearchParams, &'static str> {
    checked(SearchParams::from_query(&Params::parse(query)))
}

#[test]
fn each_field_of_a_body_has_its_code() {
    for (body, code) in [
        (json!({"q": 1}), "invalid_search_q"),
        (json!({"offset": null}), "invalid_search_offset"),
        (json!({"limit": -1}), "invalid_search_limit"),
        (json!({"page": 1.5}), "invalid_search_page"),
        (json!({"hitsPerPage": "1"}), "invalid_search_hits_per_page"),
        (json!({"attributesToRetrieve": "a"}), "invalid_search_attributes_to_retrieve"),
        (json!({"attributesToCrop": [1]}), "invalid_search_attributes_to_crop"),
        (json!({"cropLength": null}), "invalid_search_crop_length"),
        (json!({"cropMarker": null}), "invalid_search_crop_marker"),
        (json!({"attributesToHighlight": {}}), "invalid_search_attributes_to_highlight"),
        (json!({"highlightPreTag": null}), "invalid_search_highlight_pre_tag"),
        (json!({"highlightPostTag": 1}), "invalid_search_highlight_post_tag"),
        (json!({"showMatchesPosition": null}), "invalid_search_show_matches_position"),
        (json!({"sort": "a:asc"}), "invalid_search_sort"),
        (json!({"distinct": []}), "invalid_search_distinct"),
        (json!({"facets": "a"}), "invalid_search_facets"),
        (json!({"matchingStrategy": "LAST"}), "invalid_search_matching_strategy"),
        (json!({"matchingStrategy": null}), "invalid_search_matching_strategy"),
        (json!({"attributesToSearchOn": 1}), "invalid_search_attributes_to_search_on"),
        (json!({"rankingScoreThreshold": 1.1}), "invalid_search_ranking_score_threshold"),
        (json!({"locales": ["xx"]}), "invalid_search_locales"),
        (json!({"hybrid": {}}), "invalid_search_hybrid_query"),
        (json!({"hybrid": {"embedder": 1}}), "invalid_search_embedder"),
        (json!({"hybrid": {"embedder": "e", "semanticRatio": 2}}), "invalid_search_semantic_ratio"),
        (json!({"vector": ["a"]}), "invalid_search_vector"),
        (json!({"vector": [1]}), "missing_search_hybrid"),
        (json!({"media": 1}), "missing_search_hybrid"),
        (json!({"media": 1, "vector": [1], "hybrid": {"embedder": "e"}}), "invalid_search_media_and_vector"),
        (json!({"retrieveVectors": null}), "invalid_search_retrieve_vectors"),
        (json!({"personalize": {}}), "invalid_search_personalize"),
        (json!({"personalize": {"userContext": 1}}), "invalid_search_personalize_user_context"),
        (json!({"useNetwork": 1}), "invalid_search_use_network"),
        (json!({"showRankingScore": "true"}), "invalid_search_show_ranking_score"),
        (json!({"showRankingScoreDetails": 1}), "invalid_search_show_ranking_score_details"),
        (json!({"showPerformanceDetails": null}), "invalid_search_show_performance_details"),
        (json!({"hitsperpage": 1}), "bad_request"),
        (json!({"limit": "a", "q": 1}), "invalid_search_limit"),
        (json!({"filter": 1, "vector": [1], "limit": "a"}), "invalid_search_limit"),
        (json!([]), "bad_request"),
    ] {
        assert_eq!(post(body.clone()).err(), Some(code), "{body}");
    }
}

#[test]
fn nulls_that_are_allowed_are_as_if_absent() {
    let names = [
        "q",
        "page",
        "hitsPerPage",
        "attributesToRetrieve",
        "attributesToCrop",
        "attributesToHighlight",
        "filter",
        "sort",
        "distinct",
        "facets",
        "attributesToSearchOn",
        "rankingScoreThreshold",
        "locales",
        "hybrid",
        "vector",
        "media",
        "personalize",
        "useNetwork",
    ];
    let body = Value::Object(names.iter().map(|name| (name.to_string(), Value::Null)).collect());
    let params = post(body).unwrap();
    assert_eq!(params.request.page, PageRequest::Window { offset: 0, limit: 20 });
    assert!(params.request.query.is_none() && params.filter.is_none() && params.sort.is_none());
}

#[test]
fn either_field_of_numbered_pages_chooses_them() {
    let page = |body: Value| post(body).unwrap().request.page;
    assert_eq!(page(json!({"page": 2, "limit": 3})), PageRequest::Numbered { page: 2, hits_per_page: 20 });
    assert_eq!(page(json!({"hitsPerPage": 5})), PageRequest::Numbered { page: 1, hits_per_page: 5 });
    assert_eq!(page(json!({"limit": 3})), PageRequest::Window { offset: 0, limit: 3 });
}

#[test]
fn query_strings_are_read_as_text() {
    for (query, code) in [
        ("limit=", "invalid_search_limit"),
        ("showRankingScore=1", "invalid_search_show_ranking_score"),
        ("locales=en,xx", "invalid_search_locales"),
        ("hybridSemanticRatio=0.5", "invalid_search_hybrid_query"),
        ("vector=1,2", "missing_search_hybrid"),
        ("vector=a&hybridEmbedder=e", "invalid_search_vector"),
        ("hybrid=1", "bad_request"),
        ("Q=a", "bad_request"),
        ("rankingScoreThreshold=2", "invalid_search_ranking_score_threshold"),
    ] {
        assert_eq!(get(query).err(), Some(code), "{query}");
    }
    let params =
        get("q=a&q=b&facets=&sort=a:asc,_geoPoint(1,2):desc&filter=x%20%3D%201&locales=&hybridEmbedder=e").unwrap();
    assert_eq!(params.request.query.as_deref(), Some("b"));
    assert_eq!(params.request.facets, Some(vec![]));
    assert_eq!(params.sort.unwrap(), ["a:asc", "_geoPoint(1,2):desc"]);
    assert_eq!((params.filter, params.request.locales), (Some(json!("x = 1")), None));
    assert_eq!(params.hybrid, Some(Hybrid { embedder: "e".into(), semantic_ratio: 0.5 }));
}
