//! The body sent to another instance: a federated search.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;
use shards::search::{MatchingStrategy, PageRequest};

use crate::api::search::params::many::{FederationParams, QueryParams};

/// The body of `POST /multi-search`.
#[derive(Serialize)]
struct Body<'a> {
    queries: Vec<Query<'a>>,
    federation: Federation<'a>,
}

/// A query, with all its fields spelled out: null stands for what is not asked for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Query<'a> {
    index_uid: &'a str,
    q: Option<&'a str>,
    offset: (),
    limit: (),
    page: (),
    hits_per_page: (),
    attributes_to_retrieve: Option<&'a [String]>,
    attributes_to_crop: Option<&'a [String]>,
    crop_length: u64,
    crop_marker: &'a str,
    attributes_to_highlight: Option<&'a [String]>,
    highlight_pre_tag: &'a str,
    highlight_post_tag: &'a str,
    show_matches_position: bool,
    filter: Option<&'a Value>,
    sort: Option<&'a [String]>,
    distinct: Option<&'a str>,
    facets: (),
    #[serde(serialize_with = "strategy")]
    matching_strategy: MatchingStrategy,
    attributes_to_search_on: Option<&'a [String]>,
    ranking_score_threshold: Option<f64>,
    locales: Option<&'a [String]>,
    hybrid: Option<Hybrid<'a>>,
    vector: Option<&'a [f32]>,
    media: Option<&'a Value>,
    retrieve_vectors: bool,
    use_network: Option<bool>,
    show_ranking_score: bool,
    show_ranking_score_details: bool,
    show_performance_details: (),
    federation_options: Options,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hybrid<'a> {
    embedder: &'a str,
    semantic_ratio: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    weight: f64,
    remote: (),
    query_position: Option<u64>,
}

/// The federation: the beginning of the list up to the end of the page, and only the facets of indexes that are searched.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Federation<'a> {
    limit: u64,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hits_per_page: Option<u64>,
    facets_by_index: BTreeMap<&'a str, Option<&'a [String]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distinct: Option<&'a str>,
    show_performance_details: bool,
}

/// The body of `POST /multi-search` for these queries; `use_network` is what they say of taking others in.
pub(super) fn body(queries: &[&QueryParams], federation: &FederationParams, use_network: Option<bool>) -> Vec<u8> {
    let asked: Vec<Query<'_>> = queries.iter().map(|query| written(query, use_network)).collect();
    let body = Body { federation: federation_of(queries, federation), queries: asked };
    // Nothing in it can fail: keys are texts, and there is no end of room in memory.
    serde_json::to_vec(&body).unwrap_or_default()
}

fn federation_of<'a>(queries: &[&QueryParams], federation: &'a FederationParams) -> Federation<'a> {
    let is_searched = |uid: &str| queries.iter().any(|query| query.index_uid == uid);
    let facets = federation.facets_by_index.iter().filter(|(uid, _)| is_searched(uid));
    let (limit, page, hits_per_page) = match federation.page {
        PageRequest::Window { offset, limit } => (offset.saturating_add(limit), None, None),
        PageRequest::Numbered { page, hits_per_page } => (20, Some(1), Some(page.saturating_mul(hits_per_page))),
    };
    Federation {
        limit,
        offset: 0,
        page,
        hits_per_page,
        facets_by_index: facets.map(|(uid, names)| (uid.as_str(), names.as_deref())).collect(),
        distinct: federation.distinct.as_deref(),
        show_performance_details: false,
    }
}

fn written(query: &QueryParams, use_network: Option<bool>) -> Query<'_> {
    let (search, request) = (&query.search, &query.search.request);
    let format = &request.format;
    let hybrid = search.hybrid.as_ref();
    let options = query.options.as_ref();
    Query {
        index_uid: &query.index_uid,
        q: request.query.as_deref(),
        offset: (),
        limit: (),
        page: (),
        hits_per_page: (),
        attributes_to_retrieve: format.attributes_to_retrieve.as_deref(),
        attributes_to_crop: format.attributes_to_crop.as_deref(),
        crop_length: format.crop_length,
        crop_marker: &format.crop_marker,
        attributes_to_highlight: format.attributes_to_highlight.as_deref(),
        highlight_pre_tag: &format.highlight_pre_tag,
        highlight_post_tag: &format.highlight_post_tag,
        show_matches_position: format.show_matches_position,
        filter: search.filter.as_ref(),
        sort: search.sort.as_deref(),
        distinct: request.distinct.as_deref(),
        facets: (),
        matching_strategy: request.matching_strategy,
        attributes_to_search_on: request.attributes_to_search_on.as_deref(),
        ranking_score_threshold: request.ranking_score_threshold,
        locales: request.locales.as_deref(),
        hybrid: hybrid.map(|hybrid| Hybrid { embedder: &hybrid.embedder, semantic_ratio: hybrid.semantic_ratio }),
        vector: search.vector.as_deref(),
        media: search.media.as_ref(),
        retrieve_vectors: request.retrieve_vectors,
        use_network,
        show_ranking_score: request.show_ranking_score,
        show_ranking_score_details: request.show_ranking_score_details,
        show_performance_details: (),
        federation_options: Options {
            weight: options.map_or(1.0, |options| options.weight),
            remote: (),
            query_position: options.and_then(|options| options.query_position),
        },
    }
}

fn strategy<S: Serializer>(strategy: &MatchingStrategy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match strategy {
        MatchingStrategy::Last => "last",
        MatchingStrategy::All => "all",
        MatchingStrategy::Frequency => "frequency",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let read = ManyParams::from_body(&serde_json::from_slice(&written).unwrap()).unwrap();
        let mut wanted = params.queries[0].clone();
        wanted.search.use_network = Some(false);
        assert_eq!(format!("{:?}", read.queries[0]), format!("{wanted:?}"));
        let federation = read.federation.unwrap();
        assert_eq!(federation.page, PageRequest::Window { offset: 0, limit: 5 });
        assert_eq!((federation.facets_by_index.len(), federation.distinct.as_deref()), (1, Some("d")));
    }
}
