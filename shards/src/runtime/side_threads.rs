//! Threads for finite work that blocks or uses much CPU time: local models, long bodies, compression of dumps.
//!
//! The process has one small pool, started before any executor is pinned (a thread inherits the affinity of the one that creates
//! it). The queue is bounded: a full one refuses the job at once, because waiting would only hide the overload.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

use futures_util::future::LocalBoxFuture;
use futures_util::task::AtomicWaker;

use super::{SideThreadError, panic_text};

/// Jobs that may wait for a thread.
pub(super) const WAITING_MAX: usize = 256;

struct Job {
    run: Box<dyn FnOnce() + Send>,
    report: Report,
}

/// Where a job's end is announced. Set by the side thread, read by the core that asked.
#[derive(Default)]
struct Outcome {
    result: OnceLock<Result<(), SideThreadError>>,
    asker_gone: AtomicBool,
    waker: AtomicWaker,
}

/// The side thread's end of an [`Outcome`]; a job that is dropped unrun reports that the threads have ended.
struct Report(Arc<Outcome>);

impl Report {
    fn set(&self, result: Result<(), SideThreadError>) {
        // Only the first result counts: a finished job's report is dropped later and must not overwrite it.
        let _ = self.0.result.set(result);
        self.0.waker.wake();
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.set(Err(SideThreadError::Ended));
    }
}

/// Marks that nobody waits, so that a job not yet started is skipped.
struct Asker(Arc<Outcome>);

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.asker_gone.store(true, Ordering::Relaxed);
        self.0.waker.take();
    }
}

/// A handle on the pool; the threads end when the last one is dropped and the queue is empty.
#[derive(Clone)]
pub(super) struct SideThreads {
    jobs: SyncSender<Job>,
}

impl SideThreads {
    /// Starts `threads` (at least 1) threads named `side-n`.
    pub(super) fn start(threads: usize) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..threads.max(1) {
            let waiting = waiting.clone();
            std::thread::Builder::new().name(format!("side-{number}")).spawn(move || work(&waiting))?;
        }
        Ok(Self { jobs })
    }

    /// Queues a job; the future ends with it.
    pub(super) fn run(&self, run: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>> {
        let asker = Asker(Arc::new(Outcome::default()));
        let job = Job { run, report: Report(asker.0.clone()) };
        let refused = match self.jobs.try_send(job) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => Some(SideThreadError::Full),
            Err(TrySendError::Disconnected(_)) => Some(SideThreadError::Ended),
        };
        Box::pin(async move {
            if let Some(error) = refused {
                return Err(error);
            }
            std::future::poll_fn(|context| {
                if let Some(result) = asker.0.result.get() {
                    return Poll::Ready(result.clone());
                }
                asker.0.waker.register(context.waker());
                // The result may have been set between the look and the registration.
                asker.0.result.get().map_or(Poll::Pending, |result| Poll::Ready(result.clone()))
            })
            .await
        })
    }
}

fn work(waiting: &Mutex<Receiver<Job>>) {
    loop {
        // A poisoned lock cannot happen: nothing panics while it is held.
        let Ok(next) = waiting.lock().map(|queue| queue.recv()) else { return };
        let Ok(Job { run, report }) = next else { return };
        if report.0.asker_gone.load(Ordering::Relaxed) {
            continue;
        }
        let result = catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
            let text = panic_text(&*payload);
            tracing::error!(panic = %text, "job on a side thread panicked");
            SideThreadError::Panicked(text)
        });
        report.set(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;
    use std::sync::mpsc::channel;

    /// A thread that died with its job would leave every later job waiting for ever.
    #[test]
    fn a_panicking_job_is_reported_and_the_thread_lives_on() {
        let pool = SideThreads::start(1).unwrap();
        let failed = block_on(pool.run(Box::new(|| panic!("broken"))));
        assert_eq!(failed, Err(SideThreadError::Panicked("broken".to_owned())));
        assert_eq!(block_on(pool.run(Box::new(|| ()))), Ok(()));
    }

    /// The queue must refuse when full instead of growing or blocking the executor.
    #[test]
    fn a_full_queue_refuses() {
        let pool = SideThreads::start(1).unwrap();
        let (release, gate) = channel::<()>();
        let (started, running) = channel::<()>();
        let first = pool.run(Box::new(move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
        }));
        running.recv().unwrap();
        let queued: Vec<_> = (0..WAITING_MAX).map(|_| pool.run(Box::new(|| ()))).collect();
        assert_eq!(block_on(pool.run(Box::new(|| ()))), Err(SideThreadError::Full));
        release.send(()).unwrap();
        assert_eq!(block_on(first), Ok(()));
        for job in queued {
            assert_eq!(block_on(job), Ok(()));
        }
    }
}
