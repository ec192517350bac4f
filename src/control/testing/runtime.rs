//! A core that polls its tasks until none makes progress.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{FutureExt, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;
use shards::ids::CoreId;
use shards::runtime::{Nanos, Queue, Runtime, SideThreadError, UntrustedError, UntrustedJob, Watch};
use storage_engine::Disk;

/// Rounds without an answer after which a future is taken to wait for ever.
const IDLE_ROUNDS: usize = 200;

/// The core.
pub(crate) struct TestRuntime {
    disk: Rc<dyn Disk>,
    now: Cell<u64>,
    random: Cell<u64>,
    spawned: RefCell<Vec<LocalBoxFuture<'static, ()>>>,
    running: RefCell<FuturesUnordered<LocalBoxFuture<'static, ()>>>,
}

impl TestRuntime {
    /// A core with this disk.
    pub(crate) fn new(disk: Rc<dyn Disk>) -> Self {
        Self {
            disk,
            now: Cell::new(1_700_000_000_000_000_000),
            random: Cell::new(7),
            spawned: RefCell::default(),
            running: RefCell::default(),
        }
    }

    /// Sets both clocks.
    pub(crate) fn set_unix_time(&self, time: Duration) {
        self.now.set(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Polls everything until `future` is done; `None` when it waits for what never comes.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..IDLE_ROUNDS {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            self.settle();
        }
        None
    }

    /// Polls what was spawned until nothing moves. A pool that was only interrupted wakes its caller.
    pub(crate) fn settle(&self) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut running = self.running.borrow_mut();
        loop {
            running.extend(self.spawned.borrow_mut().drain(..));
            let was_woken = woken.0.swap(false, Ordering::Relaxed);
            let ended = matches!(running.poll_next_unpin(&mut context), Poll::Ready(Some(())));
            let spawned = !self.spawned.borrow().is_empty();
            if !was_woken && !ended && !spawned && !woken.0.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Runtime for TestRuntime {
    fn core(&self) -> CoreId {
        CoreId(0)
    }

    fn core_count(&self) -> u16 {
        1
    }

    fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }

    fn unix_time(&self) -> Duration {
        self.now.set(self.now.get() + 1_000);
        Duration::from_nanos(self.now.get())
    }

    fn random_u64(&self) -> u64 {
        self.random.set(self.random.get() + 1);
        self.random.get()
    }

    fn spawn(&self, _: Queue, task: LocalBoxFuture<'static, ()>) {
        self.spawned.borrow_mut().push(task);
    }

    fn sleep(&self, _: Duration) -> LocalBoxFuture<'static, ()> {
        futures_lite::future::yield_now().boxed_local()
    }

    fn should_yield(&self) -> bool {
        true
    }

    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        futures_lite::future::yield_now().boxed_local()
    }

    /// There is no other core.
    fn interrupt(&self, _core: CoreId) {}

    fn disk(&self) -> Rc<dyn Disk> {
        self.disk.clone()
    }

    fn side_thread(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>> {
        job();
        async { Ok(()) }.boxed_local()
    }

    fn untrusted_thread(&self, job: UntrustedJob) -> LocalBoxFuture<'static, Result<(), UntrustedError>> {
        job(&Arc::new(Watch::default()));
        async { Ok(()) }.boxed_local()
    }
}
