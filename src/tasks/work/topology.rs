//! A change of the network's topology, step by step. Between steps the task waits in the queue, so that what the steps wait
//! for can be processed.

use std::sync::Arc;

use serde_json::{Value, json};
use shards::engine::BatchOp;

use super::{fail_batch, not_recorded, operations, retry};
use crate::control::ControlError;
use crate::control::indexes::IndexError;
use crate::control::plane::ControlPlane;
use crate::control::storage::record::Changes;
use crate::network::change::{Change, Message};
use crate::network::export::export;
use crate::network::task::TaskNetwork;
use crate::tasks::task::{Outcome, Status, TaskUid};
use crate::tasks::worker::{Broken, End, Run};

/// Does the next step of the change under way.
pub(super) async fn advance(run: &mut Run<'_>) -> Result<End, Broken> {
    let change = run.plane.change.borrow().clone();
    let Some(change) = change.filter(|change| run.tasks.first().is_some_and(|task| task.uid == change.task)) else {
        return fail_batch(run, IndexError::Failed("a change of the topology is not known as such".into())).await;
    };
    if change.topology.starts_empty && !change.steps.emptied {
        return empty(run).await;
    }
    if !change.steps.exported {
        return send_documents(run, &change).await;
    }
    if change.steps.imported.is_none() {
        let successful = imports_succeeded(run.plane, &change).map_err(Broken)?;
        if let Err(error) = run.plane.step(|steps| steps.imported = Some(successful)).await {
            return not_recorded(run, error).await;
        }
        run.plane.publish(|_| {}).await;
        run.plane.change_tick.set(true);
        return Ok(End::Interrupted);
    }
    run.plane.change_tick.set(false);
    if let Err(error) = report(run.plane, &change).await {
        return not_recorded(run, error).await;
    }
    let change = run.plane.change.borrow().clone();
    match change {
        Some(change) if change.is_agreed() => finish(run, &change).await,
        _ => Ok(End::Interrupted),
    }
}

/// Before the first step of an instance that comes back: all its indexes go. They come again with their documents.
async fn empty(run: &mut Run<'_>) -> Result<End, Broken> {
    run.settle().await?;
    let indexes: Vec<_> = run.plane.state().indexes.iter().map(|(uid, view)| (uid.to_string(), view.id)).collect();
    tracing::warn!(
        indexes = indexes.len(),
        "what this instance has is out of date: the network has gone on without it"
    );
    let gone = Changes {
        indexes: indexes.iter().map(|(uid, _)| (uid.clone(), None)).collect(),
        dropping: indexes.iter().map(|(_, id)| (*id, true)).collect(),
        ..Changes::default()
    };
    if let Err(error) = run.plane.store.commit(gone).await {
        return not_recorded(run, error).await;
    }
    run.plane.publish_indexes(indexes.iter().map(|(uid, _)| (uid.clone(), None)).collect()).await;
    for (uid, id) in indexes {
        run.plane.entries.borrow_mut().remove(&uid);
        run.remove_storage(id).await;
    }
    match run.plane.step(|steps| steps.emptied = true).await {
        Ok(()) => Ok(End::Interrupted),
        Err(error) => not_recorded(run, error).await,
    }
}

/// The first step: sends documents to where they are missing.
async fn send_documents(run: &mut Run<'_>, change: &Change) -> Result<End, Broken> {
    match super::unless_interrupted(run, export(run.plane, change)).await {
        Some(Ok(())) => {
            if let Err(error) = run.plane.step(|steps| steps.exported = true).await {
                return not_recorded(run, error).await;
            }
        }
        Some(Err(error)) => {
            tracing::warn!(error, "cannot read documents to be moved; trying again");
            run.plane.pause(std::time::Duration::from_secs(1)).await;
        }
        None => {}
    }
    Ok(End::Interrupted)
}

