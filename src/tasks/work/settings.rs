//! Settings, one change after another.

use std::sync::Arc;

use shards::engine::BatchOp;

use super::documents::end;
use super::{fail_batch, open_or_create, operations};
use crate::control::indexes::IndexError;
use crate::tasks::task::{Content, Outcome};
use crate::tasks::worker::{Broken, End, Run, fail, task_error};

/// Applies the changes in order; one that is refused fails by itself. With `clear`, all documents are deleted too.
pub(super) async fn apply(run: &mut Run<'_>, name: &str, clear: bool) -> Result<End, Broken> {
    let view = match open_or_create(run, name).await? {
        Ok(view) => view,
        Err(error) => return fail_batch(run, error).await,
    };
    let mut settings = (*view.settings).clone();
    let mut any_done = clear;
    for task in &mut run.tasks {
        let Content::Settings { change, .. } = &task.content else { continue };
        match change.apply(&settings) {
            Ok(changed) => {
                settings = changed;
                any_done = true;
            }
            Err(error) => fail(task, task_error(&IndexError::User(error))),
        }
    }
    let mut documents = view.documents;
    let mut batch = operations(run);
    batch.settings = Some(Arc::new(settings));
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
