//! Simulation of a whole instance in one thread, with controlled time and randomness.
//!
//! The code under test is the code that runs on real cores: the same start function, the same mesh over the same rings. Only the
//! scheduling differs. Ready tasks are picked one at a time by a seeded generator; a wake-up only queues; time advances a little
//! with every step and jumps to the next timer when nothing is ready. So the interleaving is a function of the seed, and the
//! *trace hash* over (time, core, task) of every step tells whether two runs were the same.
//!
//! Code under test must take time and randomness from its [`Runtime`] and must not depend on the order of a hash map, or the same
//! seed gives different runs; `trace_hash` reveals that.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use storage_engine::Disk;

use super::{Nanos, Queue, Runtime, catch_panic};
use crate::ids::CoreId;
use crate::mesh::{CloseOnDrop, IN_FLIGHT_MAX, Mesh, ports};

mod core;
mod scheduler;

use self::core::SimRuntime;
use scheduler::Scheduler;

/// Makes a simulated core's disk; called once per core and seed.
pub type SimDiskFactory = Rc<dyn Fn(CoreId) -> Rc<dyn Disk>>;

/// What is simulated.
#[derive(Clone)]
pub struct SimConfig {
    /// Decides everything that is not given.
    pub seed: u64,
    /// How many cores.
    pub cores: u16,
    /// Questions one core may have open at another.
    pub in_flight_max: u16,
    /// The calendar at the start: time since 1970.
    pub unix_time: Duration,
    /// Makes each core's disk.
    pub disk: SimDiskFactory,
}

impl SimConfig {
    /// `cores` cores over a disk, at 2026-01-01.
    pub fn new(seed: u64, cores: u16, disk: SimDiskFactory) -> Self {
        Self { seed, cores, in_flight_max: IN_FLIGHT_MAX, unix_time: Duration::from_secs(1_767_225_600), disk }
    }
}

/// Why a run of the simulation stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimEnd {
    /// Every core's start future has ended. Panics of start futures, by core.
    Finished(Vec<(CoreId, String)>),
    /// No task is ready and no timer is set, yet some start future has not ended: a deadlock.
    Stuck,
    /// The limit of steps or of time was reached.
    LimitReached,
}

/// Simulated cores. Dropping it ends all tasks where they are, as a power cut would.
pub struct SimCluster {
    scheduler: Rc<Scheduler>,
    running: Rc<std::cell::Cell<usize>>,
    failed: Rc<std::cell::RefCell<Vec<(CoreId, String)>>>,
}

impl SimCluster {
    /// Makes the cores and calls `start` for each; nothing has run yet.
    pub fn new<Q, A, F, Fut>(config: &SimConfig, start: F) -> Self
    where
        Q: Send + 'static,
        A: Send + 'static,
        F: Fn(Rc<dyn Runtime>, Mesh<Q, A>) -> Fut + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let scheduler = Rc::new(Scheduler::new(config.seed));
        let running = Rc::new(std::cell::Cell::new(usize::from(config.cores)));
        let failed = Rc::new(std::cell::RefCell::new(Vec::new()));
        for (number, port) in ports::<Q, A>(config.cores, config.in_flight_max).into_iter().enumerate() {
            let core = CoreId(number as u16);
            let disk = (config.disk)(core);
            let runtime: Rc<dyn Runtime> =
                Rc::new(SimRuntime::new(core, config.cores, config.unix_time, disk, Rc::downgrade(&scheduler)));
            let mesh = Mesh::new(&runtime, port);
            let (start, running, failed) = (start.clone(), running.clone(), failed.clone());
            let spawner = runtime.clone();
            let whole = async move {
                let closing = CloseOnDrop(mesh.clone());
                let ended = catch_panic(async { start(runtime, mesh).await }).await;
                drop(closing);
                if let Err(panicked) = ended {
                    failed.borrow_mut().push((core, panicked.0));
                }
                running.set(running.get() - 1);
            };
            spawner.spawn(Queue::Search, Box::pin(whole));
        }
        Self { scheduler, running, failed }
    }

    /// Runs until all start futures have ended, or nothing can go on, or `steps_max` tasks were polled, or the clock passes
    /// `until`. May be called again after a limit.
    pub fn run(&self, steps_max: u64, until: Nanos) -> SimEnd {
        for _ in 0..steps_max {
            if self.running.get() == 0 {
                return SimEnd::Finished(self.failed.borrow().clone());
            }
            if self.scheduler.now() > until {
                return SimEnd::LimitReached;
            }
            if !self.scheduler.step() {
                return SimEnd::Stuck;
            }
        }
        SimEnd::LimitReached
    }

    /// The virtual time.
    pub fn now(&self) -> Nanos {
        self.scheduler.now()
    }

    /// A hash over all steps so far: equal for equal interleavings.
    pub fn trace_hash(&self) -> u64 {
        self.scheduler.trace_hash()
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.scheduler.steps()
    }
}

impl Drop for SimCluster {
    fn drop(&mut self) {
        self.scheduler.end_all();
    }
}
