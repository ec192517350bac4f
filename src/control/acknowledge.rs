//! Delayed acknowledgement of writes: of tasks until other instances of the network have them, of changes until the store has
//! them.
//!
//! A question between cores holds a credit until it is answered, and a silent instance may take a minute: some hundred waiting
//! writes would block every search from the control core. So the question to accept a task is answered as soon as the log has it.
//! If others must have it first, the core that asked keeps the write in a table ([`Awaited`]), and the control core sends the
//! verdict in a short message of its own ([`ControlPlane::run_verdicts`]), one at a time to each core. A change that needs no
//! task waits in the same way, because the time a disk takes is not bounded.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_channel::oneshot;
use shards::ids::CoreId;

use super::inbox::Inbox;
use super::message::{ControlError, ControlQuestion};
use super::plane::ControlPlane;

/// Verdicts in one message at most.
const VERDICTS_MAX: usize = 256;

/// The number of a write among those of the core that asks for it; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A core, and the name of the write there.
pub(super) type Asker = (CoreId, Ticket);

/// What became of a write that had to wait.
#[derive(Debug)]
pub struct Verdict {
    /// Which one.
    pub ticket: Ticket,
    /// Why it is not to be acknowledged.
    pub result: Result<(), ControlError>,
}

type Told = Result<(), ControlError>;

/// The writes of one core that have no answer yet: at most one for each request being worked on.
#[derive(Default)]
pub(super) struct Awaited {
    next: Cell<u64>,
    open: RefCell<BTreeMap<Ticket, oneshot::Sender<Told>>>,
}

/// A write in the table; it leaves the table with this.
pub(super) struct Place {
    awaited: Rc<Awaited>,
    ticket: Ticket,
    verdict: oneshot::Receiver<Told>,
}

impl Awaited {
    /// Puts a write into the table before it is asked for, since its verdict may overtake the answer.
    pub(super) fn enter(self: &Rc<Self>) -> Place {
        let ticket = Ticket(self.next.get());
        self.next.set(ticket.0 + 1);
        let (sender, verdict) = oneshot::channel();
        self.open.borrow_mut().insert(ticket, sender);
        Place { awaited: self.clone(), ticket, verdict }
    }

    /// Hands out verdicts. Those whose clients went away are passed over.
    pub(super) fn settle(&self, verdicts: Vec<Verdict>) {
        for Verdict { ticket, result } in verdicts {
            let waiting = self.open.borrow_mut().remove(&ticket);
            if let Some(waiting) = waiting {
                let _ = waiting.send(result);
            }
        }
    }

    /// Ends the wait of all: the control core tells nothing any more.
    pub(super) fn abandon(&self) {
        drop(self.open.take());
    }
}

impl Place {
    /// The name of the write, for the control core.
    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Waits for the verdict.
    pub(super) async fn verdict(mut self) -> Told {
        (&mut self.verdict).await.unwrap_or(Err(ControlError::Unreachable))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.awaited.open.borrow_mut().remove(&self.ticket);
    }
}

/// The control core's verdicts on their way to the others, by core. No more than the writes that may wait.
pub(crate) struct Verdicts(Vec<Inbox<Verdict>>);

impl Verdicts {
    pub(super) fn new(core_count: u16) -> Self {
        Self((0..core_count).map(|_| Inbox::default()).collect())
    }

    /// Leaves a verdict for a core.
    pub(super) fn push(&self, core: CoreId, verdict: Verdict) {
        if let Some(inbox) = self.0.get(usize::from(core.0)) {
            inbox.push(verdict);
        }
    }
}

impl ControlPlane {
    /// Sends a core the verdicts on its writes; never returns.
    pub(super) async fn run_verdicts(&self, core: CoreId) {
        let Some(inbox) = self.verdicts.0.get(usize::from(core.0)) else { return };
        loop {
            let mut waiting = inbox.take().await.into_iter().peekable();
            while waiting.peek().is_some() {
                let verdicts = waiting.by_ref().take(VERDICTS_MAX).collect();
                if let Err(error) = self.mesh.ask(core, ControlQuestion::Settled(verdicts)).await {
                    tracing::debug!(core = core.0, %error, "a core that ended does not hear of its writes");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
