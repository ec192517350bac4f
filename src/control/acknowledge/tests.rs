//! Simulated cores of a leader whose remotes accept no connection and refuse none.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::{block_on, poll_once};
use futures_util::future::{FutureExt, LocalBoxFuture, join, join_all, pending, ready};
use serde_json::Value;
use shards::error::UserError;
use shards::mesh::Mesh;
use shards::runtime::{Nanos, Queue, Runtime, SimCluster, SimConfig, SimEnd};
use storage_engine::io::mem::MemDisk;
use uuid::Uuid;

use super::*;
use crate::api::error::ApiError;
use crate::control::features::FeaturesPatch;
use crate::control::handle::{CONTROL_CORE, ControlHandle};
use crate::control::message::{ControlAnswer, ControlChange, ControlMesh, ListQuery};
use crate::control::plane::CHANGES_WAITING_MAX;
use crate::control::testing::{World, open_plane};
use crate::network::deliveries::WAITING_WRITES_MAX;
use crate::network::task::TaskNetwork;
use crate::network::topology::TopologyChange;
use crate::network::{Network, Remote};
use crate::outgoing::{Socket, Sockets};
use crate::tasks::filter::{Filter, Page, Scope};
use crate::tasks::task::{Content, NewTask, Task};

/// Questions that a core may have open at another.
const CREDITS: u16 = 4;
/// Writes at once.
const WRITES: u64 = 24;
/// A time in which no remote is given up.
const SHORT: Duration = Duration::from_secs(2);

type TestMesh = Mesh<ControlQuestion, Result<ControlAnswer, ControlError>>;

struct Way(TestMesh, u16);

impl ControlMesh for Way {
    fn core_count(&self) -> u16 {
        self.1
    }

    fn ask(
        &self,
        to: CoreId,
        question: ControlQuestion,
    ) -> LocalBoxFuture<'static, Result<ControlAnswer, ControlError>> {
        let asked = self.0.ask(to, question);
        async move { asked.await.unwrap_or(Err(ControlError::Unreachable)) }.boxed_local()
    }
}

/// Packets into a black hole.
struct Silence;

impl Sockets for Silence {
    fn resolve(&self, _: String, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        ready(Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])).boxed_local()
    }

    fn connect(&self, _: SocketAddr) -> LocalBoxFuture<'static, io::Result<Box<dyn Socket>>> {
        pending().boxed_local()
    }
}

/// One core of the leader, as a test of it sees it.
struct Core {
    runtime: Rc<dyn Runtime>,
    handle: ControlHandle,
}

type Plane = Rc<RefCell<Option<Rc<ControlPlane>>>>;

/// Serves as [`crate::app`] does; the leader of these instances on core 0.
async fn core_of(runtime: Rc<dyn Runtime>, mesh: TestMesh, remotes: &[&str]) -> Core {
    let way = Rc::new(Way(mesh.clone(), runtime.core_count()));
    let (handle, plane) = (ControlHandle::new(way.clone()), Plane::default());
    let (hears, answers) = (handle.clone(), plane.clone());
    mesh.serve(Rc::new(move |from, question| {
        let (handle, plane) = (hears.clone(), answers.borrow().clone());
        async move {
            match (question, plane) {
                (ControlQuestion::Publish(state), _) => handle.publish(state),
                (ControlQuestion::Settled(verdicts), _) => handle.settle(verdicts),
                (question, Some(plane)) => return plane.answer(from, question).await,
                _ => return Err(ControlError::Unreachable),
            }
            Ok(ControlAnswer::Heard)
        }
        .boxed_local()
    }));
    if runtime.core() == CONTROL_CORE {
        let opened = open_plane(runtime.clone(), way, Rc::new(Silence)).await;
        opened.use_network(Arc::new(led(remotes)));
        opened.start_accepting();
        plane.replace(Some(opened.clone()));
        opened.publish(|_| {}).await;
    } else {
        let (handle, ended) = (handle.clone(), mesh.ended(CONTROL_CORE));
        runtime.spawn(Queue::Search, ended.map(move |()| handle.abandon()).boxed_local());
    }
    handle.opened().await;
    Core { runtime, handle }
}

