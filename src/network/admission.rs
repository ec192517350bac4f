//! Decides which tasks a network admits and what metadata they get, where tasks are numbered one after another.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use shards::error::UserError;
use shards::network_shards::KeptShards;
use uuid::Uuid;

use super::Network;
use super::task::TaskNetwork;
use crate::control::plane::ControlPlane;
use crate::tasks::batcher::{ChangeGate, Gate};
use crate::tasks::task::{Content, Kind, NewTask, Status, Task, TaskUid};

/// Tasks of the leader that are remembered, so that one which is sent again is known.
const ORIGINS_MAX: usize = 65_536;
/// Tasks that are looked at for that at the start.
const ORIGINS_SEARCHED: u32 = 10_000;

/// The leader's tasks by their numbers there: the network they are for, and the task here.
pub type Origins = BTreeMap<u32, (Uuid, TaskUid)>;

/// What becomes of a task that asks to be accepted.
pub enum Admission {
    /// It is accepted.
    Accepted,
    /// It is here already, under this number.
    Known(TaskUid),
}

impl ControlPlane {
    /// Decides on a task under `network`, which a change of the topology replaces for all tasks after it.
    ///
    /// # Errors
    /// `not_leader`, `network_version_too_old`, `unprocessed_network_task`, and those of imports.
    pub(crate) fn admit(&self, new: &mut NewTask, network: &mut Arc<Network>) -> Result<Admission, UserError> {
        if let Content::NetworkTopologyChange { change } = &new.content {
            if let Some(known) = self.known(new, network) {
                return Ok(Admission::Known(known));
            }
            let is_client = new.network.is_none();
            if is_client && self.change.borrow().is_some() {
                let message = "A change of the topology is under way. Wait until its task has ended, or cancel it.";
                return Err(UserError::new("unprocessed_network_task", message));
            }
            // One that is being made durable without a task may still fail, but what it changes must not change beside it.
            let newest = network.version.max(self.network_under_way.get());
            if change.after.version <= newest || (is_client && change.before.version != newest) {
                return Err(too_old(network));
            }
            *network = Arc::new(change.after.clone());
        } else if !new.content.kind().is_write() {
            return Ok(Admission::Accepted);
        }
        match &new.network {
            None if network.leader.is_none() => {}
            None if network.is_leader() && !self.outbox.is_deposed() => {
                let network_version = network.version;
                new.network = Some(TaskNetwork::Leader { remote_tasks: BTreeMap::new(), network_version });
            }
            None => {
                let leader = network.leader.clone().unwrap_or_default();
                let message = match network.is_leader() {
                    true => "A later version of the network has another leader.".to_owned(),
                    false => format!("Writes go to the leader of the network, `{leader}`."),
                };
                return Err(UserError::new("not_leader", message));
            }
            Some(TaskNetwork::Import { from, metadata, change }) => {
                let under_way = self.change.borrow();
                let under_way = under_way.as_ref().ok_or_else(|| self.not_under_way(change.network_version))?;
                under_way.check_import(from, metadata, change.network_version)?;
            }
            Some(TaskNetwork::Origin(origin)) => {
                if let Some(known) = self.known(new, network) {
                    return Ok(Admission::Known(known));
                }
                if network.leader.is_some() && origin.network_version < network.version {
                    return Err(too_old(network));
                }
            }
            Some(TaskNetwork::Leader { .. }) => {}
        }
        Ok(Admission::Accepted)
    }

    /// The task here of a leader's task that was sent before.
    fn known(&self, new: &NewTask, network: &Network) -> Option<TaskUid> {
        let Some(TaskNetwork::Origin(origin)) = &new.network else { return None };
        let origins = self.origins.borrow();
        let (version, uid) = origins.get(&origin.remote_name)?.get(&origin.task_uid)?;
        let is_led = network.leader.as_ref() == Some(&origin.remote_name);
        (is_led && *version == origin.network_version).then_some(*uid)
    }

    /// Takes note of a task that was accepted.
    pub(crate) fn note_accepted(self: &Rc<Self>, task: &Task) {
        let network = self.network.borrow().clone();
        match &task.network {
            Some(TaskNetwork::Origin(origin)) if is_of(&network, &origin.remote_name) => {
                let mut origins = self.origins.borrow_mut();
                let of_leader = origins.entry(origin.remote_name.clone()).or_default();
                of_leader.insert(origin.task_uid, (origin.network_version, task.uid));
                if of_leader.len() > ORIGINS_MAX {
                    of_leader.pop_first();
                }
            }
            Some(TaskNetwork::Import { .. }) => {
                if let Some(change) = &mut *self.change.borrow_mut() {
                    change.note_import(task);
                }
            }
            _ => {}
        }
        if self.is_ahead(task, &network) {
            self.ahead.borrow_mut().insert(task.uid.0);
        }
    }

