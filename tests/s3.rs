//! Snapshots in a bucket: sent in signed parts, taken apart by nobody, and a server starts from what the bucket holds. A bucket
//! that refuses, fails or goes silent makes the task fail in words, and keeps no parts.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The helpers are shared with the replayer, which uses more of them.
#![allow(dead_code)]

#[path = "s3/bucket.rs"]
mod bucket;
#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/server.rs"]
mod server;

use std::path::Path;
use std::time::Duration;

use bucket::{Bucket, Mood};
use serde_json::{Value, json};
use server::Server;

/// More than two parts of 10 MiB hold, since nothing is compressed.
const DOCUMENTS: u64 = 20_000;

fn ask(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let body = (!body.is_null()).then(|| body.to_string());
    let answer = client::send(server.port, method, path, &headers, body.as_deref().map(str::as_bytes));
    let answer = answer.expect("a started server answers");
    assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never came that {what}");
}

/// The task when it has ended.
fn ended(server: &Server, task: &Value) -> Value {
    let path = format!("/tasks/{}", task["taskUid"]);
    let is_open = |task: &Value| matches!(task["status"].as_str(), Some("enqueued" | "processing"));
    until("the task ended", || !is_open(&ask(server, "GET", &path, &Value::Null)));
    ask(server, "GET", &path, &Value::Null)
}

/// What a snapshot comes to.
fn snapshot(server: &Server) -> Value {
    ended(server, &ask(server, "POST", "/snapshots", &Value::Null))
}

fn start(folder: &Path, bucket: &Bucket, more: &[&str]) -> Server {
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let url = bucket.url();
    let place = ["--s3-bucket-url", &url, "--s3-bucket-region", "us-east-1", "--s3-bucket-name", "backups"];
    let manner = ["--s3-snapshot-prefix", "of/one", "--experimental-s3-multipart-part-size", "10 MiB"];
    let args = [&place[..], &manner, more].concat();
    let spec = json!({ "args": args });
    Server::start(&binary, "--cores 2", &spec, folder.to_owned(), folder).unwrap_or_else(|error| panic!("{error}"))
}

const KEYS: [&str; 4] = ["--s3-access-key", "AK", "--s3-secret-key", "SK"];

/// Documents with bytes that no compression makes much smaller, which nobody searches.
fn fill(server: &Server, documents: u64) {
    let settings = json!({"searchableAttributes": ["title"]});
    ended(server, &ask(server, "PATCH", "/indexes/lights/settings", &settings));
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    for first in (0..documents).step_by(5000) {
        let batch: Value = (first..documents.min(first + 5000))
            .map(|id| {
                let ballast: String = (0..1600).map(|_| letter()).collect();
                json!({"id": id, "title": format!("lamp{id}"), "ballast": ballast})
            })
            .collect();
        let task = ended(server, &ask(server, "POST", "/indexes/lights/documents", &batch));
        assert_eq!(task["status"], "succeeded", "{task}");
    }
}

/// Nothing of a snapshot stays on the machine that sends it.
fn assert_nothing_stays(folder: &Path) {
    let files: Vec<_> = folder.join("snapshots").read_dir().into_iter().flatten().flatten().collect();
    assert!(files.is_empty(), "{files:?}");
}

#[test]
fn a_server_starts_from_what_the_bucket_holds() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bucket = Bucket::start();
    let server = start(&folder.path().join("first"), &bucket, &KEYS);
    fill(&server, DOCUMENTS);
    let task = snapshot(&server);
    assert_eq!((&task["status"], &task["error"]), (&json!("succeeded"), &Value::Null), "{task}");
    assert_nothing_stays(&folder.path().join("first"));
    let (key, object) = bucket.object();
    assert_eq!(key, "/backups/of/one/data.snapshot");
    let sizes = bucket.part_sizes();
    assert!(sizes.len() > 2 && sizes[..sizes.len() - 1].iter().all(|size| *size == 10 << 20), "{sizes:?}");
    assert!(bucket.in_flight_max() > 1);

    let second = folder.path().join("second");
    std::fs::create_dir_all(&second).expect("a folder can be made");
    let file = second.join("from-bucket.snapshot");
    std::fs::write(&file, object).expect("the disk takes it");
    let path = file.to_string_lossy().into_owned();
    let server = start(&second, &bucket, &[&KEYS[..], &["--import-snapshot", &path]].concat());
    let found = ask(&server, "POST", "/indexes/lights/search", &json!({"q": "lamp19999"}));
    assert_eq!(found["hits"][0]["id"], 19_999);
    let stats = ask(&server, "GET", "/indexes/lights/stats", &Value::Null);
    assert_eq!(stats["numberOfDocuments"], DOCUMENTS);
}

