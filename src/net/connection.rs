//! The loop of one connection: read a request, have it handled, write the response, repeat.
//!
//! A waiting connection holds no buffer: bytes are read into a buffer shared by the core's connections, and copied only while a
//! request is incomplete. Everything it does is bounded in time and memory; [`Limits`](super::core::Limits) lists the bounds.

use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use futures_lite::future::yield_now;
use futures_lite::io::{AsyncRead, AsyncWrite};
use futures_util::FutureExt;
use futures_util::future::poll_fn;

use super::core::{BodyLease, CoreNet, Phase, WatchGuard};
use crate::api::error::ApiError;
use crate::http::body::{BodyCollector, Packing, Unpacker};
use crate::http::parse::{self, BodyDecoder, Framing, HeadScanner, ParseError, ParsedHead};
use crate::http::respond::{self, Manner};
use crate::http::weight::JsonWeight;
use crate::http::{BodyError, Request, Response, ResponseBody};

/// The most input that is kept between requests: a head and what was read behind it.
pub(super) const INPUT_BYTES_MAX: usize = parse::HEAD_BYTES_MAX * 2;

/// One connection and what it has read but not used.
pub(super) struct Connection<S> {
    pub(super) net: Rc<CoreNet>,
    pub(super) stream: S,
    pub(super) watch: WatchGuard,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
}

/// What came of waiting for a head.
enum NextHead {
    Request(Box<ParsedHead>),
    /// The client is done, or was idle for too long, or the server stops.
    End,
    Invalid(ParseError),
    TooSlow,
}

/// Bytes of a body taken off the wire before other tasks have their turn.
const TURN_BYTES: u64 = 128 << 10;

/// Bodies from this length on are looked at for the values that they hold; those of shorter ones take little.
const WEIGHED_BYTES_MIN: usize = 16 << 10;

/// What came of reading a body.
enum ReadBody {
    /// All of it, or why the service shall not see it; `at_end` tells whether the next request can be found after it.
    Ready {
        body: Result<Vec<u8>, BodyError>,
        at_end: bool,
    },
    Invalid(ParseError),
    TooSlow,
    NoRoom,
}

