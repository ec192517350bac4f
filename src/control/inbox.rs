//! A mailbox within one core, for a loop that processes what others put into it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A mailbox with one reader. Its length is bounded by those who write: each waits for the answer to its item before it
/// leaves the next one, so there are never more items than open requests, or counts those that have no answer.
pub struct Inbox<T> {
    items: RefCell<Vec<T>>,
    reader: Cell<Option<Waker>>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: RefCell::new(Vec::new()), reader: Cell::new(None) }
    }
}

impl<T> Inbox<T> {
    /// Leaves an item and wakes the reader.
    pub fn push(&self, item: T) {
        self.items.borrow_mut().push(item);
        self.wake();
    }

    /// All items left since the last call, in order; waits until there is one.
    pub async fn take(&self) -> Vec<T> {
        poll_fn(|context| {
            let items = std::mem::take(&mut *self.items.borrow_mut());
            if items.is_empty() {
                self.reader.set(Some(context.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(items)
        })
        .await
    }

    fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// Something happened: remembered until the one who waits has seen it.
#[derive(Default)]
pub struct Signal {
    raised: Cell<bool>,
    reader: Cell<Option<Waker>>,
}

impl Signal {
    /// Raises it; does nothing when it is raised already.
    pub fn raise(&self) {
        self.raised.set(true);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Forgets it.
    pub fn clear(&self) {
        self.raised.set(false);
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.raised.get()
    }

    /// Waits until it is raised, and forgets it.
    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.raised.replace(false) {
                return Poll::Ready(());
            }
            self.reader.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::{block_on, poll_once};

    use super::*;

    #[test]
    fn nothing_left_in_between_is_lost() {
        block_on(async {
            let inbox = Inbox::default();
            let mut waiting = Box::pin(inbox.take());
            assert_eq!(poll_once(&mut waiting).await, None);
            inbox.push(1);
            inbox.push(2);
            assert_eq!(waiting.await, [1, 2]);
            inbox.push(3);
            assert_eq!(inbox.take().await, [3]);
        });
    }

    #[test]
    fn a_signal_is_seen_once() {
        block_on(async {
            let signal = Signal::default();
            signal.raise();
            signal.raise();
            signal.wait().await;
            assert_eq!(poll_once(signal.wait()).await, None);
            signal.raise();
            signal.clear();
            assert_eq!(poll_once(signal.wait()).await, None);
        });
    }
}
