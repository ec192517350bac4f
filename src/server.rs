//! The process: options, what the machine must allow, sockets, cores, and the stop.

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glommio::LocalExecutorBuilder;
use time::OffsetDateTime;

use crate::api::router::{Answer, Call, Host, Router};
use crate::auth::KeySet;
use crate::http::Response;
use crate::net::tls::Tls;
use crate::net::{CoreListeners, CoreNet, Limits, StopSignal, serve_core};
use crate::options::Options;
use crate::options::master_key::{self, MasterKeyAdvice};
use crate::preflight;

/// The part of the limit of open files that connections may take; the rest is for the database.
const CONNECTION_FILES_PERCENT: u64 = 80;
/// The part of the machine's memory that bodies of requests may take on all cores together.
const BODY_MEMORY_PERCENT: u64 = 15;

/// Runs the server until it is told to stop. Exit codes: 0 for `--help` and `--version`, 2 for a wrong command line, 1 for
/// any other failure of the start, 130 and 143 for SIGINT and SIGTERM.
pub fn run_process() -> ExitCode {
    let options = match Options::from_process() {
        Ok(options) => options,
        Err(error) => return ExitCode::from(u8::try_from(error.report()).unwrap_or(1)),
    };
    crate::logging::init(&options);
    match run(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type StartError = Box<dyn std::error::Error>;

fn run(options: Options) -> Result<u8, StartError> {
    match master_key::check(&options, &master_key::generate()) {
        MasterKeyAdvice::Fine => {}
        MasterKeyAdvice::Warn(text) => eprintln!("{text}"),
        MasterKeyAdvice::Refuse(text) => return Err(text.into()),
    }
    let open_files = preflight::prepare_open_files();
    preflight::check_io_uring()?;
    let tls = Tls::load(&options.tls)?;
    let _lock = preflight::lock_directory(&options.db_path)?;
    let core_count = options.cores.unwrap_or_else(default_core_count);
    let limits = limits(&options, open_files, core_count);
    let (listeners, addresses) = crate::net::bind(&options.http_addr, core_count)?;
    let stop = StopSignal::install()?;
    let options = Arc::new(options);
    let scheme = if tls.is_some() { "https" } else { "http" };
    for address in &addresses {
        tracing::info!("listening on {scheme}://{address}");
    }
    let mut cores = Vec::new();
    for core_listeners in listeners {
        let core = Core { options: options.clone(), limits: limits.clone(), tls: tls.clone() };
        let stop = stop.flag();
        let spawned = LocalExecutorBuilder::default()
            .name("core")
            .spawn(move || core.run(core_listeners, stop))
            .map_err(|error| error.to_string())?;
        cores.push(spawned);
    }
    for core in cores {
        core.join().map_err(|error| error.to_string())?;
    }
    Ok(stop.exit_code())
}

/// What a core brings with it when it starts.
struct Core {
    options: Arc<Options>,
    limits: Limits,
    tls: Option<Tls>,
}

impl Core {
    async fn run(self, listeners: CoreListeners, stop: Arc<AtomicBool>) {
        let router = Router::new(Rc::new(Front::new(self.options)), routes());
        let net = CoreNet::new(Rc::new(router), self.limits);
        let tls = self.tls.map(|tls| tls.for_core());
        if let Err(error) = serve_core(net, listeners, tls, stop.clone()).await {
            tracing::error!(%error, "a core cannot listen; the server stops");
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// The server as far as routes without data need it.
struct Front {
    options: Arc<Options>,
    keys: Arc<KeySet>,
}

impl Front {
    fn new(options: Arc<Options>) -> Front {
        let keys = Arc::new(KeySet::new(options.master_key.as_deref(), []));
        Front { options, keys }
    }
}

impl Host for Front {
    fn keys(&self) -> Arc<KeySet> {
        self.keys.clone()
    }

    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }

    fn payload_bytes_max(&self) -> u64 {
        self.options.payload_bytes_max
    }
}

fn routes() -> Vec<crate::api::router::Route<Front>> {
    crate::routes! {
        Get "/" - => root;
        Get "/health" - => health;
    }
}

async fn root(_: Call<Front>) -> Answer {
    Ok(Response::json(200, br#"{"status":"Meilisearch is running"}"#.to_vec()))
}

async fn health(_: Call<Front>) -> Answer {
    Ok(Response::json(200, br#"{"status":"available"}"#.to_vec()))
}

/// The cores that this process may use, by its affinity and its cgroup's quota.
fn default_core_count() -> u16 {
    std::thread::available_parallelism().map_or(1, |count| u16::try_from(count.get()).unwrap_or(u16::MAX))
}

/// The bounds of one core's connections, from what the machine allows to all of them.
fn limits(options: &Options, open_files: u64, core_count: u16) -> Limits {
    let defaults = Limits::default();
    let connections = open_files.saturating_mul(CONNECTION_FILES_PERCENT) / 100 / u64::from(core_count);
    let memory_share = memory_bytes().saturating_mul(BODY_MEMORY_PERCENT) / 100 / u64::from(core_count);
    // One body of the largest size, packed and unpacked, must always find room on an idle core.
    let one_body = options.payload_bytes_max.saturating_mul(2).saturating_add(1 << 20);
    Limits {
        connections_max: usize::try_from(connections).unwrap_or(usize::MAX).clamp(16, defaults.connections_max),
        body_bytes_max: usize::try_from(memory_share.max(one_body)).unwrap_or(usize::MAX),
        ..defaults
    }
}

/// The machine's memory in bytes, 0 when it cannot be told.
fn memory_bytes() -> u64 {
    // SAFETY: `sysconf` takes no pointers and only reads.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0))
}
