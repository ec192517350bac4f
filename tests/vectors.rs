//! Vectors of a whole server: killed while graphs are built and merged, taken out by dump, snapshot and export, deleted and
//! added again. Whatever happened, each document has the vectors it was accepted with, and searches find what is near.
//! Besides, vectors that the server asks embedding services for: batches tell how that went.
//!
//! `SKERRY_KILLS` sets how many kills (4 by default), `SKERRY_VECTORS` the documents that are there before the first,
//! `SKERRY_SEED` the moments, `SKERRY_BIN` another binary.

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

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mocks::Mock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use server::Server;

/// Numbers of a vector: a multiple of 64, so that the signs of one fill whole words.
const DIMENSIONS: usize = 64;
/// Documents sent or fetched at once.
const PAGE: u64 = 1000;
/// Hits of a search, and searches for one figure of recall.
const HITS: usize = 10;
const SEARCHES: u64 = 40;
/// The least share of the nearest that searches must find.
const RECALL_MIN: f64 = 0.95;

/// What a document has: the version of its vectors decides their numbers.
type Held = BTreeMap<u64, u64>;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// The vector of a document, in steps that floats hold exactly, near those of the same group.
fn vector(id: u64, version: u64) -> Vec<f32> {
    let mut of_group = StdRng::seed_from_u64(id % 97);
    let mut own = StdRng::seed_from_u64(id << 8 | version);
    (0..DIMENSIONS).map(|_| (of_group.random_range(-8i32..=8) + own.random_range(-5i32..=5)) as f32 / 8.0).collect()
}

fn signs(vector: &[f32]) -> Vec<f32> {
    vector.iter().map(|number| f32::from(u8::from(*number > 0.0))).collect()
}

fn document(id: u64, version: u64) -> Value {
    let vector = vector(id, version);
    json!({"id": id, "even": id.is_multiple_of(2), "_vectors": {"full": vector, "bits": vector}})
}

fn send(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let body = body.map(Value::to_string);
    let answer = client::send(port, method, path, &headers, body.as_deref().map(str::as_bytes)).ok()?;
    assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    serde_json::from_slice(&answer.body).ok()
}

fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Value {
    send(port, method, path, body).unwrap_or_else(|| panic!("{method} {path}: no answer"))
}

fn wait_until_idle(port: u16) {
    drain(port);
    let failed = ask(port, "GET", "/tasks?statuses=failed,canceled&limit=1", None);
    assert_eq!(failed["total"], 0, "{failed}");
}

fn drain(port: u16) {
    for _ in 0..6000 {
        if ask(port, "GET", "/tasks?statuses=enqueued,processing&limit=1", None)["total"] == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the queue did not drain");
}

fn create(port: u16) {
    let embedder = |quantized: bool| json!({"source": "userProvided", "dimensions": DIMENSIONS, "binaryQuantized": quantized.then_some(true)});
    let embedders = json!({"full": embedder(false), "bits": embedder(true)});
    let settings = json!({"embedders": embedders, "filterableAttributes": ["even"]});
    ask(port, "PATCH", "/indexes/v/settings", Some(&settings));
}

fn add(port: u16, ids: impl Iterator<Item = u64>, version: u64, held: &mut Held) {
    let ids: Vec<u64> = ids.collect();
    for page in ids.chunks(PAGE as usize) {
        let documents: Value = page.iter().map(|id| document(*id, version)).collect();
        ask(port, "POST", "/indexes/v/documents", Some(&documents));
        held.extend(page.iter().map(|id| (*id, version)));
    }
}

fn numbers(value: &Value) -> Vec<f32> {
    let numbers = value.as_array().into_iter().flatten().filter_map(Value::as_f64);
    numbers.map(|number| number as f32).collect()
}

/// All documents with the vector of the full embedder. That of the signs must fit it.
fn all_vectors(port: u16) -> BTreeMap<u64, Vec<f32>> {
    let mut found = BTreeMap::new();
    for offset in (0..).step_by(PAGE as usize) {
        let path = format!("/indexes/v/documents?offset={offset}&limit={PAGE}&retrieveVectors=true");
        let page = ask(port, "GET", &path, None);
        let documents = page["results"].as_array().expect("a page");
        for document in documents {
            let (id, vectors) = (document["id"].as_u64().expect("an id"), &document["_vectors"]);
            assert_eq!(vectors["full"]["regenerate"], false, "document {id}");
            let full = numbers(&vectors["full"]["embeddings"][0]);
            assert_eq!(numbers(&vectors["bits"]["embeddings"][0]), signs(&full), "document {id}");
            found.insert(id, full);
        }
        if documents.len() < PAGE as usize {
            break;
        }
    }
    found
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f32::MIN_POSITIVE)
}

