//! Clients that send garbage, half requests, or nothing at all: each gets an error object or a closed connection, the
//! server's memory stays bounded, and other clients notice nothing.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The helpers are shared with the replayer, which uses more of them.
#![allow(dead_code)]

#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/server.rs"]
mod server;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::Server;

/// Idle connections held open; a limit of open files below it lowers it.
const IDLE_CONNECTIONS: usize = 10_000;
/// Memory that one idle connection may cost.
const IDLE_BYTES_MAX: u64 = 16 << 10;

struct Fixture {
    server: Server,
    _folder: tempfile::TempDir,
}

fn start() -> Fixture {
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("main");
    let server = Server::start(&binary, "--cores 2", &json!({}), place, folder.path()).expect("it starts");
    Fixture { server, _folder: folder }
}

/// Sends bytes as they are and reads until the server closes or is silent for two seconds.
fn exchange(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a time limit can be set");
    // The server may close before it has read everything: then there is nothing more to write.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..n]);
    }
    answer
}

fn status(answer: &[u8]) -> Option<u16> {
    String::from_utf8_lossy(answer).split(' ').nth(1)?.parse().ok()
}

fn assert_healthy(port: u16) {
    let began = Instant::now();
    let answer = client::send(port, "GET", "/health", &[], None).expect("the server answers");
    assert_eq!(answer.status, 200);
    assert!(began.elapsed() < Duration::from_secs(1), "health took {:?}", began.elapsed());
}

