//! Accepting tasks: assigns their numbers, writes all that arrived meanwhile to the log at once, then enqueues them.

use std::rc::Rc;
use std::sync::Arc;

use futures_channel::oneshot;
use roaring::RoaringBitmap;
use shards::error::UserError;
use shards::runtime::Queue as RunQueue;
use shards::timestamp::Timestamp;

use super::acknowledge::{Asker, Verdict};
use super::message::{ControlAnswer, ControlError, Selection};
use super::plane::ControlPlane;
use super::storage::record::Changes;
use crate::network::Network;
use crate::network::admission::Admission;
use crate::tasks::kind::Kind;
use crate::tasks::task::{Content, NewTask, Status, Task, TaskUid};

/// Tasks written to the log together at most.
const GROUP_TASKS_MAX: usize = 256;

/// The part of the tasks that are kept at most that is forgotten at once.
const CLEAN_UP_SHARE: u64 = 10;

/// A request to accept a task.
pub(super) struct Registration {
    pub(super) what: What,
    pub(super) answer: Answer,
}

/// Takes what became of a request to accept a task.
pub(super) struct Answer {
    done: oneshot::Sender<Result<ControlAnswer, ControlError>>,
    /// Who is told when other instances have it.
    asker: Asker,
}

impl Answer {
    /// Whoever asked may have gone away; what was accepted stands.
    fn send(self, task: Result<Task, ControlError>) {
        let _ = self.done.send(task.map(|task| ControlAnswer::Registered(Box::new(task))));
    }

    /// The task is accepted but is not to be acknowledged yet. Who is to hear when it is.
    fn send_waiting(self, task: Task) -> Asker {
        let _ = self.done.send(Ok(ControlAnswer::OnItsWay(Box::new(task))));
        self.asker
    }
}

/// What is to be accepted.
pub(super) enum What {
    /// This task.
    Task(Box<NewTask>, Option<Vec<u8>>),
    /// A cancelation or deletion of what matches when its number is given.
    Selection(Box<Selection>),
}

/// What becomes of a task that asks to be accepted.
enum Numbered {
    /// It gets this number.
    New(TaskUid),
    /// It would get this number.
    Dry(TaskUid),
    /// It is here already.
    Known(TaskUid),
}

/// Tasks that have their numbers and go to the log together.
struct Group {
    tasks: Vec<Task>,
    /// The payload of each task.
    payloads: Vec<Option<Vec<u8>>>,
    /// Who asked for each task; nobody for one of our own.
    answers: Vec<Option<Answer>>,
    /// The network after these tasks.
    network: Arc<Network>,
    /// The number after the last.
    next: u32,
}

impl ControlPlane {
    /// Accepts a task; durable when it returns. Of one that other instances get too, `asker` hears once each has it or is known
    /// to be away.
    pub(super) async fn register(&self, what: What, asker: Asker) -> Result<ControlAnswer, ControlError> {
        let (done, result) = oneshot::channel();
        self.registrations.push(Registration { what, answer: Answer { done, asker } });
        result.await.unwrap_or(Err(ControlError::Unreachable))
    }

    /// Works through the requests to accept tasks; never returns. It runs apart from the requests, so that a client that
    /// goes away does not stop a write half way, and it alone gives numbers, so that they have no holes.
    pub(super) async fn run_registrations(self: Rc<Self>) {
        loop {
            let mut waiting = self.registrations.take().await.into_iter().peekable();
            while waiting.peek().is_some() {
                let group: Vec<Registration> = waiting.by_ref().take(GROUP_TASKS_MAX).collect();
                self.register_group(group).await;
            }
        }
    }

    async fn register_group(self: &Rc<Self>, group: Vec<Registration>) {
        let before = self.network.borrow().clone();
        let Group { tasks, payloads, answers, network, next } = self.number_group(group, before.clone());
        if tasks.is_empty() {
            return;
        }
        let written = self.log.append(&tasks, payloads).await;
        if let Err(error) = written {
            tracing::error!(%error, tasks = tasks.len(), "cannot accept tasks");
            for answer in answers.into_iter().flatten() {
                answer.send(Err(error.clone()));
            }
            return;
        }
        self.next_task.set(next);
        let is_changed = network.version != before.version;
        if is_changed {
            self.use_network(network.clone());
        }
        for (task, answer) in tasks.into_iter().zip(answers) {
            self.take_in(task, answer);
        }
        if is_changed {
            self.show_network(network).await;
        }
        self.work.raise();
    }

    /// Gives numbers to those of the group that are to be accepted, and answers the others.
    fn number_group(&self, group: Vec<Registration>, network: Arc<Network>) -> Group {
        let next = self.next_task.get();
        let mut numbered = Group { tasks: Vec::new(), payloads: Vec::new(), answers: Vec::new(), network, next };
        for Registration { what, answer } in group {
            let now = self.next_enqueued_at();
            let (mut new, payload) = match what {
                What::Task(new, payload) => (*new, payload),
                What::Selection(selection) => (self.select(*selection), None),
            };
            let uid = match self.numbered(&mut new, &mut numbered) {
                Ok(Numbered::New(uid)) => uid,
                Ok(Numbered::Dry(uid)) => {
                    answer.send(Ok(Task::accepted(uid, new, now)));
                    continue;
                }
                Ok(Numbered::Known(uid)) => {
                    let known = self.task(uid).map(|task| match task {
                        Some(task) => Rc::unwrap_or_clone(task),
                        // It may have been deleted here before the leader heard of its number.
                        None => Task::accepted(uid, new, now),
                    });
                    answer.send(known);
                    continue;
                }
                Err(error) => {
                    answer.send(Err(error.into()));
                    continue;
                }
            };
            numbered.next = uid.0 + 1;
            numbered.tasks.push(Task::accepted(uid, new, now));
            numbered.payloads.push(payload);
            numbered.answers.push(Some(answer));
        }
        self.add_clean_up(&mut numbered);
        numbered
    }

