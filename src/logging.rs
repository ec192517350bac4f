//! Logging: to standard error and, for one client at a time, as a stream.
//!
//! Each destination has a filter that can be replaced while the server runs. Neither destination ever blocks the server: a thread
//! writes the lines, and lines that a slow reader does not take are dropped.

use std::io::{self, IsTerminal, Write};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use futures_channel::mpsc::{Receiver, Sender, channel};
use futures_util::stream::{LocalBoxStream, Stream, StreamExt};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::options::Options;
use crate::options::values::LogsMode;

/// Lines that wait for the client of a stream; further ones are left out.
const STREAM_LINES_MAX: usize = 1024;
/// The same for whoever reads standard error.
const CONSOLE_LINES_MAX: usize = 8192;
/// The executor's own lines are about its inside, three for each file that is closed: they are told to who names it.
const EXECUTOR: (&str, LevelFilter) = ("glommio", LevelFilter::WARN);

type AnyFilter = Box<dyn Filter<Registry> + Send + Sync>;
type Handle = reload::Handle<AnyFilter, Registry>;

/// The filters that can be replaced.
struct Handles {
    console: Handle,
    human: Handle,
    json: Handle,
}

/// Set once the log has started.
static HANDLES: OnceLock<Handles> = OnceLock::new();

/// Where the lines of the stream go, and which stream it is.
static SINK: Mutex<Option<(u64, Sender<Vec<u8>>)>> = Mutex::new(None);

/// Writes what still waits when it is dropped.
#[must_use]
pub struct LogEnd(#[allow(dead_code)] WorkerGuard);

/// Starts the log as the options want it. The environment variable `RUST_LOG` goes before the level, for finer filters.
pub fn init(options: &Options) -> LogEnd {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(with_executor(options)));
    let writer = NonBlockingBuilder::default().buffered_lines_limit(CONSOLE_LINES_MAX).thread_name("log");
    let (writer, end) = writer.finish(io::stderr());
    let (console_filter, console) = reload::Layer::new(Box::new(filter) as AnyFilter);
    let (human_filter, human) = reload::Layer::new(off());
    let (json_filter, json) = reload::Layer::new(off());
    let stderr = fmt::layer().with_writer(writer).with_ansi(io::stderr().is_terminal());
    let stderr = match options.logs_mode {
        LogsMode::Human => stderr.with_filter(console_filter).boxed(),
        LogsMode::Json => stderr.json().with_filter(console_filter).boxed(),
    };
    let stream = || fmt::layer().with_writer(|| StreamWriter).with_ansi(false);
    let lines = stream().with_filter(human_filter).boxed();
    let objects = stream().json().with_filter(json_filter).boxed();
    let started = tracing_subscriber::registry().with(vec![stderr, lines, objects]).try_init();
    match started {
        // Nobody else sets it: a second start is refused before.
        Ok(()) => drop(HANDLES.set(Handles { console, human, json })),
        Err(error) => eprintln!("the log could not be started: {error}"),
    }
    LogEnd(end)
}

/// The level of the options, as a filter that keeps the executor's own lines out.
fn with_executor(options: &Options) -> String {
    let level = options.log_level.as_str();
    match level.parse::<LevelFilter>() {
        Ok(all) if all > EXECUTOR.1 => format!("{level},{}={}", EXECUTOR.0, EXECUTOR.1),
        _ => level.to_owned(),
    }
}

/// Which events are told: a list of `module=level`, `module` (all levels) and `level`, separated by commas.
///
/// # Errors
/// For people, what is wrong with the text.
pub fn parse_target(text: &str) -> Result<Targets, String> {
    if text.is_empty() {
        return Err("the target is empty".into());
    }
    let mut targets = Targets::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let parts: Vec<&str> = item.split('=').collect();
        targets = match parts[..] {
            [part] => match level(part) {
                Some(level) => targets.with_default(level),
                None => targets.with_target(part, LevelFilter::TRACE),
            },
            [module, ""] => targets.with_target(module, LevelFilter::ERROR),
            [module, text] => {
                let level = level(text).ok_or_else(|| format!("`{text}` is no level"))?;
                targets.with_target(module, level)
            }
            _ => return Err(format!("`{item}` has more than one `=`")),
        };
    }
    let (module, most) = EXECUTOR;
    let is_named = targets.iter().any(|(target, _)| target.starts_with(module));
    if !is_named && targets.default_level().is_some_and(|all| all > most) {
        targets = targets.with_target(module, most);
    }
    Ok(targets)
}

