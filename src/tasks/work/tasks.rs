//! Tasks about tasks: taking back what waits, forgetting what has ended.

use std::rc::Rc;

use roaring::RoaringBitmap;
use shards::runtime::Checkpoint;

use crate::control::plane::ControlPlane;
use crate::control::storage::record::Changes;
use crate::tasks::task::{BatchUid, Content, Outcome, Status, TaskUid};
use crate::tasks::worker::{Broken, End, Run};

/// Takes back every waiting task of the set that may be. They end in the batch of the cancelation.
pub(super) async fn cancel(run: &mut Run<'_>) -> Result<End, Broken> {
    let mut canceled = Vec::new();
    let mut checkpoint = Checkpoint::default();
    for at in 0..run.tasks.len() {
        let Content::TaskCancelation { tasks, .. } = &run.tasks[at].content else { continue };
        let by = run.tasks[at].uid;
        let waiting = tasks & run.plane.queue.borrow().in_status(Status::Enqueued);
        let canceled_before = canceled.len();
        for uid in &waiting {
            checkpoint.tick(&*run.plane.runtime).await;
            let held = run.plane.queue.borrow().held(TaskUid(uid)).cloned();
            let Some(task) = held.filter(|task| run.plane.may_cancel(task)) else { continue };
            let mut task = Rc::unwrap_or_clone(task);
            task.status = Status::Canceled;
            task.canceled_by = Some(by);
            canceled.push(task);
        }
        run.tasks[at].outcome = Outcome::Tasks((canceled.len() - canceled_before) as u64);
    }
    run.tasks.extend(canceled);
    run.tasks.sort_by_key(|task| task.uid);
    let change = run.plane.change.borrow().as_ref().map(|change| change.task);
    if change.is_some_and(|uid| run.tasks.iter().any(|task| task.uid == uid && task.status == Status::Canceled)) {
        // The network stays as it was asked for; documents stay where they are.
        let changes = Changes { network_steps: Some(None), ..Changes::default() };
        run.finish_then(changes, Vec::new(), |plane| drop(plane.change.take())).await?;
        run.plane.find_change(None);
        run.plane.publish(|_| {}).await;
        return Ok(End::Finished);
    }
    run.finish(Changes::default(), Vec::new()).await?;
    Ok(End::Finished)
}

/// Forgets every finished task of the sets; one that several deletions name counts for the first. A task that another instance
/// has still to take stays: it could not be sent there any more. Batches without any task left are forgotten too.
pub(super) async fn forget(run: &mut Run<'_>) -> Result<End, Broken> {
    let finished = {
        let queue = run.plane.queue.borrow();
        [Status::Succeeded, Status::Failed, Status::Canceled].map(|status| queue.in_status(status))
    };
    let mut left = finished.into_iter().fold(RoaringBitmap::new(), |all, set| all | set);
    let undelivered = run.plane.outbox.pending();
    let mut forgotten = RoaringBitmap::new();
    for task in &mut run.tasks {
        let Content::TaskDeletion { tasks, .. } = &task.content else { continue };
        let found = (tasks & &left) - &undelivered;
        left -= &found;
        task.outcome = Outcome::Tasks(found.len());
        forgotten |= found;
    }
    let batches = emptied_batches(run, &forgotten, &left).await;
    let changes =
        Changes { forgotten_tasks: forgotten.clone(), forgotten_batches: batches.clone(), ..Changes::default() };
    let forget = |plane: &ControlPlane| {
        plane.queue.borrow_mut().forget(&forgotten);
        plane.batches.borrow_mut().forget(&batches);
    };
    run.finish_then(changes, Vec::new(), forget).await?;
    Ok(End::Finished)
}

/// The batches of `forgotten` that have none of `left`.
async fn emptied_batches(run: &Run<'_>, forgotten: &RoaringBitmap, left: &RoaringBitmap) -> RoaringBitmap {
    let batch_of = |uid| run.plane.queue.borrow().batch_of(TaskUid(uid)).map(|BatchUid(batch)| batch);
    let mut checkpoint = Checkpoint::default();
    let mut batches = RoaringBitmap::new();
    for uid in forgotten {
        checkpoint.tick(&*run.plane.runtime).await;
        batches.extend(batch_of(uid));
    }
    for uid in left {
        checkpoint.tick(&*run.plane.runtime).await;
        if let Some(batch) = batch_of(uid) {
            batches.remove(batch);
        }
    }
    batches
}
