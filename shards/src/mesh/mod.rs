//! Questions and answers between the cores of an instance: the only way to communicate between cores.
//!
//! Every ordered pair of cores has two rings, one for questions and one for their answers. The asker holds credits: at most
//! `in_flight_max` questions are open at a peer, and the rings have room for exactly that many. So a question or an answer always
//! fits, nothing waits for room in a ring while handling a message, and two cores that ask each other at full speed do not
//! deadlock.
//!
//! On each core one task (the *pump*) takes what has arrived, a bounded number per turn and peer. It runs a handler's first step
//! in place, because most questions are answered without waiting; a handler that waits becomes a task of its own. Answers written
//! in one turn are published together at its end, with one wake-up for each sleeping peer.
//!
//! A handler that itself asks and waits needs a credit of its own. If all questions of two cores were of this kind, each could
//! hold the credits the other waits for. So a question whose handler asks others is only asked by one coordinator at a time (a
//! batch, a settings change), never once per request. A question never waits for the outside world either: it is answered with
//! what is known, and the rest follows in a question from the other side.
//!
//! A question that changes nothing may be *droppable*: when the future of its answer is dropped, its handler is dropped on the other
//! core at its next wait ([`given_up`]), so that a search whose client has gone ends on every core. All others are handled to
//! their end, whether or not somebody waits.
//!
//! Messages are plain data that is moved. A buffer that should return to the core that allocated it travels back in the answer.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use crate::ids::CoreId;
use crate::runtime::{Queue, Runtime};

mod bell;
mod credits;
mod given_up;
mod pump;
mod ring;
mod state;
#[cfg(test)]
mod tests;

pub use ring::{Consumer, Producer, ring};
pub use state::{Port, ports};

use state::State;

/// Questions that one core may have open at another unless configured otherwise.
pub const IN_FLIGHT_MAX: u16 = 256;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The handler panicked; the other core lives on. What the question had begun there may be half done.
    #[error("the handler on core {0} panicked", core.0)]
    HandlerPanicked {
        /// The core asked.
        core: CoreId,
    },
    /// That core has ended or is ending. The question may or may not have been handled.
    #[error("core {0} is shutting down", core.0)]
    Closed {
        /// The core asked.
        core: CoreId,
    },
    /// All credits are in use; the question was not sent. Only [`Mesh::try_ask`] says so.
    #[error("core {0} has its limit of open questions", core.0)]
    Busy {
        /// The core asked.
        core: CoreId,
    },
    /// The instance has no such core, or the core asked itself before [`Mesh::serve`].
    #[error("nobody answers on core {0}", core.0)]
    Nobody {
        /// The core asked.
        core: CoreId,
    },
}

/// How a question is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The share of its core that the handler takes.
    pub queue: Queue,
    /// Whether the handler ends, at its next wait, once nobody waits for the answer: only where it changes nothing, or what it
    /// changes is right wherever it ends.
    pub is_droppable: bool,
}

impl From<Queue> for Manner {
    /// Handled to the end.
    fn from(queue: Queue) -> Self {
        Self { queue, is_droppable: false }
    }
}

/// What answers questions: given the asker and the question.
pub type Handler<Q, A> = Rc<dyn Fn(CoreId, Q) -> LocalBoxFuture<'static, A>>;

/// One core's place in the mesh. Cheap to clone.
pub struct Mesh<Q, A>(Rc<State<Q, A>>);

impl<Q, A> Clone for Mesh<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q: Send + 'static, A: Send + 'static> Mesh<Q, A> {
    /// Takes a core's port and starts its pump. Done by the runtimes.
    pub fn new(runtime: &Rc<dyn Runtime>, port: Port<Q, A>) -> Self {
        let state = Rc::new(State::new(runtime.clone(), port));
        runtime.spawn(Queue::Messages, Box::pin(pump::run(state.clone())));
        Self(state)
    }

    /// This core.
    pub fn core(&self) -> CoreId {
        self.0.core
    }

    /// Asks a core and waits for the answer; with all credits in use, waits for one first, in line. Asking the own core runs
    /// the handler directly, within the future returned, and crosses nothing. Dropping the future stops the handler of the own
    /// core, and that of another if the question is droppable ([`Manner`]).
    pub fn ask(&self, to: CoreId, question: Q) -> LocalBoxFuture<'static, Result<A, AskError>> {
        let state = self.0.clone();
        if to == state.core {
            return Box::pin(state::ask_self(state, question));
        }
        Box::pin(async move {
            let Some(peer) = state.peer(to) else { return Err(AskError::Nobody { core: to }) };
            peer.credits.take().await;
            state.send(to, question)?.await
        })
    }

    /// Like [`Mesh::ask`], but refuses with [`AskError::Busy`] instead of waiting for a credit. The question is sent before
    /// this returns.
    pub fn try_ask(&self, to: CoreId, question: Q) -> Result<LocalBoxFuture<'static, Result<A, AskError>>, AskError> {
        let state = self.0.clone();
        if to == state.core {
            return Ok(Box::pin(state::ask_self(state, question)));
        }
        let peer = state.peer(to).ok_or(AskError::Nobody { core: to })?;
        if !peer.credits.try_take() {
            return Err(AskError::Busy { core: to });
        }
        let answer = state.send(to, question)?;
        Ok(Box::pin(answer))
    }

    /// Sets what answers this core's questions; those that came earlier have waited. Handlers run in [`Queue::Search`].
    pub fn serve(&self, handler: Handler<Q, A>) {
        self.serve_in(Rc::new(|_| Queue::Search.into()), handler);
    }

    /// Like [`Mesh::serve`], with the manner in which each question is handled: a batch to index must not run with the shares of
    /// a search. Handlers in [`Queue::Search`] begin without a task of their own.
    pub fn serve_in(&self, manner_of: Rc<dyn Fn(&Q) -> Manner>, handler: Handler<Q, A>) {
        self.0.set_handler(manner_of, handler);
    }

    /// Waits until another core answers no questions any more: for what it owes beside answers. Returns at once for the own
    /// core and for one that the instance has not. Those who wait are few, never one for each request.
    pub fn ended(&self, core: CoreId) -> LocalBoxFuture<'static, ()> {
        let state = self.0.clone();
        Box::pin(async move {
            if let Some(end) = state.end_of(core) {
                end.await;
            }
        })
    }

    /// Ends this core's part: later questions to it and those open fail with [`AskError::Closed`], on both sides.
    pub fn close(&self) {
        self.0.close();
    }
}

/// Closes a mesh when a core's work ends, also by a panic.
pub(crate) struct CloseOnDrop<Q: Send + 'static, A: Send + 'static>(pub(crate) Mesh<Q, A>);

impl<Q: Send + 'static, A: Send + 'static> Drop for CloseOnDrop<Q, A> {
    fn drop(&mut self) {
        self.0.close();
    }
}
