//! Spreads an index that has grown over the cores: its documents are rewritten into new files, one per core, which replace the
//! old file with the commit of the batch that made the index grow.

use storage_engine::ReadTree;

use super::catalog_side::{Next, Pending, partitions};
use super::messages::{Answer, EpochShare, PartitionQuestion, Place};
use super::types::{EngineError, IndexView};
use super::{Engine, all_done, answer_as};
use crate::document::names::VECTORS;
use crate::document::record::{Record, put_merged};
use crate::ids::{DocId, Epoch, PartitionNo};
use crate::index::catalog::PartitionSums;
use crate::index::{Catalog, Plan};
use crate::partition::PartitionError;
use crate::partition::reader::PartitionReader;
use crate::partition::trees::EXTERNAL_IDS;
use crate::partition::writer::{ChangeKind, RecordChange, RecordChunk};
use crate::runtime::Checkpoint;
use crate::stages::{Stage, Stages};

/// Bytes of records gathered for one partition before all are sent.
const CHUNK_BYTES: usize = 256 << 10;

impl Engine {
    /// Builds all of an index of one partition, with the changes of a batch, as `count` partitions in a new layout.
    pub(super) async fn build_anew(
        &self,
        (view, catalog): (&IndexView, &Catalog),
        mut next: Next,
        mut plan: Plan,
        count: u16,
        stages: &Stages,
    ) -> Result<Pending, EngineError> {
        let cleared = next.cleared;
        let old = Place { index: view.id, layout: view.layout, partition: PartitionNo(0) };
        let first = Place { layout: view.layout + 1, ..old };
        next.catalog.sums = vec![PartitionSums::default(); usize::from(count)];
        next.catalog.raw_bytes = 0;
        next.catalog.distribution.clear();
        // Left over from a batch that was not committed.
        self.discard_layout(first, count).await?;
        let folder = first.folder(&self.config.root);
        self.runtime.disk().create_dir_all(&folder).await?;
        self.runtime.disk().sync_dir(&Place::index_folder(&self.config.root, view.id)).await?;
        let share = next.share();
        let empty = EpochShare { epoch: Epoch(0), ..share.clone() };
        for place in partitions(first, count) {
            let opened = self.ask_partition(place, PartitionQuestion::Open(empty.clone())).await;
            answer_as!(opened, Answer::PartitionOpened(..) => ())?;
            let begin = PartitionQuestion::Begin { share: share.clone(), before: share.settings.clone(), clear: false };
            answer_as!(self.ask_partition(place, begin).await, Answer::Done => ())?;
        }
        let looked_at = catalog.documents() + plan.documents();
        stages.begin(Stage::Applying, looked_at, &*self.runtime);
        let reader = self.reader(old, view.epoch)?;
        let stored = if cleared { None } else { Some(&*reader) };
        if let Some(reader) = stored.filter(|reader| !reader.vectors().0.is_empty()) {
            // Vectors follow from what a document was and what it becomes, so it becomes what it was first.
            self.send_documents((first, count), Some(reader), None, stages).await?;
            self.send_vectors(first, count, reader).await?;
            self.apply_plan(first, count, &plan, stages).await?;
        } else {
            self.send_documents((first, count), stored, Some(&plan), stages).await?;
        }
        let all: Vec<PartitionNo> = (0..count).map(PartitionNo).collect();
        self.embed_texts(first, &all, (catalog, &next.catalog), (stages, looked_at)).await?;
        stages.begin(Stage::Finishing, u64::from(count), &*self.runtime);
        let finished = partitions(first, count).map(|place| self.finish_partition(place, stages));
        for (number, delta) in all_done(finished).await?.iter().enumerate() {
            next.catalog.add_delta(number, delta);
        }
        if !cleared {
            self.copy_ids(first, &reader).await?;
        }
        debug_assert_eq!(catalog.partition_count(), 1, "only an index of one partition is laid out anew");
        next.date(&*self.runtime);
        stages.begin(Stage::Cataloging, 1, &*self.runtime);
        self.write_catalog(first, None, &next.catalog, std::mem::take(&mut plan.ids), false).await?;
        plan.discard(&*self.runtime).await;
        let touched = (0..count).map(PartitionNo).collect();
        Ok(Pending { next, layout: first.layout, touched })
    }

