//! The draft of a batch: applies operations in order and reduces them to one change per document.
//!
//! A draft reads the state before the batch and decides everything that needs the whole index: IDs, numbers, names, the primary
//! key. It leaves the partitions a list of changes, at most one per document.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use storage_engine::{ReadTree, Snapshot};

use super::catalog::Catalog;
use super::numbers::DocNumbers;
use super::plan::{Change, Plan, stored};
use super::versions::{Admitted, Versions};
use crate::document::names::{FieldNames, VECTORS};
use crate::document::payload::{DocumentFields, DocumentStep, Documents, PayloadError, PayloadFormat, read_document};
use crate::document::primary_key::{KeyFinder, infer, is_valid};
use crate::document::record::{Record, put_merged, put_record};
use crate::document::validate::Reserved;
use crate::engine::{Method, OpOutcome};
use crate::error::UserError;
use crate::fields::FieldsMap;
use crate::ids::{DocId, FieldId};
use crate::network_shards::KeptShards;
use crate::partition::PartitionError;
use crate::partition::trees::EXTERNAL_IDS;
use crate::partition::writer::ChangeKind;
use crate::runtime::Runtime;
use crate::segments::Pieces;
use crate::settings::Settings;
use crate::stages::Stages;
use crate::vectors::change::is_user_provided;
use crate::vectors::sent::{self, Embedders, SentVectors};
use crate::vectors::writer::missing_entry;
use crate::vectors::{EmbedderStates, missing};

/// Bytes of a document that are read in one step.
const READ_BYTES: usize = if cfg!(test) { 8 } else { 64 << 10 };

/// Why an operation came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// The operation is at fault; only it fails.
    #[error(transparent)]
    User(#[from] UserError),
    /// The index could not be read; the whole batch fails.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

impl From<crate::document::PayloadError> for OpError {
    fn from(error: crate::document::PayloadError) -> Self {
        Self::User(error.into())
    }
}

/// An addition, as [`Draft::add`] takes it.
pub struct Addition<'a> {
    /// The body.
    pub payload: &'a [u8],
    /// How it is written.
    pub format: PayloadFormat,
    /// What happens to documents that are there.
    pub method: Method,
    /// The key that the request names.
    pub primary_key: Option<&'a str>,
    /// Passes over documents that are not there.
    pub skip_creation: bool,
}

/// A batch under way.
pub struct Draft {
    runtime: Rc<dyn Runtime>,
    /// Of partition 0, before the batch.
    snapshot: Snapshot,
    /// The settings in force in the batch.
    pub settings: Arc<Settings>,
    /// The primary key so far.
    pub primary_key: Option<String>,
    fields: FieldsMap,
    numbers: DocNumbers,
    /// The numbers of documents that the batch has deleted, by their ids. One that comes back takes its number again; for
    /// others they are not free before the batch has ended.
    left: BTreeMap<Box<str>, u32>,
    /// Ids given (a number) or taken away by the batch.
    ids: BTreeMap<Box<str>, Option<u32>>,
    changes: BTreeMap<u32, Change>,
    /// The records of changes.
    records: Pieces,
    /// Whether all documents from before the batch go.
    pub cleared: bool,
    /// Where it says how much of the operations it has read.
    pub stages: Rc<Stages>,
    embedders: Embedders,
}

/// The number of a document, given what a batch knows, whether it has cleared the index, and the state before it.
fn number(
    (ids, cleared, snapshot): (&BTreeMap<Box<str>, Option<u32>>, bool, &Snapshot),
    id: &str,
) -> Result<Option<u32>, PartitionError> {
    if let Some(known) = ids.get(id) {
        return Ok(*known);
    }
    if cleared || !is_valid(id) {
        return Ok(None);
    }
    stored_number(snapshot, id)
}

