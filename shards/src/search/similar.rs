//! Requests for documents similar to one in the index.

use crate::facets::Filter;

/// Asks for the documents that are nearest to one of an index.
#[derive(Clone, Debug)]
pub struct SimilarRequest {
    /// The document's external id. Where the index has none: `not_found_similar_id`.
    pub id: String,
    /// The embedder, which the index has.
    pub embedder: String,
    /// Hits to pass over.
    pub offset: u64,
    /// Hits to return.
    pub limit: u64,
    /// Only documents that it admits; checked for syntax and features, not yet against the settings.
    pub filter: Option<Filter>,
    /// Flattened names; `None` or a list with `*` means all displayed ones.
    pub attributes_to_retrieve: Option<Vec<String>>,
    /// Whether `_vectors` may be retrieved.
    pub retrieve_vectors: bool,
    /// Adds `_rankingScore` to each hit.
    pub show_ranking_score: bool,
    /// Adds `_rankingScoreDetails` to each hit.
    pub show_ranking_score_details: bool,
    /// The list ends before the first document whose score is below it; 0.0 to 1.0.
    pub ranking_score_threshold: Option<f64>,
}

/// The documents that are nearest to one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimilarAnswer {
    /// A JSON array: the hits of the page, ready to be spliced into the answer.
    pub hits: Vec<u8>,
    /// `estimatedTotalHits`
    pub total: u64,
}
