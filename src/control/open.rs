//! Startup: reconciles the store, the log and the indexes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use shards::runtime::{Queue as RunQueue, Runtime};
use shards::text::morphology;
use shards::timestamp::Timestamp;
use uuid::{Builder, Uuid};

use super::acknowledge::Verdicts;
use super::inbox::{Inbox, Signal};
use super::indexes::{IndexError, Opened, SharedIndexes};
use super::message::{ControlError, ControlMesh};
use super::plane::{ControlConfig, ControlPlane, indexes_folder, log_folder, store_path};
use super::state::{ControlState, IndexMap};
use super::storage::record::{Changes, CommitRecord, IndexEntry};
use super::storage::recovered::Recovered;
use super::storage::store::ControlStore;
use super::storage::tasklog::TaskLog;
use crate::auth::{ApiKey, KeySet, default_keys};
use crate::network::Network;
use crate::network::deliveries::Outbox;
use crate::network::task::TaskNetwork;
use crate::outgoing::Client;
use crate::tasks::task::{Content, Task, TaskUid};
use crate::webhooks::Deliveries;
use crate::webhooks::marks::Marks;

impl ControlPlane {
    /// Opens the control plane in its folder, or makes it. Tasks that were accepted and have not ended wait again; batches
    /// that ended in an index's commit but not in the store are ended now. Nothing is processed before [`Self::start`].
    ///
    /// # Errors
    /// The disk failed, something on it is damaged, or an index's storage is missing.
    pub async fn open(
        runtime: Rc<dyn Runtime>,
        mesh: Rc<dyn ControlMesh>,
        indexes: SharedIndexes,
        config: ControlConfig,
        outgoing: Client,
    ) -> Result<Rc<Self>, ControlError> {
        let (store, recovered) = ControlStore::open(runtime.clone(), &store_path(&config.root)).await?;
        if store.is_new() {
            refuse_lost_store(&*runtime, &config.root).await?;
        }
        runtime.spawn(RunQueue::Indexing, Box::pin(store.clone().run()));
        let (log, waiting) =
            TaskLog::open(&runtime, &log_folder(&config.root), &recovered.finished, &recovered.undelivered).await?;
        let mut start = Start { runtime, store, indexes, recovered, waiting, views: IndexMap::new() };
        let ended = start.open_indexes().await?;
        if !config.imported {
            start.make_default_keys().await?;
        }
        start.remove_dropped().await?;
        let deliveries = start.owed_deliveries(&config).await?;
        let plane = start.into_plane(mesh, log, config, outgoing, deliveries);
        let undelivered = plane.undelivered.borrow().clone();
        plane.log.release(ended.into_iter().filter(|uid| !undelivered.contains(uid.0))).await;
        Ok(plane)
    }

    /// Removes the storage of an index that is gone. What fails is tried again at the next start.
    pub(crate) async fn remove_storage(&self, id: Uuid) {
        match self.indexes.remove(id).await {
            Ok(()) => {
                let changes = Changes { dropping: vec![(id, false)], ..Changes::default() };
                // Nobody waits for this; it shares the next commit.
                drop(self.store.submit(changes));
            }
            Err(error) => {
                tracing::warn!(%id, %error, "cannot remove the files of a deleted index before the next start")
            }
        }
    }
}

/// A store that was lost beside its indexes must not be taken for that of a new database, which would not know them.
async fn refuse_lost_store(runtime: &dyn Runtime, root: &Path) -> Result<(), ControlError> {
    let (disk, indexes, store) = (runtime.disk(), indexes_folder(root), store_path(root));
    let unreadable = |error| ControlError::Storage(format!("{}: {error}", indexes.display()));
    if !disk.exists(&indexes).await.map_err(unreadable)?
        || disk.list_dir(&indexes).await.map_err(unreadable)?.is_empty()
    {
        return Ok(());
    }
    let (store, indexes) = (store.display(), indexes.display());
    Err(ControlError::Storage(format!(
        "{store} is missing or empty, but {indexes} holds indexes; restore the database from a snapshot or a dump, or start with \
         another folder"
    )))
}

/// The parts while they are being brought together.
struct Start {
    runtime: Rc<dyn Runtime>,
    store: Rc<ControlStore>,
    indexes: SharedIndexes,
    recovered: Recovered,
    waiting: Vec<Task>,
    views: IndexMap,
}

