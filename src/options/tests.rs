//! The layers together: what wins, what is refused, and with which exit code.

use super::master_key::{MasterKeyAdvice, check, generate};
use super::*;

pub(super) fn resolve(args: &[&str], env: &[(&str, &str)]) -> Result<Options, OptionsError> {
    let args = std::iter::once("skerry").chain(args.iter().copied()).map(OsString::from);
    let lookup = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Options::resolve(args, &lookup)
}

pub(super) fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    #[allow(clippy::disallowed_methods)] // No executor runs here.
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// Whether these arguments are refused with the exit code of a wrong command line.
pub(super) fn is_usage_error(args: &[&str]) -> bool {
    match resolve(args, &[]) {
        Err(OptionsError::Usage(_)) => true,
        Err(OptionsError::CommandLine(error)) => error.exit_code() == 2,
        _ => false,
    }
}

#[test]
fn defaults_are_those_of_the_table() {
    let options = resolve(&[], &[]).unwrap();
    assert_eq!(options.db_path, PathBuf::from("./data.ms"));
    assert_eq!(options.http_addr, "localhost:7700");
    assert_eq!(options.payload_bytes_max, 100_000_000);
    assert_eq!((options.master_key, options.cores, options.snapshot_interval_seconds), (None, None, None));
    assert_eq!((options.idle_spin, options.partitions, options.io_backend), (None, None, IoBackend::Auto));
    assert_eq!((options.search_queue_max, options.searches_per_core, options.drop_search_after_seconds), (1000, 4, 60));
    assert_eq!((options.remote_search_seconds, options.proxy_connect_seconds), (25, 3));
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let (_folder, path) = file("http_addr = \"f:1\"\nmaster_key = \"from file\"\ndb_path = \"file\"");
    let env = [("MEILI_HTTP_ADDR", "e:1"), ("SKERRY_MASTER_KEY", "own"), ("MEILI_MASTER_KEY", "alias")];
    let options = resolve(&["--config-file-path", &path, "--http-addr", "a:1"], &env).unwrap();
    assert_eq!(options.http_addr, "a:1");
    assert_eq!(options.master_key.as_deref(), Some("own"));
    assert_eq!(options.db_path, PathBuf::from("file"));
    assert_eq!(resolve(&[], &[("MEILI_CONFIG_FILE_PATH", &path)]).unwrap().http_addr, "f:1");
}

/// A master key that was written in another encoding was passed over, and the server was open to everyone.
#[test]
fn variables_that_are_no_text_are_refused_by_their_names() {
    use std::os::unix::ffi::OsStringExt;

    for broken in
        ["MEILI_MASTER_KEY", "SKERRY_HTTP_ADDR", "OPENAI_API_KEY", "MEILI_EXPERIMENTAL_PROXY_CONNECT_TIMEOUT_SECONDS"]
    {
        let env = |name: &str| (name == broken).then(|| OsString::from_vec(b"cl\xe9-of-sixteen-bytes".to_vec()));
        match Options::of([OsString::from("skerry")], &env) {
            Err(OptionsError::Usage(message)) => assert!(message.contains(broken), "{message}"),
            other => panic!("{broken}: {other:?}"),
        }
    }
    let others = |name: &str| (name == "SOMETHING_ELSE").then(|| OsString::from_vec(vec![0xff]));
    assert!(Options::of([OsString::from("skerry")], &others).is_ok());
}

