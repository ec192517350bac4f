//! A vector partition: creating, opening, drafting, preparing and publishing.
//!
//! The caller owns the commit. [`Draft::prepare`] makes everything durable in places that the published state does not use and
//! returns a manifest. The caller stores the manifest with its own state of the same epoch, and publishes once that is committed.
//! On startup it opens the partition with the manifest of the epoch it finds; anything prepared for a later epoch is dropped.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use super::cache::{ClockCache, Pinned, Room};
use super::codes::{self, Coder};
use super::draft::Draft;
use super::files::{self, CODES, Changes, FileHeader, Manifest, Records, VECTORS};
use super::links::{self, Base, NODES_PER_PAGE, Overlay, PAGE_BYTES, PageNo};
use super::state::{Head, Shared, State, VectorSnapshot};
use super::{Budget, CodeKind, Config, FetchError, Metric, OpenError, Pace};
use crate::io::{Disk, DiskError, DiskFile, OpenMode};

/// Pages of the graph that are kept in memory at least: a step of a search needs some at once.
const PAGES_KEPT_MIN: usize = 256;
/// Pages written at once by a merge: 1 MiB.
const PAGES_PER_WRITE: u32 = 256;
/// Nodes in a frame of links at most: some hundred microseconds of work.
const NODES_PER_FRAME: usize = 2048;
/// Bytes of frames read at once when opening; few in tests, so that frames are longer and shorter than that.
const FRAME_BYTES_PER_READ: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// Codes read at once when opening.
const CODES_PER_READ: u32 = 1024;

/// The right to change a partition. There is one.
pub(super) struct WriteLease(Rc<Cell<bool>>);

impl Drop for WriteLease {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Why there can be no draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// Another draft or prepared state has not ended.
    #[error("the vectors are being changed already")]
    Busy,
    /// An earlier write or sync failed or was cut off: only opening the partition again can tell what is on disk.
    #[error("an earlier write of vectors failed")]
    Poisoned,
}

/// Vectors of one embedder in one partition. Clones are the same partition; it belongs to one core.
#[derive(Clone)]
pub struct VectorPartition {
    shared: Rc<Shared>,
    published: Rc<RefCell<Rc<State>>>,
    writing: Rc<Cell<bool>>,
}

/// A state that is durable and not yet published. Dropping it leaves the published one.
pub struct Prepared {
    state: State,
    manifest: Vec<u8>,
    _lease: WriteLease,
}

impl Prepared {
    /// What the caller must keep with its own state of this epoch, to open the partition with.
    pub fn manifest(&self) -> &[u8] {
        &self.manifest
    }
}

fn shared(
    disk: Rc<dyn Disk>,
    folder: &Path,
    config: Config,
    budget: Budget,
    vectors: Option<Rc<dyn DiskFile>>,
    codes: Rc<dyn DiskFile>,
) -> Rc<Shared> {
    let part_bytes = u64::from(config.dimensions) * 4;
    let room = room(&budget, budget.vector_bytes, part_bytes, 0);
    Rc::new(Shared {
        disk,
        folder: folder.to_path_buf(),
        config,
        coder: Coder::new(&config),
        budget,
        vectors,
        codes,
        cache: ClockCache::new(room),
        pinned: Pinned::default(),
        visited: RefCell::default(),
        older: RefCell::default(),
        poisoned: Cell::new(false),
    })
}

impl VectorPartition {
    /// Makes an empty partition in `folder`, whatever is there.
    ///
    /// # Errors
    /// [`OpenError::Fetch`].
    pub async fn create(disk: Rc<dyn Disk>, folder: &Path, config: Config, budget: Budget) -> Result<Self, OpenError> {
        disk.create_dir_all(folder).await?;
        remove_all_but(&*disk, folder, &BTreeSet::new()).await?;
        let mut files = Vec::new();
        for name in names_of_records(&config) {
            let file = disk.open(&folder.join(name), OpenMode::CreateNew).await?;
            file.write_at(0, FileHeader::encode(&config, name)).await?;
            file.sync().await?;
            files.push(file);
        }
        disk.sync_dir(folder).await?;
        let codes = files.remove(0);
        let shared = shared(disk, folder, config, budget, files.pop(), codes);
        Ok(Self::start(shared, State::empty(&config, config.code_kind())))
    }

