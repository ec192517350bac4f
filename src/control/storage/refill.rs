//! Fills a new log with tasks accepted elsewhere: in the instance of a snapshot or a dump.

use super::tasklog::TaskLog;
use crate::control::message::ControlError;
use crate::tasks::task::Task;

/// Tasks written together at most.
const GROUP_TASKS_MAX: usize = 256;
/// Bytes of payloads after which the tasks gathered are written.
const GROUP_BYTES: usize = 2 << 20;

/// Tasks on their way into a log, gathered so that they share synchronisations.
pub struct Refill<'a> {
    log: &'a TaskLog,
    tasks: Vec<Task>,
    payloads: Vec<Option<Vec<u8>>>,
    bytes: usize,
}

impl<'a> Refill<'a> {
    /// Fills this log.
    pub fn new(log: &'a TaskLog) -> Self {
        Self { log, tasks: Vec::new(), payloads: Vec::new(), bytes: 0 }
    }

    /// Adds a task with its payload; durable after [`Self::finish`].
    ///
    /// # Errors
    /// The disk is full or failed.
    pub async fn add(&mut self, task: Task, payload: Option<Vec<u8>>) -> Result<(), ControlError> {
        self.bytes += payload.as_ref().map_or(0, Vec::len);
        self.tasks.push(task);
        self.payloads.push(payload);
        if self.bytes >= GROUP_BYTES || self.tasks.len() >= GROUP_TASKS_MAX {
            self.finish().await?;
        }
        Ok(())
    }

    /// Makes all that was added durable.
    ///
    /// # Errors
    /// The disk is full or failed.
    pub async fn finish(&mut self) -> Result<(), ControlError> {
        self.bytes = 0;
        let (tasks, payloads) = (std::mem::take(&mut self.tasks), std::mem::take(&mut self.payloads));
        if tasks.is_empty() {
            return Ok(());
        }
        self.log.append(&tasks, payloads).await
    }
}
