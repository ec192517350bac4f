//! Messages between the cores and the control core.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use shards::error::UserError;
use shards::ids::CoreId;
use shards::timestamp::Timestamp;
use time::OffsetDateTime;
use uuid::Uuid;

use super::acknowledge::{Ticket, Verdict};
use super::features::FeaturesPatch;
use super::state::ControlState;
use crate::auth::{ApiKey, KeyPatch};
use crate::chats::ChatChange;
use crate::network::NetworkPatch;
use crate::network::change::Message;
use crate::search_rules::SearchRuleChange;
use crate::tasks::batch::{EmbedderRequests, Progress};
use crate::tasks::filter::{Filter, Page, Scope};
use crate::tasks::kind::{Kind, Status};
use crate::tasks::task::{BatchUid, NewTask, Numbering, Task, TaskUid};
use crate::webhooks::WebhookChange;

/// A question about the control plane. All but [`ControlQuestion::Publish`] and [`ControlQuestion::Settled`] go to core 0.
pub enum ControlQuestion {
    /// Accept a task; the payload goes to the log beside it. Answered when it is durable, whoever else is to have it.
    Register(Box<NewTask>, Option<Vec<u8>>, Ticket),
    /// Accept a cancelation or deletion of the tasks that match now.
    RegisterSelection(Box<Selection>, Ticket),
    /// Change keys or switches. Answered when it is in line.
    Change(ControlChange, Ticket),
    /// Take in what another instance says about the change to this version of the network.
    Network(Uuid, Message),
    /// Whether an instance of this name may send documents for the change to a version of the network.
    MayImport(Uuid, String),
    /// A page of tasks.
    Tasks(Box<ListQuery>),
    /// One task.
    Task(TaskUid, Scope),
    /// The payload of a document addition that is not finished.
    Payload(TaskUid, Scope),
    /// A page of batches.
    Batches(Box<ListQuery>),
    /// One batch.
    Batch(BatchUid, Scope),
    /// What the statistics need beyond the indexes.
    Status,
    /// What the metrics need beyond the indexes.
    Figures,
    /// Count more requests to embedding services for the batch in progress.
    EmbedderRequests(EmbedderRequests),
    /// Give back space of the control store.
    CompactQueue,
    /// From core 0 to every other: the new state.
    Publish(Arc<ControlState>),
    /// From core 0 to the core that asked: what became of writes that were [`ControlAnswer::OnItsWay`], and of changes that
    /// were [`ControlAnswer::UnderWay`].
    Settled(Vec<Verdict>),
}

/// The answer to a question of the same name.
pub enum ControlAnswer {
    /// The task as it was accepted, durable.
    Registered(Box<Task>),
    /// The task as it was accepted, durable. Other instances are to have it before its client hears of it:
    /// [`ControlQuestion::Settled`] follows, or has come already.
    OnItsWay(Box<Task>),
    /// The change is in line. [`ControlQuestion::Settled`] follows, or has come already: it says whether the change is durable and
    /// known on every core.
    UnderWay,
    /// What was said is taken in.
    Changed,
    /// The JSON of a list or of one object.
    Json(Vec<u8>),
    /// A payload: its bytes as NDJSON, or objects one after another.
    Payload(Payload),
    /// See [`ControlStatus`].
    Status(ControlStatus),
    /// See [`ControlFigures`].
    Figures(Box<ControlFigures>),
    /// The requests are counted.
    Counted,
    /// Bytes of the control store before and after.
    Compacted {
        /// Before.
        before: u64,
        /// After.
        after: u64,
    },
    /// The state was taken over.
    Published,
    /// The verdicts were handed out.
    Heard,
}

/// What goes wrong with a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The client's mistake, or a thing that is not there.
    #[error(transparent)]
    User(#[from] UserError),
    /// The control core cannot be asked now: the instance is stopping, or too much waits for it.
    #[error("the control core does not answer")]
    Unreachable,
    /// The disk is full.
    #[error("no space left on device")]
    OutOfSpace,
    /// No more files may be open.
    #[error("too many open files")]
    TooManyFiles,
    /// The disk refused otherwise. The message names the operation.
    #[error("{0}")]
    Storage(String),
}

/// Which finished or waiting tasks a cancelation or deletion is about.
pub struct Selection {
    /// Cancel, or else forget.
    pub cancel: bool,
    /// Which tasks.
    pub filter: Filter,
    /// `?` and the query string as sent.
    pub query: String,
    /// The tasks that the client's key covers; others are not touched.
    pub scope: Scope,
    /// The client's own words.
    pub custom_metadata: Option<String>,
    /// What is said of the number of the task.
    pub numbering: Numbering,
}

/// A list that a client asks for.
pub struct ListQuery {
    /// Which tasks or batches.
    pub filter: Filter,
    /// Which part of them.
    pub page: Page,
    /// What the client's key shows.
    pub scope: Scope,
}

/// A change that is done at once, without a task.
#[derive(Clone, Debug)]
pub enum ControlChange {
    /// Add a key; `api_key_already_exists` when its uid is in use.
    CreateKey(ApiKey),
    /// Change the key of this uid, at this time; `api_key_not_found` when there is none.
    UpdateKey(Uuid, KeyPatch, OffsetDateTime),
    /// Take a key away; `api_key_not_found` when there is none.
    DeleteKey(Uuid),
    /// Set these switches.
    SetFeatures(FeaturesPatch),
    /// Change chat workspaces; see [`ChatChange`].
    Chat(ChatChange),
    /// Change the topology; the errors of [`NetworkPatch::applied`].
    Network(Box<NetworkPatch>),
    /// Change the webhooks; see [`WebhookChange`].
    Webhook(WebhookChange),
    /// Change the search rules; see [`SearchRuleChange`].
    SearchRule(SearchRuleChange),
}

/// The payload of a task, with what is needed to read it.
pub struct Payload {
    /// How it is written.
    pub format: crate::tasks::task::Format,
    /// As it was sent.
    pub bytes: Vec<u8>,
}

/// What the statistics need beyond the indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlStatus {
    /// Indexes of the tasks being processed.
    pub processing_indexes: Vec<String>,
    /// Bytes of files of the control plane.
    pub file_bytes: u64,
    /// Bytes in use within them.
    pub used_bytes: u64,
}

/// What the metrics need beyond the indexes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlFigures {
    /// As for the statistics.
    pub status: ControlStatus,
    /// How many tasks there are under each name of an index.
    pub by_index: Vec<(String, u64)>,
    /// How many there are in each status.
    pub by_status: Vec<(Status, u64)>,
    /// How many there are of each type.
    pub by_kind: Vec<(Kind, u64)>,
    /// When the oldest task was accepted that is not finished.
    pub oldest_unfinished: Option<Timestamp>,
    /// The batch in progress and how far it is.
    pub processing: Option<(BatchUid, Progress)>,
    /// The batch that ended last since the start, and how long its steps took (see [`crate::tasks::batch::Batch::trace`]).
    pub ended: Option<(BatchUid, Vec<(String, Duration)>)>,
}

/// The way from core to core, so that the server can wrap these messages with others.
pub trait ControlMesh {
    /// How many cores there are.
    fn core_count(&self) -> u16;
    /// Asks a core, which may be one's own.
    fn ask(
        &self,
        to: CoreId,
        question: ControlQuestion,
    ) -> LocalBoxFuture<'static, Result<ControlAnswer, ControlError>>;
}
