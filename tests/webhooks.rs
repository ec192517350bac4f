//! Webhooks over a kill: what a webhook has not taken when the server dies, it is told by the next one, in order.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The helpers are shared with the replayer, which uses more of them.
#![allow(dead_code)]

#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/mocks.rs"]
mod mocks;
#[path = "conformance/server.rs"]
mod server;

use std::net::TcpListener;
use std::time::Duration;

use mocks::Mock;
use serde_json::{Value, json};
use server::Server;

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
    for _ in 0..1500 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never came that {what}");
}

/// Has the server create an index, and waits for the end of the task, which must have this number.
fn work(server: &Server, task: u64) {
    let accepted = ask(server, "POST", "/indexes", &json!({"uid": format!("index-{task}")}));
    assert_eq!(accepted["taskUid"], task);
    let path = format!("/tasks/{task}");
    until("the task ended", || ask(server, "GET", &path, &Value::Null)["status"] == "succeeded");
}

fn webhook(server: &Server, url: &str) -> String {
    let made = ask(server, "POST", "/webhooks", &json!({"url": url}));
    format!("/webhooks/{}", made["uuid"].as_str().expect("a webhook has a uid"))
}

/// The tasks that a path was told of, as they came.
fn told(sink: &Mock, path: &str) -> Vec<u64> {
    let requests = sink.seen().into_iter().filter(|request| request["path"] == path);
    let bodies = requests.map(|request| request["body"].as_str().unwrap_or_default().to_owned());
    let lines = bodies.flat_map(|body| body.lines().map(String::from).collect::<Vec<_>>());
    lines
        .map(|line| serde_json::from_str::<Value>(&line).expect("a line is a task"))
        .map(|task| task["uid"].as_u64().expect("a task has a number"))
        .collect()
}

fn start(folder: &std::path::Path) -> Server {
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let spec = json!({"args": ["--experimental-allowed-ip-networks", "127.0.0.0/8"]});
    Server::start(&binary, "--cores 2", &spec, folder.to_owned(), folder).expect("it starts")
}

#[test]
fn what_was_not_taken_before_a_kill_is_told_after_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let sink = Mock::start(&json!({"kind": "sink"}));
    let url = |path: &str| format!("http://127.0.0.1:{}{path}", sink.port);
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let nobody = nobody.expect("loopback has a free port");
    let mut server = start(folder.path());
    work(&server, 0);
    let failing = webhook(&server, &url("/first"));
    let absent = webhook(&server, &format!("http://{nobody}/"));
    work(&server, 1);
    until("the webhook was told", || told(&sink, "/first") == [1]);
    ask(&server, "PATCH", &failing, &json!({"url": url("/fail")}));
    work(&server, 2);
    work(&server, 3);
    until("the webhook failed", || told(&sink, "/fail").contains(&2));

    server.restart(&json!({"restart": "kill"})).expect("it starts after a kill");
    ask(&server, "PATCH", &failing, &json!({"url": url("/second")}));
    ask(&server, "PATCH", &absent, &json!({"url": url("/absent")}));
    work(&server, 4);
    until("both were told all", || ["/second", "/absent"].iter().all(|path| told(&sink, path).last() == Some(&4)));
    // Created after the first task ended; one told shortly before the kill may come again.
    assert_eq!(told(&sink, "/absent"), [1, 2, 3, 4]);
    let second = told(&sink, "/second");
    assert!(second == [2, 3, 4] || second == [1, 2, 3, 4], "{second:?}");
    // What failed held back what came after it.
    assert!(told(&sink, "/fail").iter().all(|task| [1, 2].contains(task)), "{:?}", told(&sink, "/fail"));
}

#[test]
fn a_webhook_that_fails_is_asked_again_and_one_that_refuses_is_not() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let answers = |first: u16| json!({"kind": "script", "answers": [{"status": first}, {"status": 200}]});
    let (failing, refusing) = (Mock::start(&answers(503)), Mock::start(&answers(413)));
    let server = start(folder.path());
    for mock in [&failing, &refusing] {
        webhook(&server, &format!("http://127.0.0.1:{}/", mock.port));
    }
    work(&server, 0);
    until("the webhook refused", || told(&refusing, "/") == [0]);
    work(&server, 1);
    until("the webhook was told", || told(&failing, "/") == [0, 0, 1]);
    until("the webhook was told", || told(&refusing, "/") == [0, 1]);
}