    /// Opens the partition in `folder` as it was when `manifest` was prepared. Reads all codes and upper layers; full vectors and
    /// the bottom layer are read when they are needed. Files that the manifest does not name are removed.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(
        disk: Rc<dyn Disk>,
        folder: &Path,
        manifest: &[u8],
        budget: Budget,
        pace: &dyn Pace,
    ) -> Result<Self, OpenError> {
        let shown = |path: &Path| path.display().to_string();
        if let Some(found) = Manifest::other_version(manifest) {
            return Err(OpenError::Version { place: shown(folder), found });
        }
        let damaged = || OpenError::Manifest { folder: shown(folder) };
        let manifest = Manifest::decode(manifest).ok_or_else(damaged)?;
        let config = manifest.config;
        let mut files = Vec::new();
        for name in names_of_records(&config) {
            let file = disk.open(&folder.join(name), OpenMode::Existing).await?;
            let header = file.read_at(0, FileHeader::BYTES).await?;
            if let Some(found) = FileHeader::other_version(&header) {
                return Err(OpenError::Version { place: shown(&folder.join(name)), found });
            }
            if header != FileHeader::encode(&config, name) {
                return Err(OpenError::Header { file: shown(&folder.join(name)), dimensions: config.dimensions });
            }
            files.push(file);
        }
        let codes = files.remove(0);
        let shared = shared(disk, folder, config, budget, files.pop(), codes);
        let mut state = State::empty(&config, kept_kind(&config, &budget, &manifest));
        state.epoch = manifest.epoch;
        state.node_count = manifest.node_count;
        state.entry = manifest.entry;
        read_codes(&shared, &mut state, &manifest, pace).await?;
        read_graph(&shared, &mut state, &manifest, pace).await?;
        let partition = Self::start(shared, state);
        partition.collect().await?;
        Ok(partition)
    }

    /// Opens it anew, as [`VectorPartition::open`] does: that is how it goes on after a write that failed. Snapshots go on: no
    /// record that one can see is written again while it lives.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open_again(&self, manifest: &[u8], pace: &dyn Pace) -> Result<Self, OpenError> {
        let Shared { disk, folder, budget, .. } = &*self.shared;
        let opened = Self::open(disk.clone(), folder, manifest, *budget, pace).await?;
        let published = self.published.borrow().clone();
        let older = self.shared.older.borrow().iter().cloned().chain([Rc::downgrade(&published)]).collect();
        opened.shared.older.replace(older);
        // Snapshots of states before this one may see what is free in it.
        let mut state = State::clone(&opened.published.borrow());
        state.free = Rc::new(state.free.iter().map(|(_, node)| (state.epoch, *node)).collect());
        opened.published.replace(Rc::new(state));
        Ok(opened)
    }

    fn start(shared: Rc<Shared>, state: State) -> Self {
        shared.pinned.set(state.pinned_bytes());
        Self { shared, published: Rc::new(RefCell::new(Rc::new(state))), writing: Rc::default() }
    }

    /// The published state.
    pub fn snapshot(&self) -> VectorSnapshot {
        VectorSnapshot { shared: self.shared.clone(), state: self.published.borrow().clone() }
    }

    /// Whether a write has failed, so that only opening the partition again tells what is on disk.
    pub fn is_poisoned(&self) -> bool {
        self.shared.poisoned.get()
    }

    /// Begins to change the partition, from the published state on.
    ///
    /// # Errors
    /// [`BeginError`].
    pub fn begin(&self) -> Result<Draft, BeginError> {
        if self.shared.poisoned.get() {
            return Err(BeginError::Poisoned);
        }
        if self.writing.replace(true) {
            return Err(BeginError::Busy);
        }
        let lease = WriteLease(self.writing.clone());
        let state = self.published.borrow().clone();
        Ok(Draft::new(self.shared.clone(), &state, lease))
    }

    /// Makes a prepared state the one that new snapshots have. Only after the caller's own commit of its epoch.
    pub fn publish(&self, prepared: Prepared) {
        self.shared.pinned.set(prepared.state.pinned_bytes());
        let old = self.published.replace(Rc::new(prepared.state));
        self.shared.older.borrow_mut().push(Rc::downgrade(&old));
    }

    /// Removes files that the published state has no use for; snapshots that read them go on.
    ///
    /// # Errors
    /// [`DiskError`]: files stay, which the next call removes.
    pub async fn collect(&self) -> Result<(), DiskError> {
        let mut used: BTreeSet<String> = names_of_records(&self.shared.config).map(str::to_owned).collect();
        let base_epoch = {
            let state = self.published.borrow();
            used.extend(state.base.iter().map(|base| base.name.clone()));
            state.base_epoch
        };
        used.insert(files::delta_name(base_epoch));
        remove_all_but(&*self.shared.disk, &self.shared.folder, &used).await
    }
}

