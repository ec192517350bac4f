//! What batches do, by kind of task.

mod documents;
mod dumps_and_snapshots;
mod edit;
mod export;
mod history;
mod indexes;
pub(super) mod made;
mod settings;
mod tasks;
mod topology;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use shards::engine::{Batch as Operations, IndexView};
use shards::error::UserError;
use shards::text::morphology;
use uuid::Builder;

use super::batcher::Work;
use super::task::{Content, Kind, Task};
use super::worker::{Broken, End, Run};
use crate::control::indexes::IndexError;
use crate::control::message::ControlError;
use crate::control::spare_files::SpareFiles;
use crate::control::storage::record::{Changes, IndexEntry};

/// Does a batch of tasks that were not collected by index.
pub(super) async fn run_kind(run: &mut Run<'_>, kind: Kind) -> Result<End, Broken> {
    match kind {
        Kind::TaskCancelation => tasks::cancel(run).await,
        Kind::TaskDeletion => tasks::forget(run).await,
        Kind::IndexCreation => indexes::create(run).await,
        Kind::IndexUpdate => indexes::update(run).await,
        Kind::IndexSwap => indexes::swap(run).await,
        Kind::IndexCompaction => indexes::compact(run).await,
        Kind::DumpCreation => dumps_and_snapshots::dump(run).await,
        Kind::SnapshotCreation => dumps_and_snapshots::snapshot(run).await,
        Kind::DocumentEdition => edit::edit(run).await,
        Kind::Export => export::export(run).await,
        Kind::NetworkTopologyChange => topology::advance(run).await,
        _ => refuse(run, "internal", "Such tasks").await,
    }
}

/// Does a batch of tasks of one index.
pub(super) async fn run_index(run: &mut Run<'_>, name: &str, work: Work) -> Result<End, Broken> {
    match work {
        Work::Additions | Work::Deletions => documents::apply(run, name, work).await,
        Work::Clear => documents::clear(run, name).await,
        Work::Settings => settings::apply(run, name, false).await,
        Work::ClearAndSettings => settings::apply(run, name, true).await,
        Work::IndexDeletion => indexes::delete(run, name).await,
        // Collected batches of one task are sorted by kind before.
        Work::Single => refuse(run, "internal", "Such batches").await,
    }
}

/// Fails the batch: this version does not do it.
async fn refuse(run: &mut Run<'_>, code: &'static str, what: &str) -> Result<End, Broken> {
    let error = UserError::new(code, format!("{what} are not available in this version of the server."));
    run.fail_all(&error.into());
    run.finish(Changes::default(), Vec::new()).await?;
    Ok(End::Finished)
}

/// The pause before a batch that this instance alone cannot do now is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Fails all tasks of the batch with one error, and ends it. Where other instances do the same tasks, a want of this one
/// is no reason to fail: it would miss for ever what they have. The tasks then wait until there is space, files may be opened, or
/// functions are run again. Nor does any task fail because the server stops.
async fn fail_batch(run: &mut Run<'_>, error: IndexError) -> Result<End, Broken> {
    let wanting = matches!(error, IndexError::OutOfSpace | IndexError::TooManyFiles | IndexError::FunctionNotRun(_));
    let is_stopping = matches!(error, IndexError::Stopping(_));
    if is_stopping || (wanting && run.tasks.iter().any(|task| task.network.is_some())) {
        return retry(run, &error).await;
    }
    run.fail_all(&error);
    run.finish(Changes::default(), Vec::new()).await?;
    Ok(End::Finished)
}

/// What a batch comes to whose progress could not be recorded. While the disk is full it is tried again.
async fn not_recorded(run: &Run<'_>, error: ControlError) -> Result<End, Broken> {
    match error {
        ControlError::OutOfSpace => retry(run, &IndexError::OutOfSpace).await,
        error => Err(Broken(error)),
    }
}

/// Puts the tasks of the batch back, to be tried again soon.
async fn retry(run: &Run<'_>, error: &IndexError) -> Result<End, Broken> {
    let first = run.tasks.first().map(|task| task.uid.0);
    tracing::error!(%error, first, tasks = run.tasks.len(), "tasks are waiting until this instance can process them");
    run.plane.pause(RETRY_PAUSE).await;
    Ok(End::Interrupted)
}

