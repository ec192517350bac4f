//! The log on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::options::Options;
use crate::options::values::LogsMode;

/// Starts the log as the options want it. The environment variable `RUST_LOG` goes before the level, for finer filters.
pub fn init(options: &Options) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(options.log_level.as_str()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match options.logs_mode {
        LogsMode::Human => builder.try_init(),
        LogsMode::Json => builder.json().try_init(),
    };
    if let Err(error) = started {
        eprintln!("the log could not be started: {error}");
    }
}
