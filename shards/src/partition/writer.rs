//! Builds the next state of a partition.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use storage_engine::{ReadTree, WriteTxn};

use super::error::PartitionError;
use super::memory::{PartitionMemory, documents_key, encode_chunk};
use super::posting_changes::{KindChanges, PostingChanges};
use super::trees::{
    DICTIONARY, DOCUMENTS, FACET_FLAGS, FACET_NUMBERS, FACET_ORIGINALS, FACET_STRINGS, FACET_VALUES, GEO_CELLS,
    GEO_POINTS, GEO_SHAPES, META, POSTINGS, WORD_COUNTS,
};
use super::words::{DocumentWords, WordReader};
use crate::document::names::VECTORS;
use crate::document::record::{DamagedRecord, Record, put_merged};
use crate::facets::columns::{ColumnWriter, FactChanges, Touched};
use crate::facets::{Extractor, Facts};
use crate::fields::FieldsMap;
use crate::ids::{FieldId, LocalDocId};
use crate::runtime::steps::doing;
use crate::runtime::{Checkpoint, Runtime, aside};
use crate::settings::Settings;
use crate::text::TextTokenizer;
use crate::text::dictionary::{Dictionary, DictionaryBuilder, TermChange};
use crate::text::segmenter;
use crate::vectors::VectorSums;
use crate::vectors::resettle::{DocumentIds, resettle};
use crate::vectors::writer::{PreparedVectors, VectorsWriter};

/// Gathered changes are written when they take this much memory.
const GATHER_BYTES_MAX: usize = 192 << 20;
/// Column entries written between two looks at the clock.
const COLUMN_STEP: usize = 16;
/// Changes of a long document that are taken over in one step: each is looked for in a table.
const CHANGES_STEP: usize = if cfg!(test) { 2 } else { 256 };
/// Of longer documents the facts are found on another thread.
const LONG_DOCUMENT_BYTES: usize = if cfg!(test) { 150 } else { 100 << 10 };
/// Words of a document that are taken over in one step.
const ONE_STEP_TERMS: usize = if cfg!(test) { 4 } else { 2048 };
/// Documents removed together, each perhaps from a leaf of its own.
const GONE_TOGETHER: usize = if cfg!(test) { 3 } else { 32 };

/// What becomes of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is the record sent, as a new document: of one that had the number before nothing stays, vectors neither.
    Create,
    /// It is the record sent.
    Replace,
    /// The fields of the record sent take the place of its own.
    Merge,
    /// It goes.
    Delete,
}

/// Changes of documents, in rising order, each document once in a batch.
#[derive(Clone, Debug, Default)]
pub struct RecordChunk {
    changes: Vec<(LocalDocId, ChangeKind, u32, u32)>,
    bytes: Vec<u8>,
    /// Whether the documents come from another partition, from which their vectors come, too.
    carried: bool,
}

/// A change of a document.
#[derive(Clone, Copy, Debug)]
pub struct RecordChange<'c> {
    /// The document.
    pub doc: LocalDocId,
    /// What becomes of it.
    pub kind: ChangeKind,
    /// The record sent; empty for a deletion.
    pub record: &'c [u8],
    /// What it says about vectors (see `vectors::sent`).
    pub vectors: &'c [u8],
}

impl RecordChunk {
    /// An empty one; `carried` says whether its documents come from another partition, and their vectors later.
    pub fn new(carried: bool) -> Self {
        Self { carried, ..Self::default() }
    }

    /// Adds a change.
    pub fn push(&mut self, change: RecordChange<'_>) {
        self.bytes.extend_from_slice(change.record);
        let middle = self.bytes.len() as u32;
        self.bytes.extend_from_slice(change.vectors);
        self.changes.push((change.doc, change.kind, middle, self.bytes.len() as u32));
    }

    /// Bytes of all records.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.changes.len() * 16
    }

    /// How many documents change.
    pub fn documents(&self) -> u64 {
        self.changes.len() as u64
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes with their records.
    pub fn iter(&self) -> impl Iterator<Item = RecordChange<'_>> {
        let mut start = 0;
        self.changes.iter().map(move |(doc, kind, middle, end)| {
            let (record, vectors) =
                (&self.bytes[start..*middle as usize], &self.bytes[*middle as usize..*end as usize]);
            start = *end as usize;
            RecordChange { doc: *doc, kind: *kind, record, vectors }
        })
    }
}

