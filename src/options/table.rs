//! Every option, in one table: it drives the command line, its help, the environment and the configuration file.

use clap::builder::ValueHint;
use clap::{Arg, ArgAction, Command};

/// What an option's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text of any form.
    Text,
    /// A path.
    Path,
    /// A whole number; a number in the file too.
    Number,
    /// A size; text or a number in the file.
    Size,
    /// On or off. On the command line it has no value.
    Switch,
    /// A number of seconds that may be left out, `false` in the file for never.
    Schedule,
    /// Items separated by commas; an array in the file.
    List,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name on the command line, without the dashes.
    pub name: &'static str,
    /// What its value looks like.
    pub kind: Kind,
    /// The value without any setting; empty for none.
    pub default: &'static str,
    /// Whether the configuration file may set it; otherwise the file's value is ignored.
    pub from_file: bool,
    /// A sentence for `--help`.
    pub help: &'static str,
}

/// The name of the option that names the configuration file; it cannot stand in the file.
pub const CONFIG_FILE: &str = "config-file-path";
/// The value of an option of kind [`Kind::Schedule`] that is given without one: a day.
pub const SCHEDULE_DEFAULT_SECONDS: &str = "86400";

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, from_file: true, help }
}

const fn import(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    Flag { name, kind, default: "", from_file: false, help }
}

/// Every option in the order of `--help`.
pub const FLAGS: &[Flag] = &[
    flag("db-path", Kind::Path, "./data.ms", "Database directory"),
    flag("http-addr", Kind::Text, "localhost:7700", "Address and port to listen on"),
    flag(
        "master-key",
        Kind::Text,
        "",
        "Master key: grants all rights and manages API keys; at least 16 bytes in production",
    ),
    flag("env", Kind::Text, "development", "`development` or `production`; `production` requires a master key"),
    flag(
        "cores",
        Kind::Number,
        "",
        "Number of cores to run on, each with its own share of the data; default: all that the process may use",
    ),
    flag("partitions", Kind::Number, "", "Partitions of each new index; default: one, and more as the index grows"),
    flag(
        "idle-spin-us",
        Kind::Number,
        "",
        "Microseconds that an idle core polls before it sleeps; default: 100 if the cores are pinned, otherwise 0",
    ),
    flag(
        "io-backend",
        Kind::Text,
        "auto",
        "I/O backend: auto, io_uring, epoll or glommio; auto is io_uring, or epoll where that is not permitted",
    ),
    flag("japanese-dictionary", Kind::Path, "", "Directory of a lindera dictionary for segmenting Japanese"),
    flag("korean-dictionary", Kind::Path, "", "Directory of a lindera dictionary for segmenting Korean"),
    flag("no-analytics", Kind::Switch, "", "No effect; analytics are never sent"),
    flag("http-payload-size-limit", Kind::Size, "100 MB", "Maximum size of a request body, uncompressed"),
    flag("log-level", Kind::Text, "INFO", "Log level: OFF, ERROR, WARN, INFO, DEBUG or TRACE"),
    flag("experimental-logs-mode", Kind::Text, "HUMAN", "Log format: HUMAN or JSON"),
    flag(
        "max-indexing-memory",
        Kind::Size,
        "",
        "Limits the payloads of a batch to half of this size; default: payloads are limited to 512 MiB or 1/16 of the memory, whichever is less",
    ),
    flag("max-indexing-threads", Kind::Text, "", "No effect; indexing has its own share of every core"),
    flag("dump-dir", Kind::Path, "dumps/", "Directory where dumps are created"),
    import("import-dump", Kind::Path, "Dump to import at startup, into an empty database"),
    import("ignore-missing-dump", Kind::Switch, "Start without importing if the dump file does not exist"),
    import("ignore-dump-if-db-exists", Kind::Switch, "Start without importing if a database exists"),
    flag("snapshot-dir", Kind::Path, "snapshots/", "Directory where snapshots are created"),
    flag(
        "schedule-snapshot",
        Kind::Schedule,
        "",
        "Create a snapshot at this interval; once a day if no number is given",
    ),
    import("import-snapshot", Kind::Path, "Snapshot to import at startup, into an empty database"),
    import("ignore-missing-snapshot", Kind::Switch, "Start without importing if the snapshot file does not exist"),
    import("ignore-snapshot-if-db-exists", Kind::Switch, "Start without importing if a database exists"),
    flag("task-webhook-url", Kind::Text, "", "Webhook URL that receives finished tasks"),
    flag("task-webhook-authorization-header", Kind::Text, "", "Authorization header sent to the webhook URL"),
    flag("ssl-cert-path", Kind::Path, "", "PEM file with the certificate chain; TLS needs this and `--ssl-key-path`"),
    flag("ssl-key-path", Kind::Path, "", "PEM file with the private key"),
    flag("ssl-auth-path", Kind::Path, "", "PEM file with the CA certificates that verify client certificates"),
    flag("ssl-require-auth", Kind::Switch, "", "Require a client certificate"),
    flag("ssl-ocsp-path", Kind::Path, "", "DER file with an OCSP response to staple"),
    flag("ssl-resumption", Kind::Switch, "", "Enable TLS session resumption by an in-memory session cache"),
    flag("ssl-tickets", Kind::Switch, "", "Enable TLS session resumption by tickets"),
    flag("experimental-enable-metrics", Kind::Switch, "", "Enable the feature `metrics`"),
    flag("experimental-enable-logs-route", Kind::Switch, "", "Enable the feature `logsRoute`"),
    flag("experimental-contains-filter", Kind::Switch, "", "Enable the feature `containsFilter`"),
    flag("experimental-search-queue-size", Kind::Number, "1000", "Maximum number of queued searches"),
    flag("experimental-drop-search-after", Kind::Number, "60", "Seconds after which a queued search is dropped"),
    flag("experimental-nb-searches-per-core", Kind::Number, "4", "Maximum number of concurrent searches per core"),
    flag("experimental-max-number-of-batched-tasks", Kind::Number, "", "Maximum number of tasks in a batch"),
    flag(
        "experimental-limit-batched-tasks-total-size",
        Kind::Size,
        "",
        "Maximum total size of a batch's payloads; default: 512 MiB or 1/16 of the memory, whichever is less",
    ),
    flag("experimental-embedding-cache-entries", Kind::Number, "0", "Query embeddings cached per embedder"),
    flag("experimental-replication-parameters", Kind::Switch, "", "Honour the request headers `TaskId` and `DryRun`"),
    flag("experimental-personalization-api-key", Kind::Text, "", "Cohere API key for personalized search"),
    flag(
        "experimental-allowed-ip-networks",
        Kind::List,
        "",
        "Non-public IP ranges the server may send requests to, or `any`",
    ),
    flag("experimental-reduce-indexing-memory-usage", Kind::Switch, "", "No effect; indexing memory is always bounded"),
    flag("experimental-no-snapshot-compaction", Kind::Switch, "", "No effect"),
    flag("experimental-no-edition-2024-for-settings", Kind::Switch, "", "No effect"),
    flag("experimental-no-edition-2024-for-dumps", Kind::Switch, "", "No effect"),
    flag(
        "experimental-dumpless-upgrade",
        Kind::Switch,
        "",
        "With `--import-snapshot`, accept a snapshot of another server version",
    ),
    flag(
        "s3-bucket-url",
        Kind::Text,
        "",
        "URL of the S3 service, without the bucket; snapshots are then uploaded instead of kept. Needs region, name, prefix and keys or role",
    ),
    flag("s3-bucket-region", Kind::Text, "", "Region of the bucket, such as `eu-west-1`"),
    flag("s3-bucket-name", Kind::Text, "", "Name of the bucket"),
    flag("s3-snapshot-prefix", Kind::Text, "", "Key prefix of the objects"),
    flag("s3-access-key", Kind::Text, "", "Access key ID; excludes a role"),
    flag("s3-secret-key", Kind::Text, "", "Secret access key"),
    flag("experimental-s3-role-arn", Kind::Text, "", "ARN of the role to assume; excludes access keys"),
    flag(
        "experimental-s3-web-identity-token-file",
        Kind::Path,
        "",
        "File with the web identity token, read at each use",
    ),
    flag("experimental-s3-max-in-flight-parts", Kind::Number, "10", "Parts uploaded at the same time"),
    flag("experimental-s3-compression-level", Kind::Number, "0", "gzip level of uploaded snapshots, 0 (none) to 9"),
    flag(
        "experimental-s3-signature-duration-seconds",
        Kind::Number,
        "28800",
        "Validity of request signatures in seconds",
    ),
    flag("experimental-s3-multipart-part-size", Kind::Size, "375 MiB", "Part size of uploads, 10 MiB to 8 GiB"),
    flag(CONFIG_FILE, Kind::Path, "", "Configuration file; default: `./config.toml` if it exists"),
];