fn resident_bytes(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn bad_bodies_get_the_error_object() {
    let fixture = start();
    let port = fixture.server.port;
    let cases: [(&str, &str, &str, u16, &str); 8] = [
        ("/indexes", "application/json", "{\"uid\":", 400, "malformed_payload"),
        ("/indexes", "application/json", "", 400, "missing_payload"),
        ("/indexes", "application/json", "[]", 400, "bad_request"),
        ("/indexes", "application/json", "{\"uid\":7}", 400, "invalid_index_uid"),
        ("/indexes", "text/plain", "{}", 415, "invalid_content_type"),
        ("/indexes/a/documents", "application/json", "[{\"id\":1},", 400, "malformed_payload"),
        ("/indexes/a/documents", "text/csv", "id,name\n1\n", 400, "malformed_payload"),
        ("/indexes/a/search", "application/json", "{\"limit\":-1}", 400, "invalid_search_limit"),
    ];
    for (path, kind, body, want, code) in cases {
        let headers = [("Content-Type".to_owned(), kind.to_owned())];
        let answer = client::send(port, "POST", path, &headers, Some(body.as_bytes())).expect("an answer");
        let object: Value = serde_json::from_slice(&answer.body).expect("an error object");
        assert_eq!((answer.status, object["code"].as_str()), (want, Some(code)), "{path} {body}: {object}");
        for field in ["message", "code", "type", "link"] {
            assert!(object[field].is_string(), "{field} of {object}");
        }
    }
    assert_healthy(port);
}

#[test]
fn bad_framing_is_refused_and_hurts_nobody() {
    let fixture = start();
    let port = fixture.server.port;
    let huge = format!("GET /health HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET /health HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100_000));
    let refused: [&[u8]; 8] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /indexes HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /indexes HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /indexes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        huge.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in refused {
        let answer = exchange(port, bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(
            status(&answer).is_none_or(|status| (400..600).contains(&status)),
            "{shown:?} was taken: {:?}",
            status(&answer)
        );
        assert_healthy(port);
    }
    // Half a body, then gone.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts");
    let head = "POST /indexes/a/documents HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n[{";
    stream.write_all(head.as_bytes()).expect("it takes the head");
    drop(stream);
    assert_healthy(port);
    let tasks = client::send(port, "GET", "/tasks", &[], None).expect("an answer");
    assert_eq!(serde_json::from_slice::<Value>(&tasks.body).expect("JSON")["total"], 0, "half a body became a task");
}

/// Gzip members in which nothing is: a megabyte of them takes a tenth of a second, and no byte comes out.
#[test]
fn bodies_that_unpack_to_nothing_hold_nobody() {
    let fixture = start();
    let port = fixture.server.port;
    let empty = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default()).finish().expect("a member");
    let body = empty.repeat((24 << 20) / empty.len());
    let headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    for path in ["/indexes/a/documents", "/health"] {
        std::thread::scope(|scope| {
            let method = if path == "/health" { "GET" } else { "POST" };
            let sender = scope.spawn(|| client::send(port, method, path, &headers, Some(&body)));
            while !sender.is_finished() {
                assert_healthy(port);
            }
            // Where nobody reads the body the server may close before all of it came.
            let answer = sender.join().expect("it does not panic");
            assert!(path == "/health" || answer.expect("an answer").status == 400);
        });
    }
}

/// A page of a few kilobytes that names one long document again and again.
#[test]
fn foreign_documents_do_not_fill_the_memory() {
    let mut fixture = start();
    let port = fixture.server.port;
    let json = [("Content-Type".to_owned(), "application/json".to_owned())];
    let send = |method: &str, path: &str, body: Value| {
        let answer = client::send(port, method, path, &json, Some(body.to_string().as_bytes())).expect("an answer");
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap_or_default())
    };
    send("PATCH", "/experimental-features", json!({"foreignKeys": true}));
    send("POST", "/indexes/long/documents", json!([{"id": 1, "text": "birch ".repeat(40_000)}]));
    let key = json!([{"fieldName": "refs", "foreignIndexUid": "long"}]);
    send("PATCH", "/indexes/a/settings", json!({"foreignKeys": key}));
    let (_, task) = send(
        "POST",
        "/indexes/a/documents",
        json!([{"id": 1, "refs": vec![1; 100]}, {"id": 2, "refs": vec![1; 4000]}]),
    );
    loop {
        let (_, shown) = send("GET", &format!("/tasks/{}", task["taskUid"]), Value::Null);
        match shown["status"].as_str() {
            Some("succeeded") => break,
            Some("enqueued" | "processing") => std::thread::sleep(Duration::from_millis(20)),
            _ => panic!("{shown}"),
        }
    }
    let search = |offset: u32| send("POST", "/indexes/a/search", json!({"limit": 1, "offset": offset}));
    let (status, page) = search(0);
    assert_eq!((status, page["hits"][0]["refs"][99]["id"].as_u64()), (200, Some(1)));
    let before = resident_bytes(fixture.server.process().expect("it runs"));
    let (status, refused) = search(1);
    assert_eq!((status, refused["code"].as_str()), (413, Some("payload_too_large")), "{refused}");
    let grown = resident_bytes(fixture.server.process().expect("it runs")).saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes more");
    assert_healthy(port);
}

#[test]
fn slow_and_idle_clients_cost_little() {
    let mut fixture = start();
    let port = fixture.server.port;
    let limit = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limit
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    let count = IDLE_CONNECTIONS.min(files.unwrap_or(1024).saturating_sub(200));
    let process = fixture.server.process().expect("it runs");
    assert_healthy(port);
    let before = resident_bytes(process);
    let idle: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it accepts")).collect();
    let mut slow = TcpStream::connect(("127.0.0.1", port)).expect("it accepts");
    for byte in b"GET /health HT" {
        slow.write_all(&[*byte]).expect("it takes a byte");
        assert_healthy(port);
    }
    let grown = resident_bytes(process).saturating_sub(before);
    assert!(grown < count as u64 * IDLE_BYTES_MAX, "{count} idle connections cost {grown} bytes");
    println!("{count} idle connections: {} bytes each", grown / count.max(1) as u64);
    slow.write_all(b"TP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it takes the rest");
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).expect("it answers");
    assert_eq!(status(&answer), Some(200));
    drop(idle);
    assert_healthy(port);
}
