//! Writes a dump.

use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use sha2::{Digest, Sha256};
use shards::document::PayloadFormat;
use shards::document::names::FieldNames;
use shards::document::payload::{DocumentFields, Documents};
use shards::document::record::write_fields;
use shards::engine::{DocumentScan, IndexView};
use shards::fields::FieldsMap;
use shards::runtime::Checkpoint;
use shards::timestamp::Timestamp;

use super::small::{self, IndexLine, KeyLine, Metadata, WebhooksFile, settings_value};
use super::spool::{Dump, Places, remove_leftovers};
use super::{batch, dump_uid, names, task};
use crate::api;
use crate::archive::{CopyError, aside};
use crate::auth::ApiKey;
use crate::control::ControlPlane;
use crate::control::indexes::IndexError;
use crate::tasks::filter::Filter;
use crate::tasks::task::{BatchUid, Content, Format, Outcome, Status, Task, TaskUid};

/// Writes a dump of the instance; its name. Only the task worker calls this, for the dump task that is being processed, so that no
/// batch changes an index meanwhile. Tasks accepted later are not in it.
///
/// # Errors
/// The disk is full, or something could not be read or written; what was written is left for [`clean_up`].
pub async fn write(plane: &ControlPlane, own: &Task, begun: Timestamp) -> Result<String, CopyError> {
    let uid = dump_uid(begun);
    let date = plane.runtime.unix_time().as_secs();
    clean_up(plane).await?;
    let mut dump = Dump::begin(plane.runtime.clone(), places(plane, &uid), date).await?;
    let (state, tasks) = (plane.state(), plane.queue.borrow().matching(&Filter::default()));
    dump.folders(names::FOLDERS.map(String::from).to_vec()).await?;
    dump.json(&Metadata::of(begun)).await?;
    dump.end_entry(names::METADATA.into()).await?;
    let mut keys = state.keys.newest_first();
    keys.reverse();
    for key in keys {
        dump.line(&KeyLine::from(ApiKey::clone(key))).await?;
    }
    dump.end_entry(names::KEYS.into()).await?;
    dump.json(&state.features).await?;
    dump.end_entry(names::FEATURES.into()).await?;
    dump.json(&*state.network).await?;
    dump.end_entry(names::NETWORK.into()).await?;
    let webhooks = state.webhooks.iter().filter(|(uid, _)| !uid.is_nil());
    dump.json(&WebhooksFile { webhooks: webhooks.map(|(uid, webhook)| (*uid, webhook.clone())).collect() }).await?;
    dump.end_entry(names::WEBHOOKS.into()).await?;
    for (name, settings) in &*state.chats {
        let (file, value) = small::chat_file(name, settings);
        dump.json(&value).await?;
        dump.end_entry(format!("{}/{file}.json", names::CHATS)).await?;
    }
    for (number, rule) in state.search_rules.iter().enumerate() {
        dump.json(&api::search_rules::export(rule)).await?;
        dump.end_entry(format!("{}/{number:09}.json", names::SEARCH_RULES)).await?;
    }
    for (name, view) in &*state.indexes {
        write_index(plane, &mut dump, name, view).await?;
    }
    write_tasks(plane, &mut dump, own, &tasks).await?;
    write_batches(plane, &mut dump).await?;
    dump.finish().await?;
    Ok(uid)
}

/// Removes what an unfinished dump left behind.
///
/// # Errors
/// The disk failed.
pub async fn clean_up(plane: &ControlPlane) -> Result<(), CopyError> {
    let places = places(plane, "");
    aside(&*plane.runtime, move || remove_leftovers(&places)).await?
}

/// Several instances may write to one folder, so unfinished files are named by the place of the database.
fn places(plane: &ControlPlane, uid: &str) -> Places {
    let folder = &plane.config.dump_dir;
    let root = std::path::absolute(&plane.config.root).unwrap_or_else(|_| plane.config.root.clone());
    let place = hex::encode(&Sha256::digest(root.as_os_str().as_encoded_bytes())[..8]);
    Places {
        target: folder.join(format!("{uid}.dump")),
        unfinished: folder.join(format!(".{place}.dump.unfinished")),
        spool: folder.join(format!(".{place}.dump.entry")),
    }
}

