//! The part of a partition that is kept in memory: its document set, its dictionary and its vectors.

use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::{ReadTree, Snapshot};

use super::error::PartitionError;
use super::trees::{DICTIONARY, META};
use crate::text::dictionary::{Dictionary, DictionaryBuilder, TermKind};
use crate::text::postings::take_varint;
use crate::vectors::PartitionVectors;

/// Before the number of a chunk in the keys of the documents' set.
const DOCUMENTS_KEY: &[u8] = b"documents/";

/// The part of one epoch's state that is kept in memory. Cheap to clone.
#[derive(Clone, Default)]
pub struct PartitionMemory {
    /// Local numbers of all documents.
    pub documents: Rc<RoaringBitmap>,
    /// All terms.
    pub dictionary: Dictionary,
    /// Vectors.
    pub vectors: PartitionVectors,
}

/// How many documents hold a term, and how many of them an occurrence that is not exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TermCounts {
    /// Documents with the term.
    pub documents: u32,
    /// Documents with a tolerant occurrence of it.
    pub tolerant: u32,
}

impl TermCounts {
    /// Reads the value of a term in the dictionary's tree.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, PartitionError> {
        let mut next = || take_varint(&mut bytes);
        let documents = next().ok_or(PartitionError::Damaged("dictionary entry"))?;
        Ok(Self { documents, tolerant: next().unwrap_or(documents) })
    }

    /// Appends the value of a term in the dictionary's tree.
    pub fn put(self, out: &mut Vec<u8>) {
        crate::text::postings::put_varint(out, self.documents);
        if self.tolerant != self.documents {
            crate::text::postings::put_varint(out, self.tolerant);
        }
    }

    /// How the term occurs; `None` when no document holds it.
    pub fn kind(self) -> Option<TermKind> {
        match self {
            Self { documents: 0, .. } => None,
            Self { tolerant: 0, .. } => Some(TermKind::ExactOnly),
            _ => Some(TermKind::Tolerant),
        }
    }
}

/// Loads the memory part of a state in steps.
#[derive(Default)]
pub struct MemoryLoader {
    builder: DictionaryBuilder,
    after: Option<Vec<u8>>,
}

impl MemoryLoader {
    /// Reads up to `terms` more terms; true when all were read.
    pub fn advance(&mut self, snapshot: &Snapshot, terms: usize) -> Result<bool, PartitionError> {
        let mut cursor = snapshot.cursor(DICTIONARY);
        if let Some(after) = &self.after {
            cursor.seek(after)?;
        }
        // The first entry at or behind the last term read is that term itself.
        let mut skip = self.after.is_some();
        for _ in 0..terms {
            let Some((term, value)) = cursor.next()? else { return Ok(true) };
            if std::mem::take(&mut skip) {
                continue;
            }
            let text = std::str::from_utf8(term).map_err(|_| PartitionError::Damaged("term"))?;
            if let Some(kind) = TermCounts::parse(value)?.kind() {
                self.builder.push(text, kind);
            }
            self.after = Some(term.to_vec());
        }
        Ok(false)
    }

    /// The memory part, once all terms were read; vectors are opened apart.
    pub fn finish(self, snapshot: &Snapshot) -> Result<PartitionMemory, PartitionError> {
        let vectors = PartitionVectors::default();
        Ok(PartitionMemory {
            documents: Rc::new(load_documents(snapshot)?),
            dictionary: self.builder.finish(),
            vectors,
        })
    }
}

/// The key of the part of the documents' set that holds the numbers `chunk << 16` and following.
pub fn documents_key(chunk: u16) -> Vec<u8> {
    [DOCUMENTS_KEY, &chunk.to_be_bytes()].concat()
}

/// The stored form of the part of the set that holds the numbers `chunk << 16` and following.
pub fn encode_chunk(documents: &RoaringBitmap, chunk: u16) -> Vec<u8> {
    let start = u32::from(chunk) << 16;
    let mut part: RoaringBitmap = documents.range(start..=start | 0xffff).collect();
    part.optimize();
    let mut bytes = Vec::with_capacity(part.serialized_size());
    // Writing to memory does not fail.
    let _ = part.serialize_into(&mut bytes);
    bytes
}

fn load_documents(snapshot: &Snapshot) -> Result<RoaringBitmap, PartitionError> {
    let mut documents = RoaringBitmap::new();
    let mut cursor = snapshot.cursor(META);
    cursor.seek(DOCUMENTS_KEY)?;
    while let Some((key, value)) = cursor.next()? {
        if !key.starts_with(DOCUMENTS_KEY) {
            break;
        }
        let part = RoaringBitmap::deserialize_from(value);
        documents |= part.map_err(|_| PartitionError::Damaged("set of documents"))?;
    }
    Ok(documents)
}