/// The result of the work; `None` when a cancelation came in between.
async fn unless_interrupted<T>(run: &Run<'_>, work: impl Future<Output = T>) -> Option<T> {
    match select(pin!(work), pin!(run.plane.interrupt.wait())).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

fn index_not_found(name: &str) -> IndexError {
    UserError::new("index_not_found", format!("Index `{name}` not found.")).into()
}

fn may_create_index(task: &Task) -> bool {
    match task.content {
        Content::DocumentAddition { may_create_index, .. } => may_create_index,
        Content::Settings { may_create_index, is_reset, .. } => may_create_index && !is_reset,
        _ => false,
    }
}

/// An index to work on, or why there is none; `None` when a cancelation came in between.
type Found = Option<Result<Arc<IndexView>, IndexError>>;

/// The index of this name; made now when there is none and a task of the batch may make it.
async fn open_or_create(run: &mut Run<'_>, name: &str) -> Result<Found, Broken> {
    if let Some(view) = run.plane.state().index(name) {
        return complete(run, name, view.clone()).await;
    }
    if !run.tasks.iter().any(may_create_index) {
        return Ok(Some(Err(index_not_found(name))));
    }
    create_index(run, name).await
}

/// Makes an index and publishes it. Its entry is durable before its storage is made, so that a crash leaves no storage
/// without an entry; the entry says that the storage is made once a batch of the index has ended.
async fn create_index(run: &mut Run<'_>, name: &str) -> Result<Found, Broken> {
    let plane = run.plane;
    let spare = match SpareFiles::hold(plane.runtime.core_count()) {
        Ok(spare) => spare,
        Err(error) => return Ok(Some(Err(error))),
    };
    let (high, low) = (plane.runtime.random_u64(), plane.runtime.random_u64());
    let id = Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid();
    let entry = IndexEntry { id, created_at: plane.now(), made: false, dictionaries: morphology::identity() };
    let changes = Changes { indexes: vec![(name.into(), Some(entry.clone()))], ..Changes::default() };
    match plane.store.commit(changes).await {
        Ok(()) => {}
        Err(ControlError::OutOfSpace) => return Ok(Some(Err(IndexError::OutOfSpace))),
        Err(error) => return Err(Broken(error)),
    }
    let created = match plane.indexes.create(id, entry.created_at).await {
        Ok(view) => deal_out(run, view).await?,
        Err(error) => Some(Err(error)),
    };
    drop(spare);
    let Some(Ok(view)) = created else {
        // The batch that fails or begins again by this is committed after it.
        let changes = Changes { indexes: vec![(name.into(), None)], dropping: vec![(id, true)], ..Changes::default() };
        drop(plane.store.submit(changes));
        run.remove_storage(id).await;
        return Ok(created);
    };
    plane.entries.borrow_mut().insert(name.into(), entry);
    plane.publish_indexes(vec![(name.into(), Some(view.clone()))]).await;
    Ok(Some(Ok(view)))
}

/// Has an index that is there know the network shards, where a crash came between its making and that. While a change of the network
/// is under way, those that were made before go on with the names that searches still use.
async fn complete(run: &mut Run<'_>, name: &str, view: Arc<IndexView>) -> Result<Found, Broken> {
    let is_made = run.plane.entries.borrow().get(name).is_some_and(|entry| entry.made);
    if is_made && run.plane.change.borrow().is_some() {
        return Ok(Some(Ok(view)));
    }
    let found = deal_out(run, view.clone()).await?;
    if let Some(Ok(dealt)) = &found
        && !Arc::ptr_eq(dealt, &view)
    {
        run.plane.publish_indexes(vec![(name.into(), Some(dealt.clone()))]).await;
    }
    Ok(found)
}

/// Has an index know the network shards, durably; one that knows them stays as it is.
async fn deal_out(run: &mut Run<'_>, view: Arc<IndexView>) -> Result<Found, Broken> {
    let mut batch = operations(run);
    let Some(kept) = batch.kept.clone().filter(|kept| kept.names != view.settings.network_shards) else {
        return Ok(Some(Ok(view)));
    };
    let mut settings = (*view.settings).clone();
    settings.network_shards.clone_from(&kept.names);
    batch.settings = Some(Arc::new(settings));
    match run.prepare(view, batch).await {
        Some(Ok(prepared)) => run.commit_step(prepared).await.map(Some),
        Some(Err(error)) => Ok(Some(Err(error))),
        None => Ok(None),
    }
}

/// A batch for the engine that does nothing yet.
fn operations(run: &Run<'_>) -> Operations {
    Operations { kept: run.plane.kept().map(Arc::new), ..Operations::default() }
}
