//! Indexes sent to another server.

use std::pin::pin;

use futures_util::future::{Either, select};

use super::fail_batch;
use crate::control::indexes::IndexError;
use crate::control::storage::record::Changes;
use crate::export::send::Sender;
use crate::tasks::task::{Content, Outcome};
use crate::tasks::worker::{Broken, End, Run};

/// Sends what the task asks for. A cancelation stops it at once, also while it waits for a target that does not answer.
pub(super) async fn export(run: &mut Run<'_>) -> Result<End, Broken> {
    let content = run.tasks.first().map(|task| task.content.clone());
    let Some(Content::Export { request }) = content else {
        return fail_batch(run, IndexError::Failed("a task came to a step for another kind".into())).await;
    };
    let plane = run.plane;
    let sender = Sender::new(plane, &request, plane.config.export_payload_bytes);
    let exported = match select(pin!(sender.run()), pin!(plane.interrupt.wait())).await {
        Either::Left((Ok(exported), _)) => exported,
        Either::Left((Err(error), _)) => return fail_batch(run, error).await,
        Either::Right(((), _)) => return Ok(End::Interrupted),
    };
    for task in &mut run.tasks {
        task.outcome = Outcome::Shown(request.details_of(&exported));
    }
    run.finish(Changes::default(), Vec::new()).await?;
    Ok(End::Finished)
}
