//! Indexes that know only the IDs of their documents.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture};
use serde_json::Value;
use shards::engine::{Batch, BatchOp, DocumentScan, DocumentsPage, DocumentsQuery, IndexView, OpOutcome, StoreBytes};
use shards::error::UserError;
use shards::fields::FieldsMap;
use shards::ids::{CoreId, Epoch};
use shards::settings::Settings;
use shards::stages::{Stage, StageProgress};
use shards::text::TextTokenizer;
use shards::timestamp::Timestamp;
use uuid::Uuid;

use crate::control::inbox::Signal;
use crate::control::indexes::{IndexError, Indexes, Opened, PreparedBatch, Scanned};

/// Where work on an index stops for ever, as if the process had been killed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Nowhere,
    BeforeCreate,
    DuringPrepare,
    BeforeCommit,
    AfterCommit,
}

#[derive(Clone)]
pub(crate) struct FakeIndexes {
    stored: RefCell<BTreeMap<Uuid, Stored>>,
    stop: Cell<Stop>,
    /// Raised when `stop` changes.
    moved: Rc<Signal>,
    /// What the next work on an index fails with.
    pub(crate) failure: RefCell<Option<IndexError>>,
    was_watched: Cell<bool>,
    /// Commits of all indexes.
    pub(crate) commits: Cell<u32>,
    /// Documents added by all commits; one that is added twice counts twice.
    pub(crate) added: Cell<u64>,
}

#[derive(Clone)]
struct Stored {
    view: Arc<IndexView>,
    ids: Vec<String>,
    record: Option<Vec<u8>>,
}

impl FakeIndexes {
    pub(super) fn new() -> Self {
        Self {
            stored: RefCell::default(),
            stop: Cell::new(Stop::Nowhere),
            moved: Rc::default(),
            failure: RefCell::default(),
            was_watched: Cell::new(false),
            commits: Cell::new(0),
            added: Cell::new(0),
        }
    }

    pub(crate) fn ids(&self, view: &IndexView) -> Vec<String> {
        self.stored.borrow()[&view.id].ids.clone()
    }

    /// Says where to stop from now on; work that stands in `prepare` goes on.
    pub(crate) fn set_stop(&self, stop: Stop) {
        self.stop.set(stop);
        self.moved.raise();
    }

    pub(crate) fn len(&self) -> usize {
        self.stored.borrow().len()
    }

    fn apply(
        view: &IndexView,
        ids: &mut Vec<String>,
        operation: &BatchOp,
        key: &mut Option<String>,
    ) -> Result<u64, UserError> {
        match operation {
            BatchOp::Add { payload, primary_key, .. } => {
                let documents: Vec<Value> = serde_json::from_slice(payload).unwrap();
                let named = primary_key.clone().unwrap_or_else(|| "id".into());
                if view.primary_key.as_ref().is_some_and(|old| primary_key.as_ref().is_some_and(|new| old != new)) {
                    return Err(UserError::new("index_primary_key_already_exists", "there is one"));
                }
                let found: Option<Vec<String>> =
                    documents.iter().map(|d| d.get(&named).map(Value::to_string)).collect();
                let found = found.ok_or_else(|| UserError::new("missing_document_id", "no id"))?;
                for id in &found {
                    if !ids.contains(id) {
                        ids.push(id.clone());
                    }
                }
                key.get_or_insert(named);
                Ok(found.len() as u64)
            }
            BatchOp::DeleteIds(gone) => {
                let (before, gone) = (ids.len(), gone.iter().collect::<BTreeSet<_>>());
                ids.retain(|id| !gone.contains(id.as_str()));
                Ok((before - ids.len()) as u64)
            }
            BatchOp::DeleteByFilter(filter) if *filter == "nope = 1" => {
                Err(UserError::new("invalid_document_filter", "not filterable"))
            }
            _ => Ok(std::mem::take(ids).len() as u64),
        }
    }
}

/// The trait is on a handle, so that futures can own what they work on.
pub(super) struct FakeHandle(pub(super) Rc<FakeIndexes>);

