//! The end of a batch on the core of its index's partition 0: commit, or rollback in all partitions.

use std::rc::Rc;

use futures_util::future::join_all;
use uuid::Uuid;

use super::catalog_side::{CatalogHome, Committed, Next, Pending, partitions};
use super::messages::{Answer, PartitionQuestion, Place};
use super::types::EngineError;
use super::{Engine, all_done, answer_as};
use crate::ids::{Epoch, PartitionNo};
use crate::index::catalog::store_record;

impl Engine {
    pub(super) async fn commit_here(&self, index: Uuid, epoch: Epoch, record: &[u8]) -> Result<Answer, EngineError> {
        let home = self.catalog(index)?;
        let Some(pending) = home.pending.borrow_mut().take().filter(|pending| pending.next.epoch == epoch) else {
            return Err(EngineError::Gone);
        };
        let first = Place { index, layout: pending.layout, partition: PartitionNo(0) };
        if let Err(error) = self.make_durable(first, &pending, record).await {
            return Err(self.failed(&home, error).await);
        }
        home.begun.set(None);
        let share = pending.next.share();
        let published = partitions(first, share.partition_count).map(|place| {
            let share = share.clone();
            async move {
                let answer = self.ask_partition(place, PartitionQuestion::Publish(share)).await;
                answer_as!(answer, Answer::Published(bytes) => bytes)
            }
        });
        // The commit stands. A core that does not answer is ending; its partition is published when it is opened again.
        let store_bytes = join_all(published).await.into_iter().map(Result::unwrap_or_default).sum();
        let Next { catalog, tokenizer, .. } = pending.next;
        let view = self.view_of(first, epoch, &catalog, &tokenizer, store_bytes);
        let before = home.view();
        if before.layout != pending.layout {
            home.retired.borrow_mut().push((before.layout, before.partition_count()));
        }
        *home.committed.borrow_mut() = Committed { catalog: Rc::new(catalog), view: view.clone() };
        Ok(Answer::View(Box::new(view)))
    }

    /// Makes the states that were built durable, that of partition 0 last.
    async fn make_durable(&self, first: Place, pending: &Pending, record: &[u8]) -> Result<(), EngineError> {
        let others = pending.touched.iter().filter(|number| number.0 != 0).map(|number| {
            let place = Place { partition: *number, ..first };
            async move {
                let answer = self.ask_partition(place, PartitionQuestion::Commit(pending.next.epoch)).await;
                answer_as!(answer, Answer::Done => ())
            }
        });
        all_done(others).await?;
        let home = self.partition(first)?;
        let mut writer = home.take_writer()?;
        store_record(writer.txn(), record)?;
        home.put_writer(writer);
        Ok(home.commit(pending.next.epoch).await?)
    }

    pub(super) async fn abort_here(&self, index: Uuid, epoch: Epoch) -> Result<Answer, EngineError> {
        let home = self.catalog(index)?;
        if home.view().epoch < epoch {
            self.take_back(&home).await?;
        }
        Ok(Answer::Done)
    }

    /// Takes back a batch that failed, and returns why it did.
    pub(super) async fn failed(&self, home: &CatalogHome, error: EngineError) -> EngineError {
        // What cannot be taken back now is tried again before the next batch begins, which fails otherwise.
        if let Err(also) = self.take_back(home).await {
            tracing::error!(error = %also, "cannot roll back a failed batch yet");
        }
        error
    }

    /// Takes back whatever an earlier batch began and did not commit. Nothing of it may be under way any more.
    pub(super) async fn take_back(&self, home: &CatalogHome) -> Result<(), EngineError> {
        home.pending.borrow_mut().take();
        let Some((layout, count)) = home.begun.get() else { return Ok(()) };
        let view = home.view();
        let first = Place { index: view.id, layout, partition: PartitionNo(0) };
        if layout == view.layout {
            self.roll_back(first, count, view.epoch).await?;
        } else {
            self.discard_layout(first, count).await?;
        }
        home.begun.set(None);
        Ok(())
    }

    /// Takes the partitions back to an epoch, partition 0 before all others: as long as its file may tell that the batch was
    /// committed, these must have what the batch made durable in them, or the next start would find half of it.
    async fn roll_back(&self, first: Place, count: u16, epoch: Epoch) -> Result<(), EngineError> {
        let abort = |place| async move {
            answer_as!(self.ask_partition(place, PartitionQuestion::Abort(epoch)).await, Answer::Done => ())
        };
        abort(first).await?;
        all_done(partitions(first, count).skip(1).map(abort)).await.map(drop)
    }

    /// Removes a layout that is of no use (any more).
    pub(super) async fn discard_layout(&self, first: Place, count: u16) -> Result<(), EngineError> {
        self.forget_layout(first, count).await;
        self.remove_layout(first).await
    }

    /// Removes the files of a layout. That of partition 0, by which a start tells layouts that were committed, goes first and for
    /// good: after a power cut in the middle, the rest must not be taken for an index.
    pub(super) async fn remove_layout(&self, first: Place) -> Result<(), EngineError> {
        let (disk, folder, file) =
            (self.runtime.disk(), first.folder(&self.config.root), first.file(&self.config.root));
        if disk.exists(&file).await? {
            disk.remove_file(&file).await?;
            disk.sync_dir(&folder).await?;
        }
        Ok(disk.remove_dir_all(&folder).await?)
    }

    pub(super) async fn remove_retired(&self, home: &CatalogHome, index: Uuid) -> Result<(), EngineError> {
        let retired = std::mem::take(&mut *home.retired.borrow_mut());
        for (layout, count) in retired {
            self.discard_layout(Place { index, layout, partition: PartitionNo(0) }, count).await?;
        }
        Ok(())
    }
}