/// A network that the first of these instances leads.
fn led(remotes: &[&str]) -> Network {
    let remote = |name: &&str| ((*name).to_owned(), Remote { url: format!("http://{name}:7700"), ..Remote::default() });
    let leader = remotes.first().map(|name| (*name).to_owned());
    let remotes = remotes.iter().map(remote).collect();
    Network { own_name: leader.clone(), leader, remotes, version: Uuid::max(), ..Network::default() }
}

impl Core {
    async fn write(&self, number: u64) -> Result<Task, ApiError> {
        let content = Content::IndexCreation { index: format!("i{number}"), primary_key: None };
        self.handle.register(content.into(), None).await
    }

    async fn writes(&self) -> Vec<Result<Task, &'static str>> {
        let writes = join_all((0..WRITES).map(|number| self.write(number))).await;
        writes.into_iter().map(|task| task.map_err(|error| error.code.name())).collect()
    }

    /// How many tasks there are.
    async fn task_count(&self) -> u64 {
        let query = ListQuery { filter: Filter::default(), page: Page::default(), scope: Scope::All };
        let body = self.handle.tasks(query).await.unwrap_or_default();
        serde_json::from_slice(&body).map_or(0, |body: Value| body["total"].as_u64().unwrap_or(0))
    }

    /// Asks until all writes of both cores are tasks, then some more.
    async fn others_get_through(&self) {
        while self.task_count().await < 2 * WRITES {
            self.runtime.sleep(Duration::from_millis(1)).await;
        }
        assert!(join_all((0..100).map(|_| self.handle.status())).await.iter().all(Result::is_ok));
    }
}

/// Writes on both cores, and questions beside them.
fn both_write(
    remotes: &'static [&'static str],
    error: Option<&'static str>,
) -> impl Fn(Rc<dyn Runtime>, TestMesh) -> LocalBoxFuture<'static, ()> + Clone {
    move |runtime, mesh| {
        async move {
            let core = core_of(runtime, mesh, remotes).await;
            let began = core.runtime.now();
            let others = async {
                core.others_get_through().await;
                core.runtime.now()
            };
            let (writes, others_at) = join(core.writes(), others).await;
            assert!(others_at.since(began) < SHORT, "questions waited for the writes");
            assert!(core.runtime.now().since(began) > Duration::from_secs(20), "a write did not wait for the remote");
            for write in writes {
                assert_eq!(write.err(), error);
            }
            // The other core may still need this one.
            core.runtime.sleep(SHORT).await;
        }
        .boxed_local()
    }
}

fn simulated(
    seed: u64,
    start: impl Fn(Rc<dyn Runtime>, TestMesh) -> LocalBoxFuture<'static, ()> + Clone + 'static,
) -> SimEnd {
    let mut config = SimConfig::new(seed, 2, Rc::new(|_| Rc::new(MemDisk::default())));
    config.in_flight_max = CREDITS;
    SimCluster::new(&config, start).run(5_000_000, Nanos(u64::MAX))
}

/// A write kept a credit of its core until each remote had it: a few hundred of them, and a remote that says nothing, kept
/// every search of that core waiting with them.
#[test]
fn questions_get_through_while_more_writes_wait_than_there_are_credits() {
    for seed in 0..10 {
        assert_eq!(simulated(seed, both_write(&["a", "b"], None)), SimEnd::Finished(Vec::new()), "seed {seed}");
        let too_few = Some("remote_could_not_send_request");
        let end = simulated(seed, both_write(&["a", "b", "c"], too_few));
        assert_eq!(end, SimEnd::Finished(Vec::new()), "seed {seed}");
    }
}

