//! Tasks that were processed together: the record of it, and how clients see it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use shards::stages::{Stage, StageProgress};
use shards::timestamp::Timestamp;

use super::filter::Scope;
use super::task::{BatchUid, Content, Kind, Status, Task};
use super::view;
use crate::api::settings::SettingsPatch;

/// A finished batch, as it is kept. Later renames of indexes and deletions of tasks do not change it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// Its number.
    pub uid: BatchUid,
    /// The details of its tasks put together.
    pub details: Map<String, Value>,
    /// Its tasks in numbers.
    pub stats: Stats,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; `None` while it is being processed.
    pub finished_at: Option<Timestamp>,
    /// When the first and the last of its tasks were accepted.
    pub enqueued: Option<[Timestamp; 2]>,
    /// Why it holds no more tasks.
    pub strategy: String,
    /// Names of indexes that find it beside those in the stats: of swaps and renames.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub also_under: BTreeSet<String>,
}

/// The step around all others.
pub const PROCESSING: &str = "processing tasks";

/// How many tasks of which sort a batch holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// All of them.
    pub total: u64,
    /// By status.
    pub status: BTreeMap<Status, u64>,
    /// By type.
    pub kinds: BTreeMap<Kind, u64>,
    /// By name of the index, as it was then.
    pub indexes: BTreeMap<String, u64>,
    /// What it asked of embedding services.
    #[serde(default, skip_serializing_if = "EmbedderRequests::is_empty")]
    pub embedder_requests: EmbedderRequests,
    /// Stages of its work on an index, with the nanoseconds that each took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<(String, u64)>,
}

/// Requests to embedding services; one that is tried again counts again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbedderRequests {
    /// All that were sent.
    pub total: u64,
    /// Those that gave no vectors.
    pub failed: u64,
    /// What happened to the last of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// How far the batch in progress is, as `[step, finished, total]` from the outermost inwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The step in work, the steps done before it, and all of them.
    pub steps: Vec<(String, u64, u64)>,
}

/// Puts a batch's record together, task by task.
#[derive(Default)]
pub struct BatchBuilder {
    details: Map<String, Value>,
    settings: Option<SettingsPatch>,
    stats: Stats,
    enqueued: Option<[Timestamp; 2]>,
    also_under: BTreeSet<String>,
}

impl BatchBuilder {
    /// Counts a task in. Its details join those before: numbers are added, lists joined, filters joined by `&`, of other
    /// values the first stays; of settings the last wins.
    pub fn add(&mut self, task: &Task) {
        self.stats.total += 1;
        *self.stats.status.entry(task.status).or_default() += 1;
        *self.stats.kinds.entry(task.kind()).or_default() += 1;
        match task.content.index() {
            Some(index) if self.stats.indexes.contains_key(index) => {
                self.stats.indexes.entry(index.into()).and_modify(|count| *count += 1);
            }
            Some(index) => {
                self.stats.indexes.insert(index.into(), 1);
            }
            None => {}
        }
        if matches!(task.kind(), Kind::IndexSwap | Kind::IndexUpdate) {
            self.also_under.extend(task.content.index_names().into_iter().map(String::from));
        }
        let [first, last] = self.enqueued.unwrap_or([task.enqueued_at; 2]);
        self.enqueued = Some([first.min(task.enqueued_at), last.max(task.enqueued_at)]);
        if let Content::Settings { change, .. } = &task.content {
            self.settings = Some(self.settings.take().unwrap_or_default().followed_by(change));
            return;
        }
        for (name, value) in view::details(task).unwrap_or_default() {
            match self.details.get_mut(&name) {
                None => {
                    self.details.insert(name, value);
                }
                Some(old) => merge(&name, old, value),
            }
        }
    }

    /// The record. Of a finished batch, details that came to nothing are left out; a setting that is null says something.
    pub fn build(mut self, uid: BatchUid, dates: (Timestamp, Option<Timestamp>), strategy: String) -> Batch {
        let (started_at, finished_at) = dates;
        if finished_at.is_some() {
            self.details.retain(|_, value| !value.is_null());
        }
        if let Some(settings) = &self.settings {
            self.details.extend(settings.details());
        }
        let Self { details, stats, enqueued, also_under, .. } = self;
        Batch { uid, details, stats, started_at, finished_at, enqueued, strategy, also_under }
    }
}

