//! The task that takes messages off a core's rings.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Manner;
use super::state::{Asked, Peer, State};
use crate::runtime::{Queue, catch_panic};

/// Messages of each kind taken from one peer before the others have their turn.
const TAKEN_PER_TURN: usize = 16;

/// Runs until the mesh is closed.
pub(super) async fn run<Q: Send + 'static, A: Send + 'static>(state: Rc<State<Q, A>>) {
    let mut first_peer = 0;
    while !state.bell().is_closed() {
        state.begin_turn();
        let taken = turn(&state, first_peer);
        state.end_turn();
        // Another peer goes first next time, so that a loud one cannot stand before the others.
        first_peer += 1;
        // It sleeps at once when there is nothing: looking at the rings for some tens of microseconds more was measured to
        // slow every kind of search, since those who would send the next message need the processor.
        if taken {
            state.runtime.yield_now().await;
        } else {
            sleep(&state).await;
        }
    }
}

/// Takes a bounded number of messages from every peer. False if there were none.
fn turn<Q: Send + 'static, A: Send + 'static>(state: &Rc<State<Q, A>>, first_peer: usize) -> bool {
    let peer_count = state.peers().count();
    let mut taken = false;
    for peer in state.peers().cycle().skip(first_peer % peer_count.max(1)).take(peer_count) {
        taken |= take_answers(peer);
        taken |= take_questions(state, peer);
        if state.bell_of(peer.core).is_closed() && !peer.has_answers() && peer.is_awaited() {
            peer.fail_open();
        }
    }
    taken
}

fn take_answers<Q: Send + 'static, A: Send + 'static>(peer: &Peer<Q, A>) -> bool {
    for count in 0..TAKEN_PER_TURN {
        let Some(answered) = peer.next_answer() else { return count > 0 };
        peer.deliver(answered);
    }
    true
}

fn take_questions<Q: Send + 'static, A: Send + 'static>(state: &Rc<State<Q, A>>, peer: &Peer<Q, A>) -> bool {
    for count in 0..TAKEN_PER_TURN {
        // A handler's first step may be a search of some hundred microseconds: sixteen of them would keep everything else waiting.
        if state.service().is_none() || count > 0 && state.runtime.should_yield() {
            return count > 0;
        }
        let Some(asked) = peer.next_question() else { return count > 0 };
        handle(state, peer, asked);
    }
    true
}

/// Begins a question's handler: at once if it is urgent, and as a task for what it does not finish at once. One that may be
/// dropped is, once nobody waits for its answer; the answer that there is none still gives ticket and credit back.
fn handle<Q: Send + 'static, A: Send + 'static>(state: &Rc<State<Q, A>>, peer: &Peer<Q, A>, asked: Asked<Q>) {
    let Asked { ticket, question } = asked;
    let Some(service) = state.service() else { return };
    let (from, Manner { queue, is_droppable }) = (peer.core, (service.manner_of)(&question));
    let given_up = is_droppable.then(|| peer.given_up());
    let handler = service.handler.clone();
    let own = state.clone();
    let mut work = Box::pin(async move {
        let answering = catch_panic(async { handler(from, question).await });
        let answer = match given_up {
            Some(given_up) => given_up.unless_marked(ticket, answering).await,
            None => Some(answering.await),
        };
        if let Some(Err(panicked)) = &answer {
            tracing::error!(core = own.core.0, from = from.0, panic = %panicked, "handler panicked");
        }
        own.answer(from, ticket, answer.and_then(Result::ok));
    });
    if queue == Queue::Search {
        // The task made below polls again, so whatever this poll registers with the empty waker is registered anew.
        let mut context = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
    state.runtime.spawn(queue, work);
}

/// Waits until a ring has news.
async fn sleep<Q: Send + 'static, A: Send + 'static>(state: &Rc<State<Q, A>>) {
    std::future::poll_fn(|context| {
        let bell = state.bell();
        bell.arm(context.waker());
        if has_work(state) {
            bell.disarm();
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    state.bell().disarm();
}

fn has_work<Q: Send + 'static, A: Send + 'static>(state: &State<Q, A>) -> bool {
    let serves = state.service().is_some();
    state.bell().is_closed()
        || state.peers().any(|peer| {
            peer.has_answers()
                || serves && peer.has_questions()
                || state.bell_of(peer.core).is_closed() && peer.is_awaited()
        })
}
