//! Limits how many questions one core may have open at another. A credit is taken before a question is sent and returned with its
//! answer, so neither ring can overflow and neither side waits for room while it holds a message.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Credits of one ordered pair of cores, kept by the asker.
pub(super) struct Credits {
    left: Cell<u32>,
    /// Those who wait, oldest first. As many as there are tasks on this core that ask, which their own limits bound.
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
}

#[derive(Default)]
struct Waiter {
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Gives the place in the queue, or the credit that came too late, back when the asker gives up.
struct Place<'a> {
    credits: &'a Credits,
    waiter: Rc<Waiter>,
    used: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.used {
            return;
        }
        if self.waiter.granted.get() {
            self.credits.give_back();
        } else {
            self.credits.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.waiter));
        }
    }
}

impl Credits {
    pub(super) fn new(count: u32) -> Self {
        Self { left: Cell::new(count), waiting: RefCell::default() }
    }

    /// Takes a credit if one is free. Who waits goes first.
    pub(super) fn try_take(&self) -> bool {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
        }
        left > 0
    }

    /// Takes a credit, waiting in line for it.
    pub(super) async fn take(&self) {
        if self.try_take() {
            return;
        }
        let waiter = Rc::new(Waiter::default());
        self.waiting.borrow_mut().push_back(waiter.clone());
        let mut place = Place { credits: self, waiter, used: false };
        std::future::poll_fn(|context| {
            if place.waiter.granted.get() {
                return Poll::Ready(());
            }
            *place.waiter.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        place.used = true;
    }

    /// An answer arrived, or the peer is gone. The credit passes straight to the first in line, so nobody can overtake.
    pub(super) fn give_back(&self) {
        let next = self.waiting.borrow_mut().pop_front();
        let Some(waiter) = next else {
            self.left.set(self.left.get() + 1);
            return;
        };
        waiter.granted.set(true);
        let waker = waiter.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    /// A credit granted to an asker that was dropped must reach the next one, or the pair runs dry for ever.
    #[test]
    fn credits_survive_askers_that_give_up() {
        block_on(async {
            let credits = Credits::new(1);
            assert!(credits.try_take());
            let mut last = pin!(credits.take());
            {
                let mut granted = Box::pin(credits.take());
                let mut unserved = Box::pin(credits.take());
                assert!(poll_once(&mut granted).await.is_none());
                assert!(poll_once(&mut unserved).await.is_none());
                assert!(poll_once(&mut last).await.is_none());
                credits.give_back();
                assert!(!credits.try_take(), "the credit belongs to the first in line");
            }
            assert!(poll_once(&mut last).await.is_some());
            credits.give_back();
            assert!(credits.try_take());
            assert!(!credits.try_take());
        });
    }
}
