//! Personalized searches: what a service is told, what becomes of its answer, and of a search that it fails.

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

use std::path::Path;
use std::time::{Duration, Instant};

use mocks::Mock;
use serde_json::{Value, json};
use server::Server;

const KEY: [&str; 2] = ["--experimental-personalization-api-key", "secret"];
const LOOPBACK: [&str; 2] = ["--experimental-allowed-ip-networks", "127.0.0.0/8"];

/// Status and body.
fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let body = (!body.is_null()).then(|| body.to_string());
    let answer = client::send(server.port, method, path, &headers, body.as_deref().map(str::as_bytes));
    let answer = answer.expect("a started server answers");
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// The body of a good answer.
fn good(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(server, method, path, body);
    assert!(status < 300, "{method} {path} {body}: {status} {answer}");
    answer
}

/// Has a task done that a request makes.
fn work(server: &Server, method: &str, path: &str, body: &Value) {
    let task = good(server, method, path, body)["taskUid"].clone();
    for _ in 0..1500 {
        let task = good(server, "GET", &format!("/tasks/{task}"), &Value::Null);
        match task["status"].as_str() {
            Some("succeeded") => return,
            Some("enqueued" | "processing") => std::thread::sleep(Duration::from_millis(20)),
            _ => panic!("{method} {path}: {task}"),
        }
    }
    panic!("{method} {path} was never done");
}

/// A server whose service is at `path` of this one.
fn start(folder: &Path, service: &Mock, path: &str, arguments: &[&str]) -> Server {
    start_on("--cores 2", folder, &format!("http://127.0.0.1:{}{path}", service.port), arguments)
}

/// A server of so many cores whose service is there.
fn start_on(cores: &str, folder: &Path, url: &str, arguments: &[&str]) -> Server {
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let spec = json!({"args": arguments, "env": {"SKERRY_EXPERIMENTAL_PERSONALIZATION_URL": url}});
    Server::start(&binary, cores, &spec, folder.to_owned(), folder).expect("it starts")
}

/// The same with a key, and with three books in the index `books`, of which `secret` is displayed to nobody.
fn start_with_books(folder: &Path, service: &Mock, path: &str) -> Server {
    with_books(start(folder, service, path, &[KEY, LOOPBACK].concat()))
}

fn with_books(server: Server) -> Server {
    let settings = json!({"displayedAttributes": ["id", "title", "year"], "rankingRules": ["words", "id:asc"],
        "sortableAttributes": ["id"], "filterableAttributes": ["year"]});
    work(&server, "PATCH", "/indexes/books/settings", &settings);
    work(&server, "POST", "/indexes/books/documents", &books());
    server
}

fn books() -> Value {
    let book = |id: u64| json!({"id": id, "title": format!("book \"{id}\""), "year": 1990 + id, "secret": "hidden"});
    (1..=3).map(book).collect()
}

/// A service that gives these answers one after another, and the last again and again.
fn service(answers: Value) -> Mock {
    Mock::start(&json!({"kind": "script", "answers": answers}))
}

/// An answer that ranks documents so.
fn ranking(order: &[usize]) -> Value {
    let results = order.iter().enumerate();
    let results = results.map(|(at, index)| json!({"index": index, "relevance_score": 1.0 / (1 + at) as f64}));
    json!({"body": {"id": "x", "results": results.collect::<Value>(), "meta": {}}})
}

fn ids(answer: &Value) -> Vec<u64> {
    answer["hits"].as_array().into_iter().flatten().map(|hit| hit["id"].as_u64().expect("a book has an id")).collect()
}

/// The bodies that the service was sent.
fn questions(service: &Mock) -> Vec<Value> {
    let body = |request: &Value| serde_json::from_str(request["body"].as_str().expect("a text")).expect("JSON");
    service.seen().iter().map(body).collect()
}

