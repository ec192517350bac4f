//! The store: opening, snapshots, and the state shared by readers and the single writer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::alloc::Allocator;
use super::meta::{FORMAT_VERSION, Meta};
use super::node::{HEADER_BYTES, checksum};
use super::read::{Snapshot, Source};
use super::{PAGE_BYTES, PageNo, ReadError, WriteError, WriteTxn};
use crate::io::{Disk, DiskError, DiskFile, OpenMode, View};

/// How to open a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// Makes the file when it is not there.
    pub create: bool,
    /// The newest epoch to accept: a state after it was prepared and never committed, and is dropped.
    pub at_most_epoch: Option<u64>,
}

/// Why a store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another version of the program wrote it.
    #[error(
        "{file}: the page store has format version {found}, this program reads version {FORMAT_VERSION}; start the version of the \
         program that wrote it, or start anew with a dump that it makes"
    )]
    Version {
        /// The store's file.
        file: String,
        /// Its format version.
        found: u32,
    },
    /// It does not begin as a page store of any version does.
    #[error(
        "{file}: this is no page store (none of its first two pages has the mark of one); put the file back that was here, or \
         restore it from a dump or a replica"
    )]
    NotAStore {
        /// The file.
        file: String,
    },
    /// No half of a meta page is whole.
    #[error(
        "{file}: both meta pages of the page store are damaged (no half of them matches its checksum); restore it from a dump or a \
         replica"
    )]
    NoMeta {
        /// The store's file.
        file: String,
    },
    /// Both states are newer than the epoch asked for.
    #[error(
        "{file}: the oldest state is epoch {oldest}, but the index's catalog expects epoch {wanted} at most: the files are not of one \
         moment; restore all of them together, from a dump or a replica"
    )]
    TooNew {
        /// The store's file.
        file: String,
        /// Epoch asked for.
        wanted: u64,
        /// Epoch of the older state.
        oldest: u64,
    },
    /// The file was cut off.
    #[error("{file}: {wanted} bytes are in use, but the file has only {bytes}; restore it from a dump or a replica")]
    TooShort {
        /// The store's file.
        file: String,
        /// Bytes of the file.
        bytes: u64,
        /// Bytes of its state.
        wanted: u64,
    },
    /// The free list is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A file of the store and which of its pages were seen whole.
pub(crate) struct StoreFile {
    name: String,
    pub(crate) file: Rc<dyn DiskFile>,
    verified: RefCell<Vec<u64>>,
}

impl StoreFile {
    pub(crate) fn new(name: String, file: Rc<dyn DiskFile>) -> Self {
        Self { name, file, verified: RefCell::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Checks a page or run, once.
    pub(crate) fn verify(&self, page: PageNo, bytes: &[u8]) -> Result<(), ReadError> {
        let (word, bit) = ((page.0 / 64) as usize, 1u64 << (page.0 % 64));
        let mut verified = self.verified.borrow_mut();
        if verified.get(word).is_some_and(|known| known & bit != 0) {
            return Ok(());
        }
        if bytes[..8] != checksum(bytes, page).to_le_bytes() {
            return Err(ReadError::Damaged { file: self.name.clone(), page: page.0 });
        }
        if verified.len() <= word {
            verified.resize(word + 1, 0);
        }
        verified[word] |= bit;
        Ok(())
    }

    /// A page is about to be written anew.
    pub(crate) fn forget(&self, page: PageNo) {
        if let Some(word) = self.verified.borrow_mut().get_mut((page.0 / 64) as usize) {
            *word &= !(1 << (page.0 % 64));
        }
    }
}

/// The newest state, and which meta page names it.
pub(crate) struct Current {
    pub meta: Meta,
    pub slot: PageNo,
    pub view: View,
    pub file: Rc<StoreFile>,
    pub alloc: Allocator,
}

pub(crate) struct Shared {
    pub disk: Rc<dyn Disk>,
    pub path: PathBuf,
    pub current: RefCell<Current>,
    /// The state before the newest, and its free pages: with those that snapshots hold back, which the file does not tell.
    pub before: RefCell<Option<(Meta, Allocator)>>,
    /// Epoch -> snapshots that read it.
    readers: RefCell<BTreeMap<u64, usize>>,
    pub writing: Cell<bool>,
    /// An earlier write or sync failed.
    pub poisoned: Cell<bool>,
}

/// Changes to files that are under way. Where they are not ended in order (an error, a future that was dropped), only opening the
/// store again can tell what they left: nothing more is written until then.
pub(crate) struct InFlight(Option<Rc<Shared>>);

impl InFlight {
    pub(crate) fn new(shared: Rc<Shared>) -> Self {
        Self(Some(shared))
    }

    /// All is as it should be.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.poisoned.set(true);
        }
    }
}