/// Writes whose questions are answered are not failed with the open questions when the control core ends.
#[test]
fn the_end_of_the_control_core_ends_the_wait() {
    let start = |runtime: Rc<dyn Runtime>, mesh| {
        async move {
            let core = core_of(runtime, mesh, &["a", "b"]).await;
            if core.runtime.core() == CONTROL_CORE {
                return core.runtime.sleep(SHORT).await;
            }
            let began = core.runtime.now();
            for write in core.writes().await {
                assert_eq!(write.err(), Some("internal"));
            }
            let waited = core.runtime.now().since(began);
            assert!(waited > SHORT / 2 && waited < 2 * SHORT, "{waited:?}");
        }
        .boxed_local()
    };
    for seed in 0..10 {
        assert_eq!(simulated(seed, start), SimEnd::Finished(Vec::new()), "seed {seed}");
    }
}

/// Questions and answers have rings of their own, so that either may be seen first.
#[test]
fn a_verdict_may_overtake_the_answer() {
    let awaited: Rc<Awaited> = Rc::default();
    let (first, second, gone) = (awaited.enter(), awaited.enter(), awaited.enter());
    let refused = UserError::new("not_leader", "another leads");
    let verdict = |place: &Place, result| Verdict { ticket: place.ticket(), result };
    let verdicts = vec![verdict(&second, Err(refused.clone().into())), verdict(&gone, Ok(())), verdict(&first, Ok(()))];
    drop(gone);
    awaited.settle(verdicts);
    assert_eq!(block_on(first.verdict()), Ok(()));
    assert_eq!(block_on(second.verdict()), Err(refused.into()));
    let mut waits = Box::pin(awaited.enter().verdict());
    assert_eq!(block_on(poll_once(&mut waits)), None);
    drop(waits);
    assert!(awaited.open.borrow().is_empty());
}

/// What waits for a silent remote is bounded; the change that takes the remote out is not kept out with the rest.
#[test]
fn too_many_waiting_writes_are_refused() {
    let instance = World::new().start();
    instance.plane.use_network(Arc::new(led(&["a", "b"])));
    (0..WAITING_WRITES_MAX as u32).for_each(|uid| instance.plane.outbox.hold(1_000_000 + uid));
    let write = |content: Content| {
        let registered = instance.runtime.run(instance.handle.register(content.into(), None)).expect("it ends");
        registered.map(|task| task.uid.0).map_err(|error| (error.status, error.code.name()))
    };
    let busy = Err((503, "too_many_search_requests"));
    assert_eq!(write(Content::IndexDeletion { index: "a".into() }), busy);
    // It stays here, so it waits for nobody.
    assert_eq!(write(Content::DumpCreation), Ok(0));
    let change = TopologyChange { before: led(&["a", "b"]), after: led(&["a"]), ..TopologyChange::default() };
    let mut change = NewTask::from(Content::NetworkTopologyChange { change: Box::new(change) });
    change.network = Some(TaskNetwork::Leader { remote_tasks: BTreeMap::new(), network_version: Uuid::max() });
    assert_eq!(instance.plane.outbox.check_room(&change, 0), Ok(()));
}

/// A change kept a credit of its core until the store had it, also when its client had gone: a few hundred of them, and a disk
/// that was full, kept every search of that core waiting with them.
#[test]
fn changes_hold_no_question_open_and_too_many_are_refused() {
    let instance = World::new().start();
    let place = Rc::<Awaited>::default().enter();
    let ask = || {
        let change = ControlChange::SetFeatures(FeaturesPatch::default());
        let asked = instance.plane.answer(CoreId(0), ControlQuestion::Change(change, place.ticket()));
        block_on(poll_once(Box::pin(asked))).expect("the answer waits for nothing")
    };
    for _ in 0..CHANGES_WAITING_MAX {
        assert!(matches!(ask(), Ok(ControlAnswer::UnderWay)));
    }
    assert!(matches!(ask(), Err(ControlError::User(error)) if error.code == "too_many_search_requests"));
    instance.runtime.settle();
    assert!(matches!(ask(), Ok(ControlAnswer::UnderWay)));
    let change = ControlChange::SetFeatures(FeaturesPatch::default());
    assert!(instance.runtime.run(instance.handle.change(change)).is_some_and(|changed| changed.is_ok()));
}
