//! The state of a partition at one epoch. It is immutable; the next state is a copy that shares everything unchanged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::{Rc, Weak};

use futures_util::future::join_all;
use roaring::RoaringBitmap;

use super::cache::{ClockCache, Pinned};
use super::chunked::{Chunked, Strides};
use super::codes::{self, Coder, Comparer};
use super::files::{self, Records};
use super::kernels::{bytes_of, prefetch};
use super::links::{self, Base, Links, Overlay, PAGE_BYTES, PageNo};
use super::walk::Visited;
use super::{Budget, CodeKind, Config, FetchError, Metric, Pace};
use crate::io::{Disk, DiskError, DiskFile};

/// Nodes of which the upper layers share a map.
const UPPER_GROUP: u32 = 1024;
/// Buffers of finished searches that are kept for the next.
const VISITED_KEPT: usize = 4;
/// Reads in flight at once, for one search.
pub(super) const READS_IN_FLIGHT: usize = 64;

/// A node besides its code: its document, which of the document's vectors it is, and the document's next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub doc: u32,
    pub ordinal: u16,
    /// Node plus one, 0 for none.
    pub next: u32,
}

/// The links above the bottom layer: few enough to be in memory always.
#[derive(Clone, Debug, Default)]
pub(super) struct Upper {
    groups: Vec<Rc<BTreeMap<u32, Vec<Vec<u32>>>>>,
}

impl Upper {
    /// A node's links from layer 1 up; empty where it is in the bottom layer only.
    pub fn levels(&self, node: u32) -> &[Vec<u32>] {
        let group = self.groups.get((node / UPPER_GROUP) as usize);
        group.and_then(|group| group.get(&node)).map_or(&[], Vec::as_slice)
    }

    /// Sets a node's links in all layers; none takes it out.
    pub fn set(&mut self, node: u32, levels: Vec<Vec<u32>>) {
        let group = (node / UPPER_GROUP) as usize;
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, Rc::default);
        }
        let group = Rc::make_mut(&mut self.groups[group]);
        if levels.is_empty() { drop(group.remove(&node)) } else { drop(group.insert(node, levels)) }
    }

    /// All nodes with their links, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Vec<Vec<u32>>)> {
        self.groups.iter().flat_map(|group| group.iter().map(|(node, levels)| (*node, levels)))
    }

    /// The node in the highest layer, the least of them.
    pub fn highest(&self) -> Option<(u32, u8)> {
        let key = |(node, levels): (u32, &Vec<Vec<u32>>)| (levels.len() as u8, std::cmp::Reverse(node));
        self.iter().map(key).max().map(|(level, node)| (node.0, level))
    }
}

/// What one epoch has.
#[derive(Clone)]
pub(super) struct State {
    pub epoch: u64,
    /// Nodes are numbered below this.
    pub node_count: u32,
    pub codes: Strides,
    /// For codes of the kind that is in memory.
    pub comparer: Comparer,
    pub heads: Chunked<Head>,
    /// For each document its first node plus one, 0 for none.
    pub first: Chunked<u32>,
    pub overlay: Overlay,
    pub upper: Upper,
    pub base: Option<Rc<Base>>,
    /// Epoch of the merge that wrote the base, 0 for none; the file of changes has it in its name.
    pub base_epoch: u64,
    pub upper_bytes: u64,
    pub delta_bytes: u64,
    /// Where searches begin: a node and its layer.
    pub entry: Option<(u32, u8)>,
    /// Nodes that are vectors of documents.
    pub live: Rc<RoaringBitmap>,
    /// Documents with vectors.
    pub documents: Rc<RoaringBitmap>,
    /// Live nodes outside the graph (see [`codes::NORM_LOOSE`]).
    pub loose: Rc<RoaringBitmap>,
    /// Nodes that are free since an epoch, oldest last.
    pub free: Rc<Vec<(u64, u32)>>,
}

