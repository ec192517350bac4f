//! Options from the command line, environment and configuration file, read once at startup into [`Options`].

pub mod layers;
pub mod master_key;
pub mod s3;
pub mod table;
pub mod values;

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use self::layers::{Env, Layer, env_value};
use self::s3::S3Options;
use self::values::{AllowedNetworks, ByteSize, Environment, IoBackend, LogLevel, LogsMode, UrlText};
use crate::embedders::EmbedderOptions;
use crate::net::tls::TlsOptions;
use crate::outgoing::{Url, is_header_value};
use crate::personalization::{RerankerOptions, URL_DEFAULT};

const PERSONALIZATION_KEY: &str = "experimental-personalization-api-key";

/// Why the options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// What the parser of the command line says; also the texts of `--help` and `--version`.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// A value that cannot be read, or options that exclude each other. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The configuration file. Exit code 1.
    #[error("the configuration file `{}` cannot be used: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl OptionsError {
    /// Says what is to be said, where it belongs, and returns the exit code: 0 for `--help` and `--version`, 2 for a wrong
    /// command line, 1 for a wrong file.
    pub fn report(&self) -> i32 {
        match self {
            OptionsError::CommandLine(error) => {
                let _ = error.print();
                error.exit_code()
            }
            OptionsError::Usage(text) => {
                let error = table::command().error(clap::error::ErrorKind::ValueValidation, text);
                let _ = error.print();
                error.exit_code()
            }
            OptionsError::File { .. } => {
                eprintln!("error: {self}");
                1
            }
        }
    }
}

/// An import at the start: of a dump or of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// The file.
    pub path: PathBuf,
    /// Whether a missing file is no failure.
    pub ignore_missing: bool,
    /// Whether an existing database makes the import be left out.
    pub ignore_if_db_exists: bool,
}

/// Everything that can be set from outside. Immutable; shared by all cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Directory of the database.
    pub db_path: PathBuf,
    /// Address and port to listen on, as given.
    pub http_addr: String,
    /// The master key; `None` when there is none or it is empty.
    pub master_key: Option<String>,
    /// Development or production.
    pub environment: Environment,
    /// Cores to run on; `None` for all that the process may use.
    pub cores: Option<u16>,
    /// Partitions of every new index; `None` to decide by its size.
    pub partitions: Option<u16>,
    /// How long a core looks for work before it sleeps; `None` for what suits the machine.
    pub idle_spin: Option<Duration>,
    /// What the cores run on.
    pub io_backend: IoBackend,
    /// Folder of the dictionary for Japanese.
    pub japanese_dictionary: Option<PathBuf>,
    /// Folder of the dictionary for Korean.
    pub korean_dictionary: Option<PathBuf>,
    /// Largest body of a request, unpacked, in bytes.
    pub payload_bytes_max: u64,
    /// How much the log tells.
    pub log_level: LogLevel,
    /// How a line of the log looks.
    pub logs_mode: LogsMode,
    /// Memory that indexing may take, in bytes; `None` for the default of [`Self::batched_bytes_max`].
    pub indexing_bytes_max: Option<u64>,
    /// Directory of dumps.
    pub dump_dir: PathBuf,
    /// The dump to start from.
    pub import_dump: Option<ImportOptions>,
    /// Directory of snapshots.
    pub snapshot_dir: PathBuf,
    /// Seconds between scheduled snapshots; `None` for none.
    pub snapshot_interval_seconds: Option<u64>,
    /// The bucket that takes the snapshots instead of that directory.
    pub s3: Option<S3Options>,
    /// The snapshot to start from.
    pub import_snapshot: Option<ImportOptions>,
    /// URL that is sent every finished task.
    pub webhook_url: Option<String>,
    /// Authorization header for that URL.
    pub webhook_authorization: Option<String>,
    /// TLS.
    pub tls: TlsOptions,
    /// Whether the feature `metrics` is on at the start.
    pub enable_metrics: bool,
    /// Whether the feature `logsRoute` is on at the start.
    pub enable_logs_route: bool,
    /// Whether the feature `containsFilter` is on at the start.
    pub enable_contains_filter: bool,
    /// Searches that may wait.
    pub search_queue_max: usize,
    /// Seconds after which a waiting search is dropped, at least 1.
    pub drop_search_after_seconds: u64,
    /// Searches that run at the same time for each core, at least 1.
    pub searches_per_core: usize,
    /// Tasks that one batch may hold; `None` for no limit.
    pub batched_tasks_max: Option<usize>,
    /// Bytes of payloads that one batch may hold; `None` for half of [`Self::indexing_bytes_max`], at most 10 GiB; without
    /// that for 512 MiB, or a sixteenth of the memory where that is less.
    pub batched_bytes_max: Option<u64>,
    /// What the environment says about embedders.
    pub embedders: EmbedderOptions,
    /// Query embeddings kept for each embedder.
    pub embedding_cache_entries: usize,
    /// Whether the headers `TaskId` and `DryRun` are obeyed.
    pub replication_parameters: bool,
    /// Whether a snapshot of another version is taken.
    pub dumpless_upgrade: bool,
    /// The service that personalizes searches; `None` without a key for it.
    pub reranker: Option<RerankerOptions>,
    /// Addresses outside the public network that may be called.
    pub allowed_networks: AllowedNetworks,
    /// Time for a search on a remote, in seconds.
    pub remote_search_seconds: u64,
    /// Time to connect to a remote that a write is passed to, in seconds.
    pub proxy_connect_seconds: u64,
    /// Time for which such a write is tried again, in seconds.
    pub proxy_backoff_seconds: u64,
    /// Time for one such try, in seconds.
    pub proxy_request_seconds: u64,
    /// Whether vector graphs are read into memory when they are opened.
    pub prefetch_graphs: bool,
}

