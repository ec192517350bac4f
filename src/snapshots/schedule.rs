//! Snapshots at regular times.

use std::rc::Rc;
use std::time::Duration;

use shards::runtime::{Queue, Runtime};

use crate::control::ControlHandle;
use crate::tasks::task::Content;

/// Registers a snapshot each time this interval has passed, for as long as the instance runs. Several that wait become one.
pub fn start(runtime: &Rc<dyn Runtime>, control: ControlHandle, interval: Duration) {
    let clock = runtime.clone();
    let run = async move {
        loop {
            clock.sleep(interval).await;
            if let Err(error) = control.register(Content::SnapshotCreation.into(), None).await {
                tracing::warn!(error = error.message, "cannot enqueue a scheduled snapshot");
            }
        }
    };
    runtime.spawn(Queue::Upkeep, Box::pin(run));
}
