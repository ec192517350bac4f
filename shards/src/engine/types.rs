//! Inputs and outputs of an engine. Everything here may be sent to other cores.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::sync::Arc;

use serde_json::Value;
use storage_engine::{CommitError, DiskError, OpenError, PageStore};
use uuid::Uuid;

use crate::document::{DocumentIds, PayloadFormat, RawDocument};
use crate::error::UserError;
use crate::fields::FieldsMap;
use crate::ids::{CoreId, DocId, Epoch, PartitionNo};
use crate::network_shards::KeptShards;
use crate::partition::PartitionError;
use crate::settings::Settings;
use crate::text::TextTokenizer;
use crate::timestamp::Timestamp;
use crate::vectors::{EmbedderStates, VectorSums};

/// Bytes of page stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreBytes {
    /// Of their files.
    pub file: u64,
    /// In use within them; the rest is free for later states, or given back by a compaction.
    pub used: u64,
}

impl StoreBytes {
    /// Those of one store.
    pub(super) fn of(store: &PageStore) -> Self {
        Self { file: store.file_bytes(), used: store.used_bytes() }
    }
}

impl Sum for StoreBytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self { file: sum.file + one.file, used: sum.used + one.used })
    }
}

/// Everything a core needs to know of an index to plan a request: the state of one epoch. Published to all cores after each
/// commit, never changed.
#[derive(Clone, Debug)]
pub struct IndexView {
    /// The index's name inside the data folder.
    pub id: Uuid,
    /// Which committed state this describes; requests are answered from exactly this one.
    pub epoch: Epoch,
    /// The field (a dotted path) that identifies documents, once known.
    pub primary_key: Option<String>,
    /// Complete settings.
    pub settings: Arc<Settings>,
    /// What cuts texts under them.
    pub tokenizer: Arc<TextTokenizer>,
    /// All names met so far.
    pub fields: Arc<FieldsMap>,
    /// When the index was made.
    pub created_at: Timestamp,
    /// When documents or settings last changed.
    pub updated_at: Timestamp,
    /// The owner of each partition, by number; never empty.
    pub partitions: Arc<[CoreId]>,
    /// Documents in all partitions.
    pub documents: u64,
    /// Documents that have a field at top level, by its name.
    pub field_distribution: Arc<BTreeMap<String, u64>>,
    /// Documents with valid coordinates.
    pub geo_points: u64,
    /// Bytes of all document records.
    pub raw_bytes: u64,
    /// Those of all partitions.
    pub store_bytes: StoreBytes,
    /// Counts up each time the index is laid out anew over its partitions; names the folder of its files.
    pub layout: u32,
    /// What is known of the embedders of the settings.
    pub embedders: Arc<EmbedderStates>,
    /// Vectors, and documents with vectors, in all partitions.
    pub vectors: VectorSums,
}

impl IndexView {
    /// How many partitions the index has, at least 1.
    pub fn partition_count(&self) -> u16 {
        self.partitions.len() as u16
    }

    /// The partitions with their owners, in order.
    pub fn owners(&self) -> impl Iterator<Item = (PartitionNo, CoreId)> + '_ {
        self.partitions.iter().enumerate().map(|(at, core)| (PartitionNo(at as u16), *core))
    }
}

/// Changes that become visible together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Applied in order, each as a whole or not at all.
    pub ops: Vec<BatchOp>,
    /// Complete new settings, in force before the operations.
    pub settings: Option<Arc<Settings>>,
    /// `Some` sets (or takes away) the primary key before the operations; only for an index without documents.
    pub primary_key: Option<Option<String>>,
    /// Which documents of additions are kept here; `None`: all.
    pub kept: Option<Arc<KeptShards>>,
    /// What becomes the index's `updatedAt`; `None`: the moment when the batch is built, unless it only deletes documents and none
    /// of these is there.
    pub updated_at: Option<Timestamp>,
}

impl Batch {
    /// Whether it only deletes chosen documents, and by what became of its operations none of them was there.
    pub(super) fn changes_nothing(&self, outcomes: &[Result<OpOutcome, UserError>]) -> bool {
        let deletes = |op: &BatchOp| matches!(op, BatchOp::DeleteIds(_) | BatchOp::DeleteByFilter(_));
        let only_deletes = self.settings.is_none() && self.primary_key.is_none() && self.ops.iter().all(deletes);
        let is_in_vain =
            |outcome: &Result<OpOutcome, UserError>| outcome.as_ref().map_or(0, |done| done.documents) == 0;
        only_deletes && !self.ops.is_empty() && outcomes.iter().all(is_in_vain)
    }
}

/// What is done when a document with the same id is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The new document takes the place of the old.
    Replace,
    /// The new document's top-level fields replace those of the old, its others stay.
    Update,
}

