//! Checks of the machine before anything starts. Each failure has a one-sentence message that says what to do.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shards::runtime::Backend;
use storage_engine::io::folders;

use crate::control::plane::store_path;
use crate::options::values::IoBackend;

/// Open files below which a warning is due: every connection, partition and log segment takes one.
const OPEN_FILES_WANTED: u64 = 10_000;
/// How long to wait for memory that may be locked: the kernel takes down the rings of a process some time after it ended.
const RING_WAIT: Duration = Duration::from_secs(1);
/// How often to try it.
const RING_LOOK: Duration = Duration::from_millis(20);
/// What only a database of Meilisearch has.
const OTHER_DATABASE: &str = "tasks/data.mdb";

/// Why the server cannot start on this machine.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// The kernel or a sandbox refuses io_uring.
    #[error(
        "io_uring is not permitted ({source}): in a container, use the seccomp profile that comes with the server \
         (docker run --security-opt seccomp=tuning/seccomp-io_uring.json; see tuning/README.md); on a host, set `sysctl kernel.io_uring_disabled=0`"
    )]
    IoUring {
        /// What the kernel said.
        source: io::Error,
    },
    /// The limit of locked memory leaves nothing for a ring.
    #[error(
        "io_uring needs more locked memory than this user's limit allows ({source}): raise the limit (`ulimit -l unlimited`, or \
         `LimitMEMLOCK=infinity` in the unit), or stop other programs of this user that use io_uring"
    )]
    LockedMemory {
        /// What the kernel said.
        source: io::Error,
    },
    /// The database directory is that of another program.
    #[error(
        "`{}` holds another program's database (Meilisearch's{}), which Skerry cannot read: create a dump with Meilisearch, then start with another \
         `--db-path` and `--import-dump`", path.display(), if version.is_empty() { String::new() } else { format!(", version {version}") }
    )]
    OtherDatabase {
        /// The directory.
        path: PathBuf,
        /// What its version file says; empty where there is none.
        version: String,
    },
    /// The database directory cannot be made or opened.
    #[error("the database directory `{}` cannot be used ({source}); check its owner and permissions, or choose another `--db-path`", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process holds the database directory.
    #[error("the database directory `{}` is in use by another process; stop that process or choose another `--db-path`", path.display())]
    DirectoryInUse {
        /// The directory.
        path: PathBuf,
    },
}

/// The database directory, held against other processes until dropped or until this process ends, however it does.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: File,
    is_new: bool,
}

impl DirectoryLock {
    /// Whether the directory was made now.
    pub fn is_new(&self) -> bool {
        self.is_new
    }
}

/// What the cores are to run on: with io_uring where it works and is not forbidden by the options, else without.
///
/// # Errors
/// It is asked for and does not work.
pub fn backend(wanted: IoBackend) -> Result<Backend, PreflightError> {
    match wanted {
        IoBackend::Epoll => Ok(Backend::Epoll),
        IoBackend::IoUring => check_io_uring().map(|()| Backend::IoUring),
        IoBackend::Glommio => check_io_uring().map(|()| Backend::Glommio),
        IoBackend::Auto => {
            let Err(refused) = check_io_uring() else { return Ok(Backend::IoUring) };
            tracing::warn!("files are read by helper threads, more slowly where they are not in memory: {refused}");
            Ok(Backend::Epoll)
        }
    }
}

/// Has a ring do nothing once: the calls it is made of may be refused each by itself.
fn try_ring() -> io::Result<()> {
    let mut ring = io_uring::IoUring::new(2)?;
    ring.submitter().register_probe(&mut io_uring::Probe::new())?;
    let nothing = io_uring::opcode::Nop::new().build();
    // SAFETY: an operation that does nothing refers to no memory.
    unsafe { ring.submission().push(&nothing) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1).map(drop)
}

/// Checks that a ring can be made and works.
fn check_io_uring() -> Result<(), PreflightError> {
    let give_up = Instant::now() + RING_WAIT;
    loop {
        let Err(source) = try_ring() else { return Ok(()) };
        if source.raw_os_error() != Some(libc::ENOMEM) {
            return Err(PreflightError::IoUring { source });
        }
        if Instant::now() >= give_up {
            return Err(PreflightError::LockedMemory { source });
        }
        // This is the main thread, before any executor runs.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(RING_LOOK);
    }
}

