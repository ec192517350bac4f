//! Finished tasks follow their index when it is renamed.

use std::collections::BTreeMap;
use std::rc::Rc;

use roaring::RoaringBitmap;
use shards::runtime::Checkpoint;

use crate::control::plane::ControlPlane;
use crate::control::storage::record::Changes;
use crate::tasks::task::{Content, TaskUid};
use crate::tasks::worker::{Broken, Run};

/// A task with the names that find it, before and after.
pub(super) struct Moved {
    uid: TaskUid,
    old: Vec<String>,
    new: Vec<String>,
}

/// Rewrites every finished task that came before the batch and is found under a renamed index.
pub(super) async fn rename(
    run: &Run<'_>,
    renames: &BTreeMap<String, String>,
    changes: &mut Changes,
) -> Result<Vec<Moved>, Broken> {
    let Some(uid) = run.tasks.first().map(|task| task.uid) else { return Ok(Vec::new()) };
    let found = {
        let queue = run.plane.queue.borrow();
        let of_names = renames.keys().map(|name| queue.of_index(name));
        of_names.fold(RoaringBitmap::new(), |all, of_name| all | of_name)
    };
    let mut moved = Vec::new();
    let mut checkpoint = Checkpoint::default();
    for earlier in found.range(..uid.0) {
        checkpoint.tick(&*run.plane.runtime).await;
        let task = run.plane.task(TaskUid(earlier)).map_err(Broken)?;
        let Some(task) = task.filter(|task| task.status.is_finished()) else { continue };
        let mut task = Rc::unwrap_or_clone(task);
        let old = names(&task.content);
        if task.content.rename_indexes(&|name| renames.get(name).cloned()) {
            moved.push(Moved { uid: task.uid, old, new: names(&task.content) });
            changes.rewritten.push(task);
        }
    }
    Ok(moved)
}

/// Lets the tasks be found under their new names, once that is durable.
pub(super) fn show(plane: &ControlPlane, moved: &[Moved]) {
    let mut queue = plane.queue.borrow_mut();
    for Moved { uid, old, new } in moved {
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let new: Vec<&str> = new.iter().map(String::as_str).collect();
        queue.rename(*uid, &old, &new);
    }
}

fn names(content: &Content) -> Vec<String> {
    content.index_names().into_iter().map(String::from).collect()
}
