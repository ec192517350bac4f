use serde_json::Value;

use super::*;
use crate::tasks::task::NewTask;

fn finished(content: Content, outcome: Outcome) -> Task {
    Task {
        status: Status::Succeeded,
        batch: Some(BatchUid(3)),
        outcome,
        started_at: Some(Timestamp(1_700_000_000_123_456_789)),
        finished_at: Some(Timestamp(1_700_000_001_000_000_000)),
        ..Task::accepted(TaskUid(5), NewTask::new(content, Some("mine".into())), Timestamp(7))
    }
}

fn round_trip(task: &Task) -> Task {
    let text = serde_json::to_string(&line(task)).unwrap();
    super::task(serde_json::from_str(&text).unwrap()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn patch(value: Value) -> SettingsPatch {
    SettingsPatch::decode(&value).unwrap()
}

fn contents() -> Vec<(Content, Outcome)> {
    let index = || "films".to_string();
    let sizes = Outcome::Sizes { before: 2 << 20, after: 1 << 20 };
    vec![
        (
            Content::DocumentAddition {
                index: index(),
                format: Format::Ndjson,
                method: Method::Update,
                primary_key: Some("id".into()),
                may_create_index: true,
                skip_creation: true,
                received: 4,
                payload_bytes: 0,
            },
            Outcome::Documents(3),
        ),
        (Content::DocumentDeletion { index: index(), ids: ["a", "b"].iter().collect() }, Outcome::Documents(1)),
        (
            Content::DocumentDeletionByFilter { index: index(), filter: json!(["a = 1", ["b = 2"]]) },
            Outcome::Documents(1),
        ),
        (Content::DocumentClear { index: index() }, Outcome::Documents(9)),
        (
            Content::DocumentEdition {
                index: index(),
                filter: Some(json!("a = 1")),
                context: Some(Map::from_iter([("k".to_string(), 1.into())])),
                function: "doc.a = 2".into(),
            },
            Outcome::Documents(2),
        ),
        (
            Content::Settings {
                index: index(),
                change: patch(
                    json!({"stopWords": null, "embedders": {"e": {"source": "openAi", "apiKey": "secret-secret"}}}),
                ),
                is_reset: false,
                may_create_index: true,
            },
            Outcome::Nothing,
        ),
        (Content::IndexCreation { index: index(), primary_key: None }, Outcome::Nothing),
        (
            Content::IndexUpdate {
                index: index(),
                primary_key: None,
                new_index: Some("new".into()),
                renamed: Some([index(), "new".into()]),
            },
            Outcome::Nothing,
        ),
        (Content::IndexDeletion { index: index() }, Outcome::Documents(0)),
        (Content::IndexSwap { swaps: vec![Swap { indexes: [index(), "b".into()], rename: true }] }, Outcome::Nothing),
        (Content::IndexCompaction { index: index() }, sizes),
        (
            Content::TaskCancelation { query: "?uids=1".into(), tasks: [1, 70_000].into_iter().collect() },
            Outcome::Tasks(1),
        ),
        (Content::TaskDeletion { query: "?uids=1".into(), tasks: [1].into_iter().collect() }, Outcome::Tasks(0)),
        (Content::DumpCreation, Outcome::Dump("20240101-000000000".into())),
        (Content::SnapshotCreation, Outcome::Nothing),
    ]
}

/// Whatever a task is about, a dump brings back what it was, what came of it, and how clients see it.
#[test]
fn tasks_come_back() {
    for (content, outcome) in contents() {
        let task = finished(content, outcome);
        assert_eq!(round_trip(&task), task);
        let waiting = Task::accepted(TaskUid(5), task.content.clone().into(), Timestamp(7));
        assert_eq!(round_trip(&waiting), waiting);
        let error = Some(TaskError { code: "internal".into(), message: "it went wrong".into() });
        let failed = Task { status: Status::Failed, outcome: Outcome::Nothing, error, ..task };
        let shown = |task: &Task| crate::tasks::view::object(task);
        assert_eq!(shown(&round_trip(&failed)), shown(&failed));
    }
}

#[test]
fn exports_keep_their_key_hidden() {
    let indexes = json!({"films*": {"filter": "a = 1", "overrideSettings": true}});
    let request = ExportRequest {
        url: "http://h.example".into(),
        api_key: Some("a-key-of-some-length".into()),
        payload_bytes: Some(2500),
        indexes: serde_json::from_value(indexes).unwrap(),
    };
    let shown = request.details();
    let task = finished(Content::Export { request }, Outcome::Shown(shown));
    assert_eq!(round_trip(&task), task);
    let line = line(&task);
    assert_eq!(line.kind["export"]["api_key"], "a-key-of-some-length");
    assert_eq!(line.kind["export"]["payload_size"], "2.44140625 KiB");
}

/// Kinds that this server never makes are shown as they were, and dumped again as they came.
#[test]
fn foreign_tasks_pass_through() {
    let text = r#"{"uid":1,"batchUid":0,"indexUid":null,"status":"succeeded","type":{"upgradeDatabase":{"from":[1,2,3]}},"details":{"UpgradeDatabase":{"from":[1,2,3],"to":[1,41,0]}},"enqueuedAt":"2024-03-04T05:06:07.123456789Z","startedAt":"2024-03-04T05:06:07.123456789Z","finishedAt":"2024-03-04T05:06:07.123456789Z"}"#;
    let task = super::task(serde_json::from_str(text).unwrap()).unwrap();
    assert_eq!(crate::tasks::view::object(&task)["details"], json!({"upgradeFrom": "v1.2.3", "upgradeTo": "v1.41.0"}));
    assert_eq!(serde_json::to_string(&line(&task)).unwrap(), text);
    let unknown = text.replace("upgradeDatabase", "lunchBreak");
    assert!(super::task(serde_json::from_str(&unknown).unwrap()).is_err());
}

/// A task that was being processed when the dump was made had no effect in it.
#[test]
fn interrupted_tasks_wait_again() {
    let mut task = finished(Content::SnapshotCreation, Outcome::Nothing);
    task.status = Status::Processing;
    let waiting = round_trip(&task);
    assert_eq!((waiting.status, waiting.batch, waiting.started_at), (Status::Enqueued, None, None));
}