impl Shared {
    pub(crate) fn add_reader(&self, epoch: u64) {
        *self.readers.borrow_mut().entry(epoch).or_default() += 1;
    }

    pub(crate) fn forget_reader(&self, epoch: u64) {
        let mut readers = self.readers.borrow_mut();
        if let Some(count) = readers.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&epoch);
            }
        }
    }

    /// The newest state that is read; 0 where none is.
    pub(crate) fn newest_read(&self) -> u64 {
        self.readers.borrow().keys().next_back().copied().unwrap_or(0)
    }

    /// Whether one of these states is read, now or by the next snapshot.
    pub(crate) fn is_read(&self, epochs: Range<u64>) -> bool {
        let current = self.current.borrow().meta.epoch;
        epochs.contains(&current) || self.readers.borrow().range(epochs).next().is_some()
    }

    /// The oldest state that is read, now or by the next snapshot.
    pub(crate) fn oldest_read(&self) -> u64 {
        let current = self.current.borrow().meta.epoch;
        self.readers.borrow().keys().next().map_or(current, |oldest| current.min(*oldest))
    }
}

/// A store of named trees in one file. Clones are the same store; it belongs to one core.
#[derive(Clone)]
pub struct PageStore(pub(crate) Rc<Shared>);

/// The file's two meta pages; zeros where it is shorter.
async fn read_metas(file: &dyn DiskFile) -> Result<[Vec<u8>; 2], DiskError> {
    let mut pages = [vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]];
    for (slot, page) in pages.iter_mut().enumerate() {
        let offset = PageNo(slot as u64).offset();
        if file.len() >= offset + PAGE_BYTES as u64 {
            *page = file.read_at(offset, PAGE_BYTES).await?;
        }
    }
    Ok(pages)
}