/// What passes is tried again; what does not makes the task fail, and the upload is given up.
#[test]
fn a_bucket_that_fails_is_told_of_and_keeps_no_parts() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bucket = Bucket::start();
    let server = start(folder.path(), &bucket, &KEYS);
    fill(&server, 10);
    for passing in [
        Mood::status("create", 503, 2),
        Mood::status("part", 500, 2),
        Mood::reset("part", 2),
        Mood::reset("create", 1),
        Mood::status("complete", 503, 1),
        Mood::failed_completion(1),
    ] {
        bucket.be(passing.clone());
        let task = snapshot(&server);
        assert_eq!(task["status"], "succeeded", "{passing:?}: {task}");
        assert_eq!(bucket.open_uploads(), 0, "{passing:?}");
    }
    for (lasting, code, words) in [
        (Mood::status("create", 403, 99), "invalid_s3_snapshot_request", "answered 403 while beginning the upload"),
        (Mood::status("part", 403, 99), "invalid_s3_snapshot_request", "answered 403 while sending part 1: `Fake`"),
        (Mood::status("complete", 400, 99), "invalid_s3_snapshot_request", "answered 400 while completing the upload"),
        (Mood::status("part", 301, 99), "invalid_s3_snapshot_request", "answered 301 while sending part 1"),
        (Mood::no_tag(), "s3_snapshot_server_error", "had no `ETag` while sending part 1"),
        (Mood::garbage(), "s3_snapshot_server_error", "named no upload"),
    ] {
        bucket.be(lasting.clone());
        let task = snapshot(&server);
        assert_eq!(task["status"], "failed", "{lasting:?}");
        assert_eq!((&task["error"]["code"], &task["error"]["type"]), (&json!(code), &json!("internal")), "{task}");
        assert!(task["error"]["message"].as_str().is_some_and(|text| text.contains(words)), "{task}");
        assert_eq!(bucket.open_uploads(), 0, "{lasting:?}");
        assert_nothing_stays(folder.path());
    }
}

/// A service that is down for good, after half a minute of tries.
#[test]
fn a_bucket_that_is_down_is_a_servers_error() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bucket = Bucket::start();
    let server = start(folder.path(), &bucket, &KEYS);
    bucket.be(Mood::status("create", 503, 99));
    let task = snapshot(&server);
    assert_eq!(
        (&task["status"], &task["error"]["code"]),
        (&json!("failed"), &json!("s3_snapshot_server_error")),
        "{task}"
    );
}

/// Cancelations, orderly stops and kills leave no upload open: the first two give it up, a start after the last does.
#[test]
fn an_upload_that_is_cut_short_is_given_up() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bucket = Bucket::start();
    let mut server = start(folder.path(), &bucket, &KEYS);
    fill(&server, 10);

    bucket.be(Mood::silent("part"));
    let task = ask(&server, "POST", "/snapshots", &Value::Null);
    until("a part was on its way", || bucket.waiting() > 0);
    assert_eq!(bucket.open_uploads(), 1);
    let path = format!("/tasks/cancel?uids={}", task["taskUid"]);
    assert_eq!(ended(&server, &ask(&server, "POST", &path, &Value::Null))["status"], "succeeded");
    assert_eq!(ended(&server, &task)["status"], "canceled");
    until("the upload was given up", || bucket.open_uploads() == 0);
    assert_nothing_stays(folder.path());

    for kill in [false, true] {
        bucket.be(Mood::silent("part"));
        let task = ask(&server, "POST", "/snapshots", &Value::Null);
        until("a part was on its way", || bucket.waiting() > 0);
        server.stop(kill);
        assert_eq!(bucket.open_uploads(), usize::from(kill));
        bucket.be(Mood::default());
        server.restart(&json!({})).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ended(&server, &task)["status"], "succeeded");
        assert_eq!(bucket.open_uploads(), 0);
        assert_nothing_stays(folder.path());
    }
}

/// A role, whose keys a token gives, signs with those and with their session.
#[test]
fn a_role_opens_the_bucket() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bucket = Bucket::start();
    let token = folder.path().join("token");
    std::fs::write(&token, "a.web.token\n").expect("the disk takes it");
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let environment = json!({
        "MEILI_S3_BUCKET_URL": bucket.url(),
        "MEILI_S3_BUCKET_REGION": "us-east-1",
        "MEILI_S3_BUCKET_NAME": "backups",
        "MEILI_S3_SNAPSHOT_PREFIX": "r",
        "MEILI_EXPERIMENTAL_S3_ROLE_ARN": "arn:aws:iam::1:role/r",
        "SKERRY_EXPERIMENTAL_S3_WEB_IDENTITY_TOKEN_FILE": token.to_string_lossy(),
        "AWS_ENDPOINT_URL_STS": format!("{}/sts", bucket.url()),
    });
    let spec = json!({ "env": environment });
    let server = Server::start(&binary, "--cores 1", &spec, folder.path().to_owned(), folder.path());
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let task = snapshot(&server);
    assert_eq!(task["status"], "succeeded", "{task}");
    let form = bucket.token_form();
    assert!(
        form.contains("Action=AssumeRoleWithWebIdentity") && form.contains("WebIdentityToken=a.web.token"),
        "{form}"
    );
    assert!(bucket.signed_by("ROLEKEY", Some("session")) && bucket.object().0 == "/backups/r/data.snapshot");
}
