//! Accepting tasks: numbers, one write to the log for all that came meanwhile, then the queue.

use futures_channel::oneshot;
use shards::timestamp::Timestamp;

use super::message::{ControlError, Selection};
use super::plane::ControlPlane;
use crate::tasks::task::{Content, NewTask, Status, Task, TaskUid};

/// Tasks written to the log together at most.
const GROUP_TASKS_MAX: usize = 256;

/// A request to accept a task.
pub(super) struct Registration {
    pub(super) what: What,
    pub(super) done: oneshot::Sender<Result<Task, ControlError>>,
}

/// What is to be accepted.
pub(super) enum What {
    /// This task.
    Task(Box<NewTask>, Option<Vec<u8>>),
    /// A cancelation or deletion of what matches when its number is given.
    Selection(Box<Selection>),
}

impl ControlPlane {
    /// Accepts a task; durable when it returns.
    pub(super) async fn register(&self, what: What) -> Result<Task, ControlError> {
        let (done, result) = oneshot::channel();
        self.registrations.push(Registration { what, done });
        result.await.unwrap_or(Err(ControlError::Unreachable))
    }

    /// Works through the requests to accept tasks; never returns. It runs apart from the requests, so that a client that
    /// goes away does not stop a write half way, and it alone gives numbers, so that they have no holes.
    pub(super) async fn run_registrations(&self) {
        loop {
            let mut waiting = self.registrations.take().await.into_iter().peekable();
            while waiting.peek().is_some() {
                let group: Vec<Registration> = waiting.by_ref().take(GROUP_TASKS_MAX).collect();
                self.register_group(group).await;
            }
        }
    }

    async fn register_group(&self, group: Vec<Registration>) {
        let (mut tasks, mut payloads, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for (uid, registration) in (self.next_task.get()..).zip(group) {
            let now = self.next_enqueued_at();
            let (new, payload) = match registration.what {
                What::Task(new, payload) => (*new, payload),
                What::Selection(selection) => (self.select(*selection), None),
            };
            tasks.push(Task::accepted(TaskUid(uid), new, now));
            payloads.push(payload);
            answers.push(registration.done);
        }
        let written = self.log.append(&tasks, payloads).await;
        if let Err(error) = written {
            tracing::error!(%error, tasks = tasks.len(), "tasks could not be accepted");
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
            return;
        }
        self.next_task.set(self.next_task.get() + tasks.len() as u32);
        for (task, answer) in tasks.into_iter().zip(answers) {
            self.interrupt_for(&task);
            self.queue.borrow_mut().insert(task.clone());
            // The client may have gone away; its task is accepted all the same.
            let _ = answer.send(Ok(task));
        }
        self.work.raise();
    }

    /// The task for a selection, with what matches now.
    fn select(&self, selection: Selection) -> NewTask {
        let queue = self.queue.borrow();
        let tasks = queue.matching(&selection.filter) & queue.covered(&selection.scope);
        let query = selection.query;
        let content = match selection.cancel {
            true => Content::TaskCancelation { query, tasks },
            false => Content::TaskDeletion { query, tasks },
        };
        NewTask { content, custom_metadata: selection.custom_metadata }
    }

    /// Stops the batch in progress when a cancelation is about one of its tasks.
    fn interrupt_for(&self, task: &Task) {
        if let Content::TaskCancelation { tasks, .. } = &task.content {
            let processing = self.queue.borrow().in_status(Status::Processing);
            if !tasks.is_disjoint(&processing) {
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
