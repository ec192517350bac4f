//! Federated search: several queries, on one index or several, whose results become one list.
//!
//! Every query is ranked as a search of its own, on all partitions of its index at once and with a few queries running
//! concurrently. Then the lists are merged in two steps ([`merge`]): first the queries of one index, in which a document counts
//! once, then the indexes. Only what is on the page is fetched. Nothing here depends on how the documents of an index are
//! partitioned.

mod combine;
mod facets;
mod fetch;
mod kinds;
mod merge;
pub(super) use merge::score_values;
#[cfg(test)]
mod network_tests;
pub(super) mod part;
mod ranked;
mod search;
#[cfg(test)]
mod tests;
mod together;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use combine::{Combination, FacetLimits, Part, PartHit, combine, is_enough_by_words};
pub use facets::FederatedFacets;
pub use kinds::{RuleKind, are_compatible, rule_kinds};
pub use merge::ScoreValue;
pub use search::{FederatedAccess, federated_search};
pub use together::{HitRank, Rescored, Shares, score_together};
pub use values::{FieldValue, values_at};

use super::answer::SearchError;
use super::request::{PageRequest, SearchRequest};
use crate::query::QueryWords;
use crate::rank::score_facts::ScoreFacts;
use crate::settings::FacetOrder;

/// Several searches that become one list. Requests were checked against their indexes ([`super::plan::check`]).
#[derive(Clone, Debug, Default)]
pub struct FederatedRequest {
    /// The searches, in the order of their indexes.
    pub queries: Vec<FederatedQuery>,
    /// What is searched, in the order of the names; each is named by some query.
    pub indexes: Vec<FederatedIndex>,
    /// Which part of the list is asked for.
    pub page: PageRequest,
    /// At most one hit for each value of this field; replaces that of every index.
    pub distinct: Option<String>,
    /// Counts the facets of all indexes together.
    pub merge_facets: Option<MergeFacets>,
    /// What becomes of the answer.
    pub role: FederatedRole,
    /// Whether its queries are the shares of one search by words and meaning: they merge as its two lists do, and none of them
    /// answers by words alone.
    pub is_hybrid_share: bool,
    /// The name of this instance as hits show it; `None` shows none.
    pub instance: Option<Option<Arc<str>>>,
}

/// What becomes of the answer to a federated search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FederatedRole {
    /// It is the whole answer.
    #[default]
    Whole,
    /// Another instance merges it: each hit says in its JSON what it is merged by.
    ForInstance,
    /// It is merged here with the answers of other instances: the hits of all pages up to the one asked for are in
    /// [`FederatedAnswer::part`], and facets are counted by index.
    Part,
}

/// One search of a federation.
#[derive(Clone, Debug)]
pub struct FederatedQuery {
    /// Its place in [`FederatedRequest::indexes`].
    pub index: usize,
    /// What is searched for; its page is not looked at.
    pub request: SearchRequest,
    /// Scores are multiplied by it; 0 or more.
    pub weight: f64,
    /// The number that its hits show. Where two hits are equal the lower one comes first.
    pub position: u64,
}

/// An index that takes part.
#[derive(Clone, Debug)]
pub struct FederatedIndex {
    /// Its name.
    pub uid: Arc<str>,
    /// The facets to count of it; `None` does not show the index at all.
    pub facets: Option<Vec<String>>,
}

/// How facets are counted together.
#[derive(Clone, Debug, Default)]
pub struct MergeFacets {
    /// Values shown of each facet; `None`: all.
    pub values_max: Option<u64>,
    /// The order of each facet that was named itself; the values of all others stand by the alphabet.
    pub orders: BTreeMap<String, FacetOrder>,
}

/// What a federated search answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FederatedAnswer {
    /// A JSON array: the hits of the page.
    pub hits: Vec<u8>,
    /// How many hits the array holds.
    pub hit_count: usize,
    /// How many documents were found, each counted once for its index.
    pub total: u64,
    /// The counts asked for.
    pub facets: FederatedFacets,
    /// Whether one of the searches stopped at its time budget.
    pub degraded: bool,
    /// Hits of the page that were found by meaning; `None` where no query asked for that.
    pub semantic_hits: Option<u64>,
    /// The vectors that were searched with, by query, where vectors are asked for.
    pub query_vectors: Vec<(u64, Vec<f32>)>,
    /// The hits, when they are to be merged with others.
    pub part: Vec<PartHit>,
    /// What this instance knows of the words of each query, in the order of the request; `None` where nobody asked.
    pub words: Vec<Option<QueryWords>>,
    /// What the scores of each query follow from, in the same order; nothing where nobody asked.
    pub scores: Vec<ScoreFacts>,
}

impl FederatedAnswer {
    /// What was found in the role of [`FederatedRole::Part`].
    pub fn into_part(self) -> Part {
        let facets = if let FederatedFacets::ByIndex(facets) = self.facets { facets } else { Vec::new() };
        let (total, degraded, query_vectors) = (self.total, self.degraded, self.query_vectors);
        Part { hits: self.part, total, facets, degraded, query_vectors, words: self.words, scores: self.scores }
    }
}

/// Why a federated search was not answered.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct FederatedError {
    /// The place of the query at fault in [`FederatedRequest::queries`]; `None` when it is no single one's.
    pub query: Option<usize>,
    /// What is wrong.
    pub error: SearchError,
}

impl From<SearchError> for FederatedError {
    fn from(error: SearchError) -> Self {
        Self { query: None, error }
    }
}
