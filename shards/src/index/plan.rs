//! The plan of a batch: the changes to documents, divided among the partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::numbers::DocNumbers;
use crate::fields::FieldsMap;
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::partition::writer::{ChangeKind, RecordChange, RecordChunk};
use crate::runtime::{Checkpoint, Runtime};
use crate::segments::Pieces;

/// Bytes of records sent to a partition in one message.
const CHUNK_BYTES: usize = 256 << 10;

#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) kind: ChangeKind,
    pub(super) start: u64,
    pub(super) len: u32,
    /// What it says about vectors.
    pub(super) vectors: (u64, u32),
}

/// What the partitions and the catalog are to do.
pub struct Plan {
    /// All names.
    pub fields: Arc<FieldsMap>,
    /// Numbers of documents after the batch.
    pub numbers: DocNumbers,
    /// External ids that are new, changed (a number) or gone, in byte order.
    pub ids: BTreeMap<Box<str>, Option<u32>>,
    pub(super) changes: BTreeMap<u32, Change>,
    pub(super) records: Pieces,
}

impl Plan {
    /// Whether any document of a partition changes.
    pub fn touches(&self, partition: PartitionNo, count: u16) -> bool {
        self.changes.keys().any(|number| DocId(*number).partition(count) == partition)
    }

    /// How many documents change.
    pub fn documents(&self) -> u64 {
        self.changes.len() as u64
    }

    /// All changes with their records, by rising document.
    pub fn changes(&self) -> impl Iterator<Item = (DocId, ChangeKind, &[u8])> {
        self.changes
            .iter()
            .map(|(number, change)| (DocId(*number), change.kind, self.records.get(change.start, change.len as usize)))
    }

    /// Frees its memory in steps: that of a large batch takes milliseconds.
    pub async fn discard(self, runtime: &dyn Runtime) {
        let mut checkpoint = Checkpoint::default();
        for _ in self.changes {
            checkpoint.tick(runtime).await;
        }
    }

    /// What the document of a change says about vectors.
    fn vectors(&self, change: &Change) -> &[u8] {
        self.records.get(change.vectors.0, change.vectors.1 as usize)
    }

    /// The changes in one partition of `count`, in pieces.
    pub fn chunks(&self, partition: PartitionNo, count: u16) -> impl Iterator<Item = RecordChunk> {
        let mut of_partition =
            self.changes.iter().filter(move |(number, _)| DocId(**number).partition(count) == partition);
        std::iter::from_fn(move || {
            let mut chunk = RecordChunk::default();
            while chunk.len() < CHUNK_BYTES {
                let Some((number, change)) = of_partition.next() else { break };
                let record = self.records.get(change.start, change.len as usize);
                let doc: LocalDocId = DocId(*number).local(count);
                chunk.push(RecordChange { doc, kind: change.kind, record, vectors: self.vectors(change) });
            }
            if chunk.is_empty() { None } else { Some(chunk) }
        })
    }
}

/// A change with its bytes put among `records`.
pub(super) fn stored(records: &mut Pieces, kind: ChangeKind, record: &[u8], vectors: &[u8]) -> Change {
    let start = records.push(record);
    let vectors = (if vectors.is_empty() { 0 } else { records.push(vectors) }, vectors.len() as u32);
    Change { kind, start, len: record.len() as u32, vectors }
}
