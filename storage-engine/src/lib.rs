//! Page store, log, vector index, and the file I/O abstraction below them. This crate knows no documents, tasks or HTTP.
//! `FORMAT.md` specifies the file formats.
//!
//! Durability:
//! * [`page::WriteTxn::commit`] returns once the new state survives a power cut at any later time.
//! * [`log::Log::append`] returns once the frame does.
//!
//! A failed write or sync poisons its store until it is reopened: after a failed sync the kernel may have dropped the data and
//! may report success the next time.

pub mod io;
pub mod log;
pub mod page;
pub mod vector;

pub use io::{Disk, DiskError, DiskFile, IoFuture, OpenMode};
pub use page::{
    CommitError, CompactError, Cursor, Doomed, Finder, OpenError, PageStore, ReadError, ReadTree, Snapshot,
    StoreOptions, TREES_MAX, TreeId, TreeUsage, WriteError, WriteTxn,
};
