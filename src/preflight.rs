//! What the machine must allow, checked before anything starts, each failure with one sentence that says what to do.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use storage_engine::io::folders;

/// Open files below which a warning is due: every connection, partition and log segment takes one.
const OPEN_FILES_WANTED: u64 = 10_000;

/// Why the server cannot start on this machine.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// The kernel or a sandbox refuses io_uring.
    #[error(
        "io_uring is refused here ({source}): in a container, start it with the seccomp profile that comes with the server \
         (docker run --security-opt seccomp=tuning/seccomp-io_uring.json; see tuning/README.md); on a host, set `sysctl kernel.io_uring_disabled=0`"
    )]
    IoUring {
        /// What the kernel said.
        source: io::Error,
    },
    /// The database directory cannot be made or opened.
    #[error("the database directory `{}` cannot be used ({source}); check its owner and rights, or choose another `--db-path`", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process holds the database directory.
    #[error("the database directory `{}` is in use by another process; stop that one or choose another `--db-path`", path.display())]
    DirectoryInUse {
        /// The directory.
        path: PathBuf,
    },
}

/// The database directory, held against other processes until dropped or until this process ends, however it does.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: File,
}

/// Checks that a ring can be made.
pub fn check_io_uring() -> Result<(), PreflightError> {
    io_uring::IoUring::new(2).map(drop).map_err(|source| PreflightError::IoUring { source })
}

/// Makes the directory where it is missing and locks it. The lock is on the directory itself, so that no file of ours stands
/// in an otherwise empty one.
pub fn lock_directory(path: &Path) -> Result<DirectoryLock, PreflightError> {
    let failure = |source| PreflightError::Directory { path: path.to_owned(), source };
    folders::create_durably(path).map_err(failure)?;
    let directory = File::open(path).map_err(failure)?;
    match directory.try_lock() {
        Ok(()) => Ok(DirectoryLock { _directory: directory }),
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
                    "few files may be open at once; raise it (ulimit -n 65536, or LimitNOFILE= in the unit)"
                );
            }
            limit
        }
        Err(error) => {
            tracing::warn!(%error, "the limit of open files could not be read or raised");
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let lock = lock_directory(&path).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        assert!(matches!(lock_directory(&path), Err(PreflightError::DirectoryInUse { .. })));
        drop(lock);
        assert!(lock_directory(&path).is_ok());
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = lock_directory(file.path()).unwrap_err().to_string();
        assert!(error.contains("--db-path"), "{error}");
    }

    #[test]
    fn open_files_end_at_the_hard_limit() {
        let limit = raise_open_files().unwrap();
        assert_eq!(raise_open_files().unwrap(), limit);
    }
}