#[test]
fn a_page_comes_in_the_order_of_the_service() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let service = service(json!([ranking(&[2, 0, 1]), ranking(&[2]), ranking(&[1, 0])]));
    let server = start_with_books(folder.path(), &service, "/rank");
    let search = "/indexes/books/search";
    let plain = json!({"q": "book", "showRankingScore": true, "attributesToHighlight": ["title"], "facets": ["year"]});
    let mut asked = plain.clone();
    asked["personalize"] = json!({"userContext": "likes the last"});
    // Answers that come again are kept by the server, which must not mix them up.
    for _ in 0..3 {
        assert_eq!(ids(&good(&server, "POST", search, &plain)), [1, 2, 3]);
    }
    let (mut usual, mut personal) = (good(&server, "POST", search, &plain), good(&server, "POST", search, &asked));
    assert_eq!(ids(&personal), [3, 1, 2]);
    let hits = usual["hits"].as_array().expect("a list");
    let moved: Value = [2, 0, 1].iter().map(|at: &usize| hits[*at].clone()).collect();
    assert_eq!(personal["hits"], moved);
    for changing in ["hits", "processingTimeMs", "requestUid"] {
        (usual[changing], personal[changing]) = (Value::Null, Value::Null);
    }
    assert_eq!(usual, personal);
    assert_eq!(ids(&good(&server, "POST", search, &plain)), [1, 2, 3]);

    let seen = &service.seen()[0];
    assert_eq!((&seen["method"], &seen["path"]), (&json!("POST"), &json!("/rank")));
    assert_eq!((&seen["authorization"], &seen["contentType"]), (&json!("Bearer secret"), &json!("application/json")));
    let told = |id: u64| format!("id: {id}\ntitle: book \"{id}\"\nyear: {}\n", 1990 + id);
    let question = json!({"model": "rerank-v3.5", "query": "Search: book\nUser: likes the last",
        "documents": [told(1), told(2), told(3)], "top_n": 3});
    assert_eq!(questions(&service), [question]);

    // Without words, and of two documents of the page one is named.
    let path = "/indexes/books/search?personalizeUserContext=me&attributesToRetrieve=id,secret&offset=1";
    let answer = good(&server, "GET", path, &Value::Null);
    assert_eq!(ids(&answer), [2, 3]);
    assert_eq!(questions(&service)[1]["documents"], json!(["id: 2\n", "id: 3\n"]));
    assert_eq!(questions(&service)[1]["query"], "User: me");

    // A page of none, of one, and one that shows nothing have one order.
    for (name, value) in [("limit", json!(0)), ("limit", json!(1)), ("attributesToRetrieve", json!([]))] {
        let mut asked = asked.clone();
        asked[name] = value;
        good(&server, "POST", search, &asked);
    }
    assert_eq!(service.seen().len(), 2);

    let query = |personal: bool| {
        let mut query = json!({"indexUid": "books", "q": "book", "limit": 2});
        if personal {
            query["personalize"] = json!({"userContext": "me"});
        }
        query
    };
    let queries = [false, true, false, true].map(query);
    let answer = good(&server, "POST", "/multi-search", &json!({"queries": queries}));
    let pages: Vec<Vec<u64>> = answer["results"].as_array().expect("a list").iter().map(ids).collect();
    assert_eq!(pages, [[1, 2], [2, 1], [1, 2], [2, 1]]);
    assert_eq!(service.seen().len(), 4);
    let mut inside = query(true);
    inside.as_object_mut().expect("an object").remove("limit");
    let federated = json!({"federation": {}, "queries": [inside]});
    let (status, refused) = ask(&server, "POST", "/multi-search", &federated);
    assert_eq!((status, &refused["code"]), (400, &json!("invalid_multi_search_query_personalization")));

    good(&server, "PATCH", "/experimental-features", &json!({"metrics": true}));
    let metrics = client::send(server.port, "GET", "/metrics", &[], None).expect("a started server answers");
    let metrics = String::from_utf8(metrics.body).expect("metrics are text");
    assert!(metrics.contains("meilisearch_personalized_search_requests 7\n"), "{metrics}");
}

