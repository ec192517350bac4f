//! Processes tasks, one batch after another, on the control core.
//!
//! A batch ends in one of two ways. One that changes an index is ended by that index's commit, which carries the fate of
//! its tasks: from there on it is durable, and the control store follows while the next batch is already being prepared.
//! Every other batch is ended by the control store's commit. What a batch makes of documents and settings is visible once it
//! has ended; what may stay when it fails or is done again is visible before: the index that it makes for its documents, and
//! the steps of a change of the network.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use shards::engine::{Batch as Operations, IndexView};
use shards::error::UserError;
use shards::runtime::{Checkpoint, Queue};
use shards::timestamp::Timestamp;
use uuid::Uuid;

use super::batch::{Batch, BatchBuilder, PROCESSING, Progress, Stats};
use super::batcher::{Choice, Collector, IndexFacts, Stop, Work, choose};
use super::task::{BatchUid, Kind, Outcome, Status, Task, TaskError, TaskUid};
use super::work::{self, made};
use crate::control::indexes::{IndexError, PreparedBatch};
use crate::control::message::ControlError;
use crate::control::plane::{ControlPlane, Processing};
use crate::control::storage::record::Changes;

/// Tasks handled between two looks at whether the core is wanted elsewhere.
const CHUNK_TASKS: usize = 128;

/// Between two looks at how far the work on an index is.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// Names of indexes in a line of the log.
const LOGGED_INDEXES_MAX: usize = 4;
/// Codes of errors that are the server's or the machine's fault, not the request's.
const OWN_FAULTS: [&str; 4] = ["internal", "io_error", "no_space_left_on_device", "too_many_open_files"];

/// What the next batch is.
struct Job {
    tasks: Vec<TaskUid>,
    step: Step,
    stop: Stop,
}

/// What is to be done.
enum Step {
    /// Tasks of this kind, which is not collected by index.
    Kind(Kind),
    /// Collected tasks of the index of this name.
    Index(String, Work),
}

/// A batch in progress: what the steps in [`work`] need.
pub(super) struct Run<'a> {
    pub(super) plane: &'a ControlPlane,
    pub(super) uid: BatchUid,
    pub(super) started_at: Timestamp,
    pub(super) stop: Stop,
    /// The tasks of the batch, in order.
    pub(super) tasks: Vec<Task>,
    settling: &'a mut Settling,
}

/// How a batch in progress went.
pub(super) enum End {
    /// It has ended, its tasks are finished.
    Finished,
    /// A cancelation is about one of its tasks: they go back to the queue.
    Interrupted,
}

/// The control store failed: no batch can be ended any more.
pub(super) struct Broken(pub(super) ControlError);

/// Becomes the result of a commit of the control store.
type Stored = oneshot::Receiver<Result<(), ControlError>>;

/// What earlier batches have left to be done: one that has ended in its index's commit, whose records are on their way to
/// the control store, and the work of one that was interrupted.
#[derive(Default)]
struct Settling {
    waiting: Option<(Stored, Vec<TaskUid>)>,
    /// Says when the work of an interrupted batch is undone.
    abandoned: Option<oneshot::Receiver<()>>,
}

/// Processes tasks as they come; never returns, unless the control store fails.
pub async fn run(plane: Rc<ControlPlane>) {
    let mut settling = Settling::default();
    loop {
        plane.work.wait().await;
        loop {
            let ended = match next_job(&plane).await {
                Some(job) => process(&plane, job, &mut settling).await,
                None => break,
            };
            if let Err(Broken(error)) = ended {
                tracing::error!(%error, "the task queue has stopped; free the disk if it is full, then restart");
                return;
            }
        }
        if let Err(Broken(error)) = settling.finish(&plane).await {
            tracing::error!(%error, "the task queue has stopped; free the disk if it is full, then restart");
            return;
        }
    }
}

