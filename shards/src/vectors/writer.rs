//! The next state of a partition's vectors, built along with that of its documents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::{Prepared, VectorPartition};
use storage_engine::{ReadTree, WriteTxn};

use super::DocumentEmbedding;
use super::change::{EmbedderStates, is_user_provided};
use super::sent::{self, Entries, SentEntry};
use super::stored::{EmbedderVectors, PartitionVectors, VectorSums, key};
use super::work::{Known, Maker, Work};
use crate::document::names::VECTORS;
use crate::document::record::Record;
use crate::fields::FieldsMap;
use crate::ids::{Epoch, FieldId, LocalDocId};
use crate::partition::PartitionError;
use crate::partition::trees::{DOCUMENTS, META};
use crate::partition::writer::ChangeKind;
use crate::runtime::Runtime;
use crate::segments::Pieces;
use crate::settings::Settings;

/// A document whose text must be looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedText {
    /// Its number in the partition.
    pub doc: LocalDocId,
    /// Its record.
    pub record: Box<[u8]>,
    /// The record that the stored vectors were made of; `None`: it is embedded whatever it was.
    pub before: Option<Box<[u8]>>,
}

/// A document's vectors on their way to another partition.
#[derive(Clone, Debug)]
pub struct CarriedVectors {
    /// Its number in the partition that gets them.
    pub doc: LocalDocId,
    /// The embedder.
    pub name: String,
    /// Whether they came with the document.
    pub user: bool,
    /// Whether they are never generated again.
    pub fixed: bool,
    /// With their slots.
    pub vectors: Vec<(u16, Vec<f32>)>,
}

/// Vectors that are durable, to be published when the epoch is committed.
pub type PreparedVectors = Vec<(VectorPartition, Prepared)>;

/// The state being built. Dropping it leaves the one before.
pub struct VectorsWriter {
    runtime: Rc<dyn Runtime>,
    root: PathBuf,
    epoch: Epoch,
    made: u32,
    pub(super) works: BTreeMap<String, Work>,
    /// The state before.
    pub(super) before: PartitionVectors,
    field: Option<FieldId>,
    /// Records from before the batch that texts are compared with.
    old_texts: BTreeMap<u32, (u64, u32)>,
    pieces: Pieces,
}

impl VectorsWriter {
    /// Begins the state of `epoch` on `before`. `root` is the folder of the partition's vectors.
    pub fn new(
        runtime: Rc<dyn Runtime>,
        root: PathBuf,
        epoch: Epoch,
        before: PartitionVectors,
        (settings, states): (&Settings, &EmbedderStates),
        fields: &FieldsMap,
    ) -> Self {
        let work = |(name, embedder): (&String, &serde_json::Value)| {
            let state = states.get(name).cloned().unwrap_or_default();
            (name.clone(), Work::new(name, embedder, state, before.get(name)))
        };
        Self {
            runtime,
            root,
            epoch,
            made: 0,
            works: settings.embedders.iter().map(work).collect(),
            before,
            field: fields.id(VECTORS),
            old_texts: BTreeMap::new(),
            pieces: Pieces::default(),
        }
    }

    /// Whether documents may have vectors.
    pub fn is_active(&self) -> bool {
        !self.works.is_empty()
    }

    /// The field of `_vectors`.
    pub(super) fn field(&self) -> Option<FieldId> {
        self.field
    }

    pub(super) fn runtime(&self) -> &Rc<dyn Runtime> {
        &self.runtime
    }

    /// A work with what it needs to make graphs.
    pub(super) fn parts(&mut self) -> (&mut BTreeMap<String, Work>, Maker<'_>) {
        let maker = Maker { runtime: &self.runtime, root: &self.root, made: &mut self.made, epoch: self.epoch.0 };
        (&mut self.works, maker)
    }

    /// Lets go of all vectors.
    pub fn clear(&mut self) {
        self.works.values_mut().for_each(Work::clear);
    }

    /// Follows a change of a document. `entries` is what it says about vectors; `old` and `new` are its records.
    ///
    /// # Errors
    /// `vector_embedding_error` for a document that must bring vectors, and failures of files.
    pub async fn change(
        &mut self,
        doc: LocalDocId,
        (kind, known): (ChangeKind, bool),
        entries: &[u8],
        old: &[u8],
        new: &[u8],
    ) -> Result<(), PartitionError> {
        let mut sent: BTreeMap<&str, SentEntry> = BTreeMap::new();
        let mut rest = Entries(entries);
        while let Some((name, entry, _)) = rest.next_entry()? {
            sent.insert(name, entry);
        }
        let is_new = !known || kind == ChangeKind::Create;
        let changed = is_new || !self.same_text(old, new)?;
        let (runtime, mut keep_old) = (self.runtime.clone(), false);
        let (works, mut maker) = self.parts();
        for (name, work) in works {
            if kind == ChangeKind::Delete || (known && kind == ChangeKind::Create) {
                work.forget(doc.0, &runtime).await?;
            }
            if kind == ChangeKind::Delete {
                continue;
            }
            let known = Known { is_new, changed };
            let wanted = work.apply(doc.0, sent.remove(name.as_str()), known, maker.again()).await?;
            if wanted && work.is_user_provided() {
                return Err(work.missing().into());
            }
            keep_old |= wanted && !is_new;
        }
        if keep_old {
            self.old_texts.insert(doc.0, (self.pieces.push(old), old.len() as u32));
        }
        Ok(())
    }

