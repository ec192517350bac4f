//! What is processed next, and what is processed together with it.
//!
//! [`choose`] finds the task or tasks to begin with, by rank of kinds. For tasks of an index, [`Collector`] then takes
//! further waiting tasks of that index, in order, as far as they can be applied as one step whose effect is that of
//! applying them one by one.

use roaring::RoaringBitmap;

use super::queue::Queue;
use super::task::{Content, Kind, Status, Task, TaskUid};

/// How much one batch may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tasks of an index.
    pub tasks_max: usize,
    /// Bytes of payloads together; one task may exceed it alone.
    pub payload_bytes_max: u64,
}

/// The begin of the next batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// These tasks, all of one kind that needs no collecting.
    Tasks(Kind, Vec<TaskUid>),
    /// Tasks of one index, to be collected from its waiting tasks in this order.
    OfIndex(String, RoaringBitmap),
    /// A task of no index that has no rank of its own: a swap.
    Alone(TaskUid),
}

/// Why a batch holds no more tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No further task was waiting.
    QueueEmpty,
    /// The kind is processed by itself, or with its like only.
    KindStandsAlone(Kind),
    /// The next task is one that is processed by itself.
    NextStandsAlone(TaskUid, Kind),
    /// The next task cannot be applied in one step with those before it.
    NextDoesNotFit(TaskUid, Kind),
    /// The next task names another primary key.
    OtherPrimaryKey(TaskUid),
    /// The next task may create the index, those before it may not.
    MayCreateIndex(TaskUid),
    /// The index is gone after this batch.
    IndexDeletion(TaskUid),
    /// As many tasks as are allowed.
    TaskLimit(usize),
    /// The payloads would be larger than allowed.
    PayloadLimit(u64),
}

/// What a batch of an index does, once collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Additions with deletions by id among them, applied in order.
    Additions,
    /// Deletions only, by id or filter, applied in order.
    Deletions,
    /// Everything is deleted; what was collected has no other effect.
    Clear,
    /// Settings, applied in order.
    Settings,
    /// Everything is deleted, and the settings are applied in order.
    ClearAndSettings,
    /// The index goes; what was collected has no other effect.
    IndexDeletion,
    /// One task that stands alone.
    Single,
}

/// What the collector has to know of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexFacts {
    /// No index of this name.
    Absent,
    /// There is one, with this primary key.
    Present {
        /// Its primary key, if it has one yet.
        primary_key: Option<String>,
    },
}

/// The tasks of one index that go together.
#[derive(Debug)]
pub struct Collector {
    facts: IndexFacts,
    limits: Limits,
    state: State,
    tasks: Vec<TaskUid>,
    payload_bytes: u64,
    may_create_index: bool,
    stop: Option<Stop>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Empty,
    Additions(BatchKey),
    Deletions { by_filter: bool },
    Clear,
    Settings,
    ClearAndSettings,
    IndexDeletion,
    Single,
}

/// Which primary key the additions of a batch ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BatchKey {
    /// The one the index has, or is to find by itself.
    OfIndex,
    /// This one, for an index that has none yet.
    Named(String),
    /// One that contradicts the index: the batch is there to fail.
    Contradicts,
}

/// What holds tasks back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gate {
    /// Writes from this number on wait until other instances have been sent them.
    pub first_undecided: Option<u32>,
    /// Tasks for a network that is not known here yet.
    pub ahead: RoaringBitmap,
    /// The change of the network that is under way.
    pub change: Option<ChangeGate>,
}

/// What a change of the network under way lets through.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeGate {
    /// Its task.
    pub task: TaskUid,
    /// Whether its next step can be done.
    pub is_ready: bool,
    /// The waiting tasks that may be processed before.
    pub allowed: RoaringBitmap,
}

/// Finds the begin of the next batch; `None` when nothing waits that may be processed.
pub fn choose(queue: &Queue, gate: &Gate) -> Option<Choice> {
    let of = |kind| queue.enqueued_of(kind);
    let uids = |set: RoaringBitmap| set.iter().map(TaskUid).collect::<Vec<_>>();
    if let Some(last) = of(Kind::TaskCancelation).max() {
        return Some(Choice::Tasks(Kind::TaskCancelation, vec![TaskUid(last)]));
    }
    if let Some(oldest) = of(Kind::UpgradeDatabase).min() {
        return Some(Choice::Tasks(Kind::UpgradeDatabase, vec![TaskUid(oldest)]));
    }
    if let Some(change) = &gate.change {
        if change.is_ready {
            return Some(Choice::Tasks(Kind::NetworkTopologyChange, vec![change.task]));
        }
        return of_index(queue, &change.allowed);
    }
    for (kind, together) in [
        (Kind::TaskDeletion, true),
        (Kind::IndexCompaction, false),
        (Kind::Export, false),
        (Kind::SnapshotCreation, true),
        (Kind::DumpCreation, false),
    ] {
        let waiting = of(kind);
        if let Some(oldest) = waiting.min() {
            return Some(Choice::Tasks(kind, if together { uids(waiting) } else { vec![TaskUid(oldest)] }));
        }
    }
    let mut enqueued = queue.in_status(Status::Enqueued) - &gate.ahead;
    if let Some(first) = gate.first_undecided {
        enqueued.remove_range(first..);
    }
    of_index(queue, &enqueued)
}