/// What a batch changed in the sums over a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionDelta {
    /// Bytes of records.
    pub raw_bytes: i64,
    /// Documents with a field at top level, by field number.
    pub distribution: Vec<i64>,
    /// Documents with coordinates, now.
    pub geo_points: u64,
    /// Documents, now.
    pub documents: u64,
    /// Vectors, now.
    pub vectors: VectorSums,
}

/// The settings and names that a state is built with.
#[derive(Clone)]
pub struct WriterFacts {
    /// All names, those of the batch included.
    pub fields: Arc<FieldsMap>,
    /// The settings in force.
    pub settings: Arc<Settings>,
    /// Their tokenizer.
    pub tokenizer: Arc<TextTokenizer>,
    /// The field that identifies documents, once known.
    pub primary_key: Option<String>,
}

/// A partition's next state while it is built. Dropping it leaves the partition as it was.
pub struct PartitionWriter {
    runtime: Rc<dyn Runtime>,
    txn: WriteTxn,
    facts: WriterFacts,
    words: WordReader,
    postings: PostingChanges,
    columns: ColumnWriter,
    touched: Touched,
    /// The document changed last.
    last: Option<u32>,
    /// Documents that are to be removed, rising.
    gone: Vec<[u8; 4]>,
    documents: RoaringBitmap,
    chunks_touched: BTreeSet<u16>,
    dictionary: Dictionary,
    kinds: KindChanges,
    delta: PartitionDelta,
    scratch: Scratch,
    vectors: VectorsWriter,
    prepared: PreparedVectors,
}

#[derive(Default)]
struct Scratch {
    old: DocumentWords,
    new: DocumentWords,
    old_record: Vec<u8>,
    new_record: Vec<u8>,
}

impl PartitionWriter {
    /// Begins to build on `memory`, the state that `txn` began from.
    pub fn new(
        runtime: Rc<dyn Runtime>,
        txn: WriteTxn,
        memory: &PartitionMemory,
        facts: WriterFacts,
        vectors: VectorsWriter,
    ) -> Self {
        Self {
            runtime,
            txn,
            words: WordReader::new(facts.settings.clone(), facts.tokenizer.clone()),
            facts,
            postings: PostingChanges::default(),
            columns: ColumnWriter::new(),
            touched: Touched::default(),
            last: None,
            gone: Vec::new(),
            documents: (*memory.documents).clone(),
            chunks_touched: BTreeSet::new(),
            dictionary: memory.dictionary.clone(),
            kinds: KindChanges::new(),
            delta: PartitionDelta::default(),
            scratch: Scratch::default(),
            vectors,
            prepared: PreparedVectors::new(),
        }
    }

    /// The transaction, for entries that are not the partition's own business.
    pub fn txn(&mut self) -> &mut WriteTxn {
        &mut self.txn
    }

    /// The vectors, with the transaction that they are committed with.
    pub fn vectors(&mut self) -> (&mut VectorsWriter, &mut WriteTxn) {
        (&mut self.vectors, &mut self.txn)
    }

    /// Follows a change of embedders. Must come before any change.
    pub async fn resettle_vectors(&mut self, before: &Settings) -> Result<(), PartitionError> {
        let facts = &self.facts;
        let (settings, key) = ((before, &*facts.settings), facts.primary_key.as_deref().unwrap_or_default());
        let ids = DocumentIds { names: &facts.fields, key };
        let grown = resettle(&mut self.vectors, &mut self.txn, &self.documents, settings, ids).await?;
        self.delta.raw_bytes += grown;
        Ok(())
    }

    /// The vectors that [`Self::finish`] made durable.
    pub fn take_prepared(&mut self) -> PreparedVectors {
        std::mem::take(&mut self.prepared)
    }

