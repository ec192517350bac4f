//! How a sleeping core learns that a ring has new messages.
//!
//! The consumer arms its bell before it sleeps and then checks its rings once more; a producer publishes and then checks the
//! bell. At least one of the two sees the other (both put a full fence between their store and their load), so no message is left
//! waiting for a sleeping core. The first producer to find the bell armed disarms it: a batch costs one wake-up, and a core that
//! is awake costs its peers no system call.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;

use futures_util::task::AtomicWaker;

/// One per core, shared with all others.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Bell {
    armed: AtomicBool,
    /// The core answers nothing any more.
    closed: AtomicBool,
    waker: AtomicWaker,
}

impl Bell {
    /// Consumer: before the last look at the rings.
    pub(super) fn arm(&self, waker: &Waker) {
        self.waker.register(waker);
        self.armed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Consumer: awake again, by a wake or because the last look found something.
    pub(super) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Producer: after publishing.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Drops the waker on the core it belongs to, so that it does not outlive that core's executor in a peer's hands.
    pub(super) fn forget_waker(&self) {
        self.disarm();
        self.waker.take();
    }
}
