//! The control plane: the single writer, on core 0.
//!
//! Four loops share it, one of each kind: accepting tasks (`register`), processing them (`tasks::worker`), committing (`store`),
//! and changes that need no task ([`ControlPlane::run_changes`]). They never hold a borrow across an await; state that must not
//! change in between is changed by one loop only.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select};
use roaring::RoaringBitmap;
use shards::engine::IndexView;
use shards::error::UserError;
use shards::ids::CoreId;
use shards::runtime::{Queue as RunQueue, Runtime};
use shards::timestamp::Timestamp;
use uuid::Uuid;

use super::acknowledge::{Asker, Verdict, Verdicts};
use super::features::Features;
use super::inbox::{Inbox, Signal};
use super::indexes::SharedIndexes;
use super::message::{ControlAnswer, ControlChange, ControlError, ControlMesh, ControlQuestion, ControlStatus};
use super::register::{Registration, What};
use super::state::{ControlState, IndexMap};
use super::storage::record::IndexEntry;
use super::storage::store::ControlStore;
use super::storage::tasklog::TaskLog;
use crate::network::Network;
use crate::network::admission::Origins;
use crate::network::change::Change;
use crate::network::deliveries::{Outbox, Patience};
use crate::network::routing::Routing;
use crate::outgoing::Client;
use crate::snapshots::s3::SnapshotBucket;
use crate::tasks::batch::{Batch, EmbedderRequests, Progress};
use crate::tasks::batcher::Limits;
use crate::tasks::batches::Batches;
use crate::tasks::queue::Queue;
use crate::webhooks::{Deliveries, Webhook};

/// How often a change of the network under way is looked at.
const CHANGE_LOOK: Duration = Duration::from_millis(300);

/// Changes that may wait at once, also those whose clients have gone; each holds what it sets.
pub(super) const CHANGES_WAITING_MAX: usize = 1024;

/// How the control plane is set up.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// The folder of the data.
    pub root: PathBuf,
    /// The master key, when there is one.
    pub master_key: Option<String>,
    /// The webhook of the command line.
    pub webhook: Option<Webhook>,
    /// Bytes of documents in one request of an export that names no size.
    pub export_payload_bytes: u64,
    /// Switches that the command line turns on at each start.
    pub features: Features,
    /// How much one batch may hold.
    pub limits: Limits,
    /// The folder of dumps.
    pub dump_dir: PathBuf,
    /// The folder of snapshots.
    pub snapshot_dir: PathBuf,
    /// The bucket that takes the snapshots instead of that folder.
    pub bucket: Option<Rc<SnapshotBucket>>,
    /// The data was imported just now: its keys are as they came, even if that is none.
    pub imported: bool,
    /// How long other instances may take to hear of a task.
    pub patience: Patience,
    /// From this many tasks on, the oldest finished ones are forgotten; `None`: never.
    pub tasks_max: Option<u64>,
}

/// The control plane.
pub struct ControlPlane {
    pub(crate) runtime: Rc<dyn Runtime>,
    pub(crate) mesh: Rc<dyn ControlMesh>,
    pub(crate) indexes: SharedIndexes,
    pub(crate) store: Rc<ControlStore>,
    pub(crate) log: TaskLog,
    pub(crate) config: ControlConfig,
    pub(crate) queue: RefCell<Queue>,
    pub(crate) batches: RefCell<Batches>,
    pub(crate) processing: RefCell<Option<Processing>>,
    /// The batch that ended last: shown from here while its record is on its way to the store.
    pub(crate) ended: RefCell<Option<Batch>>,
    /// Where each index lies, as the control store has it.
    pub(crate) entries: RefCell<BTreeMap<String, IndexEntry>>,
    /// The number of the batch after the last that ended.
    pub(crate) next_batch: Cell<u32>,
    pub(super) next_task: Cell<u32>,
    pub(super) last_enqueued_at: Cell<Timestamp>,
    /// Something waits in the queue.
    pub(crate) work: Signal,
    /// The batch in progress is to stop.
    pub(crate) interrupt: Signal,
    pub(super) registrations: Inbox<Registration>,
    pub(super) verdicts: Verdicts,
    pub(super) changes: Inbox<PendingChange>,
    /// How many of them have no answer yet.
    pub(super) changes_waiting: Cell<usize>,
    pub(super) state: RefCell<Arc<ControlState>>,
    /// The way to other servers.
    pub(crate) outgoing: Client,
    /// What webhooks are still to be told.
    pub(crate) deliveries: Deliveries,
    /// The network that the next task is accepted under.
    pub(crate) network: RefCell<Arc<Network>>,
    /// The version of a network that is being made durable without a task; nil otherwise.
    pub(crate) network_under_way: Cell<Uuid>,
    /// Tasks on their way to other instances.
    pub(crate) outbox: Outbox,
    /// The change of the network under way.
    pub(crate) change: RefCell<Option<Change>>,
    /// Whether it is time to look how others fare with it.
    pub(crate) change_tick: Cell<bool>,
    /// A change is under way that was not before.
    pub(crate) change_found: Signal,
    /// Tasks that leaders have sent.
    pub(crate) origins: RefCell<BTreeMap<String, Origins>>,
    /// Waiting tasks for a network that is not known here yet.
    pub(crate) ahead: RefCell<RoaringBitmap>,
    /// Ended tasks that were on their way to others when the instance stopped.
    pub(super) undelivered: RefCell<RoaringBitmap>,
}

