//! A whole instance goes into a dump and comes back on an empty directory: indexes with their settings and dates, documents
//! in their order, keys, switches, webhooks, chat workspaces, search rules, finished tasks and batches, and waiting tasks with their documents.

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
use server::{Server, newest};

/// Documents of the large index: more than one piece of a dump holds.
const DOCUMENTS: u64 = 30_000;

fn ask(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Value {
    let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    headers.extend(server.key.iter().map(|key| ("Authorization".to_owned(), format!("Bearer {key}"))));
    let body = body.map(Value::to_string);
    let answer = client::send(server.port, method, path, &headers, body.as_deref().map(str::as_bytes));
    let answer = answer.expect("a started server answers");
    assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// Waits until a task has succeeded.
fn wait(server: &Server, task: &Value) {
    for _ in 0..3000 {
        let found = ask(server, "GET", &format!("/tasks/{}", task["taskUid"]), None);
        match found["status"].as_str() {
            Some("succeeded") => return,
            Some("enqueued" | "processing") => std::thread::sleep(Duration::from_millis(20)),
            _ => panic!("{found}"),
        }
    }
    panic!("{task} does not end");
}

fn change(server: &Server, method: &str, path: &str, body: &Value) {
    wait(server, &ask(server, method, path, Some(body)));
}

/// What must be the same before and after.
fn contents(server: &Server) -> Value {
    let get = |path: &str| ask(server, "GET", path, None);
    json!({
        "indexes": get("/indexes"),
        "settings": get("/indexes/large/settings"),
        "first": get("/indexes/large/documents?limit=1000"),
        "last": get("/indexes/large/documents?offset=29000&limit=1000"),
        "found": ask(server, "POST", "/indexes/large/search", Some(&json!({"q": "harbour 77", "filter": "size = 3"})))["hits"],
        "nested": get("/indexes/small/documents"),
        "keys": get("/keys"),
        "features": get("/experimental-features"),
        "webhooks": get("/webhooks"),
        "chats": get("/chats"),
        "chat": get("/chats/support/settings"),
        "rules": ask(server, "POST", "/dynamic-search-rules", Some(&json!({}))),
        "tasks": get("/tasks?limit=100&types=documentAdditionOrUpdate,settingsUpdate,indexCreation,indexSwap,documentDeletion"),
        "batches": get("/batches?limit=100&types=documentAdditionOrUpdate,settingsUpdate,indexCreation,indexSwap,documentDeletion"),
    })
}

/// Indexes, keys and switches, made by the interface.
fn fill(server: &Server) {
    change(
        server,
        "PATCH",
        "/indexes/large/settings",
        &json!({
            "filterableAttributes": ["size"],
            "sortableAttributes": ["size"],
            "stopWords": ["the"],
            "synonyms": {"harbour": ["port"]},
            "typoTolerance": {"minWordSizeForTypos": {"oneTypo": 4}},
        }),
    );
    let text = "the light over the harbour ".repeat(4);
    for first in (0..DOCUMENTS).step_by(10_000) {
        let documents: Value = (first..first + 10_000)
            .map(|id| json!({"id": id, "text": format!("{text}{id}"), "size": id % 7}))
            .collect();
        change(server, "POST", "/indexes/large/documents", &documents);
    }
    change(server, "POST", "/indexes/large/documents/delete-batch", &json!([5, 6, 70]));
    change(server, "POST", "/indexes", &json!({"uid": "other", "primaryKey": "ref"}));
    change(
        server,
        "POST",
        "/indexes/small/documents",
        &json!([{"sku-id": "a", "deep": {"list": [1, 2.50, null, "ü\n"]}}]),
    );
    change(server, "POST", "/swap-indexes", &json!([{"indexes": ["small", "other"]}]));
    change(server, "POST", "/swap-indexes", &json!([{"indexes": ["small", "other"]}]));
    let key = json!({"name": "k", "actions": ["search"], "indexes": ["l*"], "expiresAt": "2090-01-01"});
    ask(server, "POST", "/keys", Some(&key));
    let features = json!({"containsFilter": true, "chatCompletions": true, "dynamicSearchRules": true});
    ask(server, "PATCH", "/experimental-features", Some(&features));
    let chat =
        json!({"source": "vLlm", "baseUrl": "http://h.example", "apiKey": "k", "prompts": {"system": "Be short."}});
    ask(server, "PATCH", "/chats/support/settings", Some(&chat));
    ask(server, "PATCH", "/chats/a%20b%2Fc/settings", Some(&json!({})));
    for (uid, words) in [("first", "harbour"), ("second", "light")] {
        let rule = json!({
            "description": "d",
            "priority": 3,
            "conditions": [{"scope": "query", "contains": words}, {"scope": "time", "start": "2020-01-01T00:00:00Z"}],
            "actions": [{"selector": {"indexUid": "large", "id": "7"}, "action": {"type": "pin", "position": 1}}],
        });
        ask(server, "PATCH", &format!("/dynamic-search-rules/{uid}"), Some(&rule));
    }
    ask(server, "POST", "/webhooks", Some(&json!({"url": "http://h.example/x", "headers": {"a": "b"}})));
}

#[test]
fn an_instance_comes_back_from_its_dump() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let spec = json!({"master_key": "a-master-key-of-32-bytes-or-more!"});
    let mut server = Server::start(&binary, "--cores 2", &spec, folder.path().to_owned(), folder.path())
        .unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    let before = contents(&server);
    change(&server, "POST", "/dumps", &json!({}));
    let files: Vec<_> = folder.path().join("dumps").read_dir().expect("the folder was made").flatten().collect();
    assert_eq!(files.len(), 1, "unfinished files stay: {files:?}");
    assert_ne!(newest(&folder.path().join("dumps"), ".dump"), "none");

    // Twice: the second time from a dump of an imported instance.
    for round in 1..=2 {
        let step = json!({"restart": "kill", "wipe": true, "args": ["--import-dump", "{dump}"]});
        server.restart(&step).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(contents(&server), before, "round {round}");
        change(&server, "POST", "/dumps", &json!({}));
    }
    change(&server, "POST", "/indexes/large/documents", &json!([{"id": 5, "text": "again"}]));
}
