//! Measures how long tasks hold their core between two yields. If the log target `shards::steps` is at `debug` from the start,
//! every step that takes more than [`LONG_STEP`] of CPU time is logged with its queue and the task's description of its work.

use std::cell::Cell;
use std::future::poll_fn;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use super::Queue;
use crate::ids::CoreId;

/// Steps that take longer are logged.
const LONG_STEP: Duration = Duration::from_micros(700);

thread_local! {
    static DOING: Cell<&'static str> = const { Cell::new("") };
}

/// Says what the task that runs now does from now on, for the measure of long steps.
pub fn doing(what: &'static str) {
    DOING.set(what);
}

/// The processor time of this thread: other than the clock, it does not count what other threads took.
fn thread_time() -> Duration {
    processor_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The processor time of all threads of this process together.
pub fn process_time() -> Duration {
    processor_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn processor_time(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that outlives the call.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut now) } != 0;
    if failed { Duration::ZERO } else { Duration::new(now.tv_sec as u64, now.tv_nsec as u32) }
}

/// Runs a task, logging its long steps.
pub(super) async fn timed(core: CoreId, queue: Queue, mut task: LocalBoxFuture<'static, ()>) {
    let mut doing = "";
    poll_fn(move |context| {
        let began = thread_time();
        DOING.set(doing);
        let result = task.as_mut().poll(context);
        let took = thread_time().saturating_sub(began);
        doing = DOING.get();
        if took > LONG_STEP {
            let micros = took.as_micros() as u64;
            tracing::debug!(target: "shards::steps", core = core.0, ?queue, doing, micros, "long step");
        }
        result
    })
    .await;
}
