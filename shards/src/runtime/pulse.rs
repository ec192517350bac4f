//! Wakes every core now and then, from outside.
//!
//! glommio 0.9 takes "asked to yield before the first task of this turn ran" for "no task is ready", and then sleeps beside
//! ready tasks until some event wakes it. That happens when a thread loses its processor for longer than the preemption
//! timer just after arming it: rare on a quiet host, within seconds on a busy one. A timer within the executor does not help,
//! since its own task is left lying in the same way. A wake from another thread always gets the executor to look again, so
//! [`EVERY`] bounds the harm; it costs an idle core some microseconds each time.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Between two wakes.
const EVERY: Duration = Duration::from_millis(2);

/// A waker for each core that runs. Locked by a core when it starts and when it ends, never in between.
type Wakers = Arc<Mutex<Vec<Option<Waker>>>>;

/// The thread; it ends when this and all beats are dropped.
#[derive(Clone)]
pub(super) struct Pulse {
    wakers: Wakers,
    _alive: Sender<()>,
}

/// One core's part: as long as it lives, the core is woken.
pub(super) struct Beat {
    pulse: Pulse,
    core: usize,
}

fn lock(wakers: &Wakers) -> MutexGuard<'_, Vec<Option<Waker>>> {
    // A list of options is never half changed.
    wakers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pulse {
    /// Starts the thread for `cores` cores.
    pub(super) fn start(cores: u16) -> std::io::Result<Self> {
        let wakers: Wakers = Arc::new(Mutex::new(vec![None; usize::from(cores)]));
        let (alive, ended) = channel::<()>();
        let woken = wakers.clone();
        std::thread::Builder::new().name("pulse".to_owned()).spawn(move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                for waker in lock(&woken).iter().flatten() {
                    waker.wake_by_ref();
                }
            }
        })?;
        Ok(Self { wakers, _alive: alive })
    }

    /// The part of one core, and the task to be woken: it does nothing but be there, in a queue whose wakes always reach the
    /// executor.
    pub(super) fn beat(self, core: u16) -> (Beat, impl Future<Output = ()> + 'static) {
        let (wakers, core) = (self.wakers.clone(), usize::from(core));
        let mut registered = false;
        let task = std::future::poll_fn(move |context| {
            if !registered {
                lock(&wakers)[core] = Some(context.waker().clone());
                registered = true;
            }
            Poll::Pending
        });
        (Beat { pulse: self, core }, task)
    }
}

impl Drop for Beat {
    /// The waker must not outlive its executor in the thread's hands.
    fn drop(&mut self) {
        let waker = lock(&self.pulse.wakers)[self.core].take();
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Wake};
    use std::time::Instant;

    #[derive(Default)]
    struct Counted(AtomicU64);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The wakes must come also when the task is never polled again: that is the very case they are for. And none may come
    /// after the core has ended.
    #[test]
    fn wakes_come_unasked_and_end_with_the_core() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(counted.clone());
        let (beat, task) = Pulse::start(1).unwrap().beat(0);
        assert!(pin!(task).poll(&mut Context::from_waker(&waker)).is_pending());
        let deadline = Instant::now() + Duration::from_secs(30);
        while counted.0.load(Ordering::Relaxed) < 5 {
            assert!(Instant::now() < deadline, "no wakes");
            std::thread::yield_now();
        }
        drop(beat);
        let last = counted.0.load(Ordering::Relaxed);
        std::thread::park_timeout(Duration::from_millis(20));
        assert_eq!(counted.0.load(Ordering::Relaxed), last);
    }
}
