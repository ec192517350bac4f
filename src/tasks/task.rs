//! One accepted change: what it asks for, how far it is, and what came of it.

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shards::document::DocumentIds;
use shards::timestamp::Timestamp;

use crate::api::settings::SettingsPatch;
use crate::export::ExportRequest;
use crate::network::task::TaskNetwork;
use crate::network::topology::TopologyChange;

pub use super::kind::{Kind, Status};

/// The number of a task, from 0 without holes; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskUid(pub u32);

/// The number of a batch, from 0; given for good when the batch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchUid(pub u32);

/// What to do with a document that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Method {
    /// The new one stands alone.
    Replace,
    /// Its top-level fields replace those of the same name.
    Update,
}

/// How the documents of an addition are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// An array of objects, or one object.
    Json,
    /// Objects one after another.
    Ndjson,
    /// A header line and records; the delimiter is an ASCII character.
    Csv {
        /// Between the cells.
        delimiter: u8,
    },
}

/// Two indexes that exchange their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// The two names.
    pub indexes: [String; 2],
    /// The second name is free and the first index takes it.
    #[serde(default)]
    pub rename: bool,
}

/// What a task asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Content {
    /// Add documents; the payload lies in the log.
    DocumentAddition {
        /// The index's name.
        index: String,
        /// How the payload is written.
        format: Format,
        /// Replace or update.
        method: Method,
        /// As given by the client.
        primary_key: Option<String>,
        /// Whether the client's key may create the index.
        may_create_index: bool,
        /// Leave out documents whose id is not stored yet.
        skip_creation: bool,
        /// Documents in the payload.
        received: u64,
        /// Length of the payload in bytes.
        payload_bytes: u64,
    },
    /// Delete documents by their ids.
    DocumentDeletion {
        /// The index's name.
        index: String,
        /// As given, duplicates included.
        ids: DocumentIds,
    },
    /// Delete the documents that a filter chooses.
    DocumentDeletionByFilter {
        /// The index's name.
        index: String,
        /// The filter as sent; its syntax was checked.
        filter: Value,
    },
    /// Delete all documents.
    DocumentClear {
        /// The index's name.
        index: String,
    },
    /// Run a function over documents.
    DocumentEdition {
        /// The index's name.
        index: String,
        /// Which documents; all when absent.
        filter: Option<Value>,
        /// What the function sees as `context`.
        context: Option<Map<String, Value>>,
        /// The function's text.
        function: String,
    },
    /// Change settings.
    Settings {
        /// The index's name.
        index: String,
        /// The change.
        change: SettingsPatch,
        /// A reset by `DELETE`, which never creates an index.
        is_reset: bool,
        /// Whether the client's key may create the index.
        may_create_index: bool,
    },
    /// Make an index.
    IndexCreation {
        /// Its name.
        index: String,
        /// Its primary key, when given.
        primary_key: Option<String>,
    },
    /// Change an index's primary key or name.
    IndexUpdate {
        /// The index's name.
        index: String,
        /// The new primary key.
        primary_key: Option<String>,
        /// The new name.
        new_index: Option<String>,
        /// Old and new name as they were when the task was accepted; later renames do not touch these.
        renamed: Option<[String; 2]>,
    },
    /// Take an index away.
    IndexDeletion {
        /// Its name.
        index: String,
    },
    /// Exchange names.
    IndexSwap {
        /// All pairs, done together or not at all.
        swaps: Vec<Swap>,
    },
    /// Rewrite an index's storage.
    IndexCompaction {
        /// Its name.
        index: String,
    },
    /// Take tasks back.
    TaskCancelation {
        /// `?` and the query string as sent.
        query: String,
        /// The tasks that matched when the request came.
        #[serde(with = "super::bitmap")]
        tasks: RoaringBitmap,
    },
    /// Forget finished tasks.
    TaskDeletion {
        /// `?` and the query string as sent.
        query: String,
        /// The tasks that matched when the request came.
        #[serde(with = "super::bitmap")]
        tasks: RoaringBitmap,
    },
    /// Write a dump.
    DumpCreation,
    /// Write a snapshot.
    SnapshotCreation,
    /// Send indexes to another instance.
    Export {
        /// The request: address, key, size of payloads, patterns of indexes.
        request: ExportRequest,
    },
    /// Move documents between instances.
    NetworkTopologyChange {
        /// From which network to which.
        change: Box<TopologyChange>,
    },
    /// A task of a kind that this server never makes, from a dump. One that still waits fails.
    Foreign {
        /// The interface's type.
        kind: Kind,
        /// What it asks for, as the dump has it.
        content: Value,
        /// Its details as the dump has them.
        details: Option<Value>,
        /// Its details as clients see them.
        shown: Map<String, Value>,
    },
}

