//! A topology change in progress on this instance: what has arrived, who is done, what may be processed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use shards::error::UserError;
use uuid::Uuid;

use super::task::{ImportFrom, ImportMetadata, Origin, TaskNetwork};
use super::topology::TopologyChange;
use super::{failure, forward::Forward};
use crate::control::message::ControlError;
use crate::control::plane::ControlPlane;
use crate::control::storage::record::Changes;
use crate::http::Method;
use crate::tasks::queue::Queue;
use crate::tasks::task::{Content, Kind, Status, Task, TaskUid};

/// A change that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its task here.
    pub task: TaskUid,
    /// From which network to which.
    pub topology: TopologyChange,
    /// The leader's task.
    pub origin: Origin,
    /// What must survive a restart.
    pub steps: Steps,
    /// What other instances sent.
    imports: BTreeMap<String, Imports>,
}

/// How far a change is. As JSON in the control store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Steps {
    /// The network that the change leads to.
    pub version: Uuid,
    /// Whether what is out of date is gone, where there was such.
    pub emptied: bool,
    /// Whether all documents of others were sent.
    pub exported: bool,
    /// Whether all documents for this instance have come, and whether each could be added.
    pub imported: Option<bool>,
    /// Whether every document is where it belongs, so that searches go by the next network.
    pub switched: bool,
    /// The instances that say that everything has come to them, and whether it could be added.
    pub reports: BTreeMap<String, bool>,
    /// The instances that have no index.
    pub without_indexes: BTreeSet<String>,
    /// The instances that have taken this one's own report.
    pub told: BTreeSet<String>,
}

/// What one instance has sent.
#[derive(Clone, Debug, Default, PartialEq)]
struct Imports {
    index_count: Option<u64>,
    indexes: BTreeMap<String, IndexImport>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct IndexImport {
    total: u64,
    received: u64,
    keys: BTreeSet<u32>,
}

/// What another instance says about a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The instance of this name has nothing to send.
    NoIndex(String),
    /// The instance of this name has everything; whether it could be added.
    ImportFinished(String, bool),
}

impl Change {
    /// The change of a task, as far as `steps` say it is.
    pub fn new(task: &Task, steps: Option<Steps>) -> Option<Self> {
        let Content::NetworkTopologyChange { change } = &task.content else { return None };
        let version = change.after.version;
        let leader = change.after.leader.clone().unwrap_or_default();
        let origin = match &task.network {
            Some(TaskNetwork::Origin(origin)) => origin.clone(),
            _ => Origin { remote_name: leader, task_uid: task.uid.0, network_version: version },
        };
        let steps = steps.filter(|steps| steps.version == version);
        let steps = steps.unwrap_or_else(|| Steps { version, ..Steps::default() });
        Some(Self { task: task.uid, topology: (**change).clone(), origin, steps, imports: BTreeMap::new() })
    }

    /// The network that the change leads to.
    pub fn version(&self) -> Uuid {
        self.steps.version
    }

    /// Whether an import belongs to this change and has not come before.
    ///
    /// # Errors
    /// `network_version_mismatch`, `import_task_unknown_remote`, `import_task_already_received`.
    pub fn check_import(&self, from: &ImportFrom, metadata: &ImportMetadata, version: Uuid) -> Result<(), UserError> {
        self.check_sender(&from.remote_name, version)?;
        let known = self.imports.get(&from.remote_name);
        let known = known.and_then(|imports| imports.indexes.get(from.index_name.as_deref().unwrap_or_default()));
        match metadata.task_key {
            Some(key) if known.is_some_and(|index| index.keys.contains(&key)) => {
                Err(UserError::new("import_task_already_received", "These documents have been received already."))
            }
            _ => Ok(()),
        }
    }

    /// Checks that an instance takes part in this change, which leads to `version`.
    fn check_sender(&self, name: &str, version: Uuid) -> Result<(), UserError> {
        if version != self.version() {
            let message = format!("The change under way leads to version {}, not {version}.", self.version());
            return Err(UserError::new("network_version_mismatch", message));
        }
        if !self.topology.others().contains(name) {
            let message = format!("The remote `{name}` has no part in the change under way.");
            return Err(UserError::new("import_task_unknown_remote", message));
        }
        Ok(())
    }

    /// Takes note of what a task of this change imports.
    pub fn note_import(&mut self, task: &Task) {
        let Some(TaskNetwork::Import { from, metadata, change }) = &task.network else { return };
        if change.network_version != self.version() || !matches!(task.content, Content::DocumentAddition { .. }) {
            return;
        }
        let imports = self.imports.entry(from.remote_name.clone()).or_default();
        imports.index_count = Some(metadata.index_count);
        let index = imports.indexes.entry(from.index_name.clone().unwrap_or_default()).or_default();
        index.total = metadata.total_index_documents;
        if metadata.task_key.is_none_or(|key| index.keys.insert(key)) {
            index.received += from.document_count;
        }
    }