impl State {
    /// No vectors yet, with codes of this kind in memory.
    pub fn empty(config: &Config, kind: CodeKind) -> Self {
        Self {
            epoch: 0,
            node_count: 0,
            codes: Strides::new(codes::code_stride(kind, config.dimensions)),
            comparer: Comparer::new(config, kind),
            heads: Chunked::default(),
            first: Chunked::default(),
            overlay: Overlay::default(),
            upper: Upper::default(),
            base: None,
            base_epoch: 0,
            upper_bytes: 0,
            delta_bytes: 0,
            entry: None,
            live: Rc::default(),
            documents: Rc::default(),
            loose: Rc::default(),
            free: Rc::default(),
        }
    }

    /// Bytes of what is always in memory: codes and the graph's changes.
    pub fn pinned_bytes(&self) -> u64 {
        self.codes.bytes() as u64 + self.overlay.bytes()
    }

    /// Keeps a node's code, which is of the kind that files have.
    pub fn set_code(&mut self, coder: &Coder, node: u32, code: &[u8]) {
        let kept = self.codes.get_mut(node);
        if self.comparer.kind() == CodeKind::Int2 {
            coder.narrow(code, kept);
        } else {
            kept.copy_from_slice(&code[..kept.len()]);
        }
    }

    /// Makes codes of four bits such of two where they are more than `most` bytes.
    pub async fn fit_codes(&mut self, shared: &Shared, most: u64, pace: &dyn Pace) {
        let config = &shared.config;
        if self.comparer.kind() != CodeKind::Int4 || self.codes.bytes() as u64 <= most {
            return;
        }
        let mut narrow = Strides::new(codes::code_stride(CodeKind::Int2, config.dimensions));
        for node in self.live.iter() {
            shared.coder.narrow(self.codes.get(node), narrow.get_mut(node));
            if pace.due() {
                pace.pause().await;
            }
        }
        self.codes = narrow;
        self.comparer = Comparer::new(config, CodeKind::Int2);
    }

    /// A node's links in the bottom layer, or the page that must be loaded to tell.
    #[inline]
    pub fn bottom(&self, node: u32) -> Result<Links, PageNo> {
        match (self.overlay.get(node), &self.base) {
            (Some(links), _) => Ok(*links),
            (None, Some(base)) => base.links(node),
            (None, None) => Ok(Links::default()),
        }
    }

    /// A node's links in the bottom layer, whose page is loaded where it is not in memory.
    pub async fn loaded_bottom(&self, node: u32) -> Result<Links, FetchError> {
        loop {
            match self.bottom(node) {
                Ok(links) => return Ok(links),
                Err(page) => self.load(&[page]).await?,
            }
        }
    }

    /// Shows each of a node's links in the bottom layer; else the page that must be loaded first.
    #[inline(always)]
    pub fn each_bottom(&self, node: u32, mut look: impl FnMut(u32)) -> Result<(), PageNo> {
        match (self.overlay.get(node), &self.base) {
            (Some(links), _) => links.as_slice().iter().for_each(|linked| look(*linked)),
            (None, Some(base)) => return base.each(node, look),
            (None, None) => {}
        }
        Ok(())
    }

    /// Asks the processor to fetch a node's links in the bottom layer, where they are in memory.
    #[inline]
    pub fn prefetch_bottom(&self, node: u32) {
        if !self.overlay.prefetch(node)
            && let Some(base) = &self.base
        {
            base.prefetch(node);
        }
    }

    /// The nodes of a document.
    pub fn nodes_of(&self, doc: u32) -> impl Iterator<Item = u32> {
        let first = self.first.get(doc).copied().unwrap_or(0);
        std::iter::successors(first.checked_sub(1), |node| self.heads.get(*node)?.next.checked_sub(1))
    }

    #[inline(always)]
    pub fn head(&self, node: u32) -> Head {
        self.heads.get(node).copied().unwrap_or_default()
    }

    /// A document's vectors with their numbers, by number.
    pub async fn vectors_of(&self, shared: &Shared, doc: u32) -> Result<Vec<(u16, Vec<f32>)>, FetchError> {
        let mut nodes: Vec<u32> = self.nodes_of(doc).collect();
        nodes.sort_unstable_by_key(|node| self.head(*node).ordinal);
        let vectors: Vec<Vec<f32>> = if shared.config.metric == Metric::Hamming {
            nodes.iter().map(|node| codes::decode_bits(&shared.config, self.codes.get(*node))).collect()
        } else {
            shared.fetch(&nodes).await?.iter().map(|vector| vector.to_vec()).collect()
        };
        Ok(nodes.iter().map(|node| self.head(*node).ordinal).zip(vectors).collect())
    }

