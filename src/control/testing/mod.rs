//! A control plane for tests, without sockets, cores or an engine: a runtime that polls until nothing makes progress, a disk that
//! can be cut off at any operation, and indexes that keep document IDs in memory and can be stopped at each step.

mod disk;
mod indexes;
mod runtime;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use serde_json::Value;
use shards::ids::CoreId;
use shards::runtime::Runtime;
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::Features;
use super::handle::{CONTROL_CORE, ControlHandle};
use super::message::{ControlAnswer, ControlError, ControlMesh, ControlQuestion, Selection};
use super::plane::{ControlConfig, ControlPlane};
use crate::network::deliveries::Patience;
use crate::options::values::AllowedNetworks;
use crate::outgoing::{AddressPolicy, Client, Socket, Sockets};
use crate::tasks::batcher::Limits;
use crate::tasks::filter::{Filter, Scope};
use crate::tasks::task::{Content, Format, Method, NewTask, Numbering, TaskUid};

pub(crate) use disk::Fuse;
use disk::FusedDisk;
use indexes::FakeHandle;
pub(crate) use indexes::{FakeIndexes, Stop};
pub(crate) use runtime::TestRuntime;

/// No bounds on a batch.
pub(crate) const NO_LIMITS: Limits = Limits { tasks_max: usize::MAX, payload_bytes_max: u64::MAX };

/// What survives a restart.
#[derive(Clone)]
pub(crate) struct World {
    disk: Rc<dyn Disk>,
    pub(crate) indexes: Rc<FakeIndexes>,
}

/// Where nobody can be reached.
struct NoNetwork;

impl Sockets for NoNetwork {
    fn resolve(&self, _: String, _: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        async { Err(io::ErrorKind::NetworkUnreachable.into()) }.boxed_local()
    }

    fn connect(&self, _: SocketAddr) -> LocalBoxFuture<'static, io::Result<Box<dyn Socket>>> {
        async { Err(io::ErrorKind::NetworkUnreachable.into()) }.boxed_local()
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
                (ControlQuestion::Settled(verdicts), _, Some(handle)) => {
                    handle.settle(verdicts);
                    Ok(ControlAnswer::Heard)
                }
                (question, Some(plane), _) => plane.answer(CONTROL_CORE, question).await,
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
        Self { disk: Rc::new(MemDisk::default()), indexes: Rc::new(FakeIndexes::new()) }
    }

    /// The same world, whose disk is cut off when the fuse is burnt.
    pub(crate) fn fused(&self, fuse: &Fuse) -> Self {
        let disk = Rc::new(FusedDisk { disk: self.disk.clone(), fuse: fuse.clone() });
        Self { disk, indexes: self.indexes.clone() }
    }

    /// A copy of this world on another disk.
    pub(crate) fn on(&self, disk: Rc<dyn Disk>) -> Self {
        Self { disk, indexes: Rc::new(FakeIndexes::clone(&self.indexes)) }
    }

    /// Starts the instance; with `process` false, tasks are accepted but not processed. `None` when the disk fails.
    pub(crate) fn try_start(&self, limits: Limits, process: bool) -> Option<Instance> {
        self.try_start_bounded(limits, process, None)
    }

    /// As [`Self::try_start`], with a bound on the tasks that are kept.
    pub(crate) fn try_start_bounded(&self, limits: Limits, process: bool, tasks_max: Option<u64>) -> Option<Instance> {
        let runtime = Rc::new(TestRuntime::new(self.disk.clone()));
        let config = config(limits, tasks_max);
        let mesh = Rc::new(Loop::default());
        let indexes = Rc::new(FakeHandle(self.indexes.clone()));
        let client = Client::new(runtime.clone(), Rc::new(NoNetwork), AddressPolicy::default());
        let opened = ControlPlane::open(runtime.clone(), Rc::new(mesh.clone()), indexes, config, client);
        let plane = runtime.run(opened)?.ok()?;
        let handle = ControlHandle::new(Rc::new(mesh.clone()));
        handle.publish(plane.state());
        mesh.plane.replace(Some(plane.clone()));
        mesh.handle.replace(Some(handle.clone()));
        match process {
            true => plane.start(),
            false => plane.start_accepting(),
        }
        Some(Instance { runtime, plane, handle, world: self.clone() })
    }

    pub(crate) fn start_with(&self, limits: Limits, process: bool) -> Instance {
        self.try_start(limits, process).expect("opening ends")
    }

    pub(crate) fn start(&self) -> Instance {
        self.start_with(NO_LIMITS, true)
    }
}

fn config(limits: Limits, tasks_max: Option<u64>) -> ControlConfig {
    ControlConfig {
        root: "/data".into(),
        master_key: None,
        webhook: None,
        export_payload_bytes: 1 << 20,
        features: Features::default(),
        limits,
        dump_dir: "/dumps".into(),
        snapshot_dir: "/snapshots".into(),
        bucket: None,
        imported: false,
        patience: Patience::default(),
        tasks_max,
    }
}

/// The control plane of a core that is simulated, not started; it reaches other instances by `sockets`.
pub(crate) async fn open_plane(
    runtime: Rc<dyn Runtime>,
    mesh: Rc<dyn ControlMesh>,
    sockets: Rc<dyn Sockets>,
) -> Rc<ControlPlane> {
    let indexes = Rc::new(FakeHandle(Rc::new(FakeIndexes::new())));
    let client = Client::new(runtime.clone(), sockets, AddressPolicy::new(AllowedNetworks::Any));
    let opened = ControlPlane::open(runtime, mesh, indexes, config(NO_LIMITS, None), client).await;
    opened.expect("the disk is empty")
}

impl Instance {
    /// Accepts a task; its number.
    pub(crate) fn accept(&self, new: New<'_>) -> u32 {
        self.try_accept(new).expect("accepting ends")
    }

    /// As [`Self::accept`]; `None` when the disk fails.
    pub(crate) fn try_accept(&self, (content, payload): New<'_>) -> Option<u32> {
        let new = NewTask::from(content);
        let task = self.runtime.run(self.handle.register(new, payload.map(|payload| payload.as_bytes().to_vec())));
        Some(task?.ok()?.uid.0)
    }

    /// Accepts a cancelation or deletion of these tasks.
    pub(crate) fn select(&self, cancel: bool, uids: &[u32]) -> u32 {
        let filter = Filter { uids: Some(uids.iter().copied().collect()), ..Filter::default() };
        let selection = Selection {
            cancel,
            filter,
            query: "?uids".into(),
            scope: Scope::All,
            custom_metadata: None,
            numbering: Numbering::default(),
        };
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
    (Content::DocumentDeletion { index: index.into(), ids: ids.iter().collect() }, None)
}

/// A deletion of all documents.
pub(crate) fn clear(index: &str) -> New<'static> {
    (Content::DocumentClear { index: index.into() }, None)
}
