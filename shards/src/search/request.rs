//! A decoded search request with its defaults, not yet checked against an index.

use std::sync::Arc;

use serde_json::Value;

use super::pins::Pin;
use crate::facets::{Filter, SortCriterion};
use crate::query::QueryWords;

/// One search of one index. Lists that are `None` were absent (or null) in the request, which is not the same as empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchRequest {
    /// The query text as sent; `None` or text without words is a placeholder search.
    pub query: Option<String>,
    /// Only documents that it admits; checked for syntax and features, not yet against the settings.
    pub filter: Option<Filter>,
    /// What the `sort` ranking rule orders by; checked for syntax, not yet against the settings.
    pub sort: Vec<SortCriterion>,
    /// Which part of the result is asked for.
    pub page: PageRequest,
    /// Overrides the index's distinct attribute.
    pub distinct: Option<String>,
    /// Facets to count; `Some` of an empty list still answers empty objects.
    pub facets: Option<Vec<String>>,
    /// Which words of the query a document may lack.
    pub matching_strategy: MatchingStrategy,
    /// Names or patterns of the searchable attributes to search.
    pub attributes_to_search_on: Option<Vec<String>>,
    /// Documents whose score is below it are left out; 0.0 to 1.0.
    pub ranking_score_threshold: Option<f64>,
    /// Three-letter codes.
    pub locales: Option<Vec<String>>,
    /// What a hit shows.
    pub format: FormatRequest,
    /// Adds `_rankingScore` to each hit.
    pub show_ranking_score: bool,
    /// Adds `_rankingScoreDetails` to each hit.
    pub show_ranking_score_details: bool,
    /// Documents at fixed places, the strongest first: of several for one document the first holds.
    pub pins: Vec<Pin>,
    /// Whether `_vectors` may be retrieved.
    pub retrieve_vectors: bool,
    /// Searches by meaning as well, or instead.
    pub semantic: Option<SemanticQuery>,
    /// Set for the share of a search over a network of instances.
    pub share: Option<NetworkShare>,
    /// Whether the answer tells how long its steps took.
    pub shows_steps: bool,
}

/// A share of a search of which other instances have the others.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkShare {
    /// The network shard that is searched. The filter says so, too; here it says over which documents is counted what the
    /// network adds up.
    pub shard: Arc<str>,
    /// What all instances together know of the words; `None`: what this one knows has to do.
    pub words: Option<Arc<QueryWords>>,
}

/// The part of a search that goes by meaning. Only for searches that really are semantic or hybrid: one with the ratio 0, or
/// without text, vector and media, has none.
#[derive(Clone, Debug, PartialEq)]
pub struct SemanticQuery {
    /// The embedder, which the index has.
    pub embedder: String,
    /// The weight of meaning: 1.0 for a purely semantic search, below it for a hybrid one; above 0.0.
    pub ratio: f32,
    /// The query's vector. Where there is none the query's text, or media, is embedded when it comes to that.
    pub vector: Option<Arc<[f32]>>,
    /// The request's `media`.
    pub media: Option<Arc<Value>>,
}

/// What a hit shows of its document.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatRequest {
    /// Flattened names; `None` or a list with `*` means all displayed ones.
    pub attributes_to_retrieve: Option<Vec<String>>,
    /// Names, each optionally with `:words`; `*` means all.
    pub attributes_to_crop: Option<Vec<String>>,
    /// Words left of a cropped text; 0 does not crop.
    pub crop_length: u64,
    /// Put where a text was cut.
    pub crop_marker: String,
    /// Names; `*` means all displayed ones.
    pub attributes_to_highlight: Option<Vec<String>>,
    /// Put before each match.
    pub highlight_pre_tag: String,
    /// Put after each match.
    pub highlight_post_tag: String,
    /// Adds `_matchesPosition` to each hit.
    pub show_matches_position: bool,
}

/// Which part of the result a search asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageRequest {
    /// `offset` and `limit`; the total is an estimate.
    Window {
        /// Hits to pass over.
        offset: u64,
        /// Hits to return.
        limit: u64,
    },
    /// `page` and `hitsPerPage`; the total is exact.
    Numbered {
        /// From 1; 0 has no hits.
        page: u64,
        /// Hits on one page.
        hits_per_page: u64,
    },
}

/// Which words of a query a document may lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchingStrategy {
    /// Words from the end on.
    #[default]
    Last,
    /// None.
    All,
    /// The most frequent words first.
    Frequency,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self::Window { offset: 0, limit: 20 }
    }
}

impl Default for FormatRequest {
    fn default() -> Self {
        Self {
            attributes_to_retrieve: None,
            attributes_to_crop: None,
            crop_length: 10,
            crop_marker: "…".into(),
            attributes_to_highlight: None,
            highlight_pre_tag: "<em>".into(),
            highlight_post_tag: "</em>".into(),
            show_matches_position: false,
        }
    }
}

impl FormatRequest {
    /// Whether hits show which of their words match the query.
    pub fn shows_matches(&self) -> bool {
        self.attributes_to_crop.is_some() || self.attributes_to_highlight.is_some() || self.show_matches_position
    }
}

impl PageRequest {
    /// The hits to pass over and to return when no hit beyond `total_max` is reachable.
    pub fn window(self, total_max: u64) -> (u64, u64) {
        let (offset, limit) = match self {
            Self::Window { offset, limit } => (offset, limit),
            Self::Numbered { page: 0, .. } => (0, 0),
            Self::Numbered { page, hits_per_page } => (hits_per_page.saturating_mul(page - 1), hits_per_page),
        };
        let offset = offset.min(total_max);
        (offset, limit.min(total_max - offset))
    }

    /// Hits to pass over.
    pub fn first(self) -> usize {
        let first = match self {
            Self::Window { offset, .. } => offset,
            Self::Numbered { page, hits_per_page } => hits_per_page.saturating_mul(page.saturating_sub(1)),
        };
        usize::try_from(first).unwrap_or(usize::MAX)
    }

    /// Hits to return at most.
    pub fn count(self) -> usize {
        let count = match self {
            Self::Window { limit, .. } => limit,
            Self::Numbered { page: 0, .. } => 0,
            Self::Numbered { hits_per_page, .. } => hits_per_page,
        };
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Whether the total must be exact.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Numbered { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that asks for more than the index allows gets a shorter page, never a hit beyond the limit.
    #[test]
    fn windows_end_at_the_total_limit() {
        assert_eq!(PageRequest::Window { offset: 990, limit: 20 }.window(1000), (990, 10));
        assert_eq!(PageRequest::Window { offset: u64::MAX, limit: u64::MAX }.window(1000), (1000, 0));
        assert_eq!(PageRequest::Numbered { page: 3, hits_per_page: 20 }.window(50), (40, 10));
        assert_eq!(PageRequest::Numbered { page: 0, hits_per_page: 20 }.window(50), (0, 0));
        assert_eq!(PageRequest::Numbered { page: u64::MAX, hits_per_page: u64::MAX }.window(50), (50, 0));
    }
}
