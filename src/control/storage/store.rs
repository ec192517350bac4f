//! The control store on disk: finished tasks, batches, API keys, switches and index names.
//!
//! Changes that wait during a commit share the next one. A commit is never dropped half-way: it runs in its own loop, whatever
//! happens to those waiting for it.

use std::cell::RefCell;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use shards::runtime::{Checkpoint, Runtime};
use storage_engine::{CommitError, CompactError, DiskError, PageStore, StoreOptions, WriteTxn};

use super::entry::{damaged, delete, failed, put, put_bytes, put_or_delete, read};
use super::record::{self, Changes, FinishedSet};
use super::recovered::Recovered;
use crate::archive::CopyError;
use crate::control::inbox::Inbox;
use crate::control::message::ControlError;
use crate::tasks::batch::Batch;
use crate::tasks::task::{BatchUid, Content, Task, TaskUid};

/// The control store. Only the control core has one.
pub struct ControlStore {
    runtime: Rc<dyn Runtime>,
    store: PageStore,
    finished: RefCell<FinishedSet>,
    inbox: Inbox<Work>,
}

enum Work {
    Commit(Box<Waiting>),
    Compact(Compaction),
}

/// Who waits for space to be given back.
type Compaction = oneshot::Sender<Result<(), ControlError>>;

struct Waiting {
    changes: Changes,
    done: oneshot::Sender<Result<(), ControlError>>,
    persists: bool,
}

/// From this many on, the ids of a deletion are kept apart from its record.
pub(crate) const IDS_APART_MIN: usize = 256;

/// How long to wait before a full disk is tried again.
const OUT_OF_SPACE_PAUSE: Duration = Duration::from_secs(1);

impl ControlStore {
    /// Opens the store at this path, or makes it, and reads what must be in memory.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or was written by another version: the message says which, and what to do.
    pub async fn open(runtime: Rc<dyn Runtime>, path: &Path) -> Result<(Rc<Self>, Recovered), ControlError> {
        let options = StoreOptions { create: true, ..StoreOptions::default() };
        let store = PageStore::open(runtime.disk(), path, options)
            .await
            .map_err(|error| failed("opening the control store", error))?;
        let recovered = Recovered::read(&store.snapshot()).map_err(|error| match error {
            ControlError::Storage(text) => ControlError::Storage(format!("{}: {text}", path.display())),
            other => other,
        })?;
        let finished = RefCell::new(recovered.finished.clone());
        Ok((Rc::new(Self { runtime, store, finished, inbox: Inbox::default() }), recovered))
    }