/// Collects the next batch, if anything waits.
async fn next_job(plane: &ControlPlane) -> Option<Job> {
    let gate = plane.gate();
    let choice = choose(&plane.queue.borrow(), &gate)?;
    let (name, waiting) = match choice {
        Choice::Tasks(kind, tasks) => {
            return Some(Job { tasks, step: Step::Kind(kind), stop: Stop::KindStandsAlone(kind) });
        }
        Choice::Alone(uid) => {
            let kind = plane.queue.borrow().held(uid).map(|task| task.kind())?;
            return Some(Job { tasks: vec![uid], step: Step::Kind(kind), stop: Stop::KindStandsAlone(kind) });
        }
        Choice::OfIndex(name, waiting) => (name, waiting),
    };
    let facts = match plane.state().index(&name) {
        Some(view) => IndexFacts::Present { primary_key: view.primary_key.clone() },
        None => IndexFacts::Absent,
    };
    let mut collector = Collector::new(facts, plane.config.limits);
    let mut checkpoint = Checkpoint::default();
    for uid in waiting {
        checkpoint.tick(&*plane.runtime).await;
        let more = plane.queue.borrow().held(TaskUid(uid)).is_none_or(|task| collector.offer(task));
        if !more {
            break;
        }
    }
    let (tasks, work, stop) = collector.finish();
    let kind = plane.queue.borrow().held(*tasks.first()?).map(|task| task.kind())?;
    let step = if work == Work::Single { Step::Kind(kind) } else { Step::Index(name, work) };
    Some(Job { tasks, step, stop })
}

async fn process(plane: &ControlPlane, job: Job, settling: &mut Settling) -> Result<(), Broken> {
    let uid = BatchUid(plane.next_batch.get());
    let started_at = plane.now();
    plane.interrupt.clear();
    let (mut tasks, mut record) = (Vec::new(), BatchBuilder::default());
    let mut checkpoint = Checkpoint::default();
    for chunk in job.tasks.chunks(CHUNK_TASKS) {
        checkpoint.look(&*plane.runtime).await;
        let mut queue = plane.queue.borrow_mut();
        queue.begin(chunk, uid, started_at);
        for task in chunk.iter().filter_map(|uid| queue.held(*uid)) {
            record.add(task);
            tasks.push(Task::clone(task));
        }
    }
    let record = record.build(uid, (started_at, None), job.stop.to_string());
    plane.batches.borrow_mut().insert(&record);
    let progress = Progress { steps: vec![(PROCESSING.into(), 0, tasks.len() as u64)] };
    plane.processing.replace(Some(Processing { batch: record, progress, counts_requests: false }));

    let mut run = Run { plane, uid, started_at, stop: job.stop, tasks, settling };
    let end = match job.step {
        Step::Kind(kind) => work::run_kind(&mut run, kind).await,
        Step::Index(name, work) => work::run_index(&mut run, &name, work).await,
    }?;
    if let End::Interrupted = end {
        plane.processing.replace(None);
        plane.batches.borrow_mut().forget(&[uid.0].into_iter().collect());
        for chunk in job.tasks.chunks(CHUNK_TASKS) {
            checkpoint.look(&*plane.runtime).await;
            plane.queue.borrow_mut().requeue(chunk);
        }
    }
    Ok(())
}

/// Shows how far the work on an index is, again and again; never ends.
async fn watch(plane: &ControlPlane, view: Arc<IndexView>) {
    loop {
        plane.runtime.sleep(WATCH_PAUSE).await;
        let progress = plane.indexes.progress(view.clone()).await;
        if let (Some(progress), Some(processing)) = (progress, &mut *plane.processing.borrow_mut()) {
            processing.progress = Progress::of_stage(&progress);
        }
    }
}

