//! Tasks and batches as JSON, in lists and one by one.

use std::rc::Rc;

use roaring::RoaringBitmap;
use serde_json::{Value, json};
use shards::error::UserError;
use shards::runtime::Checkpoint;

use super::message::{ControlError, ControlFigures, ListQuery, Payload};
use super::plane::{ControlPlane, Processing};
use super::storage::store::ControlStore;
use crate::tasks::batch::Batch;
use crate::tasks::filter::{Page, Scope};
use crate::tasks::kind::Kind;
use crate::tasks::task::{BatchUid, Content, Status, Task, TaskUid};
use crate::tasks::view;

/// Bytes of a task or batch as JSON, as a rule.
const OBJECT_BYTES: usize = 512;
/// Bytes that are reserved for a list at most; a longer one grows.
const LIST_BYTES_RESERVED_MAX: usize = 64 << 20;

impl ControlPlane {
    /// A task, finished or not. See [`Task::ids_apart`] for what it may be without.
    pub(crate) fn task(&self, uid: TaskUid) -> Result<Option<Rc<Task>>, ControlError> {
        self.held_or(uid, ControlStore::task)
    }

    /// A task with all that it was given.
    pub(crate) fn whole_task(&self, uid: TaskUid) -> Result<Option<Rc<Task>>, ControlError> {
        self.held_or(uid, ControlStore::whole_task)
    }

    fn held_or(
        &self,
        uid: TaskUid,
        read: impl FnOnce(&ControlStore, TaskUid) -> Result<Option<Task>, ControlError>,
    ) -> Result<Option<Rc<Task>>, ControlError> {
        let queue = self.queue.borrow();
        match queue.held(uid) {
            Some(task) => Ok(Some(task.clone())),
            None if queue.contains(uid) => Ok(read(&self.store, uid)?.map(Rc::new)),
            None => Ok(None),
        }
    }

    /// A task as clients see it.
    fn object(&self, task: &Task) -> Value {
        let mut object = view::object(task);
        if let Some(change) = self.change.borrow().as_ref().filter(|change| change.task == task.uid) {
            object["details"]["message"] = change.message().into();
        }
        object
    }

    pub(super) fn task_json(&self, uid: TaskUid, scope: &Scope) -> Result<Vec<u8>, ControlError> {
        let task = self.task(uid)?.filter(|task| scope.shows(task)).ok_or_else(|| task_not_found(uid))?;
        encode(&self.object(&task))
    }

    /// A page of tasks. The page is cut first and the hidden ones are taken out afterwards, as the reference does: such
    /// a page is short, and when the task that begins the next page is hidden, no next page is named.
    pub(super) async fn tasks_json(&self, query: ListQuery) -> Result<Vec<u8>, ControlError> {
        let matching = self.queue.borrow().matching(&query.filter);
        let only_single = query.filter.indexes.is_some();
        let uids = query.page.cut(&matching);
        let mut checkpoint = Checkpoint::default();
        let mut list = List::new(query.page, uids.len());
        for uid in uids {
            checkpoint.look(&*self.runtime).await;
            // It may have been forgotten since the page was cut.
            let Some(task) = self.task(TaskUid(uid))? else { continue };
            if query.scope.shows(&task) && !(only_single && task.content.index().is_none()) {
                list.push(uid, &self.object(&task))?;
            }
        }
        list.finish(matching.len())
    }

    pub(super) async fn payload(&self, uid: TaskUid, scope: &Scope) -> Result<Payload, ControlError> {
        let task = self.task(uid)?.filter(|task| scope.shows(task)).ok_or_else(|| task_not_found(uid))?;
        let gone = || UserError::new("task_file_not_found", format!("The documents of task {} are not kept.", uid.0));
        match &task.content {
            Content::DocumentAddition { format, .. }
                if matches!(task.status, Status::Enqueued | Status::Processing) =>
            {
                let format = *format;
                let bytes = self.log.payload(uid).await?;
                Ok(Payload { format, bytes: std::sync::Arc::unwrap_or_clone(bytes) })
            }
            _ => Err(gone().into()),
        }
    }

    pub(super) fn batch_json(&self, uid: BatchUid, scope: &Scope) -> Result<Vec<u8>, ControlError> {
        let not_found = || UserError::new("batch_not_found", format!("Batch `{}` not found.", uid.0));
        encode(&self.batch_object(uid, scope)?.ok_or_else(not_found)?)
    }

