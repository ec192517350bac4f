//! Starts glommio's executors.

use std::future::Future;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use glommio::{GlommioError, LocalExecutorBuilder, Placement, PoolPlacement};

use super::pulse::Pulse;
use super::{GlommioRuntime, PREEMPTION};
use crate::ids::CoreId;
use crate::mesh::Mesh;
use crate::placement::HostCpus;
use crate::runtime::Runtime;
use crate::runtime::cores::{CoresConfig, Seat, SeatedThread, StartError, run_core};
use crate::runtime::host::{MEMLOCK_BYTES_MIN, io_memory_bytes, register_membarrier};

/// An executor that has not run for so long is taken to be asleep.
const ASLEEP_AFTER: Duration = Duration::from_secs(1);
/// Executors started for one core before that counts as a failure.
const ATTEMPTS_MAX: usize = 20;

/// What all executors have in common.
pub(in crate::runtime) struct Executors {
    io_memory: usize,
    idle_spin: Duration,
    /// The processor of each core, where they are bound to some.
    processors: Option<Vec<usize>>,
    pulse: Pulse,
}

impl Executors {
    /// Gets the process, which may lock `memlock_bytes` of memory, ready for them. Call it from the main thread before others are made.
    ///
    /// # Errors
    /// Too little memory may be locked, or no thread be made.
    pub(in crate::runtime) fn prepare(
        config: &CoresConfig,
        host: &HostCpus,
        (core_count, pin, idle_spin): (u16, bool, Duration),
        memlock_bytes: u64,
    ) -> Result<Self, StartError> {
        register_membarrier();
        if memlock_bytes < MEMLOCK_BYTES_MIN {
            return Err(StartError::LockedMemory { bytes: memlock_bytes });
        }
        Ok(Self {
            io_memory: io_memory_bytes(config.io_memory_bytes, core_count, memlock_bytes),
            idle_spin,
            processors: pin.then(|| host.allowed.clone()),
            pulse: Pulse::start(core_count).map_err(StartError::Thread)?,
        })
    }

    fn executor(&self, core: CoreId) -> LocalExecutorBuilder {
        let processor = self.processors.as_ref().and_then(|processors| processors.get(usize::from(core.0)));
        LocalExecutorBuilder::new(processor.map_or(Placement::Unbound, |processor| Placement::Fixed(*processor)))
            .name("core")
            .io_memory(self.io_memory)
            .preempt_timer(PREEMPTION)
            .spin_before_park(self.idle_spin)
            // The default places the helper threads of all executors on the first one's processor.
            .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
    }

    /// Starts a core's executor and waits until it runs.
    ///
    /// For the reason that [`super::pulse`] gives, an executor may fall asleep before it has polled anything; nothing can wake it
    /// then. The core's place is offered to another one in that case: whichever runs first takes it, the other ends at once or is
    /// left asleep.
    pub(in crate::runtime) fn start_core<Q, A, F, Fut>(
        &self,
        seat: Seat<Q, A>,
        start: &F,
        is_ready: &Receiver<usize>,
    ) -> Result<SeatedThread, StartError>
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
            let pulse = self.pulse.clone();
            let run = move || async move {
                // Held for this one statement, by an executor that has nothing else to do yet.
                let seat = place.lock().unwrap_or_else(PoisonError::into_inner).take();
                drop(place);
                let mut seat = seat?;
                seat.attempt = attempt;
                let (presence, (beat, beating)) = (pulse.presence(core.0), pulse.beat(core.0));
                let runtime = |seat: &Seat<Q, A>| -> Rc<dyn Runtime> {
                    let runtime = GlommioRuntime::new(seat, presence);
                    runtime.spawn_beat(beating);
                    Rc::new(runtime)
                };
                let ended = run_core(seat, runtime, start).await;
                drop(beat);
                ended
            };
            let failed = |error: GlommioError<()>| StartError::Executor { core: core.0, reason: error.to_string() };
            threads.push(self.executor(core).spawn(run).map_err(failed)?);
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
            return Ok(SeatedThread::Glommio(threads.swap_remove(ran)));
        }
    }
}
