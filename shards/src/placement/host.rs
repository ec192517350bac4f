//! What processors this process may use: its affinity mask (which a cpuset narrows) and its share of time (a cgroup quota).

use std::path::{Path, PathBuf};

/// The processors this process may use. Read before any thread is pinned: pinning narrows the mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCpus {
    /// Numbers of the processors in the affinity mask, ascending; at least one.
    pub allowed: Vec<usize>,
    /// Processors' worth of time that a cgroup grants, rounded down to at least 1; `None` without a quota.
    pub quota: Option<usize>,
}

/// Reads the mask and the quota of this process. Where the system does not say, one processor, number 0, is assumed.
pub fn host_cpus() -> HostCpus {
    let allowed = affinity();
    HostCpus { allowed: if allowed.is_empty() { vec![0] } else { allowed }, quota: quota() }
}

/// How many cores an instance uses unless told otherwise: one for each processor, or what the quota is worth.
pub fn default_core_count(host: &HostCpus) -> u16 {
    let count = host.allowed.len().min(host.quota.unwrap_or(usize::MAX));
    u16::try_from(count.max(1)).unwrap_or(u16::MAX)
}

fn affinity() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is a plain array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let bytes = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: the pointer and the length describe `set`, which outlives the call; 0 means this thread.
    if unsafe { libc::sched_getaffinity(0, bytes, &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: `CPU_ISSET` reads the bit of a number below the set's size, which the range keeps.
    (0..bytes * 8).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

fn quota() -> Option<usize> {
    let membership = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let mut folder: PathBuf = root.join(own.trim_start_matches('/'));
    let mut least = None;
    // A limit anywhere on the way up binds.
    while folder.starts_with(root) {
        if let Ok(text) = std::fs::read_to_string(folder.join("cpu.max")) {
            let here = parse_cpu_max(&text);
            least = [least, here].into_iter().flatten().min();
        }
        if !folder.pop() {
            break;
        }
    }
    least
}

/// `cpu.max` is `<quota> <period>` in microseconds, or `max <period>`.
fn parse_cpu_max(text: &str) -> Option<usize> {
    let mut words = text.split_ascii_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok()?;
    let count = quota.checked_div(period)?;
    Some(usize::try_from(count).unwrap_or(usize::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More executors than the quota is worth would be stopped in the middle of requests by the kernel.
    #[test]
    fn a_quota_limits_the_cores() {
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("250000 100000\n"), Some(2));
        assert_eq!(parse_cpu_max("50000 100000"), Some(1));
        assert_eq!(parse_cpu_max("1 0"), None);
        assert_eq!(parse_cpu_max(""), None);
        let host = |quota| HostCpus { allowed: (0..8).collect(), quota };
        assert_eq!(default_core_count(&host(None)), 8);
        assert_eq!(default_core_count(&host(Some(2))), 2);
        assert_eq!(default_core_count(&host(Some(99))), 8);
    }

    #[test]
    fn this_process_may_run_somewhere() {
        let host = host_cpus();
        assert!(!host.allowed.is_empty());
        assert!(host.allowed.is_sorted());
    }
}