    /// Takes over a network; tasks that waited for it need not wait any more.
    pub(crate) fn use_network(&self, network: Arc<Network>) {
        self.network.replace(network.clone());
        self.outbox.network_changed();
        let queue = self.queue.borrow();
        let waiting = std::mem::take(&mut *self.ahead.borrow_mut());
        let waits = |uid: &u32| queue.held(TaskUid(*uid)).is_some_and(|task| self.is_ahead(task, &network));
        self.ahead.replace(waiting.iter().filter(waits).collect());
    }

    /// Whether a task waits for a network that is not known here yet. An instance on its own gets none: what a request says of
    /// itself would hold its task back for ever.
    fn is_ahead(&self, task: &Task, network: &Network) -> bool {
        let may_come = network.leader.is_some() || self.state().features.network;
        may_come && task.network.as_ref().is_some_and(|of_task| of_task.version() > network.version)
    }

    /// Whether a task that waits may be canceled. A write that another instance has, or may be receiving, may not: it would be
    /// done there and not here, and the instances would differ for ever. A change of the topology is canceled on each instance.
    pub(crate) fn may_cancel(&self, task: &Task) -> bool {
        if task.kind() == Kind::NetworkTopologyChange {
            return true;
        }
        match &task.network {
            Some(TaskNetwork::Leader { remote_tasks, .. }) => {
                !self.outbox.is_pending(task.uid.0) && remote_tasks.values().all(|task| task.task_uid.is_none())
            }
            Some(TaskNetwork::Origin(origin)) => {
                let network = self.network.borrow();
                network.leader.as_ref() != Some(&origin.remote_name) || self.is_ahead(task, &network)
            }
            Some(TaskNetwork::Import { .. }) | None => true,
        }
    }

    /// What holds tasks back now.
    pub(crate) fn gate(&self) -> Gate {
        let queue = self.queue.borrow();
        let change = self.change.borrow();
        let change = change.as_ref().map(|change| {
            let allowed = change.allowed(&queue);
            let is_ready = match (change.steps.exported, change.steps.imported) {
                (false, _) => allowed.is_empty(),
                (true, None) => allowed.is_empty() && change.has_received_all(),
                (true, Some(_)) => self.change_tick.get(),
            };
            // The leader's own task is not begun before the others have been told.
            let first = self.outbox.first_undecided();
            let is_ready = is_ready && first.is_none_or(|first| first > change.task.0) && self.is_change_taken(change);
            ChangeGate { task: change.task, is_ready, allowed }
        });
        Gate { first_undecided: self.outbox.first_undecided(), ahead: self.ahead.borrow().clone(), change }
    }

    /// Which documents are kept here; `None`: all. Until the documents of a change have been sent, as before it.
    pub(crate) fn kept(&self) -> Option<KeptShards> {
        match &*self.change.borrow() {
            Some(change) if !change.steps.exported => change.topology.before.kept(),
            _ => self.network.borrow().kept(),
        }
    }

    /// The tasks that others have still to take, when tasks end of which some have.
    pub(crate) fn undelivered(&self, ended: &[Rc<Task>]) -> Option<RoaringBitmap> {
        let is_concerned = ended.iter().any(|task| matches!(task.network, Some(TaskNetwork::Leader { .. })));
        is_concerned.then(|| self.outbox.pending())
    }

    /// Takes up what was under way when the instance stopped.
    pub(crate) fn resume_network(self: &Rc<Self>, undelivered: &RoaringBitmap) {
        let waiting = self.queue.borrow().in_status(Status::Enqueued);
        for uid in &(&waiting | undelivered) {
            match self.task(TaskUid(uid)) {
                Ok(Some(task)) => drop(self.send_on(&task)),
                Ok(None) => tracing::error!(task = uid, "a task that remotes have still to receive no longer exists"),
                Err(error) => {
                    tracing::error!(%error, task = uid, "a task that remotes have still to receive is not sent")
                }
            }
        }
        let newest = self.queue.borrow().in_range(0).max().unwrap_or_default();
        for uid in newest.saturating_sub(ORIGINS_SEARCHED)..=newest {
            if let Ok(Some(task)) = self.task(TaskUid(uid)) {
                let is_import = matches!(task.network, Some(TaskNetwork::Import { .. }));
                if task.network.is_some() && !is_import {
                    self.note_accepted(&task);
                }
            }
        }
    }
}

/// Whether this is the name of an instance that may lead here; names that requests make up are not remembered.
fn is_of(network: &Network, name: &str) -> bool {
    network.leader.as_deref().is_some_and(|leader| leader == name || network.remotes.contains_key(name))
}

fn too_old(network: &Network) -> UserError {
    let message = format!("The network here has version {}, which is later than that of the request.", network.version);
    UserError::new("network_version_too_old", message)
}
