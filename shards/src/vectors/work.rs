//! The next state of one embedder's vectors in one partition.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde_json::Value;
use storage_engine::ReadTree;
use storage_engine::WriteTxn;
use storage_engine::vector::{Config, DIMENSIONS_MAX, Draft, Metric, Prepared, VectorPartition};

use super::change::{EmbedderState, is_quantized, is_user_provided};
use super::sent::SentEntry;
use super::stored::{EmbedderVectors, Graph, StoredVectors, budget, key};
use crate::error::UserError;
use crate::partition::PartitionError;
use crate::partition::trees::META;
use crate::runtime::{Runtime, RuntimePace};

/// Documents whose texts the host must look at.
#[derive(Default)]
pub(super) struct Wanted {
    /// Whatever they render: they are embedded.
    pub forced: RoaringBitmap,
    /// They are compared with what they were before the batch.
    pub changed: RoaringBitmap,
    /// They are compared under the settings before and after.
    pub recheck: RoaringBitmap,
}

/// The state being built.
pub(super) struct Work {
    pub name: Arc<str>,
    pub embedder: Value,
    pub state: EmbedderState,
    lengths: Vec<OfLength>,
    user: RoaringBitmap,
    fixed: RoaringBitmap,
    pub wanted: Wanted,
    /// Whether anything but the vectors differs from the state before.
    dirty: bool,
}

/// The vectors of one length.
struct OfLength {
    graph: Graph,
    draft: Option<Draft>,
    /// Documents that got vectors of another length. They are taken out at the end: mostly they are all that there are, and the
    /// whole graph goes.
    left: RoaringBitmap,
}

impl OfLength {
    fn dimensions(&self) -> u32 {
        self.graph.snapshot.config().dimensions
    }

    fn documents(&self) -> RoaringBitmap {
        self.all() - &self.left
    }

    fn contains(&self, doc: u32) -> bool {
        self.all().contains(doc) && !self.left.contains(doc)
    }

    /// With those that left.
    fn all(&self) -> &RoaringBitmap {
        self.draft.as_ref().map_or_else(|| self.graph.snapshot.documents(), Draft::documents)
    }

    fn len(&self) -> u64 {
        self.draft.as_ref().map_or_else(|| self.graph.snapshot.len(), Draft::len)
    }

    async fn draft(&mut self) -> Result<&mut Draft, PartitionError> {
        if self.draft.is_none() {
            // Whatever an earlier state has left is of no use now: nothing is being written.
            self.graph.partition.collect().await?;
            self.draft = Some(self.graph.partition.begin()?);
        }
        self.draft.as_mut().ok_or(PartitionError::NotBegun)
    }
}

/// Makes the folders of new graphs.
pub(super) struct Maker<'m> {
    pub runtime: &'m Rc<dyn Runtime>,
    pub root: &'m Path,
    /// Graphs made in this state so far.
    pub made: &'m mut u32,
    pub epoch: u64,
}

/// What a document is to one embedder before an entry is applied.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub is_new: bool,
    /// Whether its record differs from the one before.
    pub changed: bool,
}

impl Work {
    pub fn new(name: &str, embedder: &Value, state: EmbedderState, before: Option<&EmbedderVectors>) -> Self {
        let before = before.cloned().unwrap_or_default();
        Self {
            name: name.into(),
            embedder: embedder.clone(),
            state,
            lengths: before
                .graphs
                .into_iter()
                .map(|graph| OfLength { graph, draft: None, left: RoaringBitmap::new() })
                .collect(),
            user: (*before.user).clone(),
            fixed: (*before.fixed).clone(),
            wanted: Wanted::default(),
            dirty: false,
        }
    }

    pub fn is_user_provided(&self) -> bool {
        is_user_provided(&self.embedder)
    }

    fn documents(&self) -> RoaringBitmap {
        self.lengths.iter().fold(RoaringBitmap::new(), |all, of| all | of.documents())
    }

    /// Takes a document's vectors away.
    async fn remove(&mut self, doc: u32, runtime: &Rc<dyn Runtime>) -> Result<(), PartitionError> {
        for of in self.lengths.iter_mut().filter(|of| of.contains(doc)) {
            of.draft().await?.remove(doc, &RuntimePace(&**runtime)).await?;
        }
        Ok(())
    }

    pub fn is_fixed(&self, doc: u32) -> bool {
        self.fixed.contains(doc)
    }

    pub fn is_user(&self, doc: u32) -> bool {
        self.user.contains(doc)
    }

    /// Documents that are generated again when what they depend on changes.
    pub fn regenerated(&self, documents: &RoaringBitmap) -> RoaringBitmap {
        documents - &self.fixed
    }

    pub fn set_flags(&mut self, doc: u32, user: bool, fixed: bool) {
        let set = |set: &mut RoaringBitmap, on: bool| if on { set.insert(doc) } else { set.remove(doc) };
        let user = set(&mut self.user, user);
        self.dirty |= set(&mut self.fixed, fixed) || user;
    }

