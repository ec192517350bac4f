//! Finds tasks: compact indexes over all of them, and the tasks themselves until their
//! records lie in the control store.
//!
//! A finished task's record lies in the control store; here it costs about 40 bytes. Everything is in memory and
//! synchronous; only the control core has it.

use std::collections::BTreeMap;
use std::rc::Rc;

use roaring::RoaringBitmap;
use shards::timestamp::Timestamp;

use super::column::Column;
use super::filter::{Dates, Filter, Scope};
use super::task::{BatchUid, Kind, Status, Task, TaskUid};
use crate::network::task::TaskNetwork;

/// The indexes over all tasks.
#[derive(Default)]
pub struct Queue {
    all: RoaringBitmap,
    by_status: BTreeMap<Status, RoaringBitmap>,
    by_kind: BTreeMap<Kind, RoaringBitmap>,
    by_index: BTreeMap<String, RoaringBitmap>,
    canceled_by: BTreeMap<u32, RoaringBitmap>,
    batch: Column,
    enqueued_at: Column,
    started_at: Column,
    finished_at: Column,
    held: BTreeMap<u32, Rc<Task>>,
}

impl Queue {
    /// Takes a task in, as it is: one just accepted, or one read back at the start. Replaces what was known of its uid.
    pub fn insert(&mut self, task: Task) {
        let uid = task.uid.0;
        if self.all.contains(uid) {
            self.forget(&RoaringBitmap::from_iter([uid]));
        }
        self.all.insert(uid);
        self.by_kind.entry(task.kind()).or_default().insert(uid);
        for name in task.content.index_names() {
            insert_named(&mut self.by_index, name, uid);
        }
        self.set_state(&task);
        if !task.status.is_finished() {
            self.held.insert(uid, Rc::new(task));
        }
    }

    /// Makes waiting tasks part of a batch that begins now.
    pub fn begin(&mut self, uids: &[TaskUid], batch: BatchUid, now: Timestamp) {
        self.restate(uids, |task| {
            task.status = Status::Processing;
            task.batch = Some(batch);
            task.started_at = Some(now);
        });
    }

    /// Puts tasks of an interrupted batch back, as if it had never begun.
    pub fn requeue(&mut self, uids: &[TaskUid]) {
        self.restate(uids, |task| {
            task.status = Status::Enqueued;
            task.batch = None;
            task.started_at = None;
        });
    }

    /// Takes note that a task has ended. It is held here until its record can be read from the control store.
    pub fn finish(&mut self, task: Rc<Task>) {
        debug_assert!(task.status.is_finished() && self.all.contains(task.uid.0));
        self.set_state(&task);
        self.held.insert(task.uid.0, task);
    }

    /// Lets go of a finished task whose record now lies in the control store.
    pub fn settle(&mut self, uid: TaskUid) {
        if self.held.get(&uid.0).is_some_and(|task| task.status.is_finished()) {
            self.held.remove(&uid.0);
        }
    }

    /// Changes what a task that is held knows of the network.
    pub fn change_network(&mut self, uid: TaskUid, change: impl FnOnce(&mut TaskNetwork)) {
        if let Some(task) = self.held.get_mut(&uid.0)
            && let Some(network) = &mut Rc::make_mut(task).network
        {
            change(network);
        }
    }

    /// The numbers of tasks from this one on.
    pub fn in_range(&self, first: u32) -> RoaringBitmap {
        let mut later = self.all.clone();
        later.remove_range(..first);
        later
    }

    /// Forgets tasks altogether.
    pub fn forget(&mut self, uids: &RoaringBitmap) {
        self.all -= uids;
        subtract(&mut self.by_status, uids);
        subtract(&mut self.by_kind, uids);
        subtract(&mut self.by_index, uids);
        subtract(&mut self.canceled_by, uids);
        for uid in uids {
            for column in [&mut self.batch, &mut self.enqueued_at, &mut self.started_at, &mut self.finished_at] {
                column.set(uid, None);
            }
            self.held.remove(&uid);
        }
    }

    /// Moves a task from the names `old` to the names `new`, after a rename of indexes.
    pub fn rename(&mut self, uid: TaskUid, old: &[&str], new: &[&str]) {
        for name in old {
            if let Some(uids) = self.by_index.get_mut(*name) {
                uids.remove(uid.0);
                if uids.is_empty() {
                    self.by_index.remove(*name);
                }
            }
        }
        for name in new {
            insert_named(&mut self.by_index, name, uid.0);
        }
    }

    /// A task whose record is held here: every one that is not finished, and those finished a moment ago.
    pub fn held(&self, uid: TaskUid) -> Option<&Rc<Task>> {
        self.held.get(&uid.0)
    }

