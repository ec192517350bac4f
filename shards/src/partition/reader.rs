//! Reads one partition at one epoch.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use storage_engine::{ReadTree, Snapshot};

use super::error::PartitionError;
use super::memory::{PartitionMemory, TermCounts};
use super::trees::{DICTIONARY, DOCUMENTS, POSTINGS, WORD_COUNTS};
use crate::document::record::{RawDocument, Record};
use crate::facets::columns::{Columns, ResidentFields, Touched};
use crate::facets::filter::VectorsTest;
use crate::facets::{FacetError, FacetSource};
use crate::fields::FieldsMap;
use crate::ids::{DocId, Epoch, FieldId, LocalDocId, PartitionNo};
use crate::kept::Kept;
use crate::query::{Faults, FieldTable, PrefixRange, QueryCache, Reach, TermSource, WordCounts};
use crate::rank::champions::ChampionLists;
use crate::search::KeptAnswers;
use crate::settings::Settings;
use crate::text::TextTokenizer;
use crate::text::dictionary::{Dictionary, TermKind};
use crate::text::postings::{Block, block_key, parse_block_key, take_varint};
use crate::vectors::{self, EmbedderStates, PartitionVectors};

/// Bytes of term bitmaps that one epoch of a partition keeps at hand.
const CACHE_BYTES: usize = 16 << 20;
/// Posting blocks that are read over rather than looking for the one wanted.
const SEEK_BLOCKS: u32 = 3;
/// Bytes of posting blocks read in one piece of a prefix's table.
const PIECE_BYTES: usize = 64 << 10;

/// Everything about an epoch that all partitions of an index share.
#[derive(Clone)]
pub struct EpochFacts {
    /// The epoch's number.
    pub epoch: Epoch,
    /// All names.
    pub fields: Arc<FieldsMap>,
    /// Complete settings.
    pub settings: Arc<Settings>,
    /// The tokenizer of these settings.
    pub tokenizer: Arc<TextTokenizer>,
    /// Partitions of the index.
    pub partition_count: u16,
    /// What is known of the embedders of the settings.
    pub embedders: Arc<EmbedderStates>,
}

/// One partition at one epoch: a snapshot with what its core keeps in memory. Lives as long as a search needs it.
///
/// Lookups that the ranking makes cannot fail half way: when a page turns out damaged they answer as if nothing were there, and
/// `fault_since` then says so; whoever answers a question asks for it at the end and fails the question. From the first such page on
/// nothing is remembered of earlier searches, since it may lack what could not be read.
pub struct PartitionReader {
    snapshot: Snapshot,
    number: PartitionNo,
    facts: EpochFacts,
    memory: PartitionMemory,
    terms: RefCell<Kept<Box<str>, Rc<RoaringBitmap>>>,
    faults: Faults,
    queries: QueryCache,
    champions: ChampionLists,
    kept_answers: KeptAnswers,
    resident_fields: ResidentFields,
}

impl PartitionReader {
    /// A reader of `snapshot`, which `memory` belongs to.
    pub fn new(snapshot: Snapshot, number: PartitionNo, facts: EpochFacts, memory: PartitionMemory) -> Self {
        Self {
            snapshot,
            number,
            facts,
            memory,
            terms: RefCell::default(),
            faults: Faults::default(),
            queries: QueryCache::default(),
            champions: ChampionLists::default(),
            kept_answers: KeptAnswers::default(),
            resident_fields: ResidentFields::default(),
        }
    }

    /// The same with what an earlier epoch holds of the columns, of which changes since have touched some.
    pub fn with_columns_of(self, before: &Self, touched: &Touched) -> Self {
        Self { resident_fields: before.resident_fields.after(touched), ..self }
    }

    /// The epoch of the index that this is.
    pub fn epoch(&self) -> Epoch {
        self.facts.epoch
    }

    /// Which partition this is.
    pub fn number(&self) -> PartitionNo {
        self.number
    }