    /// Whether everything that others send has come; it may still wait to be processed.
    pub fn has_received_all(&self) -> bool {
        self.topology.senders().into_iter().all(|name| self.has_received_from(name))
    }

    fn has_received_from(&self, name: &str) -> bool {
        let whole = |imports: &Imports| {
            imports.index_count.is_some_and(|count| imports.indexes.len() as u64 >= count)
                && imports.indexes.values().all(|index| index.received >= index.total)
        };
        self.steps.without_indexes.contains(name) || self.imports.get(name).is_some_and(whole)
    }

    /// What is being done or waited for, for people.
    pub fn message(&self) -> String {
        let list = |names: Vec<&str>| names.join(", ");
        if !self.steps.exported {
            return "Documents are sent to the instances that are to have them; writes accepted before come first."
                .into();
        }
        if self.steps.imported.is_none() {
            let senders = self.topology.senders();
            let missing = list(senders.into_iter().filter(|name| !self.has_received_from(name)).collect());
            return match missing.is_empty() {
                true => "All documents have come; they are being added.".into(),
                false => format!("Documents are to come from: {missing}."),
            };
        }
        if self.steps.switched {
            return "Documents that other instances have now are being deleted.".into();
        }
        let others = self.topology.others_after();
        let is_missing = |name: &&str| !self.steps.reports.contains_key(*name) || !self.steps.told.contains(*name);
        format!(
            "Everything is here. It is not known yet whether it is on: {}.",
            list(others.into_iter().filter(is_missing).collect())
        )
    }

    /// Whether all instances that stay have everything, and have heard that this one has.
    pub fn is_agreed(&self) -> bool {
        let others = self.topology.others_after();
        others.iter().all(|name| self.steps.reports.contains_key(*name) && self.steps.told.contains(*name))
    }

    /// Whether what is stale may be deleted: every instance could add what it was sent.
    pub fn may_delete(&self) -> bool {
        self.steps.imported == Some(true) && self.steps.reports.values().all(|successful| *successful)
    }

    /// The waiting tasks that may be processed while the change goes on.
    pub fn allowed(&self, queue: &Queue) -> RoaringBitmap {
        let is_allowed = |task: &Task| match &task.network {
            Some(TaskNetwork::Import { change, .. }) => self.steps.exported && change.network_version == self.version(),
            Some(network) => !self.steps.exported && network.version() < self.version(),
            None => false,
        };
        let waiting = queue.in_status(Status::Enqueued);
        let may = |uid: &u32| queue.held(TaskUid(*uid)).is_some_and(|task| task.kind().is_write() && is_allowed(task));
        waiting.iter().filter(may).collect()
    }
}

impl ControlPlane {
    /// Takes in what another instance says.
    ///
    /// # Errors
    /// `import_task_without_network_task`, `network_version_mismatch`, `import_task_unknown_remote`,
    /// `receive_import_finished_unknown_remote`; the disk failed.
    pub(crate) async fn hear(&self, version: Uuid, message: Message) -> Result<(), ControlError> {
        let steps = {
            let mut change = self.change.borrow_mut();
            let is_known = !version.is_nil() && version == self.network.borrow().version;
            if change.is_none() && is_known && matches!(message, Message::ImportFinished(..)) {
                // It was heard before: the change could not have ended without it, but the answer was lost.
                return Ok(());
            }
            let change = change.as_mut().ok_or_else(no_change)?;
            if version != change.version() {
                let message = format!("The change under way leads to version {}, not {version}.", change.version());
                return Err(UserError::new("network_version_mismatch", message).into());
            }
            let others = change.topology.others();
            match message {
                Message::NoIndex(name) if others.contains(name.as_str()) => {
                    change.steps.without_indexes.insert(name);
                }
                Message::ImportFinished(name, successful) if others.contains(name.as_str()) => {
                    change.steps.reports.insert(name, successful);
                }
                Message::NoIndex(name) => {
                    let message = format!("The remote `{name}` has no part in the change under way.");
                    return Err(UserError::new("import_task_unknown_remote", message).into());
                }
                Message::ImportFinished(name, _) => {
                    let message = format!("The remote `{name}` has no part in the change under way.");
                    return Err(UserError::new("receive_import_finished_unknown_remote", message).into());
                }
            }
            change.steps.clone()
        };
        self.keep_steps(steps).await?;
        self.work.raise();
        Ok(())
    }

