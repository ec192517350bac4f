//! The control store: finished tasks, batches, keys, switches and the names of indexes, on disk.
//!
//! Changes that wait while a commit runs share the next one. A commit is never dropped half way: it runs in its own loop,
//! whatever becomes of those who wait for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use futures_channel::oneshot;
use roaring::RoaringBitmap;
use shards::runtime::{Checkpoint, Runtime};
use storage_engine::{CommitError, CompactError, DiskError, PageStore, ReadTree, StoreOptions, TreeId, WriteTxn};
use uuid::Uuid;

use super::record::{self, Changes, FinishedSet, IndexEntry};
use crate::archive::CopyError;
use crate::auth::ApiKey;
use crate::chats::Chats;
use crate::control::features::Features;
use crate::control::inbox::Inbox;
use crate::control::message::ControlError;
use crate::network::Network;
use crate::network::change::Steps;
use crate::search_rules::SearchRules;
use crate::tasks::batch::Batch;
use crate::tasks::batches::Batches;
use crate::tasks::queue::Queue;
use crate::tasks::task::{BatchUid, Task, TaskUid};
use crate::webhooks::Webhooks;

/// The control store. Only the control core has one.
pub struct ControlStore {
    runtime: Rc<dyn Runtime>,
    store: PageStore,
    finished: RefCell<FinishedSet>,
    inbox: Inbox<Work>,
}

enum Work {
    Commit(Box<Waiting>),
    Compact(oneshot::Sender<Result<(), ControlError>>),
}

struct Waiting {
    changes: Changes,
    done: oneshot::Sender<Result<(), ControlError>>,
    persists: bool,
}

/// How long to wait before a full disk is tried again.
const OUT_OF_SPACE_PAUSE: Duration = Duration::from_secs(1);

/// What the store holds at the start.
#[derive(Default)]
pub struct Recovered {
    /// The finished tasks.
    pub queue: Queue,
    /// The finished batches.
    pub batches: Batches,
    /// The tasks that have ended, forgotten ones included.
    pub finished: FinishedSet,
    /// The uid of the next batch.
    pub next_batch: u32,
    /// The keys.
    pub keys: BTreeMap<Uuid, ApiKey>,
    /// The chat workspaces.
    pub chats: Chats,
    /// The topology of the network.
    pub network: Network,
    /// The webhooks.
    pub webhooks: Webhooks,
    /// The first batch that each webhook is owed.
    pub webhook_marks: BTreeMap<Uuid, u32>,
    /// The search rules.
    pub search_rules: SearchRules,
    /// The switches as stored.
    pub features: Features,
    /// The indexes by name.
    pub indexes: BTreeMap<String, IndexEntry>,
    /// Storage that is to be removed.
    pub dropping: Vec<Uuid>,
    /// The ended tasks that other instances have still to take.
    pub undelivered: RoaringBitmap,
    /// How far the change of the network under way is.
    pub network_steps: Option<Steps>,
}

impl ControlStore {
    /// Opens the store at this path, or makes it, and reads what must be in memory.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or was written by a later version.
    pub async fn open(runtime: Rc<dyn Runtime>, path: &Path) -> Result<(Rc<Self>, Recovered), ControlError> {
        let options = StoreOptions { create: true, ..StoreOptions::default() };
        let store = PageStore::open(runtime.disk(), path, options)
            .await
            .map_err(|error| failed("opening the control store", error))?;
        let recovered = recover(&store)?;
        let finished = RefCell::new(recovered.finished.clone());
        Ok((Rc::new(Self { runtime, store, finished, inbox: Inbox::default() }), recovered))
    }

    /// Makes changes durable. Changes handed in later are never durable before them.
    ///
    /// # Errors
    /// The disk is full (nothing has changed, it may be tried again), or failed (every later commit fails too).
    pub async fn commit(&self, changes: Changes) -> Result<(), ControlError> {
        let (done, result) = oneshot::channel();
        self.inbox.push(Work::Commit(Box::new(Waiting { changes, done, persists: false })));
        result.await.unwrap_or(Err(ControlError::Unreachable))
    }

    /// Hands in changes that have happened and must become durable: while the disk is full they are tried again and again.
    /// The result comes later; it is an error when the disk failed otherwise.
    pub fn submit(&self, changes: Changes) -> oneshot::Receiver<Result<(), ControlError>> {
        let (done, result) = oneshot::channel();
        self.inbox.push(Work::Commit(Box::new(Waiting { changes, done, persists: true })));
        result
    }