#[test]
fn a_service_that_fails_leaves_the_usual_order() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bad = |status: u16| json!({"status": status, "body": "{\"message\": \"no\"}"});
    let service = service(json!([
        bad(503), bad(429), ranking(&[2, 1, 0]),
        bad(500), bad(500), bad(500),
        bad(401),
        {"body": "<html>"},
        {"body": {"results": [{"index": 3, "relevance_score": 1}, {"index": -1, "relevance_score": 1}]}},
        {"body": {"results": [{"index": 1}, {"index": 1}, {"index": 9}, {}]}},
        {"body": format!("{{\"results\": [{{\"index\": 2}}], \"more\": \"{}\"}}", "x".repeat(5 << 20))},
    ]));
    let server = start_with_books(folder.path(), &service, "/rank");
    let asked = json!({"q": "book", "personalize": {"userContext": "me"}});
    let search = || ids(&good(&server, "POST", "/indexes/books/search", &asked));
    // After how many requests in all, and in which order, searches are answered.
    for (requests, order) in [
        (3, [3, 2, 1]),
        (6, [1, 2, 3]),
        (7, [1, 2, 3]),
        (8, [1, 2, 3]),
        (9, [1, 2, 3]),
        (10, [2, 1, 3]),
        (11, [1, 2, 3]),
    ] {
        assert_eq!((search(), service.seen().len()), (order.to_vec(), requests));
    }
    assert_eq!(logged(folder.path(), "in the usual order", 5), 5);
    assert_eq!(logged(folder.path(), "secret", 0), 0);
}

#[test]
fn a_service_that_is_silent_holds_up_only_those_who_ask_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let service = service(json!([ranking(&[2, 1, 0])]));
    let server = start_with_books(folder.path(), &service, "/delay-30000");
    let asked = json!({"q": "book", "personalize": {"userContext": "me"}});
    let began = Instant::now();
    // More than there are places for searches and for questions.
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let (port, asked) = (server.port, asked.to_string());
            std::thread::spawn(move || {
                let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
                client::send(port, "POST", "/indexes/books/search", &headers, Some(asked.as_bytes()))
            })
        })
        .collect();
    while service.seen().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..20 {
        good(&server, "POST", "/indexes/books/search", &json!({"q": "book"}));
    }
    assert!(began.elapsed() < Duration::from_secs(4), "others waited for {:?}", began.elapsed());
    for answer in waiting {
        let answer = answer.join().expect("no client panics").expect("a started server answers");
        let body: Value = serde_json::from_slice(&answer.body).expect("answers are JSON");
        assert_eq!((answer.status, ids(&body)), (200, vec![1, 2, 3]));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// How many lines of a server's log say this. A thread writes them: as many as are expected are waited for.
fn logged(folder: &Path, text: &str, expected: usize) -> usize {
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        let log = std::fs::read_to_string(folder.join("log")).expect("the server writes a log");
        let count = log.lines().filter(|line| line.contains(text)).count();
        if count >= expected || Instant::now() > give_up {
            return count;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Each core finds out for itself; this server has one. Three questions that are not answered are enough.
#[test]
fn a_service_that_does_not_answer_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let service = service(json!([ranking(&[2, 1, 0])]));
    let (silent, refusing) = (folder.path().join("silent"), folder.path().join("refusing"));
    let arguments = [KEY, LOOPBACK].concat();
    let url = format!("http://127.0.0.1:{}/delay-30000", service.port);
    let server = with_books(start_on("--cores 1", &silent, &url, &arguments));
    let asked = json!({"q": "book", "personalize": {"userContext": "me"}, "showPerformanceDetails": true});
    let query = |server: &Server| {
        let began = Instant::now();
        let answer = good(server, "POST", "/indexes/books/search", &asked);
        assert_eq!(ids(&answer), [1, 2, 3]);
        assert!(answer["performanceDetails"]["search > personalization"].is_string(), "{answer}");
        began.elapsed()
    };
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| query(&server))).collect();
        for query in waiting {
            let took = query.join().expect("no client panics");
            assert!(took > Duration::from_secs(4), "{took:?}");
        }
    });
    let began = Instant::now();
    for _ in 0..20 {
        query(&server);
    }
    let queries: Value = (0..20).map(|_| json!({"indexUid": "books", "personalize": {"userContext": "me"}})).collect();
    good(&server, "POST", "/multi-search", &json!({"queries": queries}));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(service.seen().len(), 3);
    assert_eq!(logged(&silent, "in the usual order", 3), 3);
    assert_eq!(logged(&silent, "is not asked for a while", 1), 1);

    // Nobody listens where the service was: to find that out takes some tries each time.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let url = format!("http://127.0.0.1:{port}/rank");
    let server = with_books(start_on("--cores 1", &refusing, &url, &arguments));
    for _ in 0..10 {
        query(&server);
    }
    assert_eq!(logged(&refusing, "in the usual order", 3), 3);
    assert_eq!(logged(&refusing, "is not asked for a while", 1), 1);
}

