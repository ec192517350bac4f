//! gzip-compressed tar archives for dumps and snapshots, processed without blocking an executor.
//!
//! Blocking work runs on side threads in pieces of some megabytes, so nobody waits long for such a thread; the executor passes in
//! bytes and waits.

mod aside;
mod read;
mod write;

pub use aside::{Shared, aside, aside_if_long};
pub use read::{UnpackError, unpack};
pub use write::{ArchiveWriter, Compression};

use std::path::Path;

use shards::error::UserError;
use storage_engine::DiskError;

use crate::control::ControlError;
use crate::control::indexes::IndexError;

/// Bytes handled on a side thread at once: some ten milliseconds of compression.
pub const PIECE_BYTES: usize = 2 << 20;

/// Why a copy of the instance could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The disk is full.
    #[error("no space left on device")]
    NoSpace,
    /// A file could not be read or written.
    #[error("{0}")]
    Io(String),
    /// The instance could not be read.
    #[error("{0}")]
    Failed(String),
    /// Another service, which is to take the copy, does not.
    #[error("{text}")]
    Remote {
        /// The code of the task's error.
        code: &'static str,
        /// What happened.
        text: String,
    },
    /// The server stops, and a core that is needed has left.
    #[error("{0}")]
    Stopping(String),
}

impl CopyError {
    /// The error of a system call on a file.
    pub fn of(path: &Path, what: &str, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Io(format!("{what} `{}`: {error}", path.display())),
        }
    }
}

impl From<DiskError> for CopyError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::NoSpace { .. } => Self::NoSpace,
            error => Self::Io(error.to_string()),
        }
    }
}

impl From<ControlError> for CopyError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::OutOfSpace => Self::NoSpace,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<CopyError> for IndexError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::NoSpace => Self::OutOfSpace,
            CopyError::Io(text) => Self::User(UserError::new("io_error", text)),
            CopyError::Failed(text) => Self::Failed(text),
            CopyError::Remote { code, text } => Self::User(UserError::new(code, text)),
            CopyError::Stopping(text) => Self::Stopping(text),
        }
    }
}