    /// Works through the commits; never returns.
    pub async fn run(self: Rc<Self>) {
        loop {
            let (mut group, mut compactions) = (Vec::new(), Vec::new());
            for work in self.inbox.take().await {
                match work {
                    Work::Commit(waiting) => group.push(*waiting),
                    Work::Compact(done) => compactions.push(done),
                }
            }
            if !group.is_empty() {
                self.commit_all(group).await;
            }
            for done in compactions {
                let result = self.store.compact().await;
                // Whoever asked may have gone away.
                let _ = done.send(result.map_err(|error| failed("compacting the control store", error)));
            }
        }
    }

    /// Commits a group. While the disk is full, what has happened already is tried again, the rest is refused.
    async fn commit_all(&self, mut group: Vec<Waiting>) {
        loop {
            let result = self.commit_group(&group).await;
            if result != Err(ControlError::OutOfSpace) {
                return answer(group, &result);
            }
            let (kept, refused) = group.into_iter().partition(|item| item.persists);
            answer(refused, &result);
            group = kept;
            if group.is_empty() {
                return;
            }
            tracing::warn!("the disk is full: tasks that have ended are kept in memory until it has room");
            self.runtime.sleep(OUT_OF_SPACE_PAUSE).await;
        }
    }

    /// A finished task.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn task(&self, uid: TaskUid) -> Result<Option<Task>, ControlError> {
        read(&self.store.snapshot(), record::TASKS, &uid.0.to_be_bytes())
    }

    /// A finished batch.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn batch(&self, uid: BatchUid) -> Result<Option<Batch>, ControlError> {
        read(&self.store.snapshot(), record::BATCHES, &uid.0.to_be_bytes())
    }

    /// Bytes of the file, and of them in use.
    pub fn sizes(&self) -> (u64, u64) {
        (self.store.file_bytes(), self.store.used_bytes())
    }

    /// Gives back space.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn compact(&self) -> Result<(), ControlError> {
        let (done, result) = oneshot::channel();
        self.inbox.push(Work::Compact(done));
        result.await.unwrap_or(Err(ControlError::Unreachable))
    }

    /// Writes the newest durable state into a new file.
    ///
    /// # Errors
    /// The disk is full or failed; the store goes on.
    pub async fn copy_to(&self, path: &Path) -> Result<(), CopyError> {
        self.store.copy_to(path).await.map_err(|error| match error {
            CompactError::Disk(error) | CompactError::Commit(CommitError::Disk(error)) => error.into(),
            error => CopyError::Failed(format!("copying the control store: {error}")),
        })
    }

    async fn commit_group(&self, group: &[Waiting]) -> Result<(), ControlError> {
        let mut finished = self.finished.borrow().clone();
        let mut txn = self.store.begin_write().map_err(|error| failed("writing the control store", error))?;
        let mut checkpoint = Checkpoint::default();
        for Waiting { changes, .. } in group {
            for task in &changes.finished {
                finished.insert(task.uid.0);
                put(&mut txn, record::TASKS, &task.uid.0.to_be_bytes(), &**task)?;
                checkpoint.tick(&*self.runtime).await;
            }
            for task in &changes.rewritten {
                put(&mut txn, record::TASKS, &task.uid.0.to_be_bytes(), task)?;
                checkpoint.tick(&*self.runtime).await;
            }
            for uid in &changes.forgotten_tasks {
                delete(&mut txn, record::TASKS, &uid.to_be_bytes())?;
                checkpoint.tick(&*self.runtime).await;
            }
            for batch in &changes.batches {
                put(&mut txn, record::BATCHES, &batch.uid.0.to_be_bytes(), batch)?;
                put_bytes(&mut txn, record::META, record::NEXT_BATCH, &(batch.uid.0 + 1).to_be_bytes())?;
            }
            for uid in &changes.forgotten_batches {
                delete(&mut txn, record::BATCHES, &uid.to_be_bytes())?;
                checkpoint.tick(&*self.runtime).await;
            }
            write_rest(&mut txn, changes)?;
        }
        if *self.finished.borrow() != finished {
            put_bytes(&mut txn, record::META, record::FINISHED, &finished.to_bytes())?;
        }
        put_bytes(&mut txn, record::META, record::FORMAT, record::FORMAT_VERSION)?;
        txn.commit(self.store.epoch() + 1).await.map_err(commit_failed)?;
        self.finished.replace(finished);
        Ok(())
    }
}

