//! Two instances with API keys: what the members of a network tell each other, and what clients cannot get in that way.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The helpers are shared with the replayer, which uses more of them.
#![allow(dead_code)]

#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/server.rs"]
mod server;

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};
use server::Server;
use sha2::Sha256;

const KEYS: [&str; 2] = ["first-master-key-of-16-bytes", "second-master-key-of-16-bytes"];
const HIT_LINES: &str = "application/x-skerry-hit-lines";

struct Members {
    servers: Vec<Server>,
    _folder: tempfile::TempDir,
}

fn start() -> Members {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let start = |key: &&str| {
        let spec = json!({"args": ["--experimental-allowed-ip-networks", "127.0.0.0/8"], "master_key": key});
        Server::start(&binary, "--cores 1", &spec, folder.path().join(key), folder.path()).expect("it starts")
    };
    let members = Members { servers: KEYS.iter().map(start).collect(), _folder: folder };
    let mut remotes = json!({});
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        // Searches have a key that may do nothing else.
        let search = members.key(at, &["search"], &["*"]);
        let url = format!("http://127.0.0.1:{}", members.servers[at].port);
        remotes[name] = json!({"url": url, "searchApiKey": search["key"], "writeApiKey": KEYS[at]});
        members.ask(at, ("PATCH", "/experimental-features"), &json!({"network": true, "foreignKeys": true}));
    }
    let shards = json!({"s1": {"remotes": ["a"]}, "s2": {"remotes": ["b"]}});
    members.work(("PATCH", "/network"), &json!({"self": "a", "leader": "a", "remotes": remotes, "shards": shards}));
    members
}

impl Members {
    fn send(&self, at: usize, key: &str, to: (&str, &str), more: &[(&str, &str)], body: &[u8]) -> client::Answer {
        let mut headers = vec![("Authorization".to_owned(), format!("Bearer {key}"))];
        headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let body = (!body.is_empty()).then_some(body);
        client::send(self.servers[at].port, to.0, to.1, &headers, body).expect("a started server answers")
    }

