//! A control plane without sockets, cores or an engine, for tests: a runtime that polls until nothing moves, and indexes
//! that keep ids of documents in memory, survive a restart and can be stopped at each step.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{FutureExt, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use shards::engine::{Batch, BatchOp, IndexView, OpOutcome};
use shards::error::UserError;
use shards::fields::FieldsMap;
use shards::ids::{CoreId, Epoch};
use shards::runtime::{Nanos, Queue, Runtime, SideThreadError};
use shards::settings::Settings;
use shards::timestamp::Timestamp;
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;
use uuid::Uuid;

use super::Features;
use super::handle::ControlHandle;
use super::indexes::{IndexError, Indexes, Opened, PreparedBatch};
use super::message::{ControlAnswer, ControlError, ControlMesh, ControlQuestion, Selection};
use super::plane::{ControlConfig, ControlPlane};
use crate::tasks::batcher::Limits;
use crate::tasks::filter::{Filter, Scope};
use crate::tasks::task::{Content, Format, Method, NewTask, TaskUid};

/// Rounds without an answer after which a future is taken to wait for ever.
const IDLE_ROUNDS: usize = 200;

pub(crate) struct TestRuntime {
    disk: Rc<dyn Disk>,
    now: Cell<u64>,
    random: Cell<u64>,
    spawned: RefCell<Vec<LocalBoxFuture<'static, ()>>>,
    running: RefCell<FuturesUnordered<LocalBoxFuture<'static, ()>>>,
}

impl TestRuntime {
    /// Polls everything until `future` is done; `None` when it waits for what never comes.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..IDLE_ROUNDS {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            self.settle();
        }
        None
    }

    /// Polls what was spawned until nothing moves. A pool that was only interrupted wakes its caller.
    pub(crate) fn settle(&self) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut running = self.running.borrow_mut();
        loop {
            running.extend(self.spawned.borrow_mut().drain(..));
            let was_woken = woken.0.swap(false, Ordering::Relaxed);
            let ended = matches!(running.poll_next_unpin(&mut context), Poll::Ready(Some(())));
            let spawned = !self.spawned.borrow().is_empty();
            if !was_woken && !ended && !spawned && !woken.0.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Runtime for TestRuntime {
    fn core(&self) -> CoreId {
        CoreId(0)
    }

    fn core_count(&self) -> u16 {
        1
    }

    fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }

    fn unix_time(&self) -> Duration {
        self.now.set(self.now.get() + 1_000);
        Duration::from_nanos(self.now.get())
    }

    fn random_u64(&self) -> u64 {
        self.random.set(self.random.get() + 1);
        self.random.get()
    }

    fn spawn(&self, _: Queue, task: LocalBoxFuture<'static, ()>) {
        self.spawned.borrow_mut().push(task);
    }

    fn sleep(&self, _: Duration) -> LocalBoxFuture<'static, ()> {
        futures_lite::future::yield_now().boxed_local()
    }

    fn should_yield(&self) -> bool {
        true
    }

    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        futures_lite::future::yield_now().boxed_local()
    }

    fn disk(&self) -> Rc<dyn Disk> {
        self.disk.clone()
    }

    fn side_thread(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>> {
        job();
        async { Ok(()) }.boxed_local()
    }
}

/// Where work on an index stops for ever, as if the process had been killed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Nowhere,
    BeforeCreate,
    DuringPrepare,
    BeforeCommit,
    AfterCommit,
}

/// What survives a restart.
#[derive(Clone)]
pub(crate) struct World {
    disk: Rc<dyn Disk>,
    pub(crate) indexes: Rc<FakeIndexes>,
}

