use std::cell::{Cell, RefCell};
use std::task::Context;

use futures_lite::future::block_on;
use futures_lite::io::Cursor;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, Stream, StreamExt};

use super::super::core::Limits;
use super::*;
use crate::http::{Head, Method, Service};

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
    /// How the client has left, once its input is read.
    left: Option<Left>,
}

#[derive(Clone, Copy)]
enum Left {
    /// It has closed its side.
    Closed,
    /// The connection is broken.
    Broken,
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
            return match state.left {
                None => Poll::Pending,
                Some(Left::Closed) => Poll::Ready(Ok(0)),
                Some(Left::Broken) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            };
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

/// Answers when the test says so. GET only reads.
#[derive(Clone, Default)]
struct Waits(Rc<WaitsState>);

#[derive(Default)]
struct WaitsState {
    may_end: Cell<bool>,
    under_way: Cell<usize>,
    answered: Cell<usize>,
}

struct UnderWay(Waits);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.set(self.0.0.under_way.get() - 1);
    }
}

impl Service for Waits {
    fn admit(&self, _: &Head) -> Result<u64, Response> {
        Ok(BODY_BYTES_MAX)
    }

    fn only_reads(&self, method: Method, path: &str) -> bool {
        assert!(path.starts_with("/wait"), "{path}");
        method == Method::Get
    }

    fn call(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        let state = self.0.clone();
        state.under_way.set(state.under_way.get() + 1);
        let under_way = UnderWay(self.clone());
        async move {
            let _under_way = under_way;
            poll_fn(|_| if state.may_end.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            state.answered.set(state.answered.get() + 1);
            Response::json(200, request.path.into_bytes())
        }
        .boxed_local()
    }
}

/// What is asked on one connection and how it goes on.
struct Asking {
    service: Waits,
    net: Rc<CoreNet>,
    wire: Wire,
    connection: Pin<Box<dyn Future<Output = ()>>>,
}

impl Asking {
    /// Sends requests, the first of which is being answered from then on.
    fn of(requests: &str) -> Self {
        let service = Waits::default();
        let net = CoreNet::new(Rc::new(service.clone()), Limits::default());
        let wire = Wire::of(requests.as_bytes(), usize::MAX);
        let connection = Box::pin(serve(net.clone(), net.watch(), wire.clone()));
        let mut asking = Self { service, net, wire, connection };
        assert!(!asking.has_ended());
        assert_eq!(asking.service.0.under_way.get(), 1);
        asking
    }

    fn has_ended(&mut self) -> bool {
        (&mut self.connection).now_or_never().is_some()
    }

    fn leave(&self, left: Left) {
        self.wire.0.borrow_mut().left = Some(left);
    }

    /// Lets time pass.
    fn pass(&self, milliseconds: u64) {
        let start = self.net.now_ms();
        self.net.tick(start, time::OffsetDateTime::UNIX_EPOCH);
        for passed in (0..=milliseconds).step_by(100) {
            self.net.tick(start + passed, time::OffsetDateTime::UNIX_EPOCH);
        }
    }

    /// How many answers were begun and are, and how many were sent.
    fn counts(&self) -> (usize, usize, usize) {
        let sent = String::from_utf8(self.wire.0.borrow().sent.clone()).unwrap();
        (self.service.0.under_way.get(), self.service.0.answered.get(), sent.matches("HTTP/1.1 200").count())
    }
}

const WAITING_GET: &str = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
const WAITING_POST: &str = "POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";

/// A search once went on for minutes after its client was gone.
#[test]
fn what_only_reads_is_dropped_when_the_connection_breaks() {
    let mut asking = Asking::of(WAITING_GET);
    asking.leave(Left::Broken);
    assert!(asking.has_ended());
    assert_eq!(asking.counts(), (0, 0, 0));
}

/// A client that has closed its side may still read the answer. Of those that do not, work is left for a while and no longer.
#[test]
fn a_client_that_closed_its_side_has_some_time_for_its_answer() {
    let grace_ms = Limits::default().half_closed_ms;
    let mut asking = Asking::of(WAITING_GET);
    asking.leave(Left::Closed);
    assert!(!asking.has_ended());
    asking.pass(grace_ms - 100);
    assert!(!asking.has_ended());
    asking.service.0.may_end.set(true);
    assert!(asking.has_ended());
    assert_eq!(asking.counts(), (0, 1, 1));
    let mut asking = Asking::of(WAITING_GET);
    asking.leave(Left::Closed);
    assert!(!asking.has_ended());
    asking.pass(grace_ms + 100);
    assert!(asking.has_ended());
    assert_eq!(asking.counts(), (0, 0, 0));
}

/// Half of a change may not be left, nor may one be lost that others know of already.
#[test]
fn what_writes_is_done_to_its_end() {
    for left in [Left::Broken, Left::Closed] {
        let mut asking = Asking::of(WAITING_POST);
        asking.leave(left);
        assert!(!asking.has_ended());
        asking.pass(600_000);
        assert!(!asking.has_ended());
        asking.service.0.may_end.set(true);
        assert!(asking.has_ended());
        assert_eq!(asking.counts(), (0, 1, 1));
    }
}

/// What comes behind a request while it is answered is the next one, however much of it there is, and a slow answer to a client
/// that is there has all the time that it takes.
#[test]
fn requests_that_come_meanwhile_are_answered_in_turn() {
    let mut asking = Asking::of(WAITING_GET);
    let long = format!("GET /wait{} HTTP/1.1\r\nHost: h\r\n\r\n", "/x".repeat(2000));
    asking.wire.0.borrow_mut().input.extend_from_slice(&[long.as_bytes().repeat(80), WAITING_POST.into()].concat());
    assert!(!asking.has_ended());
    asking.pass(600_000);
    assert!(!asking.has_ended());
    assert!(asking.wire.0.borrow().input.len() > 10_000, "a client may send more than there is room for");
    asking.service.0.may_end.set(true);
    while asking.counts().2 < 82 {
        assert!(!asking.has_ended());
    }
    asking.leave(Left::Closed);
    assert!(asking.has_ended());
    assert_eq!(asking.counts(), (0, 82, 82));
}