    /// Sends the documents of `old` with the changes of `plan`, by rising number. Without a plan their vectors follow.
    async fn send_documents(
        &self,
        (first, count): (Place, u16),
        old: Option<&PartitionReader>,
        plan: Option<&Plan>,
        stages: &Stages,
    ) -> Result<(), EngineError> {
        let carried = plan.is_none();
        let vectors = plan.and_then(|plan| plan.fields.id(VECTORS));
        let mut chunks: Vec<RecordChunk> = vec![RecordChunk::new(carried); usize::from(count)];
        let mut changes = plan.into_iter().flat_map(Plan::changes).peekable();
        let mut stored = old.into_iter().flat_map(|old| old.documents().iter()).peekable();
        let (mut merged, mut checkpoint) = (Vec::new(), Checkpoint::default());
        loop {
            let number = match (changes.peek(), stored.peek()) {
                (None, None) => break,
                (Some((change, ..)), Some(stored)) => change.0.min(*stored),
                (Some((change, ..)), None) => change.0,
                (None, Some(stored)) => *stored,
            };
            let before = match (stored.next_if_eq(&number), old) {
                (Some(_), Some(old)) => old
                    .snapshot()
                    .get(crate::partition::trees::DOCUMENTS, &number.to_be_bytes())
                    .map_err(PartitionError::from)?,
                _ => None,
            };
            let record = match (changes.next_if(|(doc, ..)| doc.0 == number), before) {
                (None, before) => before,
                (Some((_, ChangeKind::Delete, _)), _) => None,
                (Some((_, ChangeKind::Merge, record)), Some(before)) => {
                    merged.clear();
                    let before = Record::parse(before).map_err(PartitionError::from)?;
                    let record = Record::parse(record).map_err(PartitionError::from)?;
                    put_merged(&mut merged, before, record, vectors);
                    Some(merged.as_slice())
                }
                (Some((_, _, record)), _) => Some(record),
            };
            if let Some(record) = record {
                let doc = DocId(number);
                let chunk = &mut chunks[usize::from(doc.partition(count).0)];
                let (doc, kind) = (doc.local(count), ChangeKind::Replace);
                chunk.push(RecordChange { doc, kind, record, vectors: &[] });
                if chunk.len() >= CHUNK_BYTES {
                    self.send_chunks(first, &mut chunks, carried, stages).await?;
                }
            }
            checkpoint.tick(&*self.runtime).await;
        }
        self.send_chunks(first, &mut chunks, carried, stages).await
    }

    /// Sends each partition its chunk and waits until all are done.
    async fn send_chunks(
        &self,
        first: Place,
        chunks: &mut [RecordChunk],
        carried: bool,
        stages: &Stages,
    ) -> Result<(), EngineError> {
        let sent = chunks.iter_mut().enumerate().filter(|(_, chunk)| !chunk.is_empty()).map(|(number, chunk)| {
            let place = Place { partition: PartitionNo(number as u16), ..first };
            self.apply_chunk(place, std::mem::replace(chunk, RecordChunk::new(carried)), stages)
        });
        all_done(sent).await.map(drop)
    }

    /// Copies the external ids of the old layout into the new partition 0.
    async fn copy_ids(&self, first: Place, old: &PartitionReader) -> Result<(), EngineError> {
        let home = self.partition(first)?;
        let mut writer = home.take_writer()?;
        let mut checkpoint = Checkpoint::default();
        let mut cursor = old.snapshot().cursor(EXTERNAL_IDS);
        while let Some((id, number)) = cursor.next().map_err(PartitionError::from)? {
            writer.txn().put(EXTERNAL_IDS, id, number).map_err(PartitionError::from)?;
            checkpoint.tick(&*self.runtime).await;
        }
        home.put_writer(writer);
        Ok(())
    }
}
