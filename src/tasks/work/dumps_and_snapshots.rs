//! Dumps and snapshots: copies of the whole instance.

use super::{fail_batch, unless_interrupted};
use crate::archive::CopyError;
use crate::control::storage::record::Changes;
use crate::dumps;
use crate::snapshots;
use crate::tasks::task::{Outcome, Task};
use crate::tasks::worker::{Broken, End, Run};

/// One snapshot for all tasks that wait for one.
pub(super) async fn snapshot(run: &mut Run<'_>) -> Result<End, Broken> {
    run.settle().await?;
    let written = unless_interrupted(run, snapshots::write::write(run.plane)).await;
    if !matches!(written, Some(Ok(()))) {
        tidied(snapshots::write::clean_up(run.plane).await);
    }
    match written {
        None => return Ok(End::Interrupted),
        Some(Err(error)) => return fail_batch(run, error.into()).await,
        Some(Ok(())) => run.finish(Changes::default(), Vec::new()).await?,
    }
    Ok(End::Finished)
}

/// A dump for one task.
pub(super) async fn dump(run: &mut Run<'_>) -> Result<End, Broken> {
    run.settle().await?;
    let Some(own) = run.tasks.first().cloned() else { return Ok(End::Interrupted) };
    let own = Task { started_at: Some(run.started_at), ..own };
    let written = unless_interrupted(run, dumps::write::write(run.plane, &own, run.started_at)).await;
    if !matches!(written, Some(Ok(_))) {
        tidied(dumps::write::clean_up(run.plane).await);
    }
    match written {
        None => return Ok(End::Interrupted),
        Some(Err(error)) => return fail_batch(run, error.into()).await,
        Some(Ok(uid)) => {
            for task in &mut run.tasks {
                task.outcome = Outcome::Dump(uid.clone());
            }
            run.finish(Changes::default(), Vec::new()).await?;
        }
    }
    Ok(End::Finished)
}

/// Files that stay cost space until the next copy removes them.
fn tidied(result: Result<(), CopyError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "cannot remove an unfinished copy");
    }
}
