//! Why a partition could not be read or written.

use storage_engine::vector;
use storage_engine::{CommitError, CompactError, DiskError, OpenError, ReadError, WriteError};

use crate::document::json::JsonError;
use crate::document::record::DamagedRecord;
use crate::engine::EngineError;
use crate::error::UserError;
use crate::facets::FacetError;
use crate::facets::columns::ColumnError;
use crate::index::catalog::CatalogError;
use crate::text::postings::DamagedBlock;

/// Why a partition could not be read or written. Except for [`PartitionError::User`] its file or its disk is at fault.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The request is at fault.
    #[error(transparent)]
    User(#[from] UserError),
    /// A page is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A change was refused.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The state could not be made durable.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The file could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The columns.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The file could not be compacted.
    #[error("compaction failed: {0}")]
    Compact(#[from] CompactError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The files of vectors could not be read, or were refused a change.
    #[error("vectors: {0}")]
    Vectors(String),
    /// The catalog of an index cannot be read.
    #[error("{file}: {fault}")]
    Catalog {
        /// The file that holds it.
        file: String,
        /// Why.
        fault: CatalogError,
    },
    /// Another partition could not be read.
    #[error("{0}")]
    Elsewhere(Box<EngineError>),
    /// No state of the partition is being built; the batch was aborted in between.
    #[error("no state of the partition is being built")]
    NotBegun,
    /// A stored entry that no writer makes; says which.
    #[error("a stored {0} is damaged")]
    Damaged(&'static str),
}

impl From<vector::FetchError> for PartitionError {
    fn from(error: vector::FetchError) -> Self {
        match error {
            vector::FetchError::Disk(error) => Self::Disk(error),
            other => Self::Vectors(other.to_string()),
        }
    }
}

impl From<vector::PutError> for PartitionError {
    fn from(error: vector::PutError) -> Self {
        match error {
            vector::PutError::Fetch(error) => error.into(),
            other => Self::Vectors(other.to_string()),
        }
    }
}

impl From<vector::OpenError> for PartitionError {
    fn from(error: vector::OpenError) -> Self {
        match error {
            vector::OpenError::Fetch(error) => error.into(),
            other => Self::Vectors(other.to_string()),
        }
    }
}

impl From<vector::BeginError> for PartitionError {
    fn from(error: vector::BeginError) -> Self {
        Self::Vectors(error.to_string())
    }
}

impl From<vector::SearchError> for PartitionError {
    fn from(error: vector::SearchError) -> Self {
        match error {
            vector::SearchError::Fetch(error) => error.into(),
            other => Self::Vectors(other.to_string()),
        }
    }
}

impl From<DamagedBlock> for PartitionError {
    fn from(_: DamagedBlock) -> Self {
        Self::Damaged("posting block")
    }
}

impl From<DamagedRecord> for PartitionError {
    fn from(_: DamagedRecord) -> Self {
        Self::Damaged("document")
    }
}

impl From<JsonError> for PartitionError {
    fn from(_: JsonError) -> Self {
        Self::Damaged("document")
    }
}

impl From<FacetError> for PartitionError {
    fn from(error: FacetError) -> Self {
        match error {
            FacetError::User(error) => Self::User(error),
            FacetError::Column(error) => Self::Column(error),
        }
    }
}
