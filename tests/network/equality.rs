//! Three instances find what one finds: the same documents with the same scores in the same order.
//!
//! By hand with documents of a file: `SKERRY_DATA=FILE.ndjson SKERRY_QUERIES=2000`, and `SKERRY_PYTHON=python3` to load
//! them with the official client.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use crate::hosts::Host;
use crate::instance::{Instance, ask, is_idle};
use crate::{Network, binary, layout, number};

const INDEX: &str = "equal";
/// Documents that are made up where no file is given.
const DOCUMENTS: u64 = 2500;
/// Bytes of one request.
const PIECE_BYTES: usize = 1 << 20;
/// The share of queries that ask by vectors, alone or with words.
const BY_VECTORS: f64 = 0.4;
/// And by two queries at once.
const FEDERATED: f64 = 0.2;
/// The last rule leaves no two documents equal: the order of equals depends on where they are.
const SETTINGS: &str = r#"{"rankingRules": ["words", "typo", "proximity", "attribute", "sort", "exactness", "id:asc"],
    "filterableAttributes": ["kind", "pos", "rank"], "sortableAttributes": ["rank", "id"],
    "embedders": {"m": {"source": "userProvided", "dimensions": 8}},
    "pagination": {"maxTotalHits": 1000000}, "synonyms": {"harbour": ["port"], "big": ["large", "very big"]}}"#;

/// Documents of few words in changing order, so that many match and few are alike.
fn made_up(rng: &mut StdRng) -> Vec<String> {
    let words: Vec<&str> = "harbour light granite storm sailor boat rope anchor mast shore island rock wave tide wind sail deck \
        cabin north south port large big very keeper lamp tower signal chart compass star fog bell gull net fish salt sand shell"
        .split_whitespace()
        .collect();
    let text = |rng: &mut StdRng, most: usize| {
        let count = rng.random_range(1..=most);
        let mut chosen: Vec<String> =
            (0..count).map(|_| (*words.choose(rng).expect("there are words")).to_owned()).collect();
        for word in &mut chosen {
            if rng.random_bool(0.04) {
                word.remove(rng.random_range(0..word.len()));
            }
        }
        chosen.join(" ")
    };
    let document = |id: u64| {
        let kind = ["a", "b", "c"][rng.random_range(0..3)];
        let vectors = vectors(rng);
        json!({"id": id, "title": text(rng, 4), "text": text(rng, 25), "kind": kind, "rank": rng.random_range(0..50),
            "_vectors": vectors})
        .to_string()
    };
    (0..DOCUMENTS).map(document).collect()
}

/// What stands under `_vectors`: most documents have a vector.
fn vectors(rng: &mut StdRng) -> Value {
    if rng.random_bool(0.9) { json!({"m": vector(rng)}) } else { json!({"m": null}) }
}

/// A document of a file, with a vector of its own.
fn with_vectors(line: &str, rng: &mut StdRng) -> String {
    let mut document: Map<String, Value> = serde_json::from_str(line).expect("each line is a document");
    document.insert("_vectors".into(), vectors(rng));
    Value::Object(document).to_string()
}

/// Those of a file, or made up.
fn documents(file: Option<&str>, rng: &mut StdRng) -> Vec<String> {
    let Some(file) = file else { return made_up(rng) };
    let text = std::fs::read_to_string(file).expect("the file is read");
    text.lines().map(|line| with_vectors(line, rng)).collect()
}

/// The words of a document's texts.
fn words(document: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(document).expect("a document is JSON");
    let texts = document.as_object().into_iter().flatten().filter(|(name, _)| *name != "id");
    texts
        .filter_map(|(_, text)| text.as_str())
        .flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()).map(String::from))
        .filter(|word| !word.is_empty())
        .collect()
}