#[test]
fn values_that_do_not_parse_are_usage_errors() {
    for args in [
        ["--log-level", "loud"],
        ["--max-indexing-memory", "lots"],
        ["--max-indexing-threads", "x"],
        ["--experimental-logs-mode", "xml"],
        ["--experimental-drop-search-after", "0"],
        ["--experimental-nb-searches-per-core", "0"],
        ["--colour", "red"],
        ["--task-webhook-url", "nope"],
        ["--s3-bucket-url", "http://s3.example"],
        ["--env", "PRODUCTION"],
        ["--http-payload-size-limit", "-1"],
        ["--http-payload-size-limit", ""],
        ["--http-payload-size-limit", "many"],
        ["--experimental-allowed-ip-networks", "127.0.0.1/8"],
        ["--cores", "0"],
    ] {
        assert!(is_usage_error(&args), "{args:?}");
    }
    for args in
        [&["stray"][..], &["--ignore-missing-dump"], &["--ignore-dump-if-db-exists"], &["--schedule-snapshot=soon"]]
    {
        assert!(is_usage_error(args), "{args:?}");
    }
    assert!(is_usage_error(&["--import-dump", "a", "--import-snapshot", "b"]));
    // As of a script whose variable is not set: it would begin with an empty database.
    assert!(is_usage_error(&["--import-dump", ""]) && is_usage_error(&["--import-snapshot="]));
}

#[test]
fn values_that_parse_are_taken() {
    for args in [
        &["--log-level", "ERROR"][..],
        &["--max-indexing-memory", "100MiB"],
        &["--max-indexing-threads", "unlimited"],
        &["--max-indexing-threads", ""],
        &["--experimental-search-queue-size", "0"],
        &["--experimental-no-edition-2024-for-settings", "--experimental-no-edition-2024-for-dumps"],
        &["--ssl-require-auth"],
        &["--experimental-allowed-ip-networks", "any"],
    ] {
        assert!(resolve(args, &[]).is_ok(), "{args:?}");
    }
    let dump = resolve(&["--import-dump", "d", "--ignore-missing-dump"], &[]).unwrap().import_dump.unwrap();
    assert!(dump.ignore_missing && !dump.ignore_if_db_exists);
}

#[test]
fn the_schedule_has_four_forms() {
    let interval = |args: &[&str]| resolve(args, &[]).unwrap().snapshot_interval_seconds;
    assert_eq!(interval(&[]), None);
    assert_eq!(interval(&["--schedule-snapshot"]), Some(86_400));
    assert_eq!(interval(&["--schedule-snapshot="]), None);
    assert_eq!(interval(&["--schedule-snapshot=7"]), Some(7));
    assert_eq!(interval(&["--schedule-snapshot", "--no-analytics"]), Some(86_400));
}

