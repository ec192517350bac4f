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
    flag("db-path", Kind::Path, "./data.ms", "Directory of the database"),
    flag("http-addr", Kind::Text, "localhost:7700", "Address and port to listen on"),
    flag(
        "master-key",
        Kind::Text,
        "",
        "Key that allows everything and makes all other keys; at least 16 bytes in production",
    ),
    flag("env", Kind::Text, "development", "`development` or `production`, which needs a master key"),
    flag(
        "cores",
        Kind::Number,
        "",
        "Cores to run on, each with its own share of the data; by default all that the process may use",
    ),
    flag(
        "partitions",
        Kind::Number,
        "",
        "Partitions of every new index; by default one, and more when the index grows",
    ),
    flag(
        "idle-spin-us",
        Kind::Number,
        "",
        "Microseconds that a core looks for work before it sleeps; by default 100 where the cores have all processors",
    ),
    flag("japanese-dictionary", Kind::Path, "", "Folder of a lindera dictionary by which Japanese is cut into words"),
    flag("korean-dictionary", Kind::Path, "", "Folder of a lindera dictionary by which Korean is cut into words"),
    flag("no-analytics", Kind::Switch, "", "Accepted; nothing is ever sent"),
    flag("http-payload-size-limit", Kind::Size, "100 MB", "Largest body of a request, unpacked"),
    flag("log-level", Kind::Text, "INFO", "OFF, ERROR, WARN, INFO, DEBUG or TRACE"),
    flag("experimental-logs-mode", Kind::Text, "HUMAN", "HUMAN or JSON"),
    flag(
        "max-indexing-memory",
        Kind::Size,
        "",
        "Half of it is the most that the payloads of one batch may take; by default these may take 512 MiB, or a sixteenth of the memory where that is less",
    ),
    flag("max-indexing-threads", Kind::Text, "", "Accepted; indexing has its own share of every core"),
    flag("dump-dir", Kind::Path, "dumps/", "Directory of dumps"),
    import("import-dump", Kind::Path, "Dump to read before the server starts, into an empty database"),
    import("ignore-missing-dump", Kind::Switch, "Start without the dump when its file is not there"),
    import("ignore-dump-if-db-exists", Kind::Switch, "Start without the dump when there is a database"),
    flag("snapshot-dir", Kind::Path, "snapshots/", "Directory of snapshots"),
    flag(
        "schedule-snapshot",
        Kind::Schedule,
        "",
        "Take a snapshot every so many seconds; every day when no number is given",
    ),
    import("import-snapshot", Kind::Path, "Snapshot to start from"),
    import("ignore-missing-snapshot", Kind::Switch, "Start without the snapshot when its file is not there"),
    import("ignore-snapshot-if-db-exists", Kind::Switch, "Start without the snapshot when there is a database"),
    flag("task-webhook-url", Kind::Text, "", "URL that is sent every finished task"),
    flag("task-webhook-authorization-header", Kind::Text, "", "Authorization header for that URL"),
    flag("ssl-cert-path", Kind::Path, "", "PEM file of the certificate; TLS is on with this and the key"),
    flag("ssl-key-path", Kind::Path, "", "PEM file of the private key"),
    flag("ssl-auth-path", Kind::Path, "", "PEM file of the authorities of client certificates"),
    flag("ssl-require-auth", Kind::Switch, "", "Refuse clients without a certificate"),
    flag("ssl-ocsp-path", Kind::Path, "", "DER file of an OCSP answer to staple"),
    flag("ssl-resumption", Kind::Switch, "", "Let sessions be resumed from memory"),
    flag("ssl-tickets", Kind::Switch, "", "Let sessions be resumed from tickets"),
    flag("experimental-enable-metrics", Kind::Switch, "", "Turn the feature `metrics` on"),
    flag("experimental-enable-logs-route", Kind::Switch, "", "Turn the feature `logsRoute` on"),
    flag("experimental-contains-filter", Kind::Switch, "", "Turn the feature `containsFilter` on"),
    flag("experimental-search-queue-size", Kind::Number, "1000", "Searches that may wait"),
    flag("experimental-drop-search-after", Kind::Number, "60", "Seconds after which a waiting search is dropped"),
    flag("experimental-nb-searches-per-core", Kind::Number, "4", "Searches that run at the same time, for each core"),
    flag("experimental-max-number-of-batched-tasks", Kind::Number, "", "Tasks that one batch may hold"),
    flag(
        "experimental-limit-batched-tasks-total-size",
        Kind::Size,
        "",
        "Bytes of payloads that one batch may hold; by default 512 MiB, or a sixteenth of the memory where that is less",
    ),
    flag("experimental-embedding-cache-entries", Kind::Number, "0", "Query embeddings kept for each embedder"),
    flag("experimental-replication-parameters", Kind::Switch, "", "Obey the headers `TaskId` and `DryRun`"),
    flag("experimental-personalization-api-key", Kind::Text, "", "Key of Cohere's service that personalizes searches"),
    flag(
        "experimental-allowed-ip-networks",
        Kind::List,
        "",
        "Ranges outside the public network that may be called, or `any`",
    ),
    flag(
        "experimental-reduce-indexing-memory-usage",
        Kind::Switch,
        "",
        "Accepted; indexing keeps to its memory anyway",
    ),
    flag("experimental-no-snapshot-compaction", Kind::Switch, "", "Accepted; without effect"),
    flag("experimental-no-edition-2024-for-settings", Kind::Switch, "", "Accepted; without effect"),
    flag("experimental-no-edition-2024-for-dumps", Kind::Switch, "", "Accepted; without effect"),
    flag(
        "experimental-dumpless-upgrade",
        Kind::Switch,
        "",
        "Take a snapshot that another version of the server wrote (with `--import-snapshot`)",
    ),
    flag(
        "s3-bucket-url",
        Kind::Text,
        "",
        "URL of the S3 service, without the bucket, that takes the snapshots instead of their directory; this and the other options of S3 go together",
    ),
    flag("s3-bucket-region", Kind::Text, "", "Region of the bucket, such as `eu-west-1`"),
    flag("s3-bucket-name", Kind::Text, "", "Name of the bucket"),
    flag("s3-snapshot-prefix", Kind::Text, "", "Folder within the bucket, with slashes between its parts"),
    flag("s3-access-key", Kind::Text, "", "Name of the key that opens the bucket; not with a role"),
    flag("s3-secret-key", Kind::Text, "", "The key itself"),
    flag("experimental-s3-role-arn", Kind::Text, "", "Role that opens the bucket, taken on by a token; not with a key"),
    flag("experimental-s3-web-identity-token-file", Kind::Path, "", "File of that token, read anew each time"),
    flag(
        "experimental-s3-max-in-flight-parts",
        Kind::Number,
        "10",
        "Parts of a snapshot on their way at the same time",
    ),
    flag("experimental-s3-compression-level", Kind::Number, "0", "Level of gzip, 0 (none) to 9, of snapshots for S3"),
    flag(
        "experimental-s3-signature-duration-seconds",
        Kind::Number,
        "28800",
        "Seconds in which the service must have begun to take a signed request",
    ),
    flag(
        "experimental-s3-multipart-part-size",
        Kind::Size,
        "375 MiB",
        "Size of the parts in which a snapshot is sent, 10 MiB to 8 GiB",
    ),
    flag(CONFIG_FILE, Kind::Path, "", "Configuration file; by default `./config.toml` where it exists"),
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
        .about("A search server, thread per core")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(
            "Each option can also be set in the environment, as SKERRY_DB_PATH or MEILI_DB_PATH, and in the configuration \
             file, as db_path. The command line goes before the environment, and that before the file.",
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
