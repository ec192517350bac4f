//! The page store: named copy-on-write B+trees in one file, read without copying. `FORMAT.md` specifies the format.
//!
//! A state of the store is an epoch. A [`Snapshot`] reads one state for as long as it lives. A [`WriteTxn`] builds the next state
//! from fresh pages, and its commit makes that the newest. Two meta pages, written in turn, name the roots of a state; the newer
//! valid one counts.

mod alloc;
mod commit;
mod compact;
mod cursor;
mod finder;
mod meta;
mod node;
mod pack;
mod page_set;
mod read;
mod remove;
mod roll_back;
mod spill;
mod store;
mod usage;
mod values;
mod write;

#[cfg(test)]
mod tests;

pub use compact::CompactError;
pub use cursor::Cursor;
pub use finder::Finder;
pub use read::{ReadTree, Snapshot};
pub use remove::Doomed;
pub use store::{OpenError, PageStore, StoreOptions};
pub use usage::TreeUsage;
pub use write::WriteTxn;

use crate::io::DiskError;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Trees of one store.
pub const TREES_MAX: usize = 64;
/// Longest key in bytes; at least three entries must fit a page.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// A named tree of a page store, by its number (below [`TREES_MAX`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u8);

/// The place of a page in its file, in pages. 0 and 1 are the meta pages, so 0 also stands for "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageNo(pub u64);

impl PageNo {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn offset(self) -> u64 {
        self.0 * PAGE_BYTES as u64
    }
}

/// Why a read failed: the file is damaged. Nothing damaged is ever served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The bytes of a page are not those that were written.
    #[error("{file}: page {page} is damaged (its checksum does not match); restore the file from a dump or a replica")]
    Damaged {
        /// The store's file.
        file: String,
        /// Which page.
        page: u64,
    },
    /// A page is whole but cannot be what it should be here.
    #[error(
        "{file}: page {page} is damaged: it is not a page of its tree ({reason}); restore the file from a dump or a replica"
    )]
    Misplaced {
        /// The store's file.
        file: String,
        /// Which page.
        page: u64,
        /// What was wrong.
        reason: &'static str,
    },
}

/// Why a change to a transaction failed. The transaction is as before, except after [`WriteError::Read`]: then it cannot be
/// committed any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The tree could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Keys have 1 to [`KEY_BYTES_MAX`] bytes.
    #[error("a key has {0} bytes, 1 to {KEY_BYTES_MAX} are allowed")]
    KeyLength(usize),
    /// Values have at most [`VALUE_BYTES_MAX`] bytes.
    #[error("a value has {0} bytes, at most {VALUE_BYTES_MAX} are allowed")]
    ValueLength(usize),
    /// There is no such tree.
    #[error("tree {0} does not exist, there are {TREES_MAX}")]
    NoSuchTree(u8),
    /// Another transaction is open.
    #[error("another write transaction is open")]
    Busy,
    /// An earlier write or sync failed.
    #[error("an earlier write failed: close the store and open it again")]
    Poisoned,
}

/// Why a commit failed. The newest state is the one before, now and after a restart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A file operation failed; the store takes no more writes until it is opened again.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An earlier write or sync failed.
    #[error("an earlier write failed: close the store and open it again")]
    Poisoned,
    /// A change of the transaction failed half-way, so its trees are not to be trusted.
    #[error("a change of this transaction failed: {0}")]
    Broken(ReadError),
    /// Epochs only grow.
    #[error("epoch {wanted} does not follow epoch {current}")]
    Epoch {
        /// The epoch asked for.
        wanted: u64,
        /// The newest one.
        current: u64,
    },
}