#[test]
fn without_a_key_or_a_way_nobody_is_asked() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let service = service(json!([ranking(&[2, 1, 0])]));
    let mut server = start(folder.path(), &service, "/rank", &LOOPBACK);
    work(&server, "POST", "/indexes/books/documents", &books());
    let asked = json!({"personalize": {"userContext": "me"}});
    let code = |path: &str, body: &Value| ask(&server, "POST", path, body).1["code"].clone();
    assert_eq!(code("/indexes/books/search", &asked), "feature_not_enabled");
    assert_eq!(code("/indexes/none/search", &asked), "index_not_found");
    assert_eq!(code("/indexes/books/search", &json!({"personalize": {}})), "invalid_search_personalize");
    let query = json!({"indexUid": "books", "personalize": {"userContext": "me"}});
    assert_eq!(code("/multi-search", &json!({"queries": [query]})), "feature_not_enabled");

    // The service is in no public network.
    server.restart(&json!({"restart": "term", "args": KEY})).expect("it starts again");
    assert_eq!(ids(&good(&server, "POST", "/indexes/books/search", &asked)), [1, 2, 3]);
    assert_eq!(service.seen(), [] as [Value; 0]);
}

#[test]
fn a_page_of_a_network_is_put_in_order_once() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let service = service(json!([ranking(&[2, 1, 0])]));
    let arguments = [KEY, LOOPBACK].concat();
    let [a, b] = ["a", "b"].map(|name| start(&folder.path().join(name), &service, "/rank", &arguments));
    for server in [&a, &b] {
        good(server, "PATCH", "/experimental-features", &json!({"network": true}));
    }
    let url = |server: &Server| json!({"url": format!("http://127.0.0.1:{}", server.port)});
    let network = json!({"self": "a", "leader": "a", "remotes": {"a": url(&a), "b": url(&b)},
        "shards": {"s1": {"remotes": ["a"]}, "s2": {"remotes": ["b"]}}});
    good(&a, "PATCH", "/network", &network);
    let many: Value = (1..=30).map(|id| json!({"id": id})).collect();
    work(&a, "PATCH", "/indexes/books/settings", &json!({"rankingRules": ["id:asc"], "sortableAttributes": ["id"]}));
    work(&a, "POST", "/indexes/books/documents", &many);
    let search = |personal: bool| {
        let mut asked = json!({"limit": 3, "useNetwork": true});
        if personal {
            asked["personalize"] = json!({"userContext": "me"});
        }
        ids(&good(&a, "POST", "/indexes/books/search", &asked))
    };
    // The other instance does its part of a task in its own time.
    let give_up = Instant::now() + Duration::from_secs(30);
    while search(false) != [1, 2, 3] {
        assert!(Instant::now() < give_up, "the other instance has not done its part");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(search(true), [3, 2, 1]);
    let questions = questions(&service);
    assert_eq!(questions.len(), 1);
    assert!(!questions[0].to_string().contains("_federation"), "{questions:?}");
}
