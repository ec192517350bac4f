//! What a real core has, whichever its executor.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use storage_engine::Disk;

use super::Nanos;
use super::cores::Seat;
use super::side_threads::SideThreads;
use super::untrusted::UntrustedThreads;
use crate::ids::CoreId;

/// See the module. Both back ends answer for these parts of [`super::Runtime`] from here.
pub(super) struct Own {
    pub(super) core: CoreId,
    pub(super) core_count: u16,
    /// The same moment on all cores.
    started: Instant,
    random: RefCell<SmallRng>,
    pub(super) disk: Rc<dyn Disk>,
    pub(super) side_threads: SideThreads,
    pub(super) untrusted_threads: UntrustedThreads,
}

impl Own {
    /// Made on the core's thread, within its executor: the disk may belong to it.
    pub(super) fn new<Q, A>(seat: &Seat<Q, A>) -> Self {
        let (side_threads, untrusted_threads) = seat.threads.clone();
        Self {
            core: seat.core,
            core_count: seat.core_count,
            started: seat.started,
            random: RefCell::new(SmallRng::from_os_rng()),
            disk: (seat.disk)(seat.core),
            side_threads,
            untrusted_threads,
        }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn unix_time(&self) -> Duration {
        // A clock set before 1970 reads as 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    pub(super) fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }
}