impl Stats {
    /// Adds how long stages took; a batch may come to work on an index more than once.
    pub fn add_stages(&mut self, stages: &[(Stage, Duration)]) {
        for (stage, took) in stages {
            let (name, took) = (stage.name(), took.as_nanos() as u64);
            match self.stages.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += took,
                None => self.stages.push((name.to_owned(), took)),
            }
        }
    }
}

impl EmbedderRequests {
    /// Whether nothing was sent: clients then see nothing of it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds later ones.
    pub fn add(&mut self, more: Self) {
        self.total += more.total;
        self.failed += more.failed;
        self.last_error = more.last_error.or(self.last_error.take());
    }

    /// The object that clients see.
    fn object(&self) -> Value {
        let mut object = json!({ "total": self.total, "failed": self.failed });
        if let Some(error) = &self.last_error {
            object["lastError"] = error.as_str().into();
        }
        object
    }
}

impl Batch {
    /// Whether a key of this scope sees it: at least one of its tasks is of an index that the key covers.
    pub fn is_shown(&self, scope: &Scope) -> bool {
        *scope == Scope::All || self.stats.indexes.keys().any(|index| scope.covers(index))
    }

    /// How long it took, and of that each stage of its work on an index, by their names; empty while it is being processed.
    pub fn trace(&self) -> Vec<(String, Duration)> {
        let Some(finished_at) = self.finished_at else { return Vec::new() };
        let stages = self.stats.stages.iter();
        let stages = stages.map(|(name, nanos)| (format!("{PROCESSING} > {name}"), Duration::from_nanos(*nanos)));
        stages.chain([(PROCESSING.to_owned(), finished_at.since(self.started_at))]).collect()
    }

    /// The object that clients see; `progress` only while it is being processed.
    pub fn object(&self, progress: Option<&Progress>) -> Value {
        let named = |(name, count): (&str, &u64)| (name.to_string(), Value::from(*count));
        let status: Map<_, _> = self.stats.status.iter().map(|(status, n)| named((status.name(), n))).collect();
        let kinds: Map<_, _> = self.stats.kinds.iter().map(|(kind, n)| named((kind.name(), n))).collect();
        let indexes: Map<_, _> = self.stats.indexes.iter().map(|(index, n)| named((index, n))).collect();
        let took = self.finished_at.map(|end| end.since(self.started_at));
        let trace: Map<String, Value> =
            self.trace().into_iter().map(|(step, took)| (step, format!("{took:.2?}").into())).collect();
        let mut object = json!({
            "uid": self.uid.0,
            "progress": progress.map(Progress::object),
            "details": self.details,
            "stats": {
                "totalNbTasks": self.stats.total,
                "status": status,
                "types": kinds,
                "indexUids": indexes,
                "progressTrace": trace,
            },
            "duration": took.map(view::duration),
            "startedAt": self.started_at.to_string(),
            "finishedAt": self.finished_at.map(|date| date.to_string()),
            "batchStrategy": self.strategy,
        });
        if !self.stats.embedder_requests.is_empty() {
            object["stats"]["embedderRequests"] = self.stats.embedder_requests.object();
        }
        object
    }
}

impl Progress {
    /// That of a batch whose work on an index is there.
    pub fn of_stage(progress: &StageProgress) -> Self {
        let StageProgress { stage, finished, total } = *progress;
        Self { steps: vec![Self::outer(stage as u64), (stage.name().to_owned(), finished, total)] }
    }

    /// That of a batch whose work on an index is being made durable.
    pub fn committing() -> Self {
        Self { steps: vec![Self::outer(Stage::ALL.len() as u64), ("committing".to_owned(), 0, 1)] }
    }

