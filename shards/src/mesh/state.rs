//! What a core knows of its peers: rings, credits, open questions.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use super::bell::Bell;
use super::credits::Credits;
use super::given_up::{Awaited, GivenUp};
use super::ring::{Consumer, Producer, ring};
use super::{AskError, Handler, Manner};
use crate::ids::CoreId;
use crate::runtime::{OnceReceiver, OnceSender, Runtime, catch_panic, once};

/// A question on its way; `ticket` names it to the asker.
pub(super) struct Asked<Q> {
    pub(super) ticket: u32,
    pub(super) question: Q,
}

/// An answer on its way; `None` when the handler panicked, or was dropped because nobody waits.
pub(super) struct Answered<A> {
    pub(super) ticket: u32,
    pub(super) answer: Option<A>,
}

/// The ends of the four rings between this core and one other.
struct Wires<Q, A> {
    questions_out: Producer<Asked<Q>>,
    questions_in: Consumer<Asked<Q>>,
    answers_out: Producer<Answered<A>>,
    answers_in: Consumer<Answered<A>>,
    /// Of the questions of this core.
    given_up_out: GivenUp,
    /// Of those of the other.
    given_up_in: GivenUp,
}

/// A core's ends of all rings, on the way to the thread where the core will live.
pub struct Port<Q, A> {
    core: CoreId,
    in_flight_max: u16,
    /// By core; `None` at the own place.
    wires: Vec<Option<Wires<Q, A>>>,
    bells: Arc<[Bell]>,
}

/// The ports of `cores` cores, by core. Memory: `4 * in_flight_max` messages for each pair.
pub fn ports<Q: Send, A: Send>(cores: u16, in_flight_max: u16) -> Vec<Port<Q, A>> {
    let bells: Arc<[Bell]> = (0..cores).map(|_| Bell::default()).collect();
    let in_flight_max = in_flight_max.max(1);
    let mut ports: Vec<Port<Q, A>> = (0..cores)
        .map(|core| Port {
            core: CoreId(core),
            in_flight_max,
            wires: (0..cores).map(|_| None).collect(),
            bells: bells.clone(),
        })
        .collect();
    for low in 0..usize::from(cores) {
        for high in low + 1..usize::from(cores) {
            let capacity = usize::from(in_flight_max);
            let ((up, up_end), (down, down_end)) = (ring(capacity), ring(capacity));
            let ((up_answers, up_answers_end), (down_answers, down_answers_end)) = (ring(capacity), ring(capacity));
            let (given_up, given_down) = (GivenUp::of(in_flight_max), GivenUp::of(in_flight_max));
            ports[low].wires[high] = Some(Wires {
                questions_out: up,
                questions_in: down_end,
                answers_out: down_answers,
                answers_in: up_answers_end,
                given_up_out: given_up.clone(),
                given_up_in: given_down.clone(),
            });
            ports[high].wires[low] = Some(Wires {
                questions_out: down,
                questions_in: up_end,
                answers_out: up_answers,
                answers_in: down_answers_end,
                given_up_out: given_down,
                given_up_in: given_up,
            });
        }
    }
    ports
}

/// Who waits for an answer.
type Waiting<A> = OnceSender<Result<A, AskError>>;

/// One other core.
pub(super) struct Peer<Q, A> {
    pub(super) core: CoreId,
    pub(super) credits: Credits,
    wires: Wires<Q, A>,
    /// Open questions by ticket; tickets are as many as credits and are used again.
    open: RefCell<Vec<Option<Waiting<A>>>>,
    free_tickets: RefCell<Vec<u32>>,
    /// Those who wait for the end of that core; they learn of it when this is dropped.
    end_watchers: RefCell<Vec<OnceSender<()>>>,
}

/// What answers, and in which manner.
pub(super) struct Service<Q, A> {
    pub(super) manner_of: Rc<dyn Fn(&Q) -> Manner>,
    pub(super) handler: Handler<Q, A>,
}

pub(super) struct State<Q, A> {
    pub(super) core: CoreId,
    pub(super) runtime: Rc<dyn Runtime>,
    /// By core; `None` at the own place.
    peers: Vec<Option<Peer<Q, A>>>,
    bells: Arc<[Bell]>,
    service: RefCell<Option<Rc<Service<Q, A>>>>,
    /// Within a turn of the pump messages are only pushed; its end publishes them.
    in_turn: Cell<bool>,
}

impl<Q: Send + 'static, A: Send + 'static> State<Q, A> {
    pub(super) fn new(runtime: Rc<dyn Runtime>, port: Port<Q, A>) -> Self {
        let tickets = u32::from(port.in_flight_max);
        let peer = |(number, wires): (usize, Option<Wires<Q, A>>)| {
            wires.map(|wires| Peer {
                core: CoreId(number as u16),
                credits: Credits::new(tickets),
                wires,
                open: RefCell::new((0..tickets).map(|_| None).collect()),
                free_tickets: RefCell::new((0..tickets).rev().collect()),
                end_watchers: RefCell::default(),
            })
        };
        Self {
            core: port.core,
            runtime,
            peers: port.wires.into_iter().enumerate().map(peer).collect(),
            bells: port.bells,
            service: RefCell::new(None),
            in_turn: Cell::new(false),
        }
    }

