//! A draft of the next state: vectors are added and removed, then prepared as an epoch. Nobody sees it before it is published;
//! dropping it leaves the published state unchanged.

use std::collections::BTreeSet;
use std::rc::Rc;

use roaring::RoaringBitmap;

use super::codes::{self, Probe};
use super::connect::{entry_without, level_of};
use super::files::{self, LEVEL_MAX, Records};
use super::partition::WriteLease;
use super::state::{Head, Shared, State};
use super::walk::{Reach, Step, Visited, Walk, descend, node_of};
use super::{FetchError, LINKS_UPPER, Pace, PutError};
use crate::io::DiskFile;

/// How far an insertion looks for the nodes that it links, of which the nearest are enough. For embedded texts (WordNet with MiniLM)
/// that changes nothing. 60,000 clustered vectors of 768 numbers are built at 1.35 times the speed, and their graph, whose links then
/// seldom lead out of a cluster, is smaller by an eighth; with a reach of searches, too, it answers 1.13 times as many of them at
/// the same recall.
const REACH: Reach = Reach { known: LINKS_UPPER, found: LINKS_UPPER, factor: Some(1.2) };

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes that follow each other in a file, not yet written.
#[derive(Default)]
struct Gathered {
    offset: u64,
    bytes: Vec<u8>,
}

impl Gathered {
    async fn write(
        &mut self,
        shared: &Shared,
        file: &dyn DiskFile,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), FetchError> {
        let follows = self.offset + self.bytes.len() as u64 == offset;
        if !self.bytes.is_empty() && (!follows || self.bytes.len() + bytes.len() > WRITE_BYTES) {
            self.flush(shared, file).await?;
        }
        if self.bytes.is_empty() {
            self.offset = offset;
        }
        self.bytes.extend(bytes);
        Ok(())
    }

    async fn flush(&mut self, shared: &Shared, file: &dyn DiskFile) -> Result<(), FetchError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        shared.guarded(file.write_at(self.offset, std::mem::take(&mut self.bytes))).await
    }
}

/// Changes to a partition that are not yet prepared. There is one at a time.
pub struct Draft {
    pub(super) shared: Rc<Shared>,
    pub(super) state: State,
    pub(super) changed_bottom: RoaringBitmap,
    pub(super) changed_upper: BTreeSet<u32>,
    /// Nodes freed by this draft.
    pub(super) freed: Vec<u32>,
    /// Free nodes that no reader has any more.
    pub(super) reusable: Vec<u32>,
    vectors: Gathered,
    codes: Gathered,
    visited: Visited,
    lease: WriteLease,
}

