//! Documents added and deleted.

use shards::engine::{self, BatchOp, OpOutcome};
use shards::error::UserError;

use super::{fail_batch, open_or_create, operations};
use crate::control::indexes::{IndexError, PreparedBatch};
use crate::control::storage::record::Changes;
use crate::tasks::batcher::Work;
use crate::tasks::task::{Content, Format, Method, Outcome, Task};
use crate::tasks::worker::{Broken, End, Run, fail, task_error};

/// Additions and deletions, each task by itself, in order.
pub(super) async fn apply(run: &mut Run<'_>, name: &str, work: Work) -> Result<End, Broken> {
    let view = match open_or_create(run, name).await? {
        Some(Ok(view)) => view,
        Some(Err(error)) => return fail_batch(run, error).await,
        None => return Ok(End::Interrupted),
    };
    let mut batch = operations(run);
    for task in &run.tasks {
        match operation(run, task).await {
            Ok(operation) => batch.ops.push(operation),
            Err(error) => return fail_batch(run, error).await,
        }
    }
    let prepared = match run.prepare(view, batch).await {
        None => return Ok(End::Interrupted),
        Some(Ok(prepared)) => prepared,
        Some(Err(error)) => return fail_batch(run, error).await,
    };
    let any_done = prepared.outcomes().iter().any(Result::is_ok);
    for (task, outcome) in run.tasks.iter_mut().zip(prepared.outcomes()) {
        conclude(task, outcome, work);
    }
    end(run, name, prepared, any_done).await
}

/// All documents are deleted; whatever else was collected has no effect, and only the first clear counts documents.
pub(super) async fn clear(run: &mut Run<'_>, name: &str) -> Result<End, Broken> {
    let view = match open_or_create(run, name).await? {
        Some(Ok(view)) => view,
        Some(Err(error)) => return fail_batch(run, error).await,
        None => return Ok(End::Interrupted),
    };
    let mut documents = view.documents;
    let mut batch = operations(run);
    batch.ops.push(BatchOp::Clear);
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
    end(run, name, prepared, true).await
}

/// Ends a batch of documents: by the index's commit when anything was done, else without touching the index.
pub(super) async fn end(
    run: &mut Run<'_>,
    name: &str,
    prepared: Box<dyn PreparedBatch>,
    any_done: bool,
) -> Result<End, Broken> {
    if any_done {
        if let Err(error) = run.finish_prepared(name, prepared).await? {
            return fail_batch(run, error).await;
        }
    } else {
        prepared.abort().await;
        run.finish(Changes::default(), Vec::new()).await?;
    }
    Ok(End::Finished)
}

async fn operation(run: &Run<'_>, task: &Task) -> Result<BatchOp, IndexError> {
    Ok(match &task.content {
        Content::DocumentAddition { format, method, primary_key, skip_creation, .. } => {
            let payload = run.plane.log.payload(task.uid).await;
            BatchOp::Add {
                payload: payload.map_err(|error| IndexError::Failed(error.to_string()))?,
                format: match format {
                    Format::Json => engine::PayloadFormat::Json,
                    Format::Ndjson => engine::PayloadFormat::Ndjson,
                    Format::Csv { delimiter } => engine::PayloadFormat::Csv { delimiter: *delimiter },
                },
                method: match method {
                    Method::Replace => engine::Method::Replace,
                    Method::Update => engine::Method::Update,
                },
                primary_key: primary_key.clone(),
                skip_creation: *skip_creation,
            }
        }
        Content::DocumentDeletion { ids, .. } => BatchOp::DeleteIds(ids.clone()),
        Content::DocumentDeletionByFilter { filter, .. } => BatchOp::DeleteByFilter(filter.clone()),
        // A clear turns the whole batch into one; the collector lets nothing else in.
        _ => BatchOp::Clear,
    })
}

/// What came of one task. Among additions a deletion counts the ids it was given, as the reference does; by itself it
/// counts documents.
fn conclude(task: &mut Task, outcome: &Result<OpOutcome, UserError>, work: Work) {
    match (outcome, &task.content) {
        (Err(error), _) => fail(task, task_error(&IndexError::User(error.clone()))),
        (Ok(outcome), Content::DocumentDeletion { .. }) if work == Work::Additions => {
            task.outcome = Outcome::Documents(outcome.named);
        }
        (Ok(outcome), _) => task.outcome = Outcome::Documents(outcome.documents),
    }
}
