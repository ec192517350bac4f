//! File I/O for the engine: a disk and its files, asynchronous, owned by one core.
//!
//! [`system::SystemDisk`] accesses real files on any executor, through a [`ring::Ring`] where it has one, and
//! [`glommio::GlommioDisk`] does so on one of glommio's. [`mem::MemDisk`] serves tests that need no faults, and [`sim::SimDisk`] injects faults, lost writes and torn writes from a seed. Every back end passes the
//! tests in `conformance`.

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

mod calls;
#[cfg(test)]
mod conformance;
mod direct;
pub mod folders;
pub mod glommio;
mod mapping;
pub mod mem;
pub mod ring;
mod ring_buffers;
pub mod sim;
pub mod system;

/// What every operation returns: not `Send`, polled on the core that asked.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, DiskError>> + 'a>>;

/// The bytes of a file as they were when the view was taken, or newer. A reader looks only at pages that no writer
/// touches while it may (see `page::store`).
pub type View = Rc<dyn AsRef<[u8]>>;

/// An offset in a file, and the bytes to be written there.
pub type Piece = (u64, Vec<u8>);

/// Why an operation on a file failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// Nothing has this name.
    #[error("{path}: no such file or folder")]
    NotFound {
        /// The name asked for.
        path: String,
    },
    /// Something has this name already.
    #[error("{path}: exists already")]
    Exists {
        /// The name asked for.
        path: String,
    },
    /// The device is full. Nothing of the operation counts as done.
    #[error("{path}: no space left on the device")]
    NoSpace {
        /// The file written to.
        path: String,
    },
    /// The process, or the system, has as many files open as it may.
    #[error("{path}: too many open files")]
    TooManyFiles {
        /// The file that was to be opened.
        path: String,
    },
    /// Any other failure of the device or the kernel.
    #[error("{path}: {what} failed: {reason}")]
    Failed {
        /// The file.
        path: String,
        /// The operation.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
}

impl DiskError {
    /// The same, but never [`DiskError::NoSpace`]: for operations after which it is open what was done.
    fn into_failure(self, what: &'static str) -> Self {
        match self {
            Self::NoSpace { path } => Self::Failed { path, what, reason: "no space left".into() },
            other => other,
        }
    }

    /// A read that goes beyond the file.
    fn past_the_end(path: &Path, offset: u64, len: usize) -> Self {
        let reason = format!("{len} bytes at {offset} lie past the end");
        Self::Failed { path: path.display().to_string(), what: "read", reason }
    }

    /// The error of a system call on a file.
    pub fn of(path: &Path, what: &'static str, error: &std::io::Error) -> Self {
        let path = path.display().to_string();
        if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
            return Self::TooManyFiles { path };
        }
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound { path },
            std::io::ErrorKind::AlreadyExists => Self::Exists { path },
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            _ => Self::Failed { path, what, reason: error.to_string() },
        }
    }
}

/// Whether a file of `file_len` bytes has these.
fn has_bytes(file_len: u64, offset: u64, len: usize) -> bool {
    offset.checked_add(len as u64).is_some_and(|end| end <= file_len)
}

/// Whether a file must be there, must not, or may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// [`DiskError::NotFound`] unless it is there.
    Existing,
    /// [`DiskError::Exists`] if it is there.
    CreateNew,
    /// Made when it is not there.
    OpenOrCreate,
}

/// A folder tree. Changes of names (create, rename, remove) survive a power cut once `sync_dir` of their folder returned.
pub trait Disk {
    /// Opens a file for reading and writing.
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> IoFuture<'a, Rc<dyn DiskFile>>;
    /// Makes a folder and those above it; their names are durable on return.
    fn create_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()>;
    /// Names in a folder, sorted.
    fn list_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, Vec<String>>;
    /// Gives a file another name, replacing what had it, in one step.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> IoFuture<'a, ()>;
    /// Removes a file.
    fn remove_file<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()>;
    /// Removes a folder and all in it; one that is not there is no error.
    fn remove_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()>;
    /// Makes the names in a folder durable.
    fn sync_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()>;
    /// Whether a file or folder has this name.
    fn exists<'a>(&'a self, path: &'a Path) -> IoFuture<'a, bool>;
    /// What the executor must turn so that operations go on; none where somebody else sees to that.
    fn driver(&self) -> Option<Rc<dyn Driver>> {
        None
    }
}

/// Begins and ends a disk's operations, on the core's thread.
pub trait Driver {
    /// A descriptor that becomes readable when there is something to collect. It stays so: only its edges tell.
    fn ended(&self) -> BorrowedFd<'_>;
    /// Begins what was asked for, collects what has ended, and wakes those who wait for it. Never blocks. Whether all was
    /// begun; if not, the kernel is short of something, and the call must come again soon.
    fn turn(&self) -> bool;
}

/// An open file. Writes are durable once a later `sync` returned; until then a crash may keep any part of them.
pub trait DiskFile {
    /// Bytes.
    fn len(&self) -> u64;
    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Exactly `len` bytes from `offset`; an error where the file ends before.
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>>;
    /// The same past the system's page cache, where the file system can: for parts that are read in no order, of files larger
    /// than memory.
    fn read_direct(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        self.read_at(offset, len)
    }
    /// Writes all bytes at `offset`, growing the file where needed.
    fn write_at(&self, offset: u64, bytes: Vec<u8>) -> IoFuture<'_, ()>;
    /// Cuts or grows (with zeros) the file. Growing sets the space aside where the file system can.
    fn set_len(&self, len: u64) -> IoFuture<'_, ()>;
    /// Makes all earlier writes and the length durable.
    fn sync(&self) -> IoFuture<'_, ()>;
    /// Writes the pieces of each group, in any order, and makes them durable before the next group begins. [`DiskError::NoSpace`]
    /// comes only from the writes of the first group, when nothing after them was begun.
    fn write_groups(&self, groups: Vec<Vec<Piece>>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            for (number, group) in groups.into_iter().enumerate() {
                for (offset, bytes) in group {
                    let written = self.write_at(offset, bytes).await;
                    written.map_err(|error| if number == 0 { error } else { error.into_failure("write") })?;
                }
                self.sync().await.map_err(|error| error.into_failure("sync"))?;
            }
            Ok(())
        })
    }
    /// The file's bytes for reading, at least as long as the file is now.
    fn view(&self) -> Result<View, DiskError>;
}
