//! Tasks as clients see them.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::task::{BatchUid, Content, Outcome, Status, Swap, Task, TaskError, TaskUid};
use crate::api::error::{ApiError, ErrorCode};

/// Bytes of a page of storage sizes' units, smallest first.
const BINARY_UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// What the client gets for an accepted write.
pub fn summary(task: &Task) -> Value {
    let mut object = json!({
        "taskUid": task.uid.0,
        "indexUid": task.content.index(),
        "status": task.status.name(),
        "type": task.kind().name(),
        "enqueuedAt": task.enqueued_at.to_string(),
    });
    if let Some(words) = &task.custom_metadata {
        object["customMetadata"] = words.as_str().into();
    }
    object
}

/// The complete task object.
pub fn object(task: &Task) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.into(), value);
    put("uid", task.uid.0.into());
    put("batchUid", task.batch.map(|BatchUid(uid)| uid).into());
    put("indexUid", task.content.index().into());
    put("status", task.status.name().into());
    put("type", task.kind().name().into());
    put("canceledBy", task.canceled_by.map(|TaskUid(uid)| uid).into());
    if let Some(details) = details(task) {
        put("details", details.into());
    }
    put("error", task.error.as_ref().map(error).into());
    put("duration", task.started_at.zip(task.finished_at).map(|(start, end)| duration(end.since(start))).into());
    put("enqueuedAt", task.enqueued_at.to_string().into());
    put("startedAt", task.started_at.map(|date| date.to_string()).into());
    put("finishedAt", task.finished_at.map(|date| date.to_string()).into());
    if let Some(words) = &task.custom_metadata {
        put("customMetadata", words.as_str().into());
    }
    if let Some(network) = &task.network {
        put("network", network.object());
    }
    object.into()
}

/// A failed task's error with all four fields.
pub fn error(error: &TaskError) -> Value {
    let code = ErrorCode::from_name(&error.code).unwrap_or(ErrorCode::Internal);
    let shown = ApiError::new(code, error.message.as_str()).object();
    json!({ "message": shown.message, "code": shown.code, "type": shown.kind, "link": shown.link })
}

/// What a task was given and what came of it. `None` for the kinds that show nothing at all.
pub fn details(task: &Task) -> Option<Map<String, Value>> {
    let count = count(task);
    let details = match &task.content {
        Content::DocumentAddition { received, .. } => {
            json!({ "receivedDocuments": received, "indexedDocuments": count })
        }
        Content::DocumentDeletion { ids, .. } => {
            let provided = task.ids_apart.unwrap_or(ids.len() as u64);
            json!({ "providedIds": provided, "deletedDocuments": count, "originalFilter": null })
        }
        Content::DocumentDeletionByFilter { filter, .. } => {
            json!({ "providedIds": 0, "deletedDocuments": count, "originalFilter": filter.to_string() })
        }
        Content::DocumentClear { .. } | Content::IndexDeletion { .. } => json!({ "deletedDocuments": count }),
        Content::DocumentEdition { filter, context, function, .. } => {
            // The reference shows the number of chosen documents twice, and only one zero after a failure.
            let deleted = if task.status == Status::Succeeded { count.clone() } else { Value::Null };
            json!({
                "editedDocuments": count,
                "deletedDocuments": deleted,
                "originalFilter": filter.as_ref().map(Value::to_string),
                "context": context,
                "function": function,
            })
        }
        Content::Settings { change, .. } => return Some(change.details()),
        Content::IndexCreation { primary_key, .. } => json!({ "primaryKey": primary_key }),
        Content::IndexUpdate { primary_key, renamed: None, .. } => json!({ "primaryKey": primary_key }),
        Content::IndexUpdate { primary_key, renamed: Some([old, new]), .. } => {
            json!({ "primaryKey": primary_key, "oldIndexUid": old, "newIndexUid": new })
        }
        Content::IndexSwap { swaps } => json!({ "swaps": swaps.iter().map(swap).collect::<Vec<_>>() }),
        Content::IndexCompaction { .. } => match task.outcome {
            Outcome::Sizes { before, after } => {
                json!({ "preCompactionSize": size(before), "postCompactionSize": size(after) })
            }
            _ => json!({}),
        },
        Content::TaskCancelation { query, tasks } => {
            json!({ "matchedTasks": tasks.len(), "canceledTasks": count, "originalFilter": query })
        }
        Content::TaskDeletion { query, tasks } => {
            json!({ "matchedTasks": tasks.len(), "deletedTasks": count, "originalFilter": query })
        }
        Content::DumpCreation => match &task.outcome {
            Outcome::Dump(uid) => json!({ "dumpUid": uid }),
            _ => json!({ "dumpUid": null }),
        },
        Content::SnapshotCreation => return None,
        Content::Foreign { shown, .. } => return Some(shown.clone()),
        Content::NetworkTopologyChange { change } => match &task.outcome {
            Outcome::Shown(shown) => return Some(shown.clone()),
            _ => return Some(change.details(0, "The change of the topology has not ended.")),
        },
        Content::Export { request } => match &task.outcome {
            Outcome::Shown(shown) => return Some(shown.clone()),
            _ => return Some(request.details()),
        },
    };
    match details {
        Value::Object(details) => Some(details),
        _ => None,
    }
}

