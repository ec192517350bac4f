//! The client on the real executor against servers of the test's own on loopback: what they say is written by the test,
//! byte by byte.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shards::runtime::Runtime;

use super::tls::{Tls, trusting};
use super::*;
use crate::http::Method;
use crate::on_core::on_core;
use crate::options::values::AllowedNetworks;

const SECOND: Duration = Duration::from_secs(1);

fn client(runtime: &Rc<dyn Runtime>, allowed: &str) -> Client {
    let policy = AddressPolicy::new(allowed.parse().unwrap_or(AllowedNetworks::PublicOnly));
    Client::new(runtime.clone(), Rc::new(SystemSockets::new(runtime.clone(), Names::start().unwrap())), policy)
}

fn get(url: String) -> Request {
    Request::new(Method::Get, Url::parse(&url).unwrap(), Deadlines::all(5 * SECOND))
}

fn post(url: String, body: Vec<u8>) -> Request {
    Request::new(Method::Post, Url::parse(&url).unwrap(), Deadlines::all(5 * SECOND)).body("text/plain", body)
}

/// A server whose n-th connection is handled by `handle`, until that returns.
fn server(mut handle: impl FnMut(usize, TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(10 * SECOND)).unwrap();
            handle(number, stream);
        }
    });
    address
}

/// Reads one request: its head, and as many bytes of body as it says.
fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body))
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers every request of every connection with the next of `answers`; the requests are kept.
fn scripted(answers: &[&'static str]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let (seen, mut answers) = (Arc::new(Mutex::new(Vec::new())), VecDeque::from(answers.to_vec()));
    let kept = seen.clone();
    let address = server(move |number, mut stream| {
        while let Some(request) = read_request(&mut stream) {
            kept.lock().unwrap().push(format!("{number} {request}"));
            let Some(answer) = answers.pop_front() else { return };
            stream.write_all(answer.as_bytes()).unwrap();
            if answer.contains("Connection: close") {
                break;
            }
        }
    });
    (address, seen)
}

#[test]
fn one_connection_serves_many_requests_and_their_bodies() {
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX-Trailer: y\r\n\r\n";
    const EARLY: &str = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
    const CLOSING: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end";
    let (address, seen) = scripted(&[OK, CHUNKED, EARLY, CLOSING, OK]);
    let kept = seen.clone();
    on_core(move |runtime| {
        async move {
            let client = client(&runtime, "127.0.0.0/8");
            let ask = |path: &str| client.fetch(get(format!("http://{address}{path}")), 100);
            let mut answers = Vec::new();
            for path in ["/1", "/2", "/3", "/4", "/5"] {
                let answer = ask(path).await.unwrap();
                answers.push((answer.status, String::from_utf8(answer.body).unwrap()));
            }
            let expected = [(200, "ok"), (200, "abcde"), (404, ""), (200, "to the end"), (200, "ok")];
            assert_eq!(answers, expected.map(|(status, body)| (status, body.to_owned())));
            assert_eq!(client.idle_count(), 1);
        }
        .boxed_local()
    });
    let connections: Vec<String> = seen.lock().unwrap().iter().map(|request| request[..7].to_owned()).collect();
    assert_eq!(connections, ["0 GET /", "0 GET /", "0 GET /", "0 GET /", "1 GET /"]);
    drop(kept);
}

#[test]
fn addresses_are_checked_where_names_and_redirects_lead() {
    let (inner, seen) = scripted(&[OK]);
    on_core(move |runtime| {
        async move {
            let closed = client(&runtime, "");
            for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"] {
                let refused = closed.fetch(get(format!("http://{host}:{}/", inner.port())), 100).await;
                assert!(matches!(refused, Err(SendError::Forbidden { .. })), "{host}: {refused:?}");
                // An export to an address that is never allowed was tried again for a quarter of an hour.
                assert_eq!(refused.is_err_and(|error| error.is_transient()), host == "localhost", "{host}");
            }
            // 127.0.0.2 may be called, and leads to where nothing may be called.
            let open = client(&runtime, "127.0.0.2");
            let lure = TcpListener::bind("127.0.0.2:0").unwrap();
            let from = lure.local_addr().unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = lure.accept().unwrap();
                read_request(&mut stream);
                write!(stream, "HTTP/1.1 302 Found\r\nLocation: http://{inner}/\r\nContent-Length: 0\r\n\r\n").unwrap();
            });
            let refused = open.fetch(get(format!("http://{from}/")), 100).await;
            assert!(matches!(refused, Err(SendError::Forbidden { .. })), "{refused:?}");
            let named = client(&runtime, "any").fetch(get(format!("http://localhost:{}/", inner.port())), 100).await;
            assert_eq!(named.unwrap().status, 200);
        }
        .boxed_local()
    });
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn redirects_are_followed_so_often_and_no_more() {
    let away = "HTTP/1.1 307 Away\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n";
    let (address, seen) = scripted(&[away, away, OK, away, away, away]);
    on_core(move |runtime| {
        async move {
            let client = client(&runtime, "any");
            let request = post(format!("http://{address}/first"), b"body".to_vec()).redirects_max(2);
            assert_eq!(client.fetch(request.clone(), 100).await.unwrap().body, b"ok");
            assert_eq!(client.fetch(request.clone(), 100).await.unwrap_err(), SendError::Redirects(2));
        }
        .boxed_local()
    });
    let seen = seen.lock().unwrap();
    assert!(seen[2].contains("POST /next HTTP/1.1") && seen[2].ends_with("body"), "{}", seen[2]);
}