impl Run<'_> {
    /// Fails all tasks of the batch with the same error.
    pub(super) fn fail_all(&mut self, error: &IndexError) {
        let error = task_error(error);
        for task in &mut self.tasks {
            fail(task, error.clone());
        }
    }

    /// Does the work of a batch on an index; `None` when it was interrupted. Work that cannot be stopped half way is then left
    /// to end by itself, and undone; no other begins before that.
    pub(super) async fn prepare(
        &mut self,
        view: Arc<IndexView>,
        operations: Operations,
    ) -> Option<Result<Box<dyn PreparedBatch>, IndexError>> {
        self.settling.undo_abandoned().await;
        if let Some(processing) = &mut *self.plane.processing.borrow_mut() {
            processing.counts_requests = true;
        }
        let work = self.plane.indexes.prepare(view.clone(), operations);
        let watching = std::pin::pin!(watch(self.plane, view));
        let interrupted = std::pin::pin!(self.plane.interrupt.wait());
        match select(work, select(interrupted, watching)).await {
            Either::Left((Ok(prepared), _)) if self.plane.interrupt.is_raised() => {
                prepared.abort().await;
                None
            }
            Either::Left((prepared, _)) => {
                if let (Ok(prepared), Some(processing)) = (&prepared, &mut *self.plane.processing.borrow_mut()) {
                    processing.batch.stats.add_stages(prepared.stages());
                }
                Some(prepared)
            }
            Either::Right((_, work)) => {
                let (done, undone) = oneshot::channel();
                self.settling.abandoned = Some(undone);
                let undo = async move {
                    if let Ok(prepared) = work.await {
                        prepared.abort().await;
                    }
                    // The worker may have ended meanwhile.
                    let _ = done.send(());
                };
                self.plane.runtime.spawn(Queue::Indexing, Box::pin(undo));
                None
            }
        }
    }

    /// Rewrites an index's storage: bytes before and after.
    pub(super) async fn compact(&mut self, view: Arc<IndexView>) -> Result<(u64, u64), IndexError> {
        self.settling.undo_abandoned().await;
        self.plane.indexes.compact(view).await
    }

    /// Waits until nothing of earlier batches is under way any more: the control store has what ended, and no work on an index
    /// is being undone.
    pub(super) async fn settle(&mut self) -> Result<(), Broken> {
        self.settling.undo_abandoned().await;
        self.settling.finish(self.plane).await
    }

    /// Removes the storage of an index that is gone.
    pub(super) async fn remove_storage(&mut self, id: Uuid) {
        self.settling.undo_abandoned().await;
        self.plane.remove_storage(id).await;
    }

    /// Ends the batch by the commit of an index, unless that fails. After a crash the index's record brings back the tasks, the
    /// batch, and that the index is made.
    pub(super) async fn finish_prepared(
        &mut self,
        name: &str,
        prepared: Box<dyn PreparedBatch>,
    ) -> Result<Result<(), IndexError>, Broken> {
        // The record of the batch before lies in the same place.
        self.settling.finish(self.plane).await?;
        let mut changes = Changes::default();
        let batch = self.close(&mut changes).await;
        let record = self.commit_record(&batch).await?;
        if let Some(processing) = &mut *self.plane.processing.borrow_mut() {
            processing.progress = Progress::committing();
        }
        let view = match prepared.commit(record).await {
            Ok(view) => view,
            Err(error) => return Ok(Err(error)),
        };
        made::note(self.plane, &changes.indexes);
        let tasks = self.take_tasks();
        let undelivered = self.plane.undelivered(&tasks);
        let webhook_marks = self.plane.deliveries.take_moved();
        let finished = tasks.clone();
        let stored = Changes { finished, batches: vec![batch.clone()], undelivered, webhook_marks, ..changes };
        let stored = self.plane.store.submit(stored);
        self.settling.waiting = Some((stored, tasks.iter().map(|task| task.uid).collect()));
        self.plane.publish_indexes(vec![(name.into(), Some(view))]).await;
        self.show(batch, tasks).await;
        Ok(Ok(()))
    }

    /// Commits an index without ending the batch; for steps that do no harm when they are done again after a crash.
    pub(super) async fn commit_step(
        &mut self,
        prepared: Box<dyn PreparedBatch>,
    ) -> Result<Result<Arc<IndexView>, IndexError>, Broken> {
        self.settling.finish(self.plane).await?;
        Ok(prepared.commit(Vec::new()).await)
    }

    /// Ends the batch by the control store's commit, then publishes indexes that changed (`Some`) or are gone (`None`).
    pub(super) async fn finish(
        &mut self,
        changes: Changes,
        indexes: Vec<(String, Option<Arc<IndexView>>)>,
    ) -> Result<(), Broken> {
        self.finish_then(changes, indexes, |_| {}).await
    }

    /// As [`Self::finish`]; `then` changes what is in memory once the batch is durable, before anyone sees it ended.
    pub(super) async fn finish_then(
        &mut self,
        mut changes: Changes,
        indexes: Vec<(String, Option<Arc<IndexView>>)>,
        then: impl FnOnce(&ControlPlane),
    ) -> Result<(), Broken> {
        let batch = self.close(&mut changes).await;
        let made = changes.indexes.clone();
        let tasks = self.take_tasks();
        changes.finished.clone_from(&tasks);
        changes.undelivered = self.plane.undelivered(&tasks);
        changes.webhook_marks = self.plane.deliveries.take_moved();
        changes.batches.push(batch.clone());
        let stored = self.plane.store.submit(changes);
        self.settling.finish(self.plane).await?;
        received(stored.await)?;
        made::note(self.plane, &made);
        self.plane.publish_indexes(indexes).await;
        then(self.plane);
        let uids: Vec<TaskUid> = tasks.iter().map(|task| task.uid).collect();
        self.show(batch, tasks).await;
        settle(self.plane, &uids).await;
        Ok(())
    }

    /// Sets the end of every task and makes the batch's record. Tasks whose fate is open have succeeded. The indexes that they
    /// are about and that stand are made from then on, however the tasks end.
    async fn close(&mut self, changes: &mut Changes) -> Batch {
        let finished_at = self.plane.now().max(self.started_at);
        let (mut record, mut marking) = (BatchBuilder::default(), made::Marking::default());
        let mut checkpoint = Checkpoint::default();
        for task in &mut self.tasks {
            // What was heard from other instances since the batch began.
            let heard = self.plane.queue.borrow().held(task.uid).and_then(|held| held.network.clone());
            task.network = heard.or(task.network.take());
            task.batch = Some(self.uid);
            task.started_at = Some(self.started_at);
            task.finished_at = Some(finished_at);
            if !task.status.is_finished() {
                task.status = Status::Succeeded;
            }
            record.add(task);
            marking.mark(self.plane, task, changes);
            checkpoint.tick(&*self.plane.runtime).await;
        }
        let mut batch = record.build(self.uid, (self.started_at, Some(finished_at)), self.stop.to_string());
        if let Some(processing) = &*self.plane.processing.borrow() {
            let Stats { embedder_requests, stages, .. } = &processing.batch.stats;
            batch.stats.embedder_requests.clone_from(embedder_requests);
            batch.stats.stages.clone_from(stages);
        }
        batch
    }

    /// A [`crate::control::storage::record::CommitRecord`] as JSON, written piece by piece: a batch may have very many tasks.
    async fn commit_record(&self, batch: &Batch) -> Result<Vec<u8>, Broken> {
        let failed = |error| Broken(ControlError::Storage(format!("encoding a commit record: {error}")));
        let mut bytes = br#"{"batch":"#.to_vec();
        serde_json::to_writer(&mut bytes, batch).map_err(failed)?;
        bytes.extend_from_slice(br#","tasks":["#);
        let mut checkpoint = Checkpoint::default();
        for (at, task) in self.tasks.iter().enumerate() {
            checkpoint.tick(&*self.plane.runtime).await;
            if at > 0 {
                bytes.push(b',');
            }
            serde_json::to_writer(&mut bytes, task).map_err(failed)?;
        }
        bytes.extend_from_slice(b"]}");
        Ok(bytes)
    }

    fn take_tasks(&mut self) -> Vec<Rc<Task>> {
        std::mem::take(&mut self.tasks).into_iter().map(Rc::new).collect()
    }

    /// Shows the batch and its tasks as ended.
    async fn show(&self, batch: Batch, tasks: Vec<Rc<Task>>) {
        let plane = self.plane;
        tell_end(&batch, &tasks);
        plane.next_batch.set(batch.uid.0 + 1);
        plane.batches.borrow_mut().insert(&batch);
        plane.processing.replace(None);
        let uid = batch.uid;
        plane.ended.replace(Some(batch));
        let mut checkpoint = Checkpoint::default();
        for task in tasks {
            checkpoint.tick(&*plane.runtime).await;
            plane.queue.borrow_mut().finish(task);
        }
        plane.announce(uid);
    }
}