/// A number that is null while it is not known, and 0 when the task came to nothing.
fn count(task: &Task) -> Value {
    match (task.status, &task.outcome) {
        (Status::Failed | Status::Canceled, _) => 0.into(),
        (_, Outcome::Documents(count) | Outcome::Tasks(count)) => (*count).into(),
        _ => Value::Null,
    }
}

/// One pair of a swap.
pub fn swap(swap: &Swap) -> Value {
    json!({ "indexes": swap.indexes, "rename": swap.rename })
}

/// ISO 8601: days, then seconds with a fraction of 3, 6 or 9 digits, none when it is zero.
pub fn duration(duration: Duration) -> String {
    const DAY_SECONDS: u64 = 86_400;
    let (days, seconds) = (duration.as_secs() / DAY_SECONDS, duration.as_secs() % DAY_SECONDS);
    let days = if days > 0 { format!("{days}D") } else { String::new() };
    let fraction = match duration.subsec_nanos() {
        0 => String::new(),
        nanos if nanos % 1_000_000 == 0 => format!(".{:03}", nanos / 1_000_000),
        nanos if nanos % 1_000 == 0 => format!(".{:06}", nanos / 1_000),
        nanos => format!(".{nanos:09}"),
    };
    format!("P{days}T{seconds}{fraction}S")
}

/// Bytes for people: the largest binary unit that leaves at least 1, with at most two digits of fraction.
pub fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut scaled = bytes as f64;
    while scaled >= 1024.0 && unit + 1 < BINARY_UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = format!("{scaled:.2}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits} {}", BINARY_UNITS[unit])
}

#[cfg(test)]
mod tests {
    use shards::timestamp::Timestamp;

    use super::*;
    use crate::tasks::task::{Format, Method, NewTask};

    #[test]
    fn durations_keep_seconds_whole_and_fractions_in_threes() {
        let shown = |nanos| duration(Duration::from_nanos(nanos));
        assert_eq!(shown(0), "PT0S");
        assert_eq!(shown(1_000_000), "PT0.001S");
        assert_eq!(shown(1_500_000), "PT0.001500S");
        assert_eq!(shown(12_000_000_001), "PT12.000000001S");
        assert_eq!(shown(7_200_000_000_000), "PT7200S");
        assert_eq!(shown(86_400_000_000_000), "P1DT0S");
        assert_eq!(shown(90_061_500_000_000 + 86_400_000_000_000), "P2DT3661.500S");
    }

    #[test]
    fn sizes_have_a_binary_unit() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(69_632), "68 KiB");
        assert_eq!(size(1_572_864), "1.5 MiB");
        assert_eq!(size(u64::MAX), "16777216 TiB");
    }

    fn addition() -> Task {
        let content = Content::DocumentAddition {
            index: "films".into(),
            format: Format::Json,
            method: Method::Replace,
            primary_key: None,
            may_create_index: true,
            skip_creation: false,
            received: 3,
            payload_bytes: 10,
        };
        Task::accepted(TaskUid(7), NewTask::new(content, Some(String::new())), Timestamp(0))
    }

    #[test]
    fn counts_are_null_while_unknown_and_zero_after_a_failure() {
        let mut task = addition();
        assert_eq!(object(&task)["details"], json!({"receivedDocuments": 3, "indexedDocuments": null}));
        assert_eq!(object(&task)["customMetadata"], "");
        task.status = Status::Succeeded;
        task.outcome = Outcome::Documents(2);
        assert_eq!(object(&task)["details"]["indexedDocuments"], 2);
        task.status = Status::Canceled;
        assert_eq!(object(&task)["details"]["indexedDocuments"], 0);
    }

    #[test]
    fn the_object_has_its_fields_in_every_state() {
        let mut task = addition();
        let names = |task: &Task| object(task).as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        let all = "uid batchUid indexUid status type canceledBy details error duration enqueuedAt startedAt finishedAt \
                   customMetadata";
        assert_eq!(names(&task), all);
        task.content = Content::SnapshotCreation;
        task.custom_metadata = None;
        assert_eq!(names(&task), all.replace("details ", "").replace(" customMetadata", ""));
    }

    #[test]
    fn records_survive_storage() {
        let mut task = addition();
        task.content = Content::TaskDeletion { query: "?uids=1".into(), tasks: [1, 5, 70_000].into_iter().collect() };
        task.error = Some(TaskError { code: "internal".into(), message: "x".into() });
        let bytes = serde_json::to_vec(&task).unwrap();
        assert_eq!(serde_json::from_slice::<Task>(&bytes).unwrap(), task);
    }
}
