//! Indexes as handlers read them: an abstraction of the engine that tests can replace.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use shards::document::RawDocument;
use shards::engine::{DocumentsPage, DocumentsQuery, EngineError, IndexView};
use shards::search::federated::{FederatedAnswer, FederatedError, FederatedRequest, Part, Rescored, Shares};
use shards::search::{FacetSearchRequest, SearchAnswer, SearchError, SearchRequest, SimilarAnswer, SimilarRequest};

/// Reads at the epoch of a view, from any core.
pub trait Reader {
    /// The document of this id; `None` when the index has none.
    fn document(
        &self,
        view: Arc<IndexView>,
        id: String,
    ) -> LocalBoxFuture<'static, Result<Option<RawDocument>, EngineError>>;

    /// A page of documents.
    fn documents(
        &self,
        view: Arc<IndexView>,
        query: DocumentsQuery,
    ) -> LocalBoxFuture<'static, Result<DocumentsPage, EngineError>>;

    /// The answer to a search.
    fn search(
        &self,
        view: Arc<IndexView>,
        request: SearchRequest,
    ) -> LocalBoxFuture<'static, Result<SearchAnswer, SearchError>>;

    /// The values of a facet, each with the number of documents that have it.
    fn facet_search(
        &self,
        view: Arc<IndexView>,
        request: FacetSearchRequest,
    ) -> LocalBoxFuture<'static, Result<Vec<(String, u64)>, SearchError>>;

    /// The documents nearest to one.
    fn similar(
        &self,
        view: Arc<IndexView>,
        request: SimilarRequest,
    ) -> LocalBoxFuture<'static, Result<SimilarAnswer, SearchError>>;

    /// The answer to several searches that become one list; `views` are in the order of the request's indexes.
    fn federated_search(
        &self,
        views: Vec<Arc<IndexView>>,
        request: FederatedRequest,
    ) -> LocalBoxFuture<'static, Result<FederatedAnswer, FederatedError>>;

    /// Scores the hits of a query by what all instances that have shares of it know. Gives their parts back, with the hits whose
    /// scores have changed.
    fn score_together(
        &self,
        view: Arc<IndexView>,
        shares: Shares,
        parts: Vec<Part>,
    ) -> LocalBoxFuture<'static, (Vec<Part>, Vec<Rescored>)>;
}
