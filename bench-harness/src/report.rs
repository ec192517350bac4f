//! What stands above and below every figure: the machine, and how figures are put together.

use std::fs;
use std::time::Duration;

/// Prints the machine and the command: a figure without them cannot be repeated.
pub fn print_host() {
    let first = |path: &str, mark: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(mark)).unwrap_or("").to_owned();
        line.split_once(':').map_or(line.clone(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("host: {} cores of {}, kernel {}", cores, first("/proc/cpuinfo", "model name"), kernel.trim());
    println!("command: {}", std::env::args().collect::<Vec<_>>().join(" "));
}

/// The middle of some numbers; 0 for none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        n if n % 2 == 1 => numbers[n / 2],
        n => (numbers[n / 2 - 1] + numbers[n / 2]) / 2.0,
    }
}

/// Bytes of all files below a folder, as the disk holds them.
pub fn folder_bytes(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Anonymous resident memory of a process in bytes.
pub fn anonymous_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

/// Bytes that a process has had read from the disk so far.
pub fn read_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes:")).unwrap_or("");
    line.trim().parse().unwrap_or(0)
}

/// Processor time that the threads of a process have taken so far, those that have ended left out.
pub fn processor_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let taken = |task: fs::DirEntry| -> Option<u64> {
        // Nanoseconds on a processor come first.
        fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(taken).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 3.0, 2.0]), median(vec![])), (2.0, 2.5, 0.0));
    }
}