#[test]
fn the_file_is_strict() {
    let parse = layers::parse_file;
    let good = "schedule_snapshot = false\nno_analytics = true\nexperimental_search_queue_size = 5\n\
                http_payload_size_limit = \"1 KiB\"\nexperimental_allowed_ip_networks = [\"10.0.0.0/8\", \"::1\"]\n\
                import_dump = \"ignored\"\nmax_indexing_threads = 4";
    let layer = parse(good).unwrap();
    assert_eq!(layer["experimental-allowed-ip-networks"], "10.0.0.0/8,::1");
    assert_eq!(layer["schedule-snapshot"], "");
    assert!(!layer.contains_key("import-dump"));
    for bad in [
        "unknown = 1",
        "http_addr = 7700",
        "no_analytics = \"true\"",
        "config_file_path = \"x\"",
        "http_addr =",
        "experimental_search_queue_size = \"5\"",
        "experimental_allowed_ip_networks = \"any\"",
        "http-addr = \"x\"",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    assert!(matches!(resolve(&["--config-file-path", "/nowhere.toml"], &[]), Err(OptionsError::File { .. })));
}

#[test]
fn the_environment_speaks_in_words() {
    let metrics = |value| resolve(&[], &[("MEILI_EXPERIMENTAL_ENABLE_METRICS", value)]).map(|o| o.enable_metrics);
    assert!(metrics("true").unwrap());
    assert!(!metrics("false").unwrap());
    assert!(metrics("maybe").is_err());
    assert_eq!(
        resolve(&[], &[("MEILI_EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS", "1")]).unwrap().proxy_backoff_seconds,
        1
    );
    assert!(resolve(&[], &[("VECTORSTORE_READER_PREFETCH_MEMORY", "true")]).unwrap().prefetch_graphs);
}

#[test]
fn embedders_are_told_by_the_environment() {
    let options = |env: &[(&str, &str)]| resolve(&[], env).map(|options| options.embedders);
    assert_eq!(options(&[]).unwrap().timeout.as_secs(), 30);
    let both =
        options(&[("OPENAI_API_KEY", "a"), ("MEILI_OPENAI_API_KEY", "b"), ("MEILI_OLLAMA_URL", "http://o")]).unwrap();
    assert_eq!((both.openai_key.as_deref(), both.ollama_url.as_deref()), (Some("b"), Some("http://o")));
    assert_eq!(options(&[("OPENAI_API_KEY", "a")]).unwrap().openai_key.as_deref(), Some("a"));
    let modes = "MEILI_EXPERIMENTAL_CONFIG_EMBEDDER_FAILURE_MODES";
    let ignoring = options(&[(modes, "ignore_embedder_failures, ignore_document_template_failures")]).unwrap();
    assert!(ignoring.ignores_embedder_failures && ignoring.ignores_template_failures);
    assert!(options(&[(modes, "ignore_everything")]).is_err());
}

#[test]
fn the_service_that_personalizes_searches_has_a_key_and_a_place() {
    let place = "EXPERIMENTAL_PERSONALIZATION_URL";
    let of = |args: &[&str], url: &str| resolve(args, &[(&format!("SKERRY_{place}"), url)]).map(|o| o.reranker);
    let key = ["--experimental-personalization-api-key", "k"];
    assert_eq!(of(&[], "http://127.0.0.1:1/rank").unwrap(), None);
    assert_eq!(of(&key, "").unwrap().unwrap().url.as_str(), "https://api.cohere.com/v2/rerank");
    let named = of(&key, "http://127.0.0.1:1/rank").unwrap().unwrap();
    assert_eq!((named.url.as_str(), &*named.key), ("http://127.0.0.1:1/rank", "k"));
    let by_environment = [("MEILI_EXPERIMENTAL_PERSONALIZATION_API_KEY", "e"), (&format!("MEILI_{place}"), "http://h")];
    let named = resolve(&[], &by_environment).unwrap().reranker.unwrap();
    assert_eq!((named.url.as_str(), &*named.key), ("http://h/", "e"));
    assert!(of(&key, "nowhere").is_err() && of(&[], "file:///x").is_err());
    assert!(is_usage_error(&["--experimental-personalization-api-key", "a\nb"]));
}

#[test]
fn help_and_version_are_no_errors() {
    for flag in ["--help", "--version"] {
        let Err(OptionsError::CommandLine(error)) = resolve(&[flag], &[]) else { panic!("{flag} was taken") };
        assert_eq!(error.exit_code(), 0);
    }
}

#[test]
fn production_needs_a_master_key_of_sixteen_bytes() {
    let advice = |args: &[&str]| check(&resolve(args, &[]).unwrap(), "GENERATED");
    assert_eq!(advice(&["--env", "production", "--master-key", "0123456789abcdef"]), MasterKeyAdvice::Fine);
    // Eight characters of two bytes each: bytes count.
    let bytes = "\u{e9}".repeat(8);
    assert_eq!(advice(&["--env", "production", "--master-key", &bytes]), MasterKeyAdvice::Fine);
    for args in [&["--env", "production"][..], &["--env", "production", "--master-key", "0123456789abcde"]] {
        let MasterKeyAdvice::Refuse(text) = advice(args) else { panic!("{args:?} starts") };
        assert!(text.contains("GENERATED"));
    }
    for args in [&[][..], &["--master-key", "short"], &["--master-key", ""]] {
        assert!(matches!(advice(args), MasterKeyAdvice::Warn(_)), "{args:?}");
    }
    let key = generate();
    assert!(key.len() == 43 && key != generate(), "{key}");
}
