//! Graceful shutdown: the stop signals and their exit codes, and which cores are needed until all requests are answered.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A shell's exit code for a process that a signal ended is this plus the signal.
const SIGNAL_EXIT_BASE: i32 = 128;

/// What the process was told by signals.
#[derive(Clone, Debug)]
pub struct StopSignal {
    stop: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl StopSignal {
    /// From now on SIGINT and SIGTERM ask for an orderly stop. A second one ends the process at once.
    pub fn install() -> io::Result<StopSignal> {
        let stop = StopSignal { stop: Arc::new(AtomicBool::new(false)), signal: Arc::new(AtomicI32::new(0)) };
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let told = stop.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if told.stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(SIGNAL_EXIT_BASE + signal);
                }
                told.signal.store(signal, Ordering::Relaxed);
            }
        })?;
        Ok(stop)
    }

    /// The flag that cores look at.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// The exit code after an orderly stop: 130 for SIGINT, 143 for SIGTERM, 0 without a signal.
    pub fn exit_code(&self) -> u8 {
        match self.signal.load(Ordering::Relaxed) {
            0 => 0,
            signal => u8::try_from(SIGNAL_EXIT_BASE + signal).unwrap_or(u8::MAX),
        }
    }
}

/// Which cores are needed while the server stops. A request on one core may need the answers of any other, so that none may
/// leave before the last connection of all of them is closed.
#[derive(Debug)]
pub struct Attendance {
    /// Connections, and cores that may still accept one.
    open: AtomicUsize,
    /// Cores that have not left.
    cores: AtomicUsize,
}

impl Attendance {
    /// All of these cores, each to be told of once by [`Self::attend`].
    pub fn of(cores: u16) -> Arc<Attendance> {
        let cores = usize::from(cores);
        Arc::new(Attendance { open: AtomicUsize::new(cores), cores: AtomicUsize::new(cores) })
    }

    /// One core's place. It has left when what is returned is dropped, however its work ends.
    pub fn attend(self: &Arc<Attendance>) -> Attending {
        Attending { all: self.clone(), accepts: Cell::new(true) }
    }

    /// A connection more.
    pub(super) fn open(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection, or a core that accepts, less.
    pub(super) fn close(&self) {
        self.open.fetch_sub(1, Ordering::Release);
    }
}

/// One core's place among all.
#[derive(Debug)]
pub struct Attending {
    all: Arc<Attendance>,
    accepts: Cell<bool>,
}

impl Attending {
    /// What all cores share.
    pub(super) fn all(&self) -> &Arc<Attendance> {
        &self.all
    }

    /// This core accepts no connection any more; those that it has are counted.
    pub(super) fn accept_no_more(&self) {
        if self.accepts.replace(false) {
            self.all.close();
        }
    }

    /// Whether a connection is open on any core, or may still come.
    pub(super) fn is_needed(&self) -> bool {
        self.all.open.load(Ordering::Acquire) > 0
    }

    /// Whether all other cores have left.
    pub(super) fn is_last(&self) -> bool {
        self.all.cores.load(Ordering::Acquire) <= 1
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.accept_no_more();
        self.all.cores.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core without connections once left at once, and the requests that others were still answering failed for want of it.
    #[test]
    fn cores_are_needed_until_the_last_connection_of_all_is_closed() {
        let all = Attendance::of(2);
        let (first, second) = (all.attend(), all.attend());
        all.open();
        first.accept_no_more();
        assert!(first.is_needed() && !first.is_last());
        second.accept_no_more();
        assert!(first.is_needed() && second.is_needed());
        all.close();
        assert!(!first.is_needed() && !second.is_needed());
        drop(second);
        assert!(first.is_last());
    }

    #[test]
    fn a_core_that_never_served_holds_nobody_up() {
        let all = Attendance::of(2);
        let first = all.attend();
        drop(all.attend());
        first.accept_no_more();
        assert!(!first.is_needed() && first.is_last());
    }
}
