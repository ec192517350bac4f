//! Indexes as the task worker uses them: an abstraction between tasks and the engine, so that tests can replace either.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use shards::document::RawDocument;
use shards::engine::{Batch, DocumentScan, DocumentsPage, DocumentsQuery, IndexView, OpOutcome};
use shards::error::UserError;
use shards::stages::{Stage, StageProgress};
use shards::timestamp::Timestamp;
use uuid::Uuid;

/// Why an index could not be worked on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The tasks are at fault: all of them fail with this.
    #[error(transparent)]
    User(#[from] UserError),
    /// The disk is full.
    #[error("no space left on device")]
    OutOfSpace,
    /// No more files may be open.
    #[error("too many open files")]
    TooManyFiles,
    /// Users' functions are not run here, as too many have not ended; the tasks fail with this.
    #[error(transparent)]
    FunctionNotRun(UserError),
    /// The server stops, and a core that is needed has left: the tasks wait for the next start.
    #[error("{0}")]
    Stopping(String),
    /// No storage of this id.
    #[error("the storage of the index is not there")]
    Missing,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// An index as it was found at the start, with the record of its last commit.
pub type Opened = (Arc<IndexView>, Option<Vec<u8>>);

/// Some documents of a walk, and the walk.
pub type Scanned = (Vec<RawDocument>, DocumentScan);

/// Where indexes live. All futures run on the control core.
pub trait Indexes {
    /// Makes the storage of an index; one that is there already, and empty, is taken as made.
    fn create(&self, id: Uuid, created_at: Timestamp) -> LocalBoxFuture<'static, Result<Arc<IndexView>, IndexError>>;
    /// Opens an index, with the record of its last commit.
    fn open(&self, id: Uuid) -> LocalBoxFuture<'static, Result<Opened, IndexError>>;
    /// Removes an index's storage; none there is no error.
    fn remove(&self, id: Uuid) -> LocalBoxFuture<'static, Result<(), IndexError>>;
    /// The folder of all files of the index as the view shows it. They do not change before a batch of the index commits, its
    /// storage is rewritten or removed.
    fn folder(&self, view: &IndexView) -> PathBuf;
    /// Rewrites an index's storage: its bytes before and after.
    fn compact(&self, view: Arc<IndexView>) -> LocalBoxFuture<'static, Result<(u64, u64), IndexError>>;
    /// A page of documents; `invalid_document_filter` and its like are the user's errors.
    fn documents(
        &self,
        view: Arc<IndexView>,
        query: DocumentsQuery,
    ) -> LocalBoxFuture<'static, Result<DocumentsPage, IndexError>>;
    /// The next documents of a walk over all of them, with the walk to go on; none at its end.
    fn scan(&self, scan: DocumentScan) -> LocalBoxFuture<'static, Result<Scanned, IndexError>>;
    /// How far the work of a batch on an index is; `None` where it is not known.
    fn progress(&self, view: Arc<IndexView>) -> LocalBoxFuture<'static, Option<StageProgress>>;
    /// Does all the work of a batch without making any of it visible. Dropping the future, or what it returns, undoes it.
    fn prepare(
        &self,
        view: Arc<IndexView>,
        batch: Batch,
    ) -> LocalBoxFuture<'static, Result<Box<dyn PreparedBatch>, IndexError>>;
}

/// A batch that is done but not visible.
pub trait PreparedBatch {
    /// One for each operation, in order.
    fn outcomes(&self) -> &[Result<OpOutcome, UserError>];
    /// How long each stage of the work took.
    fn stages(&self) -> &[(Stage, Duration)];
    /// Makes it visible and durable, with the record. When this fails, nothing has changed.
    fn commit(self: Box<Self>, record: Vec<u8>) -> LocalBoxFuture<'static, Result<Arc<IndexView>, IndexError>>;
    /// Undoes it.
    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()>;
}

/// The one used everywhere.
pub type SharedIndexes = Rc<dyn Indexes>;