/// The share of the documents nearest by `near` that searches find; documents as near as the last are as good.
fn recall(port: u16, all: &BTreeMap<u64, Vec<f32>>, embedder: &str, near: impl Fn(&[f32], &[f32]) -> f32) -> f64 {
    let (mut right, mut wanted) = (0, 0);
    for search in 0..SEARCHES {
        let query = vector(search * 31 + 7, 200);
        let mut nearest: Vec<f32> = all.values().map(|vector| near(&query, vector)).collect();
        nearest.sort_by(|a, b| b.total_cmp(a));
        let last = nearest[HITS.min(nearest.len()) - 1];
        let hybrid = json!({"embedder": embedder, "semanticRatio": 1.0});
        let body = json!({"vector": query, "hybrid": hybrid, "limit": HITS, "attributesToRetrieve": ["id"]});
        let answer = ask(port, "POST", "/indexes/v/search", Some(&body));
        let hits = answer["hits"].as_array().expect("hits").iter();
        let hits: Vec<u64> = hits.map(|hit| hit["id"].as_u64().expect("an id")).collect();
        assert_eq!(hits.len(), HITS.min(all.len()));
        right += hits.iter().filter(|id| near(&query, &all[*id]) >= last - 1e-5).count();
        wanted += hits.len();
    }
    right as f64 / wanted as f64
}

/// Documents have their vectors, and searches find what is near: in the full vectors, and in the signs.
fn check(port: u16, held: &Held, when: &str) -> BTreeMap<u64, Vec<f32>> {
    let all = all_vectors(port);
    for (id, version) in held {
        assert_eq!(all.get(id), Some(&vector(*id, *version)), "{when}: document {id}");
    }
    let by_signs = |a: &[f32], b: &[f32]| {
        let same = signs(a).iter().zip(signs(b)).filter(|(a, b)| **a == *b).count();
        same as f32
    };
    for (embedder, found) in
        [("full", recall(port, &all, "full", cosine)), ("bits", recall(port, &all, "bits", by_signs))]
    {
        assert!(found >= RECALL_MIN, "{when}: recall of {embedder} is {found:.3}");
    }
    all
}

fn start(folder: &Path) -> Server {
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    Server::start(
        &binary,
        "--cores 2 --partitions 2 --experimental-allowed-ip-networks 127.0.0.0/8",
        &json!({}),
        folder.join("main"),
        folder,
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

/// Changes documents of its own until the server is gone. What an accepted request said is held; what an unanswered one said may
/// be, and is forgotten.
fn change(port: u16, own: std::ops::Range<u64>, mut rng: StdRng, stop: &AtomicBool, held: &Mutex<Held>) {
    let held = || held.lock().expect("no client panics while it holds the documents");
    while !stop.load(Ordering::Relaxed) {
        let first = rng.random_range(own.clone());
        let ids: Vec<u64> = (first..own.end.min(first + rng.random_range(1..150))).collect();
        let version = rng.random_range(1..200);
        let deletes = rng.random_bool(0.3);
        let (path, body) = match deletes {
            true => ("/indexes/v/documents/delete-batch", json!(ids)),
            false => ("/indexes/v/documents", ids.iter().map(|id| document(*id, version)).collect()),
        };
        if send(port, "POST", path, Some(&body)).is_none() || deletes {
            held().retain(|id, _| !ids.contains(id));
        } else {
            held().extend(ids.iter().map(|id| (*id, version)));
        }
    }
}

#[test]
fn kills_lose_no_vector_and_no_recall() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut rng = StdRng::seed_from_u64(number("SKERRY_SEED", 1));
    let (kills, count) = (number("SKERRY_KILLS", 4), number("SKERRY_VECTORS", 10_000));
    let mut server = start(folder.path());
    let mut held = Held::new();
    create(server.port);
    add(server.port, 0..count, 0, &mut held);
    wait_until_idle(server.port);
    let mut accepted = 0;
    for kill in 0..kills {
        let (stop, shared) = (AtomicBool::new(false), Mutex::new(std::mem::take(&mut held)));
        let delay = Duration::from_micros(rng.random_range(20_000..1_000_000));
        std::thread::scope(|scope| {
            for client in 0..3 {
                let own = client * count / 3..(client + 1) * count / 3;
                let rng = StdRng::seed_from_u64(rng.random());
                let (port, stop, shared) = (server.port, &stop, &shared);
                scope.spawn(move || change(port, own, rng, stop, shared));
            }
            std::thread::sleep(delay);
            server.stop(true);
            stop.store(true, Ordering::Relaxed);
        });
        server.restart(&json!({"restart": "kill"})).expect("the store opens after a kill");
        wait_until_idle(server.port);
        held = shared.into_inner().expect("all clients have ended");
        check(server.port, &held, &format!("kill {kill}"));
        accepted += ask(server.port, "GET", "/tasks?limit=1", None)["total"].as_u64().unwrap_or(0);
    }
    assert!(accepted > kills * 20, "too little was accepted: {accepted}");
}

#[test]
fn vectors_come_back_from_dumps_snapshots_and_exports_and_after_churn() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut server = start(folder.path());
    let mut held = Held::new();
    create(server.port);
    add(server.port, 0..6000, 0, &mut held);
    wait_until_idle(server.port);
    for version in 1..3 {
        let odd: Vec<u64> = (0..6000).filter(|id| id % 2 == version % 2).collect();
        ask(server.port, "POST", "/indexes/v/documents/delete-batch", Some(&json!(odd)));
        add(server.port, odd.into_iter(), version, &mut held);
        wait_until_idle(server.port);
    }
    let all = check(server.port, &held, "churn");
    assert_eq!(all.len(), held.len());

    ask(server.port, "POST", "/dumps", None);
    ask(server.port, "POST", "/snapshots", None);
    wait_until_idle(server.port);
    let other = tempfile::tempdir().expect("a temporary folder can be made");
    let target = start(other.path());
    let export =
        json!({"url": format!("http://127.0.0.1:{}", target.port), "indexes": {"*": {"overrideSettings": true}}});
    ask(server.port, "POST", "/export", Some(&export));
    wait_until_idle(server.port);
    wait_until_idle(target.port);
    assert_eq!(check(target.port, &held, "export"), all);

    for (from, place) in [("--import-dump", "{dump}"), ("--import-snapshot", "{snapshot}")] {
        let step = json!({"restart": "kill", "wipe": true, "args": [from, place]});
        server.restart(&step).unwrap_or_else(|error| panic!("{from}: {error}"));
        wait_until_idle(server.port);
        assert_eq!(check(server.port, &held, from), all);
    }
}

