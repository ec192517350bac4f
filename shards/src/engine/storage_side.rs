//! Upkeep of an index's files on the core that owns them: deletion and compaction.

use futures_util::future::join_all;
use uuid::Uuid;

use super::catalog_side::partitions;
use super::messages::{Answer, PartitionQuestion, Place};
use super::types::EngineError;
use super::{Engine, answer_as};
use crate::ids::PartitionNo;

impl Engine {
    pub(super) async fn drop_here(&self, index: Uuid) -> Result<Answer, EngineError> {
        if let Ok(home) = self.catalog(index) {
            let view = home.view();
            let mut layouts = std::mem::take(&mut *home.retired.borrow_mut());
            layouts.push((view.layout, view.partition_count()));
            for (layout, count) in layouts {
                self.forget_layout(Place { index, layout, partition: PartitionNo(0) }, count).await;
            }
        }
        self.catalogs.borrow_mut().remove(&index);
        let disk = self.runtime.disk();
        let folder = Place::index_folder(&self.config.root, index);
        if disk.exists(&folder).await? {
            disk.remove_dir_all(&folder).await?;
            disk.sync_dir(&self.config.root).await?;
        }
        Ok(Answer::Done)
    }

    pub(super) async fn forget_layout(&self, place: Place, count: u16) {
        // A core that does not answer is ending, and lets go of everything.
        join_all(partitions(place, count).map(|place| self.ask_partition(place, PartitionQuestion::Forget))).await;
    }

    pub(super) async fn compact_here(&self, index: Uuid) -> Result<Answer, EngineError> {
        let home = self.catalog(index)?;
        // A file that is rewritten has no state before its newest to go back to.
        self.take_back(&home).await?;
        let view = home.view();
        let first = Place { index, layout: view.layout, partition: PartitionNo(0) };
        let (mut before, mut after) = (0, 0);
        for place in partitions(first, view.partition_count()) {
            let answer = self.ask_partition(place, PartitionQuestion::Compact).await;
            match answer_as!(answer, Answer::Compacted(was, is) => (was, is)) {
                Ok((was, is)) => {
                    before += was;
                    after += is;
                }
                Err(error) => {
                    // A store that failed after its file was written must be opened anew before the next batch.
                    home.begun.set(Some((view.layout, view.partition_count())));
                    return Err(self.failed(&home, error).await);
                }
            }
        }
        Ok(Answer::Compacted(before, after))
    }
}
