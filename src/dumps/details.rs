//! Task details in a dump, and what they say about a task's outcome.

use serde_json::{Map, Value, json};

use crate::api::settings::mask::mask;
use crate::options::values::ByteSize;
use crate::tasks::task::{Content, Outcome, Task};
use crate::tasks::view;

/// Names of a detail in dumps and in the interface.
type Names = &'static [(&'static str, &'static str)];

/// The name of the details of a kind of task in dumps, and those of its parts. `None` for kinds that need more than names.
fn names(content: &Content) -> Option<(&'static str, Names)> {
    const DELETED: (&str, &str) = ("deleted_documents", "deletedDocuments");
    const FILTER: (&str, &str) = ("original_filter", "originalFilter");
    Some(match content {
        Content::DocumentAddition { .. } => (
            "DocumentAdditionOrUpdate",
            &[("received_documents", "receivedDocuments"), ("indexed_documents", "indexedDocuments")],
        ),
        Content::DocumentDeletion { .. } => ("DocumentDeletion", &[("provided_ids", "providedIds"), DELETED]),
        Content::DocumentDeletionByFilter { .. } => ("DocumentDeletionByFilter", &[FILTER, DELETED]),
        Content::DocumentClear { .. } | Content::IndexDeletion { .. } => ("ClearAll", &[DELETED]),
        Content::DocumentEdition { .. } => (
            "DocumentEdition",
            &[
                DELETED,
                ("edited_documents", "editedDocuments"),
                FILTER,
                ("context", "context"),
                ("function", "function"),
            ],
        ),
        Content::IndexCreation { .. } | Content::IndexUpdate { .. } => (
            "IndexInfo",
            &[("primary_key", "primaryKey"), ("new_index_uid", "newIndexUid"), ("old_index_uid", "oldIndexUid")],
        ),
        Content::IndexSwap { .. } => ("IndexSwap", &[("swaps", "swaps")]),
        Content::TaskCancelation { .. } => {
            ("TaskCancelation", &[("matched_tasks", "matchedTasks"), ("canceled_tasks", "canceledTasks"), FILTER])
        }
        Content::TaskDeletion { .. } => {
            ("TaskDeletion", &[("matched_tasks", "matchedTasks"), ("deleted_tasks", "deletedTasks"), FILTER])
        }
        Content::DumpCreation => ("Dump", &[("dump_uid", "dumpUid")]),
        Content::IndexCompaction { .. }
        | Content::Settings { .. }
        | Content::Export { .. }
        | Content::SnapshotCreation
        | Content::NetworkTopologyChange { .. }
        | Content::Foreign { .. } => return None,
    })
}

/// The details of a task.
pub fn of_task(task: &Task) -> Option<Value> {
    match &task.content {
        Content::SnapshotCreation => return None,
        Content::Foreign { details, .. } => return details.clone(),
        Content::Settings { change, .. } => return Some(json!({ "SettingsUpdate": { "settings": change } })),
        _ => {}
    }
    let shown = view::details(task)?;
    let part = |name: &str| shown.get(name).cloned().unwrap_or_default();
    if let Some((name, names)) = names(&task.content) {
        let parts: Map<String, Value> = names.iter().map(|(theirs, ours)| (theirs.to_string(), part(ours))).collect();
        return Some(json!({ name: parts }));
    }
    match &task.content {
        Content::NetworkTopologyChange { .. } => Some(json!({ "NetworkTopologyChange": {
            "moved_documents": part("movedDocuments"),
            "message": part("message"),
        } })),
        Content::IndexCompaction { index } => Some(json!({ "IndexCompaction": {
            "index_uid": index,
            "pre_compaction_size": part("preCompactionSize"),
            "post_compaction_size": part("postCompactionSize"),
        } })),
        Content::Export { request } => Some(json!({ "Export": {
            "url": request.url,
            "api_key": request.api_key,
            "payload_size": part("payloadSize"),
            "indexes": part("indexes"),
        } })),
        _ => None,
    }
}

/// The parts of details, without their name.
pub fn inner(details: &Value) -> Option<&Map<String, Value>> {
    details.as_object()?.values().next()?.as_object()
}

/// A whole number among the parts.
pub fn number(parts: Option<&Map<String, Value>>, name: &str) -> Option<u64> {
    parts?.get(name)?.as_u64()
}

/// What the details say of the outcome, and of an index's names before and after.
pub fn outcome(content: &Content, parts: Option<&Map<String, Value>>) -> (Outcome, Option<[String; 2]>) {
    let text = |name: &str| parts.and_then(|parts| parts.get(name)).and_then(Value::as_str);
    let size = |name: &str| text(name).and_then(|text| text.parse::<ByteSize>().ok()).map(|size| size.0);
    let documents = |name: &str| number(parts, name).map(Outcome::Documents);
    let found = match content {
        Content::DocumentAddition { .. } => documents("indexed_documents"),
        Content::DocumentEdition { .. } => documents("edited_documents"),
        Content::DocumentDeletion { .. }
        | Content::DocumentDeletionByFilter { .. }
        | Content::DocumentClear { .. }
        | Content::IndexDeletion { .. } => documents("deleted_documents"),
        Content::TaskCancelation { .. } => number(parts, "canceled_tasks").map(Outcome::Tasks),
        Content::TaskDeletion { .. } => number(parts, "deleted_tasks").map(Outcome::Tasks),
        Content::DumpCreation => text("dump_uid").map(|uid| Outcome::Dump(uid.into())),
        Content::IndexCompaction { .. } => size("pre_compaction_size")
            .zip(size("post_compaction_size"))
            .map(|(before, after)| Outcome::Sizes { before, after }),
        Content::Export { .. } => parts.map(|parts| Outcome::Shown(shown_export(parts))),
        Content::IndexUpdate { .. } => {
            let names = text("old_index_uid").zip(text("new_index_uid"));
            return (Outcome::Nothing, names.map(|(old, new)| [old.into(), new.into()]));
        }
        _ => None,
    };
    (found.unwrap_or_default(), None)
}

/// The details of an export as clients see them, its key hidden.
fn shown_export(parts: &Map<String, Value>) -> Map<String, Value> {
    let part = |name: &str| parts.get(name).filter(|value| !value.is_null()).cloned();
    let key = part("api_key").and_then(|key| key.as_str().map(|key| Value::from(mask(key))));
    let entries =
        [("url", part("url")), ("apiKey", key), ("payloadSize", part("payload_size")), ("indexes", part("indexes"))];
    entries.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

/// The details of a task of a kind that this server never makes, as clients see them.
pub fn shown_foreign(parts: Option<&Map<String, Value>>) -> Map<String, Value> {
    let version = |value: &Value| -> Option<Value> {
        let numbers: Vec<String> = value.as_array()?.iter().map(Value::to_string).collect();
        Some(format!("v{}", numbers.join(".")).into())
    };
    let shown = |(name, value): (&String, &Value)| match name.as_str() {
        "from" => ("upgradeFrom".to_string(), version(value).unwrap_or_default()),
        "to" => ("upgradeTo".to_string(), version(value).unwrap_or_default()),
        "moved_documents" => ("movedDocuments".to_string(), value.clone()),
        _ => (name.clone(), value.clone()),
    };
    parts.into_iter().flatten().map(shown).collect()
}