/// A level by its name in any letter case, or by its number.
fn level(text: &str) -> Option<LevelFilter> {
    const LEVELS: [(&str, LevelFilter); 6] = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let named = |(number, (name, _)): &(usize, (&str, LevelFilter))| {
        name.eq_ignore_ascii_case(text) || number.to_string() == text
    };
    LEVELS.into_iter().enumerate().find(named).map(|(_, (_, level))| level)
}

/// Replaces what is told on standard error.
///
/// # Errors
/// The log was never started.
pub fn set_console(targets: Targets) -> Result<(), String> {
    let handles = HANDLES.get().ok_or("the log was not started")?;
    handles.console.reload(Box::new(targets) as AnyFilter).map_err(|error| error.to_string())
}

/// Begins the stream of the log; `None` when one runs already. It ends with [`end_stream`], or when it is dropped.
///
/// # Errors
/// The log was never started.
pub fn begin_stream(targets: Targets, mode: LogsMode) -> Result<Option<LocalBoxStream<'static, Vec<u8>>>, String> {
    let handles = HANDLES.get().ok_or("the log was not started")?;
    let (sender, lines) = channel(STREAM_LINES_MAX);
    let number = {
        let mut sink = sink();
        if sink.as_ref().is_some_and(|(_, sender)| !sender.is_closed()) {
            return Ok(None);
        }
        // The stream before this one may not have noticed its end yet; it must not end this one.
        let number = sink.as_ref().map_or(0, |(number, _)| number + 1);
        *sink = Some((number, sender));
        number
    };
    let handle = match mode {
        LogsMode::Human => &handles.human,
        LogsMode::Json => &handles.json,
    };
    handle.reload(Box::new(targets) as AnyFilter).map_err(|error| error.to_string())?;
    Ok(Some(LogStream { number, lines }.boxed_local()))
}

/// Ends the stream of the log, if one runs.
pub fn end_stream() {
    close(|_| true);
}

/// Lets go of the stream if it is the one that is meant, and tells nothing more to it.
fn close(is_meant: impl Fn(u64) -> bool) {
    let ended = {
        let mut sink = sink();
        if !sink.as_ref().is_some_and(|(number, _)| is_meant(*number)) {
            return;
        }
        sink.take()
    };
    drop(ended);
    for handle in HANDLES.get().iter().flat_map(|handles| [&handles.human, &handles.json]) {
        // Without a sink nothing is written in any case.
        let _ = handle.reload(off());
    }
}

fn off() -> AnyFilter {
    Box::new(LevelFilter::OFF)
}

fn sink() -> MutexGuard<'static, Option<(u64, Sender<Vec<u8>>)>> {
    // Held for a few instructions, and only while a stream runs or begins.
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lines for one client.
struct LogStream {
    number: u64,
    lines: Receiver<Vec<u8>>,
}

impl Stream for LogStream {
    type Item = Vec<u8>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        self.lines.poll_next_unpin(context)
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        let own = self.number;
        close(|number| number == own);
    }
}

/// Takes one line at a time to the stream.
struct StreamWriter;

impl Write for StreamWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some((_, sender)) = &mut *sink() {
            // A full channel means a client that is too slow: it misses the line.
            let _ = sender.try_send(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_modules_and_levels() {
        let read = |text: &str| parse_target(text).unwrap();
        let told = |text: &str, module: &str, level| read(text).would_enable(module, &level);
        assert!(told("info", "any", tracing::Level::INFO) && !told("info", "any", tracing::Level::DEBUG));
        assert!(told("a::b=debug,warn", "a::b::c", tracing::Level::DEBUG));
        assert!(!told("a::b=debug,warn", "a", tracing::Level::INFO));
        assert!(told("a", "a", tracing::Level::TRACE) && !told("a", "b", tracing::Level::ERROR));
        assert!(told("5", "b", tracing::Level::TRACE) && told("A=WARN,, Info", "x", tracing::Level::INFO));
        assert!(!told("OFF", "b", tracing::Level::ERROR) && !told(",,", "b", tracing::Level::ERROR));
        for broken in ["", "a=loud", "a=9", "a=info=info"] {
            assert!(parse_target(broken).is_err(), "{broken}");
        }
        assert!(parse_target("=").is_ok());
        // The executor's own lines come only where they are asked for.
        assert!(!told("trace", "glommio::executor", tracing::Level::INFO));
        assert!(told("trace", "glommio::executor", tracing::Level::WARN));
        assert!(told("trace,glommio=trace", "glommio::executor", tracing::Level::TRACE));
        assert!(!told("error", "glommio", tracing::Level::WARN));
    }
}