    /// What of the columns is other than before, once all is finished.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// Takes all documents out. Must come before any change.
    pub async fn clear(&mut self) -> Result<(), PartitionError> {
        let mut checkpoint = Checkpoint::default();
        for at in self.documents.iter() {
            if let Some(bytes) = self.txn.get(DOCUMENTS, &at.to_be_bytes())? {
                let record = Record::parse(bytes)?;
                self.delta.raw_bytes -= bytes.len() as i64;
                count_fields(&mut self.delta.distribution, &self.facts.fields, record, -1);
            }
            checkpoint.tick(&*self.runtime).await;
        }
        let columns = [FACET_NUMBERS, FACET_STRINGS, FACET_ORIGINALS, FACET_FLAGS, FACET_VALUES];
        let places = [GEO_POINTS, GEO_SHAPES, GEO_CELLS];
        for tree in columns.into_iter().chain(places).chain([DOCUMENTS, POSTINGS, DICTIONARY, WORD_COUNTS]) {
            self.txn.clear(tree).await?;
        }
        self.touched = Touched::everything();
        self.touch_all();
        self.vectors.clear();
        self.documents.clear();
        self.dictionary = Dictionary::default();
        Ok(())
    }

    /// Applies changes of documents. On an error the state is unusable: drop the writer.
    pub async fn apply(&mut self, chunk: &RecordChunk) -> Result<(), PartitionError> {
        doing("documents");
        let settings = self.facts.settings.clone();
        let primary_key = self.facts.primary_key.clone();
        let mut extractor = Extractor::new(&settings).with_key(primary_key.as_deref());
        for RecordChange { doc, kind, record, vectors } in chunk.iter() {
            if self.last.replace(doc.0).is_some_and(|last| last >= doc.0) {
                // A second pass: what is gathered holds each document once.
                self.flush().await?;
            }
            if segmenter::must_be_loaded(record) {
                // No thread may be free, in which case it is loaded here.
                let _ = self.runtime.side_thread(Box::new(segmenter::load)).await;
            }
            let known = self.documents.contains(doc.0);
            self.change(&mut extractor, doc, kind, record).await?;
            if self.vectors.is_active() && !chunk.carried {
                let scratch = std::mem::take(&mut self.scratch);
                let (old, new) = (&scratch.old_record, &scratch.new_record);
                self.vectors.change(doc, (kind, known), vectors, old, new).await?;
                self.scratch = scratch;
            }
            if self.postings.memory_bytes() + self.columns.pending_bytes() > GATHER_BYTES_MAX {
                self.flush().await?;
            }
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        Ok(())
    }

    async fn change(
        &mut self,
        extractor: &mut Extractor<'_>,
        doc: LocalDocId,
        kind: ChangeKind,
        sent: &[u8],
    ) -> Result<(), PartitionError> {
        let key = doc.0.to_be_bytes();
        let mut scratch = std::mem::take(&mut self.scratch);
        let known = self.documents.contains(doc.0);
        scratch.old_record.clear();
        if known {
            let stored = self.txn.get(DOCUMENTS, &key)?.ok_or(PartitionError::Damaged("set of documents"))?;
            scratch.old_record.extend_from_slice(stored);
        }
        let old = if known { Some(Record::parse(&scratch.old_record)?) } else { None };
        scratch.new_record.clear();
        match (kind, old) {
            (ChangeKind::Delete, _) => {}
            (ChangeKind::Merge, Some(old)) => {
                let vectors = self.facts.fields.id(VECTORS);
                put_merged(&mut scratch.new_record, old, Record::parse(sent)?, vectors);
            }
            _ => scratch.new_record.extend_from_slice(sent),
        }
        let new = if kind == ChangeKind::Delete { None } else { Some(Record::parse(&scratch.new_record)?) };
        let unchanged = match new {
            Some(_) => known && scratch.old_record == scratch.new_record,
            None => !known,
        };
        if !unchanged {
            for (record, words) in [(old, &mut scratch.old), (new, &mut scratch.new)] {
                words.clear();
                if let Some(record) = record {
                    let (names, terms) = (&self.facts.fields, &mut self.postings.terms);
                    self.words.read_aside(&*self.runtime, names, record, terms, words).await?;
                }
            }
            if scratch.old.terms.len() + scratch.new.terms.len() > ONE_STEP_TERMS {
                self.postings.add_in_steps(&*self.runtime, doc.0, &scratch.old, &scratch.new).await;
            } else {
                self.postings.add(doc.0, &scratch.old, &scratch.new);
            }
            let is_long = |record: &[u8]| record.len() > LONG_DOCUMENT_BYTES;
            let aside = match is_long(&scratch.old_record) || is_long(&scratch.new_record) {
                true => {
                    let new = (kind != ChangeKind::Delete).then(|| scratch.new_record.clone());
                    self.changes_aside(doc, known.then(|| scratch.old_record.clone()), new).await
                }
                false => None,
            };
            match aside {
                Some(mut changes) => {
                    while !self.columns.add_some(&mut changes, CHANGES_STEP) {
                        if self.runtime.should_yield() {
                            self.runtime.yield_now().await;
                        }
                    }
                }
                None => {
                    let mut facts = |record: Option<Record<'_>>| -> Option<Facts> {
                        record.map(|record| extractor.extract(&self.facts.fields, record.fields()))
                    };
                    let (old_facts, new_facts) = (facts(old), facts(new));
                    self.columns.add(doc, old_facts.as_ref(), new_facts.as_ref());
                }
            }
            for (record, sign) in [(old, -1), (new, 1)] {
                if let Some(record) = record {
                    count_fields(&mut self.delta.distribution, &self.facts.fields, record, sign);
                }
            }
            self.delta.raw_bytes += scratch.new_record.len() as i64 - scratch.old_record.len() as i64;
            self.store(doc, new.is_some().then_some(&scratch.new_record), &scratch.new.counts)?;
        }
        self.scratch = scratch;
        Ok(())
    }

