//! Deciding whether to start from a dump or a snapshot, and making sure that a partial import is never taken for a database.
//!
//! While an import runs, a marker file lies in the database directory. If a start finds the marker, everything beside it is left
//! over from an interrupted import and is removed. Removing the marker is what completes an import.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::archive::{UnpackError, unpack};
use crate::options::{ImportOptions, Options};
use crate::snapshots::restore::{RestoreError, restore};

/// Says that the directory holds an unfinished import.
const MARKER: &str = "importing";
/// Where a dump is unpacked; it goes when it is read.
const UNPACKED: &str = "import.tmp";

/// Why the server does not start from a dump or snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is a database already.
    #[error("`{}` already contains a database, nothing was imported; add `--ignore-{kind}-if-db-exists` to start with that database", path.display())]
    DatabaseExists {
        /// The database directory.
        path: PathBuf,
        /// `dump` or `snapshot`.
        kind: &'static str,
    },
    /// There is nothing to import.
    #[error("the {kind} `{}` does not exist; add `--ignore-missing-{kind}` to start without it", path.display())]
    Missing {
        /// The file that was named.
        path: PathBuf,
        /// `dump` or `snapshot`.
        kind: &'static str,
    },
    /// The dump cannot be unpacked.
    #[error("cannot read the dump: {0}")]
    Dump(#[from] UnpackError),
    /// The snapshot cannot be used.
    #[error("cannot use the snapshot: {0}")]
    Snapshot(#[from] RestoreError),
    /// The database directory cannot be written.
    #[error("cannot write to the database directory `{}`: {source}", path.display())]
    Directory {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// An import that has begun. It becomes part of the database when it is completed; otherwise [`Self::undo`] removes it.
#[derive(Clone, Debug)]
pub struct Import {
    root: PathBuf,
    /// Whether this start made the directory. One that was there stays: it may be a mount point, which cannot be removed, or have
    /// an owner and rights that the next start needs.
    root_is_new: bool,
}

impl Import {
    /// The folder of the unpacked dump.
    pub fn unpacked(&self) -> PathBuf {
        self.root.join(UNPACKED)
    }

    /// Makes what was imported the database; everything else of it is durable. Removes what it was read from. Blocks.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn complete(&self) -> Result<(), ImportError> {
        let marker = self.root.join(MARKER);
        let removed = fs::remove_file(&marker).and_then(|()| sync(&self.root));
        removed.map_err(|source| ImportError::Directory { path: marker, source })?;
        remove_unpacked(&self.root)
    }

    /// Removes everything again, unless it was completed. Blocks.
    ///
    /// # Errors
    /// The directory cannot be written; the next start tries again.
    pub fn undo(&self) -> Result<(), ImportError> {
        if !self.root.join(MARKER).exists() {
            return Ok(());
        }
        let failed = |source| ImportError::Directory { path: self.root.clone(), source };
        empty(&self.root).map_err(failed)?;
        if self.root_is_new { fs::remove_dir(&self.root).map_err(failed) } else { Ok(()) }
    }

    /// As [`Self::undo`], after a failure that is to be reported: one of the removal is only logged.
    pub fn undo_after_failure(&self) {
        if let Err(error) = self.undo() {
            tracing::error!(%error, "cannot remove the remains of a failed import; the next start tries again");
        }
    }
}

/// Does what the options say about starting from a dump or snapshot, in the database directory, which is locked; `root_is_new` says
/// that it was made for that. A snapshot is the database when this returns; for a dump the import is left to be done, from its unpacked files. Blocks.
///
/// # Errors
/// [`ImportError`]; then no part of an import is left.
pub fn begin(options: &Options, root_is_new: bool) -> Result<Option<Import>, ImportError> {
    let root = &options.db_path;
    remove_unfinished(root)?;
    let (wanted, kind) = match (&options.import_dump, &options.import_snapshot) {
        (Some(dump), _) => (dump, "dump"),
        (None, Some(snapshot)) => (snapshot, "snapshot"),
        (None, None) => return Ok(None),
    };
    if !is_wanted(root, wanted, kind)? {
        return Ok(None);
    }
    let import = Import { root: root.clone(), root_is_new };
    mark(root)?;
    tracing::info!("importing the {kind} `{}`", wanted.path.display());
    let done = match kind {
        "dump" => unpack(&wanted.path, &import.unpacked()).map_err(ImportError::from),
        _ => restore_whole(&import, &wanted.path, options.dumpless_upgrade),
    };
    if let Err(error) = done {
        import.undo_after_failure();
        return Err(error);
    }
    Ok((kind == "dump").then_some(import))
}

/// Whether there is something to import and room for it.
fn is_wanted(root: &Path, wanted: &ImportOptions, kind: &'static str) -> Result<bool, ImportError> {
    let unreadable = |source| ImportError::Directory { path: root.to_owned(), source };
    if fs::read_dir(root).map_err(unreadable)?.next().is_some() {
        return match wanted.ignore_if_db_exists {
            true => Ok(false),
            false => Err(ImportError::DatabaseExists { path: root.to_owned(), kind }),
        };
    }
    match (wanted.path.exists(), wanted.ignore_missing) {
        (true, _) => Ok(true),
        (false, true) => Ok(false),
        (false, false) => Err(ImportError::Missing { path: wanted.path.clone(), kind }),
    }
}

fn restore_whole(import: &Import, snapshot: &Path, upgrade: bool) -> Result<(), ImportError> {
    restore(snapshot, &import.root, upgrade)?;
    let failed = |source| ImportError::Directory { path: import.root.clone(), source };
    sync_all(&import.root).map_err(failed)?;
    import.complete()
}

fn mark(root: &Path) -> Result<(), ImportError> {
    let marker = root.join(MARKER);
    let made = File::create_new(&marker).and_then(|file| file.sync_all()).and_then(|()| sync(root));
    made.map_err(|source| ImportError::Directory { path: marker, source })
}

/// Removes what an import left that was cut off.
fn remove_unfinished(root: &Path) -> Result<(), ImportError> {
    if root.join(MARKER).exists() {
        tracing::warn!("an import into `{}` was interrupted; removing its remains", root.display());
        return empty(root).map_err(|source| ImportError::Directory { path: root.to_owned(), source });
    }
    remove_unpacked(root)
}

fn remove_unpacked(root: &Path) -> Result<(), ImportError> {
    let path = root.join(UNPACKED);
    match fs::remove_dir_all(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(ImportError::Directory { path, source }),
        _ => Ok(()),
    }
}

/// Removes all that is in a directory, the marker last.
fn empty(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    sync(root)?;
    fs::remove_file(root.join(MARKER))
}

/// Makes all files and names below a folder durable.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => sync_all(&path)?,
            false => File::open(&path)?.sync_all()?,
        }
    }
    sync(folder)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn options(root: &Path, arguments: &[&str]) -> Options {
        let words = ["skerry", "--db-path", root.to_str().unwrap()].into_iter().chain(arguments.iter().copied());
        Options::resolve(words.map(Into::into), &|_| None).unwrap()
    }

    fn names(root: &Path) -> usize {
        fs::read_dir(root).map_or(0, Iterator::count)
    }

    #[test]
    fn flags_decide_between_failing_and_passing_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("db");
        fs::create_dir(&root).unwrap();
        let run = |arguments: &[&str]| begin(&options(&root, arguments), false);
        let missing = ["--import-snapshot", "/nowhere/a"];
        assert!(matches!(run(&missing), Err(ImportError::Missing { kind: "snapshot", .. })));
        let ignored = [&missing[..], &["--ignore-missing-snapshot"]].concat();
        assert!(matches!(run(&ignored), Ok(None)));
        File::create(root.join("control.store")).unwrap();
        assert!(matches!(run(&ignored), Err(ImportError::DatabaseExists { .. })));
        assert!(matches!(run(&[&missing[..], &["--ignore-snapshot-if-db-exists"]].concat()), Ok(None)));
        assert!(matches!(run(&[]), Ok(None)));
        assert_eq!(names(&root), 1);
    }

    /// A half-done import looks like a database; it must never be opened as one.
    #[test]
    fn an_import_that_fails_or_is_cut_off_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (root, file) = (folder.path().join("db"), folder.path().join("text"));
        fs::create_dir(&root).unwrap();
        File::create(&file).unwrap();
        let path = file.to_str().unwrap();
        for flag in ["--import-dump", "--import-snapshot"] {
            assert!(begin(&options(&root, &[flag, path]), true).is_err());
            assert!(!root.exists());
            fs::create_dir(&root).unwrap();
        }
        mark(&root).unwrap();
        fs::create_dir(root.join("indexes")).unwrap();
        assert!(matches!(begin(&options(&root, &[]), false), Ok(None)));
        assert_eq!(names(&root), 0);
    }

    /// A directory that is a mount point cannot be removed; that once was all that was said of a damaged dump.
    #[test]
    fn a_directory_that_was_there_stays_and_the_first_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (root, file) = (folder.path().join("db"), folder.path().join("text"));
        fs::create_dir(&root).unwrap();
        File::create(&file).unwrap();
        let begun = begin(&options(&root, &["--import-dump", file.to_str().unwrap()]), false);
        assert!(matches!(begun, Err(ImportError::Dump(_))), "{begun:?}");
        assert!(root.exists());
        assert_eq!(names(&root), 0);
    }

    #[test]
    fn a_completed_import_is_a_database() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let import = Import { root: root.clone(), root_is_new: false };
        mark(&root).unwrap();
        fs::create_dir(import.unpacked()).unwrap();
        File::create(root.join("control.store")).unwrap();
        import.complete().unwrap();
        import.undo().unwrap();
        assert_eq!(names(&root), 1);
    }
}
