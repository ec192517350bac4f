//! Accepted tasks and their payloads, in the log. A task there remains promised until the control store records that it is
//! finished.
//!
//! A frame is the length of the task's record (u32, little-endian), the record as JSON, and the payload.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use shards::runtime::Runtime;
use storage_engine::DiskError;
use storage_engine::log::{Log, LogError, LogOptions, Position, Visitor};

use super::record::FinishedSet;
use crate::control::message::ControlError;
use crate::tasks::task::{Task, TaskUid};

/// Bytes of one file of the log.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Payloads up to this size are kept in memory until their task ends, so that they need not be read back.
const KEPT_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of payloads kept in memory together.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Bytes before a frame's record.
const LENGTH_BYTES: usize = 4;

/// The log of accepted tasks. Only the control core has one.
pub struct TaskLog {
    log: Log,
    open: RefCell<Open>,
}

/// The tasks that have not ended.
#[derive(Default)]
struct Open {
    /// Where their frames are, and where in these the payloads begin.
    positions: BTreeMap<u32, (Position, usize)>,
    kept: BTreeMap<u32, Arc<Vec<u8>>>,
    kept_bytes: usize,
}

impl TaskLog {
    /// Opens the log in this folder, or makes it. Also gives the tasks that were accepted and have not ended, in order. Payloads
    /// stay where they are; those of ended tasks that other instances have still to take can be read too.
    ///
    /// # Errors
    /// The disk failed, or a frame that was complete cannot be understood.
    pub async fn open(
        runtime: &Rc<dyn Runtime>,
        folder: &Path,
        finished: &FinishedSet,
        undelivered: &RoaringBitmap,
    ) -> Result<(Self, Vec<Task>), ControlError> {
        let options = LogOptions { segment_bytes: SEGMENT_BYTES };
        let mut found = Found { finished, undelivered, open: Open::default(), tasks: Vec::new(), failure: None };
        let log = Log::open(runtime.disk(), folder, options, &mut found)
            .await
            .map_err(|error| ControlError::Storage(format!("opening the task log: {error}")))?;
        match found.failure {
            Some(error) => Err(error),
            None => Ok((Self { log, open: RefCell::new(found.open) }, found.tasks)),
        }
    }

    /// Makes tasks durable, all with one synchronisation.
    ///
    /// # Errors
    /// The disk is full or failed; then none of the tasks is promised.
    pub async fn append(&self, tasks: &[Task], payloads: Vec<Option<Vec<u8>>>) -> Result<(), ControlError> {
        let mut kept = Vec::new();
        let (mut frames, mut payload_starts) = (Vec::new(), Vec::new());
        for (task, payload) in tasks.iter().zip(payloads) {
            let record =
                serde_json::to_vec(task).map_err(|error| ControlError::Storage(format!("encoding a task: {error}")))?;
            let head = u32::try_from(record.len())
                .map_err(|_| ControlError::Storage("a task's record is larger than 4 GiB".into()))?;
            payload_starts.push(LENGTH_BYTES + record.len());
            let mut parts = vec![head.to_le_bytes().to_vec(), record];
            if let Some(payload) = payload {
                if payload.len() <= KEPT_PAYLOAD_BYTES_MAX {
                    kept.push((task.uid, Arc::new(payload.clone())));
                }
                parts.push(payload);
            }
            frames.push(parts);
        }
        let positions = self.log.append_all(frames).await.map_err(append_failed)?;
        let mut open = self.open.borrow_mut();
        open.positions.extend(tasks.iter().map(|task| task.uid.0).zip(positions.into_iter().zip(payload_starts)));
        for (uid, payload) in kept {
            open.keep(uid, payload);
        }
        Ok(())
    }

    /// The payload of a task that has not ended; empty for a task that came without one.
    ///
    /// # Errors
    /// The disk failed, or the task has ended.
    pub async fn payload(&self, uid: TaskUid) -> Result<Arc<Vec<u8>>, ControlError> {
        let kept = self.open.borrow().kept.get(&uid.0).cloned();
        if let Some(payload) = kept {
            return Ok(payload);
        }
        let position = self.open.borrow().positions.get(&uid.0).copied();
        let (position, payload_start) =
            position.ok_or_else(|| ControlError::Storage(format!("task {} is not in the log", uid.0)))?;
        let payload = self.log.read_behind(position, payload_start).await;
        payload
            .map(Arc::new)
            .map_err(|error| ControlError::Storage(format!("reading the payload of task {}: {error}", uid.0)))
    }