    /// How many partitions the index has.
    pub fn partition_count(&self) -> u16 {
        self.facts.partition_count
    }

    /// The partition's file at this epoch.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What is kept in memory of this epoch.
    pub fn memory(&self) -> &PartitionMemory {
        &self.memory
    }

    /// The vectors of this epoch.
    pub fn vectors(&self) -> &PartitionVectors {
        &self.memory.vectors
    }

    /// What the index's partitions share at this epoch.
    pub fn facts(&self) -> &EpochFacts {
        &self.facts
    }

    /// The index's settings at this epoch.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.facts.settings
    }

    /// The index's names at this epoch.
    pub fn fields(&self) -> &Arc<FieldsMap> {
        &self.facts.fields
    }

    /// The index's tokenizer at this epoch.
    pub fn tokenizer(&self) -> &Arc<TextTokenizer> {
        &self.facts.tokenizer
    }

    /// The local numbers of all documents.
    pub fn documents(&self) -> &RoaringBitmap {
        &self.memory.documents
    }

    /// All terms.
    pub fn dictionary(&self) -> &Dictionary {
        &self.memory.dictionary
    }

    /// The number within the index of a document of this partition.
    pub fn global(&self, document: LocalDocId) -> DocId {
        document.global(self.number, self.facts.partition_count)
    }

    /// How many documents hold a term.
    pub fn doc_count(&self, term: &str) -> Result<u32, PartitionError> {
        let counts = self.snapshot.get(DICTIONARY, term.as_bytes())?.map(TermCounts::parse).transpose()?;
        Ok(counts.map_or(0, |counts| counts.documents))
    }

    /// The documents that hold a term; empty when none does. Kept for the next who asks.
    pub fn postings(&self, term: &str) -> Result<Rc<RoaringBitmap>, PartitionError> {
        if let Some(known) = self.terms.borrow().get(term) {
            return Ok(known.clone());
        }
        let mut documents = RoaringBitmap::new();
        if !self.memory.dictionary.contains(term) {
            // Known without a look at the file, and what can be asked for is without end.
            return Ok(Rc::new(documents));
        }
        self.for_each_block(term, 0, |block| {
            // Documents of a posting list rise, so appending cannot fail.
            let _ = documents.append(block.docs().iter().copied());
            Ok(true)
        })?;
        let documents = Rc::new(documents);
        let bytes = documents.serialized_size() + term.len() + 64;
        self.terms.borrow_mut().keep(term.into(), documents.clone(), bytes, CACHE_BYTES);
        Ok(documents)
    }

    /// Appends the places of a term in the documents `wanted` (rising), packed as document, field, position.
    fn pack_occurrences(&self, term: &str, wanted: &[u32], out: &mut Vec<u64>) -> Result<(), PartitionError> {
        let mut rest = wanted;
        while let Some(from) = rest.first().copied() {
            let (mut blocks, mut jumps) = (0, false);
            self.for_each_block(term, from, |block| {
                blocks += 1;
                rest = block.pack_wanted(rest, out)?;
                let (Some(next), Some(first), Some(last)) = (rest.first(), block.docs().first(), block.docs().last())
                else {
                    return Ok(false);
                };
                // When the next document lies many blocks on, looking for its block is cheaper than reading those between. The
                // first block seen may end before the document that was looked for, the second cannot.
                jumps = blocks > 1 && next.saturating_sub(*last) > SEEK_BLOCKS * (last - first + 1);
                Ok(!jumps)
            })?;
            if !jumps {
                break;
            }
        }
        Ok(())
    }

    /// A bounded piece of a prefix's occurrences; see [`TermSource::prefix_occurrences`]. `resume` is the key of the last block.
    fn prefix_blocks(
        &self,
        range: &PrefixRange,
        resume: Vec<u8>,
        each: &mut dyn FnMut(u64),
    ) -> Result<Option<Vec<u8>>, PartitionError> {
        let mut cursor = self.snapshot.cursor(POSTINGS);
        cursor.seek(if resume.is_empty() { range.prefix.as_bytes() } else { &resume })?;
        let mut bytes = 0;
        while let Some((key, value)) = cursor.next()? {
            if key == resume.as_slice() {
                continue;
            }
            let Some((term, first)) =
                parse_block_key(key).filter(|(term, _)| term.starts_with(range.prefix.as_bytes()))
            else {
                return Ok(None);
            };
            if range.has(term) {
                Block::parse(first, value)?.for_each(&mut *each)?;
            } else if term.len() > range.prefix.len() {
                return Ok(None);
            }
            bytes += value.len();
            if bytes >= PIECE_BYTES {
                return Ok(Some(key.to_vec()));
            }
        }
        Ok(None)
    }

    /// Bytes that are kept for later requests, about.
    pub fn kept_bytes(&self) -> usize {
        self.terms.borrow().weight()
            + self.queries.bytes()
            + self.champions.bytes()
            + self.kept_answers.bytes()
            + self.resident_fields.bytes()
    }

    /// Lets go of a bounded part of what was kept for later requests, as is due once a newer epoch has taken this one's place,
    /// or where memory is short; false when nothing is kept.
    pub fn forget_some(&self) -> bool {
        self.terms.borrow_mut().forget_some()
            || self.queries.forget_some()
            || self.champions.forget_some()
            || self.kept_answers.forget_some()
            || self.resident_fields.forget_some()
    }

    /// Answers to questions about words.
    pub fn kept_answers(&self) -> Option<&KeptAnswers> {
        self.is_undamaged().then_some(&self.kept_answers)
    }

    fn is_undamaged(&self) -> bool {
        self.faults.count() == 0
    }

    /// A document's stored form; `None` when the partition has no such document.
    pub fn record(&self, document: LocalDocId) -> Result<Option<Record<'_>>, PartitionError> {
        let bytes = self.snapshot.get(DOCUMENTS, &document.0.to_be_bytes())?;
        Ok(bytes.map(Record::parse).transpose()?)
    }

    /// A document with its own bytes.
    pub fn raw_document(&self, document: LocalDocId) -> Result<Option<RawDocument>, PartitionError> {
        Ok(self.record(document)?.map(|record| record.to_raw(self.global(document))))
    }

    /// A document with its own bytes, and with its vectors under `_vectors` where these are wanted.
    pub async fn document(&self, doc: LocalDocId, vectors: bool) -> Result<Option<RawDocument>, PartitionError> {
        let names = self.facts.settings.embedders.keys();
        if !vectors || names.len() == 0 {
            return self.raw_document(doc);
        }
        let Some(record) = self.record(doc)? else { return Ok(None) };
        let place = (self.global(doc), doc);
        vectors::show::document(record, &self.facts.fields, self.vectors(), names, place).await.map(Some)
    }

    /// Visits the blocks of a term from the one that may hold document `from` on, until told to stop.
    fn for_each_block(
        &self,
        term: &str,
        from: u32,
        mut each: impl FnMut(&Block<'_>) -> Result<bool, PartitionError>,
    ) -> Result<(), PartitionError> {
        let mut key = Vec::with_capacity(term.len() + 5);
        block_key(term.as_bytes(), from, &mut key);
        let mut cursor = self.snapshot.cursor(POSTINGS);
        cursor.seek(&key)?;
        if from > 0 {
            // The block before may hold the document too. Stepping back and forth leaves the cursor in front of it.
            let inside =
                cursor.prev()?.and_then(|(key, _)| parse_block_key(key)).filter(|(t, _)| *t == term.as_bytes());
            if inside.is_none() {
                cursor.seek(&key)?;
            }
        }
        while let Some((key, value)) = cursor.next()? {
            let Some((_, first)) = parse_block_key(key).filter(|(other, _)| *other == term.as_bytes()) else { break };
            if !each(&Block::parse(first, value)?)? {
                break;
            }
        }
        Ok(())
    }

    /// The value, or the default with the failure noted for `fault_since`.
    fn keep_damage<T: Default>(&self, result: Result<T, PartitionError>) -> T {
        result.unwrap_or_else(|error| {
            self.faults.note(error.to_string());
            T::default()
        })
    }
}