/// What changes something is not sent again behind the caller's back; what does not, is.
#[test]
fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let half_deaf = || {
        server(|number, mut stream| {
            read_request(&mut stream).unwrap();
            stream.write_all(OK.as_bytes()).unwrap();
            if number == 0 {
                // Takes the second request without a word.
                read_request(&mut stream);
            }
        })
    };
    let (first, second) = (half_deaf(), half_deaf());
    on_core(move |runtime| {
        async move {
            let client = client(&runtime, "any");
            for _ in 0..2 {
                assert_eq!(client.fetch(get(format!("http://{first}/")), 100).await.unwrap().status, 200);
            }
            let request = post(format!("http://{second}/"), b"x".to_vec());
            assert_eq!(client.fetch(request.clone(), 100).await.unwrap().status, 200);
            let broken = client.fetch(request, 100).await.unwrap_err();
            assert!(matches!(&broken, SendError::Broken(_)) && !broken.is_before_sending());
        }
        .boxed_local()
    });
}

#[test]
fn deadlines_hold_in_each_phase() {
    let silent = server(|_, stream| std::mem::forget(stream));
    let dripping = server(|_, mut stream| {
        read_request(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").unwrap();
        while stream.write_all(b"x").is_ok() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    on_core(move |runtime| {
        async move {
            let client = client(&runtime, "any");
            let millis = Duration::from_millis;
            let deadlines = Deadlines { connect: SECOND, idle: millis(60), total: millis(300) };
            let ask = async |address: SocketAddr| {
                let request = Request::new(Method::Get, Url::parse(&format!("http://{address}/")).unwrap(), deadlines);
                client.fetch(request, 1000).await.unwrap_err()
            };
            assert_eq!(ask(silent).await, SendError::TimedOut(Phase::Transfer));
            let before = runtime.now();
            assert_eq!(ask(dripping).await, SendError::TimedOut(Phase::Total));
            assert!(runtime.now().since(before) < millis(900));
        }
        .boxed_local()
    });
}

#[test]
fn answers_have_bounds_and_ends() {
    let (address, _) = scripted(&[
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n123",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
        "HTTP/1.1 101 Switching\r\nConnection: close\r\n\r\n",
        "nonsense, Connection: close\r\n\r\n",
    ]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    on_core(move |runtime| {
        async move {
            let client = client(&runtime, "any");
            let ask = |limit| client.fetch(get(format!("http://{address}/")), limit);
            assert_eq!(ask(4).await.unwrap_err(), SendError::TooLarge { limit: 4 });
            assert!(matches!(ask(9).await.unwrap_err(), SendError::Broken(_)));
            for _ in 0..3 {
                assert!(matches!(ask(9).await.unwrap_err(), SendError::Malformed(_)));
            }
            let refused = client.fetch(get(format!("http://{nobody}/")), 9).await.unwrap_err();
            assert!(matches!(refused, SendError::Connect(_)) && refused.is_before_sending());
            let unknown = client.fetch(get("ftp://127.0.0.1/".into()), 9).await.unwrap_err();
            assert!(matches!(unknown, SendError::Url(_)));
            let unnamed = client.fetch(get("http://no-such-name.invalid/".into()), 9).await.unwrap_err();
            assert!(matches!(unnamed, SendError::Resolve { .. } | SendError::TimedOut(_)), "{unnamed}");
        }
        .boxed_local()
    });
}

/// A server that answers before it has read a large body, and reads no further, must not hang the request.
#[test]
fn an_early_answer_ends_the_sending() {
    let address = server(|_, mut stream| {
        let mut start = [0; 1024];
        stream.read_exact(&mut start).unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig").unwrap();
        std::thread::park_timeout(Duration::from_millis(200));
    });
    on_core(move |runtime| {
        async move {
            let client = client(&runtime, "any");
            let answer = client.fetch(post(format!("http://{address}/"), vec![b'x'; 32 << 20]), 100).await.unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (413, &b"big"[..]));
            assert_eq!(client.idle_count(), 0);
        }
        .boxed_local()
    });
}

/// A body streams: its first part is there while the last is not yet written.
#[test]
fn bodies_are_read_as_they_arrive() {
    let (go, wait) = std::sync::mpsc::channel();
    let address = server(move |_, mut stream| {
        read_request(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").unwrap();
        wait.recv_timeout(5 * SECOND).unwrap();
        stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    });
    on_core(move |runtime| {
        async move {
            let mut answer = client(&runtime, "any").send(get(format!("http://{address}/"))).await.unwrap();
            assert_eq!(answer.body.chunk().await.unwrap().unwrap(), b"first");
            go.send(()).unwrap();
            assert_eq!(answer.body.chunk().await.unwrap().unwrap(), b"last");
            assert_eq!(answer.body.chunk().await.unwrap(), None);
        }
        .boxed_local()
    });
}

/// Names are checked against the certificate, and certificates against the authorities.
#[test]
fn tls_checks_the_other_side() {
    let chain: Vec<CertificateDer> =
        CertificateDer::pem_slice_iter(include_bytes!("leaf.pem")).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("leaf.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let address = server(move |_, stream| {
        let session = rustls::ServerConnection::new(config.clone()).unwrap();
        // The client keeps the first connection while it makes the next.
        std::thread::spawn(move || {
            let mut stream = rustls::StreamOwned::new(session, stream);
            while read_request(&mut stream).is_some() {
                stream.write_all(OK.as_bytes()).unwrap();
            }
        });
    });
    on_core(move |runtime| {
        async move {
            let make = |roots: &[u8]| {
                let mut store = rustls::RootCertStore::empty();
                store.add_parsable_certificates(CertificateDer::pem_slice_iter(roots).map(Result::unwrap));
                let policy = AddressPolicy::new(AllowedNetworks::Any);
                Client::with_tls(
                    runtime.clone(),
                    Rc::new(Fixed(address, runtime.clone())),
                    policy,
                    Tls::with(trusting(store).unwrap()),
                )
            };
            let trusting = make(include_bytes!("ca.pem"));
            for _ in 0..2 {
                assert_eq!(trusting.fetch(get("https://skerry.test/".into()), 9).await.unwrap().body, b"ok");
            }
            assert_eq!(trusting.idle_count(), 1);
            let wrong_name = trusting.fetch(get("https://other.test/".into()), 9).await.unwrap_err();
            assert!(matches!(wrong_name, SendError::Tls(_)), "{wrong_name}");
            let stranger = make(b"").fetch(get("https://skerry.test/".into()), 9).await.unwrap_err();
            assert!(matches!(stranger, SendError::Tls(_)), "{stranger}");
        }
        .boxed_local()
    });
}

/// The machine's sockets, where every name has one address.
struct Fixed(SocketAddr, Rc<dyn Runtime>);

impl Sockets for Fixed {
    fn resolve(&self, _: String, _: u16) -> LocalBoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        let address = self.0;
        async move { Ok(vec![address]) }.boxed_local()
    }

    fn connect(&self, address: SocketAddr) -> LocalBoxFuture<'static, std::io::Result<Box<dyn Socket>>> {
        let connecting = self.1.connect(address);
        async move { Ok(Box::new(connecting.await?) as Box<dyn Socket>) }.boxed_local()
    }
}

/// Letters, one piece after another; `said` is the length that is told before.
struct Letters {
    pieces: Vec<Vec<u8>>,
    said: u64,
}

impl StreamedBody for Letters {
    fn len(&self) -> u64 {
        self.said
    }

    fn next(&mut self) -> LocalBoxFuture<'_, std::io::Result<Vec<u8>>> {
        let piece = if self.pieces.is_empty() { Vec::new() } else { self.pieces.remove(0) };
        async move { Ok(piece) }.boxed_local()
    }
}

