//! Tasks in a dump, one per line, with content and details under the dump's own names.

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use shards::timestamp::Timestamp;

use super::details;
use super::small::settings_patch;
use crate::api::settings::SettingsPatch;
use crate::export::{ExportRequest, exact_size};
use crate::options::values::ByteSize;
use crate::tasks::bitmap;
use crate::tasks::task::{BatchUid, Content, Format, Kind, Method, Outcome, Status, Swap, Task, TaskError, TaskUid};

/// A line of `tasks/queue.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskLine {
    uid: TaskUid,
    #[serde(default)]
    batch_uid: Option<BatchUid>,
    #[serde(default)]
    index_uid: Option<String>,
    status: Status,
    #[serde(rename = "type")]
    kind: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    canceled_by: Option<TaskUid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    enqueued_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    custom_metadata: Option<String>,
}

/// The line of a task.
pub fn line(task: &Task) -> TaskLine {
    TaskLine {
        uid: task.uid,
        batch_uid: task.batch,
        index_uid: task.content.index().map(String::from),
        status: task.status,
        kind: kind_value(&task.content),
        canceled_by: task.canceled_by,
        details: details::of_task(task),
        error: task.error.as_ref().map(crate::tasks::view::error),
        enqueued_at: task.enqueued_at.to_string(),
        started_at: task.started_at.map(|date| date.to_string()),
        finished_at: task.finished_at.map(|date| date.to_string()),
        custom_metadata: task.custom_metadata.clone(),
    }
}

/// The task of a line. One that was being processed waits again. The payload of a document addition is not known here: its
/// length is 0.
///
/// # Errors
/// What is wrong with the line, for people.
pub fn task(line: TaskLine) -> Result<Task, String> {
    let details = line.details.as_ref().and_then(details::inner);
    let mut content = content(&line, details).map_err(|reason| format!("task {}: {reason}", line.uid.0))?;
    let (outcome, renamed) = details::outcome(&content, details);
    if let Content::IndexUpdate { renamed: place, .. } = &mut content {
        *place = renamed;
    }
    let waits = !line.status.is_finished();
    let date = |text: &Option<String>| text.as_deref().map(date).transpose();
    Ok(Task {
        ids_apart: None,
        uid: line.uid,
        batch: line.batch_uid.filter(|_| !waits),
        status: if waits { Status::Enqueued } else { line.status },
        canceled_by: line.canceled_by,
        content,
        outcome: if waits { Outcome::Nothing } else { outcome },
        error: line.error.as_ref().map(error),
        enqueued_at: self::date(&line.enqueued_at)?,
        started_at: date(&line.started_at)?.filter(|_| !waits),
        finished_at: date(&line.finished_at)?.filter(|_| !waits),
        custom_metadata: line.custom_metadata,
        network: None,
    })
}

fn date(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse_rfc3339(text).ok_or_else(|| format!("`{text}` is no date"))
}

fn error(value: &Value) -> TaskError {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
    TaskError { code: text("code"), message: text("message") }
}

/// What a task asks for: a word, or an object of one field.
fn kind_value(content: &Content) -> Value {
    match content {
        Content::DocumentAddition { method, primary_key, may_create_index, skip_creation, received, .. } => {
            let method = match method {
                Method::Replace => "ReplaceDocuments",
                Method::Update => "UpdateDocuments",
            };
            let mut import = json!({
                "primary_key": primary_key,
                "method": method,
                "documents_count": received,
                "allow_index_creation": may_create_index,
            });
            if *skip_creation {
                // Beyond the format: a reader that does not know it creates the documents.
                import["skip_creation"] = true.into();
            }
            json!({ "documentImport": import })
        }
        Content::DocumentDeletion { ids, .. } => json!({ "documentDeletion": { "documents_ids": ids } }),
        Content::DocumentDeletionByFilter { filter, .. } => {
            json!({ "documentDeletionByFilter": { "filter": filter } })
        }
        Content::DocumentClear { .. } => json!("documentClear"),
        Content::DocumentEdition { filter, context, function, .. } => {
            json!({ "documentEdition": { "filter": filter, "context": context, "function": function } })
        }
        Content::Settings { change, is_reset, may_create_index, .. } => json!({ "settings": {
            "settings": change,
            "is_deletion": is_reset,
            "allow_index_creation": may_create_index,
        } }),
        Content::IndexCreation { primary_key, .. } => json!({ "indexCreation": { "primary_key": primary_key } }),
        Content::IndexUpdate { primary_key, new_index, .. } => {
            json!({ "indexUpdate": { "primary_key": primary_key, "uid": new_index } })
        }
        Content::IndexDeletion { .. } => json!("indexDeletion"),
        Content::IndexSwap { swaps } => json!({ "indexSwap": { "swaps": swaps } }),
        Content::IndexCompaction { index } => json!({ "indexCompaction": { "index_uid": index } }),
        Content::TaskCancelation { query, tasks } => {
            json!({ "taskCancelation": { "query": query, "tasks": bitmap::to_bytes(tasks) } })
        }
        Content::TaskDeletion { query, tasks } => {
            json!({ "tasksDeletion": { "query": query, "tasks": bitmap::to_bytes(tasks) } })
        }
        Content::DumpCreation => json!({ "dumpCreation": { "keys": [], "instance_uid": null } }),
        Content::SnapshotCreation => json!("snapshotCreation"),
        Content::Export { request, .. } => json!({ "export": {
            "url": request.url,
            "api_key": request.api_key,
            "payload_size": request.payload_bytes.map(exact_size),
            "indexes": request.indexes,
        } }),
        Content::NetworkTopologyChange { .. } => json!(Kind::NetworkTopologyChange.name()),
        Content::Foreign { kind, content, .. } => match content {
            Value::Null => json!(kind.name()),
            content => json!({ kind.name(): content }),
        },
    }
}