fn answer(group: Vec<Waiting>, result: &Result<(), ControlError>) {
    for item in group {
        // Whoever asked may have gone away; the change stands.
        let _ = item.done.send(result.clone());
    }
}

/// Writes the small things: keys, switches, names.
fn write_rest(txn: &mut WriteTxn, changes: &Changes) -> Result<(), ControlError> {
    for (uid, key) in &changes.keys {
        match key {
            Some(key) => put(txn, record::KEYS, uid.as_bytes(), key)?,
            None => delete(txn, record::KEYS, uid.as_bytes())?,
        }
    }
    for (uid, rule) in &changes.search_rules {
        match rule {
            Some(rule) => put(txn, record::SEARCH_RULES, uid.as_bytes(), rule)?,
            None => delete(txn, record::SEARCH_RULES, uid.as_bytes())?,
        }
    }
    for (uid, webhook) in &changes.webhooks {
        match webhook {
            Some(webhook) => put(txn, record::WEBHOOKS, uid.as_bytes(), webhook)?,
            None => delete(txn, record::WEBHOOKS, uid.as_bytes())?,
        }
    }
    for (uid, mark) in &changes.webhook_marks {
        match mark {
            Some(next) => put_bytes(txn, record::WEBHOOK_MARKS, uid.as_bytes(), &next.to_be_bytes())?,
            None => delete(txn, record::WEBHOOK_MARKS, uid.as_bytes())?,
        }
    }
    for (name, settings) in &changes.chats {
        match settings {
            Some(settings) => put(txn, record::CHATS, name.as_bytes(), settings)?,
            None => delete(txn, record::CHATS, name.as_bytes())?,
        }
    }
    if let Some(network) = &changes.network {
        put(txn, record::META, record::NETWORK, network)?;
    }
    if let Some(undelivered) = &changes.undelivered {
        put_bytes(txn, record::META, record::UNDELIVERED, &crate::tasks::bitmap::to_bytes(undelivered))?;
    }
    match &changes.network_steps {
        Some(Some(steps)) => put(txn, record::META, record::NETWORK_STEPS, steps)?,
        Some(None) => delete(txn, record::META, record::NETWORK_STEPS)?,
        None => {}
    }
    if let Some(features) = &changes.features {
        put(txn, record::META, record::FEATURES, features)?;
    }
    for (name, entry) in &changes.indexes {
        match entry {
            Some(entry) => put(txn, record::INDEXES, name.as_bytes(), entry)?,
            None => delete(txn, record::INDEXES, name.as_bytes())?,
        }
    }
    for (id, waits) in &changes.dropping {
        match waits {
            true => put_bytes(txn, record::DROPPING, id.as_bytes(), &[])?,
            false => delete(txn, record::DROPPING, id.as_bytes())?,
        }
    }
    Ok(())
}