/// What came of a task beyond its status.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// Nothing to count, or not known.
    #[default]
    Nothing,
    /// Documents indexed, deleted or edited.
    Documents(u64),
    /// Tasks canceled or deleted.
    Tasks(u64),
    /// Bytes of an index's storage.
    Sizes {
        /// Before compaction.
        before: u64,
        /// After it.
        after: u64,
    },
    /// The name of the dump.
    Dump(String),
    /// Details that replace those of the request.
    Shown(Map<String, Value>),
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    /// One of the interface's codes.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// An accepted change and its fate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Its number.
    pub uid: TaskUid,
    /// The batch that has or had it; `None` while it waits.
    pub batch: Option<BatchUid>,
    /// Where it stands.
    pub status: Status,
    /// The cancelation that took it back.
    pub canceled_by: Option<TaskUid>,
    /// What it asks for.
    pub content: Content,
    /// What came of it.
    #[serde(default)]
    pub outcome: Outcome,
    /// Why it failed.
    pub error: Option<TaskError>,
    /// When it was accepted.
    pub enqueued_at: Timestamp,
    /// When its batch began.
    pub started_at: Option<Timestamp>,
    /// When its batch ended.
    pub finished_at: Option<Timestamp>,
    /// The client's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_metadata: Option<String>,
    /// Its part in a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<TaskNetwork>,
    /// How many ids of documents are kept apart from this record; its content then has none of them. Only of finished tasks: a
    /// list of tasks shows how many there were, and must not read millions for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids_apart: Option<u64>,
}

/// What a client may say of a task's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// The number it is to have.
    pub uid: Option<u32>,
    /// Whether nothing is to be accepted: the answer is as if it were.
    pub is_dry: bool,
}

/// A change that is to be accepted.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// What it asks for.
    pub content: Content,
    /// The client's own words.
    pub custom_metadata: Option<String>,
    /// What another instance says of it.
    pub network: Option<TaskNetwork>,
    /// What is said of its number.
    pub numbering: Numbering,
}

impl NewTask {
    /// A task with the client's own words.
    pub fn new(content: Content, custom_metadata: Option<String>) -> Self {
        Self { content, custom_metadata, network: None, numbering: Numbering::default() }
    }
}

impl From<Content> for NewTask {
    fn from(content: Content) -> Self {
        Self::new(content, None)
    }
}

impl Content {
    /// The interface's type.
    pub fn kind(&self) -> Kind {
        match self {
            Self::DocumentAddition { .. } => Kind::DocumentAdditionOrUpdate,
            Self::DocumentDeletion { .. } | Self::DocumentDeletionByFilter { .. } | Self::DocumentClear { .. } => {
                Kind::DocumentDeletion
            }
            Self::DocumentEdition { .. } => Kind::DocumentEdition,
            Self::Settings { .. } => Kind::SettingsUpdate,
            Self::IndexCreation { .. } => Kind::IndexCreation,
            Self::IndexUpdate { .. } => Kind::IndexUpdate,
            Self::IndexDeletion { .. } => Kind::IndexDeletion,
            Self::IndexSwap { .. } => Kind::IndexSwap,
            Self::IndexCompaction { .. } => Kind::IndexCompaction,
            Self::TaskCancelation { .. } => Kind::TaskCancelation,
            Self::TaskDeletion { .. } => Kind::TaskDeletion,
            Self::DumpCreation => Kind::DumpCreation,
            Self::SnapshotCreation => Kind::SnapshotCreation,
            Self::Export { .. } => Kind::Export,
            Self::NetworkTopologyChange { .. } => Kind::NetworkTopologyChange,
            Self::Foreign { kind, .. } => *kind,
        }
    }