    fn ask_with(&self, at: usize, key: &str, to: (&str, &str), body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.send(at, key, to, &[("Content-Type", "application/json")], body.as_bytes());
        assert!(answer.status < 300, "{to:?}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    fn ask(&self, at: usize, to: (&str, &str), body: &Value) -> Value {
        self.ask_with(at, KEYS[at], to, body)
    }

    fn key(&self, at: usize, actions: &[&str], indexes: &[&str]) -> Value {
        self.ask(at, ("POST", "/keys"), &json!({"actions": actions, "indexes": indexes, "expiresAt": null}))
    }

    /// Waits until nothing is under way on either.
    fn rest(&self) {
        let waiting = |at| self.ask(at, ("GET", "/tasks?statuses=enqueued,processing&limit=1"), &Value::Null);
        for _ in 0..1500 {
            if (0..2).all(|at| waiting(at)["total"] == 0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the members do not come to rest: {} {}", waiting(0), waiting(1));
    }

    /// Has the leader do something; its task afterwards.
    fn work(&self, to: (&str, &str), body: &Value) -> Value {
        let accepted = self.ask(0, to, body);
        self.rest();
        let path = format!("/tasks/{}", accepted["taskUid"]);
        let task = self.ask(0, ("GET", &path), &Value::Null);
        assert_eq!(task["status"], "succeeded", "{task}");
        task
    }
}

fn token(key: &Value, rules: &Value) -> String {
    let claims = json!({"apiKeyUid": key["uid"], "searchRules": rules});
    let secret = EncodingKey::from_secret(key["key"].as_str().expect("a key has a value").as_bytes());
    jsonwebtoken::encode(&Header::default(), &claims, &secret).expect("claims can be signed")
}

/// What `src/network/proof.rs` describes, made so many seconds ago.
fn proof(key: &str, parts: [&str; 5], seconds_ago: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("the clock goes");
    let time = (now.as_secs() - seconds_ago).to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("any key will do");
    for part in [&["skerry: part of a search", &time][..], &parts].concat() {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part.as_bytes());
    }
    format!("{time}.{}", hex::encode(mac.finalize().into_bytes()))
}

#[test]
fn clients_get_nothing_that_is_for_members() {
    let members = start();
    words_of_other_tenants_stay_hidden(&members);
    foreign_documents_stay_hidden(&members);
    no_index_is_made_by_who_may_not(&members);
    what_a_member_has_is_not_canceled(&members);
}

/// Tenant tokens could ask as members do, and were told which words all documents have.
fn words_of_other_tenants_stay_hidden(members: &Members) {
    members.work(("PATCH", "/indexes/t/settings"), &json!({"filterableAttributes": ["user"]}));
    let documents: Vec<Value> =
        (0..40).map(|id| json!({"id": id, "user": id % 2, "body": format!("secretword{id}")})).collect();
    members.work(("POST", "/indexes/t/documents?primaryKey=id"), &json!(documents));
    let key = members.key(1, &["search"], &["*"]);
    let search = key["key"].as_str().expect("a key has a value");
    let tenant = token(&key, &json!({"t": {"filter": "user = 1"}}));
    let body = r#"{"federation": {}, "queries": [{"indexUid": "t", "q": "secretword", "useNetwork": false}]}"#;
    let with_words = format!("[null]\n{body}");
    let asked = |kind: &str, key: &str, body: &str, proof: Option<&str>| {
        let mut headers = vec![
            ("Content-Type", kind),
            ("Meili-Proxy-Search", "true"),
            ("X-Skerry-Hit-Lines", "b"),
            ("X-Skerry-Network-Shards", "s2;s1,s2"),
        ];
        headers.extend(proof.map(|proof| ("X-Skerry-Proof", proof)));
        let answer = members.send(1, key, ("POST", "/multi-search"), &headers, body.as_bytes());
        (answer.status, answer.header("content-type").unwrap_or_default().to_owned())
    };
    let (json, words) = ("application/json", "application/x-skerry-words");
    let signed = |key: &str, kind: &str, body: &str| proof(key, ["b", "s2;s1,s2", "", kind, body], 0);
    let captured = proof(KEYS[1], ["b", "s2;s1,s2", "", json, body], 3600);
    for (key, proof) in [
        (search, None),
        (search, Some(signed(search, json, body))),
        (search, Some(signed(KEYS[0], json, body))),
        (search, Some(signed(KEYS[1], json, &with_words))),
        (search, Some(captured)),
        (tenant.as_str(), None),
        (tenant.as_str(), Some(signed(KEYS[1], json, body))),
    ] {
        assert_eq!(asked(json, key, body, proof.as_deref()), (200, json.to_owned()), "{key} {proof:?}");
        assert_eq!(asked(words, key, &with_words, proof.as_deref()).0, 415, "{key} {proof:?}");
    }
    let whole = (200, HIT_LINES.to_owned());
    assert_eq!(asked(json, search, body, Some(&signed(KEYS[1], json, body))), whole);
    assert_eq!(asked(words, search, &with_words, Some(&signed(KEYS[1], words, &with_words))), whole);
    // The members prove it to each other: a word that only one of them has is known to both.
    let log = std::fs::read_to_string(members.servers[0].folder.join("log")).expect("there is a log");
    assert!(!log.contains("does not answer a search"), "{log}");
}

/// The documents of other indexes were shown by the grant of the key that members search with.
fn foreign_documents_stay_hidden(members: &Members) {
    let keys = json!([{"foreignIndexUid": "sec", "fieldName": "rel"}]);
    members.work(
        ("POST", "/indexes/sec/documents?primaryKey=id"),
        &json!([{"id": 1, "s": "secret"}, {"id": 2, "s": "secret"}]),
    );
    members.work(("PATCH", "/indexes/fa/settings"), &json!({"foreignKeys": keys}));
    let documents: Vec<Value> = (0..12).map(|id| json!({"id": id, "rel": 1 + id % 2})).collect();
    members.work(("POST", "/indexes/fa/documents?primaryKey=id"), &json!(documents));
    let limited = members.key(0, &["search"], &["fa"]);
    let federated = json!({"federation": {}, "queries": [{"indexUid": "fa"}]});
    let remote = json!({"federation": {}, "queries": [
        {"indexUid": "fa", "useNetwork": false, "federationOptions": {"remote": "b"}}]});
    for key in [limited["key"].as_str().expect("a key has a value"), KEYS[0]] {
        for (path, body, least) in
            [("/indexes/fa/search", &json!({}), 12), ("/multi-search", &federated, 12), ("/multi-search", &remote, 1)]
        {
            let answer = members.ask_with(0, key, ("POST", path), body);
            let hits = answer["hits"].as_array().expect("there are hits");
            assert!(hits.len() >= least && hits.iter().all(|hit| hit["rel"].is_u64()), "{path}: {answer}");
        }
    }
}

/// The leader refused to make the index, but sent the write on with a key that may.
fn no_index_is_made_by_who_may_not(members: &Members) {
    let key = members.key(0, &["documents.add", "settings.update", "tasks.get"], &["*"]);
    let key = key["key"].as_str().expect("a key has a value");
    for (to, body) in [
        (("POST", "/indexes/new/documents"), json!([{"id": 1}])),
        (("PATCH", "/indexes/new/settings"), json!({"stopWords": ["x"]})),
    ] {
        members.ask_with(0, key, to, &body);
        members.rest();
        for at in 0..2 {
            let task = &members.ask(at, ("GET", "/tasks?limit=1"), &Value::Null)["results"][0];
            assert_eq!(task["error"]["code"], "index_not_found", "{at}: {task}");
        }
    }
}

/// A canceled write stayed done on the other member.
fn what_a_member_has_is_not_canceled(members: &Members) {
    let many: Vec<Value> = (0..20_000).map(|id| json!({"id": id, "text": format!("w{} w{}", id, id % 700)})).collect();
    members.ask(0, ("POST", "/indexes/load/documents?primaryKey=id"), &json!(many));
    let last = members.ask(0, ("POST", "/indexes/t/documents"), &json!([{"id": 900, "body": "late"}]));
    members.ask(0, ("POST", "/tasks/cancel?statuses=enqueued,processing"), &Value::Null);
    members.rest();
    let task = members.ask(0, ("GET", &format!("/tasks/{}", last["taskUid"])), &Value::Null);
    let cancelation = &members.ask(0, ("GET", "/tasks?types=taskCancelation"), &Value::Null)["results"][0];
    assert_eq!((&task["status"], &cancelation["details"]["canceledTasks"]), (&json!("succeeded"), &json!(0)));
    let found = members.ask(0, ("POST", "/indexes/t/search"), &json!({"q": "late"}));
    assert_eq!(found["hits"].as_array().map(Vec::len), Some(1), "{found}");
}