impl FacetSource for PartitionReader {
    fn columns(&self) -> Columns<'_> {
        Columns::new(&self.snapshot)
    }

    fn resident_fields(&self) -> Option<&ResidentFields> {
        Some(&self.resident_fields)
    }

    fn fields(&self) -> &FieldsMap {
        &self.facts.fields
    }

    fn settings(&self) -> &Settings {
        &self.facts.settings
    }

    fn documents(&self) -> &RoaringBitmap {
        &self.memory.documents
    }

    fn global(&self, document: LocalDocId) -> DocId {
        PartitionReader::global(self, document)
    }

    fn documents_with_vectors(&self, test: &VectorsTest) -> Result<RoaringBitmap, FacetError> {
        vectors::filter::documents_with_vectors(self.vectors(), (&self.facts.settings, &self.facts.embedders), test)
    }
}

impl TermSource for PartitionReader {
    fn documents(&self) -> &Rc<RoaringBitmap> {
        &self.memory.documents
    }

    fn term_docs(&self, term: &str) -> Rc<RoaringBitmap> {
        self.keep_damage(self.postings(term))
    }

    fn packed(&self, term: &str, docs: &[u32], out: &mut Vec<u64>) {
        self.keep_damage(self.pack_occurrences(term, docs, out));
    }

