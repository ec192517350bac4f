//! The server process: options, preflight checks, sockets, cores, and shutdown.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use shards::mesh::Mesh;
use shards::placement::{default_core_count, host_cpus, memory_bytes};
use shards::runtime::{Backend, CoresConfig, DiskFactory, Runtime, run_cores};
use shards::text::morphology::Morphology;
use storage_engine::io::glommio::GlommioDisk;
use storage_engine::io::ring::Ring;
use storage_engine::io::system::SystemDisk;

use crate::api::router::Router;
use crate::app::{Answer, App, Question};
use crate::imports::Import;
use crate::net::tls::Tls;
use crate::net::{Attendance, BindError, CoreListeners, CoreNet, Limits, StopSignal, serve_core};
use crate::options::Options;
use crate::options::master_key::{self, MasterKeyAdvice};
use crate::outgoing::Names;
use crate::{imports, preflight};

/// The part of the limit of open files that connections may take; the rest is for the database.
const CONNECTION_FILES_PERCENT: u64 = 80;
/// The part of the machine's memory that bodies of requests may take on all cores together.
const BODY_MEMORY_PERCENT: u64 = 15;
/// How often a core that is being opened looks whether the server is to stop.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// How long to wait for an address that another process uses.
const ADDRESS_WAIT: Duration = Duration::from_secs(3);
/// How often to try it.
const ADDRESS_LOOK: Duration = Duration::from_millis(20);