    /// The step around stages, of which so many are done; the commit is one more.
    fn outer(finished: u64) -> (String, u64, u64) {
        (PROCESSING.to_owned(), finished, Stage::ALL.len() as u64 + 1)
    }

    /// The object that clients see. The percentage counts a step by its share of the step around it.
    fn object(&self) -> Value {
        let mut percentage = 0.0;
        let mut share = 100.0;
        for (_, finished, total) in &self.steps {
            let total = (*total).max(1) as f64;
            percentage += share * (*finished as f64).min(total) / total;
            share /= total;
        }
        let steps: Vec<Value> = self
            .steps
            .iter()
            .map(|(step, finished, total)| json!({ "currentStep": step, "finished": finished, "total": total }))
            .collect();
        json!({ "steps": steps, "percentage": percentage })
    }
}

fn merge(name: &str, old: &mut Value, new: Value) {
    match (old, new) {
        (old @ Value::Null, new) => *old = new,
        (_, Value::Null) => {}
        (Value::Array(old), Value::Array(new)) => old.extend(new),
        (Value::String(old), Value::String(new)) if name == "originalFilter" => {
            old.push('&');
            old.push_str(&new);
        }
        (old, new) => {
            if let (Some(a), Some(b)) = (old.as_u64(), new.as_u64()) {
                *old = a.saturating_add(b).into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::task::{NewTask, Outcome, TaskUid};

    fn task(uid: u32, content: Content, status: Status, outcome: Outcome) -> Task {
        let mut task = Task::accepted(TaskUid(uid), NewTask::from(content), Timestamp(i64::from(uid)));
        (task.status, task.outcome) = (status, outcome);
        task
    }

    fn deletion(uid: u32, ids: usize, status: Status, count: u64) -> Task {
        let content = Content::DocumentDeletion { index: "a".into(), ids: vec![""; ids].iter().collect() };
        task(uid, content, status, Outcome::Documents(count))
    }

    fn settings(uid: u32, change: Value) -> Task {
        let change = SettingsPatch::decode(&change).unwrap();
        let content = Content::Settings { index: "a".into(), change, is_reset: false, may_create_index: true };
        task(uid, content, Status::Succeeded, Outcome::Nothing)
    }

    fn batch(uid: u32, tasks: &[Task], dates: (Timestamp, Option<Timestamp>)) -> Batch {
        let mut builder = BatchBuilder::default();
        tasks.iter().for_each(|task| builder.add(task));
        builder.build(BatchUid(uid), dates, String::new())
    }

    fn details(tasks: &[Task], finished: bool) -> Value {
        let end = finished.then_some(Timestamp(9));
        batch(0, tasks, (Timestamp(0), end)).details.into()
    }

    #[test]
    fn numbers_add_up_and_filters_are_joined() {
        let filter = |uid, text: &str, status| {
            let content = Content::DocumentDeletionByFilter { index: "a".into(), filter: json!(text) };
            task(uid, content, status, Outcome::Documents(1))
        };
        let tasks = [
            filter(0, "v = 1", Status::Succeeded),
            deletion(1, 2, Status::Succeeded, 1),
            filter(2, "nope = 1", Status::Failed),
        ];
        let wanted = json!({"providedIds": 2, "deletedDocuments": 2, "originalFilter": "\"v = 1\"&\"nope = 1\""});
        assert_eq!(details(&tasks, true), wanted);
        assert_eq!(details(&tasks[1..2], true), json!({"providedIds": 2, "deletedDocuments": 1}));
        assert_eq!(details(&tasks[1..2], false)["originalFilter"], Value::Null);
    }

    #[test]
    fn later_settings_win_and_keep_their_nulls() {
        let tasks = [
            settings(0, json!({"sortableAttributes": ["v"], "typoTolerance": {"enabled": true}})),
            settings(1, json!({"sortableAttributes": null, "typoTolerance": {"disableOnWords": []}})),
        ];
        let wanted = json!({"sortableAttributes": null, "typoTolerance": {"enabled": true, "disableOnWords": []}});
        assert_eq!(details(&tasks, true), wanted);
    }

    #[test]
    fn stats_count_by_status_type_and_index() {
        let tasks = [
            deletion(3, 1, Status::Succeeded, 1),
            deletion(4, 1, Status::Failed, 0),
            task(5, Content::DumpCreation, Status::Succeeded, Outcome::Nothing),
        ];
        let batch = batch(1, &tasks, (Timestamp(10), Some(Timestamp(1_000_010))));
        let wanted = json!({
            "totalNbTasks": 3, "status": {"succeeded": 2, "failed": 1},
            "types": {"documentDeletion": 2, "dumpCreation": 1}, "indexUids": {"a": 2},
            "progressTrace": {"processing tasks": "1.00ms"},
        });
        let object = batch.object(None);
        assert_eq!(object["stats"], wanted);
        assert_eq!((&object["duration"], &object["progress"]), (&json!("PT0.001S"), &Value::Null));
        assert_eq!(batch.enqueued, Some([Timestamp(3), Timestamp(5)]));
        let bytes = serde_json::to_vec(&batch).unwrap();
        assert_eq!(serde_json::from_slice::<Batch>(&bytes).unwrap(), batch);
    }

    #[test]
    fn requests_add_up_and_the_last_error_stays() {
        let mut batch = batch(0, &[], (Timestamp(0), None));
        // As earlier versions wrote it.
        let silent = serde_json::to_value(&batch).unwrap();
        assert_eq!(silent["stats"].get("embedderRequests"), None);
        assert_eq!(serde_json::from_value::<Batch>(silent).unwrap(), batch);
        assert_eq!(batch.object(None)["stats"].get("embedderRequests"), None);
        let failed = |why: &str| EmbedderRequests { total: 0, failed: 1, last_error: Some(why.into()) };
        let sent = || EmbedderRequests { total: 1, ..EmbedderRequests::default() };
        let requests = &mut batch.stats.embedder_requests;
        requests.add(sent());
        assert_eq!(requests.object(), json!({"total": 1, "failed": 0}));
        [failed("a"), sent(), failed("b"), sent()].into_iter().for_each(|more| requests.add(more));
        let wanted = json!({"total": 3, "failed": 2, "lastError": "b"});
        assert_eq!(batch.object(None)["stats"]["embedderRequests"], wanted);
        let bytes = serde_json::to_vec(&batch).unwrap();
        assert_eq!(serde_json::from_slice::<Batch>(&bytes).unwrap(), batch);
    }

    #[test]
    fn stages_are_steps_within_the_work_of_the_batch() {
        let mut batch = batch(0, &[], (Timestamp(0), Some(Timestamp(9_000_000))));
        let stages = |millis: u64| {
            [(Stage::Reading, Duration::from_micros(100)), (Stage::Finishing, Duration::from_millis(millis))]
        };
        batch.stats.add_stages(&stages(1));
        batch.stats.add_stages(&stages(2));
        let wanted = json!({
            "processing tasks > reading operations": "200.00µs",
            "processing tasks > finishing partitions": "3.00ms",
            "processing tasks": "9.00ms",
        });
        assert_eq!(batch.object(None)["stats"]["progressTrace"], wanted);
        let bytes = serde_json::to_vec(&batch).unwrap();
        assert_eq!(serde_json::from_slice::<Batch>(&bytes).unwrap(), batch);
        let share = |stage, finished| {
            let progress = Progress::of_stage(&StageProgress { stage, finished, total: 4 }).object();
            progress["percentage"].as_f64().unwrap().round() as u64
        };
        assert_eq!([share(Stage::Reading, 0), share(Stage::Applying, 2), share(Stage::Cataloging, 4)], [0, 25, 83]);
        assert_eq!(Progress::committing().object()["percentage"].as_f64().unwrap().round(), 83.0);
    }

    #[test]
    fn inner_steps_are_shares_of_outer_ones() {
        let progress = Progress { steps: vec![("outer".into(), 1, 4), ("inner".into(), 5, 10)] };
        assert_eq!(progress.object()["percentage"], json!(37.5));
        assert_eq!(Progress::default().object(), json!({"steps": [], "percentage": 0.0}));
    }
}