/// Refuses the directory of a database that this program cannot read: begun in it, an empty one would lie among the other's
/// files and look as if all had been lost.
///
/// # Errors
/// [`PreflightError::OtherDatabase`].
pub fn check_database(path: &Path) -> Result<(), PreflightError> {
    if path.join(OTHER_DATABASE).exists() && !store_path(path).exists() {
        let version = std::fs::read_to_string(path.join("VERSION")).unwrap_or_default().trim().to_owned();
        return Err(PreflightError::OtherDatabase { path: path.to_owned(), version });
    }
    Ok(())
}

/// Makes the directory where it is missing and locks it. The lock is on the directory itself, so that no file of ours stands
/// in an otherwise empty one.
pub fn lock_directory(path: &Path) -> Result<DirectoryLock, PreflightError> {
    let failure = |source| PreflightError::Directory { path: path.to_owned(), source };
    let is_new = !path.exists();
    folders::create_durably(path).map_err(failure)?;
    let directory = File::open(path).map_err(failure)?;
    match directory.try_lock() {
        Ok(()) => Ok(DirectoryLock { _directory: directory, is_new }),
        Err(TryLockError::WouldBlock) => Err(PreflightError::DirectoryInUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failure(source)),
    }
}

/// Raises the limit of open files as far as this process may, and returns it.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local of the right type that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: as above; the call only reads the struct.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } != 0 {
            return Err(io::Error::last_os_error());
        }
        limit = raised;
    }
    Ok(limit.rlim_cur)
}

/// Raises the limit of open files and says so where it stays low. Returns the limit.
pub fn prepare_open_files() -> u64 {
    match raise_open_files() {
        Ok(limit) => {
            if limit < OPEN_FILES_WANTED {
                tracing::warn!(
                    limit,
                    "the limit of open files is low; raise it (ulimit -n 65536, or LimitNOFILE= in the unit)"
                );
            }
            limit
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read or raise the limit of open files");
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_directory_has_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let lock = lock_directory(&path).unwrap();
        assert!(lock.is_new());
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        assert!(matches!(lock_directory(&path), Err(PreflightError::DirectoryInUse { .. })));
        drop(lock);
        assert!(!lock_directory(&path).unwrap().is_new());
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = lock_directory(file.path()).unwrap_err().to_string();
        assert!(error.contains("--db-path"), "{error}");
    }

    #[test]
    fn the_folder_of_another_database_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(check_database(path).is_ok());
        std::fs::create_dir(path.join("tasks")).unwrap();
        File::create(path.join("tasks/data.mdb")).unwrap();
        File::create(path.join("VERSION")).unwrap().write_all(b"1.41.0\n").unwrap();
        let error = check_database(path).unwrap_err().to_string();
        assert!(error.contains("(Meilisearch's, version 1.41.0)") && error.contains("--import-dump"), "{error}");
        std::fs::remove_file(path.join("VERSION")).unwrap();
        let error = check_database(path).unwrap_err().to_string();
        assert!(error.contains("(Meilisearch's), which"), "{error}");
        File::create(store_path(path)).unwrap();
        assert!(check_database(path).is_ok(), "both are there: ours is used");
    }

    #[test]
    fn the_backend_that_is_asked_for_is_taken() {
        assert_eq!(backend(IoBackend::Epoll).unwrap(), Backend::Epoll);
        assert_eq!(backend(IoBackend::IoUring).unwrap(), Backend::IoUring);
        assert_eq!(backend(IoBackend::Glommio).unwrap(), Backend::Glommio);
        assert_eq!(backend(IoBackend::Auto).unwrap(), Backend::IoUring);
    }

    #[test]
    fn open_files_end_at_the_hard_limit() {
        let limit = raise_open_files().unwrap();
        assert_eq!(raise_open_files().unwrap(), limit);
    }
}