/// Runs the server until it is told to stop. Exit codes: 0 for `--help` and `--version`, 2 for a wrong command line, 1 for
/// any other failure of the start, 130 and 143 for SIGINT and SIGTERM.
pub fn run_process() -> ExitCode {
    let options = match Options::from_process() {
        Ok(options) => options,
        Err(error) => return ExitCode::from(u8::try_from(error.report()).unwrap_or(1)),
    };
    let log = crate::logging::init(&options);
    let ended = run(options);
    drop(log);
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type StartError = Box<dyn std::error::Error>;

/// The sockets of each core, and the addresses that they have.
type Sockets = (Vec<CoreListeners>, Vec<SocketAddr>);

fn run(options: Options) -> Result<u8, StartError> {
    match master_key::check(&options, &master_key::generate()) {
        MasterKeyAdvice::Fine => {}
        MasterKeyAdvice::Warn(text) => eprintln!("{text}"),
        MasterKeyAdvice::Refuse(text) => return Err(text.into()),
    }
    let open_files = preflight::prepare_open_files();
    let backend = preflight::backend(options.io_backend)?;
    let tls = Tls::load(&options.tls)?;
    let core_count = options.cores.unwrap_or_else(|| default_core_count(&host_cpus()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        db_path = %options.db_path.display(),
        cores = core_count,
        memory_mib = memory_bytes() >> 20,
        "starting"
    );
    let lock = preflight::lock_directory(&options.db_path)?;
    preflight::check_database(&options.db_path)?;
    Morphology::load(options.japanese_dictionary.as_deref(), options.korean_dictionary.as_deref())?.install();
    // Before an import, which may be long, and would be for nothing where the address is taken.
    let sockets = bind_when_free(&options.http_addr, core_count)?;
    let import = imports::begin(&options, lock.is_new())?;
    let served = serve(options, import.clone(), (open_files, core_count, backend), (sockets, tls));
    if let Some(import) = import {
        import.undo_after_failure();
    }
    served
}

/// Runs the cores until the stop.
fn serve(
    options: Options,
    import: Option<Import>,
    (open_files, core_count, backend): (u64, u16, Backend),
    ((listeners, addresses), tls): (Sockets, Option<Tls>),
) -> Result<u8, StartError> {
    let limits = limits(&options, open_files, core_count);
    let stop = StopSignal::install()?;
    let shared = Arc::new(Shared {
        options: Arc::new(options),
        names: Names::start()?,
        import,
        limits,
        tls,
        listeners: Mutex::new(listeners.into_iter().map(Some).collect()),
        stop: stop.flag(),
        attendance: Attendance::of(core_count),
        addresses,
        opening: AtomicU16::new(core_count),
        failure: Mutex::new(None),
    });
    let cores_shared = shared.clone();
    let idle_spin = cores_shared.options.idle_spin;
    let config = CoresConfig { backend, cores: Some(core_count), idle_spin, ..CoresConfig::new(disk(backend)) };
    let cores = run_cores(config, move |runtime, mesh| start_core(cores_shared.clone(), runtime, mesh))?;
    let failed = cores.join();
    if let Some(cause) = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(cause.into());
    }
    match failed.first() {
        None => {
            tracing::info!("stopped");
            Ok(stop.exit_code())
        }
        Some((core, cause)) => Err(format!("core {} failed: {cause}", core.0).into()),
    }
}

/// Binds the address, waiting a while for it: the kernel takes down the sockets of a killed process only when its rings are
/// gone, some time after the process itself, and whoever restarts a server does not wait for that.
fn bind_when_free(address: &str, core_count: u16) -> Result<Sockets, BindError> {
    let give_up = Instant::now() + ADDRESS_WAIT;
    loop {
        match crate::net::bind(address, core_count) {
            Err(BindError::InUse { .. }) if Instant::now() < give_up => {
                // This is the main thread, before any executor runs.
                #[allow(clippy::disallowed_methods)]
                std::thread::sleep(ADDRESS_LOOK);
            }
            bound => return bound,
        }
    }
}

/// The files that suit what the cores run on.
fn disk(backend: Backend) -> DiskFactory {
    match backend {
        Backend::IoUring => Arc::new(|core| match Ring::new() {
            Ok(ring) => Rc::new(SystemDisk::over(ring)),
            Err(error) => {
                tracing::warn!(core = core.0, %error, "no io_uring for this core: its files are read by helper threads");
                Rc::new(SystemDisk::default())
            }
        }),
        Backend::Epoll => Arc::new(|_| Rc::new(SystemDisk::default())),
        Backend::Glommio => Arc::new(|_| Rc::new(GlommioDisk)),
    }
}

/// What the cores are given when they start.
struct Shared {
    options: Arc<Options>,
    names: Names,
    /// A dump that is unpacked and waits to be taken over.
    import: Option<Import>,
    limits: Limits,
    tls: Option<Tls>,
    /// Taken by each core once.
    listeners: Mutex<Vec<Option<CoreListeners>>>,
    stop: Arc<AtomicBool>,
    /// Which cores are needed while the server stops.
    attendance: Arc<Attendance>,
    addresses: Vec<SocketAddr>,
    /// Cores that do not serve yet.
    opening: AtomicU16,
    /// Why the server stops by itself.
    failure: Mutex<Option<String>>,
}

impl Shared {
    /// Stops the server because of this.
    fn fail(&self, cause: String) {
        tracing::error!(cause, "stopping the server");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// A core is about to listen. The last one tells it.
    fn begin_to_listen(&self) {
        if self.opening.fetch_sub(1, Ordering::Relaxed) == 1 {
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            self.addresses.iter().for_each(|address| tracing::info!("listening on {scheme}://{address}"));
        }
    }

    fn take_listeners(&self, core: usize) -> Option<CoreListeners> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.get_mut(core).and_then(Option::take)
    }
}

/// One core's life: its part of the server is built, and it serves until the stop.
async fn start_core(shared: Arc<Shared>, runtime: Rc<dyn Runtime>, mesh: Mesh<Question, Answer>) {
    let place = shared.attendance.attend();
    let Some(listeners) = shared.take_listeners(usize::from(runtime.core().0)) else { return };
    let Some(app) = start_app(&shared, &runtime, mesh).await else { return };
    let net = CoreNet::among(Rc::new(Router::new(app.clone(), crate::api::routes())), shared.limits.clone(), &place);
    let tls = shared.tls.as_ref().map(Tls::for_core);
    shared.begin_to_listen();
    if let Err(error) = serve_core(runtime, net, listeners, tls, shared.stop.clone(), place).await {
        shared.fail(format!("a core cannot listen: {error}"));
    }
    app.leave_nothing_behind().await;
}

/// Opens a core's part of the server; `None` when the server is to stop. A core whose data cannot be opened stops them all.
async fn start_app(shared: &Arc<Shared>, runtime: &Rc<dyn Runtime>, mesh: Mesh<Question, Answer>) -> Option<Rc<App>> {
    let options = shared.options.clone();
    let start = std::pin::pin!(App::start(runtime.clone(), mesh, options, shared.names.clone(), shared.import.clone()));
    let stopped = std::pin::pin!(async {
        while !shared.stop.load(Ordering::Relaxed) {
            runtime.sleep(STOP_LOOK).await;
        }
    });
    match select(start, stopped).await {
        Either::Left((Ok(app), _)) => Some(app),
        Either::Left((Err(error), _)) => {
            shared.fail(error.to_string());
            None
        }
        Either::Right(_) => None,
    }
}

/// The bounds of one core's connections, from what the machine or the container allows to all of them.
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