    /// Adds the deletion of the oldest finished tasks to the group when there are too many of all.
    fn add_clean_up(&self, group: &mut Group) {
        let queue = self.queue.borrow();
        let Some(tasks_max) = self.config.tasks_max else { return };
        let is_full = queue.len() + group.tasks.len() as u64 >= tasks_max;
        if group.tasks.is_empty() || !is_full || group.next == u32::MAX || queue.has_unfinished(Kind::TaskDeletion) {
            return;
        }
        let deletable = queue.finished() - self.outbox.pending();
        let oldest: RoaringBitmap = deletable.iter().take((tasks_max / CLEAN_UP_SHARE) as usize).collect();
        let Some(last) = oldest.max() else { return };
        let Some(after) = queue.enqueued_at(TaskUid(last)).map(|date| Timestamp(date.0 + 1)) else { return };
        tracing::info!(tasks = queue.len(), forgotten = oldest.len(), "deleting the oldest finished tasks");
        let query = format!("?statuses=succeeded,failed,canceled&beforeEnqueuedAt={after}");
        let content = Content::TaskDeletion { query, tasks: oldest };
        group.tasks.push(Task::accepted(TaskUid(group.next), NewTask::new(content, None), self.next_enqueued_at()));
        group.payloads.push(None);
        group.answers.push(None);
        group.next += 1;
    }

    /// Puts a task that is durable into the queue, sends it on and answers. Where other instances get it, whoever asked is told
    /// apart from that, once each has it or is known to be away.
    fn take_in(self: &Rc<Self>, task: Task, answer: Option<Answer>) {
        self.interrupt_for(&task);
        self.queue.borrow_mut().insert(task.clone());
        self.note_accepted(&task);
        if task.kind() == Kind::NetworkTopologyChange && self.change.borrow().is_none() {
            self.find_change(None);
        }
        let waits = self.send_on(&task);
        if waits.is_empty() {
            if let Some(answer) = answer {
                answer.send(Ok(task));
            }
            return;
        }
        let uid = task.uid;
        self.outbox.hold(uid.0);
        let asker = answer.map(|answer| answer.send_waiting(task));
        let plane = self.clone();
        let told = async move {
            let result = plane.delivered(uid, waits).await.map_err(ControlError::from);
            if let Some((core, ticket)) = asker {
                plane.verdicts.push(core, Verdict { ticket, result });
            }
        };
        self.runtime.spawn(RunQueue::Indexing, Box::pin(told));
    }

    /// Makes the network that a task brought durable by itself, and shows it to every core.
    async fn show_network(&self, network: Arc<Network>) {
        let changes = Changes { network: Some(network.clone()), ..Changes::default() };
        if let Err(error) = self.store.commit(changes).await {
            // The task in the log brings it back after a restart.
            tracing::error!(%error, "cannot write the network's state");
        }
        self.publish(|state| state.network = network).await;
    }

    /// The number of a task, if it is one to be accepted.
    fn numbered(&self, new: &mut NewTask, group: &mut Group) -> Result<Numbered, UserError> {
        let next = group.next;
        let uid = new.numbering.uid.unwrap_or(next);
        if uid < next {
            let message = format!("The header `TaskId` names task {uid}, but the next one is at least {next}.");
            return Err(UserError::new("bad_request", message));
        }
        if uid == u32::MAX {
            // After it there would be no number for the next task.
            let message = format!("No task can have the number {uid}: it is the last one there is.");
            return Err(UserError::new("bad_request", message));
        }
        if new.numbering.is_dry {
            return Ok(Numbered::Dry(TaskUid(uid)));
        }
        Ok(match self.admit(new, &mut group.network)? {
            Admission::Accepted => {
                // Those of the group do not wait yet.
                self.outbox.check_room(new, group.tasks.len() as u64)?;
                Numbered::New(TaskUid(uid))
            }
            Admission::Known(uid) => Numbered::Known(uid),
        })
    }

    /// The task for a selection, with what matches now.
    fn select(&self, selection: Selection) -> NewTask {
        let queue = self.queue.borrow();
        let mut tasks = queue.matching(&selection.filter) & queue.covered(&selection.scope);
        if selection.filter.indexes.is_some() {
            // Who names an index means what happened to it alone: a swap is found under both its names.
            tasks -= queue.without_single_index();
        }
        let query = selection.query;
        let content = match selection.cancel {
            true => Content::TaskCancelation { query, tasks },
            false => Content::TaskDeletion { query, tasks },
        };
        NewTask { numbering: selection.numbering, ..NewTask::new(content, selection.custom_metadata) }
    }

    /// Stops the batch in progress when a cancelation is about one of its tasks.
    fn interrupt_for(&self, task: &Task) {
        if let Content::TaskCancelation { tasks, .. } = &task.content {
            let queue = self.queue.borrow();
            let processing = tasks & queue.in_status(Status::Processing);
            let may_cancel = |uid| queue.held(TaskUid(uid)).is_some_and(|task| self.may_cancel(task));
            if processing.iter().any(may_cancel) {
                self.interrupt.raise();
            }
        }
    }

    /// Now, or a nanosecond after the task before when the clock was set back: the order of dates is that of numbers.
    fn next_enqueued_at(&self) -> Timestamp {
        let now = Timestamp::from_unix(self.runtime.unix_time()).max(Timestamp(self.last_enqueued_at.get().0 + 1));
        self.last_enqueued_at.set(now);
        now
    }
}

#[cfg(test)]
mod tests;