async fn write_index(
    plane: &ControlPlane,
    dump: &mut Dump,
    name: &str,
    view: &Arc<IndexView>,
) -> Result<(), CopyError> {
    let entry = |file: &str| format!("{}/{name}/{file}", names::INDEXES);
    dump.folders(vec![format!("{}/{name}", names::INDEXES)]).await?;
    dump.json(&IndexLine {
        uid: name.into(),
        primary_key: view.primary_key.clone(),
        created_at: view.created_at.to_string(),
        updated_at: view.updated_at.to_string(),
    })
    .await?;
    dump.end_entry(entry(names::INDEX_METADATA)).await?;
    dump.json(&settings_value(&view.settings)).await?;
    dump.end_entry(entry(names::SETTINGS)).await?;
    let mut scan = DocumentScan::new(view.clone()).with_vectors();
    let mut checkpoint = Checkpoint::default();
    loop {
        let (documents, next) = plane.indexes.scan(scan).await.map_err(|error| match error {
            IndexError::Stopping(text) => CopyError::Stopping(text),
            error => CopyError::Failed(format!("index `{name}`: {error}")),
        })?;
        if documents.is_empty() {
            break;
        }
        scan = next;
        let mut json = Vec::new();
        for document in documents {
            checkpoint.tick(&*plane.runtime).await;
            json.clear();
            document.write_json(&view.fields, &mut json);
            json.push(b'\n');
            dump.write(&json).await?;
        }
    }
    dump.end_entry(entry(names::DOCUMENTS)).await
}

/// Writes the tasks and the documents of those that wait. The dump's own task is written as succeeded, with nothing to show for it.
async fn write_tasks(
    plane: &ControlPlane,
    dump: &mut Dump,
    own: &Task,
    tasks: &RoaringBitmap,
) -> Result<(), CopyError> {
    let mut checkpoint = Checkpoint::default();
    let mut payloads = Vec::new();
    for uid in tasks {
        checkpoint.tick(&*plane.runtime).await;
        let task = match uid == own.uid.0 {
            true => Some(Rc::new(succeeded(plane, own))),
            false => plane.whole_task(TaskUid(uid))?,
        };
        let Some(task) = task else { continue };
        dump.line(&task::line(&task)).await?;
        if let (Status::Enqueued, Content::DocumentAddition { format, .. }) = (task.status, &task.content) {
            payloads.push((task.uid, *format));
        }
    }
    dump.end_entry(names::TASKS.into()).await?;
    for (uid, format) in payloads {
        let payload = plane.log.payload(uid).await?;
        if write_payload(plane, dump, uid, &payload, format).await? {
            dump.end_entry(format!("{}/{}.jsonl", names::PAYLOADS, uid.0)).await?;
        }
    }
    Ok(())
}

fn succeeded(plane: &ControlPlane, own: &Task) -> Task {
    Task {
        batch: None,
        status: Status::Succeeded,
        outcome: Outcome::Nothing,
        finished_at: Some(plane.now().max(own.started_at.unwrap_or_default())),
        ..own.clone()
    }
}

/// Writes the documents of a payload, one a line; whether there are any.
async fn write_payload(
    plane: &ControlPlane,
    dump: &mut Dump,
    uid: TaskUid,
    payload: &[u8],
    format: Format,
) -> Result<bool, CopyError> {
    // Payloads were checked when they were accepted.
    let damaged = |error| CopyError::Failed(format!("the documents of task {}: {error}", uid.0));
    let format = match format {
        Format::Json => PayloadFormat::Json,
        Format::Ndjson => PayloadFormat::Ndjson,
        Format::Csv { delimiter } => PayloadFormat::Csv { delimiter },
    };
    let mut documents = Documents::new(payload, format).map_err(damaged)?;
    let (mut document, mut json, mut any) = (DocumentFields::default(), Vec::new(), false);
    let mut checkpoint = Checkpoint::default();
    loop {
        checkpoint.tick(&*plane.runtime).await;
        // The names of one document at a time, so that its fields keep the order in which it has them.
        let mut map = FieldsMap::default();
        if !documents.next(&mut FieldNames::new(&mut map), &mut document).map_err(damaged)? {
            return Ok(any);
        }
        any = true;
        json.clear();
        write_fields(document.iter(), &map, &mut json);
        json.push(b'\n');
        dump.write(&json).await?;
    }
}

async fn write_batches(plane: &ControlPlane, dump: &mut Dump) -> Result<(), CopyError> {
    let ended = {
        let processing = plane.processing.borrow().as_ref().map(|processing| processing.batch.uid);
        let batches = plane.batches.borrow();
        batches.matching(&Filter::default(), &plane.queue.borrow(), processing)
    };
    let mut checkpoint = Checkpoint::default();
    for uid in ended {
        checkpoint.tick(&*plane.runtime).await;
        // The one in progress has no record yet.
        if let Some(batch) = plane.store.batch(BatchUid(uid))? {
            dump.line(&batch::line(batch)).await?;
        }
    }
    dump.end_entry(names::BATCHES.into()).await
}