/// The oldest of these tasks, with those of its index.
fn of_index(queue: &Queue, waiting: &RoaringBitmap) -> Option<Choice> {
    let oldest = TaskUid(waiting.min()?);
    match queue.held(oldest)?.content.index() {
        Some(index) => Some(Choice::OfIndex(index.into(), waiting & queue.of_index(index))),
        None => Some(Choice::Alone(oldest)),
    }
}

impl Collector {
    /// An empty collection for an index.
    pub fn new(facts: IndexFacts, limits: Limits) -> Self {
        Self {
            facts,
            limits,
            state: State::Empty,
            tasks: Vec::new(),
            payload_bytes: 0,
            may_create_index: false,
            stop: None,
        }
    }

    /// Takes the next waiting task of the index if it goes with the others. Returns false once no more can be taken; the
    /// refused task is left for a later batch. The first task offered is always taken.
    pub fn offer(&mut self, task: &Task) -> bool {
        if self.stop.is_none() {
            self.stop = self.refuses(task);
        }
        if self.stop.is_some() {
            return false;
        }
        self.state = self.joined(task);
        self.tasks.push(task.uid);
        self.payload_bytes += payload_bytes(task);
        self.may_create_index |= may_create_index(task);
        self.stop = match self.state {
            State::Single => Some(Stop::KindStandsAlone(task.kind())),
            State::IndexDeletion => Some(Stop::IndexDeletion(task.uid)),
            _ if self.tasks.len() >= self.limits.tasks_max => Some(Stop::TaskLimit(self.limits.tasks_max)),
            _ => None,
        };
        self.stop.is_none()
    }

    /// The tasks, what they amount to, and why there are no more.
    pub fn finish(self) -> (Vec<TaskUid>, Work, Stop) {
        let work = match self.state {
            State::Additions(_) => Work::Additions,
            State::Deletions { .. } => Work::Deletions,
            State::Clear => Work::Clear,
            State::Settings => Work::Settings,
            State::ClearAndSettings => Work::ClearAndSettings,
            State::IndexDeletion => Work::IndexDeletion,
            State::Single | State::Empty => Work::Single,
        };
        (self.tasks, work, self.stop.unwrap_or(Stop::QueueEmpty))
    }

    /// Why a task cannot join, if it cannot. Nothing is refused by an empty collection.
    fn refuses(&self, task: &Task) -> Option<Stop> {
        if self.tasks.is_empty() {
            return None;
        }
        let (uid, kind) = (task.uid, task.kind());
        if stands_alone(&task.content) {
            return Some(Stop::NextStandsAlone(uid, kind));
        }
        if self.payload_bytes.saturating_add(payload_bytes(task)) > self.limits.payload_bytes_max
            && payload_bytes(task) > 0
        {
            return Some(Stop::PayloadLimit(self.limits.payload_bytes_max));
        }
        let absent = self.facts == IndexFacts::Absent;
        if absent && may_create_index(task) && !self.may_create_index {
            return Some(Stop::MayCreateIndex(uid));
        }
        let fits = match (&self.state, &task.content) {
            (State::Additions(BatchKey::Contradicts), Content::IndexDeletion { .. }) => false,
            (_, Content::IndexDeletion { .. }) => true,
            (State::Additions(key), Content::DocumentAddition { primary_key, .. }) => {
                return (!self.keys_agree(key, primary_key.as_deref())).then_some(Stop::OtherPrimaryKey(uid));
            }
            (State::Additions(BatchKey::Contradicts), _) => false,
            (State::Additions(_), content) => {
                matches!(content, Content::DocumentDeletion { .. } | Content::DocumentClear { .. })
            }
            (State::Deletions { by_filter }, Content::DocumentAddition { primary_key, .. }) => {
                if *by_filter {
                    false
                } else {
                    let agrees =
                        self.keys_agree(&BatchKey::OfIndex, primary_key.as_deref()) || self.facts_key().is_none();
                    return (!agrees).then_some(Stop::OtherPrimaryKey(uid));
                }
            }
            (State::Deletions { .. }, content) => is_deletion(content),
            (State::Clear, content) => is_deletion(content),
            (State::Settings, content) => matches!(content, Content::Settings { .. } | Content::DocumentClear { .. }),
            (State::ClearAndSettings, content) => is_deletion(content) || matches!(content, Content::Settings { .. }),
            (State::IndexDeletion | State::Single | State::Empty, _) => false,
        };
        (!fits).then_some(Stop::NextDoesNotFit(uid, kind))
    }