/// The files of records: codes, then vectors unless the codes are the vectors.
fn names_of_records(config: &Config) -> impl Iterator<Item = &'static str> + use<> {
    std::iter::once(CODES).chain((config.metric != Metric::Hamming).then_some(VECTORS))
}

async fn remove_all_but(disk: &dyn Disk, folder: &Path, used: &BTreeSet<String>) -> Result<(), DiskError> {
    for name in disk.list_dir(folder).await? {
        if !used.contains(&name) {
            disk.remove_file(&folder.join(name)).await?;
        }
    }
    Ok(())
}

/// The kind of the codes in memory.
fn kept_kind(config: &Config, budget: &Budget, manifest: &Manifest) -> CodeKind {
    let kind = config.code_kind();
    let bytes = manifest.live.len() * codes::code_stride(kind, config.dimensions) as u64;
    if kind == CodeKind::Int4 && bytes > budget.code_bytes { CodeKind::Int2 } else { kind }
}

async fn read_codes(shared: &Shared, state: &mut State, manifest: &Manifest, pace: &dyn Pace) -> Result<(), OpenError> {
    let (metric, records) = (shared.config.metric, Records::codes(&shared.config));
    let end = manifest.live.max().map_or(0, |last| last + 1);
    for first in (0..end).step_by(CODES_PER_READ as usize) {
        let count = CODES_PER_READ.min(end - first);
        let bytes = shared.codes.read_at(records.offset(first), count as usize * records.stride).await?;
        for (node, record) in (first..).zip(bytes.chunks_exact(records.stride)) {
            if !manifest.live.contains(node) {
                continue;
            }
            let Some((doc, ordinal, content)) = records.decode(node, record) else {
                return Err(FetchError::damaged(&shared.folder.join(CODES), "record", node.into()).into());
            };
            state.set_code(&shared.coder, node, content);
            let head = state.first.get_mut(doc);
            *state.heads.get_mut(node) = Head { doc, ordinal, next: *head };
            *head = node + 1;
            Rc::make_mut(&mut state.documents).insert(doc);
            if codes::is_loose(metric, codes::norm(content)) {
                Rc::make_mut(&mut state.loose).insert(node);
            }
        }
        if pace.due() {
            pace.pause().await;
        }
    }
    let free = (0..manifest.node_count).rev().filter(|node| !manifest.live.contains(*node));
    state.free = Rc::new(free.map(|node| (0, node)).collect());
    state.live = Rc::new(manifest.live.clone());
    Ok(())
}

fn apply(state: &mut State, changes: Changes) {
    changes.bottom.into_iter().for_each(|(node, links)| state.overlay.set(node, links));
    changes.upper.into_iter().for_each(|(node, levels)| state.upper.set(node, levels));
}

async fn read_graph(shared: &Shared, state: &mut State, manifest: &Manifest, pace: &dyn Pace) -> Result<(), OpenError> {
    state.base_epoch = manifest.base;
    state.upper_bytes = manifest.upper_bytes;
    state.delta_bytes = manifest.delta_bytes;
    if manifest.base != 0 {
        let base = open_base(shared, manifest.base, manifest.pages, OpenMode::Existing).await?;
        let at = u64::from(manifest.pages) * PAGE_BYTES as u64;
        read_frames((&*base.file, &base.path), at..at + manifest.upper_bytes, state, pace).await?;
        state.base = Some(Rc::new(base));
    }
    if manifest.delta_bytes > 0 {
        let path = shared.folder.join(files::delta_name(manifest.base));
        let file = shared.disk.open(&path, OpenMode::Existing).await?;
        read_frames((&*file, &path), 0..manifest.delta_bytes, state, pace).await?;
    }
    Ok(())
}

