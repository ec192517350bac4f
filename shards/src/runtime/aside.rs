//! Runs work on side threads and returns its result.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;

use super::{Runtime, SideThreadError};

/// How long to wait before a full queue of side threads is tried again.
const QUEUE_PAUSE: Duration = Duration::from_millis(20);

/// Runs a job on a side thread and gives back its result. While the queue of the threads is full, it waits.
///
/// # Errors
/// The job panicked, or the threads have ended.
pub async fn aside<T, F>(runtime: &dyn Runtime, job: F) -> Result<T, SideThreadError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (done, result) = oneshot::channel();
    // A refused job comes back through this place.
    let place = Arc::new(Mutex::new(Some((job, done))));
    loop {
        let taken = place.clone();
        let run = move || {
            let job = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((job, done)) = job {
                // Nobody listens any more when the task was canceled meanwhile.
                let _ = done.send(job());
            }
        };
        match runtime.side_thread(Box::new(run)).await {
            Ok(()) => return result.await.map_err(|_| SideThreadError::Ended),
            Err(SideThreadError::Full) => runtime.sleep(QUEUE_PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}