    /// The error of a message about the change to `version`, when none is under way. It tells by the network in force: the change
    /// itself may just be getting its number together with this message.
    pub(crate) fn not_under_way(&self, version: Uuid) -> UserError {
        match !version.is_nil() && version <= self.network.borrow().version {
            true => ended(),
            false => no_change(),
        }
    }

    /// Checks that an instance may look at what is here and send documents for the change to `version`. One that comes back to
    /// a network is empty first: who saw its old indexes would not make them anew, with their settings.
    ///
    /// # Errors
    /// `import_task_without_network_task` for now, `network_version_mismatch`, `import_task_unknown_remote`.
    pub(crate) fn may_import(&self, version: Uuid, name: &str) -> Result<(), UserError> {
        let change = self.change.borrow();
        let change = change.as_ref().ok_or_else(|| self.not_under_way(version))?;
        change.check_sender(name, version)?;
        match change.topology.starts_empty && !change.steps.emptied {
            true => Err(no_change()),
            false => Ok(()),
        }
    }

    /// Makes durable how far the change is.
    pub(crate) async fn keep_steps(&self, steps: Steps) -> Result<(), ControlError> {
        self.store.commit(Changes { network_steps: Some(Some(steps)), ..Changes::default() }).await
    }

    /// Changes the steps of the change under way, durably. A step that cannot be written has not been made.
    pub(crate) async fn step(&self, change: impl Fn(&mut Steps)) -> Result<(), ControlError> {
        loop {
            let before = self.change.borrow().as_ref().map(|under_way| under_way.steps.clone());
            let Some(before) = before else { return Ok(()) };
            let mut steps = before.clone();
            change(&mut steps);
            self.keep_steps(steps.clone()).await?;
            match &mut *self.change.borrow_mut() {
                // What others said meanwhile was written without this step.
                Some(under_way) if under_way.steps != before => {}
                Some(under_way) => {
                    under_way.steps = steps;
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    /// Tells an instance something about the change.
    ///
    /// # Errors
    /// That it cannot be reached, or what it answers.
    pub(crate) async fn tell(
        &self,
        change: &Change,
        name: &str,
        message: Message,
    ) -> Result<(), crate::api::error::ApiError> {
        let known = change.topology.after.remotes.get(name).or_else(|| change.topology.before.remotes.get(name));
        let remote = known.ok_or_else(|| failure::unreadable(name, "it has no part in the change"))?;
        let message = match message {
            Message::NoIndex(remote) => json!({ "type": "exportNoIndexForRemote", "remote": remote }),
            Message::ImportFinished(remote, successful) => {
                json!({ "type": "importFinishedForRemote", "remote": remote, "successful": successful })
            }
        };
        let body = json!({ "origin": change.origin, "message": message });
        let request = self.message(name, remote, Forward::json(Method::Post, "/network/control".into(), &body))?;
        let answer = self.outgoing.fetch(request, 1 << 16).await;
        let answer = answer.map_err(|error| failure::unanswered(name, &error))?;
        failure::refused(name, &answer).map_or(Ok(()), Err)
    }

    /// Finds the change under way, at the start or when one has begun.
    pub(crate) fn find_change(&self, steps: Option<Steps>) {
        let queue = self.queue.borrow();
        let waiting = [Status::Enqueued, Status::Processing].map(|status| queue.in_status(status));
        let waiting = &waiting[0] | &waiting[1];
        let is_change =
            |uid: &u32| queue.held(TaskUid(*uid)).is_some_and(|task| task.kind() == Kind::NetworkTopologyChange);
        let first = waiting.iter().find(is_change).and_then(|uid| queue.held(TaskUid(uid)));
        let mut change = first.and_then(|task| Change::new(task, steps));
        if let Some(change) = &mut change {
            for uid in queue.in_range(change.task.0) {
                let held = queue.held(TaskUid(uid)).map(|task| Task::clone(task));
                if let Some(task) = held.or_else(|| self.store.task(TaskUid(uid)).ok().flatten()) {
                    change.note_import(&task);
                }
            }
        }
        if change.is_some() {
            self.change_found.raise();
        }
        self.change.replace(change);
    }
}

/// The error of documents for a change that has ended here: they are not needed any more.
pub fn ended() -> UserError {
    UserError::new("network_version_mismatch", "The change of the network's topology has ended here.")
}

/// The error of a message about a change where none is under way; whoever sent it comes again.
pub fn no_change() -> UserError {
    UserError::new("import_task_without_network_task", "No change of the network's topology is under way here.")
}
