use std::cell::RefCell;
use std::task::Context;

use futures_lite::future::block_on;
use futures_lite::io::Cursor;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, Stream, StreamExt};

use super::super::core::Limits;
use super::*;
use crate::http::{Head, Service};

/// The largest body that the service takes.
const BODY_BYTES_MAX: u64 = 8 << 20;

/// The length of the answer to `/large`.
const LARGE_BYTES: usize = 1 << 20;

struct Answers;

impl Service for Answers {
    fn admit(&self, _: &Head) -> Result<u64, Response> {
        Ok(BODY_BYTES_MAX)
    }

    fn reads_values(&self, head: &Head) -> bool {
        head.path == "/values"
    }

    fn call(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        let stream = match request.path.as_str() {
            "/talk" => Some(ResponseBody::Stream(two_pieces().boxed_local())),
            "/feed" => Some(ResponseBody::Endless(two_pieces().boxed_local())),
            _ => None,
        };
        if let Some(body) = stream {
            return async { Response { status: 200, headers: Vec::new(), body } }.boxed_local();
        }
        let length = if request.path == "/large" { LARGE_BYTES } else { 0 };
        let status = if request.body == Err(BodyError::TooManyValues) { 413 } else { 200 };
        async move { Response::json(status, vec![b'1'; length]) }.boxed_local()
    }
}

/// A piece, a wait, and another piece.
fn two_pieces() -> impl Stream<Item = Vec<u8>> {
    let mut events =
        [Poll::Ready(Some(b"one".to_vec())), Poll::Pending, Poll::Ready(Some(b"two".to_vec()))].into_iter();
    stream::poll_fn(move |_| events.next().unwrap_or(Poll::Ready(None)))
}

/// Ten thousand idle connections must cost little: the state of a request under way may not lie in every one of them.
#[test]
fn an_idle_connection_is_small() {
    let net = CoreNet::new(Rc::new(Answers), Limits::default());
    let watch = net.watch();
    let connection = serve(net, watch, Cursor::new(Vec::<u8>::new()));
    let bytes = std::mem::size_of_val(&connection);
    assert!(bytes <= 1024, "{bytes} bytes");
}

/// The stop, or the deadline, may come between the arrival of a request and the look at it.
#[test]
fn a_request_that_came_before_the_end_is_answered() {
    let net = CoreNet::new(Rc::new(Answers), Limits::default());
    net.drain();
    let mut wire = Cursor::new(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec());
    block_on(serve(net.clone(), net.watch(), &mut wire));
    let wire = String::from_utf8(wire.into_inner()).unwrap();
    assert!(wire.contains("HTTP/1.1 200 OK") && wire.contains("Connection: close"), "{wire:?}");
}

/// A connection whose client says nothing more after its request.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<WireState>>);

#[derive(Default)]
struct WireState {
    input: Vec<u8>,
    /// Taken and not yet sent.
    held: Vec<u8>,
    sent: Vec<u8>,
    /// How many bytes may be held; none is taken beyond.
    held_bytes_max: usize,
}