impl Start {
    /// Opens every index, and ends the batches that the store has not heard of. Gives their tasks.
    async fn open_indexes(&mut self) -> Result<Vec<TaskUid>, ControlError> {
        let mut ended = Vec::new();
        self.warn_of_dictionaries();
        for (name, entry) in self.recovered.indexes.clone() {
            let (view, record) = self.open_index(&name, &entry).await?;
            self.views.insert(name.as_str().into(), view);
            let Some(record) = record.filter(|record| !record.is_empty()) else { continue };
            let record: CommitRecord = serde_json::from_slice(&record)
                .map_err(|error| ControlError::Storage(format!("the commit record of index `{name}`: {error}")))?;
            if record.batch.uid.0 >= self.recovered.next_batch {
                ended.extend(record.tasks.iter().map(|task| task.uid));
                self.end_batch(&name, entry, record).await?;
            }
        }
        Ok(ended)
    }

    /// Queries are cut by the dictionaries of this start, what an index holds by those that it was made with.
    fn warn_of_dictionaries(&self) {
        let now = morphology::identity();
        let others = self.recovered.indexes.iter().filter(|(_, entry)| entry.dictionaries != now);
        let names: Vec<&str> = others.map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            tracing::warn!(
                indexes = names.join(", "),
                "indexes were built with other Japanese or Korean dictionaries, so texts in these languages may not be found; \
                 start with the same dictionaries, or rebuild the indexes from a dump"
            );
        }
    }

    async fn open_index(&self, name: &str, entry: &IndexEntry) -> Result<Opened, ControlError> {
        match self.indexes.open(entry.id).await {
            Ok(opened) => Ok(opened),
            Err(IndexError::Missing) if !entry.made => {
                let view = self.indexes.create(entry.id, entry.created_at).await;
                view.map(|view| (view, None)).map_err(|error| index_failed(name, error))
            }
            Err(error) => Err(index_failed(name, error)),
        }
    }

    /// Ends a batch by the record that its index's commit carries.
    async fn end_batch(&mut self, name: &str, mut entry: IndexEntry, record: CommitRecord) -> Result<(), ControlError> {
        tracing::info!(batch = record.batch.uid.0, index = name, "recording a batch that had finished");
        let ended: BTreeSet<TaskUid> = record.tasks.iter().map(|task| task.uid).collect();
        self.waiting.retain(|task| !ended.contains(&task.uid));
        self.recovered.next_batch = record.batch.uid.0 + 1;
        self.recovered.batches.insert(&record.batch);
        for task in &record.tasks {
            self.recovered.finished.insert(task.uid.0);
            if task.network.as_ref().is_some_and(TaskNetwork::is_pending) {
                self.recovered.undelivered.insert(task.uid.0);
            }
            self.recovered.queue.insert(task.clone());
        }
        entry.made = true;
        self.recovered.indexes.insert(name.into(), entry.clone());
        let indexes = vec![(name.to_string(), Some(entry))];
        let finished = record.tasks.into_iter().map(Rc::new).collect();
        let changes = Changes { finished, batches: vec![record.batch], indexes, ..Changes::default() };
        self.store.commit(changes).await
    }

    /// A store without keys gets the usual ones.
    async fn make_default_keys(&mut self) -> Result<(), ControlError> {
        if !self.recovered.keys.is_empty() {
            return Ok(());
        }
        let random_uid = || {
            let (high, low) = (self.runtime.random_u64(), self.runtime.random_u64());
            Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
        };
        let now = Timestamp::from_unix(self.runtime.unix_time()).date();
        let keys: BTreeMap<Uuid, ApiKey> =
            default_keys(now, random_uid).into_iter().map(|key| (key.uid, key)).collect();
        let changed = keys.iter().map(|(uid, key)| (*uid, Some(key.clone()))).collect();
        self.recovered.keys = keys;
        self.store.commit(Changes { keys: changed, ..Changes::default() }).await
    }

    /// Removes the storage of deleted indexes that a stop left behind.
    async fn remove_dropped(&mut self) -> Result<(), ControlError> {
        let mut gone = Vec::new();
        for id in std::mem::take(&mut self.recovered.dropping) {
            self.indexes.remove(id).await.map_err(|error| index_failed(&id.to_string(), error))?;
            gone.push((id, false));
        }
        match gone.is_empty() {
            true => Ok(()),
            false => self.store.commit(Changes { dropping: gone, ..Changes::default() }).await,
        }
    }

    /// What webhooks, that of the command line among them, are still to be told.
    async fn owed_deliveries(&mut self, config: &ControlConfig) -> Result<Deliveries, ControlError> {
        let webhooks = &mut self.recovered.webhooks;
        webhooks.extend(config.webhook.clone().map(|webhook| (Uuid::nil(), webhook)));
        let (marks, webhook_marks) =
            Marks::recovered(&self.recovered.webhook_marks, webhooks, self.recovered.next_batch);
        if !webhook_marks.is_empty() {
            self.store.commit(Changes { webhook_marks, ..Changes::default() }).await?;
        }
        Ok(Deliveries::new(marks))
    }

    /// The plane, with what was under way when the instance stopped.
    fn into_plane(
        mut self,
        mesh: Rc<dyn ControlMesh>,
        log: TaskLog,
        config: ControlConfig,
        outgoing: Client,
        deliveries: Deliveries,
    ) -> Rc<ControlPlane> {
        let network = Arc::new(newest_network(&self.waiting, std::mem::take(&mut self.recovered.network)));
        let network_steps = self.recovered.network_steps.take();
        let state = self.state(&config, network.clone());
        let plane = Rc::new(self.assembled(mesh, log, config, (outgoing, deliveries), state));
        plane.use_network(network);
        plane.find_change(network_steps);
        let mut state = ControlState::clone(&plane.state());
        state.routing = plane.routing(&state.network);
        plane.state.replace(Arc::new(state));
        plane
    }

    /// What every core is to know.
    fn state(&mut self, config: &ControlConfig, network: Arc<Network>) -> ControlState {
        let keys = std::mem::take(&mut self.recovered.keys).into_values().map(Arc::new);
        ControlState {
            version: 1,
            indexes: Arc::new(std::mem::take(&mut self.views)),
            keys: Arc::new(KeySet::new(config.master_key.as_deref(), keys)),
            features: self.recovered.features.or(config.features),
            chats: Arc::new(std::mem::take(&mut self.recovered.chats)),
            network,
            routing: Arc::default(),
            webhooks: Arc::new(std::mem::take(&mut self.recovered.webhooks)),
            search_rules: Arc::new(std::mem::take(&mut self.recovered.search_rules)),
        }
    }

    /// The parts as one.
    fn assembled(
        self,
        mesh: Rc<dyn ControlMesh>,
        log: TaskLog,
        config: ControlConfig,
        (outgoing, deliveries): (Client, Deliveries),
        state: ControlState,
    ) -> ControlPlane {
        let Recovered { mut queue, batches, finished, next_batch, indexes, undelivered, .. } = self.recovered;
        // The last number of all is given to nothing: none comes after it.
        let after_last = self.waiting.last().map_or(0, |task| task.uid.0.saturating_add(1));
        let last_enqueued_at = self.waiting.last().map_or(Timestamp::default(), |task| task.enqueued_at);
        let ahead = self.waiting.iter().map(|task| task.uid.0).collect();
        for task in self.waiting {
            queue.insert(task);
        }
        let verdicts = Verdicts::new(mesh.core_count());
        ControlPlane {
            runtime: self.runtime,
            mesh,
            indexes: self.indexes,
            store: self.store,
            log,
            config,
            queue: RefCell::new(queue),
            batches: RefCell::new(batches),
            processing: RefCell::new(None),
            ended: RefCell::new(None),
            entries: RefCell::new(indexes),
            next_batch: Cell::new(next_batch),
            next_task: Cell::new(after_last.max(finished.next())),
            last_enqueued_at: Cell::new(last_enqueued_at),
            work: Signal::default(),
            interrupt: Signal::default(),
            registrations: Inbox::default(),
            verdicts,
            changes: Inbox::default(),
            changes_waiting: Cell::new(0),
            network: RefCell::new(state.network.clone()),
            network_under_way: Cell::default(),
            state: RefCell::new(Arc::new(state)),
            outgoing,
            deliveries,
            outbox: Outbox::default(),
            change: RefCell::new(None),
            change_tick: Cell::new(true),
            change_found: Signal::default(),
            origins: RefCell::default(),
            ahead: RefCell::new(ahead),
            undelivered: RefCell::new(undelivered),
        }
    }
}

/// The network that the last change among tasks leads to: one was accepted, but the stop may have come before its network was
/// written.
fn newest_network(waiting: &[Task], written: Network) -> Network {
    waiting.iter().fold(written, |newest, task| match &task.content {
        Content::NetworkTopologyChange { change } if change.after.version > newest.version => change.after.clone(),
        _ => newest,
    })
}

fn index_failed(name: &str, error: IndexError) -> ControlError {
    ControlError::Storage(format!("index `{name}`: {error}"))
}
