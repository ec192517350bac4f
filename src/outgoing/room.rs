//! Limits the memory that responses in flight take together on one core.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Room for answers. One that needs more than is left waits until others have gone; only the oldest never waits, so that one
/// always comes to its end. What is held is therefore at most the room and one answer more.
pub struct Room {
    left: Cell<u64>,
    next: Cell<u64>,
    /// The answers that are here; the smallest number is the oldest.
    present: RefCell<BTreeSet<u64>>,
    /// Answers that wait: each is one of those present.
    waiting: RefCell<Vec<Waker>>,
}

/// What one answer has of the room; dropping it gives that back.
pub struct Share<'a> {
    room: &'a Room,
    number: u64,
    /// What was taken from the room. The oldest may hold more.
    taken: u64,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { left: Cell::new(bytes), next: Cell::new(0), present: RefCell::default(), waiting: RefCell::default() }
    }

    /// A share for one more answer, of nothing yet.
    pub fn enter(&self) -> Share<'_> {
        let number = self.next.get();
        self.next.set(number + 1);
        self.present.borrow_mut().insert(number);
        Share { room: self, number, taken: 0 }
    }
}

impl Share<'_> {
    /// Takes so many bytes more, waiting for them.
    pub async fn grow(&mut self, bytes: u64) {
        let (room, number) = (self.room, self.number);
        let taken = poll_fn(|context| {
            let left = room.left.get();
            let is_oldest = room.present.borrow().first() == Some(&number);
            if left >= bytes || is_oldest {
                return Poll::Ready(bytes.min(left));
            }
            let mut waiting = room.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        room.left.set(room.left.get() - taken);
        self.taken += taken;
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.room.present.borrow_mut().remove(&self.number);
        self.room.left.set(self.room.left.get() + self.taken);
        let waiting = self.room.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::{block_on, poll_once};

    use super::*;

    #[test]
    fn the_oldest_goes_on_and_the_others_wait_for_room() {
        block_on(async {
            let room = Room::new(10);
            let (mut first, mut second, mut third) = (room.enter(), room.enter(), room.enter());
            first.grow(4).await;
            second.grow(5).await;
            {
                let mut waits = Box::pin(third.grow(2));
                assert_eq!(poll_once(&mut waits).await, None);
                first.grow(100).await;
                drop(first);
                assert_eq!(poll_once(&mut waits).await, Some(()));
            }
            assert_eq!(room.left.get(), 3);
            // The oldest that is left needs no room.
            second.grow(50).await;
            let mut waits = Box::pin(third.grow(1));
            assert_eq!(poll_once(&mut waits).await, None);
            drop(second);
            assert_eq!(poll_once(&mut waits).await, Some(()));
            drop(waits);
            drop(third);
            assert_eq!(room.left.get(), 10);
            assert!(room.present.borrow().is_empty() && room.waiting.borrow().is_empty());
        });
    }
}