fn vector(rng: &mut StdRng) -> Vec<f32> {
    (0..8).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn load(host: &Host, documents: &[String]) {
    let path = format!("/indexes/{INDEX}/documents?primaryKey=id");
    let headers = [("Content-Type".to_owned(), "application/x-ndjson".to_owned())];
    let mut piece = String::new();
    for (number, document) in documents.iter().enumerate() {
        piece.push_str(document);
        piece.push('\n');
        if piece.len() >= PIECE_BYTES || number + 1 == documents.len() {
            let patience = Duration::from_secs(60);
            let answer =
                crate::client::send_to(host.address, patience, ("POST", &path), &headers, Some(piece.as_bytes()));
            assert_eq!(answer.expect("an answer").status, 202);
            piece.clear();
        }
    }
}

/// A query of words of the documents, some of them cut, some misspelt, with what else a search may say.
fn query(rng: &mut StdRng, texts: &[Vec<String>]) -> Value {
    let text = texts.choose(rng).expect("there are documents");
    let count = rng.random_range(1..=3.min(text.len()));
    let first = rng.random_range(0..=text.len() - count);
    let mut words: Vec<String> = text[first..first + count].to_vec();
    if rng.random_bool(0.2) {
        words.reverse();
    }
    let last = words.last_mut().expect("there is a word");
    let letters: Vec<char> = last.chars().collect();
    match rng.random_range(0..4) {
        0 if letters.len() > 2 => *last = letters[..rng.random_range(2..letters.len())].iter().collect(),
        1 if letters.len() > 5 => {
            let gone = rng.random_range(1..letters.len());
            *last = letters.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, letter)| letter).collect();
        }
        _ => {}
    }
    let mut query = json!({"q": words.join(" "), "showRankingScore": true, "showRankingScoreDetails": true});
    let mut put = |name: &str, value: Value| {
        query[name] = value;
    };
    match rng.random_range(0..5) {
        0 => put("filter", json!("kind = a OR pos = n")),
        1 => put("facets", json!(["kind", "pos"])),
        2 => put("sort", json!(["rank:desc"])),
        _ => {}
    }
    match rng.random_range(0..8) {
        0 | 1 => put("matchingStrategy", json!("all")),
        2 => put("matchingStrategy", json!("frequency")),
        _ => {}
    }
    if rng.random_bool(BY_VECTORS) {
        let ratio = [0.0, 0.2, 0.5, 0.5, 0.8, 1.0].choose(rng).expect("there are ratios");
        put("hybrid", json!({"embedder": "m", "semanticRatio": ratio}));
        put("vector", json!(vector(rng)));
        put("retrieveVectors", json!(rng.random_bool(0.2)));
        if rng.random_bool(0.1) {
            put("q", Value::Null);
        }
    }
    match rng.random_range(0..3) {
        0 => (put("offset", json!(rng.random_range(0..30))), put("limit", json!(rng.random_range(1..60)))).0,
        1 => (put("page", json!(rng.random_range(1..4))), put("hitsPerPage", json!(rng.random_range(1..30)))).0,
        _ => {}
    }
    query
}

/// Two queries on the index that become one list: a document that both find is in it once.
fn federated(rng: &mut StdRng, texts: &[Vec<String>]) -> Value {
    let mut federation = json!({"limit": rng.random_range(1..60), "offset": rng.random_range(0..5)});
    if rng.random_bool(0.5) {
        federation["facetsByIndex"] = json!({INDEX: ["kind", "pos"]});
    }
    let queries = [(); 2].map(|()| {
        let mut query = query(rng, texts);
        let members = query.as_object_mut().expect("a query is an object");
        // What the list says itself, and what both would have to say.
        let own = ["offset", "limit", "page", "hitsPerPage", "facets", "sort"];
        // Of a list each instance decides for itself whether words are enough.
        let by_vectors = ["hybrid", "vector", "retrieveVectors"];
        members.retain(|name, _| !own.contains(&name.as_str()) && !by_vectors.contains(&name.as_str()));
        members.insert("indexUid".into(), INDEX.into());
        // Without words there are other rules, which cannot be merged with theirs.
        if members["q"].is_null() {
            members.insert("q".into(), "rope".into());
        }
        query
    });
    json!({"federation": federation, "queries": queries})
}

/// An answer without what differs from one instance to several, and from one time to another.
fn comparable(answer: &Value) -> Map<String, Value> {
    let mut answer = answer.as_object().cloned().unwrap_or_default();
    for name in ["processingTimeMs", "requestUid", "remoteErrors"] {
        answer.remove(name);
    }
    for hit in answer.get_mut("hits").and_then(Value::as_array_mut).into_iter().flatten() {
        hit.as_object_mut().and_then(|hit| hit.remove("_federation"));
    }
    answer
}