impl Wire {
    fn of(request: &[u8], held_bytes_max: usize) -> Self {
        Self(Rc::new(RefCell::new(WireState { input: request.to_vec(), held_bytes_max, ..WireState::default() })))
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.borrow_mut();
        let count = state.input.len().min(buffer.len());
        if count == 0 {
            return Poll::Pending;
        }
        buffer[..count].copy_from_slice(&state.input[..count]);
        state.input.drain(..count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.borrow_mut();
        let count = bytes.len().min(state.held_bytes_max - state.held.len());
        if count == 0 {
            return Poll::Pending;
        }
        state.held.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        let held = std::mem::take(&mut state.held);
        state.sent.extend_from_slice(&held);
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A stream that encrypts takes bytes before it has sent them. The end of an answer once stayed in it, until the client,
/// which waited for that end, would say something.
#[test]
fn an_answer_is_sent_to_its_end_on_a_connection_that_stays() {
    let net = CoreNet::new(Rc::new(Answers), Limits::default());
    let wire = Wire::of(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", usize::MAX);
    let mut connection = Box::pin(serve(net.clone(), net.watch(), wire.clone()));
    assert!((&mut connection).now_or_never().is_none(), "the connection ended");
    let sent = String::from_utf8(wire.0.borrow().sent.clone()).unwrap();
    assert!(sent.starts_with("HTTP/1.1 200 OK") && sent.ends_with("\r\n\r\n"), "{sent:?}");
}

/// A client that keeps its socket after the last answer is owed nothing, and once held the stop up for all of its time.
#[test]
fn the_stop_waits_for_no_client_to_close() {
    for request in ["GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "GARBAGE\r\n\r\n"] {
        let net = CoreNet::new(Rc::new(Answers), Limits::default());
        let wire = Wire::of(request.as_bytes(), usize::MAX);
        let mut connection = Box::pin(serve(net.clone(), net.watch(), wire.clone()));
        assert!((&mut connection).now_or_never().is_none(), "the answer was not followed by a wait");
        assert!(!wire.0.borrow().sent.is_empty());
        net.drain();
        assert!((&mut connection).now_or_never().is_some(), "{request}");
    }
}

/// The stop once ended every stream with a last chunk, so that half of an answer looked like all of it. Only a stream that has no
/// end may end there.
#[test]
fn a_stream_goes_on_to_its_end_while_the_server_stops() {
    let sent = |path: &str| {
        let net = CoreNet::new(Rc::new(Answers), Limits::default());
        let wire = Wire::of(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(), usize::MAX);
        let mut connection = Box::pin(serve(net.clone(), net.watch(), wire.clone()));
        assert!((&mut connection).now_or_never().is_none());
        net.drain();
        assert!((&mut connection).now_or_never().is_some());
        let sent = String::from_utf8(wire.0.borrow().sent.clone()).unwrap();
        sent.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    assert_eq!(sent("/talk"), "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
    assert_eq!(sent("/feed"), "3\r\none\r\n0\r\n\r\n");
}

/// What a small body unpacks to counts while it is unpacked: a few of them at once could otherwise take any amount of
/// memory before the first is refused. Without that this one would be unpacked to the limit of the service, and be too large.
#[test]
fn a_body_counts_while_it_is_unpacked() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    io::copy(&mut io::Read::take(io::repeat(b'0'), BODY_BYTES_MAX + 1), &mut encoder).unwrap();
    let body = encoder.finish().unwrap();
    let net = CoreNet::new(Rc::new(Answers), Limits { body_bytes_max: 256 << 10, ..Limits::default() });
    let length = body.len();
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
    let wire = Wire::of(&[head.as_bytes(), &body].concat(), usize::MAX);
    let mut connection = Box::pin(serve(net.clone(), net.watch(), wire.clone()));
    let sent = || String::from_utf8(wire.0.borrow().sent.clone()).unwrap();
    while sent().is_empty() {
        assert!((&mut connection).now_or_never().is_none() || !sent().is_empty(), "nothing was answered");
    }
    assert!(sent().starts_with("HTTP/1.1 503 "), "{:?}", sent());
}

/// Clients that are slow to take large answers must leave room for fewer bodies: the answers are in memory, too.
#[test]
fn an_answer_counts_until_it_is_sent() {
    let net = CoreNet::new(Rc::new(Answers), Limits { body_bytes_max: LARGE_BYTES, ..Limits::default() });
    let wire = Wire::of(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n", 4096);
    let mut connection = Box::pin(serve(net.clone(), net.watch(), wire.clone()));
    assert!((&mut connection).now_or_never().is_none(), "the connection ended");
    assert!(!net.lease().resize(1), "an answer of {LARGE_BYTES} bytes takes no room");
    wire.0.borrow_mut().held_bytes_max = usize::MAX;
    while wire.0.borrow().sent.len() < LARGE_BYTES {
        assert!((&mut connection).now_or_never().is_none(), "the connection ended");
    }
    assert!(net.lease().resize(LARGE_BYTES), "what is sent still takes room");
}

/// Values take many times the bytes that they are written in, so that a body that fits may hold more of them than do.
#[test]
fn the_values_of_a_body_count_where_they_are_read() {
    let net = CoreNet::new(Rc::new(Answers), Limits { body_bytes_max: LARGE_BYTES, ..Limits::default() });
    let list = |count| format!("[{}]", vec!["0    "; count].join(","));
    let text = format!("[{:?}]", ",".repeat(20_000));
    let status = |path: &str, body: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
        let wire = Wire::of(&[head.as_bytes(), body.as_bytes()].concat(), usize::MAX);
        let mut connection = Box::pin(serve(net.clone(), net.watch(), wire.clone()));
        while wire.0.borrow().sent.is_empty() {
            assert!((&mut connection).now_or_never().is_none(), "the connection ended");
        }
        let sent = wire.0.borrow().sent.clone();
        String::from_utf8(sent[9..12].to_vec()).unwrap()
    };
    assert_eq!(status("/values", &list(10_000)), "413");
    assert_eq!(status("/", &list(10_000)), "200");
    assert_eq!(status("/values", &text), "200");
    assert_eq!(status("/values", &list(5_000)), "200");
    let mut others = net.lease();
    assert!(others.resize(LARGE_BYTES / 2));
    assert_eq!(status("/values", &list(5_000)), "503");
    assert_eq!(status("/", &list(5_000)), "200");
}
