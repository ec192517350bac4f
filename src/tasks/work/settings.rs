//! Settings, one change after another.

use std::sync::Arc;

use shards::engine::BatchOp;
use shards::error::UserError;
use shards::runtime;
use shards::settings::Settings;

use super::documents::end;
use super::{fail_batch, open_or_create, operations, unless_interrupted};
use crate::api::settings::SettingsPatch;
use crate::control::indexes::IndexError;
use crate::tasks::task::{Content, Outcome, Task};
use crate::tasks::worker::{Broken, End, Run, fail, task_error};

/// Applies the changes in order; one that is refused fails by itself. With `clear`, all documents are deleted too.
pub(super) async fn apply(run: &mut Run<'_>, name: &str, clear: bool) -> Result<End, Broken> {
    let view = match open_or_create(run, name).await? {
        Some(Ok(view)) => view,
        Some(Err(error)) => return fail_batch(run, error).await,
        None => return Ok(End::Interrupted),
    };
    let changes: Vec<SettingsPatch> = run.tasks.iter().filter_map(change_of).cloned().collect();
    let before = view.settings.clone();
    // A change may bring, and settings may hold, a hundred thousand words, all of which are read.
    let changed = runtime::aside(&*run.plane.runtime, move || changed(&before, &changes));
    let (settings, results) = match unless_interrupted(run, changed).await {
        None => return Ok(End::Interrupted),
        Some(Ok(changed)) => changed,
        Some(Err(error)) => return fail_batch(run, IndexError::Failed(error.to_string())).await,
    };
    let mut any_done = clear;
    let tasks = run.tasks.iter_mut().filter(|task| change_of(task).is_some());
    for (task, result) in tasks.zip(results) {
        match result {
            Ok(()) => any_done = true,
            Err(error) => fail(task, task_error(&IndexError::User(error))),
        }
    }
    let mut documents = view.documents;
    let mut batch = operations(run);
    batch.settings = Some(settings);
    if clear {
        batch.ops.push(BatchOp::Clear);
    }
    let prepared = match run.prepare(view, batch).await {
        None => return Ok(End::Interrupted),
        Some(Ok(prepared)) => prepared,
        Some(Err(error)) => return fail_batch(run, error).await,
    };
    for task in &mut run.tasks {
        if let Content::DocumentClear { .. } = task.content {
            task.outcome = Outcome::Documents(std::mem::take(&mut documents));
        }
    }
    end(run, name, prepared, any_done).await
}

/// What a task changes, if it is about settings.
fn change_of(task: &Task) -> Option<&SettingsPatch> {
    match &task.content {
        Content::Settings { change, .. } => Some(change),
        _ => None,
    }
}

/// The settings after these changes, and what became of each; one that is refused changes nothing.
fn changed(before: &Settings, changes: &[SettingsPatch]) -> (Arc<Settings>, Vec<Result<(), UserError>>) {
    let mut settings = before.clone();
    let results = changes.iter().map(|change| change.apply(&settings).map(|changed| settings = changed)).collect();
    (Arc::new(settings), results)
}
