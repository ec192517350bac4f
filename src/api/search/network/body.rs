//! What another instance is asked: a federated search with all fields spelled out.

use serde_json::{Map, Value, json};
use shards::search::{MatchingStrategy, PageRequest};

use crate::api::search::params::many::{FederationParams, QueryParams};

/// The body of `POST /multi-search` for these queries; `use_network` is what they say of taking others in.
pub(super) fn body(queries: &[&QueryParams], federation: &FederationParams, use_network: Option<bool>) -> Value {
    let queries: Vec<Value> = queries.iter().map(|query| written(query, use_network)).collect();
    json!({ "queries": queries, "federation": federation_of(&queries, federation) })
}

/// The federation with the beginning of the list up to the end of the page, and only the facets of indexes that are searched.
fn federation_of(queries: &[Value], federation: &FederationParams) -> Value {
    let is_searched = |uid: &str| queries.iter().any(|query| query["indexUid"] == uid);
    let facets: Map<String, Value> = federation
        .facets_by_index
        .iter()
        .filter(|(uid, _)| is_searched(uid))
        .map(|(uid, names)| (uid.clone(), json!(names)))
        .collect();
    let mut object = match federation.page {
        PageRequest::Window { offset, limit } => json!({ "limit": offset.saturating_add(limit), "offset": 0 }),
        PageRequest::Numbered { page, hits_per_page } => {
            json!({ "limit": 20, "offset": 0, "page": 1, "hitsPerPage": page.saturating_mul(hits_per_page) })
        }
    };
    object["facetsByIndex"] = facets.into();
    if let Some(distinct) = &federation.distinct {
        object["distinct"] = distinct.as_str().into();
    }
    object["showPerformanceDetails"] = false.into();
    object
}

fn written(query: &QueryParams, use_network: Option<bool>) -> Value {
    let (search, request) = (&query.search, &query.search.request);
    let format = &request.format;
    let strategy = match request.matching_strategy {
        MatchingStrategy::Last => "last",
        MatchingStrategy::All => "all",
        MatchingStrategy::Frequency => "frequency",
    };
    let hybrid = search.hybrid.as_ref();
    let hybrid = hybrid.map(|h| json!({ "embedder": h.embedder, "semanticRatio": h.semantic_ratio }));
    let options = query.options.clone().unwrap_or_default();
    json!({
        "indexUid": query.index_uid,
        "q": request.query,
        "offset": null,
        "limit": null,
        "page": null,
        "hitsPerPage": null,
        "attributesToRetrieve": format.attributes_to_retrieve,
        "attributesToCrop": format.attributes_to_crop,
        "cropLength": format.crop_length,
        "cropMarker": format.crop_marker,
        "attributesToHighlight": format.attributes_to_highlight,
        "highlightPreTag": format.highlight_pre_tag,
        "highlightPostTag": format.highlight_post_tag,
        "showMatchesPosition": format.show_matches_position,
        "filter": search.filter,
        "sort": search.sort,
        "distinct": request.distinct,
        "facets": null,
        "matchingStrategy": strategy,
        "attributesToSearchOn": request.attributes_to_search_on,
        "rankingScoreThreshold": request.ranking_score_threshold,
        "locales": request.locales,
        "hybrid": hybrid,
        "vector": search.vector,
        "retrieveVectors": request.retrieve_vectors,
        "media": search.media,
        "useNetwork": use_network,
        "showRankingScore": request.show_ranking_score,
        "showRankingScoreDetails": request.show_ranking_score_details,
        "showPerformanceDetails": null,
        "federationOptions": { "weight": options.weight, "remote": null, "queryPosition": options.query_position },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::search::params::many::ManyParams;

    /// Whatever a client may ask reaches the other instance as it was asked.
    #[test]
    fn what_is_written_reads_back_as_it_was() {
        let asked = json!({"federation": {"limit": 3, "offset": 2, "facetsByIndex": {"a": ["x"], "b": null}, "distinct": "d"},
            "queries": [{"indexUid": "a", "q": "w", "filter": ["x = 1", ["y = 2"]], "sort": ["n:asc"],
                "attributesToRetrieve": ["t"], "attributesToCrop": ["t:3"], "cropLength": 4, "cropMarker": "..",
                "attributesToHighlight": ["*"], "highlightPreTag": "<", "highlightPostTag": ">", "showMatchesPosition": true,
                "matchingStrategy": "all", "attributesToSearchOn": ["t"], "rankingScoreThreshold": 0.25,
                "locales": ["fra"], "retrieveVectors": true, "showRankingScore": true,
                "federationOptions": {"weight": 0.5, "queryPosition": 7}}]});
        let params = ManyParams::from_body(&asked).unwrap();
        let federation = params.federation.clone().unwrap();
        let written = body(&[&params.queries[0]], &federation, Some(false));
        let read = ManyParams::from_body(&written).unwrap();
        let mut wanted = params.queries[0].clone();
        wanted.search.use_network = Some(false);
        assert_eq!(format!("{:?}", read.queries[0]), format!("{wanted:?}"));
        let federation = read.federation.unwrap();
        assert_eq!(federation.page, PageRequest::Window { offset: 0, limit: 5 });
        assert_eq!((federation.facets_by_index.len(), federation.distinct.as_deref()), (1, Some("d")));
    }
}
