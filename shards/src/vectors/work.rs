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
    graph: Option<Graph>,
    draft: Option<Draft>,
    user: RoaringBitmap,
    fixed: RoaringBitmap,
    pub wanted: Wanted,
    /// Whether anything but the vectors differs from the state before.
    dirty: bool,
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
            graph: before.graph,
            draft: None,
            user: (*before.user).clone(),
            fixed: (*before.fixed).clone(),
            wanted: Wanted::default(),
            dirty: false,
        }
    }

    pub fn is_user_provided(&self) -> bool {
        is_user_provided(&self.embedder)
    }

    fn documents(&self) -> Option<&RoaringBitmap> {
        match (&self.draft, &self.graph) {
            (Some(draft), _) => Some(draft.documents()),
            (None, graph) => graph.as_ref().map(|graph| graph.snapshot.documents()),
        }
    }

    pub fn has_vectors(&self, doc: u32) -> bool {
        self.documents().is_some_and(|documents| documents.contains(doc))
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
        self.dirty |= self.graph.is_some() || !self.user.is_empty() || !self.fixed.is_empty();
        self.draft = None;
        self.graph = None;
        self.user.clear();
        self.fixed.clear();
        self.wanted = Wanted::default();
    }

    /// Lets go of a document.
    pub async fn forget(&mut self, doc: u32, runtime: &Rc<dyn Runtime>) -> Result<(), PartitionError> {
        if self.has_vectors(doc) {
            self.draft().await?.remove(doc, &RuntimePace(&**runtime)).await?;
        }
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

    /// Sets a document's vectors. Vectors of another length than those there take the place of all.
    pub async fn put(&mut self, doc: u32, vectors: &[(u16, &[f32])], maker: Maker<'_>) -> Result<(), PartitionError> {
        let Some((_, first)) = vectors.first() else {
            if self.has_vectors(doc) {
                self.draft().await?.remove(doc, &RuntimePace(&**maker.runtime)).await?;
            }
            return Ok(());
        };
        let dimensions = first.len() as u32;
        let runtime = maker.runtime;
        if self.graph.as_ref().is_none_or(|graph| graph.snapshot.config().dimensions != dimensions) {
            self.make(dimensions, maker).await?;
        }
        Ok(self.draft().await?.put_numbered(doc, vectors, &RuntimePace(&**runtime)).await?)
    }

    async fn make(&mut self, dimensions: u32, maker: Maker<'_>) -> Result<(), PartitionError> {
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
        self.draft = None;
        self.graph = Some(Graph { folder, partition, snapshot });
        Ok(())
    }

    async fn draft(&mut self) -> Result<&mut Draft, PartitionError> {
        let graph = self.graph.as_ref().ok_or(PartitionError::NotBegun)?;
        if self.draft.is_none() {
            // Whatever an earlier state has left is of no use now: nothing is being written.
            graph.partition.collect().await?;
            self.draft = Some(graph.partition.begin()?);
        }
        self.draft.as_mut().ok_or(PartitionError::NotBegun)
    }

    /// A document's vectors as of now.
    pub async fn vectors(&mut self, doc: u32) -> Result<Vec<(u16, Vec<f32>)>, PartitionError> {
        match (&mut self.draft, &self.graph) {
            (Some(draft), _) => Ok(draft.vectors(doc).await?),
            (None, Some(graph)) => Ok(graph.snapshot.numbered(doc).await?),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Builds the graph anew of the signs of its vectors.
    pub async fn quantize(&mut self, mut maker: Maker<'_>) -> Result<(), PartitionError> {
        let Some(old) = self.graph.clone() else { return Ok(()) };
        if old.snapshot.config().metric == Metric::Hamming {
            return Ok(());
        }
        self.make(old.snapshot.config().dimensions, maker.again()).await?;
        for doc in old.snapshot.documents() {
            let vectors = old.snapshot.numbered(doc).await?;
            let vectors: Vec<(u16, &[f32])> = vectors.iter().map(|(slot, vector)| (*slot, vector.as_slice())).collect();
            self.put(doc, &vectors, maker.again()).await?;
        }
        Ok(())
    }

    /// Takes away generated vectors of slots that no fragment has any more.
    pub async fn drop_stale_slots(&mut self, mut maker: Maker<'_>) -> Result<(), PartitionError> {
        let Some(documents) = self.documents().cloned() else { return Ok(()) };
        for doc in documents - &self.user {
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

    /// Vectors, and documents with vectors, as of now.
    pub fn sums(&self) -> (u64, RoaringBitmap) {
        let embeddings = match (&self.draft, &self.graph) {
            (Some(draft), _) => draft.len(),
            (None, graph) => graph.as_ref().map_or(0, |graph| graph.snapshot.len()),
        };
        (embeddings, self.documents().cloned().unwrap_or_default())
    }

    /// Makes the vectors durable as those of an epoch and puts the entry that names them. They are published when that is committed.
    pub async fn finish(
        &mut self,
        epoch: u64,
        txn: &mut WriteTxn,
        runtime: &Rc<dyn Runtime>,
    ) -> Result<(EmbedderVectors, Option<(VectorPartition, Prepared)>), PartitionError> {
        let known = txn.get(META, &key(&self.name))?.is_some();
        if known && self.draft.is_none() && !self.dirty {
            return Ok((self.result(), None));
        }
        let (mut prepared, mut manifest) = (None, Vec::new());
        if let Some(graph) = self.graph.clone() {
            self.draft().await?;
            if let Some(draft) = self.draft.take() {
                let ready = draft.prepare(epoch, &RuntimePace(&**runtime)).await?;
                manifest = ready.manifest().to_vec();
                prepared = Some((graph.partition, ready));
            }
        }
        let folder = self.graph.as_ref().map(|graph| graph.folder.clone()).unwrap_or_default();
        let stored = StoredVectors { folder, user: self.user.clone(), fixed: self.fixed.clone(), manifest };
        txn.put(META, &key(&self.name), &stored.encode())?;
        Ok((self.result(), prepared))
    }

    fn result(&self) -> EmbedderVectors {
        EmbedderVectors {
            graph: self.graph.clone(),
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