    /// How many tasks there are.
    pub fn len(&self) -> u64 {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a task of this number is known.
    pub fn contains(&self, uid: TaskUid) -> bool {
        self.all.contains(uid.0)
    }

    /// The batch of a task.
    pub fn batch_of(&self, uid: TaskUid) -> Option<BatchUid> {
        self.batch.get(uid.0).map(|batch| BatchUid(batch as u32))
    }

    /// The tasks of a batch.
    pub fn in_batch(&self, batch: BatchUid) -> RoaringBitmap {
        let batch = i64::from(batch.0);
        self.batch.within((std::ops::Bound::Included(batch), std::ops::Bound::Included(batch)))
    }

    /// The tasks in a status.
    pub fn in_status(&self, status: Status) -> RoaringBitmap {
        self.by_status.get(&status).cloned().unwrap_or_default()
    }

    /// The tasks that have ended.
    pub fn finished(&self) -> RoaringBitmap {
        union(self.by_status.iter().filter(|(status, _)| status.is_finished()).map(|(_, uids)| uids))
    }

    /// Whether a task of this kind waits or is being processed.
    pub fn has_unfinished(&self, kind: Kind) -> bool {
        let Some(of_kind) = self.by_kind.get(&kind) else { return false };
        let mut unfinished = self.by_status.iter().filter(|(status, _)| !status.is_finished());
        unfinished.any(|(_, uids)| !uids.is_disjoint(of_kind))
    }

    /// When a task was accepted.
    pub fn enqueued_at(&self, uid: TaskUid) -> Option<Timestamp> {
        self.enqueued_at.get(uid.0).map(Timestamp)
    }

    /// How many tasks are in a status.
    pub fn count_in_status(&self, status: Status) -> u64 {
        self.by_status.get(&status).map_or(0, RoaringBitmap::len)
    }

    /// How many tasks are of a kind.
    pub fn count_of_kind(&self, kind: Kind) -> u64 {
        self.by_kind.get(&kind).map_or(0, RoaringBitmap::len)
    }

    /// How many tasks are found under each name of an index, by name.
    pub fn counts_by_index(&self) -> Vec<(String, u64)> {
        self.by_index.iter().map(|(name, uids)| (name.clone(), uids.len())).collect()
    }

    /// The task of the lowest number that is not finished.
    pub fn oldest_unfinished(&self) -> Option<&Rc<Task>> {
        self.held.values().find(|task| !task.status.is_finished())
    }

    /// The waiting tasks of one kind.
    pub fn enqueued_of(&self, kind: Kind) -> RoaringBitmap {
        match (self.by_status.get(&Status::Enqueued), self.by_kind.get(&kind)) {
            (Some(enqueued), Some(of_kind)) => enqueued & of_kind,
            _ => RoaringBitmap::new(),
        }
    }

    /// The tasks found under an index's name.
    pub fn of_index(&self, index: &str) -> RoaringBitmap {
        self.by_index.get(index).cloned().unwrap_or_default()
    }

    /// The tasks of kinds that have no index, or several.
    pub fn without_single_index(&self) -> RoaringBitmap {
        union(self.by_kind.iter().filter(|(kind, _)| !kind.has_one_index()).map(|(_, uids)| uids))
    }

    /// All tasks that a filter lets through.
    pub fn matching(&self, filter: &Filter) -> RoaringBitmap {
        let mut found = self.all.clone();
        if let Some(uids) = &filter.uids {
            found &= uids;
        }
        if let Some(batches) = &filter.batches {
            found &=
                batches.iter().map(|batch| self.in_batch(BatchUid(batch))).fold(RoaringBitmap::new(), |a, b| a | b);
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
        if let Some(cancelations) = &filter.canceled_by {
            found &= union(cancelations.iter().filter_map(|uid| self.canceled_by.get(&uid)));
        }
        narrow(&mut found, &self.enqueued_at, filter.enqueued);
        narrow(&mut found, &self.started_at, filter.started);
        narrow(&mut found, &self.finished_at, filter.finished);
        found
    }

    /// Those that a limited key may touch: tasks of its indexes, none without a single index.
    pub fn covered(&self, scope: &Scope) -> RoaringBitmap {
        if *scope == Scope::All {
            return self.all.clone();
        }
        let names = self.by_index.iter().filter(|(name, _)| scope.covers(name));
        union(names.map(|(_, uids)| uids)) - self.without_single_index()
    }

    fn restate(&mut self, uids: &[TaskUid], change: impl Fn(&mut Task)) {
        for uid in uids {
            let Some(mut task) = self.held.remove(&uid.0) else { continue };
            change(Rc::make_mut(&mut task));
            self.set_state(&task);
            self.held.insert(uid.0, task);
        }
    }

    /// Brings everything that may change in a task's life up to date.
    fn set_state(&mut self, task: &Task) {
        let uid = task.uid.0;
        for (status, uids) in &mut self.by_status {
            if *status != task.status {
                uids.remove(uid);
            }
        }
        self.by_status.entry(task.status).or_default().insert(uid);
        if let Some(TaskUid(cancelation)) = task.canceled_by {
            self.canceled_by.entry(cancelation).or_default().insert(uid);
        }
        self.batch.set(uid, task.batch.map(|BatchUid(batch)| i64::from(batch)));
        self.enqueued_at.set(uid, Some(task.enqueued_at.0));
        self.started_at.set(uid, task.started_at.map(|date| date.0));
        self.finished_at.set(uid, task.finished_at.map(|date| date.0));
    }
}

fn insert_named(map: &mut BTreeMap<String, RoaringBitmap>, name: &str, uid: u32) {
    match map.get_mut(name) {
        Some(uids) => {
            uids.insert(uid);
        }
        None => {
            map.insert(name.into(), RoaringBitmap::from_iter([uid]));
        }
    }
}

fn subtract<K: Ord>(map: &mut BTreeMap<K, RoaringBitmap>, uids: &RoaringBitmap) {
    map.retain(|_, of_key| {
        *of_key -= uids;
        !of_key.is_empty()
    });
}

/// The union of some sets.
pub(super) fn union<'a>(sets: impl Iterator<Item = &'a RoaringBitmap>) -> RoaringBitmap {
    sets.fold(RoaringBitmap::new(), |mut all, set| {
        all |= set;
        all
    })
}

/// Keeps those whose date lies in the range, if there is one.
pub(super) fn narrow(found: &mut RoaringBitmap, column: &Column, dates: Dates) {
    if let Some(range) = dates.range() {
        *found &= column.within(range);
    }
}

#[cfg(test)]
mod tests;
