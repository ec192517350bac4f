//! Compaction: writes the newest state leaf by leaf into a new file, which then replaces the old one.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::read::ReadTree;
use super::store::{InFlight, PageStore, Shared, StoreFile, StoreOptions};
use super::{CommitError, OpenError, PageNo, TREES_MAX, TreeId, WriteError};
use crate::io::DiskError;

/// Changes gathered in memory before they are written to the new file.
const GATHERED_BYTES_MAX: usize = 4 << 20;

/// Other tasks get their turn after this many entries or bytes: some hundred microseconds of work.
const YIELD_ENTRIES: usize = 256;
const YIELD_BYTES: usize = 256 << 10;

/// Why a compaction failed. The store shows what it did; when the file's new name could not be made durable, it must be opened
/// again before it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// The new file could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The state could not be read or the new file not written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The new file could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl CompactError {
    /// The file operation that failed, if that was the cause.
    pub fn disk(&self) -> Option<&DiskError> {
        match self {
            Self::Disk(error) | Self::Open(OpenError::Disk(error)) | Self::Commit(CommitError::Disk(error)) => {
                Some(error)
            }
            _ => None,
        }
    }
}

/// The only turn to write, given back when dropped.
struct Turn(Rc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.writing.set(false);
    }
}

impl PageStore {
    /// Rewrites the file without its free pages. Snapshots taken before go on reading the old file; a write transaction
    /// must not be open.
    ///
    /// # Errors
    /// [`CompactError`]; the store then goes on with the file it had.
    pub async fn compact(&self) -> Result<(), CompactError> {
        let shared = &self.0;
        if shared.poisoned.get() {
            return Err(WriteError::Poisoned.into());
        }
        if shared.writing.replace(true) {
            return Err(WriteError::Busy.into());
        }
        let _turn = Turn(shared.clone());
        self.rewrite().await
    }

    async fn rewrite(&self) -> Result<(), CompactError> {
        let shared = &self.0;
        let mut name = shared.path.clone().into_os_string();
        name.push(".compact");
        let fresh_path = PathBuf::from(name);
        // What an earlier compaction left when it was cut off.
        if shared.disk.exists(&fresh_path).await? {
            shared.disk.remove_file(&fresh_path).await?;
        }
        if self.epoch() == 0 {
            return Ok(());
        }
        let fresh = match self.write_copy(&fresh_path).await {
            Ok(fresh) => fresh,
            Err(error) => {
                // A full device needs the space at once; what stays is removed by the next compaction.
                let _ = shared.disk.remove_file(&fresh_path).await;
                return Err(error);
            }
        };
        // A failure from here on leaves it open which file has the name after a crash: commits to either could be lost.
        let in_flight = InFlight::new(shared.clone());
        shared.disk.rename(&fresh_path, &shared.path).await?;
        if let Some(folder) = shared.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            shared.disk.sync_dir(folder).await?;
        }
        let fresh = Rc::try_unwrap(fresh.0).map_err(|_| WriteError::Busy)?;
        let mut current = fresh.current.into_inner();
        current.file = Rc::new(StoreFile::new(shared.path.display().to_string(), current.file.file.clone()));
        shared.current.replace(current);
        shared.before.take();
        in_flight.end();
        Ok(())
    }

    /// Writes the newest state into a new file, without free pages; durable when it returns, its name apart. The store may be
    /// written meanwhile: the copy is of the state at the call.
    ///
    /// # Errors
    /// [`CompactError`]; what was written of the file is left behind.
    pub async fn copy_to(&self, path: &Path) -> Result<(), CompactError> {
        self.write_copy(path).await.map(drop)
    }

    async fn write_copy(&self, path: &Path) -> Result<Self, CompactError> {
        let snapshot = self.snapshot();
        let options = StoreOptions { create: true, at_most_epoch: None };
        let fresh = Self::open(self.0.disk.clone(), path, options).await?;
        if fresh.epoch() > 0 {
            // What it holds would become part of the copy.
            return Err(DiskError::Exists { path: path.display().to_string() }.into());
        }
        if snapshot.epoch() == 0 {
            return Ok(fresh);
        }
        let (mut entries, mut bytes, mut is_spilled) = (0, 0, false);
        let mut txn = fresh.begin_write()?;
        let mut last = TreeId(0);
        for tree in (0..TREES_MAX).map(|at| TreeId(at as u8)) {
            let mut cursor = snapshot.cursor(tree);
            while let Some((key, value)) = cursor.next().map_err(WriteError::from)? {
                txn.put(tree, key, value)?;
                (last, entries, bytes) = (tree, entries + 1, bytes + key.len() + value.len());
                if entries >= YIELD_ENTRIES || bytes >= YIELD_BYTES {
                    (entries, bytes) = (0, 0);
                    futures_lite::future::yield_now().await;
                }
                if txn.dirty_bytes() > GATHERED_BYTES_MAX {
                    txn.spill(tree).await?;
                    is_spilled = true;
                }
            }
        }
        if is_spilled {
            // The commit would make the file longer by more than it needs.
            txn.spill(last).await?;
        }
        txn.commit(snapshot.epoch()).await?;
        fresh.name_state_twice().await?;
        Ok(fresh)
    }

    /// Takes away the state before the newest, which in a copy is one that never was.
    async fn name_state_twice(&self) -> Result<(), DiskError> {
        let (file, slot, page) = {
            let current = self.0.current.borrow();
            let slot = PageNo(1 - current.slot.0);
            (current.file.clone(), slot, current.meta.encode(slot))
        };
        file.file.write_at(slot.offset(), page).await?;
        file.file.sync().await
    }
}
