//! Deadlines of one request.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use shards::runtime::{Nanos, Runtime};

use super::error::{Phase, SendError};
use super::request::Deadlines;

/// The deadlines of a request that has begun.
#[derive(Clone)]
pub(super) struct Clock {
    pub(super) runtime: Rc<dyn Runtime>,
    deadlines: Deadlines,
    end: Nanos,
}

impl Clock {
    /// The request begins now.
    pub(super) fn start(runtime: Rc<dyn Runtime>, deadlines: Deadlines) -> Self {
        let end = runtime.now().after(deadlines.total);
        Self { runtime, deadlines, end }
    }

    /// The time that is left in all.
    fn left(&self) -> Duration {
        self.end.since(self.runtime.now())
    }

    /// Waits for `step` as long as this phase may take. A step that does not end in time is dropped.
    pub(super) async fn within<T>(
        &self,
        phase: Phase,
        step: impl Future<Output = Result<T, SendError>>,
    ) -> Result<T, SendError> {
        let allowed = match phase {
            Phase::Connect => self.deadlines.connect,
            Phase::Transfer => self.deadlines.idle,
            Phase::Total => self.deadlines.total,
        };
        let left = self.left();
        let (wait, phase) = if left < allowed { (left, Phase::Total) } else { (allowed, phase) };
        within(&*self.runtime, wait, step).await.unwrap_or(Err(SendError::TimedOut(phase)))
    }

    /// The time that connecting may still take.
    pub(super) fn connect_time(&self) -> Duration {
        self.deadlines.connect.min(self.left())
    }
}

/// Waits for `step` for at most `wait`; `None` when that was too short.
pub(super) async fn within<T>(runtime: &dyn Runtime, wait: Duration, step: impl Future<Output = T>) -> Option<T> {
    match select(pin!(step), runtime.sleep(wait)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}
