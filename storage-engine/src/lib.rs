//! Page store, log and the file seam below them. No documents, no tasks, no HTTP; `FORMAT.md` has the bytes.
//!
//! What is durable when:
//! * [`page::WriteTxn::commit`] returns once the new state survives a power cut at any later instant.
//! * [`log::Log::append`] returns once the frame does.
//!
//! A write or sync that fails poisons its store until it is opened again: after a failed sync the kernel may have
//! dropped the data and report success the next time.

pub mod io;
pub mod log;
pub mod page;
pub mod vector;

pub use io::{Disk, DiskError, DiskFile, IoFuture, OpenMode};
pub use page::{
    CommitError, CompactError, Cursor, OpenError, PageStore, ReadError, ReadTree, Snapshot, StoreOptions, TREES_MAX,
    TreeId, TreeUsage, WriteError, WriteTxn,
};
