//! How much memory this process may use, for caches that must not outgrow a small machine or a container.

use std::path::{Path, PathBuf};

const CGROUPS: &str = "/sys/fs/cgroup";
/// Assumed where the system does not say.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// Bytes of memory that this process may use: the machine's, or the least limit of the control groups that it is in.
pub fn memory_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_meminfo(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(limit_files).flat_map(|(root, own, name)| least_limit(&root, &own, name));
    limits.chain(machine).min().unwrap_or(UNKNOWN_BYTES)
}

/// Processors of the machine, whichever of them this thread may use.
pub fn processor_count() -> u64 {
    // SAFETY: `sysconf` reads a number of the system and touches no memory of ours.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(count).unwrap_or(1).max(1)
}

/// For a line of `/proc/self/cgroup` the root of its hierarchy, the process's group in it and the name of the files with limits.
fn limit_files(line: &str) -> Option<(PathBuf, PathBuf, &'static str)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, own) = (parts.next()?, parts.next()?.trim_start_matches('/'));
    let (root, name) = match controllers {
        "" => (PathBuf::from(CGROUPS), "memory.max"),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            (Path::new(CGROUPS).join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let own = root.join(own);
    Some((root, own, name))
}

/// The least limit of a group and those above it.
fn least_limit(root: &Path, own: &Path, name: &str) -> Option<u64> {
    let groups = own.ancestors().take_while(|folder| folder.starts_with(root));
    groups.filter_map(|folder| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()).min()
}

fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test may block")]
    fn limits_are_found_where_they_are_written() {
        assert_eq!(parse_meminfo("MemFree: 5 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        let files = |line| limit_files(line).map(|(_, own, name)| own.join(name).to_string_lossy().into_owned());
        assert_eq!(files("0::/a/b").as_deref(), Some("/sys/fs/cgroup/a/b/memory.max"));
        assert_eq!(files("4:cpu,memory:/a").as_deref(), Some("/sys/fs/cgroup/memory/a/memory.limit_in_bytes"));
        assert_eq!(files("3:cpu:/a"), None);
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(folder.path().join("a/memory.max"), "1000\n").unwrap();
        std::fs::write(folder.path().join("memory.max"), "5000\n").unwrap();
        assert_eq!(least_limit(folder.path(), &inner, "memory.max"), Some(1000));
        assert!(memory_bytes() > 0 && processor_count() > 0);
    }
}