/// Tells the log how batch finished: why, for the first task that failed.
fn tell_end(batch: &Batch, tasks: &[Rc<Task>]) {
    let (uid, total) = (batch.uid.0, batch.stats.total);
    let kinds = batch.stats.kinds.keys().map(|kind| kind.name()).collect::<Vec<_>>().join(",");
    let index = batch.stats.indexes.keys().take(LOGGED_INDEXES_MAX).cloned().collect::<Vec<_>>().join(",");
    let failed = batch.stats.status.get(&Status::Failed).copied().unwrap_or(0);
    // Of very many tasks without a failure none need be looked at.
    let first = match failed {
        0 => None,
        _ => tasks.iter().find_map(|task| Some((task.uid.0, task.error.as_ref()?))),
    };
    let Some((task, TaskError { code, message })) = first else {
        let took = batch.finished_at.map_or(0, |end| end.since(batch.started_at).as_millis());
        tracing::info!(batch = uid, kinds, index, tasks = total, milliseconds = took, "batch finished");
        return;
    };
    macro_rules! tell {
        ($level:ident) => {
            tracing::$level!(
                batch = uid,
                kinds,
                index,
                tasks = total,
                failed,
                task,
                code,
                why = message,
                "tasks have failed"
            )
        };
    }
    match OWN_FAULTS.contains(&code.as_str()) {
        true => tell!(error),
        false => tell!(warn),
    }
}

