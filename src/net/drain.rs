//! The signals that stop the server, and the exit codes that say which one did.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

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
