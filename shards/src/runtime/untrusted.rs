//! Threads for jobs that may never end: functions written by users.
//!
//! Such a job can enter native code that nothing interrupts, and a thread cannot be killed. So each job has a thread of its own,
//! apart from the side threads that everybody else waits for. One more thread, the keeper, starts and watches them. A job that
//! takes too long, or continues after nobody wants its result, is abandoned, and its thread is lost until the job ends by itself.
//! The number of lost threads is bounded; beyond it no job is started.
//!
//! Limits are in CPU time: these threads have a lower priority than the cores, and the load of the cores must not decide which
//! job fails. The keeper is started before any executor is pinned, because a thread inherits the affinity of the one that creates
//! it.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;

use super::host::ThreadHandle;
use super::panic_text;

/// Jobs that may wait for a thread.
const WAITING_MAX: usize = 64;
/// How often the keeper looks at jobs that run.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The priority of a thread that works, as `nice` has it: a tenth of a core's share of its processor.
const NICE_WORKING: libc::c_int = 10;
/// The priority of a lost one: what nothing else wants.
const NICE_LOST: libc::c_int = 19;

/// A job that may never end. It says to the [`Watch`] how far it is, and learns from it when it is not wanted any more.
pub type UntrustedJob = Box<dyn FnOnce(&Arc<Watch>) + Send>;

/// Why an untrusted job has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedError {
    /// Too many jobs wait; this one was not started. Try later.
    #[error("all threads for such jobs are busy and their queue is full")]
    Full,
    /// One step of the job took too long. Its thread may go on for ever.
    #[error("it did not end within {} seconds", .0.as_secs_f64())]
    TooLong(Duration),
    /// So many threads are lost to jobs that do not end that no other job is started.
    #[error(
        "{0} earlier ones have not ended and cannot be stopped; no other is run until they end or the server is restarted"
    )]
    TooManyLost(usize),
    /// The job panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// No thread could be started, or the threads have ended.
    #[error("there is no thread for it")]
    NoThread,
}

/// What a job and its keeper tell each other.
#[derive(Debug, Default)]
pub struct Watch {
    steps: AtomicU32,
    is_unwanted: AtomicBool,
    thread: OnceLock<Option<ThreadHandle>>,
}

impl Watch {
    /// The job has done a step and begins the next, which has its whole time again.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether nobody waits for the job any more: it should end.
    pub fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::Relaxed)
    }
}

/// What jobs may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Jobs that run at once, lost ones not counted.
    pub(super) running_max: usize,
    /// Lost threads from which on no job is started. What is running then may be lost as well.
    pub(super) lost_max: usize,
    /// Processor time of one step.
    pub(super) step_max: Duration,
    /// Processor time that a job nobody waits for has to see that and end.
    pub(super) grace: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        // Tasks are done one after the other, so that one of the two is left for requests that only look whether a function
        // is well formed.
        Self { running_max: 2, lost_max: 4, step_max: Duration::from_secs(10), grace: Duration::from_millis(500) }
    }
}

type Outcome = Result<(), UntrustedError>;

struct Job {
    run: UntrustedJob,
    watch: Arc<Watch>,
    done: oneshot::Sender<Outcome>,
}

enum Message {
    Job(Job),
    /// The job of this number has ended.
    Ended(u64, Outcome),
}

/// A handle on the threads; the keeper ends when the last one is dropped and no job runs.
#[derive(Clone)]
pub(super) struct UntrustedThreads {
    keeper: Arc<SyncSender<Message>>,
}

impl UntrustedThreads {
    /// Starts the keeper.
    pub(super) fn start(bounds: Bounds) -> std::io::Result<Self> {
        let (sender, inbox) = sync_channel(WAITING_MAX);
        let handle = Self { keeper: Arc::new(sender) };
        let keeper = Keeper {
            bounds,
            inbox,
            sender: Arc::downgrade(&handle.keeper),
            started: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            lost: BTreeSet::new(),
        };
        std::thread::Builder::new().name("untrusted".to_owned()).spawn(move || keeper.run())?;
        Ok(handle)
    }

    /// Queues a job; the future ends with it, or when it is given up.
    pub(super) fn run(&self, run: UntrustedJob) -> LocalBoxFuture<'static, Outcome> {
        let (done, outcome) = oneshot::channel();
        let job = Job { run, watch: Arc::default(), done };
        let refused = match self.keeper.try_send(Message::Job(job)) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => Some(UntrustedError::Full),
            Err(TrySendError::Disconnected(_)) => Some(UntrustedError::NoThread),
        };
        Box::pin(async move {
            match refused {
                Some(error) => Err(error),
                None => outcome.await.unwrap_or(Err(UntrustedError::NoThread)),
            }
        })
    }
}