/// Reads everything that must be in memory.
fn recover(store: &PageStore) -> Result<Recovered, ControlError> {
    let snapshot = store.snapshot();
    let mut recovered = Recovered::default();
    let meta =
        |name: &[u8]| snapshot.get(record::META, name).map_err(|error| failed("reading the control store", error));
    if let Some(version) = meta(record::FORMAT)?
        && version != record::FORMAT_VERSION
    {
        return Err(ControlError::Storage("the control store was written by a later version of the server".into()));
    }
    if let Some(bytes) = meta(record::FINISHED)? {
        recovered.finished = FinishedSet::from_bytes(bytes).ok_or_else(|| damaged("the set of finished tasks"))?;
    }
    if let Some(bytes) = meta(record::NEXT_BATCH)? {
        let bytes = bytes.try_into().map_err(|_| damaged("the number of the next batch"))?;
        recovered.next_batch = u32::from_be_bytes(bytes);
    }
    if let Some(bytes) = meta(record::UNDELIVERED)? {
        let undelivered = RoaringBitmap::deserialize_from(bytes);
        recovered.undelivered = undelivered.map_err(|_| damaged("the set of tasks on their way"))?;
    }
    recovered.network_steps = read(&snapshot, record::META, record::NETWORK_STEPS)?;
    recovered.network = read(&snapshot, record::META, record::NETWORK)?.unwrap_or_default();
    recovered.features = read(&snapshot, record::META, record::FEATURES)?.unwrap_or_default();
    for_each(&snapshot, record::TASKS, |_, value| {
        recovered.queue.insert(decode(value, "a task")?);
        Ok(())
    })?;
    for_each(&snapshot, record::BATCHES, |_, value| {
        recovered.batches.insert(&decode(value, "a batch")?);
        Ok(())
    })?;
    for_each(&snapshot, record::KEYS, |_, value| {
        let key: ApiKey = decode(value, "a key")?;
        recovered.keys.insert(key.uid, key);
        Ok(())
    })?;
    for_each(&snapshot, record::CHATS, |name, value| {
        let name = String::from_utf8(name.to_vec()).map_err(|_| damaged("the name of a chat workspace"))?;
        recovered.chats.insert(name, decode(value, "a chat workspace")?);
        Ok(())
    })?;
    for_each(&snapshot, record::SEARCH_RULES, |_, value| {
        recovered.search_rules.insert(decode(value, "a search rule")?);
        Ok(())
    })?;
    for_each(&snapshot, record::WEBHOOKS, |uid, value| {
        let uid = Uuid::from_slice(uid).map_err(|_| damaged("the uid of a webhook"))?;
        recovered.webhooks.insert(uid, decode(value, "a webhook")?);
        Ok(())
    })?;
    for_each(&snapshot, record::WEBHOOK_MARKS, |uid, value| {
        let uid = Uuid::from_slice(uid).map_err(|_| damaged("the uid of a webhook"))?;
        let next = value.try_into().map_err(|_| damaged("how far a webhook was told"))?;
        recovered.webhook_marks.insert(uid, u32::from_be_bytes(next));
        Ok(())
    })?;
    for_each(&snapshot, record::INDEXES, |name, value| {
        let name = String::from_utf8(name.to_vec()).map_err(|_| damaged("the name of an index"))?;
        recovered.indexes.insert(name, decode(value, "the entry of an index")?);
        Ok(())
    })?;
    for_each(&snapshot, record::DROPPING, |id, _| {
        recovered.dropping.push(Uuid::from_slice(id).map_err(|_| damaged("the id of an index"))?);
        Ok(())
    })?;
    Ok(recovered)
}

fn for_each(
    tree: &impl ReadTree,
    number: TreeId,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), ControlError>,
) -> Result<(), ControlError> {
    let unreadable = |error| failed("reading the control store", error);
    let mut cursor = tree.cursor(number);
    while let Some((key, value)) = cursor.next().map_err(unreadable)? {
        visit(key, value)?;
    }
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(
    tree: &impl ReadTree,
    number: TreeId,
    key: &[u8],
) -> Result<Option<T>, ControlError> {
    let value = tree.get(number, key).map_err(|error| failed("reading the control store", error))?;
    value.map(|bytes| decode(bytes, "a record")).transpose()
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, ControlError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(&format!("{what} ({error})")))
}

fn put<T: serde::Serialize>(txn: &mut WriteTxn, tree: TreeId, key: &[u8], value: &T) -> Result<(), ControlError> {
    let bytes = serde_json::to_vec(value).map_err(|error| failed("encoding a record", error))?;
    put_bytes(txn, tree, key, &bytes)
}

fn put_bytes(txn: &mut WriteTxn, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), ControlError> {
    txn.put(tree, key, value).map_err(|error| failed("writing the control store", error))
}

fn delete(txn: &mut WriteTxn, tree: TreeId, key: &[u8]) -> Result<(), ControlError> {
    txn.delete(tree, key).map(|_| ()).map_err(|error| failed("writing the control store", error))
}

fn commit_failed(error: CommitError) -> ControlError {
    match error {
        CommitError::Disk(DiskError::NoSpace { .. }) => ControlError::OutOfSpace,
        error => failed("committing the control store", error),
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> ControlError {
    ControlError::Storage(format!("{what}: {error}"))
}

fn damaged(what: &str) -> ControlError {
    ControlError::Storage(format!("the control store is damaged: {what} cannot be read"))
}
