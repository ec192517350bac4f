//! Process metrics from the kernel. Reads `/proc`, so it runs on a side thread.

use std::fs::{read_dir, read_to_string};

use super::Exposition;

/// The process in numbers; what cannot be read is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// User and system time, in seconds.
    cpu_seconds: Option<f64>,
    files_max: Option<f64>,
    files_open: Option<f64>,
    resident_bytes: Option<f64>,
    /// Since the epoch of Unix.
    start_seconds: Option<f64>,
    threads: Option<f64>,
    virtual_bytes: Option<f64>,
}

/// The machine's units, which the kernel's numbers are in.
struct Units {
    ticks_per_second: f64,
    page_bytes: f64,
}

impl ProcessFigures {
    /// Those of this process now.
    pub fn read() -> Self {
        let text = |path| read_to_string(path).unwrap_or_default();
        let mut figures =
            Self::parse(&text("/proc/self/stat"), &text("/proc/stat"), &text("/proc/self/limits"), &units());
        // The folder that is being read is among them.
        figures.files_open = read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as f64);
        figures
    }

    fn parse(stat: &str, system: &str, limits: &str, units: &Units) -> Self {
        // The name of the process, in brackets, may hold anything; what follows it are numbers, the third of the file first.
        let numbers: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let number = |field: usize| numbers.get(field - 3).and_then(|text| text.parse::<f64>().ok());
        let seconds = |field| number(field).map(|ticks| ticks / units.ticks_per_second);
        let booted = system.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
        Self {
            cpu_seconds: seconds(14).zip(seconds(15)).map(|(user, system)| user + system),
            files_max: files.and_then(|text| text.parse().ok()),
            files_open: None,
            resident_bytes: number(24).map(|pages| pages * units.page_bytes),
            start_seconds: booted.zip(seconds(22)).map(|(booted, after)| (booted + after).floor()),
            threads: number(20),
            virtual_bytes: number(23),
        }
    }

    /// Writes them as metrics.
    pub fn write(&self, out: &mut Exposition) {
        for (name, kind, about, value) in [
            ("process_cpu_seconds_total", "counter", "User and system time spent, in seconds", self.cpu_seconds),
            ("process_max_fds", "gauge", "Files that may be open", self.files_max),
            ("process_open_fds", "gauge", "Files that are open", self.files_open),
            ("process_resident_memory_bytes", "gauge", "Memory in use, in bytes", self.resident_bytes),
            ("process_start_time_seconds", "gauge", "When the process started, in Unix seconds", self.start_seconds),
            ("process_threads", "gauge", "Threads of the process", self.threads),
            ("process_virtual_memory_bytes", "gauge", "Addresses in use, in bytes", self.virtual_bytes),
        ] {
            if let Some(value) = value {
                out.family_named(name, kind, about);
                out.value(&Vec::new(), value);
            }
        }
    }
}

fn units() -> Units {
    // SAFETY: sysconf takes a name and gives a number; it touches no memory of ours.
    let (ticks, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
    Units { ticks_per_second: ticks.max(1) as f64, page_bytes: page.max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 5 6 7 8 150 50 0 0 20 0 11 0 3000 4096000 25 1844";
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            20000                20001  files\n";
        let units = Units { ticks_per_second: 100.0, page_bytes: 4096.0 };
        let figures = ProcessFigures::parse(stat, "cpu 1 2\nbtime 1000\n", limits, &units);
        let wanted = ProcessFigures {
            cpu_seconds: Some(2.0),
            files_max: Some(20_000.0),
            files_open: None,
            resident_bytes: Some(102_400.0),
            start_seconds: Some(1030.0),
            threads: Some(11.0),
            virtual_bytes: Some(4_096_000.0),
        };
        assert_eq!(figures, wanted);
        assert_eq!(ProcessFigures::parse("", "", "", &units), ProcessFigures::default());
    }

    #[test]
    fn a_process_knows_itself() {
        let figures = ProcessFigures::read();
        assert!(figures.threads.is_some_and(|threads| threads >= 1.0));
        assert!(figures.files_open.is_some_and(|files| files >= 3.0));
        assert!(figures.resident_bytes.is_some_and(|bytes| bytes > 100_000.0));
    }
}
