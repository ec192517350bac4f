//! Starts an instance's cores: one thread and one executor each, connected by a mesh.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use storage_engine::Disk;

use super::host::{EXECUTOR_LOCKED_BYTES, ask_for_short_slices, forbid_huge_pages, raise_memlock};
use super::side_threads::SideThreads;
use super::untrusted::{Bounds, UntrustedThreads};
use super::{Runtime, catch_panic, glommio, local, panic_text};
use crate::ids::CoreId;
use crate::mesh::{CloseOnDrop, IN_FLIGHT_MAX, Mesh, Port, ports};
use crate::placement::{default_core_count, host_cpus};

/// Makes a core's disk, on that core.
pub type DiskFactory = Arc<dyn Fn(CoreId) -> Rc<dyn Disk> + Send + Sync>;

/// How cores wait for sockets, timers and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Executors of our own: sockets by epoll, reads of files by a ring of each core, all else of files by helper threads.
    IoUring,
    /// The same without rings: for where io_uring is refused.
    Epoll,
    /// glommio's executors, which do all over io_uring.
    Glommio,
}

/// How the cores run.
#[derive(Clone)]
pub struct CoresConfig {
    /// What they run on.
    pub backend: Backend,
    /// How many; `None` for one per processor, within the cgroup's quota. More than processors is allowed, for tests.
    pub cores: Option<u16>,
    /// Binds each core to a processor. Ignored where that only hurts: under a quota, or with more cores than processors or fewer.
    pub pin: bool,
    /// How long a core without work looks for some before it sleeps; `None` for 100 microseconds where each core has a processor of its
    /// own and the cores have all of them, and not at all elsewhere.
    pub idle_spin: Option<Duration>,
    /// I/O memory each core registers, in bytes; less is taken where the limit of locked memory asks for it.
    pub io_memory_bytes: usize,
    /// Questions one core may have open at another.
    pub in_flight_max: u16,
    /// Threads for blocking jobs that end, for the whole process.
    pub side_threads: usize,
    /// Makes each core's disk.
    pub disk: DiskFactory,
}

impl CoresConfig {
    /// The defaults, over a disk.
    pub fn new(disk: DiskFactory) -> Self {
        Self {
            backend: Backend::IoUring,
            cores: None,
            pin: true,
            idle_spin: None,
            io_memory_bytes: 1 << 20,
            in_flight_max: IN_FLIGHT_MAX,
            side_threads: 2,
            disk,
        }
    }
}

/// Why the cores did not start. None of them runs then.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Asked for no core.
    #[error("at least one core is needed")]
    NoCores,
    /// The limit of locked memory is too low for any executor.
    #[error(
        "the limit of locked memory is {bytes} bytes; raise it to 8 MiB (ulimit -l 8192, or LimitMEMLOCK= in the unit)"
    )]
    LockedMemory {
        /// The limit found.
        bytes: u64,
    },
    /// The executors lock more memory than the user may.
    #[error(
        "core {core} may lock no more memory, of which {cores} cores need {} MiB; raise the limit (ulimit -l unlimited, or \
         LimitMEMLOCK=infinity in the unit), or give fewer cores",
        (u64::from(*cores) * EXECUTOR_LOCKED_BYTES) >> 20
    )]
    LockedMemoryOfCores {
        /// The first without.
        core: u16,
        /// How many there are to be.
        cores: u16,
    },
    /// A thread could not be made.
    #[error("could not start a thread: {0}")]
    Thread(std::io::Error),
    /// An executor could not be made; most often io_uring is forbidden here.
    #[error("core {core} could not start: {reason}")]
    Executor {
        /// Which core.
        core: u16,
        /// What the executor said.
        reason: String,
    },
}

/// How errors of the executor say that the system gave no memory.
const OUT_OF_MEMORY: &str = "os error 12";
/// How long a core looks for work before it sleeps. A search takes two cores some tens of microseconds each, and most of what its
/// client waited for was that they woke up. Twice as long gained nothing, half as long two thirds of it.
const IDLE_SPIN: Duration = Duration::from_micros(100);
/// How a core ended: what its panic said, if one ended it.
pub(super) type Ended = Option<String>;

/// A core's thread.
pub(super) enum SeatedThread {
    Glommio(::glommio::ExecutorJoinHandle<Ended>),
    Local(std::thread::JoinHandle<Ended>),
}

impl SeatedThread {
    /// Waits for its end. The error: it did not begin, or its executor failed.
    fn join(self) -> Result<Ended, String> {
        match self {
            Self::Glommio(thread) => thread.join().map_err(|error| error.to_string()),
            Self::Local(thread) => thread.join().map_err(|panic| panic_text(&*panic)),
        }
    }
}

/// The running cores.
pub struct CoresHandle {
    threads: Vec<SeatedThread>,
}

impl CoresHandle {
    /// How many cores run.
    pub fn core_count(&self) -> u16 {
        self.threads.len() as u16
    }

    /// Blocks this thread, which must not be a core's, until every core's start future has ended. The cores whose future
    /// panicked, with what was said; empty when all ended well.
    pub fn join(self) -> Vec<(CoreId, String)> {
        let mut failed = Vec::new();
        for (number, thread) in self.threads.into_iter().enumerate() {
            match thread.join() {
                Ok(None) => {}
                Ok(Some(panic)) => failed.push((CoreId(number as u16), panic)),
                Err(error) => failed.push((CoreId(number as u16), error)),
            }
        }
        failed
    }
}

