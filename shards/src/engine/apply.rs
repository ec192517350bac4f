//! Has partitions build their next states: sends them the changes of a batch, and ends what they built.

use super::catalog_side::partitions;
use super::messages::{Answer, PartitionQuestion, Place};
use super::types::EngineError;
use super::{Engine, all_done, answer_as};
use crate::index::Plan;
use crate::partition::writer::{PartitionDelta, RecordChunk};
use crate::stages::Stages;

impl Engine {
    /// Sends each partition of a layout the changes of a batch.
    pub(super) async fn apply_plan(
        &self,
        first: Place,
        count: u16,
        plan: &Plan,
        stages: &Stages,
    ) -> Result<(), EngineError> {
        let sent = partitions(first, count).map(|place| self.apply_chunks(place, count, plan, stages));
        all_done(sent).await.map(drop)
    }

    /// Sends one partition of `count` what changes in it.
    pub(super) async fn apply_chunks(
        &self,
        place: Place,
        count: u16,
        plan: &Plan,
        stages: &Stages,
    ) -> Result<(), EngineError> {
        for chunk in plan.chunks(place.partition, count) {
            self.apply_chunk(place, chunk, stages).await?;
        }
        Ok(())
    }

    /// Sends a partition changes of documents.
    pub(super) async fn apply_chunk(
        &self,
        place: Place,
        chunk: RecordChunk,
        stages: &Stages,
    ) -> Result<(), EngineError> {
        let documents = chunk.documents();
        answer_as!(self.ask_partition(place, PartitionQuestion::Apply(chunk)).await, Answer::Done => ())?;
        stages.advance(documents);
        Ok(())
    }

    /// Has a partition end its next state.
    pub(super) async fn finish_partition(&self, place: Place, stages: &Stages) -> Result<PartitionDelta, EngineError> {
        let answer = self.ask_partition(place, PartitionQuestion::Finish).await;
        let delta = answer_as!(answer, Answer::Finished(delta) => delta)?;
        stages.advance(1);
        Ok(delta)
    }
}