/// Sends a task and waits for its end: what its batch, the newest, then says of embedders.
fn requests_of(port: u16, method: &str, path: &str, body: &Value) -> Value {
    ask(port, method, path, Some(body));
    drain(port);
    let batch = ask(port, "GET", "/batches?limit=1", None)["results"][0].clone();
    batch["stats"].get("embedderRequests").cloned().unwrap_or_default()
}

/// Indexes lie on different cores, and yet all of them are counted where batches are.
#[test]
fn batches_count_their_requests_to_embedders() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut server = start(folder.path());
    let port = server.port;
    let embedder = |mock: &Mock| {
        json!({"embedders": {"e": {"source": "rest", "url": format!("http://127.0.0.1:{}/", mock.port),
            "documentTemplate": "{{doc.id}}", "request": {"input": "{{text}}"}, "response": {"data": "{{embedding}}"}}}})
    };
    let mut batches = 0;
    for index in ["a", "b", "c"] {
        let slow = Mock::start(&json!({"kind": "script", "answers": [{"status": 500, "body": "tired"},
            {"body": {"data": [1, 2]}}]}));
        let path = format!("/indexes/{index}");
        let seen = requests_of(port, "PATCH", &format!("{path}/settings"), &embedder(&slow));
        assert_eq!((&seen["total"], &seen["failed"]), (&json!(2), &json!(1)), "{seen}");
        assert!(seen["lastError"].as_str().is_some_and(|why| why.contains("500") && why.contains("tired")), "{seen}");
        let hybrid = json!({"q": "x", "hybrid": {"embedder": "e", "semanticRatio": 1.0}});
        ask(port, "POST", &format!("{path}/search"), Some(&hybrid));
        let documents = json!([{"id": 1}, {"id": 2}, {"id": 3}]);
        let seen = requests_of(port, "POST", &format!("{path}/documents"), &documents);
        assert_eq!(seen, json!({"total": 3, "failed": 0}));
        // Nothing is to be embedded.
        assert_eq!(requests_of(port, "PATCH", &format!("{path}/settings"), &json!({"stopWords": ["x"]})), Value::Null);
        batches += 3;
    }
    let refusing = Mock::start(&json!({"kind": "script", "answers": [{"status": 401}]}));
    let seen = requests_of(port, "PATCH", "/indexes/d/settings", &embedder(&refusing));
    assert_eq!((&seen["total"], &seen["failed"]), (&json!(1), &json!(1)), "{seen}");
    server.restart(&json!({"restart": "kill"})).expect("the store opens after a kill");
    let kept = ask(port, "GET", &format!("/batches/{batches}"), None);
    assert_eq!(kept["stats"]["embedderRequests"], seen);
}
