//! Finds batches: compact indexes over all finished ones, as they were recorded.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;

use super::batch::Batch;
use super::column::Column;
use super::filter::Filter;
use super::queue::{Queue, narrow, union};
use super::task::{BatchUid, Kind, Status, TaskUid};

/// The indexes over all batches.
#[derive(Default)]
pub struct Batches {
    all: RoaringBitmap,
    by_status: BTreeMap<Status, RoaringBitmap>,
    by_kind: BTreeMap<Kind, RoaringBitmap>,
    by_index: BTreeMap<String, RoaringBitmap>,
    first_enqueued_at: Column,
    last_enqueued_at: Column,
    started_at: Column,
    finished_at: Column,
}

impl Batches {
    /// Takes a batch in, finished or begun.
    pub fn insert(&mut self, batch: &Batch) {
        let uid = batch.uid.0;
        self.forget(&RoaringBitmap::from_iter([uid]));
        self.all.insert(uid);
        for status in batch.stats.status.keys() {
            self.by_status.entry(*status).or_default().insert(uid);
        }
        for kind in batch.stats.kinds.keys() {
            self.by_kind.entry(*kind).or_default().insert(uid);
        }
        for index in batch.stats.indexes.keys().chain(&batch.also_under) {
            self.by_index.entry(index.clone()).or_default().insert(uid);
        }
        self.first_enqueued_at.set(uid, batch.enqueued.map(|[first, _]| first.0));
        self.last_enqueued_at.set(uid, batch.enqueued.map(|[_, last]| last.0));
        self.started_at.set(uid, Some(batch.started_at.0));
        self.finished_at.set(uid, batch.finished_at.map(|date| date.0));
    }

    /// Forgets batches.
    pub fn forget(&mut self, uids: &RoaringBitmap) {
        if self.all.is_disjoint(uids) {
            return;
        }
        self.all -= uids;
        self.by_status.values_mut().chain(self.by_kind.values_mut()).for_each(|set| *set -= uids);
        self.by_index.retain(|_, set| {
            *set -= uids;
            !set.is_empty()
        });
        let columns =
            [&mut self.first_enqueued_at, &mut self.last_enqueued_at, &mut self.started_at, &mut self.finished_at];
        for column in columns {
            uids.iter().for_each(|uid| column.set(uid, None));
        }
    }

    /// Whether a batch of this number is known.
    pub fn contains(&self, uid: BatchUid) -> bool {
        self.all.contains(uid.0)
    }

    /// All batches that a filter lets through. `queue` tells the batches of tasks; `processing` is the batch that is not
    /// yet recorded under its tasks.
    pub fn matching(&self, filter: &Filter, queue: &Queue, processing: Option<BatchUid>) -> RoaringBitmap {
        let mut found = self.all.clone();
        if let Some(batches) = &filter.batches {
            found &= batches;
        }
        let recorded = |tasks: &RoaringBitmap| -> RoaringBitmap {
            let batches = tasks.iter().filter_map(|task| queue.batch_of(TaskUid(task)));
            batches.filter(|batch| Some(*batch) != processing).map(|batch| batch.0).collect()
        };
        if let Some(tasks) = &filter.uids {
            found &= recorded(tasks);
        }
        if let Some(cancelations) = &filter.canceled_by {
            // Only cancelations cancel: the batch of another task is none that this filter means.
            found &= recorded(&queue.matching(&Filter {
                uids: Some(cancelations.clone()),
                kinds: Some(vec![Kind::TaskCancelation]),
                statuses: Some(vec![Status::Succeeded]),
                ..Filter::default()
            }));
        }
        if let Some(statuses) = &filter.statuses {
            found &= union(statuses.iter().filter_map(|status| self.by_status.get(status)));
        }
        if let Some(kinds) = &filter.kinds {
            found &= union(kinds.iter().filter_map(|kind| self.by_kind.get(kind)));
        }
        if let Some(indexes) = &filter.indexes {
            found &= union(indexes.iter().filter_map(|index| self.by_index.get(index)));
        }
        if let Some(range) = filter.enqueued.range() {
            found &= self.first_enqueued_at.within(range) | self.last_enqueued_at.within(range);
        }
        narrow(&mut found, &self.started_at, filter.started);
        narrow(&mut found, &self.finished_at, filter.finished);
        found
    }
}

#[cfg(test)]
mod tests {
    use shards::timestamp::Timestamp;

