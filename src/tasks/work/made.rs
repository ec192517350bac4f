//! Which indexes are made. One that is not yet was begun by a batch that has not ended: that batch may find it when it is
//! repeated. Once it has ended, the index is there like any other, even if the batch failed or was canceled.

use std::collections::BTreeSet;

use crate::control::plane::ControlPlane;
use crate::control::storage::record::{Changes, IndexEntry};
use crate::tasks::task::{Status, Task, TaskUid};

/// What the end of a batch says of the indexes that its tasks are about.
#[derive(Default)]
pub(in crate::tasks) struct Marking {
    /// Indexes that are not made yet and have been looked at.
    looked_at: BTreeSet<String>,
}

impl Marking {
    /// Adds to `changes`, which end the task, that the index it is about is made: where that is not said yet, and where the index
    /// can be seen. Tasks come in order.
    pub(in crate::tasks) fn mark(&mut self, plane: &ControlPlane, task: &Task, changes: &mut Changes) {
        let Some(name) = task.content.index() else { return };
        let entries = plane.entries.borrow();
        let Some(entry) = entries.get(name).filter(|entry| !entry.made) else { return };
        if !self.looked_at.insert(name.into()) {
            return;
        }
        // An earlier task that still waits is the one that began the index, and may find it.
        let is_begun = task.status == Status::Canceled && waits_before(plane, name, task.uid);
        let is_seen = plane.state().index(name).is_some_and(|view| view.id == entry.id);
        if is_seen && !is_begun && changes.indexes.iter().all(|(changed, _)| changed != name) {
            changes.indexes.push((name.into(), Some(IndexEntry { made: true, ..entry.clone() })));
        }
    }
}

/// Whether a task of the index with a smaller number waits.
fn waits_before(plane: &ControlPlane, name: &str, uid: TaskUid) -> bool {
    let queue = plane.queue.borrow();
    (queue.of_index(name) & queue.in_status(Status::Enqueued)).min().is_some_and(|first| first < uid.0)
}

/// Takes note of what has become durable. Earlier it would be wrong: were it lost, nobody would say it again.
pub(in crate::tasks) fn note(plane: &ControlPlane, durable: &[(String, Option<IndexEntry>)]) {
    let mut entries = plane.entries.borrow_mut();
    for (name, made) in durable.iter().filter_map(|(name, entry)| Some((name, entry.as_ref()?))) {
        if let Some(entry) = entries.get_mut(name).filter(|entry| entry.id == made.id) {
            entry.made |= made.made;
        }
    }
}