/// The option of this name.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

impl Flag {
    /// The end of its names in the environment, as in `MEILI_DB_PATH`.
    pub fn env_suffix(&self) -> String {
        self.name.to_ascii_uppercase().replace('-', "_")
    }

    /// Its name in the configuration file.
    pub fn file_key(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// The command line.
pub fn command() -> Command {
    let mut command = Command::new("skerry")
        .about("A thread-per-core search server")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(
            "Every option can also be set in the environment (SKERRY_DB_PATH or MEILI_DB_PATH) and in the configuration file \
             (db_path). The command line takes precedence over the environment, the environment over the file.",
        );
    for flag in FLAGS {
        let mut help = flag.help.to_owned();
        if !flag.default.is_empty() {
            help.push_str(&format!(" [default: {}]", flag.default));
        }
        let arg = Arg::new(flag.name).long(flag.name).help(help);
        command = command.arg(match flag.kind {
            Kind::Switch => arg.action(ArgAction::SetTrue),
            Kind::Schedule => arg.num_args(0..=1).default_missing_value(SCHEDULE_DEFAULT_SECONDS).value_name("SECONDS"),
            Kind::Path => arg.num_args(1).value_name("PATH").value_hint(ValueHint::AnyPath),
            Kind::Number => arg.num_args(1).value_name("NUMBER"),
            Kind::Size => arg.num_args(1).value_name("SIZE"),
            Kind::List => arg.num_args(1).value_name("ITEM,..."),
            Kind::Text => arg.num_args(1).value_name("TEXT"),
        });
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn names_follow_from_each_other() {
        let flag = find("http-payload-size-limit").unwrap();
        assert_eq!(flag.env_suffix(), "HTTP_PAYLOAD_SIZE_LIMIT");
        assert_eq!(flag.file_key(), "http_payload_size_limit");
    }
}
