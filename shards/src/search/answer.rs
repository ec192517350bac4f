//! The result of a search.

use std::time::Duration;

use super::steps::Step;
use crate::error::UserError;

/// The result of one search; the server adds the query, the paging fields and the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchAnswer {
    /// A JSON array: the hits of the page, ready to be spliced into the answer.
    pub hits: Vec<u8>,
    /// How many hits the array holds.
    pub hit_count: usize,
    /// `estimatedTotalHits` or `totalHits`: at most the index's `maxTotalHits`.
    pub total: u64,
    /// The offset to echo: the one asked, cut to `maxTotalHits`.
    pub offset: u64,
    /// There when facets were asked for.
    pub facets: Option<FacetAnswer>,
    /// Whether the search stopped at its time budget.
    pub degraded: bool,
    /// Hits that were found by meaning; `None` for a search by words alone.
    pub semantic_hits: Option<u64>,
    /// The vector that was searched with, where the request asks for vectors.
    pub query_vector: Option<Vec<f32>>,
    /// How long the steps of a search by words took, where the request asks for that.
    pub steps: Vec<(Step, Duration)>,
}

/// Counts over all documents that the search found, as JSON objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FacetAnswer {
    /// `facetDistribution`
    pub distribution: Vec<u8>,
    /// `facetStats`
    pub stats: Vec<u8>,
}

/// Why a search was not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SearchError {
    /// The request is at fault.
    #[error(transparent)]
    User(#[from] UserError),
    /// A partition could not be read or did not answer.
    #[error("search failed: {0}")]
    Partition(String),
    /// The index was deleted meanwhile.
    #[error("the index was deleted while it was searched")]
    Dropped,
}