fn text(fields: &Value, field: &str) -> Option<String> {
    fields.get(field).and_then(Value::as_str).map(String::from)
}

fn flag(fields: &Value, field: &str) -> bool {
    fields.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn addition(index: String, fields: &Value, details: Option<&Map<String, Value>>) -> Content {
    let received = fields.get("documents_count").and_then(Value::as_u64).unwrap_or(0);
    let updates = fields.get("method").and_then(Value::as_str) == Some("UpdateDocuments");
    Content::DocumentAddition {
        index,
        format: Format::Ndjson,
        method: if updates { Method::Update } else { Method::Replace },
        primary_key: text(fields, "primary_key"),
        may_create_index: flag(fields, "allow_index_creation"),
        skip_creation: flag(fields, "skip_creation"),
        received: details::number(details, "received_documents").unwrap_or(received),
        payload_bytes: 0,
    }
}

fn content(line: &TaskLine, details: Option<&Map<String, Value>>) -> Result<Content, String> {
    let (name, fields) = match &line.kind {
        Value::String(name) => (name.as_str(), &Value::Null),
        Value::Object(fields) => {
            let (name, fields) = fields.iter().next().ok_or("the type is empty")?;
            (name.as_str(), fields)
        }
        _ => return Err("the type is neither a text nor an object".into()),
    };
    let index = || line.index_uid.clone().ok_or_else(|| format!("a `{name}` names no index"));
    Ok(match name {
        "documentImport" => addition(index()?, fields, details),
        "documentDeletion" => Content::DocumentDeletion { index: index()?, ids: part(fields, "documents_ids")? },
        "documentDeletionByFilter" => {
            Content::DocumentDeletionByFilter { index: index()?, filter: part(fields, "filter")? }
        }
        "documentClear" => Content::DocumentClear { index: index()? },
        "documentEdition" => Content::DocumentEdition {
            index: index()?,
            filter: part(fields, "filter")?,
            context: part(fields, "context")?,
            function: part(fields, "function")?,
        },
        "settings" => Content::Settings {
            index: index()?,
            change: settings_change(line.status, fields.get("settings").unwrap_or(&Value::Null))?,
            is_reset: flag(fields, "is_deletion"),
            may_create_index: flag(fields, "allow_index_creation"),
        },
        "indexCreation" => Content::IndexCreation { index: index()?, primary_key: text(fields, "primary_key") },
        "indexUpdate" => Content::IndexUpdate {
            index: index()?,
            primary_key: text(fields, "primary_key"),
            new_index: text(fields, "uid"),
            renamed: None,
        },
        "indexDeletion" => Content::IndexDeletion { index: index()? },
        "indexSwap" => Content::IndexSwap { swaps: part::<Vec<Swap>>(fields, "swaps")? },
        "indexCompaction" => Content::IndexCompaction { index: text(fields, "index_uid").map_or_else(index, Ok)? },
        "taskCancelation" => Content::TaskCancelation { query: part(fields, "query")?, tasks: task_set(fields)? },
        "taskDeletion" | "tasksDeletion" => {
            Content::TaskDeletion { query: part(fields, "query")?, tasks: task_set(fields)? }
        }
        "dumpCreation" => Content::DumpCreation,
        "snapshotCreation" => Content::SnapshotCreation,
        "export" => Content::Export { request: export_request(fields)? },
        name => {
            let kind = Kind::named(name).ok_or_else(|| format!("the type `{name}` is not known"))?;
            Content::Foreign {
                kind,
                content: fields.clone(),
                details: line.details.clone(),
                shown: details::shown_foreign(details),
            }
        }
    })
}

fn export_request(fields: &Value) -> Result<ExportRequest, String> {
    let size: Option<String> = part(fields, "payload_size")?;
    let size = size.map(|text| text.parse::<ByteSize>()).transpose()?;
    Ok(ExportRequest {
        url: part(fields, "url")?,
        api_key: part(fields, "api_key")?,
        payload_bytes: size.map(|size| size.0),
        indexes: part(fields, "indexes")?,
    })
}

/// A field of the content as its type; a missing one is read as null.
fn part<T: serde::de::DeserializeOwned>(fields: &Value, name: &str) -> Result<T, String> {
    let value = fields.get(name).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|error| format!("`{name}`: {error}"))
}

/// A change that is still to be made must be one that this server knows; of one that was made the text is all that counts.
fn settings_change(status: Status, value: &Value) -> Result<SettingsPatch, String> {
    if status.is_finished() {
        return serde_json::from_value(value.clone()).map_err(|error| format!("`settings`: {error}"));
    }
    settings_patch(value)
}

fn task_set(fields: &Value) -> Result<RoaringBitmap, String> {
    let bytes: Vec<u8> = part(fields, "tasks")?;
    RoaringBitmap::deserialize_from(&bytes[..]).map_err(|error| format!("`tasks`: {error}"))
}

#[cfg(test)]
mod tests;
