//! Wakes every core periodically from outside, and lets cores see which of them is indexing, so that its turn can be cut short.
//!
//! glommio 0.9 mistakes "asked to yield before the first task of this turn ran" for "no task is ready", and then sleeps with
//! ready tasks until some event wakes it. This happens when a thread loses its CPU for longer than the preemption timer just
//! after arming it: rarely on a quiet host, within seconds on a busy one. A timer inside the executor does not help, because its
//! own task is left waiting in the same way. A wake-up from another thread always makes the executor look again, so [`EVERY`]
//! bounds the delay for a busy core. A core that has polled no task in the last [`QUIET_BEATS`] wake-ups has no ready task and is
//! woken only every [`EVERY_QUIET`]: each wake-up costs some tens of microseconds, a tenth of a CPU at the faster pace.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::ids::CoreId;

/// Between two wakes of a core at work.
const EVERY: Duration = Duration::from_millis(2);
/// Between two wakes of a core that has nothing to do.
const EVERY_QUIET: Duration = Duration::from_millis(20);
/// Wakes without any other task polled that make a core quiet.
const QUIET_BEATS: u32 = 10;
/// Wakes that a core may leave unanswered before it gets no more. Every one holds a reference to the task, and glommio 0.9
/// counts these in 16 bits with a sign: a core that is held up for a minute must not end the process.
const UNANSWERED_MAX: u32 = 1 << 14;

/// What the thread knows of one core. On cache lines of its own: the core counts all the time.
#[derive(Default)]
#[repr(align(128))]
struct Pulsed {
    /// Set while the core runs. Locked by it when it starts and when it ends, never in between.
    waker: Mutex<Option<Waker>>,
    /// Wakes since the woken task was last polled.
    unanswered: AtomicU32,
    polls: AtomicU64,
    /// Set while the core is in a turn of indexing or upkeep.
    in_background: AtomicBool,
}

impl Pulsed {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        // An option is never half changed.
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.wake_by(self.waker().as_ref());
    }

    /// Like [`Pulsed::wake`] for callers that may not wait: whoever else holds the waker wakes it just now, or the core is
    /// starting or ending.
    fn try_wake(&self) {
        if let Ok(waker) = self.waker.try_lock() {
            self.wake_by(waker.as_ref());
        }
    }

    fn wake_by(&self, waker: Option<&Waker>) {
        if let Some(waker) = waker
            && self.unanswered.load(Ordering::Relaxed) < UNANSWERED_MAX
        {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            waker.wake_by_ref();
        }
    }
}

/// What one core tells the others and the thread of itself.
#[derive(Clone)]
pub(super) struct Presence {
    cores: Arc<[Pulsed]>,
    core: usize,
}

impl Presence {
    /// Says whether a turn of indexing or upkeep has begun or ended. Only the core itself may call this.
    pub(super) fn set_in_background(&self, is_in: bool) {
        self.cores[self.core].in_background.store(is_in, Ordering::Relaxed);
    }

    /// Wakes another core's beat if that core is in a turn of indexing or upkeep, which a wake of this kind cuts short. A
    /// core that is not is left alone: for one that is awake the wake costs both a system call and brings nothing.
    pub(super) fn interrupt(&self, core: CoreId) {
        let Some(pulsed) = self.cores.get(usize::from(core.0)) else { return };
        if pulsed.in_background.load(Ordering::Relaxed) {
            pulsed.try_wake();
        }
    }

    /// A task is polled. Only the core itself may call this.
    pub(super) fn count_poll(&self) {
        let polls = &self.cores[self.core].polls;
        // Nobody else writes, so this needs no atomic addition.
        polls.store(polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// The thread; it ends when this and all beats are dropped.
#[derive(Clone)]
pub(super) struct Pulse {
    cores: Arc<[Pulsed]>,
    _alive: Sender<()>,
}

/// One core's part: as long as it lives, the core is woken.
pub(super) struct Beat {
    pulse: Pulse,
    core: usize,
}

/// How often one core is woken.
#[derive(Clone, Copy, Default)]
struct Pace {
    polls: u64,
    /// Looks in a row that saw no poll.
    quiet: u32,
}

impl Pace {
    fn look(&mut self, polls: u64) {
        self.quiet = if polls == self.polls { self.quiet.saturating_add(1) } else { 0 };
        self.polls = polls;
    }

    fn is_quiet(&self) -> bool {
        self.quiet >= QUIET_BEATS
    }

    /// Whether the core is woken at this look, at the pace of [`EVERY`].
    fn is_due(&self) -> bool {
        !self.is_quiet() || u128::from(self.quiet) % (EVERY_QUIET.as_millis() / EVERY.as_millis()) == 0
    }
}

impl Pulse {
    /// Starts the thread for `cores` cores.
    pub(super) fn start(cores: u16) -> std::io::Result<Self> {
        let cores: Arc<[Pulsed]> = (0..cores).map(|_| Pulsed::default()).collect();
        let (alive, ended) = channel::<()>();
        let beaten = cores.clone();
        std::thread::Builder::new().name("pulse".to_owned()).spawn(move || {
            let mut paces = vec![Pace::default(); beaten.len()];
            let mut wait = EVERY;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let mut all_quiet = true;
                for (core, pace) in beaten.iter().zip(&mut paces) {
                    pace.look(core.polls.load(Ordering::Relaxed));
                    all_quiet &= pace.is_quiet();
                    if wait == EVERY_QUIET || pace.is_due() {
                        core.wake();
                    }
                }
                wait = if all_quiet { EVERY_QUIET } else { EVERY };
            }
        })?;
        Ok(Self { cores, _alive: alive })
    }

    /// What a core tells of itself.
    pub(super) fn presence(&self, core: u16) -> Presence {
        Presence { cores: self.cores.clone(), core: usize::from(core) }
    }

    /// The part of one core, and the task to be woken: it does nothing but be there, in a queue whose wakes always reach the
    /// executor.
    pub(super) fn beat(self, core: u16) -> (Beat, impl Future<Output = ()> + 'static) {
        let (cores, core) = (self.cores.clone(), usize::from(core));
        let mut registered = false;
        let task = std::future::poll_fn(move |context| {
            cores[core].unanswered.store(0, Ordering::Relaxed);
            if !registered {
                *cores[core].waker() = Some(context.waker().clone());
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
        let waker = self.pulse.cores[self.core].waker().take();
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

    /// The wakes must come also when the task is never polled again: that is the very case they are for. None may come after the
    /// core has ended.
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

    #[test]
    fn a_core_that_is_held_up_is_not_woken_without_end() {
        let counted = Arc::new(Counted::default());
        let core = Pulsed::default();
        *core.waker() = Some(Waker::from(counted.clone()));
        let wake = || (0..3 * UNANSWERED_MAX).for_each(|_| core.wake());
        wake();
        assert_eq!(counted.0.load(Ordering::Relaxed), u64::from(UNANSWERED_MAX));
        core.unanswered.store(0, Ordering::Relaxed);
        wake();
        assert_eq!(counted.0.load(Ordering::Relaxed), 2 * u64::from(UNANSWERED_MAX));
    }

    #[test]
    fn a_quiet_core_is_woken_less_often_until_it_works_again() {
        let mut pace = Pace::default();
        let due = |pace: &mut Pace, polls| {
            (0..100)
                .filter(|_| {
                    pace.look(polls);
                    pace.is_due()
                })
                .count()
        };
        assert_eq!(due(&mut pace, 7), 10 + 9);
        assert!(pace.is_quiet());
        pace.look(8);
        assert!(!pace.is_quiet() && pace.is_due());
    }
}