/// Applies the frames at these bytes, one after another. A piece of the file at a time: the changes of a graph may be as long as
/// a small machine's memory, and what is read is needed only until it is applied.
async fn read_frames(
    (file, path): (&dyn DiskFile, &Path),
    place: Range<u64>,
    state: &mut State,
    pace: &dyn Pace,
) -> Result<(), FetchError> {
    let mut at = place.start;
    let mut wanted = FRAME_BYTES_PER_READ;
    while at < place.end {
        let bytes = file.read_at(at, wanted.min((place.end - at) as usize)).await?;
        let mut used = 0;
        while let Some((changes, len)) = Changes::decode(&bytes[used..], state.node_count) {
            apply(state, changes);
            used += len;
            if pace.due() {
                pace.pause().await;
            }
        }
        // The piece ends within a frame, which is read anew from its start, and whole where it is longer than a piece.
        wanted = FRAME_BYTES_PER_READ;
        if used == 0 {
            let whole = Changes::frame_bytes(&bytes).filter(|whole| *whole > bytes.len());
            match whole.filter(|whole| *whole as u64 <= place.end - at) {
                Some(whole) => wanted = whole,
                None => return Err(FetchError::damaged(path, "frame at byte", at)),
            }
        }
        at += used as u64;
    }
    Ok(())
}

/// Room for `bytes` in parts of `part_bytes`, but for `least` parts in any case, beside what the core's other caches keep.
fn room(budget: &Budget, bytes: u64, part_bytes: u64, least: usize) -> Room {
    let parts = ((bytes / part_bytes).min(u64::from(u32::MAX)) as usize).max(least);
    Room { parts, part_bytes, all_bytes: budget.kept_bytes, with_pinned_bytes: budget.with_pinned_bytes, least }
}

async fn open_base(shared: &Shared, epoch: u64, pages: u32, mode: OpenMode) -> Result<Base, DiskError> {
    let name = files::graph_name(epoch);
    let path = shared.folder.join(&name);
    let file = shared.disk.open(&path, mode).await?;
    let room = room(&shared.budget, shared.budget.graph_bytes, PAGE_BYTES as u64, PAGES_KEPT_MIN);
    Ok(Base { name, path, file, pages, cache: ClockCache::new(room) })
}

impl Draft {
    /// Makes the changes durable as the state of `epoch`, which must be greater than the published one's. Changes of the graph
    /// that have become too many to keep in memory are merged with its file into a new one.
    ///
    /// # Errors
    /// [`FetchError`]; the published state stays. Where the device was not just full, the partition takes no more drafts.
    pub async fn prepare(mut self, epoch: u64, pace: &dyn Pace) -> Result<Prepared, FetchError> {
        assert!(epoch > self.state.epoch, "epochs grow");
        self.write_all(epoch, pace).await?;
        self.state.fit_codes(&self.shared, self.shared.budget.code_bytes, pace).await;
        self.state.epoch = epoch;
        let newest = self.freed.iter().map(|node| (epoch, *node));
        let unused = std::mem::take(&mut self.reusable);
        let free = newest.chain(self.state.free.iter().copied()).chain(unused.into_iter().map(|node| (0, node)));
        self.state.free = Rc::new(free.collect());
        let manifest = Manifest {
            config: self.shared.config,
            epoch,
            node_count: self.state.node_count,
            entry: self.state.entry,
            base: self.state.base_epoch,
            pages: self.state.base.as_ref().map_or(0, |base| base.pages),
            upper_bytes: self.state.upper_bytes,
            delta_bytes: self.state.delta_bytes,
            live: {
                let mut live = (*self.state.live).clone();
                live.optimize();
                live
            },
        };
        let (state, lease) = self.into_parts();
        Ok(Prepared { state, manifest: manifest.encode(), _lease: lease })
    }

    async fn write_all(&mut self, epoch: u64, pace: &dyn Pace) -> Result<(), FetchError> {
        self.sync_records().await?;
        let least = self.shared.budget.overlay_bytes;
        let quarter = self.state.base.as_ref().map_or(0, |base| u64::from(base.pages) * PAGE_BYTES as u64 / 4);
        let most = least.max(quarter);
        if self.state.overlay.bytes() > most || self.state.delta_bytes > 2 * most {
            self.merge(epoch, pace).await
        } else {
            self.append_changes(epoch, pace).await
        }
    }