impl Draft {
    /// Begins a batch on `catalog`, which `snapshot` of partition 0 holds. `embedders` are those of `settings`.
    pub fn new(
        runtime: Rc<dyn Runtime>,
        snapshot: Snapshot,
        catalog: &Catalog,
        settings: Arc<Settings>,
        embedders: &EmbedderStates,
    ) -> Self {
        let embedders: Embedders = embedders.iter().map(|(name, state)| (name.clone(), state.facts.clone())).collect();
        let mut fields = (*catalog.fields).clone();
        if !embedders.is_empty() {
            // Documents show their vectors under this name, also those that never had a field of it.
            fields.insert(VECTORS);
        }
        Self {
            runtime,
            snapshot,
            settings,
            primary_key: catalog.primary_key.clone(),
            fields,
            numbers: catalog.numbers.clone(),
            left: BTreeMap::new(),
            ids: BTreeMap::new(),
            changes: BTreeMap::new(),
            records: Pieces::default(),
            cleared: false,
            stages: Rc::default(),
            embedders,
        }
    }

    /// Documents that there are at this point of the batch.
    pub fn documents(&self) -> u64 {
        self.numbers.in_use() - self.left.len() as u64
    }

    /// The number of a document at this point of the batch.
    pub fn number(&self, id: &str) -> Result<Option<u32>, PartitionError> {
        number((&self.ids, self.cleared, &self.snapshot), id)
    }

    /// Applies an addition, of which only documents of `kept` stay here. When it fails the draft is as before, but for a
    /// primary key under which documents had no id or a wrong one: that is the key of what follows.
    pub async fn add(&mut self, addition: Addition<'_>, kept: Option<&KeptShards>) -> Result<OpOutcome, OpError> {
        let (names_before, key_before) = (self.fields.len(), self.primary_key.clone());
        let records_before = self.records.mark();
        let read = match self.read(&addition).await {
            Ok(documents) => self.check_new(&addition, &documents, kept).await.map(|()| documents),
            Err(error) => Err(error),
        };
        match read {
            Ok(documents) => self.admit(&addition, documents, kept).await,
            Err(error) => {
                if !is_about_ids(&error) {
                    self.primary_key = key_before;
                }
                self.fields.truncate(names_before);
                self.records.truncate(records_before);
                Err(error)
            }
        }
    }

    /// Reads and checks all documents of an addition; returns for each its id and its record. Sets the primary key.
    async fn read(&mut self, addition: &Addition<'_>) -> Result<Admitted, OpError> {
        let key = self.key_for(addition.primary_key);
        let settings = self.settings.clone();
        let reserved = Reserved::new(&settings);
        let mut names = FieldNames::new(&mut self.fields);
        let mut source = Documents::new(addition.payload, addition.format)?.with_vectors_as_written();
        let mut document = DocumentFields::default();
        let (mut record, mut found, mut versions) = (Vec::new(), Admitted::default(), Versions::default());
        if !next_document(&*self.runtime, &mut source, &mut names, &mut document).await? {
            // Without documents it does not matter which key is named.
            self.primary_key = key.unwrap_or_else(|_| self.primary_key.take());
            return Ok(found);
        }
        let key = key?.map_or_else(|| infer(&document, names.map()), Ok)?;
        self.primary_key = Some(key.clone());
        let mut finder = KeyFinder::new(&key);
        let kind = match addition.method {
            Method::Replace => ChangeKind::Replace,
            Method::Update => ChangeKind::Merge,
        };
        // An id that cannot be one is told before what is wrong with the other fields of any document.
        let mut refused: Option<UserError> = None;
        let units_before = self.stages.finished();
        loop {
            let id = finder.id(document.iter(), names.map())?;
            if refused.is_none() {
                let state = (&self.ids, self.cleared, &self.snapshot);
                let is_passed_over = addition.skip_creation && number(state, &id)?.is_none();
                let mut vectors = SentVectors::default();
                // Nobody gets to see what is wrong with a document that is passed over.
                if !is_passed_over {
                    let [geo, geojson] = reserved.check(&document, &id, names.map());
                    let sent = sent_vectors(&document, names.map(), &self.embedders, &id);
                    let checked = sent.map(|sent| sent.map(|sent| vectors = sent));
                    refused = versions.note(found.len(), [geo, geojson, checked]).err();
                }
                put_document(&document, names.map(), &vectors, &mut record);
                found.push((id, stored(&mut self.records, kind, &record, &vectors.entries)));
            }
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
            self.stages.reach(units_before + source.offset() as u64);
            if !next_document(&*self.runtime, &mut source, &mut names, &mut document).await? {
                break;
            }
        }
        if let Some(error) = refused {
            return Err(error.into());
        }
        let field = self.fields.id(VECTORS);
        let settled = versions.settle(found, addition.method, (&mut self.records, field), &*self.runtime).await?;
        settled.map_err(OpError::from)
    }