/// Serves one connection until either side has had enough. Errors of the connection end it and are nobody else's concern.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(net: Rc<CoreNet>, watch: WatchGuard, stream: S) {
    let mut connection = Connection { net, stream, watch, input: Vec::new(), output: Vec::new() };
    if let Err(error) = connection.run().await {
        tracing::trace!(%error, "a connection broke");
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        let mut is_first = true;
        loop {
            match self.read_head(is_first).await? {
                // Boxed, so that the state of a request under way costs memory only while it is.
                NextHead::Request(parsed) => {
                    if !Box::pin(self.exchange(parsed)).await? {
                        return Box::pin(self.linger()).await;
                    }
                }
                NextHead::End => return self.close().await,
                NextHead::Invalid(error) => return Box::pin(self.refuse_invalid(error)).await,
                NextHead::TooSlow => return Box::pin(self.refuse_slow()).await,
            }
            is_first = false;
            // A client that sends requests faster than they are answered takes turns with the others.
            if !self.input.is_empty() {
                yield_now().await;
            }
        }
    }

    /// Waits for the next head and takes it off the input.
    async fn read_head(&mut self, is_first: bool) -> io::Result<NextHead> {
        if self.input.is_empty() {
            self.input = Vec::new();
            self.output = Vec::new();
            let idle_ms = if is_first { self.net.limits.head_ms } else { self.net.limits.idle_ms };
            self.watch.enter(Phase::Idle, idle_ms);
            if self.fill().await? == 0 {
                return Ok(NextHead::End);
            }
        }
        self.watch.enter(Phase::Transfer, self.net.limits.head_ms);
        let mut scanner = HeadScanner::default();
        let mut blanks_skipped = false;
        loop {
            if !blanks_skipped && let Some(blank_len) = parse::leading_blank_len(&self.input) {
                self.input.drain(..blank_len);
                blanks_skipped = true;
            }
            if blanks_skipped {
                match scanner.find_end(&self.input) {
                    Err(error) => return Ok(NextHead::Invalid(error)),
                    Ok(None) => {}
                    Ok(Some(head_len)) => {
                        let parsed = parse::parse_head(&self.input[..head_len]);
                        self.input.drain(..head_len);
                        return Ok(parsed.map_or_else(NextHead::Invalid, |head| NextHead::Request(Box::new(head))));
                    }
                }
            }
            if self.fill().await? == 0 {
                return Ok(if self.watch.is_expired() { NextHead::TooSlow } else { NextHead::End });
            }
        }
    }

    /// Reads what has arrived to the end of the input. 0: nothing more will come, or the wait is over.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        let (net, stream, watch, input) = (&self.net, &mut self.stream, &self.watch, &mut self.input);
        poll_fn(|context| {
            // A request that has come is answered, though its client was nearly too late: to close on it would tell the
            // client nothing of what became of it.
            if watch.is_expired() && !watch.is_idle() {
                return Poll::Ready(Ok(0));
            }
            let poll = net.poll_more(context, stream, input);
            if poll.is_pending() {
                if watch.is_over() {
                    return Poll::Ready(Ok(0));
                }
                watch.register(context.waker());
            }
            poll
        })
        .await
    }

    /// Answers one request. `false`: the connection has to close.
    async fn exchange(&mut self, parsed: Box<ParsedHead>) -> io::Result<bool> {
        let wants_more = parsed.keep_alive && !self.net.is_draining();
        let mut manner = Manner::of(&parsed.head, wants_more, parsed.is_http_10);
        let admitted = match respond::unacceptable(&parsed.head).or_else(|| respond::preflight(&parsed.head)) {
            Some(response) => Err(response),
            None => self.admit(&parsed),
        };
        let limit = match admitted {
            Ok(limit) => limit,
            Err(response) => return self.refuse(*parsed, response, manner).await,
        };
        let mut lease = self.net.lease();
        let (body, at_end) = match self.read_body(&parsed, limit, &mut lease).await? {
            ReadBody::Ready { body, at_end } => (body, at_end),
            ReadBody::Invalid(error) => return self.refuse_invalid(error).await.map(|()| false),
            ReadBody::TooSlow => return self.refuse_slow().await.map(|()| false),
            ReadBody::NoRoom => {
                manner.keep_alive = false;
                return self.send(Response::empty(503), manner).await.map(|_| false);
            }
        };
        let response = self.serviced(Request::from_parts(parsed.head, body)).await?;
        // What is sent stays in memory until a slow client has taken it.
        lease.set(match &response.body {
            ResponseBody::Bytes(bytes) => bytes.capacity(),
            ResponseBody::Stream(_) | ResponseBody::Endless(_) => 0,
        });
        // A stop that began while the request was being answered closes the connection after the answer.
        manner.keep_alive = wants_more && at_end && !self.net.is_draining();
        let can_stay = self.send(response, manner).await?;
        Ok(can_stay && manner.keep_alive)
    }

    /// Has the service answer. Where the request only reads, it is dropped with all its work when the client has gone; a write may
    /// have been accepted by then, and is never dropped.
    ///
    /// A connection that breaks is gone at once. One whose client has merely closed its side may be either: most often all of it is
    /// closed, but TCP shows no difference, and a client that closes its side behind its request may still read the answer
    /// (`nc -N`, some proxies). Such an answer has [`half_closed_ms`](super::core::Limits::half_closed_ms) more. Without that time,
    /// as nginx, hyper, Go and Node have it by default, those clients would have no answer; with all the time in the world, as in
    /// the reference, everybody who gives up a request would leave its work behind. Over TLS the close must be announced: a
    /// connection that ends without is broken.
    ///
    /// What the client sends meanwhile is the next request, which waits in the input. A client that sends more than fits there is
    /// not listened to, and neither is its end then noticed.
    async fn serviced(&mut self, request: Request) -> io::Result<Response> {
        self.watch.enter(Phase::Service, 0);
        let net = self.net.clone();
        // A look at the routes more, for requests that are not answered at once.
        let (method, path) = (request.method, request.path.clone());
        let mut only_reads = None;
        let mut call = pin!(AssertUnwindSafe(net.service.call(request)).catch_unwind());
        let (stream, input, watch) = (&mut self.stream, &mut self.input, &self.watch);
        let mut is_half_closed = false;
        poll_fn(|context| {
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return Poll::Ready(Ok(answer.unwrap_or_else(|panic| panic_response(&*panic))));
            }
            if !*only_reads.get_or_insert_with(|| net.service.only_reads(method, &path)) {
                return Poll::Pending;
            }
            while !is_half_closed && input.len() < INPUT_BYTES_MAX {
                match net.poll_more(context, stream, input) {
                    Poll::Ready(Ok(0)) => {
                        is_half_closed = true;
                        watch.enter(Phase::HalfClosed, net.limits.half_closed_ms);
                    }
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            if is_half_closed {
                if watch.is_expired() {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                watch.register(context.waker());
            }
            Poll::Pending
        })
        .await
    }

    fn admit(&self, parsed: &ParsedHead) -> Result<u64, Response> {
        std::panic::catch_unwind(AssertUnwindSafe(|| self.net.service.admit(&parsed.head)))
            .unwrap_or_else(|panic| Err(panic_response(&*panic)))
    }

    /// Gives an answer that needs no body, throwing a short body away to keep the connection.
    async fn refuse(&mut self, parsed: ParsedHead, response: Response, mut manner: Manner) -> io::Result<bool> {
        let client_waits = parsed.expects_continue && self.input.is_empty();
        let is_short = match parsed.framing {
            Framing::Length(length) => length <= self.net.limits.skip_bytes_max,
            Framing::Chunked => true,
        };
        let at_end = is_short && !client_waits && self.skip_body(parsed.framing).await?;
        manner.keep_alive &= at_end || parsed.framing == Framing::Length(0);
        let can_stay = self.send(response, manner).await?;
        Ok(can_stay && manner.keep_alive)
    }

    /// Reads a body and forgets it. `false`: its end was not reached within the bounds.
    async fn skip_body(&mut self, framing: Framing) -> io::Result<bool> {
        let mut decoder = BodyDecoder::new(framing);
        let mut skipped = 0;
        self.watch.enter(Phase::Transfer, self.net.limits.transfer_ms);
        while !decoder.is_done() {
            let Ok(decoded) = decoder.decode(&self.input, |_| {}) else { return Ok(false) };
            self.input.drain(..decoded.consumed);
            skipped += decoded.consumed as u64;
            if decoded.done {
                break;
            }
            if skipped > self.net.limits.skip_bytes_max || self.fill().await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a body and unpacks it. Room for it is taken at each step.
    async fn read_body(&mut self, parsed: &ParsedHead, limit: u64, lease: &mut BodyLease) -> io::Result<ReadBody> {
        let mut collector = BodyCollector::new(Packing::of(&parsed.head.headers), limit);
        if let Framing::Length(length) = parsed.framing {
            if let Some(error) = collector.refuse_announced(length) {
                return Ok(ReadBody::Ready { body: Err(error), at_end: false });
            }
            collector.expect(length);
        }
        if parsed.expects_continue && self.input.is_empty() {
            self.output.extend_from_slice(respond::CONTINUE);
            self.flush(&[]).await?;
        }
        let mut decoder = BodyDecoder::new(parsed.framing);
        if let Some(failed) = self.collect_body(&mut decoder, &mut collector, lease).await? {
            return Ok(failed);
        }
        let Some(body) = unpacked(collector.unpack(), lease).await else { return Ok(ReadBody::NoRoom) };
        let Some(body) = self.weighed(parsed, body, lease).await else { return Ok(ReadBody::NoRoom) };
        Ok(ReadBody::Ready { body, at_end: decoder.is_done() })
    }

    /// Takes a body off the wire, to its end or until it is too large. Otherwise says what became of it.
    async fn collect_body(
        &mut self,
        decoder: &mut BodyDecoder,
        collector: &mut BodyCollector,
        lease: &mut BodyLease,
    ) -> io::Result<Option<ReadBody>> {
        let start_ms = self.net.now_ms();
        let (mut received, mut next_turn) = (0, TURN_BYTES);
        self.watch.enter(Phase::Transfer, self.net.limits.transfer_ms);
        while !decoder.is_done() {
            let decoded = match decoder.decode(&self.input, |bytes| collector.push(bytes)) {
                Ok(decoded) => decoded,
                Err(error) => return Ok(Some(ReadBody::Invalid(error))),
            };
            self.input.drain(..decoded.consumed);
            received += decoded.consumed as u64;
            if !lease.resize(collector.held_bytes()) {
                return Ok(Some(ReadBody::NoRoom));
            }
            if decoded.done || collector.is_too_large() {
                break;
            }
            self.watch.allow_until(start_ms, self.net.limits.body_ms(received));
            // Bytes that come as fast as they are taken would hold the core until the last of them.
            if received >= next_turn {
                next_turn = received + TURN_BYTES;
                yield_now().await;
            }
            if self.fill().await? == 0 {
                let broke = || Err(io::ErrorKind::UnexpectedEof.into());
                return if self.watch.is_expired() { Ok(Some(ReadBody::TooSlow)) } else { broke() };
            }
        }
        Ok(None)
    }

    /// The body, once room was found for the values in it where the service reads them; `None` where there is no room.
    async fn weighed(
        &self,
        parsed: &ParsedHead,
        body: Result<Vec<u8>, BodyError>,
        lease: &mut BodyLease,
    ) -> Option<Result<Vec<u8>, BodyError>> {
        if let Ok(bytes) = &body
            && bytes.len() >= WEIGHED_BYTES_MIN
            && self.net.service.reads_values(&parsed.head)
        {
            let needed_bytes = bytes.capacity() + weight_of(bytes).await;
            if needed_bytes > self.net.limits.body_bytes_max {
                return Some(Err(BodyError::TooManyValues));
            }
            if !lease.resize(needed_bytes) {
                return None;
            }
        }
        Some(body)
    }

    /// Answers bytes that are no request, by the status alone, and closes.
    async fn refuse_invalid(&mut self, error: ParseError) -> io::Result<()> {
        self.send(Response::empty(error.status()), Manner::unknown()).await?;
        self.linger().await
    }

    /// Answers 408 and closes.
    async fn refuse_slow(&mut self) -> io::Result<()> {
        let body = ApiError::bad_request("the request did not arrive in time").body();
        self.send(Response::json(408, body), Manner::unknown()).await?;
        self.close().await
    }

    /// Closes after the last answer. What the client still sends is read for a while, since closing on unread bytes would
    /// make the system throw away the answer too.
    async fn linger(&mut self) -> io::Result<()> {
        self.close().await?;
        self.watch.enter(Phase::Closing, self.net.limits.transfer_ms);
        let mut discarded = 0;
        while discarded < self.net.limits.linger_bytes_max {
            self.input.clear();
            let count = self.fill().await?;
            if count == 0 || self.net.is_draining() {
                break;
            }
            discarded += count as u64;
        }
        Ok(())
    }

    /// Tells the client that nothing more will come.
    async fn close(&mut self) -> io::Result<()> {
        let (stream, watch) = (&mut self.stream, &self.watch);
        poll_fn(|context| {
            if watch.is_expired() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            watch.register(context.waker());
            Pin::new(&mut *stream).poll_close(context)
        })
        .await
    }
}

/// The body once it is unpacked; `None` where there is no room for it.
async fn unpacked(mut unpacker: Unpacker, lease: &mut BodyLease) -> Option<Result<Vec<u8>, BodyError>> {
    loop {
        let is_done = unpacker.step();
        if !lease.resize(unpacker.held_bytes()) {
            return None;
        }
        if is_done {
            return Some(unpacker.finish());
        }
        yield_now().await;
    }
}

/// What the values of a JSON body take.
async fn weight_of(body: &[u8]) -> usize {
    let mut weight = JsonWeight::default();
    for piece in body.chunks(TURN_BYTES as usize) {
        weight.push(piece);
        if piece.len() < body.len() {
            yield_now().await;
        }
    }
    weight.bytes()
}

/// The answer of a handler that panicked: the client learns that it is our defect, the log learns which.
fn panic_response(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let error = ApiError::internal(format_args!("a handler panicked: {}", text.unwrap_or("no message")));
    Response::json(500, error.body())
}

#[cfg(test)]
mod tests;
