//! Kills the server at random moments while it is loaded, starts it again on what the kill left, and checks that each
//! accepted task was applied, and applied once.
//!
//! `SKERRY_KILLS` sets how many kills (20 by default), `SKERRY_SEED` the moments, `SKERRY_BIN` another binary.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The helpers are shared with the replayer, which uses more of them.
#![allow(dead_code)]

#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use server::Server;

/// What a client was promised by a 202.
#[derive(Clone, Debug)]
enum Promise {
    /// These numbers were added, with this text in each.
    Added { ids: std::ops::Range<u64>, text: String },
    /// These numbers, all present before, were deleted.
    Deleted { ids: std::ops::Range<u64> },
}

/// Requests in flight at once while the server is loaded.
const CLIENTS: u64 = 3;
/// Numbers of documents that one client may use in one round.
const SPAN: u64 = 100_000;

fn post(port: u16, path: &str, body: &Value) -> Option<Value> {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let answer = client::send(port, "POST", path, &headers, Some(body.to_string().as_bytes())).ok()?;
    (answer.status == 202).then(|| serde_json::from_slice(&answer.body).ok())?
}

fn get(port: u16, path: &str) -> Value {
    let answer = client::send(port, "GET", path, &[], None).expect("a started server answers");
    assert_eq!(answer.status, 200, "GET {path}: {}", String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).expect("answers are JSON")
}

/// Adds ranges of documents and deletes some of its own, until the server is gone.
fn load(port: u16, first: u64, mut rng: StdRng, stop: &AtomicBool, promises: &Mutex<BTreeMap<u64, Promise>>) {
    let mut next = first;
    let mut deletable: Vec<std::ops::Range<u64>> = Vec::new();
    while !stop.load(Ordering::Relaxed) && next + 200 < first + SPAN {
        let (path, body, promise) = match deletable.pop_if(|_| rng.random_bool(0.3)) {
            Some(ids) => {
                let body = ids.clone().collect::<Vec<u64>>();
                ("/indexes/load/documents/delete-batch", json!(body), Promise::Deleted { ids })
            }
            None => {
                let ids = next..next + rng.random_range(1..200);
                next = ids.end;
                let text = format!("harbour{} light{}", rng.random_range(0..50), rng.random_range(0..1000));
                let body = ids.clone().map(|id| json!({"id": id, "text": text, "size": id % 7})).collect();
                ("/indexes/load/documents", body, Promise::Added { ids, text })
            }
        };
        // Without an answer nothing was promised: the write may or may not be there. What a deletion may have taken is
        // no longer looked at.
        let Some(task) = post(port, path, &body) else {
            if let Promise::Deleted { ids: gone } = &promise {
                let mut promises = promises.lock().expect("no client panics while it holds the promises");
                promises.retain(|_, known| !matches!(known, Promise::Added { ids, .. } if ids == gone));
            }
            return;
        };
        let uid = task["taskUid"].as_u64().expect("a 202 names its task");
        if let Promise::Added { ids, .. } = &promise {
            deletable.push(ids.clone());
        }
        promises.lock().expect("no client panics while it holds the promises").insert(uid, promise);
    }
}

fn wait_until_idle(port: u16) {
    for _ in 0..3000 {
        if get(port, "/tasks?statuses=enqueued,processing&limit=1")["total"] == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the queue did not drain: {}", get(port, "/tasks?statuses=enqueued,processing&limit=3"));
}

/// Every promise of this round kept: its task succeeded, once, and with the right counts.
fn check_tasks(port: u16, promises: &BTreeMap<u64, Promise>) {
    for (uid, promise) in promises {
        let task = get(port, &format!("/tasks/{uid}"));
        assert_eq!(task["status"], "succeeded", "an accepted task: {task}");
        match promise {
            Promise::Added { ids, .. } => {
                assert_eq!(task["details"]["indexedDocuments"], ids.end - ids.start, "{task}")
            }
            // Within a batch that also adds, ids given are counted; otherwise documents found. Both are all of them, unless
            // the deletion was applied a second time.
            Promise::Deleted { ids } => assert_eq!(task["details"]["deletedDocuments"], ids.end - ids.start, "{task}"),
        }
        let batch = get(port, &format!("/batches/{}", task["batchUid"]));
        assert!(batch["finishedAt"].is_string(), "{batch}");
    }
}

/// Every document that must be there is there with its last text, and every deleted one is gone.
fn check_documents(port: u16, promises: &BTreeMap<u64, Promise>) {
    let mut present: BTreeMap<u64, String> = BTreeMap::new();
    for promise in promises.values() {
        match promise {
            Promise::Added { ids, text } => present.extend(ids.clone().map(|id| (id, text.clone()))),
            Promise::Deleted { ids } => ids.clone().for_each(|id| drop(present.remove(&id))),
        }
    }
    let all: Vec<u64> = promises
        .values()
        .flat_map(|p| match p {
            Promise::Added { ids, .. } => ids.clone(),
            Promise::Deleted { .. } => 0..0,
        })
        .collect();
    for ids in all.chunks(500) {
        let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
        let body = json!({"ids": ids, "limit": 1000, "fields": ["id", "text"]}).to_string();
        let answer = client::send(port, "POST", "/indexes/load/documents/fetch", &headers, Some(body.as_bytes()))
            .expect("answers");
        let page: Value = serde_json::from_slice(&answer.body).expect("answers are JSON");
        let found: BTreeMap<u64, &str> = page["results"]
            .as_array()
            .expect("a page")
            .iter()
            .map(|d| (d["id"].as_u64().expect("an id"), d["text"].as_str().expect("a text")))
            .collect();
        for id in ids {
            assert_eq!(found.get(id).copied(), present.get(id).map(String::as_str), "document {id}");
        }
    }
}

#[test]
fn no_accepted_task_is_lost_or_applied_twice_when_the_server_is_killed() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (kills, seed) = (number("SKERRY_KILLS", 20), number("SKERRY_SEED", 1));
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut rng = StdRng::seed_from_u64(seed);
    let place: PathBuf = folder.path().join("main");
    let mut server =
        Server::start(&binary, "--cores 2 --partitions 2", &json!({}), place, folder.path()).expect("it starts");
    let mut promised = 0;
    for round in 0..kills {
        let (stop, promises) = (AtomicBool::new(false), Mutex::new(BTreeMap::new()));
        let delay = Duration::from_micros(rng.random_range(1_000..250_000));
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let rng = StdRng::seed_from_u64(rng.random());
                let (port, stop, promises) = (server.port, &stop, &promises);
                scope.spawn(move || load(port, (round * CLIENTS + client) * SPAN, rng, stop, promises));
            }
            std::thread::sleep(delay);
            server.stop(true);
            stop.store(true, Ordering::Relaxed);
        });
        server.restart(&json!({"restart": "kill"})).expect("the store opens after a kill");
        wait_until_idle(server.port);
        let promises = promises.into_inner().expect("all clients have ended");
        check_tasks(server.port, &promises);
        check_documents(server.port, &promises);
        promised += promises.len();
    }
    // A run in which nothing was accepted shows nothing.
    assert!(promised as u64 > kills, "only {promised} tasks were accepted over {kills} kills");
    println!("{kills} kills, {promised} accepted tasks, all applied once");
}
