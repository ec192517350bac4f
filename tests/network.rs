//! Three instances with every network shard on two of them. While documents are written through the leader and the shards
//! move between the instances, one instance after another is killed and started again. Afterwards each acknowledged document
//! must be on both instances of its shard, on no other, and be found once.
//!
//! `SKERRY_ROUNDS` sets how many times (2 by default), `SKERRY_SEED` the moments, `SKERRY_BIN` another binary.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The helpers are shared with the replayer, which uses more of them.
#![allow(dead_code)]

#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use server::Server;

/// Where the shards are, from round to round: every document moves in some of them.
const LAYOUTS: [[(&str, [&str; 2]); 3]; 3] = [
    [("s1", ["a", "b"]), ("s2", ["b", "c"]), ("s3", ["a", "c"])],
    [("s1", ["b", "c"]), ("s2", ["a", "c"]), ("s3", ["a", "b"])],
    [("s1", ["a", "c"]), ("s2", ["a", "b"]), ("s3", ["b", "c"])],
];
/// How long the network may take to come to rest.
const REST: Duration = Duration::from_secs(120);

fn ask(port: u16, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let body = (!body.is_null()).then(|| body.to_string());
    let answer = client::send(port, method, path, &headers, body.as_deref().map(str::as_bytes)).ok()?;
    Some((answer.status, serde_json::from_slice(&answer.body).unwrap_or_default()))
}

fn shards(layout: usize) -> Value {
    let shards = LAYOUTS[layout % LAYOUTS.len()];
    shards.iter().map(|(name, on)| ((*name).to_owned(), json!({ "remotes": on }))).collect()
}

/// The ids of the documents of a shard on an instance.
fn ids_of(port: u16, shard: &str) -> Option<BTreeMap<u64, String>> {
    let mut found = BTreeMap::new();
    loop {
        let body = json!({"filter": format!("_shard = {shard}"), "limit": 5000, "offset": found.len(), "fields": ["id", "text"]});
        let (status, page) = ask(port, "POST", "/indexes/load/documents/fetch", &body)?;
        let results = page["results"].as_array().filter(|_| status == 200)?;
        for document in results {
            found.insert(document["id"].as_u64()?, document["text"].as_str()?.to_owned());
        }
        if results.len() < 5000 {
            return Some(found);
        }
    }
}

/// Why the documents are not where they should be, if they are not.
fn misplaced(ports: &BTreeMap<&str, u16>, layout: usize, acknowledged: &BTreeMap<u64, String>) -> Option<String> {
    let mut everywhere = BTreeMap::new();
    for (shard, on) in LAYOUTS[layout % LAYOUTS.len()] {
        let mut replicas = Vec::new();
        for (name, port) in ports {
            let Some(ids) = ids_of(*port, shard) else { return Some(format!("{name} does not tell its {shard}")) };
            if on.contains(name) {
                replicas.push(ids);
            } else if !ids.is_empty() {
                return Some(format!("{name} has {} documents of {shard}, which it should not", ids.len()));
            }
        }
        if replicas[0] != replicas[1] {
            return Some(format!("{shard} differs: {} and {} documents", replicas[0].len(), replicas[1].len()));
        }
        let before = everywhere.len() + replicas[0].len();
        everywhere.extend(replicas.remove(0));
        if everywhere.len() != before {
            return Some(format!("a document of {shard} is in another shard, too"));
        }
    }
    let missing: Vec<&u64> =
        acknowledged.iter().filter(|(id, text)| everywhere.get(id) != Some(text)).map(|(id, _)| id).collect();
    (!missing.is_empty())
        .then(|| format!("{} acknowledged documents are missing, such as {}", missing.len(), missing[0]))
}

fn is_idle(port: u16) -> bool {
    let waiting = ask(port, "GET", "/tasks?statuses=enqueued,processing&limit=1", &Value::Null);
    waiting.is_some_and(|(status, body)| status == 200 && body["total"] == 0)
}

