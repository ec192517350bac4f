//! A simulated disk with seeded faults: failing operations, a full device, and power cuts after which any part of the unsynced
//! data may be on disk, in any order, torn at sector boundaries.
//!
//! `FORMAT.md` lists what it assumes of real disks: synced data persists, a sector (512 bytes) is written atomically, and a write
//! changes no byte outside its range.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Disk, DiskError, DiskFile, IoFuture, OpenMode, View};

/// Bytes that a device writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// When operations fail. Everything works where nothing is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The power is cut before this operation, counted from 0: it and all later ones fail and change nothing.
    pub cut_before: Option<u64>,
    /// Bytes of all files together; a write that would pass it fails with [`DiskError::NoSpace`].
    pub capacity: Option<u64>,
    /// This sync, counted from 0, fails, and what it should have made durable is forgotten.
    pub failing_sync: Option<u64>,
    /// Files cannot be mapped.
    pub failing_views: bool,
}

#[derive(Clone)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Clone, Default)]
struct Content {
    durable: Vec<u8>,
    live: Vec<u8>,
    pending: Vec<Pending>,
}

type FileRef = Rc<RefCell<Content>>;

#[derive(Default)]
struct State {
    names: RefCell<BTreeMap<PathBuf, FileRef>>,
    durable_names: RefCell<BTreeMap<PathBuf, FileRef>>,
    folders: RefCell<BTreeSet<PathBuf>>,
    faults: Cell<Faults>,
    operations: Cell<u64>,
    syncs: Cell<u64>,
    delays: RefCell<Option<StdRng>>,
}

/// A disk of which a test decides what goes wrong. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Rc<State>);

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    content: FileRef,
}

fn apply(bytes: &mut Vec<u8>, pending: &Pending) {
    match pending {
        Pending::Length(len) => bytes.resize(*len, 0),
        Pending::Write { offset, bytes: new } => {
            let end = offset + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset..end].copy_from_slice(new);
        }
    }
}

/// Cuts a write into sectors, of which a power cut keeps any.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = Pending> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &bytes[at..];
        let len = rest.len().min(SECTOR_BYTES - (offset + at) % SECTOR_BYTES);
        let part = Pending::Write { offset: offset + at, bytes: rest[..len].to_vec() };
        at += len;
        (len > 0).then_some(part)
    })
}

impl SimDisk {
    /// An empty disk on which nothing fails yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what goes wrong from now on; operations and syncs are counted from now.
    pub fn set_faults(&self, faults: Faults) {
        self.0.faults.set(faults);
        self.0.operations.set(0);
        self.0.syncs.set(0);
    }

    /// Reads, writes and syncs take up to three turns of the executor from now on, as the seed says: tasks interleave.
    pub fn set_delays(&self, seed: u64) {
        self.0.delays.replace(Some(StdRng::seed_from_u64(seed)));
    }

    async fn delay(&self) {
        let turns = self.0.delays.borrow_mut().as_mut().map_or(0, |rng| rng.random_range(0..4));
        for _ in 0..turns {
            futures_lite::future::yield_now().await;
        }
    }

    /// Operations since the faults were set.
    pub fn operations(&self) -> u64 {
        self.0.operations.get()
    }

    /// What a power cut leaves, as a disk of its own on which nothing fails: everything synced, and of the rest what the
    /// seed keeps. Seed 0 keeps nothing, seed 1 everything.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let keep_all = (seed < 2).then_some(seed == 1);
        let mut keeps = move || keep_all.unwrap_or_else(|| rng.random());
        let after = Self::new();
        // A name that was not made durable may be there or not; the file behind it is the same.
        let mut names = self.0.durable_names.borrow().clone();
        for (path, file) in self.0.names.borrow().iter() {
            if keeps() {
                names.insert(path.clone(), file.clone());
            }
        }
        for (path, file) in names {
            let content = file.borrow();
            let mut bytes = content.durable.clone();
            // Any subset may have reached the disk; where two writes overlap, the disk's order need not be ours.
            let parts = content.pending.iter().flat_map(|pending| match pending {
                Pending::Write { offset, bytes } => sectors(*offset, bytes).collect::<Vec<_>>(),
                Pending::Length(len) => vec![Pending::Length(*len)],
            });
            parts.filter(|_| keeps()).for_each(|part| apply(&mut bytes, &part));
            let content = Content { durable: bytes.clone(), live: bytes, pending: Vec::new() };
            after.0.names.borrow_mut().insert(path, Rc::new(RefCell::new(content)));
        }
        *after.0.durable_names.borrow_mut() = after.0.names.borrow().clone();
        *after.0.folders.borrow_mut() = self.0.folders.borrow().clone();
        after
    }

    /// Flips one bit of a file, as a decaying medium does; false where the file is shorter.
    pub fn flip_bit(&self, path: &Path, byte: usize, bit: u8) -> bool {
        let names = self.0.names.borrow();
        let Some(file) = names.get(path) else { return false };
        let mut content = file.borrow_mut();
        let flipped = content.live.get_mut(byte).map(|b| *b ^= 1 << bit).is_some();
        if let Some(b) = content.durable.get_mut(byte) {
            *b ^= 1 << bit;
        }
        flipped
    }

    /// Counts an operation and says whether the power is still on.
    fn operate(&self, path: &Path, what: &'static str) -> Result<(), DiskError> {
        let number = self.0.operations.get();
        self.0.operations.set(number + 1);
        match self.0.faults.get().cut_before {
            Some(cut) if number >= cut => {
                Err(DiskError::Failed { path: path.display().to_string(), what, reason: "the power was cut".into() })
            }
            _ => Ok(()),
        }
    }

    fn bytes_used(&self) -> u64 {
        self.0.names.borrow().values().map(|file| file.borrow().live.len() as u64).sum()
    }
}