/// What a core's thread brings with it.
pub(super) struct Seat<Q, A> {
    port: Port<Q, A>,
    pub(super) core: CoreId,
    pub(super) core_count: u16,
    pub(super) started: Instant,
    pub(super) threads: (SideThreads, UntrustedThreads),
    pub(super) disk: DiskFactory,
    /// Which of the executors started for this core has it.
    pub(super) attempt: usize,
    ready: Sender<usize>,
    go: Receiver<()>,
}

/// A core that waits to be let go: its thread, what says that it runs, and what lets it go.
type Seated = (SeatedThread, Receiver<usize>, Sender<()>);

/// Starts the cores and returns once all run. `start` is called on each, in its executor; when its future ends, the core's
/// mesh closes and the core ends. Call it from the main thread before others are made.
pub fn run_cores<Q, A, F, Fut>(config: CoresConfig, start: F) -> Result<CoresHandle, StartError>
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Rc<dyn Runtime>, Mesh<Q, A>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let host = host_cpus();
    let core_count = config.cores.unwrap_or_else(|| default_core_count(&host));
    if core_count == 0 {
        return Err(StartError::NoCores);
    }
    forbid_huge_pages();
    let memlock_bytes = raise_memlock();
    let side_threads = SideThreads::start(config.side_threads).map_err(StartError::Thread)?;
    let untrusted_threads = UntrustedThreads::start(Bounds::default()).map_err(StartError::Thread)?;
    // One that takes a part of what it may use leaves the others theirs: pinned, two such servers would share the first processors
    // while the rest lie idle.
    let owns_all = config.pin && host.quota.is_none() && usize::from(core_count) == host.allowed.len();
    let idle_spin = config.idle_spin.unwrap_or(if owns_all { IDLE_SPIN } else { Duration::ZERO });
    let started = Instant::now();
    let seats = ports::<Q, A>(core_count, config.in_flight_max).into_iter().enumerate().map(|(number, port)| {
        let (ready, is_ready) = channel();
        let (let_go, go) = channel();
        let core = CoreId(number as u16);
        let threads = (side_threads.clone(), untrusted_threads.clone());
        let disk = config.disk.clone();
        (Seat { port, core, core_count, started, threads, disk, attempt: 0, ready, go }, is_ready, let_go)
    });
    let mut seated: Vec<Seated> = Vec::new();
    match config.backend {
        Backend::Glommio => {
            let executors =
                glommio::Executors::prepare(&config, &host, (core_count, owns_all, idle_spin), memlock_bytes)?;
            for (seat, is_ready, let_go) in seats {
                let thread = executors.start_core(seat, &start, &is_ready).map_err(|error| error.of_all(core_count))?;
                seated.push((thread, is_ready, let_go));
            }
        }
        Backend::IoUring | Backend::Epoll => {
            let mut prepared = local::prepare(core_count, owns_all.then(|| host.allowed.clone()))?;
            for (seat, is_ready, let_go) in seats {
                let thread = local::start_core(&mut prepared, seat, idle_spin, start.clone())?;
                // Where it ended instead, `release` finds that.
                let _ = is_ready.recv();
                seated.push((thread, is_ready, let_go));
            }
        }
    }
    release(seated).map_err(|error| error.of_all(core_count))
}

/// Lets all cores go; when one failed, ends the others before they began.
fn release(seated: Vec<Seated>) -> Result<CoresHandle, StartError> {
    // A core that runs holds its end until it is let go.
    let failed = seated.iter().position(|(_, is_ready, _)| is_ready.try_recv() == Err(TryRecvError::Disconnected));
    let Some(failed) = failed else {
        let threads = seated.into_iter().map(|(thread, _, let_go)| {
            // A core that ended in between has reported its own failure to `join`.
            let _ = let_go.send(());
            thread
        });
        return Ok(CoresHandle { threads: threads.collect() });
    };
    let mut cause = None;
    for (number, (thread, _, let_go)) in seated.into_iter().enumerate() {
        // A core that hears nothing ends without starting.
        drop(let_go);
        if let (Err(error), true) = (thread.join(), number == failed) {
            cause = Some(StartError::Executor { core: number as u16, reason: error });
        }
    }
    let core = failed as u16;
    Err(cause.unwrap_or_else(|| StartError::Executor { core, reason: "its thread ended early".to_owned() }))
}

impl StartError {
    /// Names what is short where the system says no more than that memory is.
    fn of_all(self, cores: u16) -> Self {
        match self {
            Self::Executor { core, reason } if reason.contains(OUT_OF_MEMORY) => {
                Self::LockedMemoryOfCores { core, cores }
            }
            other => other,
        }
    }
}

/// The life of a core, in its executor: waits until all cores can begin, and runs `start` on the runtime that `runtime` makes.
pub(super) async fn run_core<Q, A, F, Fut>(
    seat: Seat<Q, A>,
    runtime: impl FnOnce(&Seat<Q, A>) -> Rc<dyn Runtime>,
    start: F,
) -> Ended
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Rc<dyn Runtime>, Mesh<Q, A>) -> Fut,
    Fut: Future<Output = ()>,
{
    ask_for_short_slices();
    // Blocks the executor on purpose: it has nothing else yet, and no core may begin unless all can.
    if seat.ready.send(seat.attempt).is_err() || seat.go.recv().is_err() {
        return None;
    }
    let core = seat.core;
    let runtime = runtime(&seat);
    let mesh = Mesh::new(&runtime, seat.port);
    // Closed however the future ends, so that no peer waits for this core.
    let closing = CloseOnDrop(mesh.clone());
    let ended = catch_panic(async { start(runtime, mesh).await }).await;
    drop(closing);
    ended.err().map(|panicked| {
        tracing::error!(core = core.0, panic = %panicked, "a core ended with a panic");
        panicked.0
    })
}