impl Indexes for FakeHandle {
    /// Answers once: whoever asks again and again would never come to rest.
    fn progress(&self, _: Arc<IndexView>) -> LocalBoxFuture<'static, Option<StageProgress>> {
        if self.0.was_watched.replace(true) {
            return pending().boxed_local();
        }
        async { Some(StageProgress { stage: Stage::Applying, finished: 1, total: 4 }) }.boxed_local()
    }

    fn create(&self, id: Uuid, created_at: Timestamp) -> LocalBoxFuture<'static, Result<Arc<IndexView>, IndexError>> {
        let fake = self.0.clone();
        async move {
            if fake.stop.get() == Stop::BeforeCreate {
                return pending().await;
            }
            let view = Arc::new(IndexView {
                id,
                epoch: Epoch(0),
                primary_key: None,
                settings: Arc::new(Settings::default()),
                tokenizer: Arc::new(TextTokenizer::new(&Settings::default())),
                fields: Arc::new(FieldsMap::default()),
                created_at,
                updated_at: created_at,
                partitions: Arc::new([CoreId(0)]),
                documents: 0,
                field_distribution: Arc::default(),
                geo_points: 0,
                raw_bytes: 0,
                store_bytes: StoreBytes::default(),
                layout: 0,
                embedders: Arc::default(),
                vectors: shards::vectors::VectorSums::default(),
            });
            let stored = Stored { view: view.clone(), ids: Vec::new(), record: None };
            fake.stored.borrow_mut().insert(id, stored);
            Ok(view)
        }
        .boxed_local()
    }

    fn open(&self, id: Uuid) -> LocalBoxFuture<'static, Result<Opened, IndexError>> {
        let found = self.0.stored.borrow().get(&id).cloned();
        async move { found.map(|stored| (stored.view, stored.record)).ok_or(IndexError::Missing) }.boxed_local()
    }

    fn remove(&self, id: Uuid) -> LocalBoxFuture<'static, Result<(), IndexError>> {
        self.0.stored.borrow_mut().remove(&id);
        async { Ok(()) }.boxed_local()
    }

    fn folder(&self, view: &IndexView) -> PathBuf {
        PathBuf::from("/data/indexes").join(view.id.to_string())
    }

    fn compact(&self, _: Arc<IndexView>) -> LocalBoxFuture<'static, Result<(u64, u64), IndexError>> {
        async { Ok((8192, 4096)) }.boxed_local()
    }

    fn documents(
        &self,
        _: Arc<IndexView>,
        _: DocumentsQuery,
    ) -> LocalBoxFuture<'static, Result<DocumentsPage, IndexError>> {
        async { Ok(DocumentsPage::default()) }.boxed_local()
    }

    fn scan(&self, scan: DocumentScan) -> LocalBoxFuture<'static, Result<Scanned, IndexError>> {
        async { Ok((Vec::new(), scan)) }.boxed_local()
    }

    fn prepare(
        &self,
        view: Arc<IndexView>,
        batch: Batch,
    ) -> LocalBoxFuture<'static, Result<Box<dyn PreparedBatch>, IndexError>> {
        let fake = self.0.clone();
        async move {
            while fake.stop.get() == Stop::DuringPrepare {
                fake.moved.wait().await;
            }
            if let Some(error) = fake.failure.take() {
                return Err(error);
            }
            let mut stored = fake.stored.borrow()[&view.id].clone();
            let mut key = stored.view.primary_key.clone();
            let (mut outcomes, mut added) = (Vec::new(), 0);
            for operation in &batch.ops {
                let count = FakeIndexes::apply(&stored.view, &mut stored.ids, operation, &mut key);
                if let (BatchOp::Add { .. }, Ok(count)) = (operation, &count) {
                    added += count;
                }
                let named = match operation {
                    BatchOp::DeleteIds(ids) if key.is_some() => ids.iter().collect::<BTreeSet<_>>().len() as u64,
                    _ => 0,
                };
                outcomes.push(count.map(|documents| OpOutcome { documents, named }));
            }
            let mut view = IndexView::clone(&stored.view);
            view.primary_key = batch.primary_key.unwrap_or(key);
            if let Some(key) = &view.primary_key {
                Arc::make_mut(&mut view.fields).insert(key);
            }
            view.settings = batch.settings.unwrap_or(view.settings);
            view.documents = stored.ids.len() as u64;
            view.updated_at = batch.updated_at.unwrap_or(view.updated_at);
            stored.view = Arc::new(view);
            Ok(Box::new(FakePrepared { fake, outcomes, stored, added }) as Box<dyn PreparedBatch>)
        }
        .boxed_local()
    }
}

struct FakePrepared {
    fake: Rc<FakeIndexes>,
    outcomes: Vec<Result<OpOutcome, UserError>>,
    stored: Stored,
    added: u64,
}

impl PreparedBatch for FakePrepared {
    fn outcomes(&self) -> &[Result<OpOutcome, UserError>] {
        &self.outcomes
    }

    fn stages(&self) -> &[(Stage, Duration)] {
        const STAGES: [(Stage, Duration); 1] = [(Stage::Reading, Duration::from_millis(3))];
        &STAGES
    }

    fn commit(mut self: Box<Self>, record: Vec<u8>) -> LocalBoxFuture<'static, Result<Arc<IndexView>, IndexError>> {
        async move {
            if self.fake.stop.get() == Stop::BeforeCommit {
                return pending().await;
            }
            let view = self.stored.view.clone();
            self.stored.record = Some(record);
            self.fake.stored.borrow_mut().insert(view.id, self.stored);
            self.fake.commits.set(self.fake.commits.get() + 1);
            self.fake.added.set(self.fake.added.get() + self.added);
            if self.fake.stop.get() == Stop::AfterCommit {
                return pending().await;
            }
            Ok(view)
        }
        .boxed_local()
    }

    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async {}.boxed_local()
    }
}