/// A job on its thread.
struct Running {
    number: u64,
    watch: Arc<Watch>,
    done: oneshot::Sender<Outcome>,
    /// The step that was under way at the last look, and the thread's processor time when it was first seen.
    step: u32,
    step_began: Duration,
    /// The thread's processor time when it was seen that nobody waits.
    unwanted_since: Option<Duration>,
}

impl Running {
    /// Why the job is to be given up now, if it is.
    fn look(&mut self, bounds: &Bounds) -> Option<UntrustedError> {
        // A thread that has not begun yet, or is just ending, has taken no time.
        let used = (*self.watch.thread.get()?)?.processor_time()?;
        let step = self.watch.steps.load(Ordering::Relaxed);
        if step != self.step {
            (self.step, self.step_began) = (step, used);
        }
        if self.done.is_canceled() {
            self.watch.is_unwanted.store(true, Ordering::Relaxed);
            let since = *self.unwanted_since.get_or_insert(used);
            if used.saturating_sub(since) > bounds.grace {
                return Some(UntrustedError::TooLong(bounds.grace));
            }
        }
        let is_late = used.saturating_sub(self.step_began) > bounds.step_max;
        is_late.then_some(UntrustedError::TooLong(bounds.step_max))
    }

    /// Leaves the thread to itself.
    fn give_up(self, error: UntrustedError) {
        self.watch.is_unwanted.store(true, Ordering::Relaxed);
        if let Some(Some(thread)) = self.watch.thread.get() {
            thread.set_nice(NICE_LOST);
        }
        tracing::error!(%error, "giving up a job; its thread is lost until the job ends by itself");
        // Nobody may be waiting any more.
        let _ = self.done.send(Err(error));
    }
}

/// The thread that starts the others and watches them.
struct Keeper {
    bounds: Bounds,
    inbox: Receiver<Message>,
    /// For the threads, so that the last handle's end is seen here.
    sender: Weak<SyncSender<Message>>,
    started: u64,
    waiting: VecDeque<Job>,
    running: Vec<Running>,
    lost: BTreeSet<u64>,
}