impl Settling {
    async fn undo_abandoned(&mut self) {
        if let Some(undone) = self.abandoned.take() {
            // A task that panicked is over, too; the index then says so itself.
            let _ = undone.await;
        }
    }

    /// Waits until the control store has what ended last.
    async fn finish(&mut self, plane: &ControlPlane) -> Result<(), Broken> {
        if let Some((stored, uids)) = self.waiting.take() {
            received(stored.await)?;
            settle(plane, &uids).await;
        }
        Ok(())
    }
}

fn received(result: Result<Result<(), ControlError>, oneshot::Canceled>) -> Result<(), Broken> {
    result.unwrap_or(Err(ControlError::Unreachable)).map_err(Broken)
}

/// Lets go of what the control store now has.
async fn settle(plane: &ControlPlane, uids: &[TaskUid]) {
    let mut checkpoint = Checkpoint::default();
    for uid in uids {
        checkpoint.tick(&*plane.runtime).await;
        plane.queue.borrow_mut().settle(*uid);
    }
    let delivered = uids.iter().copied().filter(|uid| !plane.outbox.is_pending(uid.0));
    plane.log.release(delivered).await;
}

/// Makes a task failed.
pub(super) fn fail(task: &mut Task, error: TaskError) {
    task.status = Status::Failed;
    task.error = Some(error);
    task.outcome = Outcome::Nothing;
}

/// As a task shows it.
pub(super) fn task_error(error: &IndexError) -> TaskError {
    let (code, message) = match error {
        IndexError::User(UserError { code, message }) | IndexError::FunctionNotRun(UserError { code, message }) => {
            (*code, message.clone())
        }
        IndexError::OutOfSpace => (
            "no_space_left_on_device",
            "There is no more space left on the device. Free some and try again.".to_string(),
        ),
        IndexError::TooManyFiles => (
            "too_many_open_files",
            "Too many files are open. Raise the limit (`ulimit -n`, or `LimitNOFILE=` of the unit) and try again."
                .into(),
        ),
        IndexError::Missing | IndexError::Failed(_) | IndexError::Stopping(_) => {
            tracing::error!(%error, "a batch failed inside the server");
            ("internal", "An internal error has occurred; the server's log has the details.".to_string())
        }
    };
    TaskError { code: code.into(), message }
}

#[cfg(test)]
mod tests;
