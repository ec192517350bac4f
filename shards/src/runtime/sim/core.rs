//! One simulated core.

use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use storage_engine::Disk;

use super::scheduler::Scheduler;
use crate::ids::CoreId;
use crate::runtime::{
    Nanos, Queue, Runtime, SideThreadError, UntrustedError, UntrustedJob, Watch, catch_panic, guarded,
};

/// Of so many looks, one finds that the core is wanted elsewhere.
const LOOKS_PER_PREEMPTION: u64 = 4;

/// A job on a side thread takes up to this long, in microseconds of virtual time.
const JOB_MICROS_MAX: u64 = 3_000;

pub(super) struct SimRuntime {
    core: CoreId,
    core_count: u16,
    unix_start: Duration,
    disk: Rc<dyn Disk>,
    /// Weak, since the scheduler holds the tasks and they hold this.
    scheduler: Weak<Scheduler>,
}

impl SimRuntime {
    pub(super) fn new(
        core: CoreId,
        core_count: u16,
        unix_start: Duration,
        disk: Rc<dyn Disk>,
        scheduler: Weak<Scheduler>,
    ) -> Self {
        Self { core, core_count, unix_start, disk, scheduler }
    }

    fn sleep_for(&self, duration: Duration) -> Sleep {
        Sleep { scheduler: self.scheduler.clone(), deadline: self.now().after(duration).0, timer: None }
    }
}

/// Ends at its deadline; the timer is set when first polled and unset when dropped.
struct Sleep {
    scheduler: Weak<Scheduler>,
    deadline: u64,
    timer: Option<(u64, u64)>,
}

impl Sleep {
    fn unset(&mut self) {
        if let (Some(timer), Some(scheduler)) = (self.timer.take(), self.scheduler.upgrade()) {
            scheduler.cancel_timer(timer);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Without a scheduler the simulation is over, and nobody polls any more.
        let Some(scheduler) = self.scheduler.upgrade() else { return Poll::Pending };
        if scheduler.now().0 >= self.deadline {
            return Poll::Ready(());
        }
        self.unset();
        self.timer = Some(scheduler.set_timer(self.deadline, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.unset();
    }
}

impl Runtime for SimRuntime {
    fn core(&self) -> CoreId {
        self.core
    }

    fn core_count(&self) -> u16 {
        self.core_count
    }

    fn now(&self) -> Nanos {
        self.scheduler.upgrade().map_or(Nanos(0), |scheduler| scheduler.now())
    }

    fn unix_time(&self) -> Duration {
        self.unix_start + self.now().since(Nanos(0))
    }

    fn random_u64(&self) -> u64 {
        self.scheduler.upgrade().map_or(0, |scheduler| scheduler.draw_u64())
    }

    /// The queue is ignored: any order of ready tasks is one that shares could have given.
    fn spawn(&self, queue: Queue, task: LocalBoxFuture<'static, ()>) {
        let Some(scheduler) = self.scheduler.upgrade() else { return };
        scheduler.spawn(self.core, Box::pin(guarded(self.core, queue, task)));
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.sleep_for(duration))
    }

    fn should_yield(&self) -> bool {
        self.scheduler.upgrade().is_some_and(|scheduler| scheduler.draw(LOOKS_PER_PREEMPTION) == 0)
    }

    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        Box::pin(futures_lite::future::yield_now())
    }

    /// Turns are as short as [`Runtime::should_yield`] draws them.
    fn interrupt(&self, _core: CoreId) {}

    fn disk(&self) -> Rc<dyn Disk> {
        self.disk.clone()
    }

    /// The job runs in one step, some time later.
    fn side_thread(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>> {
        let Some(scheduler) = self.scheduler.upgrade() else {
            return Box::pin(std::future::ready(Err(SideThreadError::Ended)));
        };
        let sleep = self.sleep_for(Duration::from_micros(scheduler.draw(JOB_MICROS_MAX)));
        Box::pin(async move {
            sleep.await;
            catch_panic(async { job() }).await.map_err(|panicked| SideThreadError::Panicked(panicked.0))
        })
    }

    /// As [`Runtime::side_thread`]: what never ends is not simulated.
    fn untrusted_thread(&self, job: UntrustedJob) -> LocalBoxFuture<'static, Result<(), UntrustedError>> {
        let run = self.side_thread(Box::new(move || job(&Arc::new(Watch::default()))));
        Box::pin(async move {
            run.await.map_err(|error| match error {
                SideThreadError::Full => UntrustedError::Full,
                SideThreadError::Panicked(text) => UntrustedError::Panicked(text),
                SideThreadError::Ended => UntrustedError::NoThread,
            })
        })
    }
}