    /// The one index it belongs to.
    pub fn index(&self) -> Option<&str> {
        match self {
            Self::DocumentAddition { index, .. }
            | Self::DocumentDeletion { index, .. }
            | Self::DocumentDeletionByFilter { index, .. }
            | Self::DocumentClear { index }
            | Self::DocumentEdition { index, .. }
            | Self::Settings { index, .. }
            | Self::IndexCreation { index, .. }
            | Self::IndexUpdate { index, .. }
            | Self::IndexDeletion { index }
            | Self::IndexCompaction { index } => Some(index),
            _ => None,
        }
    }

    /// Whether it may make the index that it is about.
    pub fn may_create_index(&self) -> bool {
        match self {
            Self::DocumentAddition { may_create_index, .. } | Self::Settings { may_create_index, .. } => {
                *may_create_index
            }
            _ => true,
        }
    }

    /// Says that it may not make the index that it is about.
    pub fn forbid_new_index(&mut self) {
        if let Self::DocumentAddition { may_create_index, .. } | Self::Settings { may_create_index, .. } = self {
            *may_create_index = false;
        }
    }

    /// Whether a payload lies beside it in the log.
    pub fn has_payload(&self) -> bool {
        matches!(self, Self::DocumentAddition { .. })
    }

    /// Every name under which a filter by index finds it, each once.
    pub fn index_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match self {
            Self::IndexSwap { swaps } => swaps.iter().flat_map(|swap| &swap.indexes).map(String::as_str).collect(),
            Self::IndexUpdate { index, new_index: Some(new_index), .. } => vec![index, new_index],
            _ => self.index().into_iter().collect(),
        };
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Replaces index names, in place: each name is looked up once, so an exchange of two names works.
    /// Returns whether anything changed.
    pub fn rename_indexes(&mut self, new_name: &dyn Fn(&str) -> Option<String>) -> bool {
        let names: Vec<&mut String> = match self {
            Self::DocumentAddition { index, .. }
            | Self::DocumentDeletion { index, .. }
            | Self::DocumentDeletionByFilter { index, .. }
            | Self::DocumentClear { index }
            | Self::DocumentEdition { index, .. }
            | Self::Settings { index, .. }
            | Self::IndexCreation { index, .. }
            | Self::IndexDeletion { index }
            | Self::IndexCompaction { index } => vec![index],
            Self::IndexUpdate { index, new_index, .. } => std::iter::once(index).chain(new_index).collect(),
            Self::IndexSwap { swaps } => swaps.iter_mut().flat_map(|swap| &mut swap.indexes).collect(),
            _ => Vec::new(),
        };
        let mut changed = false;
        for name in names {
            if let Some(new) = new_name(name) {
                *name = new;
                changed = true;
            }
        }
        changed
    }
}

impl Task {
    /// A task as it is when it is accepted.
    pub fn accepted(uid: TaskUid, new: NewTask, now: Timestamp) -> Self {
        Self {
            uid,
            batch: None,
            status: Status::Enqueued,
            canceled_by: None,
            content: new.content,
            outcome: Outcome::Nothing,
            error: None,
            enqueued_at: now,
            started_at: None,
            finished_at: None,
            custom_metadata: new.custom_metadata,
            network: new.network,
            ids_apart: None,
        }
    }

    /// The record without the ids of a deletion, and these; `None` when they are fewer than `ids_min`.
    pub fn split_ids(&self, ids_min: usize) -> Option<(Self, &DocumentIds)> {
        let Content::DocumentDeletion { index, ids } = &self.content else { return None };
        if ids.len() < ids_min {
            return None;
        }
        let record = Self {
            content: Content::DocumentDeletion { index: index.clone(), ids: DocumentIds::default() },
            ids_apart: Some(ids.len() as u64),
            // All but the content, whose ids would be copied.
            outcome: self.outcome.clone(),
            error: self.error.clone(),
            custom_metadata: self.custom_metadata.clone(),
            network: self.network.clone(),
            ..*self
        };
        Some((record, ids))
    }

    /// The interface's type.
    pub fn kind(&self) -> Kind {
        self.content.kind()
    }
}