    /// Lets go of tasks that have ended, durably, and of the files that hold no others.
    pub async fn release(&self, tasks: impl Iterator<Item = TaskUid>) {
        let oldest = {
            let mut open = self.open.borrow_mut();
            let mut last = None;
            for uid in tasks {
                open.forget(uid);
                last = open.positions.remove(&uid.0).map(|(position, _)| position).max(last);
            }
            // Positions grow with uids. Where nothing is open, all up to the newest that ended may go; what stands behind it is
            // being accepted just now.
            let oldest = open.positions.first_key_value().map(|(_, (position, _))| position.offset);
            oldest.or(last.map(Position::end))
        };
        if let Some(oldest) = oldest {
            // The files that stay cost space, not correctness, and are tried again after the next batch.
            if let Err(error) = self.log.remove_before(oldest).await {
                tracing::warn!(%error, "cannot remove files of the task log");
            }
        }
    }
}

impl Open {
    fn keep(&mut self, uid: TaskUid, payload: Arc<Vec<u8>>) {
        if self.kept_bytes + payload.len() <= KEPT_BYTES_MAX {
            self.kept_bytes += payload.len();
            self.kept.insert(uid.0, payload);
        }
    }

    fn forget(&mut self, uid: TaskUid) {
        if let Some(payload) = self.kept.remove(&uid.0) {
            self.kept_bytes -= payload.len();
        }
    }
}

/// What is found in the log when it is opened.
struct Found<'a> {
    finished: &'a FinishedSet,
    undelivered: &'a RoaringBitmap,
    open: Open,
    /// Those that have not ended.
    tasks: Vec<Task>,
    /// Why a frame could not be understood.
    failure: Option<ControlError>,
}

impl Visitor for Found<'_> {
    /// The record, without the payload behind it.
    fn wanted(&self, head: &[u8]) -> usize {
        head.first_chunk().map_or(LENGTH_BYTES, |length| LENGTH_BYTES + u32::from_le_bytes(*length) as usize)
    }

    fn frame(&mut self, position: Position, head: Vec<u8>) {
        match decode(&head) {
            Ok((task, payload_start)) => self.take(task, position, payload_start),
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }
}

impl Found<'_> {
    fn take(&mut self, task: Task, position: Position, payload_start: usize) {
        let is_open = !self.finished.contains(task.uid.0);
        if is_open || self.undelivered.contains(task.uid.0) {
            self.open.positions.insert(task.uid.0, (position, payload_start));
        }
        if is_open {
            self.tasks.push(task);
        }
    }
}

/// Where a frame's record ends, after it was read.
fn split(frame: &[u8]) -> Result<(&[u8], usize), ControlError> {
    let damaged = || ControlError::Storage("a frame of the task log is damaged".into());
    let (length, rest) = frame.split_first_chunk::<LENGTH_BYTES>().ok_or_else(damaged)?;
    let length = u32::from_le_bytes(*length) as usize;
    let record = rest.get(..length).ok_or_else(damaged)?;
    Ok((record, LENGTH_BYTES + length))
}

/// The task of a frame, and where its payload begins.
fn decode(frame: &[u8]) -> Result<(Task, usize), ControlError> {
    let (record, payload_start) = split(frame)?;
    let task = serde_json::from_slice(record)
        .map_err(|error| ControlError::Storage(format!("a task of the log cannot be read: {error}")))?;
    Ok((task, payload_start))
}

fn append_failed(error: LogError) -> ControlError {
    match error {
        LogError::Disk(DiskError::NoSpace { .. }) => ControlError::OutOfSpace,
        LogError::Disk(DiskError::TooManyFiles { .. }) => ControlError::TooManyFiles,
        error => ControlError::Storage(format!("writing the task log: {error}")),
    }
}

#[cfg(test)]
mod tests;
