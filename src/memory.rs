//! The allocator, and when it returns memory to the system.
//!
//! mimalloc returns pages some time after they were freed, on whichever thread allocates next. During a load that means tens of
//! megabytes at once, which blocks a core's searches for ten milliseconds and more. So the cores do not return memory; a
//! dedicated thread does.

use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
use shards::runtime::steps::process_time;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Between two looks at what was freed. Shorter ones give pages back that a load would take again at once.
const EVERY: Duration = Duration::from_millis(500);
/// A process that took more than this of the time between two looks is at work and will soon take again what was freed.
const BUSY: Duration = Duration::from_millis(400);
/// Looks that a process at work may pass over in a row.
const PASSED_OVER_MAX: u32 = 10;
/// mimalloc's `mi_option_purge_delay`, for which the crate has no name: milliseconds from when pages are freed until the next
/// thread that allocates gives them back.
const PURGE_DELAY: mi_option_t = 15;
/// An hour, so that this thread always comes first; arenas wait ten times as long.
const PURGE_DELAY_MS: libc::c_long = 3_600_000;

/// Starts the thread, which lives as long as the process. Without it memory is given back as mimalloc does.
pub fn give_back_aside() {
    let started = std::thread::Builder::new().name("memory".to_owned()).spawn(|| {
        stand_back();
        let (mut used, mut passed_over) = (process_time(), 0);
        loop {
            std::thread::park_timeout(EVERY);
            let before = std::mem::replace(&mut used, process_time());
            if used.saturating_sub(before) > BUSY && passed_over < PASSED_OVER_MAX {
                passed_over += 1;
                continue;
            }
            passed_over = 0;
            // SAFETY: may be called by any thread at any time; it gives back what is free in all arenas.
            unsafe { mi_collect(true) };
        }
    });
    if started.is_ok() {
        // SAFETY: sets a number that allocations read atomically.
        unsafe { mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) };
    }
}

/// Has this thread run only where a processor would idle: giving back takes milliseconds at a time, which a core on the same
/// processor would lose. Where the host refuses, it runs as any other.
fn stand_back() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a local that outlives the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) };
}
