//! How a core learns that nobody waits for its answer any more.
//!
//! For each ordered pair of cores there is a mark for every ticket. Who asks sets it when the wait for the answer is dropped, and
//! clears it before the ticket is used again, which is never before the answer has come. Who answers looks at it whenever the
//! handler would go on. There is no message and no wake: work that may be dropped reaches its next wait soon, and a question
//! that still lies in its ring is dropped when it is taken out.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::runtime::OnceReceiver;

/// The marks of one ordered pair of cores, by ticket.
#[derive(Clone)]
pub(super) struct GivenUp(Arc<[AtomicBool]>);

impl GivenUp {
    /// For so many tickets, none of them marked.
    pub(super) fn of(tickets: u16) -> Self {
        Self((0..tickets).map(|_| AtomicBool::new(false)).collect())
    }

    /// Who asks: nobody waits for the answer.
    fn mark(&self, ticket: u32) {
        self.0[ticket as usize].store(true, Ordering::Relaxed);
    }

    /// Who asks: before a question is published, which is what orders this before all that the other core reads.
    pub(super) fn clear(&self, ticket: u32) {
        let mark = &self.0[ticket as usize];
        // A store would take the line from the other core each time.
        if mark.load(Ordering::Relaxed) {
            mark.store(false, Ordering::Relaxed);
        }
    }

    /// Who answers.
    fn is_marked(&self, ticket: u32) -> bool {
        self.0[ticket as usize].load(Ordering::Relaxed)
    }

    /// Does the work for a question until its end, or until nobody waits for it: then the work is dropped, and there is `None`.
    pub(super) async fn unless_marked<T>(&self, ticket: u32, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            if self.is_marked(ticket) {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }
}

/// The wait for an answer: a future of it, or of `None` where none will come. Dropped before, it marks the question.
pub(super) struct Awaited<A> {
    answer: OnceReceiver<A>,
    given_up: GivenUp,
    ticket: u32,
    is_over: bool,
}

impl<A> Awaited<A> {
    pub(super) fn new(answer: OnceReceiver<A>, given_up: GivenUp, ticket: u32) -> Self {
        Self { answer, given_up, ticket, is_over: false }
    }
}

impl<A> Future for Awaited<A> {
    type Output = Option<A>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<A>> {
        let poll = Pin::new(&mut self.answer).poll(context);
        self.is_over |= poll.is_ready();
        poll
    }
}

impl<A> Drop for Awaited<A> {
    fn drop(&mut self) {
        // With an answer that nobody has taken the ticket is another question's by now.
        let mut context = Context::from_waker(Waker::noop());
        if !self.is_over && Pin::new(&mut self.answer).poll(&mut context).is_pending() {
            self.given_up.mark(self.ticket);
        }
    }
}