/// The batch in progress.
pub struct Processing {
    /// Its record so far.
    pub batch: Batch,
    /// How far it is.
    pub progress: Progress,
    /// Whether requests to embedding services are its own. Before it works on an index, they are those of an interrupted batch
    /// whose work has not ended.
    pub counts_requests: bool,
}

pub(super) struct PendingChange {
    change: ControlChange,
    asker: Asker,
}

impl ControlPlane {
    /// Starts the loops. Call it once, when every core can be asked.
    pub fn start(self: &Rc<Self>) {
        self.start_accepting();
        self.resume_network(&self.undelivered.take());
        let plane = self.clone();
        self.runtime.spawn(RunQueue::Indexing, Box::pin(async move { plane.run_change_ticks().await }));
        self.runtime.spawn(RunQueue::Indexing, Box::pin(crate::tasks::worker::run(self.clone())));
        self.runtime.spawn(RunQueue::Upkeep, Box::pin(crate::webhooks::run(self.clone())));
        self.work.raise();
    }

    /// Starts the loops that accept tasks and changes, but not the one that processes tasks.
    pub(super) fn start_accepting(self: &Rc<Self>) {
        let plane = self.clone();
        self.runtime.spawn(RunQueue::Indexing, Box::pin(plane.run_registrations()));
        for core in (0..self.mesh.core_count()).map(CoreId) {
            let plane = self.clone();
            self.runtime.spawn(RunQueue::Indexing, Box::pin(async move { plane.run_verdicts(core).await }));
        }
        let plane = self.clone();
        self.runtime.spawn(RunQueue::Indexing, Box::pin(async move { plane.run_changes().await }));
    }

    /// Has the worker look at a change of the network now and then, as long as there is one; never returns.
    async fn run_change_ticks(&self) {
        loop {
            self.change_found.wait().await;
            while self.change.borrow().is_some() {
                self.runtime.sleep(CHANGE_LOOK).await;
                self.change_tick.set(true);
                self.work.raise();
            }
        }
    }

    /// The newest state.
    pub fn state(&self) -> Arc<ControlState> {
        self.state.borrow().clone()
    }

    /// Answers a question of a core to the control core.
    ///
    /// # Errors
    /// Those of the question.
    pub async fn answer(
        self: &Rc<Self>,
        from: CoreId,
        question: ControlQuestion,
    ) -> Result<ControlAnswer, ControlError> {
        Ok(match question {
            ControlQuestion::Register(new, payload, ticket) => {
                self.register(What::Task(new, payload), (from, ticket)).await?
            }
            ControlQuestion::RegisterSelection(selection, ticket) => {
                self.register(What::Selection(selection), (from, ticket)).await?
            }
            ControlQuestion::Change(change, ticket) => {
                self.take_change(change, (from, ticket))?;
                ControlAnswer::UnderWay
            }
            ControlQuestion::Network(version, message) => {
                self.hear(version, message).await?;
                ControlAnswer::Changed
            }
            ControlQuestion::MayImport(version, name) => {
                self.may_import(version, &name)?;
                ControlAnswer::Changed
            }
            ControlQuestion::Tasks(query) => ControlAnswer::Json(self.tasks_json(*query).await?),
            ControlQuestion::Task(uid, scope) => ControlAnswer::Json(self.task_json(uid, &scope)?),
            ControlQuestion::Payload(uid, scope) => ControlAnswer::Payload(self.payload(uid, &scope).await?),
            ControlQuestion::Batches(query) => ControlAnswer::Json(self.batches_json(*query).await?),
            ControlQuestion::Batch(uid, scope) => ControlAnswer::Json(self.batch_json(uid, &scope)?),
            ControlQuestion::Status => ControlAnswer::Status(self.status()),
            ControlQuestion::Figures => ControlAnswer::Figures(Box::new(self.figures())),
            ControlQuestion::EmbedderRequests(requests) => {
                self.count_requests(requests);
                ControlAnswer::Counted
            }
            ControlQuestion::CompactQueue => {
                let (before, _) = self.store.sizes();
                self.store.compact().await?;
                ControlAnswer::Compacted { before, after: self.store.sizes().0 }
            }
            // Core 0 has its own state before anyone else.
            ControlQuestion::Publish(_) => ControlAnswer::Published,
            // The handle of the core hears these.
            ControlQuestion::Settled(_) => ControlAnswer::Heard,
        })
    }