fn wait(hosts: &[Host]) {
    let began = Instant::now();
    while !hosts.iter().all(is_idle) {
        assert!(began.elapsed() < Duration::from_secs(600), "the documents are not loaded");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn three_instances_answer_like_one() {
    let (queries, seed) = (number("SKERRY_QUERIES", 300), number("SKERRY_SEED", 1));
    let mut rng = StdRng::seed_from_u64(seed);
    let place = tempfile::tempdir().expect("a folder for the instances");
    let file = std::env::var("SKERRY_DATA").ok();
    let documents = documents(file.as_deref(), &mut rng);
    let to_load = place.path().join("documents.ndjson");
    let python = std::env::var("SKERRY_PYTHON").ok();
    if python.is_some() {
        std::fs::write(&to_load, documents.join("\n")).expect("the documents are written");
    }
    let network = Network::start(place.path(), &layout(0));
    let single = crate::hosts::Hosts::on_loopback(1, &place.path().join("single"));
    let single = Instance::start("single", single.host(0), &binary(), &[]);
    let leader = &network.hosts[0];
    let all: Vec<Host> = network.hosts.iter().chain([&single.host]).cloned().collect();
    let settings: Value = serde_json::from_str(SETTINGS).expect("the settings are JSON");
    for host in [leader, &single.host] {
        let began = Instant::now();
        ask(host, "PATCH", &format!("/indexes/{INDEX}/settings"), &settings).expect("an instance answers");
        match &python {
            Some(python) => {
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/network/load.py");
                let url = format!("http://{}", host.address);
                let status = std::process::Command::new(python).args([script, &url, INDEX]).arg(&to_load).status();
                assert!(status.expect("the client runs").success());
            }
            None => load(host, &documents),
        }
        wait(&all);
        println!("{} documents through {} in {:?}", documents.len(), host.address, began.elapsed());
    }
    let texts: Vec<Vec<String>> =
        documents.iter().map(|document| words(document)).filter(|words| !words.is_empty()).collect();
    let (mut hits, mut empty, mut other_hits, mut other_totals, mut other_nearest) = (0, 0, 0, 0, 0);
    let one_query = format!("/indexes/{INDEX}/search");
    for number in 0..queries {
        let (path, query) = match rng.random_bool(FEDERATED) {
            true => ("/multi-search", federated(&mut rng, &texts)),
            false => (one_query.as_str(), query(&mut rng, &texts)),
        };
        let host = network.hosts.choose(&mut rng).expect("there are three");
        let found = whole_answer(host, path, &query);
        let (_, wanted) = ask(&single.host, "POST", path, &query).expect("the single instance answers");
        let count = wanted["hits"].as_array().map_or(0, Vec::len);
        let (found, wanted) = (comparable(&found), comparable(&wanted));
        if found != wanted {
            println!("search {number} of seed {seed} differs from one instance's: {query}");
            differ(&found, &wanted);
            let is_semantic =
                |query: &Value| query["hybrid"]["semanticRatio"].as_f64().is_some_and(|ratio| ratio > 0.0);
            let of_list = query["queries"].as_array().map(Vec::as_slice).unwrap_or_default();
            let by_meaning = is_semantic(&query) || of_list.iter().any(is_semantic);
            let counter = match (by_meaning, found["hits"] == wanted["hits"]) {
                (true, _) => &mut other_nearest,
                (false, true) => &mut other_totals,
                (false, false) => &mut other_hits,
            };
            *counter += 1;
        }
        hits += count;
        empty += u64::from(count == 0);
    }
    println!(
        "{queries} searches: {hits} hits, {empty} without any; {other_hits} by words differ, {other_totals} in what is counted \
         alone, {other_nearest} by meaning"
    );
    assert!(hits > 0, "nothing is found");
    assert!(other_hits + other_totals == 0, "searches differ from one instance's");
    // Of very many vectors the nearest are found nearly always: now and then a graph over some of them finds one more.
    let nearest_max = if file.is_some() { queries / 500 } else { 0 };
    assert!(other_nearest <= nearest_max, "searches by meaning differ from one instance's");
}

/// An answer in which every instance has a part; on a busy machine one may be late now and then.
fn whole_answer(host: &Host, path: &str, query: &Value) -> Value {
    for _ in 0..5 {
        let (status, found) = ask(host, "POST", path, query).expect("an instance answers");
        assert_eq!(status, 200, "{query}: {found}");
        if found["remoteErrors"] == json!({}) {
            return found;
        }
        println!("an answer is partial: {}", found["remoteErrors"]);
    }
    panic!("no answer is whole: {query}");
}

/// Prints the first difference.
fn differ(found: &Map<String, Value>, wanted: &Map<String, Value>) {
    for (name, value) in wanted {
        let other = &found.get(name).cloned().unwrap_or_default();
        if let (Some(hits), Some(others)) = (value.as_array(), other.as_array()) {
            let at = hits.iter().zip(others).position(|(hit, other)| hit != other);
            println!("{name}: {} and {} over the network; first at {at:?}", hits.len(), others.len());
            if let Some(at) = at {
                println!("one: {}\nnetwork: {}", hits[at], others[at]);
            }
        } else if value != other {
            println!("{name}: {value}, over the network {other}");
        }
    }
}