    /// Loads pages of the graph's file into memory, all reads at once.
    pub async fn load(&self, pages: &[PageNo]) -> Result<(), FetchError> {
        let Some(base) = &self.base else { return Ok(()) };
        let reads = pages.iter().map(|page| base.file.read_at(u64::from(page.0) * PAGE_BYTES as u64, PAGE_BYTES));
        for (page, bytes) in pages.iter().zip(join_all(reads).await) {
            let bytes = bytes?;
            if !links::is_whole(*page, &bytes) {
                return Err(FetchError::damaged(&base.path, "page", page.0.into()));
            }
            base.cache.put(page.0, bytes.into());
        }
        Ok(())
    }
}

/// What all states of a partition share.
pub(super) struct Shared {
    pub disk: Rc<dyn Disk>,
    pub folder: PathBuf,
    pub config: Config,
    pub coder: Coder,
    pub budget: Budget,
    /// The full vectors; none where the codes are the vectors.
    pub vectors: Option<Rc<dyn DiskFile>>,
    pub codes: Rc<dyn DiskFile>,
    /// Full vectors in memory, by node.
    pub cache: ClockCache<[f32]>,
    /// What the published state has in memory always.
    pub pinned: Pinned,
    pub visited: RefCell<Vec<Visited>>,
    /// States that were published before and may still be read.
    pub older: RefCell<Vec<Weak<State>>>,
    /// A write or sync failed or was cut off.
    pub poisoned: Cell<bool>,
}

impl Shared {
    /// The oldest epoch that is read, where `current` is the newest.
    pub fn oldest_read(&self, current: u64) -> u64 {
        let mut older = self.older.borrow_mut();
        older.retain(|state| state.strong_count() > 0);
        older.iter().filter_map(Weak::upgrade).map(|state| state.epoch).fold(current, u64::min)
    }

    /// Awaits a write or sync. Where it fails, or is dropped half done, the partition takes no more changes: what is on disk is
    /// not known. A full device is no such case, since nothing in use is ever written over.
    pub async fn guarded<T>(&self, write: impl Future<Output = Result<T, DiskError>>) -> Result<T, FetchError> {
        let before = self.poisoned.replace(true);
        let done = write.await;
        if matches!(done, Ok(_) | Err(DiskError::NoSpace { .. })) {
            self.poisoned.set(before);
        }
        Ok(done?)
    }

    pub fn take_visited(&self) -> Visited {
        self.visited.borrow_mut().pop().unwrap_or_default()
    }

    pub fn give_visited(&self, visited: Visited) {
        let mut kept = self.visited.borrow_mut();
        if kept.len() < VISITED_KEPT {
            kept.push(visited);
        }
    }

    /// Asks the processor to fetch so many of the first bytes of a node's full vector, if that is in memory.
    pub fn prefetch_vector(&self, node: u32, most: usize) {
        self.cache.peek(node, |vector| {
            let bytes = bytes_of(vector);
            prefetch(&bytes[..bytes.len().min(most)]);
        });
    }

