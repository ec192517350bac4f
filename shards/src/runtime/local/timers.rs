//! A core's timers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::executor::Executor;

/// Ordered by deadline, then by when they were set.
#[derive(Default)]
pub(super) struct Timers {
    set: RefCell<BTreeMap<(Instant, u64), Waker>>,
    count: Cell<u64>,
}

impl Timers {
    /// The first deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.set.borrow().first_key_value().map(|((due, _), _)| *due)
    }

    /// Wakes whoever waits for a moment up to `now`.
    pub(super) fn fire(&self, now: Instant) {
        while self.next().is_some_and(|due| due <= now) {
            // Woken when the borrow has ended: a waker may set the next timer.
            let first = self.set.borrow_mut().pop_first();
            first.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    fn set(&self, due: Instant, waker: Waker) -> (Instant, u64) {
        let key = (due, self.count.get());
        self.count.set(key.1 + 1);
        self.set.borrow_mut().insert(key, waker);
        key
    }
}

/// Ends at its deadline.
pub(super) struct Sleep {
    executor: Rc<Executor>,
    due: Instant,
    timer: Option<(Instant, u64)>,
}

impl Sleep {
    pub(super) fn new(executor: Rc<Executor>, due: Instant) -> Self {
        Self { executor, due, timer: None }
    }

    fn unset(&mut self) {
        if let Some(timer) = self.timer.take() {
            let waker = self.executor.timers.set.borrow_mut().remove(&timer);
            drop(waker);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        self.unset();
        self.timer = Some(self.executor.timers.set(self.due, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.unset();
    }
}
