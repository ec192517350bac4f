//! The executor of one core: ready tasks in queues with shares, timers, and a look at the sockets between two turns.
//!
//! The queues take turns ([`super::ready`]), each of which ends after [`TURN`] or [`BACKGROUND_TURN`].

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;
use std::time::{Duration, Instant};

use async_task::Runnable;
use crossbeam_queue::SegQueue;
use slab::Slab;
use storage_engine::io::Driver;

use super::reactor::Reactor;
use super::ready::ReadyQueues;
use super::timers::Timers;
use crate::runtime::Queue;

/// How long a queue keeps the core while others are ready.
const TURN: Duration = Duration::from_micros(300);
/// The same for indexing and upkeep: what arrives meanwhile waits for its end.
const BACKGROUND_TURN: Duration = Duration::from_micros(200);
/// Who has the processor for this long when it is given away does not sleep either.
const HOGGED: Duration = Duration::from_millis(1);
/// It is then kept for so many times as long.
const KEPT_TIMES: u32 = 4;
/// How often a busy core looks at its sockets: each look is a system call.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// What other threads reach of an executor.
pub(super) struct Shared {
    /// Tasks woken by other threads; each is here once at most, so their number bounds it.
    woken: SegQueue<(Queue, Runnable)>,
    asleep: AtomicBool,
    waker: mio::Waker,
    in_background: AtomicBool,
    interrupted: AtomicBool,
}

impl Shared {
    /// Of an executor that is not there yet.
    pub(super) fn new(waker: mio::Waker) -> Self {
        Self {
            woken: SegQueue::new(),
            asleep: AtomicBool::new(false),
            waker,
            in_background: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
        }
    }

    fn push(&self, queue: Queue, task: Runnable) {
        self.woken.push((queue, task));
        // Pairs with the fence in `Executor::sleep`: either this sees that the core sleeps, or the core sees the task.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // It fails only where the descriptor is broken; the core then wakes at its next timer.
            let _ = self.waker.wake();
        }
    }

    /// Has the core end its turn soon if that is one of indexing or upkeep.
    pub(super) fn interrupt(&self) {
        if self.in_background.load(Ordering::Relaxed) {
            self.interrupted.store(true, Ordering::Relaxed);
        }
    }
}

/// See the module. It belongs to the thread that runs it.
pub(super) struct Executor {
    shared: Arc<Shared>,
    queues: RefCell<ReadyQueues<Runnable>>,
    /// Wakers of all tasks, for the end: tasks must be dropped on this thread.
    tasks: RefCell<Slab<Waker>>,
    turn_end: Cell<Instant>,
    /// Until when the processor is not given away.
    kept_until: Cell<Instant>,
    pub(super) timers: Timers,
    pub(super) reactor: Rc<Reactor>,
    /// What begins and ends the disk's operations.
    driver: OnceCell<Rc<dyn Driver>>,
}

thread_local! {
    /// The executor that runs on this thread.
    static CURRENT: RefCell<Option<Rc<Executor>>> = const { RefCell::new(None) };
}