    /// The primary key that an operation works with, if it is known yet.
    fn key_for(&self, named: Option<&str>) -> Result<Option<String>, UserError> {
        match (&self.primary_key, named) {
            (Some(key), Some(named)) if key != named => Err(UserError::new(
                "index_primary_key_already_exists",
                format!("Index already has a primary key: `{key}`; `{named}` cannot take its place."),
            )),
            (Some(key), _) => Ok(Some(key.clone())),
            (None, named) => Ok(named.map(str::to_owned)),
        }
    }

    async fn admit(
        &mut self,
        addition: &Addition<'_>,
        documents: Admitted,
        kept: Option<&KeptShards>,
    ) -> Result<OpOutcome, OpError> {
        let mut distinct = RoaringBitmap::new();
        let mut passed_over: BTreeSet<String> = BTreeSet::new();
        for (id, change) in documents {
            if kept.is_some_and(|kept| !kept.keeps(&id)) {
                continue;
            }
            match self.number(&id)? {
                Some(number) => {
                    distinct.insert(number);
                    self.change(number, change)?;
                }
                None if addition.skip_creation => drop(passed_over.insert(id)),
                None => {
                    let full = || UserError::new("internal", "the index holds as many documents as it can");
                    let number = self.left.remove(id.as_str()).or_else(|| self.numbers.take()).ok_or_else(full)?;
                    distinct.insert(number);
                    self.ids.insert(id.into(), Some(number));
                    self.change(number, Change { kind: ChangeKind::Create, ..change })?;
                }
            }
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        let count = distinct.len() + passed_over.len() as u64;
        Ok(OpOutcome { documents: count, named: count })
    }

    /// Checks that new documents bring the vectors that nobody else can make.
    async fn check_new(
        &self,
        addition: &Addition<'_>,
        documents: &Admitted,
        kept: Option<&KeptShards>,
    ) -> Result<(), OpError> {
        if addition.skip_creation || self.settings.embedders.values().all(|embedder| !is_user_provided(embedder)) {
            return Ok(());
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (id, change) in documents.chunks().flatten() {
            // Of a document that comes twice, without vectors, the first is the new one.
            if kept.is_none_or(|kept| kept.keeps(id))
                && self.number(id)?.is_none()
                && seen.insert(id)
                && let Some(name) = missing_entry(&self.settings, self.vectors(*change))?
            {
                return Err(missing(name, Some(id)).into());
            }
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        Ok(())
    }

    /// Puts a change on top of what the batch has for the document so far.
    fn change(&mut self, number: u32, change: Change) -> Result<(), PartitionError> {
        let before = self.changes.get(&number).copied();
        let merged = match (before, change.kind) {
            (Some(before), ChangeKind::Merge) if before.kind != ChangeKind::Delete => {
                let mut record = Vec::new();
                let (old, new) = (Record::parse(self.record(before))?, Record::parse(self.record(change))?);
                put_merged(&mut record, old, new, self.fields.id(VECTORS));
                let vectors = sent::merge(self.vectors(before), self.vectors(change))?;
                stored(&mut self.records, before.kind, &record, &vectors)
            }
            (Some(before), ChangeKind::Replace) if before.kind != ChangeKind::Delete => {
                // The record is the new one; the vectors stay, and a document that is new in the batch remains so.
                let created = before.kind == ChangeKind::Create;
                let kind = if created { ChangeKind::Create } else { ChangeKind::Replace };
                let vectors = sent::merge(self.vectors(before), self.vectors(change))?;
                let vectors = (self.records.push(&vectors), vectors.len() as u32);
                Change { kind, vectors, ..change }
            }
            (Some(_), ChangeKind::Merge) => Change { kind: ChangeKind::Replace, ..change },
            _ => change,
        };
        self.changes.insert(number, merged);
        Ok(())
    }

    fn record(&self, change: Change) -> &[u8] {
        self.records.get(change.start, change.len as usize)
    }

    fn vectors(&self, change: Change) -> &[u8] {
        self.records.get(change.vectors.0, change.vectors.1 as usize)
    }

    /// Deletes documents by id.
    pub async fn delete_ids<'a>(&mut self, ids: impl Iterator<Item = &'a str> + Clone) -> Result<OpOutcome, OpError> {
        if ids.clone().any(str::is_empty) {
            return Err(UserError::new("internal", "a document id is empty").into());
        }
        // A table that grows moves all that it holds at once; there may be hundreds of thousands.
        let (mut deleted, mut named) = (0, BTreeSet::new());
        for id in ids {
            if named.insert(id)
                && let Some(number) = self.number(id)?
            {
                self.delete(id, number)?;
                deleted += 1;
            }
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        // Without a primary key there are no ids yet that anything could be named by.
        let count = if self.primary_key.is_some() { named.len() as u64 } else { 0 };
        while named.pop_first().is_some() {
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        Ok(OpOutcome { documents: deleted, named: count })
    }

    /// Deletes documents that were chosen in the state before the batch; those that an earlier operation has deleted are
    /// passed over. Their order does not matter.
    pub async fn delete_chosen(
        &mut self,
        chosen: impl IntoIterator<Item = (DocId, String)>,
    ) -> Result<OpOutcome, OpError> {
        let mut deleted = 0;
        for (doc, id) in chosen {
            if self.number(&id)? == Some(doc.0) {
                self.delete(&id, doc.0)?;
                deleted += 1;
            }
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        Ok(OpOutcome { documents: deleted, named: deleted })
    }

    fn delete(&mut self, id: &str, number: u32) -> Result<(), PartitionError> {
        self.change(number, Change { kind: ChangeKind::Delete, start: 0, len: 0, vectors: (0, 0) })?;
        self.left.insert(id.into(), number);
        self.ids.insert(id.into(), None);
        Ok(())
    }

    /// Deletes all documents.
    pub fn clear(&mut self) -> OpOutcome {
        let documents = self.documents();
        self.cleared = true;
        self.ids.clear();
        self.changes.clear();
        self.records.clear();
        self.numbers = DocNumbers::default();
        self.left.clear();
        OpOutcome { documents, named: documents }
    }

    /// Puts edited documents in place of stored ones and deletes others. When it fails the draft is as before.
    pub async fn edit(&mut self, replaced: &[(String, Vec<u8>)], deleted: &[String]) -> Result<OpOutcome, OpError> {
        let (names_before, records_before) = (self.fields.len(), self.records.mark());
        match self.read_edited(replaced).await {
            Ok(changes) => {
                for (number, change) in changes {
                    self.change(number, change)?;
                }
                let deleted = self.delete_ids(deleted.iter().map(String::as_str)).await?.documents;
                let documents = replaced.len() as u64 + deleted;
                Ok(OpOutcome { documents, named: documents })
            }
            Err(error) => {
                self.fields.truncate(names_before);
                self.records.truncate(records_before);
                Err(error)
            }
        }
    }

    async fn read_edited(&mut self, replaced: &[(String, Vec<u8>)]) -> Result<Vec<(u32, Change)>, OpError> {
        let (settings, mut changes) = (self.settings.clone(), Vec::new());
        let reserved = Reserved::new(&settings);
        let (mut document, mut record) = (DocumentFields::default(), Vec::new());
        for (id, text) in replaced {
            let Some(number) = self.number(id)? else { continue };
            let mut names = FieldNames::new(&mut self.fields);
            read_document(text, &mut names, &mut document)?;
            reserved.check(&document, id, names.map()).into_iter().flatten().collect::<Result<(), _>>()?;
            let sent = sent_vectors(&document, names.map(), &self.embedders, id);
            let vectors = sent.transpose()?.unwrap_or_default();
            put_document(&document, names.map(), &vectors, &mut record);
            changes.push((number, stored(&mut self.records, ChangeKind::Replace, &record, &vectors.entries)));
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        Ok(changes)
    }

    /// Ends the batch. `names_before` is the map of names from before the batch, shared on when nothing was added.
    pub async fn finish(mut self, names_before: &Arc<FieldsMap>) -> Plan {
        let mut free = RoaringBitmap::new();
        for number in std::mem::take(&mut self.left).into_values() {
            free.insert(number);
            if self.runtime.should_yield() {
                self.runtime.yield_now().await;
            }
        }
        self.numbers.give_back_all(&free);
        if let Some(key) = &self.primary_key {
            // A key that was named counts as met, also while no document has it.
            self.fields.insert(key);
        }
        let same = self.fields.len() == names_before.len();
        Plan {
            fields: if same { names_before.clone() } else { Arc::new(self.fields) },
            numbers: self.numbers,
            ids: self.ids,
            changes: self.changes,
            records: self.records,
        }
    }
}

/// Reads the next document, a long one in steps; false at the end of the body.
async fn next_document(
    runtime: &dyn Runtime,
    source: &mut Documents<'_>,
    names: &mut FieldNames<'_>,
    document: &mut DocumentFields,
) -> Result<bool, PayloadError> {
    loop {
        match source.next_some(names, document, READ_BYTES)? {
            DocumentStep::Whole => return Ok(true),
            DocumentStep::End => return Ok(false),
            DocumentStep::More if runtime.should_yield() => runtime.yield_now().await,
            DocumentStep::More => {}
        }
    }
}

fn is_about_ids(error: &OpError) -> bool {
    matches!(error, OpError::User(error) if matches!(error.code, "missing_document_id" | "invalid_document_id"))
}

/// `_vectors` of a document, where it has any.
fn sent_vectors(
    document: &DocumentFields,
    names: &FieldsMap,
    embedders: &Embedders,
    id: &str,
) -> Option<Result<SentVectors, UserError>> {
    let json = document.get(names.id(VECTORS)?)?;
    Some(sent::read(json, embedders, id))
}

/// Writes a document's record, of `_vectors` with what does not go to the vectors.
fn put_document(document: &DocumentFields, names: &FieldsMap, vectors: &SentVectors, record: &mut Vec<u8>) {
    record.clear();
    let Some(field) = names.id(VECTORS).filter(|field| document.get(*field).is_some()) else {
        return put_record(record, document.iter());
    };
    let kept = document.iter().filter_map(|(id, value)| match &vectors.rest {
        _ if id != field => Some((id, value)),
        rest => Some((id, rest.as_deref()?)),
    });
    let kept: Vec<(FieldId, &[u8])> = kept.collect();
    put_record(record, kept.iter().copied());
}

/// The number of a document in a committed state.
pub fn stored_number(snapshot: &Snapshot, id: &str) -> Result<Option<u32>, PartitionError> {
    let Some(value) = snapshot.get(EXTERNAL_IDS, id.as_bytes())? else { return Ok(None) };
    let number: [u8; 4] = value.try_into().map_err(|_| PartitionError::Damaged("external id"))?;
    Ok(Some(u32::from_be_bytes(number)))
}