pub(crate) struct FakeIndexes {
    stored: RefCell<BTreeMap<Uuid, Stored>>,
    pub(crate) stop: Cell<Stop>,
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
    pub(crate) fn ids(&self, view: &IndexView) -> Vec<String> {
        self.stored.borrow()[&view.id].ids.clone()
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
                let before = ids.len();
                ids.retain(|id| !gone.contains(id));
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
pub(crate) struct FakeHandle(Rc<FakeIndexes>);

impl Indexes for FakeHandle {
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
                fields: Arc::new(FieldsMap::default()),
                created_at,
                updated_at: created_at,
                partitions: Arc::new([CoreId(0)]),
                documents: 0,
                field_distribution: Arc::default(),
                geo_points: 0,
                raw_bytes: 0,
                store_bytes: 0,
                layout: 0,
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

    fn compact(&self, _: Arc<IndexView>) -> LocalBoxFuture<'static, Result<(u64, u64), IndexError>> {
        async { Ok((8192, 4096)) }.boxed_local()
    }

    fn prepare(
        &self,
        view: Arc<IndexView>,
        batch: Batch,
    ) -> LocalBoxFuture<'static, Result<Box<dyn PreparedBatch>, IndexError>> {
        let fake = self.0.clone();
        async move {
            if fake.stop.get() == Stop::DuringPrepare {
                return pending().await;
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
                    BatchOp::DeleteIds(ids) => ids.iter().collect::<BTreeSet<_>>().len() as u64,
                    _ => 0,
                };
                outcomes.push(count.map(|documents| OpOutcome { documents, named }));
            }
            let mut view = IndexView::clone(&stored.view);
            view.primary_key = batch.primary_key.unwrap_or(key);
            view.settings = batch.settings.unwrap_or(view.settings);
            (view.documents, view.updated_at) = (stored.ids.len() as u64, batch.now);
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

    fn primary_key(&self) -> Option<&str> {
        self.stored.view.primary_key.as_deref()
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

/// The one core's way to itself.
#[derive(Default)]
struct Loop {
    plane: RefCell<Option<Rc<ControlPlane>>>,
    handle: RefCell<Option<ControlHandle>>,
}

impl ControlMesh for Rc<Loop> {
    fn core_count(&self) -> u16 {
        1
    }

    fn ask(
        &self,
        _: CoreId,
        question: ControlQuestion,
    ) -> LocalBoxFuture<'static, Result<ControlAnswer, ControlError>> {
        let (plane, handle) = (self.plane.borrow().clone(), self.handle.borrow().clone());
        async move {
            match (question, plane, handle) {
                (ControlQuestion::Publish(state), _, Some(handle)) => {
                    handle.publish(state);
                    Ok(ControlAnswer::Published)
                }
                (question, Some(plane), _) => plane.answer(question).await,
                _ => Err(ControlError::Unreachable),
            }
        }
        .boxed_local()
    }
}

/// One life of the instance.
pub(crate) struct Instance {
    pub(crate) runtime: Rc<TestRuntime>,
    pub(crate) plane: Rc<ControlPlane>,
    pub(crate) handle: ControlHandle,
    pub(crate) world: World,
}

impl World {
    pub(crate) fn new() -> Self {
        let indexes = FakeIndexes {
            stored: RefCell::default(),
            stop: Cell::new(Stop::Nowhere),
            commits: Cell::new(0),
            added: Cell::new(0),
        };
        Self { disk: Rc::new(MemDisk::default()), indexes: Rc::new(indexes) }
    }

    /// Starts the instance; with `process` false, tasks are accepted but not processed.
    pub(crate) fn start_with(&self, limits: Limits, process: bool) -> Instance {
        let runtime = Rc::new(TestRuntime {
            disk: self.disk.clone(),
            now: Cell::new(1_700_000_000_000_000_000),
            random: Cell::new(7),
            spawned: RefCell::default(),
            running: RefCell::default(),
        });
        let config = ControlConfig { root: "/data".into(), master_key: None, features: Features::default(), limits };
        let mesh = Rc::new(Loop::default());
        let indexes = Rc::new(FakeHandle(self.indexes.clone()));
        let opened = ControlPlane::open(runtime.clone(), Rc::new(mesh.clone()), indexes, config);
        let plane = runtime.run(opened).expect("opening ends").expect("opening succeeds");
        let handle = ControlHandle::new(Rc::new(mesh.clone()));
        handle.publish(plane.state());
        mesh.plane.replace(Some(plane.clone()));
        mesh.handle.replace(Some(handle.clone()));
        match process {
            true => plane.start(),
            false => plane.start_accepting(),
        }
        Instance { runtime, plane, handle, world: self.clone() }
    }

    pub(crate) fn start(&self) -> Instance {
        self.start_with(Limits { tasks_max: usize::MAX, payload_bytes_max: u64::MAX }, true)
    }
}

impl Instance {
    /// Accepts a task; its number.
    pub(crate) fn accept(&self, (content, payload): (Content, Option<&str>)) -> u32 {
        let new = NewTask { content, custom_metadata: None };
        let task = self.runtime.run(self.handle.register(new, payload.map(|payload| payload.as_bytes().to_vec())));
        task.expect("accepting ends").expect("accepting succeeds").uid.0
    }

    /// Accepts a cancelation or deletion of these tasks.
    pub(crate) fn select(&self, cancel: bool, uids: &[u32]) -> u32 {
        let filter = Filter { uids: Some(uids.iter().copied().collect()), ..Filter::default() };
        let selection = Selection { cancel, filter, query: "?uids".into(), scope: Scope::All, custom_metadata: None };
        let task = self.runtime.run(self.handle.register_selection(selection));
        task.expect("accepting ends").expect("accepting succeeds").uid.0
    }

    pub(crate) fn task(&self, uid: u32) -> Value {
        let body = self.runtime.run(self.handle.task(TaskUid(uid), Scope::All)).expect("reading ends");
        body.map_or(Value::Null, |body| serde_json::from_slice(&body).unwrap())
    }

    /// Status, batch and count of documents of each task.
    pub(crate) fn fates(&self, uids: std::ops::Range<u32>) -> Vec<String> {
        uids.map(|uid| {
            let task = self.task(uid);
            let details = &task["details"];
            let count = ["indexedDocuments", "deletedDocuments", "canceledTasks", "deletedTasks"]
                .iter()
                .find_map(|name| details.get(*name))
                .map_or(String::new(), |count| format!(" {count}"));
            format!("{}@{}{count}", task["status"].as_str().unwrap_or("none"), task["batchUid"])
        })
        .collect()
    }

    /// The ids of an index's documents; `None` without index.
    pub(crate) fn ids(&self, index: &str) -> Option<Vec<String>> {
        self.handle.state().index(index).map(|view| self.world.indexes.ids(view))
    }
}

/// What a test accepts: a task and its payload.
pub(crate) type New<'a> = (Content, Option<&'a str>);

/// Documents (a JSON array of objects) for an index.
pub(crate) fn add<'a>(index: &str, documents: &'a str) -> New<'a> {
    let received = serde_json::from_str::<Vec<Value>>(documents).unwrap().len() as u64;
    let content = Content::DocumentAddition {
        index: index.into(),
        format: Format::Json,
        method: Method::Replace,
        primary_key: None,
        may_create_index: true,
        skip_creation: false,
        received,
        payload_bytes: documents.len() as u64,
    };
    (content, Some(documents))
}

/// A deletion of these ids.
pub(crate) fn remove(index: &str, ids: &[&str]) -> New<'static> {
    let ids = ids.iter().map(|id| id.to_string()).collect();
    (Content::DocumentDeletion { index: index.into(), ids }, None)
}

/// A deletion of all documents.
pub(crate) fn clear(index: &str) -> New<'static> {
    (Content::DocumentClear { index: index.into() }, None)
}