impl Options {
    /// The options of this process. Blocks while the configuration file is read.
    pub fn from_process() -> Result<Options, OptionsError> {
        Options::of(std::env::args_os(), &|name| std::env::var_os(name))
    }

    /// As [`Self::resolve`], by an environment as the system has it. A variable that is no text is refused by its name: to pass it
    /// over would start a server without its key.
    fn of(
        args: impl IntoIterator<Item = OsString>,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Options, OptionsError> {
        let no_text = RefCell::new(None);
        let options = Options::resolve(args, &|name| match env(name)?.into_string() {
            Ok(text) => Some(text),
            Err(_) => {
                no_text.replace(Some(name.to_owned()));
                None
            }
        });
        match no_text.take() {
            Some(name) => Err(OptionsError::Usage(format!("the environment variable `{name}` is not UTF-8"))),
            None => options,
        }
    }

    /// The options that these arguments (program name first), this environment and the configuration file make.
    pub fn resolve(args: impl IntoIterator<Item = OsString>, env: Env<'_>) -> Result<Options, OptionsError> {
        let args = layers::from_args(args)?;
        let from_env = layers::from_env(env)?;
        let file_path = args.get(table::CONFIG_FILE).or_else(|| from_env.get(table::CONFIG_FILE));
        let from_file = layers::from_file(file_path.map(String::as_str))?;
        let values = Values { layers: [args, from_env, from_file] };
        values.options(env)
    }
}

/// The layers, first one first.
struct Values {
    layers: [Layer; 3],
}

impl Values {
    /// The text of an option where one was given, even an empty one.
    fn given(&self, name: &str) -> Option<&str> {
        self.layers.iter().find_map(|layer| layer.get(name)).map(String::as_str)
    }

    /// The text of an option; `None` when it has none or an empty one.
    fn text(&self, name: &str) -> Option<&str> {
        debug_assert!(table::find(name).is_some(), "{name} is not in the table");
        self.given(name).or_else(|| table::find(name).map(|flag| flag.default)).filter(|text| !text.is_empty())
    }

    /// The value of an option. An empty text that was given counts as absent only for kinds whose values can be empty.
    fn value<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, OptionsError> {
        let Some(text) = self.given(name).or_else(|| self.text(name)) else { return Ok(None) };
        let wrong = |error: T::Err| OptionsError::Usage(format!("invalid value for `--{name}`: {error}"));
        text.parse().map(Some).map_err(wrong)
    }

    /// The value of an option that has a default.
    fn required<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, OptionsError> {
        self.value(name)?.ok_or_else(|| OptionsError::Usage(format!("`--{name}` needs a value")))
    }