/// Writes through the leader until told to stop; gives what was acknowledged.
fn write(port: u16, first: u64, stop: &AtomicBool) -> BTreeMap<u64, String> {
    let mut acknowledged = BTreeMap::new();
    let mut next = first;
    while !stop.load(Ordering::Relaxed) {
        let ids = next..next + 50;
        next = ids.end;
        let text = format!("harbour light {}", next % 97);
        let documents: Value = ids.clone().map(|id| json!({"id": id, "text": text})).collect();
        if let Some((202, _)) = ask(port, "POST", "/indexes/load/documents?primaryKey=id", &documents) {
            acknowledged.extend(ids.map(|id| (id, text.clone())));
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    acknowledged
}

/// Every document is found once, from whichever instance.
fn check_search(ports: &BTreeMap<&str, u16>, documents: u64) {
    for (name, port) in ports {
        let body = json!({"q": "harbour", "limit": 100_000, "attributesToRetrieve": ["id"]});
        let (_, answer) = ask(*port, "POST", "/indexes/load/search", &body).expect("an instance answers");
        assert_eq!(answer["remoteErrors"], json!({}), "{name}");
        let hits = answer["hits"].as_array().expect("hits");
        let ids: BTreeSet<u64> = hits.iter().filter_map(|hit| hit["id"].as_u64()).collect();
        assert_eq!((hits.len(), ids.len() as u64), (ids.len(), documents), "{name} finds each document once");
    }
}

#[test]
fn documents_survive_kills_while_they_move() {
    let number = |name: &str, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rounds, seed) = (number("SKERRY_ROUNDS", 2), number("SKERRY_SEED", 1));
    let mut rng = StdRng::seed_from_u64(seed);
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let place = tempfile::tempdir().expect("a folder for the instances");
    let spec = json!({"args": ["--experimental-allowed-ip-networks", "127.0.0.0/8"],
        "env": {"MEILI_EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS": "1"}});
    let mut servers: BTreeMap<&str, Server> = ["a", "b", "c"]
        .map(|name| {
            let started = Server::start(&binary, "--cores 1", &spec, place.path().join(name), place.path());
            (name, started.expect("an instance starts"))
        })
        .into();
    let ports: BTreeMap<&str, u16> = servers.iter().map(|(name, server)| (*name, server.port)).collect();
    for port in ports.values() {
        ask(*port, "PATCH", "/experimental-features", &json!({"network": true})).expect("an instance answers");
    }
    let url = |port: &u16| json!({ "url": format!("http://127.0.0.1:{port}") });
    let remotes: Value = ports.iter().map(|(name, port)| ((*name).to_owned(), url(port))).collect();
    let first = json!({"self": "a", "leader": "a", "remotes": remotes, "shards": shards(0)});
    let (status, answer) = ask(ports["a"], "PATCH", "/network", &first).expect("the leader answers");
    assert_eq!(status, 202, "{answer}");
    let settings = json!({"pagination": {"maxTotalHits": 1_000_000}, "sortableAttributes": ["id"]});
    ask(ports["a"], "PATCH", "/indexes/load/settings", &settings).expect("the leader answers");

    let mut acknowledged = BTreeMap::new();
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let stop = AtomicBool::new(false);
        let first = round as u64 * 1_000_000;
        let victim = ["a", "b", "c"][rng.random_range(0..3)];
        let (before, away) = (rng.random_range(0..700), rng.random_range(0..400));
        let layout = round + 1;
        let began = Instant::now();
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write(ports["a"], first, &stop));
            std::thread::sleep(Duration::from_millis(300));
            // The leader may be asked again until it has taken the change, as an operator would.
            let changer = scope.spawn(|| {
                let changed = Instant::now();
                loop {
                    let answer = ask(ports["a"], "PATCH", "/network", &json!({ "shards": shards(layout) }));
                    if matches!(answer, Some((202, _))) {
                        return;
                    }
                    let known = ask(ports["a"], "GET", "/network", &Value::Null);
                    if known.is_some_and(|(_, network)| network["shards"] == shards(layout)) {
                        return;
                    }
                    assert!(changed.elapsed() < REST, "the change is not taken: {answer:?}");
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            std::thread::sleep(Duration::from_millis(before));
            let server = servers.get_mut(victim).expect("it is one of them");
            server.stop(true);
            std::thread::sleep(Duration::from_millis(away));
            server.restart(&json!({"restart": "kill"})).expect("a killed instance starts again");
            changer.join().expect("the change is taken");
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer ends")
        });
        acknowledged.extend(written);
        let settled = Instant::now();
        loop {
            let wrong = if ports.values().all(|port| is_idle(*port)) {
                misplaced(&ports, layout, &acknowledged)
            } else {
                Some("tasks wait".to_owned())
            };
            let Some(wrong) = wrong else { break };
            if settled.elapsed() >= REST {
                for (name, port) in &ports {
                    let tasks = ask(*port, "GET", "/tasks?statuses=enqueued,processing,failed&limit=5", &Value::Null);
                    println!("{name}: {tasks:?}");
                }
                panic!("round {round} (seed {seed}), {victim} killed after {before} ms: {wrong}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        slowest = slowest.max(settled.elapsed());
        let documents = ids_of_all(&ports, layout);
        check_search(&ports, documents);
        println!(
            "round {round}: {victim} killed after {before} ms, away {away} ms; {} acknowledged, {documents} there; at rest {:?} \
             after the last write, {:?} in all",
            acknowledged.len(),
            settled.elapsed(),
            began.elapsed()
        );
    }
    println!("{rounds} rounds, {} documents, longest way to rest {slowest:?}", acknowledged.len());
}

/// How many documents there are in all shards.
fn ids_of_all(ports: &BTreeMap<&str, u16>, layout: usize) -> u64 {
    let shards = LAYOUTS[layout % LAYOUTS.len()];
    shards.iter().map(|(shard, on)| ids_of(ports[on[0]], shard).map_or(0, |ids| ids.len() as u64)).sum()
}