impl Executor {
    /// An executor over the sockets of `reactor`.
    pub(super) fn new(reactor: Reactor, shared: Arc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            shared,
            queues: RefCell::default(),
            tasks: RefCell::default(),
            turn_end: Cell::new(Instant::now()),
            kept_until: Cell::new(Instant::now()),
            timers: Timers::default(),
            reactor: Rc::new(reactor),
            driver: OnceCell::new(),
        })
    }

    /// Turns the driver of the core's disk from now on.
    ///
    /// # Errors
    /// The kernel does not let its descriptor be watched; it is turned all the same.
    pub(super) fn drive(&self, driver: Rc<dyn Driver>) -> std::io::Result<()> {
        let driver = self.driver.get_or_init(|| driver);
        self.reactor.watch_driver(driver.ended())
    }

    /// Starts a task and forgets it.
    pub(super) fn spawn(&self, queue: Queue, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.vacant_entry();
        let ended = Ended(entry.key());
        let shared = self.shared.clone();
        let schedule = move |task| {
            let mut task = Some(task);
            // Gone where the thread ends: then it is as if from another one.
            let _ = CURRENT.try_with(|current| match &*current.borrow() {
                Some(executor) if Arc::ptr_eq(&executor.shared, &shared) => {
                    task.take().into_iter().for_each(|task| executor.push(queue, task));
                }
                _ => {}
            });
            task.into_iter().for_each(|task| shared.push(queue, task));
        };
        let guarded = async move {
            let _ended = ended;
            task.await;
        };
        let (task, handle) = async_task::spawn_local(guarded, schedule);
        entry.insert(task.waker());
        drop(tasks);
        handle.detach();
        task.schedule();
    }

    /// Runs until `main` ends, then drops all tasks. `idle_spin`: how long to look for work before sleeping.
    pub(super) fn run<T: 'static>(self: &Rc<Self>, idle_spin: Duration, main: impl Future<Output = T> + 'static) -> T {
        CURRENT.with(|current| *current.borrow_mut() = Some(self.clone()));
        let result = Rc::new(Cell::new(None));
        let given = result.clone();
        self.spawn(Queue::Search, async move { given.set(Some(main.await)) });
        let mut looked = Instant::now();
        let ended = loop {
            self.take_woken();
            let now = match self.next() {
                Some(queue) if queue.is_background() => self.give_way(self.turn(queue)),
                Some(queue) => self.turn(queue),
                None => self.idle(idle_spin),
            };
            if let Some(ended) = result.take() {
                break ended;
            }
            if now.duration_since(looked) >= LOOK_EVERY {
                self.look(Some(Duration::ZERO));
                looked = now;
            }
            self.turn_driver();
            self.timers.fire(now);
        };
        self.drop_tasks();
        CURRENT.with(|current| current.borrow_mut().take());
        ended
    }

    /// Whether the turn is over, or something more urgent waits.
    pub(super) fn should_yield(&self) -> bool {
        self.shared.interrupted.load(Ordering::Relaxed) || Instant::now() >= self.turn_end.get()
    }

    fn push(&self, queue: Queue, task: Runnable) {
        self.queues.borrow_mut().push(queue, task);
    }

    fn pop(&self, queue: Queue) -> Option<Runnable> {
        self.queues.borrow_mut().pop(queue)
    }

    fn take_woken(&self) {
        while let Some((queue, task)) = self.shared.woken.pop() {
            self.push(queue, task);
        }
    }

    fn next(&self) -> Option<Queue> {
        self.queues.borrow().next()
    }

    /// Runs tasks of a queue for a turn; the time at its end.
    fn turn(&self, queue: Queue) -> Instant {
        let start = Instant::now();
        let length = if queue.is_background() { BACKGROUND_TURN } else { TURN };
        self.turn_end.set(start + length);
        self.shared.interrupted.store(false, Ordering::Relaxed);
        self.shared.in_background.store(queue.is_background(), Ordering::Relaxed);
        let mut now = start;
        // Those that become ready meanwhile wait for the next turn: a task that wakes itself must not keep the core.
        let ready = self.queues.borrow_mut().begin(queue);
        for _ in 0..ready {
            let Some(task) = self.pop(queue) else { break };
            task.run();
            now = Instant::now();
            if now >= self.turn_end.get() || self.shared.interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        self.shared.in_background.store(false, Ordering::Relaxed);
        self.queues.borrow_mut().end(queue, now.duration_since(start));
        now
    }

    /// Lets another thread of the machine have the processor that waits for it, perhaps a client of this server: the kernel lets
    /// a thread that never sleeps run for milliseconds first. Another one that never sleeps would take most of the processor this
    /// way, so after a meeting with one it is kept for a while. Gives the time after it.
    fn give_way(&self, now: Instant) -> Instant {
        if now < self.kept_until.get() {
            return now;
        }
        std::thread::yield_now();
        let back = Instant::now();
        let away = back.duration_since(now);
        if away >= HOGGED {
            self.kept_until.set(back + away * KEPT_TIMES);
        }
        back
    }

    /// Waits for a task to become ready: awake at first, then asleep.
    fn idle(&self, spin: Duration) -> Instant {
        let until = Instant::now() + spin;
        loop {
            self.look(Some(Duration::ZERO));
            let is_all_begun = self.turn_driver();
            self.take_woken();
            let now = Instant::now();
            if !is_all_begun || self.next().is_some() || self.timers.next().is_some_and(|due| due <= now) {
                return now;
            }
            if now >= until {
                break;
            }
            // Whoever waits for the processor, perhaps the client that this core has just answered, has it meanwhile.
            std::thread::yield_now();
        }
        self.shared.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Shared::push`.
        fence(Ordering::SeqCst);
        if self.shared.woken.is_empty() {
            let wait = self.timers.next().map(|due| due.saturating_duration_since(Instant::now()));
            self.look(wait);
        }
        self.shared.asleep.store(false, Ordering::Relaxed);
        Instant::now()
    }

    /// Waits for sockets, for so long at most, and wakes whoever waits for them.
    fn look(&self, wait: Option<Duration>) {
        if let Err(error) = self.reactor.look(wait) {
            tracing::error!(%error, "sockets cannot be looked at");
        }
    }

    /// Begins and collects what the disk has to do; whether all was begun.
    fn turn_driver(&self) -> bool {
        self.driver.get().is_none_or(|driver| driver.turn())
    }

    /// Drops what the tasks hold, on this thread. A task that another thread wakes just now comes back from there soon.
    fn drop_tasks(&self) {
        while !self.tasks.borrow().is_empty() {
            let wakers: Vec<Waker> = self.tasks.borrow().iter().map(|(_, waker)| waker.clone()).collect();
            wakers.into_iter().for_each(Waker::wake);
            self.take_woken();
            for queue in Queue::ALL {
                while let Some(task) = self.pop(queue) {
                    drop(task);
                }
            }
            std::thread::yield_now();
        }
    }
}

/// Takes a task off the list when it has ended or is dropped, which happens on the executor's thread.
struct Ended(usize);

impl Drop for Ended {
    fn drop(&mut self) {
        let executor = CURRENT.with(|current| current.borrow().clone());
        if let Some(executor) = executor {
            executor.tasks.borrow_mut().try_remove(self.0);
        }
    }
}
