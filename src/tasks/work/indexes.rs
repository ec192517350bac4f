//! Indexes made, changed, renamed, rewritten and taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shards::engine::{IndexView, StoreBytes};
use shards::error::UserError;

use super::{Found, complete, create_index, fail_batch, history, index_not_found, may_create_index, operations};
use crate::control::indexes::IndexError;
use crate::control::storage::record::Changes;
use crate::network::task::TaskNetwork;
use crate::tasks::task::{Content, Outcome, Swap};
use crate::tasks::worker::{Broken, End, Run};

/// New names of indexes by their old ones. An index that takes a free name takes its place in the history of tasks too: what
/// happened under that name is shown under the old one afterwards.
type Renames = BTreeMap<String, String>;

pub(super) async fn create(run: &mut Run<'_>) -> Result<End, Broken> {
    let Some(Content::IndexCreation { index, primary_key }) = run.tasks.first().map(|task| task.content.clone()) else {
        return fail_batch(run, misplaced()).await;
    };
    // An index that is not marked as made was begun by a batch that a crash cut short: by this one.
    let begun = run.plane.entries.borrow().get(&index).map(|entry| entry.made);
    let present = run.plane.state().index(&index).cloned();
    let found = match present {
        // Two instances that send documents here may both find the index missing.
        Some(view) if begun == Some(false) || is_import(run) => complete(run, &index, view).await?,
        Some(_) => return fail_batch(run, already_exists(&index)).await,
        None => create_index(run, &index).await?,
    };
    let view = match found {
        Some(Ok(view)) => view,
        Some(Err(error)) => return fail_batch(run, error).await,
        None => return Ok(End::Interrupted),
    };
    let view = match primary_key.filter(|key| view.primary_key.as_ref() != Some(key)) {
        Some(key) => match date(run, view, Some(key)).await? {
            Some(Ok(view)) => view,
            Some(Err(error)) => return fail_batch(run, error).await,
            None => return Ok(End::Interrupted),
        },
        None => view,
    };
    run.finish(Changes::default(), vec![(index, Some(view))]).await?;
    Ok(End::Finished)
}

/// Whether the task comes from an instance that sends documents here.
fn is_import(run: &Run<'_>) -> bool {
    run.tasks.iter().all(|task| matches!(task.network, Some(TaskNetwork::Import { .. })))
}

/// Primary key, name, or both; nothing is changed when one of them cannot be.
pub(super) async fn update(run: &mut Run<'_>) -> Result<End, Broken> {
    let content = run.tasks.first().map(|task| task.content.clone());
    let Some(Content::IndexUpdate { index, primary_key, new_index, .. }) = content else {
        return fail_batch(run, misplaced()).await;
    };
    let state = run.plane.state();
    let Some(view) = state.index(&index).cloned() else { return fail_batch(run, index_not_found(&index)).await };
    let new_index = new_index.filter(|new| *new != index);
    if let Some(new) = new_index.as_deref().filter(|new| state.index(new).is_some()) {
        return fail_batch(run, already_exists(new)).await;
    }
    let is_other = primary_key.as_ref().is_some_and(|key| view.primary_key.as_ref() != Some(key));
    if is_other && view.documents > 0 {
        let old = view.primary_key.as_deref().unwrap_or_default();
        let message = format!("Index `{index}` already has a primary key: `{old}`.");
        let error = UserError::new("index_primary_key_already_exists", message);
        return fail_batch(run, error.into()).await;
    }
    let view = if primary_key.is_some() || new_index.is_some() {
        match date(run, view, primary_key).await? {
            Some(Ok(view)) => view,
            Some(Err(error)) => return fail_batch(run, error).await,
            None => return Ok(End::Interrupted),
        }
    } else {
        view
    };
    match new_index {
        Some(new) => {
            let renames = Renames::from([(index.clone(), new.clone()), (new.clone(), index.clone())]);
            rename(run, &renames, vec![(index, None), (new, Some(view))]).await
        }
        None => {
            run.finish(Changes::default(), vec![(index, Some(view))]).await?;
            Ok(End::Finished)
        }
    }
}

/// All pairs exchange their names, or none does.
pub(super) async fn swap(run: &mut Run<'_>) -> Result<End, Broken> {
    let Some(Content::IndexSwap { swaps }) = run.tasks.first().map(|task| task.content.clone()) else {
        return fail_batch(run, misplaced()).await;
    };
    let state = run.plane.state();
    if let Some(error) = misnamed(&swaps, |name| state.index(name).is_some()) {
        return fail_batch(run, error).await;
    }
    let (mut renames, mut views) = (Renames::new(), Vec::new());
    for Swap { indexes: [first, second], .. } in swaps {
        renames.insert(second.clone(), first.clone());
        renames.insert(first.clone(), second.clone());
        let [of_first, of_second] = [&first, &second].map(|name| state.index(name).cloned());
        views.push((first, of_second));
        views.push((second, of_first));
    }
    rename(run, &renames, views).await
}

