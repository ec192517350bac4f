//! Kernel settings: process-wide ones before the first executor starts, and those of threads.

use std::time::Duration;

/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`, which `libc` does not name.
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Memory below which an executor does not start.
pub(super) const MEMLOCK_BYTES_MIN: u64 = 512 << 10;

/// What the kernel counts of an executor against the limit, about: its rings and the least I/O memory.
pub(super) const EXECUTOR_LOCKED_BYTES: u64 = 256 << 10;

/// An executor registers its I/O memory with three rings, and never less than this.
const IO_MEMORY_BYTES_MIN: usize = 64 << 10;
const RINGS_PER_EXECUTOR: u64 = 3;

/// Registers the process for the barrier that executors use before they sleep. Done lazily, in a process of many threads,
/// the first sleep takes tens of milliseconds. A kernel without it has executors use plain fences.
pub(super) fn register_membarrier() {
    // SAFETY: this command takes no pointers and changes only how the kernel serves later barrier calls of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
}

/// `PR_THP_DISABLE_EXCEPT_ADVISED` of Linux 6.18, which `libc` does not name.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;
/// Says in brackets when the kernel backs memory with huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Has the process's memory come in small pages, but for what asks for huge ones. Where huge ones are on, the first touch of one
/// clears 2 MiB in the middle of whatever ran, and every request of the core waits: 5 ms on a virtual machine whose host must find
/// the memory first. Loading was a third faster without them, searches the same, and memory a fifth less. A kernel that only gives
/// them where they are asked for needs not be told; one that cannot tell the two apart gives none.
pub(super) fn forbid_huge_pages() {
    let set = |flags: libc::c_ulong| {
        // SAFETY: this command takes no pointers and changes only how the kernel backs memory that is yet to be touched.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, flags, 0, 0) == 0 }
    };
    if !set(EXCEPT_ADVISED) && std::fs::read_to_string(HUGE_PAGES).is_ok_and(|mode| mode.contains("[always]")) {
        set(0);
    }
}

/// Raises the limit of locked memory as far as this process may, and returns it in bytes; `u64::MAX` for none.
pub(super) fn raise_memlock() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local of the right type that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0 {
        return 0;
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: as above; the call only reads the struct.
        if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raised) } == 0 {
            limit = raised;
        }
    }
    limit.rlim_cur
}

/// How much I/O memory each executor may register: what was asked for, or less so that all of them together stay within half
/// the limit. The other half is for what the page stores lock.
pub(super) fn io_memory_bytes(wanted: usize, cores: u16, memlock_bytes: u64) -> usize {
    let fair = memlock_bytes / 2 / RINGS_PER_EXECUTOR / u64::from(cores.max(1));
    wanted.min(usize::try_from(fair).unwrap_or(usize::MAX)).max(IO_MEMORY_BYTES_MIN)
}

/// Binds the calling thread to a processor. Where the kernel refuses, it goes on unbound.
pub(super) fn bind_to_processor(processor: usize) {
    // SAFETY: `cpu_set_t` is a plain array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let bytes = std::mem::size_of::<libc::cpu_set_t>();
    if processor >= bytes * 8 {
        return;
    }
    // SAFETY: the number lies within the set, which outlives both calls; 0 means this thread.
    unsafe {
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, bytes, &raw const set);
    }
}

/// Has the kernel let the calling thread run for this long at a time where others want its processor, and soon again: since Linux 6.12
/// it lets a thread that asks for short times go before one that has the usual 1 to 3 ms. Where the load generator has the
/// server's own processors, p99 under a load was a fifth less. A third of this, and twice as much, made no difference beyond the noise.
const TIME_SLICE: Duration = Duration::from_micros(300);

/// Asks for [`TIME_SLICE`]. An older kernel, and one that schedules the thread in another way than by fair shares, goes on as before.
pub(super) fn ask_for_short_slices() {
    let Some(found) = scheduling().filter(|found| found.sched_policy == libc::SCHED_OTHER as u32) else { return };
    let size = std::mem::size_of::<libc::sched_attr>() as u32;
    let asked = libc::sched_attr { size, sched_runtime: TIME_SLICE.as_nanos() as u64, ..found };
    // SAFETY: the pointer is to a local of as many bytes as it says, which outlives the call and is only read; 0 means this thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const asked, 0) };
}

/// How the kernel schedules the calling thread; `None` where it does not say.
fn scheduling() -> Option<libc::sched_attr> {
    // SAFETY: a plain struct of integers, for which zero is a value.
    let mut found: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = std::mem::size_of::<libc::sched_attr>() as u32;
    // SAFETY: the pointer is to a local of as many bytes as told, which outlives the call; 0 means this thread.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut found, bytes, 0) };
    (failed == 0).then_some(found)
}

/// A thread as the kernel knows it, while it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadHandle {
    id: libc::id_t,
    clock: libc::clockid_t,
}

impl ThreadHandle {
    /// The thread that calls this; `None` where the kernel does not count its time.
    pub(super) fn current() -> Option<Self> {
        let mut clock = 0;
        // SAFETY: the thread that is asked about is the one that asks, and the pointer is to a local that outlives the call.
        let (id, failed) =
            unsafe { (libc::gettid(), libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock)) };
        (failed == 0).then_some(Self { id: libc::id_t::try_from(id).ok()?, clock })
    }

    /// The processor time that the thread has taken; `None` when it has ended.
    pub(super) fn processor_time(self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock is a number, which the kernel checks, and the pointer is to a local that outlives the call.
        let failed = unsafe { libc::clock_gettime(self.clock, &raw mut time) };
        let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
        (failed == 0).then(|| Duration::new(seconds, nanos))
    }

    /// Sets the thread's priority, as `nice` has it. Where the kernel refuses, or the thread has ended, nothing changes.
    pub(super) fn set_nice(self, nice: libc::c_int) {
        // SAFETY: this call takes no pointers; of an id that is none of a thread the kernel says so.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, self.id, nice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_slices_leave_the_rest_as_it_was() {
        // A kernel that does not say lets nothing be asked for.
        let Some(before) = scheduling() else { return };
        ask_for_short_slices();
        let after = scheduling().expect("it has just said");
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        // Unchanged where the kernel knows no slices of threads, or does not let them be set.
        let slices = [before.sched_runtime, TIME_SLICE.as_nanos() as u64];
        assert!(slices.contains(&after.sched_runtime), "{}", after.sched_runtime);
    }

    /// Executors whose memory cannot be registered work on, slowly and with a warning each: with the usual limit of 8 MiB
    /// every core must still get its part.
    #[test]
    fn io_memory_fits_the_usual_limit() {
        for cores in [1u16, 2, 5, 16] {
            let each = io_memory_bytes(1 << 20, cores, 8 << 20);
            assert!(each as u64 * RINGS_PER_EXECUTOR * u64::from(cores) <= 8 << 20, "{cores}");
        }
        assert_eq!(io_memory_bytes(1 << 20, 4, u64::MAX), 1 << 20);
        assert_eq!(io_memory_bytes(1 << 20, 4, 0), IO_MEMORY_BYTES_MIN);
    }
}
