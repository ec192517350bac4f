//! Starts an instance's cores: one thread and one executor each, connected by a mesh.

use std::future::Future;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use glommio::{ExecutorJoinHandle, GlommioError, LocalExecutorBuilder, Placement, PoolPlacement};
use storage_engine::Disk;

use super::glommio::{GlommioRuntime, PREEMPTION};
use super::host::{
    EXECUTOR_LOCKED_BYTES, MEMLOCK_BYTES_MIN, forbid_huge_pages, io_memory_bytes, raise_memlock, register_membarrier,
};
use super::pulse::Pulse;
use super::side_threads::SideThreads;
use super::untrusted::{Bounds, UntrustedThreads};
use super::{Runtime, catch_panic};
use crate::ids::CoreId;
use crate::mesh::{CloseOnDrop, IN_FLIGHT_MAX, Mesh, Port, ports};
use crate::placement::{default_core_count, host_cpus};

/// Makes a core's disk, on that core.
pub type DiskFactory = Arc<dyn Fn(CoreId) -> Rc<dyn Disk> + Send + Sync>;

/// How the cores run.
#[derive(Clone)]
pub struct CoresConfig {
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

/// An executor that has not run for so long is taken to be asleep.
const ASLEEP_AFTER: Duration = Duration::from_secs(1);
/// How errors of the executor say that the system gave no memory.
const OUT_OF_MEMORY: &str = "os error 12";
/// How long a core looks for work before it sleeps. A search takes two cores some tens of microseconds each, and most of what its
/// client waited for was that they woke up. Twice as long gained nothing, half as long two thirds of it.
const IDLE_SPIN: Duration = Duration::from_micros(100);
/// Executors started for one core before that counts as a failure.
const ATTEMPTS_MAX: usize = 20;

/// How a core ended: what its panic said, if one ended it.
type Ended = Option<String>;

/// The running cores.
pub struct CoresHandle {
    threads: Vec<ExecutorJoinHandle<Ended>>,
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
                Err(error) => failed.push((CoreId(number as u16), error.to_string())),
            }
        }
        failed
    }
}

/// What a core's thread brings with it.
struct Seat<Q, A> {
    port: Port<Q, A>,
    core: CoreId,
    core_count: u16,
    started: Instant,
    threads: (SideThreads, UntrustedThreads),
    disk: DiskFactory,
    pulse: Pulse,
    ready: Sender<usize>,
    go: Receiver<()>,
}

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
    register_membarrier();
    forbid_huge_pages();
    let memlock_bytes = raise_memlock();
    if memlock_bytes < MEMLOCK_BYTES_MIN {
        return Err(StartError::LockedMemory { bytes: memlock_bytes });
    }
    let io_memory = io_memory_bytes(config.io_memory_bytes, core_count, memlock_bytes);
    // One that takes a part of what it may use leaves the others theirs: pinned, two such servers would share the first processors
    // while the rest lie idle.
    let pin = config.pin && host.quota.is_none() && usize::from(core_count) == host.allowed.len();
    let idle_spin = config.idle_spin.unwrap_or(if pin { IDLE_SPIN } else { Duration::ZERO });
    let side_threads = SideThreads::start(config.side_threads).map_err(StartError::Thread)?;
    let untrusted_threads = UntrustedThreads::start(Bounds::default()).map_err(StartError::Thread)?;
    let pulse = Pulse::start(core_count).map_err(StartError::Thread)?;
    let started = Instant::now();
    let mut seated: Vec<(ExecutorJoinHandle<Ended>, Receiver<usize>, Sender<()>)> = Vec::new();
    for (number, port) in ports::<Q, A>(core_count, config.in_flight_max).into_iter().enumerate() {
        let placement = if pin { Placement::Fixed(host.allowed[number]) } else { Placement::Unbound };
        let (ready, is_ready) = channel();
        let (let_go, go) = channel();
        let core = CoreId(number as u16);
        let threads = (side_threads.clone(), untrusted_threads.clone());
        let (disk, pulse) = (config.disk.clone(), pulse.clone());
        let seat = Seat { port, core, core_count, started, threads, disk, pulse, ready, go };
        let executor = || {
            LocalExecutorBuilder::new(placement.clone())
                .name("core")
                .io_memory(io_memory)
                .preempt_timer(PREEMPTION)
                .spin_before_park(idle_spin)
                // The default places the helper threads of all executors on the first one's processor.
                .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
        };
        let thread = seat_core(executor, seat, &start, &is_ready).map_err(|error| error.of_all(core_count))?;
        seated.push((thread, is_ready, let_go));
    }
    release(seated).map_err(|error| error.of_all(core_count))
}