    /// Whether nothing was ever committed to it.
    pub fn is_new(&self) -> bool {
        self.store.epoch() == 0
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
            let (group, compactions) = sorted(self.inbox.take().await);
            let mut kept = self.commit_or_keep(group).await;
            self.compact_for(compactions).await;
            while !kept.is_empty() {
                tracing::warn!("the disk is full: finished tasks are kept in memory until there is space");
                self.pause_while_full(&mut kept).await;
                kept = self.commit_or_keep(kept).await;
            }
        }
    }

    /// Commits a group. Where the disk is full, gives what has happened already, to be tried again; the rest is refused.
    async fn commit_or_keep(&self, group: Vec<Waiting>) -> Vec<Waiting> {
        if group.is_empty() {
            return group;
        }
        let result = self.commit_group(&group).await;
        match result {
            Err(ControlError::OutOfSpace) => refuse(group),
            result => {
                answer(group, &result);
                Vec::new()
            }
        }
    }

    /// Waits before a full disk is tried again. Who comes meanwhile is not left waiting for it: what is kept goes first, so
    /// nothing that comes now can be stored before there is room.
    async fn pause_while_full(&self, kept: &mut Vec<Waiting>) {
        let mut pause = self.runtime.sleep(OUT_OF_SPACE_PAUSE);
        while let Either::Right((arrived, _)) = select(&mut pause, pin!(self.inbox.take())).await {
            let (group, compactions) = sorted(arrived);
            kept.extend(refuse(group));
            self.compact_for(compactions).await;
        }
    }

    async fn compact_for(&self, compactions: Vec<Compaction>) {
        for done in compactions {
            let result = self.store.compact().await;
            // Whoever asked may have gone away.
            let _ = done.send(result.map_err(|error| failed("compacting the control store", error)));
        }
    }

    /// A finished task, without the ids that are kept apart from its record.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn task(&self, uid: TaskUid) -> Result<Option<Task>, ControlError> {
        read(&self.store.snapshot(), record::TASKS, &uid.0.to_be_bytes())
    }

    /// A finished task with all that it was given.
    ///
    /// # Errors
    /// As [`Self::task`].
    pub fn whole_task(&self, uid: TaskUid) -> Result<Option<Task>, ControlError> {
        let snapshot = self.store.snapshot();
        let key = uid.0.to_be_bytes();
        let mut task: Option<Task> = read(&snapshot, record::TASKS, &key)?;
        if let Some(Task { content: Content::DocumentDeletion { ids, .. }, ids_apart, .. }) = &mut task
            && ids_apart.take().is_some()
        {
            *ids = read(&snapshot, record::TASK_IDS, &key)?.ok_or_else(|| damaged("the ids of a task"))?;
        }
        Ok(task)
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
                put_task(&mut txn, task)?;
                checkpoint.tick(&*self.runtime).await;
            }
            for task in &changes.rewritten {
                put_task(&mut txn, task)?;
                checkpoint.tick(&*self.runtime).await;
            }
            for uid in &changes.forgotten_tasks {
                delete(&mut txn, record::TASKS, &uid.to_be_bytes())?;
                delete(&mut txn, record::TASK_IDS, &uid.to_be_bytes())?;
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

/// What is to be committed and what compacted, each in the order in which it came.
fn sorted(arrived: Vec<Work>) -> (Vec<Waiting>, Vec<Compaction>) {
    let (mut group, mut compactions) = (Vec::new(), Vec::new());
    for work in arrived {
        match work {
            Work::Commit(waiting) => group.push(*waiting),
            Work::Compact(done) => compactions.push(done),
        }
    }
    (group, compactions)
}

/// Refuses what has not happened, for want of room; gives the rest.
fn refuse(group: Vec<Waiting>) -> Vec<Waiting> {
    let (kept, refused) = group.into_iter().partition(|item| item.persists);
    answer(refused, &Err(ControlError::OutOfSpace));
    kept
}

fn answer(group: Vec<Waiting>, result: &Result<(), ControlError>) {
    for item in group {
        // Whoever asked may have gone away; the change stands.
        let _ = item.done.send(result.clone());
    }
}

/// Writes a finished task. Ids that are kept apart already stay where they are.
fn put_task(txn: &mut WriteTxn, task: &Task) -> Result<(), ControlError> {
    let key = task.uid.0.to_be_bytes();
    match task.split_ids(IDS_APART_MIN) {
        Some((record, ids)) => {
            put(txn, record::TASK_IDS, &key, &ids)?;
            put(txn, record::TASKS, &key, &record)
        }
        None => put(txn, record::TASKS, &key, task),
    }
}

/// Writes the small things: keys, switches, names.
fn write_rest(txn: &mut WriteTxn, changes: &Changes) -> Result<(), ControlError> {
    for (uid, key) in &changes.keys {
        put_or_delete(txn, record::KEYS, uid.as_bytes(), key.as_ref())?;
    }
    for (uid, rule) in &changes.search_rules {
        put_or_delete(txn, record::SEARCH_RULES, uid.as_bytes(), rule.as_ref())?;
    }
    for (uid, webhook) in &changes.webhooks {
        put_or_delete(txn, record::WEBHOOKS, uid.as_bytes(), webhook.as_ref())?;
    }
    for (uid, mark) in &changes.webhook_marks {
        match mark {
            Some(next) => put_bytes(txn, record::WEBHOOK_MARKS, uid.as_bytes(), &next.to_be_bytes())?,
            None => delete(txn, record::WEBHOOK_MARKS, uid.as_bytes())?,
        }
    }
    for (name, settings) in &changes.chats {
        put_or_delete(txn, record::CHATS, name.as_bytes(), settings.as_ref())?;
    }
    if let Some(network) = &changes.network {
        put(txn, record::META, record::NETWORK, network)?;
    }
    if let Some(undelivered) = &changes.undelivered {
        put_bytes(txn, record::META, record::UNDELIVERED, &crate::tasks::bitmap::to_bytes(undelivered))?;
    }
    if let Some(steps) = &changes.network_steps {
        put_or_delete(txn, record::META, record::NETWORK_STEPS, steps.as_ref())?;
    }
    if let Some(features) = &changes.features {
        put(txn, record::META, record::FEATURES, features)?;
    }
    for (name, entry) in &changes.indexes {
        put_or_delete(txn, record::INDEXES, name.as_bytes(), entry.as_ref())?;
    }
    for (id, waits) in &changes.dropping {
        match waits {
            true => put_bytes(txn, record::DROPPING, id.as_bytes(), &[])?,
            false => delete(txn, record::DROPPING, id.as_bytes())?,
        }
    }
    Ok(())
}

fn commit_failed(error: CommitError) -> ControlError {
    match error {
        CommitError::Disk(DiskError::NoSpace { .. }) => ControlError::OutOfSpace,
        error => failed("committing the control store", error),
    }
}

#[cfg(test)]
mod tests;
