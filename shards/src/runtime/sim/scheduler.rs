//! Picks the next task, keeps the time, and writes down what it did.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use futures_util::future::LocalBoxFuture;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::ids::CoreId;
use crate::runtime::Nanos;

/// A step takes this much virtual time at most, in nanoseconds; drawn anew for each.
const STEP_NANOS_MAX: u64 = 5_000;

/// Tasks that were woken. Behind a lock because wakers must be `Send`; only this thread ever takes it.
type ReadyTasks = Arc<Mutex<Vec<u64>>>;

struct TaskWaker {
    task: u64,
    /// In the list of ready tasks already: a second wake changes nothing.
    queued: AtomicBool,
    ready: ReadyTasks,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            with_ready(&self.ready, |ready| ready.push(self.task));
        }
    }
}

fn with_ready<T>(ready: &ReadyTasks, action: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    // Nothing panics while the lock is held, and a list of numbers is never half changed.
    action(&mut ready.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

struct Task {
    core: CoreId,
    waker: Arc<TaskWaker>,
    future: LocalBoxFuture<'static, ()>,
}

pub(super) struct Scheduler {
    random: RefCell<SmallRng>,
    now: Cell<u64>,
    steps: Cell<u64>,
    trace: Cell<u64>,
    next_task: Cell<u64>,
    next_timer: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    ready: ReadyTasks,
    /// By deadline, then in the order set.
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    ended: Cell<bool>,
}

impl Scheduler {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: RefCell::new(SmallRng::seed_from_u64(seed)),
            now: Cell::new(0),
            steps: Cell::new(0),
            // The basis of the FNV-1a hash.
            trace: Cell::new(0xcbf2_9ce4_8422_2325),
            next_task: Cell::new(0),
            next_timer: Cell::new(0),
            tasks: RefCell::default(),
            ready: ReadyTasks::default(),
            timers: RefCell::default(),
            ended: Cell::new(false),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.get()
    }

    /// A number below `bound` (at least 1).
    pub(super) fn draw(&self, bound: u64) -> u64 {
        self.random.borrow_mut().random_range(0..bound.max(1))
    }

    pub(super) fn draw_u64(&self) -> u64 {
        self.random.borrow_mut().random()
    }

    pub(super) fn spawn(&self, core: CoreId, future: LocalBoxFuture<'static, ()>) {
        if self.ended.get() {
            return;
        }
        let number = self.next_task.replace(self.next_task.get() + 1);
        let waker = Arc::new(TaskWaker { task: number, queued: AtomicBool::new(false), ready: self.ready.clone() });
        waker.wake_by_ref();
        self.tasks.borrow_mut().insert(number, Task { core, waker, future });
    }

    /// Wakes `waker` once the time has reached `deadline`. The key cancels it.
    pub(super) fn set_timer(&self, deadline: u64, waker: Waker) -> (u64, u64) {
        let key = (deadline, self.next_timer.replace(self.next_timer.get() + 1));
        self.timers.borrow_mut().insert(key, waker);
        key
    }

    pub(super) fn cancel_timer(&self, key: (u64, u64)) {
        let waker = self.timers.borrow_mut().remove(&key);
        drop(waker);
    }

    /// Polls one ready task. False if nothing is ready and no timer is set.
    pub(super) fn step(&self) -> bool {
        self.fire_timers();
        if with_ready(&self.ready, |ready| ready.is_empty()) {
            let next = self.timers.borrow().first_key_value().map(|((deadline, _), _)| *deadline);
            let Some(deadline) = next else { return false };
            self.now.set(self.now.get().max(deadline));
            self.fire_timers();
        }
        let count = with_ready(&self.ready, |ready| ready.len());
        if count == 0 {
            // The timers' tasks had ended; time has passed all the same.
            return true;
        }
        let place = self.draw(count as u64) as usize;
        let number = with_ready(&self.ready, |ready| ready.swap_remove(place));
        self.now.set(self.now.get() + 1 + self.draw(STEP_NANOS_MAX));
        self.poll(number);
        true
    }

    fn poll(&self, number: u64) {
        // Out of the table while it runs, so that it may start others.
        let taken = self.tasks.borrow_mut().remove(&number);
        let Some(mut task) = taken else { return };
        self.note(&task, number);
        task.waker.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(task.waker.clone());
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() && !self.ended.get() {
            self.tasks.borrow_mut().insert(number, task);
        }
    }

    fn note(&self, task: &Task, number: u64) {
        self.steps.set(self.steps.get() + 1);
        let mut trace = self.trace.get();
        for word in [self.now.get(), u64::from(task.core.0), number] {
            trace = (trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
        self.trace.set(trace);
    }

    fn fire_timers(&self) {
        loop {
            let due = {
                let mut timers = self.timers.borrow_mut();
                match timers.first_entry() {
                    Some(first) if first.key().0 <= self.now.get() => first.remove(),
                    _ => return,
                }
            };
            due.wake();
        }
    }

    /// Drops all tasks and timers. Tasks hold their runtime, so this also cuts the cycles.
    pub(super) fn end_all(&self) {
        self.ended.set(true);
        let tasks = self.tasks.take();
        let timers = self.timers.take();
        drop((tasks, timers));
    }
}