    /// A page of batches, cut as [`Self::tasks_json`] does.
    pub(super) async fn batches_json(&self, query: ListQuery) -> Result<Vec<u8>, ControlError> {
        let processing = self.processing.borrow().as_ref().map(|processing| processing.batch.uid);
        let matching = self.batches.borrow().matching(&query.filter, &self.queue.borrow(), processing);
        let by_index = query.filter.indexes.is_some() || query.scope != Scope::All;
        let hidden = if by_index { self.queue.borrow().without_single_index() } else { RoaringBitmap::new() };
        let uids = query.page.cut(&matching);
        let mut checkpoint = Checkpoint::default();
        let mut list = List::new(query.page, uids.len());
        for uid in uids {
            checkpoint.look(&*self.runtime).await;
            // The reference takes the number of the batch for that of a task here. Clients see the gap, so it is kept.
            if hidden.contains(uid) {
                continue;
            }
            if let Some(object) = self.batch_object(BatchUid(uid), &query.scope)? {
                list.push(uid, &object)?;
            }
        }
        list.finish(matching.len())
    }

    /// What the metrics tell of tasks and batches, in one pass over what is in memory.
    pub(super) fn figures(&self) -> ControlFigures {
        let queue = self.queue.borrow();
        let processing = self.processing.borrow();
        let ended = self.ended.borrow();
        let trace = |batch: &Batch| (batch.uid, batch.trace());
        ControlFigures {
            status: self.status(),
            by_index: queue.counts_by_index(),
            by_status: Status::ALL.map(|status| (status, queue.count_in_status(status))).to_vec(),
            by_kind: Kind::ALL.map(|kind| (kind, queue.count_of_kind(kind))).to_vec(),
            oldest_unfinished: queue.oldest_unfinished().map(|task| task.enqueued_at),
            processing: processing.as_ref().map(|processing| (processing.batch.uid, processing.progress.clone())),
            ended: ended.as_ref().map(trace),
        }
    }

    /// A batch as JSON; `None` when there is none or the scope hides it.
    fn batch_object(&self, uid: BatchUid, scope: &Scope) -> Result<Option<Value>, ControlError> {
        if let Some(Processing { batch, progress, .. }) = &*self.processing.borrow()
            && batch.uid == uid
        {
            return Ok(batch.is_shown(scope).then(|| batch.object(Some(progress))));
        }
        if !self.batches.borrow().contains(uid) {
            return Ok(None);
        }
        if let Some(batch) = &*self.ended.borrow()
            && batch.uid == uid
        {
            return Ok(batch.is_shown(scope).then(|| batch.object(None)));
        }
        Ok(self.store.batch(uid)?.filter(|batch| batch.is_shown(scope)).map(|batch| batch.object(None)))
    }
}

/// A page being written, object by object: all of them at once would be written, and their memory given back, in one go.
struct List {
    bytes: Vec<u8>,
    page: Page,
    count: u32,
    from: Option<u32>,
    next: Option<u32>,
}

impl List {
    /// A page with room for so many objects of the usual size.
    fn new(page: Page, object_count: usize) -> Self {
        let mut bytes = Vec::with_capacity(object_count.saturating_mul(OBJECT_BYTES).min(LIST_BYTES_RESERVED_MAX));
        bytes.extend_from_slice(b"{\"results\":[");
        Self { bytes, page, count: 0, from: None, next: None }
    }

    /// Adds an object; the one too many tells where the next page begins.
    fn push(&mut self, uid: u32, object: &Value) -> Result<(), ControlError> {
        if self.count == self.page.limit {
            self.next = Some(uid);
            return Ok(());
        }
        match self.from {
            None => self.from = Some(uid),
            Some(_) => self.bytes.push(b','),
        }
        self.count += 1;
        serde_json::to_writer(&mut self.bytes, object).map_err(unencodable)
    }

    /// The page with the frame around it.
    fn finish(mut self, total: u64) -> Result<Vec<u8>, ControlError> {
        let rest = encode(&json!({ "total": total, "limit": self.page.limit, "from": self.from, "next": self.next }))?;
        self.bytes.extend_from_slice(b"],");
        self.bytes.extend(rest.into_iter().skip(1));
        Ok(self.bytes)
    }
}

fn encode(value: &Value) -> Result<Vec<u8>, ControlError> {
    serde_json::to_vec(value).map_err(unencodable)
}

fn unencodable(error: serde_json::Error) -> ControlError {
    ControlError::Storage(format!("encoding an answer: {error}"))
}

fn task_not_found(uid: TaskUid) -> UserError {
    UserError::new("task_not_found", format!("Task `{}` not found.", uid.0))
}

#[cfg(test)]
mod tests;