    /// The value of an option that is at least 1.
    fn at_least_one<T>(&self, name: &str) -> Result<Option<T>, OptionsError>
    where
        T: FromStr<Err: std::fmt::Display> + PartialOrd + From<u8>,
    {
        match self.value::<T>(name)? {
            Some(value) if value < T::from(1) => {
                Err(OptionsError::Usage(format!("invalid value for `--{name}`: it must be at least 1")))
            }
            value => Ok(value),
        }
    }

    fn switch(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    fn options(&self, env: Env<'_>) -> Result<Options, OptionsError> {
        let import_dump = self.import("import-dump", "ignore-missing-dump", "ignore-dump-if-db-exists")?;
        let import_snapshot =
            self.import("import-snapshot", "ignore-missing-snapshot", "ignore-snapshot-if-db-exists")?;
        if import_dump.is_some() && import_snapshot.is_some() {
            let text = "`--import-dump` and `--import-snapshot` cannot be used together";
            return Err(OptionsError::Usage(text.to_owned()));
        }
        self.check_indexing_threads()?;
        Ok(Options {
            db_path: self.required("db-path")?,
            http_addr: self.required("http-addr")?,
            master_key: self.owned("master-key"),
            environment: self.required("env")?,
            cores: self.at_least_one("cores")?,
            partitions: self.at_least_one("partitions")?,
            idle_spin: self.value::<u32>("idle-spin-us")?.map(|us| Duration::from_micros(us.into())),
            io_backend: self.required("io-backend")?,
            japanese_dictionary: self.path("japanese-dictionary"),
            korean_dictionary: self.path("korean-dictionary"),
            payload_bytes_max: self.required::<ByteSize>("http-payload-size-limit")?.0,
            log_level: self.required("log-level")?,
            logs_mode: self.required("experimental-logs-mode")?,
            indexing_bytes_max: self.value::<ByteSize>("max-indexing-memory")?.map(|size| size.0),
            dump_dir: self.required("dump-dir")?,
            import_dump,
            snapshot_dir: self.required("snapshot-dir")?,
            snapshot_interval_seconds: self.snapshot_interval()?,
            s3: self.s3(env)?,
            import_snapshot,
            webhook_url: self.value::<UrlText>("task-webhook-url")?.map(|url| url.0),
            webhook_authorization: self.owned("task-webhook-authorization-header"),
            tls: self.tls(),
            enable_metrics: self.switch("experimental-enable-metrics"),
            enable_logs_route: self.switch("experimental-enable-logs-route"),
            enable_contains_filter: self.switch("experimental-contains-filter"),
            search_queue_max: self.required("experimental-search-queue-size")?,
            drop_search_after_seconds: self.at_least_one("experimental-drop-search-after")?.unwrap_or(60),
            searches_per_core: usize::from(self.at_least_one::<u16>("experimental-nb-searches-per-core")?.unwrap_or(4)),
            batched_tasks_max: self.value("experimental-max-number-of-batched-tasks")?,
            batched_bytes_max: self
                .value::<ByteSize>("experimental-limit-batched-tasks-total-size")?
                .map(|size| size.0),
            embedders: embedders(env)?,
            embedding_cache_entries: self.required("experimental-embedding-cache-entries")?,
            replication_parameters: self.switch("experimental-replication-parameters"),
            dumpless_upgrade: self.switch("experimental-dumpless-upgrade"),
            reranker: self.reranker(env)?,
            allowed_networks: self.value("experimental-allowed-ip-networks")?.unwrap_or_default(),
            remote_search_seconds: env_number(env, "EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS", 25)?,
            proxy_connect_seconds: env_number(env, "EXPERIMENTAL_PROXY_CONNECT_TIMEOUT_SECONDS", 3)?,
            proxy_backoff_seconds: env_number(env, "EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS", 25)?,
            proxy_request_seconds: env_number(env, "EXPERIMENTAL_PROXY_REQUEST_TIMEOUT_SECONDS", 30)?,
            prefetch_graphs: env("VECTORSTORE_READER_PREFETCH_MEMORY").as_deref() == Some("true"),
        })
    }

    /// An import and the two switches that make no sense without it.
    fn import(&self, path: &str, missing: &str, exists: &str) -> Result<Option<ImportOptions>, OptionsError> {
        let (ignore_missing, ignore_if_db_exists) = (self.switch(missing), self.switch(exists));
        if self.given(path).is_some_and(str::is_empty) {
            // Perhaps of a variable that is not set: an empty database is not what was meant.
            return Err(OptionsError::Usage(format!("`--{path}` needs a value")));
        }
        match self.path(path) {
            Some(path) => Ok(Some(ImportOptions { path, ignore_missing, ignore_if_db_exists })),
            None if ignore_missing => Err(OptionsError::Usage(format!("`--{missing}` needs `--{path}`"))),
            None if ignore_if_db_exists => Err(OptionsError::Usage(format!("`--{exists}` needs `--{path}`"))),
            None => Ok(None),
        }
    }

    /// A number, `unlimited` or nothing. Indexing has its own share of every core, so the number has no effect.
    fn check_indexing_threads(&self) -> Result<(), OptionsError> {
        match self.text("max-indexing-threads") {
            None | Some("unlimited") => Ok(()),
            Some(_) => self.value::<usize>("max-indexing-threads").map(drop),
        }
    }

    fn snapshot_interval(&self) -> Result<Option<u64>, OptionsError> {
        match self.text("schedule-snapshot") {
            None => Ok(None),
            Some(_) => self.at_least_one("schedule-snapshot"),
        }
    }

    fn reranker(&self, env: Env<'_>) -> Result<Option<RerankerOptions>, OptionsError> {
        let (name, text) =
            env_value(env, "EXPERIMENTAL_PERSONALIZATION_URL").unwrap_or((String::new(), URL_DEFAULT.into()));
        let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url =
            url.ok_or_else(|| OptionsError::Usage(format!("`{name}` is `{text}`, which is not a valid service URL")))?;
        let Some(key) = self.owned(PERSONALIZATION_KEY) else { return Ok(None) };
        if !is_header_value(&key) {
            let text =
                format!("invalid value for `--{PERSONALIZATION_KEY}`: it has characters that a header cannot contain");
            return Err(OptionsError::Usage(text));
        }
        Ok(Some(RerankerOptions { url, key }))
    }

    fn tls(&self) -> TlsOptions {
        TlsOptions {
            cert_path: self.path("ssl-cert-path"),
            key_path: self.path("ssl-key-path"),
            auth_path: self.path("ssl-auth-path"),
            require_auth: self.switch("ssl-require-auth"),
            ocsp_path: self.path("ssl-ocsp-path"),
            resumption: self.switch("ssl-resumption"),
            tickets: self.switch("ssl-tickets"),
        }
    }
}

/// What only the environment can say about embedders.
fn embedders(env: Env<'_>) -> Result<EmbedderOptions, OptionsError> {
    let text = |suffix: &str| env_value(env, suffix).map(|(_, text)| text);
    let mut options = EmbedderOptions {
        openai_key: text("OPENAI_API_KEY").or_else(|| env("OPENAI_API_KEY").filter(|key| !key.is_empty())),
        ollama_url: text("OLLAMA_URL"),
        timeout: Duration::from_secs(env_number(env, "EXPERIMENTAL_REST_EMBEDDER_TIMEOUT_SECONDS", 30)?),
        retry_wait_max: Duration::from_secs(env_number(
            env,
            "EXPERIMENTAL_REST_EMBEDDER_MAX_RETRY_DURATION_SECONDS",
            60,
        )?),
        ..EmbedderOptions::default()
    };
    if let Some((name, modes)) = env_value(env, "EXPERIMENTAL_CONFIG_EMBEDDER_FAILURE_MODES") {
        for mode in modes.split(',').map(str::trim).filter(|mode| !mode.is_empty()) {
            match mode {
                "ignore_document_template_failures" => options.ignores_template_failures = true,
                "ignore_embedder_failures" => options.ignores_embedder_failures = true,
                _ => return Err(OptionsError::Usage(format!("`{name}` holds the unknown mode `{mode}`"))),
            }
        }
    }
    Ok(options)
}

/// A number that only the environment can set.
fn env_number(env: Env<'_>, suffix: &str, default: u64) -> Result<u64, OptionsError> {
    let Some((name, text)) = env_value(env, suffix) else { return Ok(default) };
    text.parse().map_err(|_| OptionsError::Usage(format!("`{name}` is `{text}`, which is not a number of seconds")))
}

#[cfg(test)]
mod tests;