    pub(super) fn peer(&self, core: CoreId) -> Option<&Peer<Q, A>> {
        self.peers.get(usize::from(core.0))?.as_ref()
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer<Q, A>> + Clone {
        self.peers.iter().flatten()
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bells[usize::from(self.core.0)]
    }

    pub(super) fn bell_of(&self, core: CoreId) -> &Bell {
        &self.bells[usize::from(core.0)]
    }

    pub(super) fn service(&self) -> Option<Rc<Service<Q, A>>> {
        self.service.borrow().clone()
    }

    pub(super) fn set_handler(&self, manner_of: Rc<dyn Fn(&Q) -> Manner>, handler: Handler<Q, A>) {
        *self.service.borrow_mut() = Some(Rc::new(Service { manner_of, handler }));
        self.bell().ring();
    }

    /// Sends a question for which a credit was taken.
    pub(super) fn send(
        &self,
        to: CoreId,
        question: Q,
    ) -> Result<impl Future<Output = Result<A, AskError>> + use<Q, A>, AskError> {
        let peer = self.peer(to).ok_or(AskError::Nobody { core: to })?;
        if self.bell_of(to).is_closed() || self.bell().is_closed() {
            peer.credits.give_back();
            return Err(AskError::Closed { core: to });
        }
        let ticket = peer.free_tickets.borrow_mut().pop().expect("a ticket for each credit");
        let (sender, receiver) = once();
        peer.open.borrow_mut()[ticket as usize] = Some(sender);
        peer.wires.given_up_out.clear(ticket);
        let answer = Awaited::new(receiver, peer.wires.given_up_out.clone(), ticket);
        let pushed = peer.wires.questions_out.push(Asked { ticket, question });
        assert!(pushed.is_ok(), "a ring has room for every credit");
        self.publish_to(peer);
        Ok(async move { answer.await.unwrap_or(Err(AskError::Closed { core: to })) })
    }

    /// Sends an answer to a question of `to`.
    pub(super) fn answer(&self, to: CoreId, ticket: u32, answer: Option<A>) {
        let Some(peer) = self.peer(to) else { return };
        let pushed = peer.wires.answers_out.push(Answered { ticket, answer });
        assert!(pushed.is_ok(), "a ring has room for every credit");
        self.publish_to(peer);
    }

    /// What ends the wait of [`super::Mesh::ended`].
    pub(super) fn end_of(&self, core: CoreId) -> Option<OnceReceiver<()>> {
        let peer = self.peer(core)?;
        let (sender, receiver) = once();
        {
            let mut end_watchers = peer.end_watchers.borrow_mut();
            end_watchers.retain(|other| !other.is_abandoned());
            end_watchers.push(sender);
        }
        // Whoever closes its bell after this look rings ours, and the pump finds who waits.
        let is_closed = self.bell_of(core).is_closed() || self.bell().is_closed();
        (!is_closed).then_some(receiver)
    }

    fn publish_to(&self, peer: &Peer<Q, A>) {
        if !self.in_turn.get() {
            self.publish(peer);
        }
    }

    fn publish(&self, peer: &Peer<Q, A>) {
        // Both, without short cut: questions and answers share the wake.
        if peer.wires.questions_out.publish() | peer.wires.answers_out.publish() {
            self.bell_of(peer.core).ring();
            self.runtime.interrupt(peer.core);
        }
    }

    pub(super) fn begin_turn(&self) {
        self.in_turn.set(true);
    }

    pub(super) fn end_turn(&self) {
        self.in_turn.set(false);
        self.peers().for_each(|peer| self.publish(peer));
    }

    pub(super) fn close(&self) {
        self.bell().close();
        for peer in self.peers() {
            peer.fail_open();
            self.bell_of(peer.core).ring();
        }
        *self.service.borrow_mut() = None;
        self.bell().ring();
        self.bell().forget_waker();
    }
}

impl<Q, A> Peer<Q, A> {
    pub(super) fn next_question(&self) -> Option<Asked<Q>> {
        self.wires.questions_in.pop()
    }

    pub(super) fn next_answer(&self) -> Option<Answered<A>> {
        self.wires.answers_in.pop()
    }

    /// The marks of those of its questions that it no longer waits for.
    pub(super) fn given_up(&self) -> GivenUp {
        self.wires.given_up_in.clone()
    }

    pub(super) fn has_questions(&self) -> bool {
        !self.wires.questions_in.is_empty()
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.wires.answers_in.is_empty()
    }

    /// Hands an answer to who waits for it, and its credit to who waits for one.
    pub(super) fn deliver(&self, answered: Answered<A>) {
        let sender = self.open.borrow_mut().get_mut(answered.ticket as usize).and_then(Option::take);
        let Some(sender) = sender else { return };
        self.free_tickets.borrow_mut().push(answered.ticket);
        sender.send(answered.answer.ok_or(AskError::HandlerPanicked { core: self.core }));
        self.credits.give_back();
    }

    /// Whether somebody waits for an answer, or for the end of that core.
    pub(super) fn is_awaited(&self) -> bool {
        !self.end_watchers.borrow().is_empty() || self.open.borrow().iter().any(Option::is_some)
    }

    /// Fails all open questions: no answer will come.
    pub(super) fn fail_open(&self) {
        drop(self.end_watchers.take());
        let tickets = self.open.borrow().len();
        for ticket in 0..tickets {
            let sender = self.open.borrow_mut()[ticket].take();
            let Some(sender) = sender else { continue };
            self.free_tickets.borrow_mut().push(ticket as u32);
            sender.send(Err(AskError::Closed { core: self.core }));
            self.credits.give_back();
        }
    }
}

/// A question to the own core: the handler runs within the asker's task.
pub(super) async fn ask_self<Q: Send + 'static, A: Send + 'static>(
    state: Rc<State<Q, A>>,
    question: Q,
) -> Result<A, AskError> {
    let core = state.core;
    let Some(service) = state.service() else { return Err(AskError::Nobody { core }) };
    let answer = catch_panic(async { (service.handler)(core, question).await }).await;
    answer.map_err(|panicked| {
        tracing::error!(core = core.0, panic = %panicked, "handler panicked");
        AskError::HandlerPanicked { core }
    })
}