    /// Whether two records differ in nothing but `_vectors`.
    fn same_text(&self, old: &[u8], new: &[u8]) -> Result<bool, PartitionError> {
        if old == new {
            return Ok(true);
        }
        if old.is_empty() || new.is_empty() {
            return Ok(false);
        }
        let (old, new) = (Record::parse(old)?, Record::parse(new)?);
        let text = |(field, _): &(FieldId, &[u8])| Some(*field) != self.field;
        Ok(old.fields().filter(text).eq(new.fields().filter(text)))
    }

    /// The next documents that an embedder's host must look at, from a number on; some `bytes` of records at most, and at
    /// least one document where there is any.
    ///
    /// # Errors
    /// [`PartitionError`].
    pub fn wanted(
        &self,
        txn: &WriteTxn,
        name: &str,
        from: LocalDocId,
        (count, bytes): (usize, usize),
    ) -> Result<Vec<WantedText>, PartitionError> {
        let Some(work) = self.works.get(name) else { return Ok(Vec::new()) };
        let wanted = &work.wanted;
        let all: RoaringBitmap = &(&wanted.forced | &wanted.changed) | &wanted.recheck;
        let (mut found, mut size) = (Vec::new(), 0);
        for doc in all.range(from.0..) {
            if found.len() >= count || size >= bytes {
                break;
            }
            let Some(record) = txn.get(DOCUMENTS, &doc.to_be_bytes())? else { continue };
            let before = match self.old_texts.get(&doc) {
                _ if wanted.forced.contains(doc) => None,
                Some((place, len)) => Some(self.pieces.get(*place, *len as usize).into()),
                None => Some(record.into()),
            };
            size += record.len();
            found.push(WantedText { doc: LocalDocId(doc), record: record.into(), before });
        }
        Ok(found)
    }

    /// Takes what a host gave.
    ///
    /// # Errors
    /// [`PartitionError`].
    pub async fn embedded(
        &mut self,
        name: &str,
        results: Vec<(LocalDocId, DocumentEmbedding)>,
    ) -> Result<(), PartitionError> {
        let (works, mut maker) = self.parts();
        let Some(work) = works.get_mut(name) else { return Ok(()) };
        for (doc, result) in results {
            let vectors = match result {
                DocumentEmbedding::Unchanged => continue,
                DocumentEmbedding::Replace(vectors) => vectors,
                DocumentEmbedding::Patch(patch) => {
                    let mut vectors: BTreeMap<u16, Vec<f32>> = match work.is_user(doc.0) {
                        true => BTreeMap::new(),
                        false => work.vectors(doc.0).await?.into_iter().collect(),
                    };
                    for (slot, vector) in patch {
                        match vector {
                            Some(vector) => drop(vectors.insert(slot, vector)),
                            None => drop(vectors.remove(&slot)),
                        }
                    }
                    vectors.into_iter().collect()
                }
            };
            let vectors: Vec<(u16, &[f32])> = vectors.iter().map(|(slot, vector)| (*slot, vector.as_slice())).collect();
            let wrong = vectors.iter().find(|(_, vector)| vector.len() != work.state.facts.dimensions as usize);
            if let Some((_, vector)) = wrong {
                let message = format!(
                    "While embedding documents for embedder `{name}`: a vector of {} numbers came where {} were expected.",
                    vector.len(),
                    work.state.facts.dimensions
                );
                return Err(crate::error::UserError::new("vector_embedding_error", message).into());
            }
            work.put(doc.0, &vectors, maker.again()).await?;
            work.set_flags(doc.0, false, false);
        }
        Ok(())
    }

    /// Takes vectors over from another partition.
    ///
    /// # Errors
    /// [`PartitionError`].
    pub async fn carry(&mut self, carried: Vec<CarriedVectors>) -> Result<(), PartitionError> {
        let (works, mut maker) = self.parts();
        for of_document in carried {
            let Some(work) = works.get_mut(&of_document.name) else { continue };
            let vectors: Vec<(u16, &[f32])> =
                of_document.vectors.iter().map(|(slot, vector)| (*slot, vector.as_slice())).collect();
            work.put(of_document.doc.0, &vectors, maker.again()).await?;
            work.set_flags(of_document.doc.0, of_document.user, of_document.fixed);
        }
        Ok(())
    }

    /// Makes all vectors durable as those of the epoch and puts the entries that name them.
    ///
    /// # Errors
    /// [`PartitionError`].
    pub async fn finish(
        &mut self,
        txn: &mut WriteTxn,
    ) -> Result<(PartitionVectors, PreparedVectors, VectorSums), PartitionError> {
        let (mut found, mut prepared) = (BTreeMap::<String, EmbedderVectors>::new(), Vec::new());
        let (mut sums, mut documents) = (VectorSums::default(), RoaringBitmap::new());
        for (name, work) in &mut self.works {
            work.settle(&self.runtime).await?;
            let (embeddings, with_vectors) = work.sums();
            sums.embeddings += embeddings;
            documents |= with_vectors;
            let (vectors, ready) = work.finish(self.epoch.0, txn, &self.runtime).await?;
            found.insert(name.clone(), vectors);
            prepared.extend(ready);
        }
        for name in self.before.0.keys().filter(|name| !found.contains_key(*name)) {
            txn.delete(META, &key(name))?;
        }
        sums.documents = documents.len();
        Ok((PartitionVectors(Rc::new(found)), prepared, sums))
    }
}

/// The first of an index's embedders whose vectors only documents bring, and about which a new document says nothing.
///
/// # Errors
/// [`PartitionError::Damaged`].
pub fn missing_entry<'s>(settings: &'s Settings, entries: &[u8]) -> Result<Option<&'s str>, PartitionError> {
    for (name, _) in settings.embedders.iter().filter(|(_, embedder)| is_user_provided(embedder)) {
        let entry = sent::find(entries, name)?;
        if entry.is_none_or(|entry| entry.vectors.is_none() && entry.regenerate) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