    use super::*;
    use crate::tasks::batch::BatchBuilder;
    use crate::tasks::filter::{Dates, Scope};
    use crate::tasks::task::{Content, Swap, Task};

    /// Batch 0: deletions in `a`, one failed. Batch 1: a dump. Batch 2: a deletion in `b`, canceled by task 4.
    fn fixture() -> (Batches, Queue) {
        let (mut batches, mut queue) = (Batches::default(), Queue::default());
        let clear = |index: &str| Content::DocumentClear { index: index.into() };
        let cancelation = Content::TaskCancelation { query: "?uids=3".into(), tasks: [3].into_iter().collect() };
        let contents = [
            (clear("a"), 0, Status::Succeeded),
            (clear("a"), 0, Status::Failed),
            (Content::DumpCreation, 1, Status::Succeeded),
            (clear("b"), 2, Status::Canceled),
            (cancelation, 2, Status::Succeeded),
        ];
        let mut tasks = Vec::new();
        for (uid, (content, batch, status)) in (0..).zip(contents) {
            let mut task = Task::accepted(TaskUid(uid), content.into(), Timestamp(i64::from(uid) * 10));
            (task.batch, task.status) = (Some(BatchUid(batch)), status);
            queue.insert(task.clone());
            tasks.push(task);
        }
        for (uid, of) in [(0, 0..2), (1, 2..3), (2, 3..5)] {
            let mut builder = BatchBuilder::default();
            tasks[of].iter().for_each(|task| builder.add(task));
            let record = builder.build(BatchUid(uid), (Timestamp(100), Some(Timestamp(200))), String::new());
            batches.insert(&record);
        }
        (batches, queue)
    }

    fn found(filter: Filter) -> Vec<u32> {
        let (batches, queue) = fixture();
        batches.matching(&filter, &queue, None).iter().collect()
    }

    #[test]
    fn filters_look_at_the_tasks_of_a_batch() {
        assert_eq!(found(Filter::default()), [0, 1, 2]);
        assert_eq!(found(Filter { statuses: Some(vec![Status::Failed]), ..Filter::default() }), [0]);
        assert_eq!(found(Filter { statuses: Some(vec![Status::Enqueued]), ..Filter::default() }), [0; 0]);
        assert_eq!(found(Filter { kinds: Some(vec![Kind::DocumentDeletion]), ..Filter::default() }), [0, 2]);
        assert_eq!(found(Filter { indexes: Some(vec!["a".into()]), ..Filter::default() }), [0]);
        assert_eq!(found(Filter { uids: Some([1, 2].into_iter().collect()), ..Filter::default() }), [0, 1]);
        assert_eq!(found(Filter { canceled_by: Some([4].into_iter().collect()), ..Filter::default() }), [2]);
        assert_eq!(found(Filter { canceled_by: Some([0].into_iter().collect()), ..Filter::default() }), [0; 0]);
        let after = Dates { after: Some(Timestamp(15)), before: None };
        assert_eq!(found(Filter { enqueued: after, ..Filter::default() }), [1, 2]);
    }

    /// A swap belongs to no single index, and yet a filter by either of its indexes finds its batch.
    #[test]
    fn swaps_are_found_under_both_names() {
        let swap = Swap { indexes: ["a".into(), "b".into()], rename: false };
        let task = Task::accepted(TaskUid(0), Content::IndexSwap { swaps: vec![swap] }.into(), Timestamp(0));
        let (mut batches, mut builder) = (Batches::default(), BatchBuilder::default());
        builder.add(&task);
        let batch = builder.build(BatchUid(0), (Timestamp(0), None), String::new());
        batches.insert(&batch);
        let filter = Filter { indexes: Some(vec!["b".into()]), ..Filter::default() };
        assert_eq!(batches.matching(&filter, &Queue::default(), None).len(), 1);
        assert!(!batch.is_shown(&Scope::Indexes(vec!["b".into()])) && batch.is_shown(&Scope::All));
    }

    #[test]
    fn a_batch_in_progress_is_not_found_by_its_tasks() {
        let (batches, queue) = fixture();
        let filter = Filter { uids: Some([0, 2].into_iter().collect()), ..Filter::default() };
        assert_eq!(batches.matching(&filter, &queue, Some(BatchUid(1))).iter().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn forgotten_batches_are_found_no_more() {
        let (mut batches, queue) = fixture();
        batches.forget(&[0, 9].into_iter().collect());
        assert_eq!(batches.matching(&Filter::default(), &queue, None).iter().collect::<Vec<_>>(), [1, 2]);
    }
}