/// Gives the documents of every index their network shards by the names of the next network. `None` when the batch goes on.
async fn deal_out(run: &mut Run<'_>, change: &Change) -> Result<Option<End>, Broken> {
    let names: std::collections::BTreeSet<String> = change.topology.after.shards.keys().cloned().collect();
    let indexes: Vec<_> = run.plane.state().indexes.iter().map(|(uid, view)| (uid.clone(), view.clone())).collect();
    for (uid, view) in indexes {
        if view.settings.network_shards == names {
            continue;
        }
        let mut settings = (*view.settings).clone();
        settings.network_shards.clone_from(&names);
        let mut batch = operations(run);
        batch.settings = Some(Arc::new(settings));
        let prepared = match run.prepare(view, batch).await {
            None => return Ok(Some(End::Interrupted)),
            Some(Ok(prepared)) => prepared,
            Some(Err(error)) => return retry(run, &error).await.map(Some),
        };
        match run.commit_step(prepared).await? {
            Ok(view) => run.plane.publish_indexes(vec![(uid.to_string(), Some(view))]).await,
            Err(error) => return retry(run, &error).await.map(Some),
        }
    }
    Ok(None)
}

/// Whether all that came in this change could be added.
fn imports_succeeded(plane: &ControlPlane, change: &Change) -> Result<bool, ControlError> {
    let later = plane.queue.borrow().in_range(change.task.0);
    for uid in later {
        let Some(task) = plane.task(TaskUid(uid))? else { continue };
        let is_import = matches!(&task.network, Some(TaskNetwork::Import { change: of, .. }) if of.network_version == change.version());
        if is_import && matches!(task.status, Status::Failed | Status::Canceled) {
            tracing::warn!(task = uid, "cannot add documents moved to this instance; no instance deletes any");
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tells the others that everything has come; those that have not heard it are told again at each look.
async fn report(plane: &ControlPlane, change: &Change) -> Result<(), ControlError> {
    let successful = change.steps.imported.unwrap_or_default();
    let own_name = change.topology.own_name().unwrap_or_default();
    for name in change.topology.others() {
        if change.steps.told.contains(name) {
            continue;
        }
        match plane.tell(change, name, Message::ImportFinished(own_name.into(), successful)).await {
            Ok(()) => plane.step(|steps| steps.told.extend([name.to_owned()])).await?,
            Err(error) => tracing::debug!(remote = name, %error, "a remote has not heard that an import has ended"),
        }
    }
    Ok(())
}

/// The last step: searches go by the next network, and what other instances have now is deleted here.
async fn finish(run: &mut Run<'_>, change: &Change) -> Result<End, Broken> {
    if !change.steps.switched
        && let Err(error) = run.plane.step(|steps| steps.switched = true).await
    {
        return not_recorded(run, error).await;
    }
    // Nobody is answered for what is about to go.
    run.plane.publish(|_| {}).await;
    if let Some(end) = deal_out(run, change).await? {
        return Ok(end);
    }
    let kept = change.topology.after.kept().unwrap_or_default();
    let stale: Vec<String> = kept.names.difference(&kept.own).map(|name| json!(name).to_string()).collect();
    let mut moved = 0;
    let indexes: Vec<_> = run.plane.state().indexes.iter().map(|(uid, view)| (uid.clone(), view.clone())).collect();
    for (uid, view) in indexes {
        if stale.is_empty() || !change.may_delete() || view.documents == 0 {
            continue;
        }
        let mut batch = operations(run);
        batch.ops.push(BatchOp::DeleteByFilter(Value::from(format!("_shard IN [{}]", stale.join(", ")))));
        let prepared = match run.prepare(view, batch).await {
            None => return Ok(End::Interrupted),
            Some(Ok(prepared)) => prepared,
            Some(Err(error)) => return retry(run, &error).await,
        };
        let deleted = prepared.outcomes().first().and_then(|outcome| outcome.as_ref().ok());
        let deleted = deleted.map_or(0, |outcome| outcome.documents);
        if deleted == 0 {
            prepared.abort().await;
            continue;
        }
        moved += deleted;
        match run.commit_step(prepared).await? {
            Ok(view) => run.plane.publish_indexes(vec![(uid.to_string(), Some(view))]).await,
            Err(error) => return retry(run, &error).await,
        }
    }
    let message = if change.may_delete() {
        "The documents are where the new topology has them."
    } else {
        "Some documents could not be moved; nothing was deleted anywhere."
    };
    for task in &mut run.tasks {
        task.outcome = Outcome::Shown(change.topology.details(moved, message));
    }
    let changes = Changes { network_steps: Some(None), ..Changes::default() };
    run.finish_then(changes, Vec::new(), |plane| drop(plane.change.take())).await?;
    run.plane.find_change(None);
    run.plane.publish(|_| {}).await;
    Ok(End::Finished)
}