    /// Appends the changes of this draft to those since the last merge.
    async fn append_changes(&mut self, epoch: u64, pace: &dyn Pace) -> Result<(), FetchError> {
        let bottom: Vec<u32> = self.changed_bottom.iter().collect();
        let upper: Vec<u32> = self.changed_upper.iter().copied().collect();
        if bottom.is_empty() && upper.is_empty() {
            return Ok(());
        }
        let path = self.shared.folder.join(files::delta_name(self.state.base_epoch));
        let file = self.shared.disk.open(&path, OpenMode::OpenOrCreate).await?;
        let at = self.state.delta_bytes;
        let len = self.write_frames(&*file, at, &bottom, &upper, epoch, pace).await?;
        self.shared.guarded(file.sync()).await?;
        if at == 0 {
            self.shared.guarded(self.shared.disk.sync_dir(&self.shared.folder)).await?;
        }
        self.state.delta_bytes = at + len;
        Ok(())
    }

    /// Writes the links that these nodes have, in frames one after another; their bytes.
    async fn write_frames(
        &self,
        file: &dyn DiskFile,
        at: u64,
        bottom: &[u32],
        upper: &[u32],
        epoch: u64,
        pace: &dyn Pace,
    ) -> Result<u64, FetchError> {
        let state = &self.state;
        let in_bottom = bottom.chunks(NODES_PER_FRAME).map(|nodes| {
            let bottom = nodes.iter().filter_map(|node| Some((*node, *state.overlay.get(*node)?))).collect();
            Changes { bottom, upper: Vec::new() }
        });
        let above = upper.chunks(NODES_PER_FRAME).map(|nodes| {
            let upper = nodes.iter().map(|node| (*node, state.upper.levels(*node).to_vec())).collect();
            Changes { bottom: Vec::new(), upper }
        });
        let mut end = at;
        for changes in in_bottom.chain(above) {
            let frame = changes.encode(epoch);
            let len = frame.len() as u64;
            self.shared.guarded(file.write_at(end, frame)).await?;
            end += len;
            if pace.due() {
                pace.pause().await;
            }
        }
        Ok(end - at)
    }

    /// Writes all links into a new file, one run of pages after another.
    async fn merge(&mut self, epoch: u64, pace: &dyn Pace) -> Result<(), FetchError> {
        let pages = self.state.node_count.div_ceil(NODES_PER_PAGE);
        let new = open_base(&self.shared, epoch, pages, OpenMode::OpenOrCreate).await?;
        new.file.set_len(0).await?;
        for first in (0..pages).step_by(PAGES_PER_WRITE as usize) {
            let last = pages.min(first + PAGES_PER_WRITE);
            let old = self.old_pages(first, last).await?;
            let mut run = Vec::with_capacity((last - first) as usize * PAGE_BYTES);
            for page in first..last {
                let at = (page - first) as usize * PAGE_BYTES;
                let patched = self.state.overlay.patched(PageNo(page), old.get(at..at + PAGE_BYTES));
                run.extend_from_slice(&patched);
                new.cache.put(page, patched.into());
                if pace.due() {
                    pace.pause().await;
                }
            }
            self.shared.guarded(new.file.write_at(u64::from(first) * PAGE_BYTES as u64, run)).await?;
        }
        let upper: Vec<u32> = self.state.upper.iter().map(|(node, _)| node).collect();
        let at = u64::from(pages) * PAGE_BYTES as u64;
        self.state.upper_bytes = self.write_frames(&*new.file, at, &[], &upper, epoch, pace).await?;
        self.shared.guarded(new.file.sync()).await?;
        self.shared.guarded(self.shared.disk.sync_dir(&self.shared.folder)).await?;
        self.state.base = Some(Rc::new(new));
        self.state.base_epoch = epoch;
        self.state.delta_bytes = 0;
        self.state.overlay = Overlay::default();
        Ok(())
    }

    /// What the graph's file has of these pages, one after another; fewer where it ends before.
    async fn old_pages(&self, first: u32, last: u32) -> Result<Vec<u8>, FetchError> {
        let Some(base) = self.state.base.as_ref().filter(|base| first < base.pages) else { return Ok(Vec::new()) };
        let count = last.min(base.pages) - first;
        let bytes = base.file.read_at(u64::from(first) * PAGE_BYTES as u64, count as usize * PAGE_BYTES).await?;
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            if !links::is_whole(PageNo(page), bytes) {
                return Err(FetchError::damaged(&base.path, "page", page.into()));
            }
        }
        Ok(bytes)
    }
}