    /// Lets go of all vectors.
    pub fn clear(&mut self) {
        self.dirty |= !self.lengths.is_empty() || !self.user.is_empty() || !self.fixed.is_empty();
        self.lengths.clear();
        self.user.clear();
        self.fixed.clear();
        self.wanted = Wanted::default();
    }

    /// Lets go of a document.
    pub async fn forget(&mut self, doc: u32, runtime: &Rc<dyn Runtime>) -> Result<(), PartitionError> {
        self.remove(doc, runtime).await?;
        self.set_flags(doc, false, false);
        for wanted in [&mut self.wanted.forced, &mut self.wanted.changed, &mut self.wanted.recheck] {
            wanted.remove(doc);
        }
        Ok(())
    }

    /// Applies what a document says, or says nothing, about this embedder. True when its text must be looked at.
    pub async fn apply(
        &mut self,
        doc: u32,
        entry: Option<SentEntry>,
        known: Known,
        maker: Maker<'_>,
    ) -> Result<bool, PartitionError> {
        let was_fixed = !known.is_new && self.is_fixed(doc);
        match entry {
            Some(SentEntry { vectors: Some(vectors), regenerate }) => {
                let vectors: Vec<(u16, &[f32])> = (0..).zip(vectors.iter().map(Vec::as_slice)).collect();
                self.put(doc, &vectors, maker).await?;
                self.set_flags(doc, true, !regenerate);
                Ok(false)
            }
            Some(SentEntry { vectors: None, regenerate: true }) => {
                self.set_flags(doc, self.user.contains(doc), false);
                Ok(self.want(doc, known.is_new || was_fixed, known.changed))
            }
            Some(_) if known.is_new => {
                self.set_flags(doc, true, true);
                Ok(false)
            }
            _ if was_fixed => Ok(false),
            _ => Ok(self.want(doc, known.is_new, known.changed)),
        }
    }

    /// Notes that a document's text must be looked at.
    fn want(&mut self, doc: u32, forced: bool, changed: bool) -> bool {
        if forced {
            self.wanted.forced.insert(doc);
        } else if changed {
            self.wanted.changed.insert(doc);
        }
        forced || changed
    }

    /// Sets a document's vectors.
    pub async fn put(&mut self, doc: u32, vectors: &[(u16, &[f32])], maker: Maker<'_>) -> Result<(), PartitionError> {
        let Some((_, first)) = vectors.first() else {
            return self.remove(doc, maker.runtime).await;
        };
        let dimensions = first.len() as u32;
        let runtime = maker.runtime;
        for of in self.lengths.iter_mut().filter(|of| of.dimensions() != dimensions && of.contains(doc)) {
            of.left.insert(doc);
        }
        let at = match self.lengths.iter().position(|of| of.dimensions() == dimensions) {
            Some(at) => at,
            None => self.make(dimensions, maker).await?,
        };
        let of = &mut self.lengths[at];
        of.left.remove(doc);
        Ok(of.draft().await?.put_numbered(doc, vectors, &RuntimePace(&**runtime)).await?)
    }

    /// Makes the graph of another length; its place.
    async fn make(&mut self, dimensions: u32, maker: Maker<'_>) -> Result<usize, PartitionError> {
        // What a host of models gives is not bounded by the settings.
        if dimensions > DIMENSIONS_MAX {
            return Err(PartitionError::Vectors(format!(
                "{dimensions} numbers are too many, {DIMENSIONS_MAX} are allowed"
            )));
        }
        let folder = format!("e{}-{}", maker.epoch, maker.made);
        *maker.made += 1;
        let metric = if is_quantized(&self.embedder) { Metric::Hamming } else { Metric::Cosine };
        let (disk, path) = (maker.runtime.disk(), maker.root.join(&folder));
        let config = Config::new(dimensions, metric);
        let partition = VectorPartition::create(disk.clone(), &path, config, budget()).await?;
        // The files are of no use after a power cut when the names of their folders are lost.
        for folder in [Some(maker.root), maker.root.parent()].into_iter().flatten() {
            disk.sync_dir(folder).await?;
        }
        let snapshot = partition.snapshot();
        let graph = Graph { folder, partition, snapshot };
        self.lengths.push(OfLength { graph, draft: None, left: RoaringBitmap::new() });
        // Even if no vector comes into it: the entry may name a graph that this one replaces.
        self.dirty = true;
        Ok(self.lengths.len() - 1)
    }

