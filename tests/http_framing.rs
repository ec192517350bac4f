//! Malformed, ambiguous, cut, pipelined, oversized and slow requests against the real sockets of one core, answered by a
//! service that echoes what it understood.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod one_core;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};
use skerry::http::{BodyError, Head, Request, Response, ResponseBody, Service};
use skerry::net::{Attendance, Limits};

use self::one_core::OneCore;

const BODY_LIMIT: u64 = 100_000;

/// Answers with what it was asked. `/secret` is refused before the body, `/panic` panics, `/stream` sends pieces, `/large`
/// sends a megabyte.
#[derive(Clone, Copy)]
struct Echo;

impl Service for Echo {
    fn admit(&self, head: &Head) -> Result<u64, Response> {
        if head.path == "/secret" { Err(Response::from_json(401, &json!({"code": "no"}))) } else { Ok(BODY_LIMIT) }
    }

    fn call(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        async move {
            match request.path.as_str() {
                "/panic" => panic!("asked for"),
                "/large" => Response::json(200, vec![b'1'; 1 << 20]),
                "/stream" => {
                    let pieces = futures_util::stream::iter([b"one".to_vec(), Vec::new(), b"two".to_vec()]);
                    Response { status: 200, headers: Vec::new(), body: ResponseBody::Stream(Box::pin(pieces)) }
                }
                _ => echo(&request),
            }
        }
        .boxed_local()
    }
}

fn echo(request: &Request) -> Response {
    let body = match &request.body {
        Ok(bytes) => json!(String::from_utf8_lossy(bytes)),
        Err(BodyError::TooLarge { announced, compressed, .. }) => {
            return Response::from_json(413, &json!({"announced": announced, "compressed": compressed}));
        }
        Err(BodyError::Undecodable { encoding }) => return Response::from_json(400, &json!({"encoding": encoding})),
        Err(BodyError::TooManyValues) => return Response::empty(413),
    };
    Response::from_json(
        200,
        &json!({"method": request.method.as_str(), "path": request.path, "query": request.query, "body": body}),
    )
}

/// A server that echoes.
struct Server {
    core: OneCore,
}