/// Starts a core's executor and waits until it runs.
///
/// For the reason that [`super::pulse`] gives, an executor may fall asleep before it has polled anything; nothing can wake it
/// then. The core's place is offered to another one in that case: whichever runs first takes it, the other ends at once or is
/// left asleep.
fn seat_core<Q, A, F, Fut>(
    executor: impl Fn() -> LocalExecutorBuilder,
    seat: Seat<Q, A>,
    start: &F,
    is_ready: &Receiver<usize>,
) -> Result<ExecutorJoinHandle<Ended>, StartError>
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Rc<dyn Runtime>, Mesh<Q, A>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let core = seat.core;
    let mut offered = Arc::new(Mutex::new(Some(seat)));
    let mut threads = Vec::new();
    loop {
        let (place, start, attempt) = (offered.clone(), start.clone(), threads.len());
        // Only the executors hold the place while this waits, so that it learns when one fails.
        let kept = Arc::downgrade(&offered);
        drop(offered);
        let run = move || async move {
            // Held for this one statement, by an executor that has nothing else to do yet.
            let seat = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(place);
            match seat {
                Some(seat) => run_core(seat, attempt, start).await,
                None => None,
            }
        };
        threads.push(executor().spawn(run).map_err(|error: GlommioError<()>| executor_error(core, &error))?);
        let ran = match is_ready.recv_timeout(ASLEEP_AFTER) {
            Ok(ran) => ran,
            Err(RecvTimeoutError::Timeout) => match kept.upgrade() {
                Some(place) if threads.len() < ATTEMPTS_MAX => {
                    offered = place;
                    continue;
                }
                _ => return Err(StartError::Executor { core: core.0, reason: "it does not run".to_owned() }),
            },
            // Its executor failed; joining it tells why.
            Err(RecvTimeoutError::Disconnected) => threads.len() - 1,
        };
        return Ok(threads.swap_remove(ran));
    }
}

/// Lets all cores go; when one failed, ends the others before they began.
fn release(seated: Vec<(ExecutorJoinHandle<Ended>, Receiver<usize>, Sender<()>)>) -> Result<CoresHandle, StartError> {
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
            cause = Some(executor_error(CoreId(number as u16), &error));
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

fn executor_error(core: CoreId, error: &impl std::fmt::Display) -> StartError {
    StartError::Executor { core: core.0, reason: error.to_string() }
}

async fn run_core<Q, A, F, Fut>(seat: Seat<Q, A>, attempt: usize, start: F) -> Ended
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Rc<dyn Runtime>, Mesh<Q, A>) -> Fut,
    Fut: Future<Output = ()>,
{
    // Blocks the executor on purpose: it has nothing else yet, and no core may begin unless all can.
    if seat.ready.send(attempt).is_err() || seat.go.recv().is_err() {
        return None;
    }
    let core = seat.core;
    let disk = (seat.disk)(core);
    let presence = seat.pulse.presence(core.0);
    let runtime = GlommioRuntime::new(core, seat.core_count, seat.started, disk, seat.threads, presence);
    let (_beat, beating) = seat.pulse.beat(core.0);
    runtime.spawn_beat(beating);
    let runtime: Rc<dyn Runtime> = Rc::new(runtime);
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