    /// The state after a task that is not refused.
    fn joined(&self, task: &Task) -> State {
        match (&self.state, &task.content) {
            (_, Content::IndexDeletion { .. }) => State::IndexDeletion,
            (State::Empty | State::Deletions { .. }, Content::DocumentAddition { primary_key, .. }) => {
                State::Additions(self.first_key(primary_key.as_deref()))
            }
            (State::Empty, Content::DocumentDeletion { .. }) => State::Deletions { by_filter: false },
            (State::Empty | State::Deletions { .. }, Content::DocumentDeletionByFilter { .. }) => {
                State::Deletions { by_filter: true }
            }
            (State::Empty | State::Additions(_) | State::Deletions { .. }, Content::DocumentClear { .. }) => {
                State::Clear
            }
            (State::Empty, Content::Settings { .. }) => State::Settings,
            (State::Settings, Content::DocumentClear { .. }) => State::ClearAndSettings,
            (State::Empty, _) => State::Single,
            (same, _) => same.clone(),
        }
    }

    fn facts_key(&self) -> Option<&str> {
        match &self.facts {
            IndexFacts::Absent => None,
            IndexFacts::Present { primary_key } => primary_key.as_deref(),
        }
    }

    /// The key of a batch whose first addition names this one.
    fn first_key(&self, named: Option<&str>) -> BatchKey {
        match (self.facts_key(), named) {
            (_, None) => BatchKey::OfIndex,
            (Some(key), Some(named)) if key == named => BatchKey::OfIndex,
            (Some(_), Some(_)) => BatchKey::Contradicts,
            (None, Some(named)) => BatchKey::Named(named.into()),
        }
    }

    /// Whether a further addition that names this key can follow. A task that names none always can, except after one
    /// that is there to fail.
    fn keys_agree(&self, batch: &BatchKey, named: Option<&str>) -> bool {
        match (batch, named) {
            (BatchKey::Contradicts, _) => false,
            (_, None) => true,
            (BatchKey::Named(key), Some(named)) => key == named,
            (BatchKey::OfIndex, Some(named)) => self.facts_key() == Some(named),
        }
    }
}

fn stands_alone(content: &Content) -> bool {
    !matches!(
        content,
        Content::DocumentAddition { .. }
            | Content::DocumentDeletion { .. }
            | Content::DocumentDeletionByFilter { .. }
            | Content::DocumentClear { .. }
            | Content::Settings { .. }
            | Content::IndexDeletion { .. }
    )
}

fn is_deletion(content: &Content) -> bool {
    matches!(
        content,
        Content::DocumentDeletion { .. } | Content::DocumentDeletionByFilter { .. } | Content::DocumentClear { .. }
    )
}

fn may_create_index(task: &Task) -> bool {
    match task.content {
        Content::DocumentAddition { may_create_index, .. } => may_create_index,
        Content::Settings { may_create_index, is_reset, .. } => may_create_index && !is_reset,
        _ => false,
    }
}

fn payload_bytes(task: &Task) -> u64 {
    match task.content {
        Content::DocumentAddition { payload_bytes, .. } => payload_bytes,
        _ => 0,
    }
}

/// Says it to people.
impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::QueueEmpty => f.write_str("batched all enqueued tasks"),
            Self::KindStandsAlone(kind) => write!(f, "tasks of type `{}` are not batched with others", kind.name()),
            Self::NextStandsAlone(uid, kind) => {
                write!(f, "stopped before task {} of type `{}`, which is processed by itself", uid.0, kind.name())
            }
            Self::NextDoesNotFit(uid, kind) => write!(
                f,
                "stopped before task {} of type `{}`, which cannot be applied together with the tasks before it",
                uid.0,
                kind.name()
            ),
            Self::OtherPrimaryKey(uid) => {
                write!(f, "stopped before task {}, which is about another primary key", uid.0)
            }
            Self::MayCreateIndex(uid) => {
                write!(f, "stopped before task {}, which may create the index while those before it may not", uid.0)
            }
            Self::IndexDeletion(uid) => write!(f, "stopped after task {}, which deletes the index", uid.0),
            Self::TaskLimit(max) => write!(f, "reached the limit of {max} tasks in a batch"),
            Self::PayloadLimit(max) => write!(f, "reached the limit of {max} bytes of payloads in a batch"),
        }
    }
}

#[cfg(test)]
mod tests;