impl Server {
    fn start() -> Server {
        Server::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Server {
        Server { core: OneCore::serve(Echo, limits, None) }
    }

    fn connect(&self) -> TcpStream {
        self.core.connect()
    }

    /// Everything the server says to `input` on one connection, the client having closed its side.
    fn say(&self, input: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(input).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn status(&self, input: &[u8]) -> u16 {
        let answer = self.say(input);
        answer.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no status in {answer:?}"))
    }
}

/// Reads one answer with a `Content-Length`.
fn read_answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

fn json_of(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut request =
        format!("POST {path} HTTP/1.1\r\nHost: h\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    request.extend_from_slice(body);
    request
}

#[test]
fn a_connection_answers_many_requests() {
    let server = Server::start();
    let mut stream = server.connect();
    for round in 0..50 {
        stream.write_all(&post(&format!("//a//{round}/?x=1"), "", b"body")).unwrap();
        let (head, body) = read_answer(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\nDate: "), "{head}");
        assert_eq!(
            json_of(&body),
            json!({"method": "POST", "path": format!("/a/{round}"), "query": "x=1", "body": "body"})
        );
    }
}

/// However a request is cut, it is understood the same.
#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    let request = b"\r\nPOST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n";
    for byte in request {
        stream.write_all(&[*byte]).unwrap();
        std::thread::park_timeout(Duration::from_micros(200));
    }
    assert_eq!(json_of(&read_answer(&mut stream).1)["body"], "abcde");
    stream.write_all(&get("/b")).unwrap();
    assert_eq!(json_of(&read_answer(&mut stream).1)["path"], "/b");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start();
    let mut stream = server.connect();
    let mut input = Vec::new();
    for round in 0..200 {
        input.extend(post(&format!("/{round}"), "", format!("body {round}").as_bytes()));
        input.extend(get("/get"));
    }
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&input).unwrap());
    for round in 0..200 {
        let body = json_of(&read_answer(&mut stream).1);
        assert_eq!(
            (body["path"].as_str(), body["body"].as_str()),
            (Some(&*format!("/{round}")), Some(&*format!("body {round}")))
        );
        assert_eq!(json_of(&read_answer(&mut stream).1)["path"], "/get");
    }
    writing.join().unwrap();
}

/// Each of these could be read in two ways, or is no HTTP. The answer is a status alone and the end of the connection,
/// so that nothing behind it is taken for a request.
#[test]
fn ambiguous_requests_are_refused_and_end_the_connection() {
    let server = Server::start();
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    let cases = [
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\nabc"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 3\r\n\r\nabc"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcde"),
        (400, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n"),
        (400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n\r\n"),
        (400, "GET / HTTP/1.1\nHost: h\n\n"),
        (400, "\u{16}\u{3}\u{1}\u{2}"),
        (417, "POST / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\nContent-Length: 3\r\n\r\nabc"),
        (501, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (505, "GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
    ];
    for (status, input) in cases {
        let answer = server.say(format!("{input}{smuggled}").as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{input:?}: {answer}");
        assert!(answer.contains("Connection: close\r\n") && !answer.contains("smuggled"), "{input:?}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{input:?}: {answer}");
    }
}

#[test]
fn heads_have_bounds() {
    let server = Server::start();
    assert_eq!(server.status(&get(&format!("/{}", "a".repeat(60_000)))), 200);
    assert_eq!(server.status(&get(&format!("/{}", "a".repeat(66_000)))), 414);
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert_eq!(server.status(many.as_bytes()), 431);
    let large = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "b".repeat(80_000));
    assert_eq!(server.status(large.as_bytes()), 431);
}

/// A client that sends more than it may must still be able to read why, although it reads only after it has sent all.
#[test]
fn oversized_bodies_are_answered_after_they_were_sent() {
    let server = Server::start();
    let body = vec![b'x'; 4_000_000];
    let answer = server.say(&post("/a", "", &body));
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"announced\":true"), "{answer}");
    let mut chunked = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3D0900\r\n".to_vec();
    chunked.extend_from_slice(&body);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    let answer = server.say(&chunked);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"announced\":false"), "{answer}");
    assert_eq!(server.status(&post("/a", "", &body[..BODY_LIMIT as usize])), 200);
}

#[test]
fn packed_bodies_are_unpacked_and_counted_unpacked() {
    let server = Server::start();
    let pack = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    };
    let answer = server.say(&post("/a", "Content-Encoding: GZIP\r\n", &pack(b"plain text")));
    assert!(answer.contains("\"body\":\"plain text\""), "{answer}");
    let bomb = pack(&vec![b'0'; 50_000_000]);
    assert!(bomb.len() < BODY_LIMIT as usize);
    let answer = server.say(&post("/a", "Content-Encoding: gzip\r\n", &bomb));
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"compressed\":true"), "{answer}");
    assert_eq!(server.status(&post("/a", "Content-Encoding: br\r\n", b"not brotli at all")), 400);
    assert_eq!(server.status(&post("/a", "Content-Encoding: zstd\r\n", b"as it stands")), 200);
}

#[test]
fn a_client_that_waits_to_be_told_is_told() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(b"POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"abc").unwrap();
    assert_eq!(json_of(&read_answer(&mut stream).1)["body"], "abc");
    // What is refused anyway is not asked for.
    let mut stream = server.connect();
    stream.write_all(b"POST /secret HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").unwrap();
    let (head, _) = read_answer(&mut stream);
    assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("Connection: close"), "{head}");
}

#[test]
fn a_refusal_before_the_body_keeps_the_connection() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(&post("/secret", "", &[b'x'; 50_000])).unwrap();
    assert!(read_answer(&mut stream).0.starts_with("HTTP/1.1 401 "));
    stream.write_all(&get("/next")).unwrap();
    assert_eq!(json_of(&read_answer(&mut stream).1)["path"], "/next");
}

#[test]
fn a_panic_is_one_answer_and_not_the_end() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(&get("/panic")).unwrap();
    let (head, body) = read_answer(&mut stream);
    assert!(head.starts_with("HTTP/1.1 500 "));
    assert_eq!(json_of(&body)["code"], "internal");
    stream.write_all(&get("/next")).unwrap();
    assert_eq!(json_of(&read_answer(&mut stream).1)["path"], "/next");
}

#[test]
fn streams_are_sent_as_chunks_or_to_the_end() {
    let server = Server::start();
    let answer = server.say(&get("/stream"));
    // The client's side is closed already, so the stream may end early; with the side open it is whole.
    assert!(answer.contains("Transfer-Encoding: chunked\r\n"), "{answer}");
    let mut stream = server.connect();
    stream.write_all(b"GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"), "{answer}");
    let mut stream = server.connect();
    stream.write_all(b"GET /stream HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nonetwo") && !answer.contains("chunked"), "{answer}");
}

#[test]
fn answers_are_compressed_when_asked_and_then_vary_by_that() {
    let server = Server::start();
    for path in ["/small", "/large"] {
        let mut stream = server.connect();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n").as_bytes())
            .unwrap();
        let (head, body) = read_answer(&mut stream);
        assert!(head.contains("Content-Encoding: gzip\r\nVary: accept-encoding\r\n"), "{head}");
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
        assert!(plain.len() == 1 << 20 || json_of(&plain)["path"] == "/small");
    }
}

