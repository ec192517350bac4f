//! Sends one response: compressed in bounded steps, written in one piece if short, streamed if it is a stream.

use std::io;
use std::pin::Pin;
use std::task::Poll;

use futures_lite::future::yield_now;
use futures_lite::io::{AsyncRead, AsyncWrite};
use futures_lite::stream::Stream;
use futures_util::future::poll_fn;

use super::connection::{Connection, INPUT_BYTES_MAX};
use super::core::Phase;
use crate::http::compress::{self, Coding, Compressor};
use crate::http::respond::{self, BodyLength, Manner};
use crate::http::{Response, ResponseBody};

/// Bodies up to this size are copied behind their head and go out in one write.
const CONTIGUOUS_BYTES_MAX: usize = 64 * 1024;

/// Bytes that the system is given at once, before others go on: to copy many millions takes it milliseconds.
const SENT_BYTES_MAX: usize = 256 * 1024;

/// What a head takes, most often less.
const HEAD_BYTES: usize = 512;

/// What a stream did next.
enum Event {
    Piece(Vec<u8>),
    End,
    ClientGone,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends the answer. `Ok(false)`: the connection has to close, because its end is the end of the body.
    pub(super) async fn send(&mut self, mut response: Response, manner: Manner) -> io::Result<bool> {
        let coded = compress_body(&mut response, manner).await;
        let length = respond::body_length(&response, manner);
        self.output.clear();
        if let BodyLength::Bytes(bytes @ ..=CONTIGUOUS_BYTES_MAX) = length {
            self.output.reserve(HEAD_BYTES + bytes);
        }
        let net = self.net.clone();
        net.with_date(|date| respond::write_head(&mut self.output, &response, manner, coded, date));
        let body = match response.body {
            _ if manner.is_head || length == BodyLength::None => Vec::new(),
            ResponseBody::Bytes(bytes) => bytes,
            ResponseBody::Stream(stream) => return self.send_stream(stream, length, false).await,
            ResponseBody::Endless(stream) => return self.send_stream(stream, length, true).await,
        };
        if body.len() <= CONTIGUOUS_BYTES_MAX {
            self.output.extend_from_slice(&body);
            self.flush(&[]).await?;
        } else {
            self.flush(&body).await?;
        }
        Ok(true)
    }

    /// Writes what is in the output buffer and then `body`, and empties the buffer.
    pub(super) async fn flush(&mut self, body: &[u8]) -> io::Result<()> {
        let output = std::mem::take(&mut self.output);
        let start_ms = self.net.now_ms();
        let mut written_total = 0;
        self.watch.enter(Phase::Transfer, self.net.limits.transfer_ms);
        for part in [&output[..], body] {
            let mut written = 0;
            while written < part.len() {
                let end = part.len().min(written + SENT_BYTES_MAX);
                let count = self.write_some(&part[written..end]).await?;
                written += count;
                if end < part.len() {
                    yield_now().await;
                }
                written_total += count as u64;
                self.watch.allow_until(start_ms, self.net.limits.answer_ms(written_total));
            }
        }
        self.flush_stream().await?;
        self.output = output;
        self.output.clear();
        Ok(())
    }

    /// Waits until the stream keeps nothing back. One that encrypts takes bytes before the system has taken its records, and
    /// sends what is left of them only when it is asked to.
    async fn flush_stream(&mut self) -> io::Result<()> {
        let (stream, watch) = (&mut self.stream, &self.watch);
        poll_fn(|context| {
            let poll = Pin::new(&mut *stream).poll_flush(context);
            if poll.is_pending() {
                if watch.is_expired() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                watch.register(context.waker());
            }
            poll
        })
        .await
    }

    async fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (stream, watch) = (&mut self.stream, &self.watch);
        let written = poll_fn(|context| {
            if watch.is_expired() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let poll = Pin::new(&mut *stream).poll_write(context, bytes);
            if poll.is_pending() {
                watch.register(context.waker());
            }
            poll
        })
        .await?;
        if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) }
    }

    /// Sends the head and the pieces behind it. The orderly stop ends a stream that has no end; any other has the time of the stop,
    /// and is broken off after it, since a proper end would say that all of it has come.
    async fn send_stream<P>(&mut self, mut pieces: P, length: BodyLength, is_endless: bool) -> io::Result<bool>
    where
        P: Stream<Item = Vec<u8>> + Unpin,
    {
        let as_chunks = length == BodyLength::Chunked;
        self.flush(&[]).await?;
        loop {
            match self.next_piece(&mut pieces, is_endless).await? {
                Event::ClientGone => return Err(io::ErrorKind::ConnectionAborted.into()),
                Event::Piece(piece) if as_chunks => respond::write_chunk(&mut self.output, &piece),
                Event::Piece(piece) => self.output.extend_from_slice(&piece),
                Event::End => {
                    if as_chunks {
                        self.output.extend_from_slice(respond::LAST_CHUNK);
                    }
                    self.flush(&[]).await?;
                    return Ok(as_chunks);
                }
            }
            self.flush(&[]).await?;
        }
    }

    /// Waits for the next piece, and for the client to go: a stream may be silent for hours after its reader left.
    async fn next_piece<P>(&mut self, pieces: &mut P, is_endless: bool) -> io::Result<Event>
    where
        P: Stream<Item = Vec<u8>> + Unpin,
    {
        self.watch.enter(Phase::Service, 0);
        let net = self.net.clone();
        let (stream, input, watch) = (&mut self.stream, &mut self.input, &self.watch);
        poll_fn(|context| {
            if is_endless && net.is_draining() {
                return Poll::Ready(Ok(Event::End));
            }
            match Pin::new(&mut *pieces).poll_next(context) {
                Poll::Ready(Some(piece)) => return Poll::Ready(Ok(Event::Piece(piece))),
                Poll::Ready(None) => return Poll::Ready(Ok(Event::End)),
                Poll::Pending => watch.register(context.waker()),
            }
            while input.len() < INPUT_BYTES_MAX {
                match net.poll_more(context, stream, input) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Ok(Event::ClientGone)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Puts the body into the coding that the client wants. An answer that cannot be compressed goes out as it is.
async fn compress_body(response: &mut Response, manner: Manner) -> Option<Coding> {
    let coding = manner.coding?;
    let ResponseBody::Bytes(body) = &mut response.body else { return None };
    let is_coded = response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    if body.is_empty() || is_coded {
        return None;
    }
    if body.len() < compress::STORED_BYTES_MAX {
        *body = compress::store(coding, body);
        return Some(coding);
    }
    let mut compressor = Compressor::new(coding, body.len());
    for piece in body.chunks(compress::STEP_BYTES) {
        compressor.push(piece).ok()?;
        if body.len() > compress::STEP_BYTES {
            yield_now().await;
        }
    }
    *body = compressor.finish().ok()?;
    Some(coding)
}
