//! Runs work on side threads and returns its result.

use std::sync::{Arc, Mutex, PoisonError};

use shards::runtime::{self, Runtime};

use super::CopyError;

/// Texts longer than this are read on a side thread: a millisecond of parsing is too long for an executor.
const LONG_BYTES: usize = 16 << 10;

/// Runs a job on a side thread and gives back its result. While the queue of the threads is full, it waits: a copy of the
/// instance is nobody's hurry.
///
/// # Errors
/// The job panicked, or the threads have ended.
pub async fn aside<T, F>(runtime: &dyn Runtime, job: F) -> Result<T, CopyError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    runtime::aside(runtime, job).await.map_err(|error| CopyError::Failed(error.to_string()))
}

/// Runs a job that reads so many bytes: here where these are few, else as [`aside`] does.
///
/// # Errors
/// As [`aside`].
pub async fn aside_if_long<T, F>(runtime: &dyn Runtime, bytes: usize, job: F) -> Result<T, CopyError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if bytes > LONG_BYTES { aside(runtime, job).await } else { Ok(job()) }
}

/// Something that one job after another works on, each on a side thread. It goes away with the last job or with this handle,
/// whichever ends later.
pub struct Shared<S>(Arc<Mutex<S>>);

impl<S: Send + 'static> Shared<S> {
    /// Hands it to the jobs.
    pub fn new(subject: S) -> Self {
        Self(Arc::new(Mutex::new(subject)))
    }

    /// Runs a job on it and waits for its end. One at a time: the lock is never waited for.
    ///
    /// # Errors
    /// Those of the job, and as [`aside`].
    pub async fn run<T, F>(&self, runtime: &dyn Runtime, job: F) -> Result<T, CopyError>
    where
        T: Send + 'static,
        F: FnOnce(&mut S) -> Result<T, CopyError> + Send + 'static,
    {
        let subject = self.0.clone();
        aside(runtime, move || job(&mut subject.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }
}
