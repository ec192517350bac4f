//! The runtime of a core: tasks, time, randomness, its disk, and access to threads that may block.
//!
//! Everything above this module is written against [`Runtime`] and runs unchanged on three back ends: [`run_cores`] starts one
//! executor per core in real time, our own or glommio's, and
//! [`SimCluster`] runs any number of cores in one thread, in virtual time, with the interleaving determined by a seed. Nothing
//! here is `Send`: a runtime belongs to its core.
//!
//! A task that loops calls [`Checkpoint::tick`] for each item of a few microseconds, so that a search never waits for more than about half a
//! millisecond of somebody else's loop.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use storage_engine::Disk;

use crate::ids::CoreId;

mod aside;
mod cores;
mod glommio;
mod host;
mod local;
mod once;
mod own;
mod pace;
mod panics;
mod side_threads;
mod sim;
mod sockets;
pub mod steps;
#[cfg(test)]
mod tests;
mod untrusted;

pub use aside::aside;
pub use cores::{Backend, CoresConfig, CoresHandle, DiskFactory, StartError, run_cores};
pub use once::{OnceReceiver, OnceSender, once};
pub use pace::{RuntimePace, pause, pause_at};
pub use panics::{Panicked, catch_panic, panic_text};
pub use sim::{SimCluster, SimConfig, SimDiskFactory, SimEnd};
pub use sockets::{Listener, Stream};
pub use untrusted::{UntrustedError, UntrustedJob, Watch};

/// Which share of its core a task gets when more than one has work. Search and messages have 1000 shares each and come
/// first, indexing has 300, upkeep 50.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// Somebody waits for the answer: requests and searches.
    Search,
    /// The mesh's own task, with the shares of search. Apart, since a wake from another core into a queue that matters for
    /// latency costs that core a system call even while this one is awake; [`Runtime::interrupt`] makes it where it pays.
    Messages,
    /// Batches of documents and settings.
    Indexing,
    /// What may wait: compaction, statistics, removal of files.
    Upkeep,
}

/// A moment on the instance's own clock, in nanoseconds since it started. Never goes back; the same on all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` after this one.
    pub fn after(self, by: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Why a job for a side thread has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SideThreadError {
    /// The queue of waiting jobs is full; the job was not started. Try later or refuse the request.
    #[error("all side threads are busy and their queue is full")]
    Full,
    /// The job panicked.
    #[error("the job panicked: {0}")]
    Panicked(String),
    /// The threads have ended; the job was not finished.
    #[error("the side threads have ended")]
    Ended,
}

/// One core as the code on it sees it.
pub trait Runtime {
    /// This core.
    fn core(&self) -> CoreId;
    /// How many cores the instance has, at least 1.
    fn core_count(&self) -> u16;
    /// The instance's clock, for deadlines and measurements.
    fn now(&self) -> Nanos;
    /// The calendar: time since 1970-01-01 00:00 UTC. May jump when the host's clock is set.
    fn unix_time(&self) -> Duration;
    /// Randomness for identifiers and jitter; not for keys. In a simulation it follows from the seed.
    fn random_u64(&self) -> u64;
    /// Starts a task on this core and forgets it. A panic inside ends only that task and is logged.
    fn spawn(&self, queue: Queue, task: LocalBoxFuture<'static, ()>);
    /// Ends after at least `duration`.
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()>;
    /// Whether somebody more urgent waits for this core. Costs two loads; meant for inner loops.
    fn should_yield(&self) -> bool;
    /// Lets others run, then goes on.
    fn yield_now(&self) -> LocalBoxFuture<'static, ()>;
    /// Has another core end its turn of indexing or upkeep soon, if it is in one: something more urgent was sent to it.
    fn interrupt(&self, core: CoreId);
    /// The disk as this core reaches it.
    fn disk(&self) -> Rc<dyn Disk>;
    /// Runs a job that blocks or burns on a thread of a small pool shared by the whole process. Dropping the returned future
    /// skips a job that has not begun and does not stop one that has.
    fn side_thread(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>>;
    /// Runs a job that may never end on a thread of its own, which stands back behind the cores. The job is given up when one
    /// step of it takes too long; so it is when the returned future is dropped and the job does not heed its [`Watch`].
    fn untrusted_thread(&self, job: UntrustedJob) -> LocalBoxFuture<'static, Result<(), UntrustedError>>;
    /// Takes over a socket that listens already.
    ///
    /// # Errors
    /// That of the system; a runtime without sockets, such as a simulated one, has none.
    fn listen(&self, socket: std::net::TcpListener) -> io::Result<Listener> {
        drop(socket);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Connects to an address. Dropping the future gives up.
    ///
    /// # Errors
    /// As for [`Runtime::listen`].
    fn connect(&self, address: SocketAddr) -> LocalBoxFuture<'static, io::Result<Stream>> {
        let _ = address;
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}

/// A task as every back end runs it: its panic is caught and logged, and its long steps are where somebody looks at them.
fn guarded(core: CoreId, queue: Queue, task: LocalBoxFuture<'static, ()>) -> impl Future<Output = ()> + 'static {
    let task: LocalBoxFuture<'static, ()> = if tracing::enabled!(target: "shards::steps", tracing::Level::DEBUG) {
        Box::pin(steps::timed(core, queue, task))
    } else {
        task
    };
    async move {
        if let Err(panicked) = catch_panic(task).await {
            tracing::error!(core = core.0, queue = ?queue, panic = %panicked, "task panicked");
        }
    }
}

/// How many ticks pass between two looks at the clock of preemption.
const TICKS_PER_LOOK: u32 = 16;

/// Keeps a long loop polite: a counter that is nearly free, and a yield when the core is wanted elsewhere.
///
/// ```ignore
/// let mut checkpoint = Checkpoint::default();
/// for document in documents {
///     index(document);
///     checkpoint.tick(&*runtime).await;
/// }
/// ```
#[derive(Debug, Default)]
pub struct Checkpoint {
    ticks: u32,
}

impl Checkpoint {
    /// Counts one item of a few microseconds; at every 16th yields if somebody waits.
    pub async fn tick(&mut self, runtime: &dyn Runtime) {
        self.ticks += 1;
        if self.ticks >= TICKS_PER_LOOK {
            self.look(runtime).await;
        }
    }

    /// For items of more than some ten microseconds: yields if somebody waits, without counting.
    pub async fn look(&mut self, runtime: &dyn Runtime) {
        self.ticks = 0;
        if runtime.should_yield() {
            runtime.yield_now().await;
        }
    }
}
