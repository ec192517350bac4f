//! The runtime of a core on an executor of our own: sockets by epoll, timers and tasks without the kernel, and files as the disk
//! does them, whose ring the executor turns if it has one (see `storage_engine::io::system`).
//!
//! A turn costs fewer system calls than glommio's ([`super::glommio`]).

mod executor;
mod reactor;
mod ready;
mod sockets;
mod timers;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use storage_engine::Disk;

use self::executor::{Executor, Shared};
use self::reactor::{Opened, Reactor};
use self::timers::Sleep;
use super::cores::{Ended, Seat, SeatedThread, StartError, run_core};
use super::host::bind_to_processor;
use super::own::Own;
use super::{Listener, Nanos, Queue, Runtime, SideThreadError, Stream, UntrustedError, UntrustedJob, guarded};
use crate::ids::CoreId;
use crate::mesh::Mesh;

pub(super) use self::sockets::{TcpListener, TcpStream};

/// One core, on its own thread.
struct LocalRuntime {
    own: Own,
    executor: Rc<Executor>,
    /// Of all cores, this one included.
    shared: Arc<[Arc<Shared>]>,
}

/// What the cores' threads take with them.
pub(super) struct Prepared {
    opened: Vec<Option<Opened>>,
    shared: Arc<[Arc<Shared>]>,
    /// The processor of each core, where they are bound to some.
    processors: Option<Vec<usize>>,
}

/// Makes what `cores` cores wait for their sockets with.
pub(super) fn prepare(cores: u16, processors: Option<Vec<usize>>) -> Result<Prepared, StartError> {
    let (mut opened, mut shared) = (Vec::new(), Vec::new());
    for core in 0..cores {
        let failed = |error: io::Error| StartError::Executor { core, reason: error.to_string() };
        let (of_core, waker) = Opened::new().map_err(failed)?;
        opened.push(Some(of_core));
        shared.push(Arc::new(Shared::new(waker)));
    }
    Ok(Prepared { opened, shared: shared.into(), processors })
}

/// Starts a core's thread.
pub(super) fn start_core<Q, A, F, Fut>(
    prepared: &mut Prepared,
    seat: Seat<Q, A>,
    idle_spin: Duration,
    start: F,
) -> Result<SeatedThread, StartError>
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Rc<dyn Runtime>, Mesh<Q, A>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let core = usize::from(seat.core.0);
    let shared = prepared.shared.clone();
    let Some(opened) = prepared.opened.get_mut(core).and_then(Option::take) else {
        return Err(StartError::Executor { core: seat.core.0, reason: "it was started before".to_owned() });
    };
    let processor = prepared.processors.as_ref().and_then(|processors| processors.get(core).copied());
    let run = move || -> Ended {
        if let Some(processor) = processor {
            bind_to_processor(processor);
        }
        let executor = Executor::new(Reactor::new(opened), shared[core].clone());
        let of_core = executor.clone();
        executor.run(idle_spin, run_core(seat, move |seat| Rc::new(LocalRuntime::new(seat, of_core, shared)), start))
    };
    let thread = std::thread::Builder::new().name("core".to_owned()).spawn(run).map_err(StartError::Thread)?;
    Ok(SeatedThread::Local(thread))
}

impl LocalRuntime {
    fn new<Q, A>(seat: &Seat<Q, A>, executor: Rc<Executor>, shared: Arc<[Arc<Shared>]>) -> Self {
        let own = Own::new(seat);
        if let Some(driver) = own.disk.driver()
            && let Err(error) = executor.drive(driver)
        {
            tracing::error!(%error, "reads of files end late: the ring cannot be watched");
        }
        Self { own, executor, shared }
    }
}

impl Runtime for LocalRuntime {
    fn core(&self) -> CoreId {
        self.own.core
    }

    fn core_count(&self) -> u16 {
        self.own.core_count
    }

    fn now(&self) -> Nanos {
        self.own.now()
    }

    fn unix_time(&self) -> Duration {
        self.own.unix_time()
    }

    fn random_u64(&self) -> u64 {
        self.own.random_u64()
    }

    fn spawn(&self, queue: Queue, task: LocalBoxFuture<'static, ()>) {
        self.executor.spawn(queue, guarded(self.own.core, queue, task));
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        // What lies beyond the clock's end is never.
        match Instant::now().checked_add(duration) {
            Some(due) => Box::pin(Sleep::new(self.executor.clone(), due)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn should_yield(&self) -> bool {
        self.executor.should_yield()
    }

    /// The task goes to the end of its queue, which is not looked at again in this turn.
    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        Box::pin(futures_lite::future::yield_now())
    }

    fn interrupt(&self, core: CoreId) {
        if let Some(shared) = self.shared.get(usize::from(core.0)) {
            shared.interrupt();
        }
    }

    fn disk(&self) -> Rc<dyn Disk> {
        self.own.disk.clone()
    }

    fn side_thread(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>> {
        self.own.side_threads.run(job)
    }

    fn untrusted_thread(&self, job: UntrustedJob) -> LocalBoxFuture<'static, Result<(), UntrustedError>> {
        self.own.untrusted_threads.run(job)
    }

    fn listen(&self, socket: std::net::TcpListener) -> io::Result<Listener> {
        Ok(Listener::local(TcpListener::new(&self.executor.reactor, socket)?))
    }

    fn connect(&self, address: SocketAddr) -> LocalBoxFuture<'static, io::Result<Stream>> {
        let reactor = self.executor.reactor.clone();
        Box::pin(async move { Ok(Stream::local(TcpStream::connect(reactor, address).await?)) })
    }
}
