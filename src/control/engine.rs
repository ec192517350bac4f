//! The engine as the task worker uses it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture};
use shards::engine::{
    Batch, DocumentScan, DocumentsPage, DocumentsQuery, Engine, EngineError, IndexView, OpOutcome, Prepared,
};
use shards::error::UserError;
use shards::stages::{Stage, StageProgress};
use shards::timestamp::Timestamp;
use uuid::Uuid;

use super::indexes::{IndexError, Indexes, Opened, PreparedBatch, Scanned};

/// The engine of the control core.
pub struct EngineIndexes(pub Rc<Engine>);

struct EnginePrepared {
    engine: Rc<Engine>,
    prepared: Prepared,
}

impl Indexes for EngineIndexes {
    fn create(&self, id: Uuid, created_at: Timestamp) -> LocalBoxFuture<'static, Result<Arc<IndexView>, IndexError>> {
        let engine = self.0.clone();
        async move { Ok(Arc::new(engine.create_index(id, created_at).await?)) }.boxed_local()
    }

    fn open(&self, id: Uuid) -> LocalBoxFuture<'static, Result<Opened, IndexError>> {
        let engine = self.0.clone();
        async move {
            let (view, record) = engine.open_index(id).await?;
            Ok((Arc::new(view), record))
        }
        .boxed_local()
    }

    fn remove(&self, id: Uuid) -> LocalBoxFuture<'static, Result<(), IndexError>> {
        let engine = self.0.clone();
        async move { Ok(engine.drop_index(id).await?) }.boxed_local()
    }

    fn folder(&self, view: &IndexView) -> PathBuf {
        self.0.folder(view)
    }

    fn compact(&self, view: Arc<IndexView>) -> LocalBoxFuture<'static, Result<(u64, u64), IndexError>> {
        let engine = self.0.clone();
        async move { Ok(engine.compact(&view).await?) }.boxed_local()
    }

    fn documents(
        &self,
        view: Arc<IndexView>,
        query: DocumentsQuery,
    ) -> LocalBoxFuture<'static, Result<DocumentsPage, IndexError>> {
        let engine = self.0.clone();
        async move { Ok(engine.documents(&view, query).await?) }.boxed_local()
    }

    fn scan(&self, mut scan: DocumentScan) -> LocalBoxFuture<'static, Result<Scanned, IndexError>> {
        let engine = self.0.clone();
        async move { Ok((engine.scan(&mut scan).await?, scan)) }.boxed_local()
    }

    fn progress(&self, view: Arc<IndexView>) -> LocalBoxFuture<'static, Option<StageProgress>> {
        let engine = self.0.clone();
        async move { engine.progress(&view).await.ok().flatten() }.boxed_local()
    }

    fn prepare(
        &self,
        view: Arc<IndexView>,
        batch: Batch,
    ) -> LocalBoxFuture<'static, Result<Box<dyn PreparedBatch>, IndexError>> {
        let engine = self.0.clone();
        async move {
            let prepared = engine.prepare(&view, batch).await?;
            Ok(Box::new(EnginePrepared { engine, prepared }) as Box<dyn PreparedBatch>)
        }
        .boxed_local()
    }
}

impl PreparedBatch for EnginePrepared {
    fn outcomes(&self) -> &[Result<OpOutcome, UserError>] {
        &self.prepared.outcomes
    }

    fn stages(&self) -> &[(Stage, Duration)] {
        &self.prepared.stages
    }

    fn commit(self: Box<Self>, record: Vec<u8>) -> LocalBoxFuture<'static, Result<Arc<IndexView>, IndexError>> {
        async move { Ok(Arc::new(self.engine.commit(self.prepared, record).await?)) }.boxed_local()
    }

    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async move { self.engine.abort(self.prepared).await }.boxed_local()
    }
}

impl From<EngineError> for IndexError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::User(error) => Self::User(error),
            EngineError::NoSpace => Self::OutOfSpace,
            EngineError::TooManyFiles => Self::TooManyFiles,
            EngineError::Gone | EngineError::Dropped => Self::Missing,
            EngineError::Left(_) => Self::Stopping(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}