    /// A document's vectors as of now.
    pub async fn vectors(&mut self, doc: u32) -> Result<Vec<(u16, Vec<f32>)>, PartitionError> {
        match self.lengths.iter_mut().find(|of| of.contains(doc)) {
            Some(OfLength { draft: Some(draft), .. }) => Ok(draft.vectors(doc).await?),
            Some(of) => Ok(of.graph.snapshot.numbered(doc).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Builds the graphs anew of the signs of their vectors.
    pub async fn quantize(&mut self, mut maker: Maker<'_>) -> Result<(), PartitionError> {
        let is_exact = |of: &mut OfLength| of.graph.snapshot.config().metric != Metric::Hamming;
        let exact: Vec<OfLength> = self.lengths.extract_if(.., is_exact).collect();
        for old in exact.into_iter().map(|of| of.graph.snapshot) {
            self.make(old.config().dimensions, maker.again()).await?;
            for doc in old.documents() {
                let vectors = old.numbered(doc).await?;
                let vectors: Vec<(u16, &[f32])> =
                    vectors.iter().map(|(slot, vector)| (*slot, vector.as_slice())).collect();
                self.put(doc, &vectors, maker.again()).await?;
            }
        }
        Ok(())
    }

    /// Takes away generated vectors of slots that no fragment has any more.
    pub async fn drop_stale_slots(&mut self, mut maker: Maker<'_>) -> Result<(), PartitionError> {
        for doc in self.documents() - &self.user {
            let mut vectors = self.vectors(doc).await?;
            let count = vectors.len();
            vectors.retain(|(slot, _)| self.state.slots.iter().any(|(_, known)| known == slot));
            if vectors.len() < count {
                let kept: Vec<(u16, &[f32])> =
                    vectors.iter().map(|(slot, vector)| (*slot, vector.as_slice())).collect();
                self.put(doc, &kept, maker.again()).await?;
            }
        }
        Ok(())
    }

    /// Lets go of what documents have left for vectors of another length.
    pub async fn settle(&mut self, runtime: &Rc<dyn Runtime>) -> Result<(), PartitionError> {
        let count = self.lengths.len();
        if count > 1 {
            self.lengths.retain(|of| !of.documents().is_empty());
        }
        self.dirty |= self.lengths.len() < count;
        for of in &mut self.lengths {
            for doc in std::mem::take(&mut of.left) {
                of.draft().await?.remove(doc, &RuntimePace(&**runtime)).await?;
            }
        }
        Ok(())
    }

    /// Vectors, and documents with vectors, once all is settled.
    pub fn sums(&self) -> (u64, RoaringBitmap) {
        (self.lengths.iter().map(OfLength::len).sum(), self.documents())
    }

    /// Makes the vectors durable as those of an epoch and puts the entry that names them. They are published when that is committed.
    pub async fn finish(
        &mut self,
        epoch: u64,
        txn: &mut WriteTxn,
        runtime: &Rc<dyn Runtime>,
    ) -> Result<(EmbedderVectors, Vec<(VectorPartition, Prepared)>), PartitionError> {
        let known = txn.get(META, &key(&self.name))?.is_some();
        if known && self.lengths.iter().all(|of| of.draft.is_none()) && !self.dirty {
            return Ok((self.result(), Vec::new()));
        }
        let (mut prepared, mut graphs) = (Vec::new(), Vec::new());
        for of in &mut self.lengths {
            of.draft().await?;
            let draft = of.draft.take().ok_or(PartitionError::NotBegun)?;
            let ready = draft.prepare(epoch, &RuntimePace(&**runtime)).await?;
            graphs.push((of.graph.folder.clone(), ready.manifest().to_vec()));
            prepared.push((of.graph.partition.clone(), ready));
        }
        let stored = StoredVectors { user: self.user.clone(), fixed: self.fixed.clone(), graphs };
        txn.put(META, &key(&self.name), &stored.encode())?;
        Ok((self.result(), prepared))
    }

    fn result(&self) -> EmbedderVectors {
        EmbedderVectors {
            graphs: self.lengths.iter().map(|of| of.graph.clone()).collect(),
            user: Rc::new(self.user.clone()),
            fixed: Rc::new(self.fixed.clone()),
        }
    }

    /// The error for a document that has no vectors where only documents bring them.
    pub fn missing(&self) -> UserError {
        missing(&self.name, None)
    }
}

impl Maker<'_> {
    /// The same for another use.
    pub fn again(&mut self) -> Maker<'_> {
        Maker { runtime: self.runtime, root: self.root, made: self.made, epoch: self.epoch }
    }
}

/// The error for a document (`id`, where it is known) that must bring vectors for the embedder `name` and does not.
pub fn missing(name: &str, id: Option<&str>) -> UserError {
    let document = id.map_or_else(|| "a document".to_owned(), |id| format!("document `{id}`"));
    let message = format!(
        "While embedding documents for embedder `{name}`: no vectors provided for {document}. Check the spelling of \
         `_vectors` and of the embedder's name, or send `\"_vectors\": {{\"{name}\": null}}` for a document without vectors."
    );
    UserError::new("vector_embedding_error", message)
}
