//! A one-shot channel between two tasks of the same core.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Cell<T> {
    value: Option<T>,
    sender_gone: bool,
    waker: Option<Waker>,
}

/// The end that gives. Dropped without giving, it ends the wait with `None`.
pub struct OnceSender<T>(Rc<RefCell<Cell<T>>>);

/// The end that waits: a future of `Some(value)`, or `None` when the sender was dropped.
pub struct OnceReceiver<T>(Rc<RefCell<Cell<T>>>);

/// A pair of ends for one value.
pub fn once<T>() -> (OnceSender<T>, OnceReceiver<T>) {
    let cell = Rc::new(RefCell::new(Cell { value: None, sender_gone: false, waker: None }));
    (OnceSender(cell.clone()), OnceReceiver(cell))
}

impl<T> OnceSender<T> {
    /// Gives the value. When nobody waits any more, the value is dropped.
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }

    /// Whether the receiver was dropped, so that the work for it may stop.
    pub fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for OnceSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut cell = self.0.borrow_mut();
            cell.sender_gone = true;
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for OnceReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut cell = self.0.borrow_mut();
        if let Some(value) = cell.value.take() {
            return Poll::Ready(Some(value));
        }
        if cell.sender_gone {
            return Poll::Ready(None);
        }
        cell.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