    /// What changes in the columns with a long document, found on another thread: one with a million values takes a second. `None` when
    /// that did not work.
    async fn changes_aside(&self, doc: LocalDocId, old: Option<Vec<u8>>, new: Option<Vec<u8>>) -> Option<FactChanges> {
        let WriterFacts { fields, settings, primary_key, .. } = self.facts.clone();
        let find = move || {
            let mut extractor = Extractor::new(&settings).with_key(primary_key.as_deref());
            let mut facts = |record: &Option<Vec<u8>>| -> Result<Option<Facts>, DamagedRecord> {
                let record = record.as_deref().map(Record::parse).transpose()?;
                Ok(record.map(|record| extractor.extract(&fields, record.fields())))
            };
            // Whoever asked meets an error again, and tells it.
            let (old, new) = (facts(&old).ok()?, facts(&new).ok()?);
            Some(FactChanges::between(doc, old.as_ref(), new.as_ref()))
        };
        aside(&*self.runtime, find).await.ok()?
    }

    /// Removes what documents that are gone have.
    fn remove_gone(&mut self) -> Result<(), PartitionError> {
        for tree in [DOCUMENTS, WORD_COUNTS] {
            self.txn.delete_run(tree, &self.gone, &mut |_, _| true)?;
        }
        self.gone.clear();
        Ok(())
    }

    fn store(&mut self, doc: LocalDocId, record: Option<&Vec<u8>>, counts: &[u8]) -> Result<(), PartitionError> {
        let key = doc.0.to_be_bytes();
        let changed = match record {
            Some(record) => {
                self.txn.put(DOCUMENTS, &key, record)?;
                self.documents.insert(doc.0)
            }
            None => {
                self.gone.push(key);
                if self.gone.len() >= GONE_TOGETHER {
                    self.remove_gone()?;
                }
                self.documents.remove(doc.0)
            }
        };
        match counts {
            _ if record.is_none() => {}
            [] => drop(self.txn.delete(WORD_COUNTS, &key)?),
            _ => self.txn.put(WORD_COUNTS, &key, counts)?,
        }
        if changed {
            self.chunks_touched.insert((doc.0 >> 16) as u16);
        }
        Ok(())
    }

    /// Indexes all documents anew as far as the way from `old` settings to those of this writer asks for it. Must come before
    /// any change.
    pub async fn reindex(&mut self, old: &Settings) -> Result<(), PartitionError> {
        self.touched = Touched::everything();
        super::reindex::reindex(self, old).await
    }