    fn prefix_occurrences(&self, range: &PrefixRange, resume: Vec<u8>, each: &mut dyn FnMut(u64)) -> Option<Vec<u8>> {
        self.keep_damage(self.prefix_blocks(range, resume, each))
    }

    fn prefixed(&self, prefix: &str, each: &mut dyn FnMut(&str) -> bool) {
        self.memory.dictionary.with_prefix(prefix, each);
    }

    fn similar(&self, word: &str, reach: Reach, _: &FieldTable, each: &mut dyn FnMut(&str, u8) -> bool) {
        self.memory.dictionary.similar(word, reach.distance_max, reach.prefix, each);
    }

    fn cuts(&self, word: &str) -> Vec<usize> {
        self.memory.dictionary.cuts(word)
    }

    fn is_tolerant(&self, term: &str, _: &FieldTable) -> bool {
        self.memory.dictionary.kind(term) == Some(TermKind::Tolerant)
    }

    fn fault_count(&self) -> u64 {
        self.faults.count()
    }

    fn fault_since(&self, count: u64) -> Option<String> {
        self.faults.since(count)
    }

    fn cache(&self) -> Option<&QueryCache> {
        self.is_undamaged().then_some(&self.queries)
    }

    fn champions(&self) -> Option<&ChampionLists> {
        self.is_undamaged().then_some(&self.champions)
    }

    fn word_count(&self, doc: u32, field: FieldId) -> Option<u8> {
        let bytes = self.snapshot.get(WORD_COUNTS, &doc.to_be_bytes()).map_err(PartitionError::from);
        count_in(self.keep_damage(bytes)?, field)
    }

    fn word_counts(&self) -> Box<WordCounts<'_>> {
        let mut finder = self.snapshot.finder(WORD_COUNTS);
        Box::new(move |doc, field| {
            let bytes = finder.get(&doc.to_be_bytes()).map_err(PartitionError::from);
            count_in(self.keep_damage(bytes)?, field)
        })
    }
}

/// The count of a field among those of a document.
fn count_in(mut counts: &[u8], field: FieldId) -> Option<u8> {
    let mut at = 0;
    while let Some(step) = take_varint(&mut counts) {
        let (count, rest) = counts.split_first()?;
        counts = rest;
        at += step;
        if at == u32::from(field.0) {
            return Some(*count);
        }
    }
    None
}
