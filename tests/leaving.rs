//! Clients that leave while their request is being answered, on the real sockets of one core: what only reads is dropped, on all
//! kinds of executors, with and without TLS.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod one_core;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use shards::runtime::Backend;
use skerry::http::{Head, Method, Request, Response, Service};
use skerry::net::tls::{Tls, TlsOptions};
use skerry::net::{Attendance, Limits};
use socket2::SockRef;

use self::one_core::OneCore;

const BACKENDS: [Backend; 3] = [Backend::IoUring, Backend::Epoll, Backend::Glommio];

/// Longer than any test.
const FOR_EVER_MS: u64 = 3_600_000;

/// Answers `/soon` after some turns of the core, and nothing else before the test says so. GET only reads.
#[derive(Clone, Copy)]
struct Slow(&'static Counts);

#[derive(Default)]
struct Counts {
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// All that is under way may end.
    may_end: AtomicBool,
}

struct UnderWay(&'static Counts);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Service for Slow {
    fn admit(&self, _: &Head) -> Result<u64, Response> {
        Ok(1000)
    }

    fn only_reads(&self, method: Method, _: &str) -> bool {
        method == Method::Get
    }

    fn call(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let under_way = UnderWay(self.0);
        async move {
            let counts = under_way.0;
            let mut turns = 0;
            while !counts.may_end.load(Ordering::SeqCst) && (request.path != "/soon" || turns < 1000) {
                futures_lite::future::yield_now().await;
                turns += 1;
            }
            drop(under_way);
            Response::json(200, b"1".to_vec())
        }
        .boxed_local()
    }
}

struct Server {
    core: OneCore,
    counts: &'static Counts,
}

impl Server {
    fn start(backend: Backend, with_tls: bool, half_closed_ms: u64) -> Server {
        let options =
            TlsOptions { cert_path: Some(file("leaf.pem")), key_path: Some(file("leaf.key")), ..TlsOptions::default() };
        let tls = with_tls.then(|| Tls::load(&options).unwrap().unwrap());
        let counts: &Counts = Box::leak(Box::default());
        let limits = Limits { half_closed_ms, ..Limits::default() };
        let core = OneCore::serve_on(backend, Slow(counts), limits, tls, Attendance::of(1).attend());
        Server { core, counts }
    }

    /// Waits until so many requests were begun and so many of them ended.
    fn wait_for(&self, begun: usize, ended: usize) {
        let give_up = Instant::now() + Duration::from_secs(20);
        let so_far = || (self.counts.begun.load(Ordering::SeqCst), self.counts.ended.load(Ordering::SeqCst));
        while so_far() != (begun, ended) {
            assert!(Instant::now() < give_up, "{:?} begun and ended, not {:?}", so_far(), (begun, ended));
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// A connection on which this was said.
    fn asked(&self, text: &str) -> TcpStream {
        let mut stream = self.core.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn asked_over_tls(&self, text: &str) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let connection = ClientConnection::new(config, "skerry.test".try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, self.core.connect());
        stream.write_all(text.as_bytes()).unwrap();
        stream.flush().unwrap();
        stream
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/outgoing/tests").join(name)
}

fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: skerry.test\r\nContent-Length: 0\r\n\r\n")
}

/// Has the connection broken off when it is closed.
fn break_off(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// A search once went on for minutes after its client was gone.
#[test]
fn reads_end_with_their_connection() {
    for backend in BACKENDS {
        let server = Server::start(backend, false, FOR_EVER_MS);
        for number in 1..=3 {
            let stream = server.asked(&request("GET", "/"));
            server.wait_for(number, number - 1);
            break_off(stream);
            server.wait_for(number, number);
        }
    }
}

#[test]
fn reads_of_clients_that_close_end_soon() {
    for backend in BACKENDS {
        let server = Server::start(backend, false, 100);
        let stream = server.asked(&request("GET", "/"));
        server.wait_for(1, 0);
        drop(stream);
        server.wait_for(1, 1);
    }
}

/// As `nc -N` and some proxies do.
#[test]
fn a_client_that_closed_its_side_reads_its_answers() {
    for backend in BACKENDS {
        let server = Server::start(backend, false, FOR_EVER_MS);
        let mut stream = server.asked(&request("GET", "/soon").repeat(3));
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
        server.wait_for(3, 3);
    }
}

#[test]
fn writes_are_done_to_their_end() {
    for backend in BACKENDS {
        let server = Server::start(backend, false, 0);
        let streams = ["/", "/soon"].map(|path| server.asked(&request("POST", path)));
        server.wait_for(2, 1);
        streams.into_iter().for_each(break_off);
        let stream = server.asked(&request("GET", "/"));
        server.wait_for(3, 1);
        drop(stream);
        server.wait_for(3, 2);
        server.counts.may_end.store(true, Ordering::SeqCst);
        server.wait_for(3, 3);
    }
}

/// A close that is announced is as one of the connection; an end without one is no end that TLS knows.
#[test]
fn the_same_goes_for_tls() {
    for backend in BACKENDS {
        let server = Server::start(backend, true, 100);
        let mut stream = server.asked_over_tls(&request("GET", "/"));
        server.wait_for(1, 0);
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        server.wait_for(1, 1);
        let server = Server::start(backend, true, FOR_EVER_MS);
        let stream = server.asked_over_tls(&request("GET", "/"));
        server.wait_for(1, 0);
        drop(stream);
        server.wait_for(1, 1);
        let stream = server.asked_over_tls(&request("GET", "/"));
        server.wait_for(2, 1);
        break_off(stream.sock);
        server.wait_for(2, 2);
        let mut stream = server.asked_over_tls(&request("GET", "/soon"));
        stream.conn.send_close_notify();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
}