impl PageStore {
    /// Opens the store in the file at `path`.
    ///
    /// # Errors
    /// [`OpenError`]; a file that was damaged is left as it is.
    pub async fn open(disk: Rc<dyn Disk>, path: &Path, options: StoreOptions) -> Result<Self, OpenError> {
        let mode = if options.create { OpenMode::OpenOrCreate } else { OpenMode::Existing };
        let file = disk.open(path, mode).await?;
        let name = path.display().to_string();
        let pages = read_metas(&*file).await?;
        let blank = pages.iter().all(|page| page.iter().all(|byte| *byte == 0));
        if blank && options.create && file.len() <= 2 * PAGE_BYTES as u64 {
            // Either new, or cut off before its first sync: nothing was ever committed to it.
            file.set_len(2 * PAGE_BYTES as u64).await?;
            file.write_at(0, Meta::empty().encode(PageNo(0))).await?;
            file.sync().await?;
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                disk.sync_dir(folder).await?;
            }
            return Self::start(disk, path, Rc::new(StoreFile::new(name, file)), Meta::empty(), PageNo(0));
        }
        let slots = || pages.iter().zip([PageNo(0), PageNo(1)]);
        // Also where the other page has an older state of this version: what was committed since would be lost.
        if let Some(found) = slots().find_map(|(page, slot)| Meta::other_version(page, slot)) {
            return Err(OpenError::Version { file: name, found });
        }
        let whole: Vec<(Meta, PageNo)> =
            slots().filter_map(|(page, slot)| Meta::decode(page, slot).map(|meta| (meta, slot))).collect();
        let Some(oldest) = whole.iter().map(|(meta, _)| meta.epoch).min() else {
            let is_store = pages.iter().any(|page| Meta::is_marked(page));
            return Err(if is_store { OpenError::NoMeta { file: name } } else { OpenError::NotAStore { file: name } });
        };
        let accepted = options.at_most_epoch.unwrap_or(u64::MAX);
        let newest =
            whole.iter().filter(|(meta, _)| meta.epoch <= accepted).max_by_key(|(meta, _)| meta.epoch).cloned();
        let Some((meta, slot)) = newest else {
            return Err(OpenError::TooNew { file: name, wanted: accepted, oldest });
        };
        // Pages behind the end of the file would be read as part of its map, which the system answers by ending the process. The
        // empty state has no pages but the two for its meta, of which a cut may have left one.
        let wanted = meta.page_count.saturating_mul(PAGE_BYTES as u64);
        if meta.page_count > Meta::empty().page_count && wanted > file.len() {
            return Err(OpenError::TooShort { file: name, bytes: file.len(), wanted });
        }
        for (_, dropped) in whole.iter().filter(|(other, _)| other.epoch > meta.epoch) {
            // It must not come back: the next commit reuses its pages before it takes its meta page.
            file.write_at(dropped.offset(), vec![0; PAGE_BYTES]).await?;
            file.sync().await?;
        }
        Self::start(disk, path, Rc::new(StoreFile::new(name, file)), meta, slot)
    }

    pub(crate) fn start(
        disk: Rc<dyn Disk>,
        path: &Path,
        file: Rc<StoreFile>,
        meta: Meta,
        slot: PageNo,
    ) -> Result<Self, OpenError> {
        let view = file.file.view()?;
        let current = Current {
            alloc: Allocator::new(meta.page_count),
            meta: meta.clone(),
            slot,
            view: view.clone(),
            file: file.clone(),
        };
        let shared = Rc::new(Shared {
            disk,
            path: path.to_path_buf(),
            current: RefCell::new(current),
            before: RefCell::default(),
            readers: RefCell::default(),
            writing: Cell::new(false),
            poisoned: Cell::new(false),
        });
        if meta.free_list != PageNo::NONE {
            let snapshot = Snapshot::new(shared.clone(), file, view, meta.clone());
            let bytes = snapshot.run(meta.free_list, meta.free_list_bytes as usize)?;
            let alloc = Allocator::decode(bytes, meta.page_count);
            let alloc = alloc.ok_or_else(|| snapshot.misplaced(meta.free_list, "the free list contradicts itself"))?;
            shared.current.borrow_mut().alloc = alloc;
        }
        Ok(Self(shared))
    }

    /// The epoch of the newest state.
    pub fn epoch(&self) -> u64 {
        self.0.current.borrow().meta.epoch
    }

    /// The newest state, to read. Pages it can see are not written again while it lives.
    pub fn snapshot(&self) -> Snapshot {
        let current = self.0.current.borrow();
        let (file, view, meta) = (current.file.clone(), current.view.clone(), current.meta.clone());
        drop(current);
        Snapshot::new(self.0.clone(), file, view, meta)
    }

    /// Starts building the next state. One at a time.
    ///
    /// # Errors
    /// [`WriteError::Busy`], [`WriteError::Poisoned`].
    pub fn begin_write(&self) -> Result<WriteTxn, WriteError> {
        WriteTxn::begin(self)
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.0.current.borrow().file.file.len()
    }

    /// Bytes of pages that hold something.
    pub fn used_bytes(&self) -> u64 {
        let current = self.0.current.borrow();
        (current.meta.page_count - current.alloc.free_pages()) * PAGE_BYTES as u64
    }

    /// Whether an earlier failure keeps the store from being written.
    pub fn is_poisoned(&self) -> bool {
        self.0.poisoned.get()
    }
}

/// The pages of a run that holds these bytes.
pub(crate) fn encode_run(page: PageNo, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; Snapshot::run_pages(data.len()) as usize * PAGE_BYTES];
    out[8] = super::node::KIND_RUN;
    out[HEADER_BYTES..HEADER_BYTES + data.len()].copy_from_slice(data);
    let sum = checksum(&out, page).to_le_bytes();
    out[..8].copy_from_slice(&sum);
    out
}