    /// Puts a change in line. Its asker is told later: the disk may make it wait, and an open question would hold a credit as
    /// long.
    fn take_change(&self, change: ControlChange, asker: Asker) -> Result<(), UserError> {
        let waiting = self.changes_waiting.get();
        if waiting >= CHANGES_WAITING_MAX {
            let message = "Too many changes wait to be made. Try again later.";
            return Err(UserError::new("too_many_search_requests", message));
        }
        self.changes_waiting.set(waiting + 1);
        self.changes.push(PendingChange { change, asker });
        Ok(())
    }

    /// Works through the changes that need no task, one after another; never returns.
    async fn run_changes(&self) {
        loop {
            for PendingChange { change, asker: (core, ticket) } in self.changes.take().await {
                let result = self.change(change).await;
                self.changes_waiting.set(self.changes_waiting.get() - 1);
                self.verdicts.push(core, Verdict { ticket, result });
            }
        }
    }

    /// Changes the state and hands it to every core. When it returns, all have it.
    pub(crate) async fn publish(&self, change: impl FnOnce(&mut ControlState)) {
        let mut state = ControlState::clone(&self.state.borrow());
        change(&mut state);
        state.routing = self.routing(&state.network);
        state.version += 1;
        let state = Arc::new(state);
        self.state.replace(state.clone());
        let told = (0..self.mesh.core_count())
            .map(|core| self.mesh.ask(CoreId(core), ControlQuestion::Publish(state.clone())));
        for (core, answer) in join_all(told).await.into_iter().enumerate() {
            if let Err(error) = answer {
                tracing::error!(core, %error, "a core did not apply the new state");
            }
        }
    }

    /// How searches find documents now; the present routing where that is the same.
    pub(super) fn routing(&self, network: &Arc<Network>) -> Arc<Routing> {
        let routing = Routing::new(network, self.change.borrow().as_ref());
        let present = self.state().routing.clone();
        if *present == routing { present } else { Arc::new(routing) }
    }

    /// Publishes indexes that changed (`Some`) or are gone (`None`).
    pub(crate) async fn publish_indexes(&self, changed: Vec<(String, Option<Arc<IndexView>>)>) {
        if changed.is_empty() {
            return;
        }
        self.publish(|state| {
            let mut indexes = IndexMap::clone(&state.indexes);
            for (name, view) in changed {
                match view {
                    Some(view) => indexes.insert(name.into(), view),
                    None => indexes.remove(name.as_str()),
                };
            }
            state.indexes = Arc::new(indexes);
        })
        .await;
    }

    /// Waits so long, or until the batch in progress is to stop.
    pub(crate) async fn pause(&self, time: Duration) {
        select(self.runtime.sleep(time), pin!(self.interrupt.wait())).await;
    }

    /// Now.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix(self.runtime.unix_time())
    }

    fn count_requests(&self, requests: EmbedderRequests) {
        if let Some(processing) = &mut *self.processing.borrow_mut()
            && processing.counts_requests
        {
            processing.batch.stats.embedder_requests.add(requests);
        }
    }

    pub(super) fn status(&self) -> ControlStatus {
        let (file_bytes, used_bytes) = self.store.sizes();
        let processing = self.processing.borrow();
        let indexes = processing.iter().flat_map(|processing| processing.batch.stats.indexes.keys().cloned());
        ControlStatus { processing_indexes: indexes.collect(), file_bytes, used_bytes }
    }
}

/// Where the control store lies under the folder of the data.
pub(crate) fn store_path(root: &Path) -> PathBuf {
    root.join("control.store")
}

/// Where the indexes lie under the folder of the data.
pub(crate) fn indexes_folder(root: &Path) -> PathBuf {
    root.join("indexes")
}

/// Where the log lies under the folder of the data.
pub(crate) fn log_folder(root: &Path) -> PathBuf {
    root.join("log")
}