impl Keeper {
    fn run(mut self) {
        loop {
            let next = match self.running.is_empty() {
                true => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => self.inbox.recv_timeout(LOOK_EVERY),
            };
            match next {
                Ok(Message::Job(job)) if self.waiting.len() < WAITING_MAX => self.waiting.push_back(job),
                Ok(Message::Job(job)) => drop(job.done.send(Err(UntrustedError::Full))),
                Ok(Message::Ended(number, outcome)) => self.end(number, outcome),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
            self.start_waiting();
        }
    }

    fn end(&mut self, number: u64, outcome: Outcome) {
        if self.lost.remove(&number) {
            tracing::info!("a lost thread has ended");
        } else if let Some(place) = self.running.iter().position(|job| job.number == number) {
            // Nobody may be waiting any more.
            let _ = self.running.swap_remove(place).done.send(outcome);
        }
    }

    fn look(&mut self) {
        let mut place = 0;
        while place < self.running.len() {
            match self.running[place].look(&self.bounds) {
                None => place += 1,
                Some(error) => {
                    let job = self.running.swap_remove(place);
                    self.lost.insert(job.number);
                    job.give_up(error);
                }
            }
        }
    }

    fn start_waiting(&mut self) {
        while self.running.len() < self.bounds.running_max
            && let Some(job) = self.waiting.pop_front()
        {
            if job.done.is_canceled() {
                continue;
            }
            let started = match self.lost.len() >= self.bounds.lost_max {
                true => Err((job.done, UntrustedError::TooManyLost(self.lost.len()))),
                false => self.start(job),
            };
            if let Err((done, error)) = started {
                // Nobody may be waiting any more.
                let _ = done.send(Err(error));
            }
        }
    }

    /// Starts a job on a thread of its own.
    fn start(&mut self, job: Job) -> Result<(), (oneshot::Sender<Outcome>, UntrustedError)> {
        let Job { run, watch, done } = job;
        let Some(sender) = self.sender.upgrade() else { return Err((done, UntrustedError::NoThread)) };
        self.started += 1;
        let (number, watched) = (self.started, watch.clone());
        let thread = std::thread::Builder::new().name(format!("untrusted-{number}"));
        let started = thread.spawn(move || {
            let outcome = work(run, &watched);
            // The keeper is there as long as it can be sent anything.
            let _ = sender.send(Message::Ended(number, outcome));
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread for an untrusted job");
            return Err((done, UntrustedError::NoThread));
        }
        let (step, step_began) = (0, Duration::ZERO);
        self.running.push(Running { number, watch, done, step, step_began, unwanted_since: None });
        Ok(())
    }
}

fn work(run: UntrustedJob, watch: &Arc<Watch>) -> Outcome {
    let thread = ThreadHandle::current();
    if let Some(thread) = thread {
        thread.set_nice(NICE_WORKING);
    }
    // Set here and nowhere else.
    let _ = watch.thread.set(thread);
    catch_unwind(AssertUnwindSafe(|| run(watch))).map_err(|payload| {
        let text = panic_text(&*payload);
        tracing::error!(panic = %text, "an untrusted job panicked");
        UntrustedError::Panicked(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    const BOUNDS: Bounds =
        Bounds { running_max: 1, lost_max: 2, step_max: Duration::from_millis(100), grace: Duration::from_millis(100) };

    /// Burns the processor until `ended` is set, whatever its watch says. Ends by itself, should the test fail.
    fn burning(ended: &Arc<AtomicBool>) -> UntrustedJob {
        let (ended, latest) = (ended.clone(), Instant::now() + Duration::from_secs(60));
        Box::new(move |_| {
            while !ended.load(Ordering::Relaxed) && Instant::now() < latest {
                std::hint::spin_loop();
            }
        })
    }

    /// Two endless jobs once took both threads of the process, and everything that waits for such a thread stood still.
    #[test]
    fn endless_jobs_are_given_up_so_often_and_no_more() {
        let threads = UntrustedThreads::start(BOUNDS).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..BOUNDS.lost_max {
            assert_eq!(block_on(threads.run(burning(&ended))), Err(UntrustedError::TooLong(BOUNDS.step_max)));
        }
        let refused = block_on(threads.run(Box::new(|_| ())));
        assert_eq!(refused, Err(UntrustedError::TooManyLost(BOUNDS.lost_max)));
        ended.store(true, Ordering::Relaxed);
        let latest = Instant::now() + Duration::from_secs(30);
        while block_on(threads.run(Box::new(|_| ()))) != Ok(()) {
            assert!(Instant::now() < latest, "lost threads that end are not counted any more");
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_nobody_waits_for_holds_up_nobody() {
        let threads = UntrustedThreads::start(Bounds { step_max: Duration::from_secs(60), ..BOUNDS }).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let (begun, has_begun) = channel();
        let burn = burning(&ended);
        let left = threads.run(Box::new(move |watch| {
            begun.send(()).unwrap();
            burn(watch);
        }));
        has_begun.recv().unwrap();
        drop(left);
        assert_eq!(block_on(threads.run(Box::new(|_| ()))), Ok(()));
        ended.store(true, Ordering::Relaxed);
    }

    #[test]
    fn a_job_learns_that_nobody_waits() {
        let threads = UntrustedThreads::start(Bounds { grace: Duration::from_secs(60), ..BOUNDS }).unwrap();
        let (begun, has_begun) = channel();
        let left = threads.run(Box::new(move |watch| {
            begun.send(()).unwrap();
            while !watch.is_unwanted() {
                watch.step();
                std::thread::yield_now();
            }
            begun.send(()).unwrap();
        }));
        has_begun.recv().unwrap();
        drop(left);
        has_begun.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    /// The bound is for a step: a job of many may take longer.
    #[test]
    fn a_job_that_gets_on_is_not_given_up() {
        let threads = UntrustedThreads::start(BOUNDS).unwrap();
        let latest = Instant::now() + BOUNDS.step_max * 6;
        let long = threads.run(Box::new(move |watch| {
            while Instant::now() < latest {
                watch.step();
            }
        }));
        assert_eq!(block_on(long), Ok(()));
    }

    #[test]
    fn a_panicking_job_is_reported() {
        let threads = UntrustedThreads::start(BOUNDS).unwrap();
        let failed = block_on(threads.run(Box::new(|_| panic!("broken"))));
        assert_eq!(failed, Err(UntrustedError::Panicked("broken".to_owned())));
        assert_eq!(block_on(threads.run(Box::new(|_| ()))), Ok(()));
    }

    #[test]
    fn a_full_queue_refuses() {
        let threads = UntrustedThreads::start(Bounds { step_max: Duration::from_secs(60), ..BOUNDS }).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let first = threads.run(burning(&ended));
        // The keeper takes some of them out of the channel, and holds as many again.
        let queued: Vec<_> = (0..3 * WAITING_MAX).map(|_| threads.run(Box::new(|_| ()))).collect();
        let ending = ended.clone();
        std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(200));
            ending.store(true, Ordering::Relaxed);
        });
        assert_eq!(block_on(first), Ok(()));
        let outcomes: Vec<_> = queued.into_iter().map(block_on).collect();
        assert!(outcomes.contains(&Err(UntrustedError::Full)) && outcomes.contains(&Ok(())));
    }
}