impl Draft {
    pub(super) fn new(shared: Rc<Shared>, state: &State, lease: WriteLease) -> Self {
        let oldest = shared.oldest_read(state.epoch);
        let mut state = state.clone();
        let free = Rc::make_mut(&mut state.free);
        // The list is newest first, so what no reader has any more is at its end.
        let mut reusable = Vec::new();
        while let Some((_, node)) = free.pop_if(|(since, _)| *since <= oldest) {
            reusable.push(node);
        }
        reusable.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            visited: shared.take_visited(),
            shared,
            state,
            changed_bottom: RoaringBitmap::new(),
            changed_upper: BTreeSet::new(),
            freed: Vec::new(),
            reusable,
            vectors: Gathered::default(),
            codes: Gathered::default(),
            lease,
        }
    }

    /// Sets a document's vectors, in place of those it had; none removes it.
    ///
    /// # Errors
    /// [`PutError`]. After [`PutError::Fetch`] the draft must be dropped.
    pub async fn put(&mut self, doc: u32, vectors: &[&[f32]], pace: &dyn Pace) -> Result<(), PutError> {
        if vectors.len() > usize::from(u16::MAX) + 1 {
            return Err(PutError::Full);
        }
        let numbered: Vec<(u16, &[f32])> = (0..=u16::MAX).zip(vectors.iter().copied()).collect();
        self.put_numbered(doc, &numbered, pace).await
    }

    /// Sets a document's vectors, each with its number, rising, in place of those it had; none removes it. A search for vectors of
    /// one number finds those that were put with it.
    ///
    /// # Errors
    /// [`PutError`]. After [`PutError::Fetch`] the draft must be dropped.
    pub async fn put_numbered(&mut self, doc: u32, vectors: &[(u16, &[f32])], pace: &dyn Pace) -> Result<(), PutError> {
        vectors.iter().try_for_each(|(_, vector)| self.shared.config.check(vector))?;
        let room = u64::from(u32::MAX - 1 - self.state.node_count) + self.reusable.len() as u64;
        if vectors.len() as u64 > room || doc == u32::MAX {
            return Err(PutError::Full);
        }
        self.remove(doc, pace).await?;
        // Each goes to the front of the document's chain: the first ends up there.
        for (ordinal, vector) in vectors.iter().rev() {
            self.add(doc, *ordinal, vector, pace).await?;
        }
        Ok(())
    }

    /// A document's vectors as of now, with their numbers, in the order in which they were put.
    ///
    /// # Errors
    /// [`FetchError`]; the draft must then be dropped.
    pub async fn vectors(&mut self, doc: u32) -> Result<Vec<(u16, Vec<f32>)>, FetchError> {
        if let Some(file) = &self.shared.vectors {
            self.vectors.flush(&self.shared, &**file).await?;
        }
        self.state.vectors_of(&self.shared, doc).await
    }

    /// Vectors of all documents, as of now.
    pub fn len(&self) -> u64 {
        self.state.live.len()
    }

    /// Whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.state.live.is_empty()
    }

    /// Removes a document's vectors; one that has none is left as it is.
    ///
    /// # Errors
    /// [`FetchError`]; the draft must then be dropped.
    pub async fn remove(&mut self, doc: u32, pace: &dyn Pace) -> Result<(), FetchError> {
        if !self.state.documents.contains(doc) {
            return Ok(());
        }
        let nodes: Vec<u32> = self.state.nodes_of(doc).collect();
        *self.state.first.get_mut(doc) = 0;
        Rc::make_mut(&mut self.state.documents).remove(doc);
        for node in nodes {
            Rc::make_mut(&mut self.state.live).remove(node);
            self.freed.push(node);
            if Rc::make_mut(&mut self.state.loose).remove(node) {
                continue;
            }
            let top = self.state.upper.levels(node).len() as u8;
            for level in (0..=top).rev() {
                self.disconnect(level, node).await?;
            }
            if top > 0 {
                self.set_levels(node, Vec::new());
            }
            if self.state.entry.is_some_and(|(entry, _)| entry == node) {
                self.state.entry = entry_without(&self.state, node);
            }
            if pace.due() {
                pace.pause().await;
            }
        }
        Ok(())
    }

    /// Documents with vectors, as of now.
    pub fn documents(&self) -> &RoaringBitmap {
        &self.state.documents
    }

    async fn add(&mut self, doc: u32, ordinal: u16, vector: &[f32], pace: &dyn Pace) -> Result<(), FetchError> {
        let config = self.shared.config;
        let node = self.reusable.pop().unwrap_or_else(|| {
            self.state.node_count += 1;
            self.state.node_count - 1
        });
        let mut code = vec![0; codes::code_stride(config.code_kind(), config.dimensions)];
        self.shared.coder.encode(doc, vector, &mut code);
        self.state.set_code(&self.shared.coder, node, &code);
        let first = self.state.first.get_mut(doc);
        *self.state.heads.get_mut(node) = Head { doc, ordinal, next: *first };
        *first = node + 1;
        Rc::make_mut(&mut self.state.documents).insert(doc);
        Rc::make_mut(&mut self.state.live).insert(node);
        self.shared.cache.forget(node);
        let records = Records::codes(&config);
        let record = records.encode(node, doc, ordinal, &code);
        self.codes.write(&self.shared, &*self.shared.codes, records.offset(node), record).await?;
        if let Some(file) = &self.shared.vectors {
            let records = Records::vectors(&config);
            let record = records.encode(node, doc, ordinal, &files::vector_bytes(vector));
            self.vectors.write(&self.shared, &**file, records.offset(node), record).await?;
            // Searches will want it soon, and now it costs no read.
            self.shared.cache.put_if_room(node, vector.into());
        }
        if codes::is_loose(config.metric, codes::norm(&code)) {
            Rc::make_mut(&mut self.state.loose).insert(node);
            return Ok(());
        }
        let probe = self.shared.coder.probe(vector);
        self.insert(node, &probe, level_of(config.seed, doc, ordinal, LEVEL_MAX), pace).await
    }

    /// Puts a node into the graph's layers (algorithm 1 of the paper).
    async fn insert(&mut self, node: u32, query: &Probe, level: u8, pace: &dyn Pace) -> Result<(), FetchError> {
        if level > 0 {
            self.set_levels(node, vec![Vec::new(); usize::from(level)]);
        }
        let Some(entry) = self.state.entry else {
            self.state.entry = Some((node, level));
            return Ok(());
        };
        let mut start = vec![descend(&self.state, self.state.comparer, query, entry, level)];
        for layer in (0..=level.min(entry.1)).rev() {
            let mut visited = std::mem::take(&mut self.visited);
            let found = self.walk(query, layer, &start, &mut visited, pace).await;
            self.visited = visited;
            let found = found?;
            self.connect(layer, node, &found).await?;
            start = found.into_iter().map(node_of).collect();
        }
        if level > entry.1 {
            self.state.entry = Some((node, level));
        }
        Ok(())
    }

    async fn walk(
        &self,
        query: &Probe,
        level: u8,
        start: &[u32],
        visited: &mut Visited,
        pace: &dyn Pace,
    ) -> Result<Vec<u64>, FetchError> {
        let width = usize::from(self.shared.config.build_width.max(1));
        let mut walk = Walk::new(self.state.comparer, query, level, width, visited);
        walk.reach = (level == 0).then_some(REACH);
        walk.start(&self.state, start.iter().copied());
        loop {
            let step = walk.step(&self.state);
            let loaded = matches!(step, Step::Need(_));
            match step {
                Step::Done => return Ok(walk.finish()),
                Step::More => {}
                Step::Need(pages) => self.state.load(&pages).await?,
            }
            // Pages are used before others can push them out again.
            if !loaded && pace.due() {
                pace.pause().await;
            }
        }
    }

    /// The state, and the right to publish it.
    pub(super) fn into_parts(self) -> (State, WriteLease) {
        self.shared.give_visited(self.visited);
        (self.state, self.lease)
    }

    /// Writes what was gathered and makes all records durable.
    pub(super) async fn sync_records(&mut self) -> Result<(), FetchError> {
        self.codes.flush(&self.shared, &*self.shared.codes).await?;
        self.shared.guarded(self.shared.codes.sync()).await?;
        if let Some(file) = &self.shared.vectors {
            self.vectors.flush(&self.shared, &**file).await?;
            self.shared.guarded(file.sync()).await?;
        }
        Ok(())
    }
}