    /// Writes what was gathered.
    pub async fn flush(&mut self) -> Result<(), PartitionError> {
        self.remove_gone()?;
        doing("postings");
        self.postings.write(&*self.runtime, &mut self.txn, &mut self.kinds).await?;
        doing("columns");
        while !self.columns.flush_some(&mut self.txn, COLUMN_STEP)? {
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        Ok(())
    }

    /// Writes what is left. Afterwards the transaction can be committed and `memory` belongs to its state.
    pub async fn finish(&mut self) -> Result<(PartitionMemory, PartitionDelta), PartitionError> {
        self.flush().await?;
        self.touched.add(self.columns.take_touched());
        doing("dictionary");
        for chunk in std::mem::take(&mut self.chunks_touched) {
            let start = u32::from(chunk) << 16;
            match self.documents.range_cardinality(start..=start | 0xffff) {
                0 => drop(self.txn.delete(META, &documents_key(chunk))?),
                _ => self.txn.put(META, &documents_key(chunk), &encode_chunk(&self.documents, chunk))?,
            }
        }
        let kinds = std::mem::take(&mut self.kinds);
        let dictionary = if self.dictionary.takes(kinds.len()) {
            let changes: Vec<TermChange> = kinds.into_iter().collect();
            self.dictionary.changed(&changes)
        } else {
            rebuild(&*self.runtime, &self.dictionary, kinds).await
        };
        doing("vectors");
        let (vectors, prepared, sums) = self.vectors.finish(&mut self.txn).await?;
        self.prepared = prepared;
        let mut delta = std::mem::take(&mut self.delta);
        delta.vectors = sums;
        delta.geo_points = self.txn.entry_count(GEO_POINTS);
        delta.documents = self.documents.len();
        Ok((PartitionMemory { documents: Rc::new(std::mem::take(&mut self.documents)), dictionary, vectors }, delta))
    }

    /// Gives the transaction up for its commit.
    pub fn into_txn(self) -> WriteTxn {
        self.txn
    }

    fn touch_all(&mut self) {
        let last = self.documents.max().unwrap_or(0) >> 16;
        if !self.documents.is_empty() {
            self.chunks_touched.extend(0..=last as u16);
        }
    }

    pub(super) fn parts(&mut self) -> ReindexParts<'_> {
        ReindexParts {
            runtime: self.runtime.clone(),
            txn: &mut self.txn,
            facts: &self.facts,
            words: &mut self.words,
            postings: &mut self.postings,
            columns: &mut self.columns,
            documents: &self.documents,
            dictionary: &mut self.dictionary,
        }
    }
}

/// What indexing anew works on.
pub(super) struct ReindexParts<'w> {
    pub runtime: Rc<dyn Runtime>,
    pub txn: &'w mut WriteTxn,
    pub facts: &'w WriterFacts,
    pub words: &'w mut WordReader,
    pub postings: &'w mut PostingChanges,
    pub columns: &'w mut ColumnWriter,
    pub documents: &'w RoaringBitmap,
    pub dictionary: &'w mut Dictionary,
}

/// Adds `sign` to the counts of a document's top-level fields. Vectors are no field to a client.
fn count_fields(distribution: &mut Vec<i64>, names: &FieldsMap, record: Record<'_>, sign: i64) {
    let vectors = names.id(VECTORS);
    for (FieldId(field), _) in record.fields().filter(|(field, _)| Some(*field) != vectors) {
        let at = usize::from(field);
        if distribution.len() <= at {
            distribution.resize(at + 1, 0);
        }
        distribution[at] += sign;
    }
}

/// A dictionary built anew from another one and changes to it.
async fn rebuild(runtime: &dyn Runtime, old: &Dictionary, kinds: KindChanges) -> Dictionary {
    /// Terms read from the old dictionary at once.
    const STEP: usize = 256;
    let (mut builder, mut checkpoint) = (DictionaryBuilder::default(), Checkpoint::default());
    let mut changes = kinds.into_iter().peekable();
    let add = |builder: &mut DictionaryBuilder, (term, kind): TermChange| {
        if let Some(kind) = kind {
            builder.push(&term, kind);
        }
    };
    let mut terms = old.terms_after(None, STEP);
    while let Some((last, _)) = terms.last() {
        let last = last.clone();
        for (term, kind) in terms {
            while let Some(change) = changes.next_if(|(other, _)| *other < term) {
                add(&mut builder, change);
                checkpoint.tick(runtime).await;
            }
            let change = changes.next_if(|(other, _)| *other == term);
            add(&mut builder, change.unwrap_or((term, Some(kind))));
            checkpoint.tick(runtime).await;
        }
        terms = old.terms_after(Some(&last), STEP);
    }
    for change in changes {
        add(&mut builder, change);
        checkpoint.tick(runtime).await;
    }
    builder.finish()
}