#[test]
fn preflights_and_heads_have_no_body() {
    let server = Server::start();
    let answer = server
        .say(b"OPTIONS /x HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = server.say(b"HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn slow_heads_and_bodies_get_408_and_idle_connections_nothing() {
    let limits = Limits { head_ms: 300, idle_ms: 300, transfer_ms: 300, ..Limits::default() };
    let server = Server::with_limits(limits);
    for slow in ["GET / HTTP/1.1\r\nHost:", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc"] {
        let mut stream = server.connect();
        stream.write_all(slow.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{slow:?}: {answer:?}");
    }
    let mut stream = server.connect();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "");
    stream = server.connect();
    stream.write_all(&get("/a")).unwrap();
    read_answer(&mut stream);
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "");
}

/// A client that asks for much and reads nothing must not keep its answer in memory for ever.
#[test]
fn a_client_that_does_not_read_is_dropped() {
    let limits = Limits { transfer_ms: 300, transfer_rate_min: u64::MAX, ..Limits::default() };
    let server = Server::with_limits(limits);
    let mut stream = server.connect();
    let mut input = Vec::new();
    for _ in 0..100 {
        input.extend(get("/large"));
    }
    stream.write_all(&input).unwrap();
    std::thread::park_timeout(Duration::from_millis(1500));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 50 << 20, "{} bytes came", answer.len());
}

#[test]
fn bodies_share_a_bounded_memory() {
    let limits = Limits { body_bytes_max: 80_000, ..Limits::default() };
    let server = Server::with_limits(limits);
    assert_eq!(server.status(&post("/a", "", &[b'x'; 90_000])), 503);
    assert_eq!(server.status(&post("/a", "", &[b'x'; 1000])), 200);
}

#[test]
fn connections_beyond_the_limit_wait_for_their_turn() {
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let server = Server::with_limits(limits);
    let mut first = server.connect();
    let mut second = server.connect();
    for stream in [&mut first, &mut second] {
        stream.write_all(&get("/a")).unwrap();
        read_answer(stream);
    }
    let mut third = server.connect();
    third.write_all(&get("/third")).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(third.read(&mut [0]).is_err(), "a third connection was served beside two");
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(json_of(&read_answer(&mut third).1)["path"], "/third");
}

#[test]
fn a_stop_ends_idle_connections_and_refuses_new_ones() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(&get("/a")).unwrap();
    read_answer(&mut stream);
    let address = server.core.address;
    drop(server);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert!(TcpStream::connect(address).is_err());
}

/// A core without connections once left at once, and what others were still answering failed for want of its part.
#[test]
fn a_core_stays_while_another_is_needed() {
    let all = Attendance::of(2);
    let other = all.attend();
    let server = OneCore::serve_among(Echo, Limits::default(), None, all.attend());
    drop(server.connect());
    let began = Instant::now();
    let leaving = std::thread::spawn(move || {
        std::thread::park_timeout(Duration::from_millis(700));
        let left = began.elapsed();
        drop(other);
        left
    });
    drop(server);
    let ended = began.elapsed();
    let left = leaving.join().unwrap();
    assert!(ended >= left && ended < left + Duration::from_secs(2), "{ended:?} {left:?}");
}

#[test]
fn an_address_in_use_is_named() {
    let server = Server::start();
    drop(server.connect());
    let error = skerry::net::bind(&server.core.address.to_string(), 1).err().unwrap();
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(skerry::net::bind("nothing", 1).is_err());
}

/// The listeners of several cores share one port, and the server still refuses to start beside itself.
#[test]
fn cores_share_a_port_but_servers_do_not() {
    let (cores, addresses) = skerry::net::bind("127.0.0.1:0", 3).unwrap();
    assert_eq!((cores.len(), addresses.len()), (3, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever a client sends, the server answers something or closes, and then serves the next client.
    #[test]
    fn garbage_does_not_stop_the_server(lines in proptest::collection::vec("[ -~]{0,20}(\r\n|\n|: |\r\n\r\n)", 0..12)) {
        thread_local! { static SERVER: Server = Server::start(); }
        SERVER.with(|server| {
            server.say(lines.concat().as_bytes());
            let mut hostile = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            hostile.extend(lines.concat().into_bytes());
            server.say(&hostile);
            let mut stream = server.connect();
            stream.write_all(&get("/alive")).unwrap();
            assert_eq!(json_of(&read_answer(&mut stream).1)["path"], "/alive");
        });
    }
}