fn now<'a, T: 'a>(result: Result<T, DiskError>) -> IoFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

fn not_found(path: &Path) -> DiskError {
    DiskError::NotFound { path: path.display().to_string() }
}

impl Disk for SimDisk {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> IoFuture<'a, Rc<dyn DiskFile>> {
        if let Err(error) = self.operate(path, "open") {
            return now(Err(error));
        }
        let mut names = self.0.names.borrow_mut();
        let content = match (names.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return now(Err(DiskError::Exists { path: path.display().to_string() })),
            (None, OpenMode::Existing) => return now(Err(not_found(path))),
            (Some(content), _) => content.clone(),
            (None, _) => names.entry(path.to_path_buf()).or_default().clone(),
        };
        now(Ok(Rc::new(SimFile { disk: self.clone(), path: path.to_path_buf(), content })))
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        let done = self.operate(path, "create folder");
        if done.is_ok() {
            self.0.folders.borrow_mut().extend(path.ancestors().map(Path::to_path_buf));
        }
        now(done)
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, Vec<String>> {
        let (names, folders) = (self.0.names.borrow(), self.0.folders.borrow());
        if !folders.contains(path) && !names.keys().any(|file| file.starts_with(path)) {
            return now(Err(not_found(path)));
        }
        let below = names.keys().chain(folders.iter());
        let below = below.filter_map(|known| known.strip_prefix(path).ok()?.components().next());
        let found: BTreeSet<String> = below.map(|name| name.as_os_str().to_string_lossy().into_owned()).collect();
        now(Ok(found.into_iter().collect()))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> IoFuture<'a, ()> {
        if let Err(error) = self.operate(from, "rename") {
            return now(Err(error));
        }
        let mut names = self.0.names.borrow_mut();
        let Some(content) = names.remove(from) else { return now(Err(not_found(from))) };
        names.insert(to.to_path_buf(), content);
        now(Ok(()))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        if let Err(error) = self.operate(path, "remove") {
            return now(Err(error));
        }
        now(self.0.names.borrow_mut().remove(path).map(drop).ok_or_else(|| not_found(path)))
    }

    fn remove_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        let done = self.operate(path, "remove folder");
        if done.is_ok() {
            self.0.names.borrow_mut().retain(|file, _| !file.starts_with(path));
            self.0.folders.borrow_mut().retain(|folder| !folder.starts_with(path));
        }
        now(done)
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        let done = self.operate(path, "sync folder");
        if done.is_ok() {
            let inside = |file: &Path| file.parent() == Some(path);
            let mut durable = self.0.durable_names.borrow_mut();
            durable.retain(|file, _| !inside(file));
            let names = self.0.names.borrow();
            durable.extend(names.iter().filter(|(file, _)| inside(file)).map(|(file, c)| (file.clone(), c.clone())));
        }
        now(done)
    }

    fn exists<'a>(&'a self, path: &'a Path) -> IoFuture<'a, bool> {
        now(Ok(self.0.names.borrow().contains_key(path) || self.0.folders.borrow().contains(path)))
    }
}

impl SimFile {
    fn change(&self, change: Pending, what: &'static str) -> Result<(), DiskError> {
        self.disk.operate(&self.path, what)?;
        let len = self.content.borrow().live.len();
        let grows = match &change {
            Pending::Write { offset, bytes } => (offset + bytes.len()).saturating_sub(len),
            Pending::Length(new) => new.saturating_sub(len),
        };
        let capacity = self.disk.0.faults.get().capacity.unwrap_or(u64::MAX);
        if grows > 0 && self.disk.bytes_used() + grows as u64 > capacity {
            return Err(DiskError::NoSpace { path: self.path.display().to_string() });
        }
        let mut content = self.content.borrow_mut();
        apply(&mut content.live, &change);
        content.pending.push(change);
        Ok(())
    }

    fn read_now(&self, offset: u64, len: usize) -> Result<Vec<u8>, DiskError> {
        self.disk.operate(&self.path, "read")?;
        let content = self.content.borrow();
        let found = usize::try_from(offset).ok().and_then(|start| content.live.get(start..start.checked_add(len)?));
        found.map(<[u8]>::to_vec).ok_or_else(|| DiskError::past_the_end(&self.path, offset, len))
    }

    fn sync_now(&self) -> Result<(), DiskError> {
        self.disk.operate(&self.path, "sync")?;
        let number = self.disk.0.syncs.get();
        self.disk.0.syncs.set(number + 1);
        let mut content = self.content.borrow_mut();
        if self.disk.0.faults.get().failing_sync == Some(number) {
            // As kernels do: the pages count as clean from now on, and the next sync reports success without them.
            content.pending.clear();
            let path = self.path.display().to_string();
            return Err(DiskError::Failed { path, what: "sync", reason: "input/output error".into() });
        }
        content.durable = content.live.clone();
        content.pending.clear();
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> u64 {
        self.content.borrow().live.len() as u64
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        Box::pin(async move {
            self.disk.delay().await;
            self.read_now(offset, len)
        })
    }

    fn write_at(&self, offset: u64, bytes: Vec<u8>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.disk.delay().await;
            self.change(Pending::Write { offset: offset as usize, bytes }, "write")
        })
    }

    fn set_len(&self, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.disk.delay().await;
            self.change(Pending::Length(len as usize), "set length")
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.disk.delay().await;
            self.sync_now()
        })
    }

    fn view(&self) -> Result<View, DiskError> {
        if self.disk.0.faults.get().failing_views {
            let path = self.path.display().to_string();
            return Err(DiskError::Failed { path, what: "map", reason: "cannot allocate memory".into() });
        }
        Ok(Rc::new(self.content.borrow().live.clone()))
    }
}
