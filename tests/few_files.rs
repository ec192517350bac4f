//! A server that may open few files: what does not fit fails with a code of its own, what is there is served, and room
//! that is made is used.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The helpers are shared with the replayer, which uses more of them.
#![allow(dead_code)]

#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/server.rs"]
mod server;

use std::time::Duration;

use serde_json::{Value, json};
use server::Server;

/// Files that the server may open: enough for itself, what it keeps free, and some indexes.
const FILES_MAX: usize = 120;
/// Indexes that are tried: more than fit.
const INDEXES: usize = FILES_MAX;

fn ask(server: &Server, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let body = body.map(|body| body.to_string());
    let answer = client::send(server.port, method, path, &headers, body.as_deref().map(str::as_bytes));
    let answer = answer.expect("a started server answers");
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// The task as it ended.
fn ended(server: &Server, (status, accepted): (u16, Value)) -> Value {
    assert_eq!(status, 202, "{accepted}");
    for _ in 0..3000 {
        let (_, task) = ask(server, "GET", &format!("/tasks/{}", accepted["taskUid"]), None);
        if !matches!(task["status"].as_str(), Some("enqueued" | "processing")) {
            return task;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{accepted} does not end");
}

fn add(server: &Server, index: usize) -> Value {
    let path = format!("/indexes/i{index}/documents");
    ended(server, ask(server, "POST", &path, Some(json!([{"id": index, "title": "lighthouse"}]))))
}

fn finds(server: &Server, index: usize) -> bool {
    let (status, found) = ask(server, "GET", &format!("/indexes/i{index}/search?q=lighthouse"), None);
    status == 200 && found["hits"][0]["id"] == index
}

#[test]
fn an_index_too_many_fails_alone_and_room_is_used_again() {
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flags = format!("--nofile={FILES_MAX} {binary} --cores 2");
    let place = folder.path().join("main");
    let mut server = Server::start("prlimit", &flags, &json!({}), place, folder.path()).expect("it starts");

    let refused =
        (0..INDEXES).map(|index| (index, add(&server, index))).find(|(_, task)| task["status"] != "succeeded");
    let (fitting, task) = refused.expect("the limit is met");
    assert_eq!(task["error"]["code"], "too_many_open_files", "{task}");
    assert_eq!(task["error"]["type"], "system");
    assert!(fitting > 2, "only {fitting} indexes fit");
    assert!((0..fitting).all(|index| finds(&server, index)));
    assert_eq!(ask(&server, "GET", &format!("/indexes/i{fitting}"), None).0, 404);

    assert_eq!(ended(&server, ask(&server, "DELETE", "/indexes/i0", None))["status"], "succeeded");
    let again = add(&server, fitting);
    assert_eq!(again["status"], "succeeded", "{again}");

    // All that fitted once fits again.
    server.restart(&json!({"restart": "kill"})).expect("it starts");
    assert!((1..=fitting).all(|index| finds(&server, index)));
}
