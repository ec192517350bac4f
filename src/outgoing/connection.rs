//! One connection: a request goes out, the head of its answer comes in.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_lite::io::{AsyncRead, AsyncWrite};
use shards::runtime::Checkpoint;

use super::answer::{AnswerHead, parse_head};
use super::clock::Clock;
use super::error::{Phase, SendError};
use super::payload::StreamedBody;
use super::sockets::Socket;
use crate::http::Method;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// How much is written at once, in bytes.
const WRITE_BYTES: usize = 64 * 1024;

/// Where the connections of a core receive bytes: each takes out what is its own at once.
#[derive(Clone)]
pub(super) struct Scratch(Rc<RefCell<Vec<u8>>>);

impl Default for Scratch {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(vec![0; READ_BYTES])))
    }
}

/// A connection to another server.
pub(super) struct Connection {
    socket: Box<dyn Socket>,
    /// What was received and not taken yet.
    pub(super) input: Vec<u8>,
    scratch: Scratch,
    /// Whether a byte of the present answer has come.
    has_answered: bool,
}

/// A request on its way.
#[derive(Default)]
struct Outgoing<'r> {
    head: &'r [u8],
    body: &'r [u8],
    sent: usize,
    is_flushed: bool,
    has_failed: bool,
    /// Whether the request goes on after these bytes.
    more_follows: bool,
}

/// What happened on the wire.
enum Step {
    Sent,
    Received(usize),
}

impl Connection {
    /// A connection that has just been made.
    pub(super) fn new(socket: Box<dyn Socket>, scratch: Scratch) -> Self {
        Self { socket, input: Vec::new(), scratch, has_answered: false }
    }

    /// Whether the other side has said anything since the last request went out.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Lets go of memory that only a request needs.
    pub(super) fn rest(&mut self) {
        self.input = Vec::new();
    }

    /// Whether an idle connection can still be used. The other side may have closed it; and one that says something
    /// unasked is not to be trusted.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.socket).poll_read(&mut context, &mut byte).is_pending()
    }

    /// Sends a request and waits for the head of its answer; also whether the request went out whole. The other side may
    /// answer before it has read everything.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        head: &[u8],
        body: &[u8],
        clock: &Clock,
    ) -> Result<(AnswerHead, bool), SendError> {
        self.has_answered = false;
        let mut outgoing = Outgoing { head, body, ..Outgoing::default() };
        let answer = self.exchange(method, &mut outgoing, clock).await?;
        let answer = answer.ok_or(SendError::Malformed("there is none"))?;
        Ok((answer, outgoing.is_flushed && !outgoing.has_failed))
    }

    /// As [`Self::ask`], with a body that is read while it is sent.
    pub(super) async fn ask_streamed(
        &mut self,
        method: Method,
        head: Vec<u8>,
        body: &mut dyn StreamedBody,
        clock: &Clock,
    ) -> Result<AnswerHead, SendError> {
        self.has_answered = false;
        let (mut piece, mut left) = (head, body.len());
        loop {
            let mut outgoing = Outgoing { head: &piece, more_follows: left > 0, ..Outgoing::default() };
            if let Some(answer) = self.exchange(method, &mut outgoing, clock).await? {
                return Ok(answer);
            }
            let unreadable = |reason: String| SendError::Unreadable(reason);
            piece = body.next().await.map_err(|error| unreadable(error.to_string()))?;
            let rest = left.checked_sub(piece.len() as u64).filter(|_| !piece.is_empty());
            left = rest.ok_or_else(|| unreadable("its length has changed".into()))?;
        }
    }

    /// Sends bytes of a request and waits for the head of the answer; `None` where more bytes follow and no answer came before
    /// these were out.
    async fn exchange(
        &mut self,
        method: Method,
        outgoing: &mut Outgoing<'_>,
        clock: &Clock,
    ) -> Result<Option<AnswerHead>, SendError> {
        let mut checkpoint = Checkpoint::default();
        loop {
            match clock.within(Phase::Transfer, self.step(outgoing)).await? {
                Step::Sent if outgoing.more_follows && outgoing.is_flushed => {
                    checkpoint.look(&*clock.runtime).await;
                    return Ok(None);
                }
                Step::Sent => checkpoint.look(&*clock.runtime).await,
                Step::Received(0) => return Err(SendError::Broken("it ended before the answer".into())),
                Step::Received(_) => {
                    self.has_answered = true;
                    while let Some((answer, length)) = parse_head(&self.input, method)? {
                        self.input.drain(..length);
                        match answer.status {
                            101 => return Err(SendError::Malformed("it changes the protocol")),
                            // What goes before the answer itself says nothing that matters here.
                            100..=199 => {}
                            _ => return Ok(Some(answer)),
                        }
                    }
                }
            }
        }
    }

    /// Receives some bytes: how many, 0 at the end of the connection.
    pub(super) async fn fill(&mut self) -> Result<usize, SendError> {
        poll_fn(|context| self.poll_fill(context)).await.map_err(broken)
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = self.scratch.0.borrow_mut();
        let count = std::task::ready!(Pin::new(&mut self.socket).poll_read(context, &mut scratch))?;
        self.input.extend_from_slice(&scratch[..count]);
        Poll::Ready(Ok(count))
    }

    /// Waits until some bytes have gone out or come in.
    async fn step(&mut self, outgoing: &mut Outgoing<'_>) -> Result<Step, SendError> {
        poll_fn(|context| {
            match outgoing.poll_send(&mut self.socket, context) {
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(Step::Sent)),
                // There may be an answer that says why it takes no more.
                Poll::Ready(Err(_)) => outgoing.give_up(),
                Poll::Ready(Ok(false)) if outgoing.more_follows => {
                    // Who says no before the end would otherwise be talked at until the connection breaks.
                    let early = self.poll_fill(context).map_ok(Step::Received).map_err(broken);
                    return if early.is_pending() { Poll::Ready(Ok(Step::Sent)) } else { early };
                }
                Poll::Ready(Ok(false)) | Poll::Pending => {}
            }
            self.poll_fill(context).map_ok(Step::Received).map_err(broken)
        })
        .await
    }
}

impl Outgoing<'_> {
    /// Sends some more: true when bytes went out and some are left, false when none are.
    fn poll_send(&mut self, socket: &mut Box<dyn Socket>, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let rest = match self.sent.checked_sub(self.head.len()) {
            None => &self.head[self.sent..],
            Some(of_body) => &self.body[of_body..],
        };
        if !rest.is_empty() {
            let part = &rest[..rest.len().min(WRITE_BYTES)];
            let count = std::task::ready!(Pin::new(&mut *socket).poll_write(context, part))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
            if self.sent < self.head.len() + self.body.len() {
                return Poll::Ready(Ok(true));
            }
        }
        if !self.is_flushed && self.sent == self.head.len() + self.body.len() {
            std::task::ready!(Pin::new(socket).poll_flush(context))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(false))
    }

    /// Sends nothing more.
    fn give_up(&mut self) {
        (self.head, self.body, self.sent, self.has_failed) = (&[], &[], 0, true);
        (self.is_flushed, self.more_follows) = (true, false);
    }
}

fn broken(error: io::Error) -> SendError {
    SendError::Broken(error.to_string())
}
