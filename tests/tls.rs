//! HTTP over TLS against the real sockets of one core, with rustls on the other side.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod one_core;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use skerry::http::{Head, Request, Response, Service};
use skerry::net::Limits;
use skerry::net::tls::{Tls, TlsOptions};

use self::one_core::OneCore;

/// Larger than any buffer of the connection.
const ANSWER_BYTES: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Answers;

impl Service for Answers {
    fn admit(&self, _: &Head) -> Result<u64, Response> {
        Ok(1000)
    }

    fn call(&self, _: Request) -> LocalBoxFuture<'static, Response> {
        async { Response::json(200, vec![b'1'; ANSWER_BYTES]) }.boxed_local()
    }
}

/// A file of the authority that signed, of the certificate for `skerry.test`, or of its key.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/outgoing/tests").join(name)
}

fn options() -> TlsOptions {
    TlsOptions { cert_path: Some(file("leaf.pem")), key_path: Some(file("leaf.key")), ..TlsOptions::default() }
}

/// A server that speaks TLS.
struct Server {
    core: OneCore,
}

impl Server {
    fn start(options: &TlsOptions) -> Server {
        let tls = Tls::load(options).unwrap().unwrap();
        Server { core: OneCore::serve(Answers, Limits::default(), Some(tls)) }
    }

    /// One request on a connection of its own: how hands were shaken, and the whole answer.
    fn ask(&self, client: &Arc<ClientConfig>) -> std::io::Result<(HandshakeKind, Vec<u8>)> {
        let connection = ClientConnection::new(client.clone(), "skerry.test".try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, self.core.connect());
        stream.write_all(b"GET / HTTP/1.1\r\nHost: skerry.test\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        // An end without TLS's own farewell would be an error: the answer could have been cut.
        stream.read_to_end(&mut answer)?;
        Ok((stream.conn.handshake_kind().unwrap(), answer))
    }
}

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file(name)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A client that trusts the authority, with or without a certificate of its own.
fn client(own: bool) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificates("ca.pem").remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match own {
        false => builder.with_no_client_auth(),
        true => {
            let key = PrivateKeyDer::from_pem_file(file("leaf.key")).unwrap();
            builder.with_client_auth_cert(certificates("leaf.pem"), key).unwrap()
        }
    })
}

fn is_whole(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(&[b'1'; ANSWER_BYTES])
}

#[test]
fn answers_come_whole_and_plain_text_is_turned_away() {
    let server = Server::start(&options());
    let mut plain = server.core.connect();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: skerry.test\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&said));
    let client = client(false);
    for _ in 0..3 {
        let (kind, answer) = server.ask(&client).unwrap();
        assert!(is_whole(&answer));
        // Nothing is remembered unless it is asked for.
        assert_eq!(kind, HandshakeKind::Full);
    }
}

#[test]
fn clients_prove_who_they_are_where_they_must() {
    let asked = TlsOptions { auth_path: Some(file("ca.pem")), ..options() };
    let server = Server::start(&asked);
    assert!(is_whole(&server.ask(&client(false)).unwrap().1));
    assert!(is_whole(&server.ask(&client(true)).unwrap().1));
    let server = Server::start(&TlsOptions { require_auth: true, ..asked });
    assert!(server.ask(&client(false)).is_err());
    assert!(is_whole(&server.ask(&client(true)).unwrap().1));
}

/// A client that has said nothing yet is owed nothing, and once held the stop up for all of its time.
#[test]
fn the_stop_waits_for_no_client_that_is_silent() {
    let server = Server::start(&options());
    let mut silent = server.core.connect();
    // Another connection is served after this one has been accepted.
    assert!(is_whole(&server.ask(&client(false)).unwrap().1));
    let began = Instant::now();
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn sessions_are_resumed_where_that_is_allowed() {
    for options in [TlsOptions { resumption: true, ..options() }, TlsOptions { tickets: true, ..options() }] {
        let (server, client) = (Server::start(&options), client(false));
        let kinds: Vec<HandshakeKind> = (0..2).map(|_| server.ask(&client).unwrap().0).collect();
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed], "{options:?}");
    }
}

#[test]
fn files_that_do_not_serve_are_named() {
    assert!(Tls::load(&TlsOptions::default()).unwrap().is_none());
    assert!(Tls::load(&TlsOptions { key_path: None, ..options() }).unwrap().is_none());
    assert!(Tls::load(&TlsOptions { cert_path: None, ..options() }).unwrap().is_none());
    let refused = |options: TlsOptions| Tls::load(&options).err().unwrap().to_string();
    let missing = || Some(file("missing.pem"));
    assert!(refused(TlsOptions { cert_path: missing(), ..options() }).contains("--ssl-cert-path"));
    assert!(refused(TlsOptions { key_path: Some(file("leaf.pem")), ..options() }).contains("--ssl-key-path"));
    assert!(refused(TlsOptions { auth_path: missing(), ..options() }).contains("--ssl-auth-path"));
    assert!(refused(TlsOptions { ocsp_path: missing(), ..options() }).contains("--ssl-ocsp-path"));
    assert!(refused(TlsOptions { cert_path: Some(file("ca.pem")), ..options() }).contains("do not fit together"));
}
