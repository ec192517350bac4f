//! A bounded queue from one core to another: one producer, one consumer, no lock, no allocation after creation.
//!
//! The producer writes slots and then publishes them all with one store; the consumer reads up to the published position. Each
//! side caches the other's last known position, so a run of messages touches the shared cache lines once, not once per message.
//!
//! Positions count up forever (wrapping) and are reduced to slots by a mask; `published - consumed` is at most the capacity.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two cache lines: adjacent-line prefetch makes neighbours of one line travel together.
#[repr(align(128))]
struct Line<T>(T);

struct Shared<T> {
    /// Up to here the producer has published. Written by the producer only.
    published: Line<AtomicUsize>,
    /// Up to here the consumer has taken. Written by the consumer only.
    consumed: Line<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is reached by one side at a time: by the producer between `consumed + capacity` and `published`, by the
// consumer between `consumed` and `published`; the release stores and acquire loads of the two positions hand it over. Values
// move from thread to thread, hence `T: Send`; no reference to a value is shared, hence no `T: Sync`.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; the slots own their values and may be dropped on any thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> *mut MaybeUninit<T> {
        // The capacity is a power of two, so the mask keeps the index inside.
        self.slots[position & (self.slots.len() - 1)].get()
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (mut position, end) = (*self.consumed.0.get_mut(), *self.published.0.get_mut());
        while position != end {
            // SAFETY: slots from `consumed` to `published` hold values nobody took, and `&mut self` excludes both sides.
            unsafe { (*self.slot(position)).assume_init_drop() };
            position = position.wrapping_add(1);
        }
    }
}

/// The end that writes. One per ring: not `Clone`.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// Written so far; ahead of `published` by what was not yet published.
    written: Cell<usize>,
    /// A lower bound of `consumed`.
    consumed_seen: Cell<usize>,
}

/// The end that reads. One per ring: not `Clone`.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    taken: Cell<usize>,
    /// A lower bound of `published`.
    published_seen: Cell<usize>,
}

/// A ring for `capacity` messages, rounded up to a power of two, at least 1.
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        published: Line(AtomicUsize::new(0)),
        consumed: Line(AtomicUsize::new(0)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    let producer = Producer { shared: shared.clone(), written: Cell::new(0), consumed_seen: Cell::new(0) };
    let consumer = Consumer { shared, taken: Cell::new(0), published_seen: Cell::new(0) };
    (producer, consumer)
}

impl<T> Producer<T> {
    /// Writes a message without showing it yet; gives it back when the ring is full.
    pub fn push(&self, message: T) -> Result<(), T> {
        let written = self.written.get();
        let capacity = self.shared.slots.len();
        if written.wrapping_sub(self.consumed_seen.get()) == capacity {
            self.consumed_seen.set(self.shared.consumed.0.load(Ordering::Acquire));
            if written.wrapping_sub(self.consumed_seen.get()) == capacity {
                return Err(message);
            }
        }
        // SAFETY: `written` is not published, and less than a capacity ahead of `consumed` (checked above, acquired), so the
        // consumer neither reads this slot nor has a value left in it. `Producer` is neither `Clone` nor `Sync`.
        unsafe { (*self.shared.slot(written)).write(message) };
        self.written.set(written.wrapping_add(1));
        Ok(())
    }

    /// Shows all that was pushed. True if there was anything new.
    pub fn publish(&self) -> bool {
        // Only this side writes `published`, so reading it needs no order.
        let news = self.shared.published.0.load(Ordering::Relaxed) != self.written.get();
        if news {
            self.shared.published.0.store(self.written.get(), Ordering::Release);
        }
        news
    }
}

impl<T> Drop for Producer<T> {
    /// Messages written and not published would be leaked otherwise: the shared part drops only what it knows of.
    fn drop(&mut self) {
        self.publish();
    }
}

impl<T> Consumer<T> {
    /// The oldest published message.
    pub fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let taken = self.taken.get();
        // SAFETY: `taken < published` (checked by `is_empty`, acquired), so the producer wrote this slot and will not touch it
        // before `consumed` passes it; it is read once, since `taken` moves on. `Consumer` is neither `Clone` nor `Sync`.
        let message = unsafe { (*self.shared.slot(taken)).assume_init_read() };
        self.taken.set(taken.wrapping_add(1));
        self.shared.consumed.0.store(taken.wrapping_add(1), Ordering::Release);
        Some(message)
    }

    /// Whether nothing is published that was not taken.
    pub fn is_empty(&self) -> bool {
        if self.taken.get() == self.published_seen.get() {
            self.published_seen.set(self.shared.published.0.load(Ordering::Acquire));
        }
        self.taken.get() == self.published_seen.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::rc::Rc;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Publish,
        Pop,
    }

    proptest! {
        /// Against a plain queue: order, capacity, and that nothing is visible before it is published.
        #[test]
        fn behaves_like_a_bounded_queue(
            capacity in 1..9usize,
            steps in prop::collection::vec(prop_oneof![Just(Step::Push), Just(Step::Publish), Just(Step::Pop)], 0..300),
        ) {
            let (producer, consumer) = ring(capacity);
            let capacity = capacity.next_power_of_two();
            let (mut hidden, mut visible) = (VecDeque::new(), VecDeque::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push => {
                        let fits = hidden.len() + visible.len() < capacity;
                        prop_assert_eq!(producer.push(Box::new(number)).is_ok(), fits);
                        if fits {
                            hidden.push_back(number);
                        }
                    }
                    Step::Publish => {
                        prop_assert_eq!(producer.publish(), !hidden.is_empty());
                        visible.append(&mut hidden);
                    }
                    Step::Pop => prop_assert_eq!(consumer.pop().map(|taken| *taken), visible.pop_front()),
                }
            }
        }
    }

    /// Two threads at full speed over a tiny ring: every hand-over of a slot happens many times. Boxed values make a slot
    /// read too early or twice visible to the allocator.
    #[test]
    fn every_message_arrives_once_and_in_order() {
        const MESSAGES: u64 = 200_000;
        for capacity in [1, 4, 64] {
            let (producer, consumer) = ring::<Box<u64>>(capacity);
            let writer = std::thread::spawn(move || {
                for number in 0..MESSAGES {
                    let mut message = Box::new(number);
                    while let Err(back) = producer.push(message) {
                        producer.publish();
                        message = back;
                        std::thread::yield_now();
                    }
                    if number % 3 == 0 {
                        producer.publish();
                    }
                }
            });
            for number in 0..MESSAGES {
                let message = loop {
                    match consumer.pop() {
                        Some(message) => break message,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(*message, number);
            }
            writer.join().unwrap();
            assert!(consumer.pop().is_none());
        }
    }

    /// A message that nobody took, published or not, must be dropped exactly once with the ring.
    #[test]
    fn what_is_left_is_dropped() {
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let (producer, consumer) = ring(8);
        for number in 0..5 {
            assert!(producer.push(Counted(dropped.clone())).is_ok());
            if number == 2 {
                producer.publish();
            }
        }
        drop(consumer.pop());
        drop(Rc::new(producer));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        drop(consumer);
        assert_eq!(dropped.load(Ordering::Relaxed), 5);
    }
}
