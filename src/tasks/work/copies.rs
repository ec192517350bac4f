//! Copies of the whole instance: dumps and snapshots.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};

use super::fail_batch;
use crate::archive::CopyError;
use crate::control::storage::record::Changes;
use crate::snapshots;
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

/// The result of the work; `None` when a cancelation came in between.
async fn unless_interrupted<T>(run: &Run<'_>, work: impl Future<Output = T>) -> Option<T> {
    match select(pin!(work), pin!(run.plane.interrupt.wait())).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// Files that stay cost space until the next copy removes them.
fn tidied(result: Result<(), CopyError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "an unfinished copy could not be removed");
    }
}