/// One operation of a batch.
#[derive(Clone, Debug)]
pub enum BatchOp {
    /// Adds, replaces or updates documents.
    Add {
        /// The body as received.
        payload: Arc<Vec<u8>>,
        /// How to read the body.
        format: PayloadFormat,
        /// What happens to documents that are there already.
        method: Method,
        /// The request's `primaryKey`.
        primary_key: Option<String>,
        /// Passes over documents that are not there yet.
        skip_creation: bool,
    },
    /// Deletes by external id; ids that are not there are passed over.
    DeleteIds(DocumentIds),
    /// Deletes what the filter admits in the state before the batch. Fails with `invalid_document_filter` when an attribute
    /// may not be filtered.
    DeleteByFilter(Value),
    /// Deletes all documents.
    Clear,
    /// Puts edited documents (complete ones, by external id, as JSON objects) in place of the stored and deletes others.
    Edit {
        /// External id and new content.
        replaced: Vec<(String, Vec<u8>)>,
        /// External ids.
        deleted: Vec<String>,
    },
}

impl BatchOp {
    /// What it counts while operations are read: the bytes of its payload, or one.
    pub(super) fn units(&self) -> u64 {
        match self {
            Self::Add { payload, .. } => payload.len() as u64,
            _ => 1,
        }
    }
}

/// What an operation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpOutcome {
    /// Distinct ids of an addition (with those passed over under `skipCreation`); documents deleted by a deletion or clear;
    /// documents written or deleted by an edit.
    pub documents: u64,
    /// Distinct ids named by a deletion by ids, there or not, none while the index has no primary key; otherwise the same as
    /// `documents`.
    pub named: u64,
}

/// Which documents to list.
#[derive(Clone, Debug, Default)]
pub struct DocumentsQuery {
    /// Only these external ids.
    pub ids: Option<Vec<String>>,
    /// Only what this filter (in the forms of the interface) admits.
    pub filter: Option<Value>,
    /// Criteria of the interface, such as `year:desc`.
    pub sort: Vec<String>,
    /// Only documents with a greater number. Without `sort`, the number of a page's last document leads to the next page at
    /// the same cost wherever it lies, which an offset does not.
    pub after: Option<DocId>,
    /// Documents to pass over.
    pub offset: u64,
    /// Documents to return.
    pub limit: u64,
    /// Whether with all their vectors under `_vectors`.
    pub vectors: bool,
}

/// A page of documents.
#[derive(Clone, Debug, Default)]
pub struct DocumentsPage {
    /// In the order asked for, otherwise by number.
    pub documents: Vec<RawDocument>,
    /// Documents before paging, those up to [`DocumentsQuery::after`] included.
    pub total: u64,
    /// The names of the fields: at least those of the view that was asked for, more if the index has moved on since.
    pub fields: Arc<FieldsMap>,
}

/// Why an engine could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// The request or a document is at fault.
    #[error(transparent)]
    User(#[from] UserError),
    /// The disk is full; nothing was changed.
    #[error("no space left on device")]
    NoSpace,
    /// No more files may be open; nothing was changed.
    #[error("too many open files")]
    TooManyFiles,
    /// A file could not be read or written; nothing was changed.
    #[error("storage: {0}")]
    Storage(String),
    /// The owner of a partition did not answer.
    #[error("a core does not answer: {0}")]
    Unreachable(String),
    /// The owner of a partition has left, since the server stops.
    #[error("a core has left: {0}")]
    Left(String),
    /// The index, or the state asked for, is not there any more.
    #[error("the index has moved on or was dropped")]
    Gone,
    /// The index was deleted while it was read.
    #[error("the index was deleted while it was read")]
    Dropped,
}

impl From<PartitionError> for EngineError {
    fn from(error: PartitionError) -> Self {
        let disk = match &error {
            PartitionError::Commit(CommitError::Disk(disk)) => Some(disk),
            PartitionError::Open(OpenError::Disk(disk)) => Some(disk),
            PartitionError::Disk(disk) => Some(disk),
            PartitionError::Compact(error) => error.disk(),
            _ => None,
        };
        match disk {
            Some(DiskError::NoSpace { .. }) => return Self::NoSpace,
            Some(DiskError::TooManyFiles { .. }) => return Self::TooManyFiles,
            _ => {}
        }
        match error {
            PartitionError::User(error) => Self::User(error),
            PartitionError::Elsewhere(error) => *error,
            other => Self::Storage(other.to_string()),
        }
    }
}

impl From<DiskError> for EngineError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::NoSpace { .. } => Self::NoSpace,
            DiskError::TooManyFiles { .. } => Self::TooManyFiles,
            other => Self::Storage(other.to_string()),
        }
    }
}