/// A body may be read while it goes out; who does not want it says so before its end, and one that is not as long as was said is
/// not passed off as whole.
#[test]
fn bodies_are_read_while_they_are_sent() {
    let (address, seen) = scripted(&["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", OK]);
    let refusing = server(|_, mut stream| {
        let mut byte = [0];
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            head.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 3\r\n\r\nwhy").unwrap();
        // Nothing more is read; the client hangs up.
        std::thread::park_timeout(SECOND);
    });
    on_core(move |runtime| {
        async move {
            let client = client(&runtime, "127.0.0.0/8");
            let put = |address| {
                let url = Url::parse(&format!("http://{address}/x")).unwrap();
                Request::new(Method::Put, url, Deadlines::all(5 * SECOND))
            };
            let mut letters = Letters { pieces: vec![b"abc".to_vec(), b"de".to_vec()], said: 5 };
            let answer = client.send_streamed(put(address), &mut letters).await.unwrap().whole(9).await.unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (200, b"ok".as_slice()));
            let mut large = Letters { pieces: vec![vec![b'x'; 1 << 20]; 64], said: 64 << 20 };
            let answer = client.send_streamed(put(refusing), &mut large).await.unwrap().whole(9).await.unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (403, b"why".as_slice()));
            assert!(!large.pieces.is_empty());
            for (pieces, said) in [(vec![b"abc".to_vec()], 2), (vec![b"a".to_vec()], 2)] {
                let answer = client.send_streamed(put(address), &mut Letters { pieces, said }).await;
                assert!(matches!(answer, Err(SendError::Unreadable(_))));
            }
        }
        .boxed_local()
    });
    let seen = seen.lock().unwrap();
    assert!(seen[0].contains("Content-Length: 5\r\n") && seen[0].ends_with("\r\n\r\nabcde"), "{}", seen[0]);
}