/// What is wrong with the names of swaps: what is missing in any of them comes before what is in the way of another.
fn misnamed(swaps: &[Swap], exists: impl Fn(&str) -> bool) -> Option<IndexError> {
    let seconds = |is_rename: bool| {
        let of_kind = swaps.iter().filter(move |swap| swap.rename == is_rename);
        of_kind.map(|swap| swap.indexes[1].as_str())
    };
    let named = swaps.iter().map(|swap| swap.indexes[0].as_str()).chain(seconds(false));
    let missing: BTreeSet<&str> = named.filter(|name| !exists(name)).collect();
    match missing.first() {
        Some(name) if missing.len() == 1 => Some(index_not_found(name)),
        Some(_) => {
            let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
            Some(UserError::new("index_not_found", format!("Indexes {} not found.", names.join(", "))).into())
        }
        None => seconds(true).find(|name| exists(name)).map(already_exists),
    }
}

/// Gives indexes their new names, and their history with them. `views` is what stands under each name afterwards.
async fn rename(
    run: &mut Run<'_>,
    renames: &Renames,
    views: Vec<(String, Option<Arc<IndexView>>)>,
) -> Result<End, Broken> {
    let mut changes = Changes::default();
    {
        let mut entries = run.plane.entries.borrow_mut();
        let moved: Vec<_> = renames.iter().filter_map(|(old, new)| Some((new, entries.remove(old)?))).collect();
        for old in renames.keys() {
            changes.indexes.push((old.clone(), None));
        }
        for (new, entry) in moved {
            changes.indexes.push((new.clone(), Some(entry.clone())));
            entries.insert(new.clone(), entry);
        }
    }
    let moved = history::rename(run, renames, &mut changes).await?;
    run.finish_then(changes, views, |plane| history::show(plane, &moved)).await?;
    Ok(End::Finished)
}

/// The index goes; tasks collected before succeed without effect, and no document of theirs is counted.
pub(super) async fn delete(run: &mut Run<'_>, name: &str) -> Result<End, Broken> {
    let view = run.plane.state().index(name).cloned();
    if view.is_none() && !run.tasks.iter().any(may_create_index) {
        return fail_batch(run, index_not_found(name)).await;
    }
    let documents = view.as_ref().map_or(0, |view| view.documents);
    for task in &mut run.tasks {
        task.outcome = match task.content {
            Content::IndexDeletion { .. } => Outcome::Documents(documents),
            Content::DocumentAddition { .. }
            | Content::DocumentDeletion { .. }
            | Content::DocumentDeletionByFilter { .. } => Outcome::Documents(0),
            _ => Outcome::Nothing,
        };
    }
    let Some(view) = view else {
        run.finish(Changes::default(), Vec::new()).await?;
        return Ok(End::Finished);
    };
    let changes = Changes { indexes: vec![(name.into(), None)], dropping: vec![(view.id, true)], ..Changes::default() };
    run.finish(changes, vec![(name.into(), None)]).await?;
    run.plane.entries.borrow_mut().remove(name);
    run.remove_storage(view.id).await;
    Ok(End::Finished)
}

pub(super) async fn compact(run: &mut Run<'_>) -> Result<End, Broken> {
    let Some(Content::IndexCompaction { index }) = run.tasks.first().map(|task| task.content.clone()) else {
        return fail_batch(run, misplaced()).await;
    };
    let Some(view) = run.plane.state().index(&index).cloned() else {
        return fail_batch(run, index_not_found(&index)).await;
    };
    match run.compact(view.clone()).await {
        Ok((before, after)) => {
            for task in &mut run.tasks {
                task.outcome = Outcome::Sizes { before, after };
            }
            let mut view = (*view).clone();
            view.store_bytes = StoreBytes { file: after, used: view.store_bytes.used.min(after) };
            run.finish(Changes::default(), vec![(index, Some(Arc::new(view)))]).await?;
            Ok(End::Finished)
        }
        Err(error) => fail_batch(run, error).await,
    }
}

/// Says that an index is updated now, and sets its primary key if one is given, durably; doing it again after a crash only
/// changes the time. `None` when it was interrupted.
async fn date(run: &mut Run<'_>, view: Arc<IndexView>, key: Option<String>) -> Result<Found, Broken> {
    let mut batch = operations(run);
    batch.primary_key = key.map(Some);
    match run.prepare(view, batch).await {
        Some(Ok(prepared)) => run.commit_step(prepared).await.map(Some),
        Some(Err(error)) => Ok(Some(Err(error))),
        None => Ok(None),
    }
}

fn already_exists(name: &str) -> IndexError {
    UserError::new("index_already_exists", format!("Index `{name}` already exists.")).into()
}

/// A batch that was sorted wrongly would be a defect of ours; its tasks fail instead of the server.
fn misplaced() -> IndexError {
    IndexError::Failed("a task came to a step for another kind".into())
}