    /// The full vectors of nodes, in their order: from memory, the rest by reads of which many are in flight.
    pub async fn fetch(&self, nodes: &[u32]) -> Result<Vec<Rc<[f32]>>, FetchError> {
        let Some(file) = &self.vectors else { return Ok(Vec::new()) };
        let records = Records::vectors(&self.config);
        let mut found: Vec<Option<Rc<[f32]>>> = nodes.iter().map(|node| self.cache.get(*node)).collect();
        let mut missing: Vec<usize> = (0..nodes.len()).filter(|at| found[*at].is_none()).collect();
        missing.sort_unstable_by_key(|at| nodes[*at]);
        for batch in missing.chunks(READS_IN_FLIGHT) {
            let direct = file.len() > self.budget.direct_bytes;
            let reads = batch.iter().map(|at| match (records.offset(nodes[*at]), records.stride) {
                (offset, len) if direct => file.read_direct(offset, len),
                (offset, len) => file.read_at(offset, len),
            });
            let bytes: Vec<Result<Vec<u8>, DiskError>> = join_all(reads).await;
            for (at, bytes) in batch.iter().zip(bytes) {
                let vector = self.vector_in(nodes[*at], &bytes?)?;
                self.cache.put(nodes[*at], vector.clone());
                found[*at] = Some(vector);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// The full vector in a node's record.
    pub fn vector_in(&self, node: u32, record: &[u8]) -> Result<Rc<[f32]>, FetchError> {
        let Some((_, _, content)) = Records::vectors(&self.config).decode(node, record) else {
            return Err(FetchError::damaged(&self.folder.join(files::VECTORS), "record", node.into()));
        };
        Ok(files::vector_of(content, self.config.dimensions).into())
    }
}

/// A published state, to search in. It stays as it is however long it is held; nodes that were deleted since are not used again
/// while it is.
#[derive(Clone)]
pub struct VectorSnapshot {
    pub(super) shared: Rc<Shared>,
    pub(super) state: Rc<State>,
}

/// Sizes of a partition, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct VectorSizes {
    /// Vectors.
    pub vectors: u64,
    /// Bytes of codes in memory.
    pub code_bytes: u64,
    /// Bytes of links in the graph's file and its changes.
    pub graph_bytes: u64,
    /// Bytes of changes in memory.
    pub overlay_bytes: u64,
    /// Bytes of graph pages in memory.
    pub graph_cached_bytes: u64,
    /// Bytes of full vectors in memory.
    pub vectors_cached_bytes: u64,
    /// Bytes of all files.
    pub disk_bytes: u64,
}

impl VectorSnapshot {
    /// The state's epoch.
    pub fn epoch(&self) -> u64 {
        self.state.epoch
    }

    /// What the partition was made with.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Number of vectors.
    pub fn len(&self) -> u64 {
        self.state.live.len()
    }

    /// Whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.state.live.is_empty()
    }

    /// Documents with vectors.
    pub fn documents(&self) -> &RoaringBitmap {
        &self.state.documents
    }

    /// A document's vectors, in the order in which they were put; those of [`Metric::Hamming`] as 0.0 and 1.0.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn vectors(&self, doc: u32) -> Result<Vec<Vec<f32>>, FetchError> {
        Ok(self.numbered(doc).await?.into_iter().map(|(_, vector)| vector).collect())
    }

    /// A document's vectors as [`Self::vectors`] gives them, each with its number.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn numbered(&self, doc: u32) -> Result<Vec<(u16, Vec<f32>)>, FetchError> {
        self.state.vectors_of(&self.shared, doc).await
    }

    /// The documents that have a vector of this number.
    pub fn documents_with(&self, ordinal: u16) -> RoaringBitmap {
        let heads = self.state.live.iter().map(|node| self.state.head(node));
        heads.filter(|head| head.ordinal == ordinal).map(|head| head.doc).collect()
    }

    /// How large things are.
    pub fn sizes(&self) -> VectorSizes {
        let state = &*self.state;
        let base = state.base.as_ref();
        let pages = base.map_or(0, |base| u64::from(base.pages) * PAGE_BYTES as u64);
        let graph_bytes = pages + state.upper_bytes + state.delta_bytes;
        let files = self.shared.codes.len() + self.shared.vectors.as_ref().map_or(0, |file| file.len());
        VectorSizes {
            vectors: self.len(),
            code_bytes: state.codes.bytes() as u64,
            graph_bytes,
            overlay_bytes: state.overlay.bytes(),
            graph_cached_bytes: base.map_or(0, |base| (base.cache.held() * PAGE_BYTES) as u64),
            vectors_cached_bytes: self.shared.cache.held() as u64 * u64::from(self.shared.config.dimensions) * 4,
            disk_bytes: files + graph_bytes,
        }
    }
}
