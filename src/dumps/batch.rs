//! Batches in a dump, one per line.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shards::timestamp::Timestamp;

use crate::tasks::batch::{Batch, EmbedderRequests, Stats};
use crate::tasks::task::{BatchUid, Kind, Status};

/// A line of `batches/queue.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchLine {
    uid: BatchUid,
    #[serde(default)]
    details: Map<String, Value>,
    #[serde(default)]
    stats: StatsLine,
    started_at: String,
    #[serde(default)]
    finished_at: Option<String>,
    #[serde(default)]
    enqueued_at: Option<EnqueuedLine>,
    #[serde(default)]
    stop_reason: Value,
    /// Beyond the format: see [`Batch::also_under`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    also_under: BTreeSet<String>,
    /// Beyond the format: see [`Stats::embedder_requests`].
    #[serde(default, skip_serializing_if = "EmbedderRequests::is_empty")]
    embedder_requests: EmbedderRequests,
    /// Beyond the format: see [`Stats::stages`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stages: Vec<(String, u64)>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatsLine {
    total_nb_tasks: u64,
    status: BTreeMap<Status, u64>,
    types: BTreeMap<Kind, u64>,
    index_uids: BTreeMap<String, u64>,
    progress_trace: Map<String, Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct EnqueuedLine {
    earliest: String,
    oldest: String,
}

/// The line of a finished batch.
pub fn line(batch: Batch) -> BatchLine {
    let Batch { uid, details, stats, started_at, finished_at, enqueued, strategy, also_under } = batch;
    BatchLine {
        uid,
        details,
        stats: StatsLine {
            total_nb_tasks: stats.total,
            status: stats.status,
            types: stats.kinds,
            index_uids: stats.indexes,
            progress_trace: Map::new(),
        },
        started_at: started_at.to_string(),
        finished_at: finished_at.map(|date| date.to_string()),
        enqueued_at: enqueued
            .map(|[first, last]| EnqueuedLine { earliest: first.to_string(), oldest: last.to_string() }),
        stop_reason: strategy.into(),
        also_under,
        embedder_requests: stats.embedder_requests,
        stages: stats.stages,
    }
}

/// The batch of a line; `None` for one that had not ended.
///
/// # Errors
/// What is wrong with the line, for people.
pub fn batch(line: BatchLine) -> Result<Option<Batch>, String> {
    let date = |text: &str| Timestamp::parse_rfc3339(text).ok_or_else(|| format!("`{text}` is no date"));
    let Some(finished_at) = &line.finished_at else { return Ok(None) };
    let enqueued = match &line.enqueued_at {
        Some(dates) => {
            let mut dates = [date(&dates.earliest)?, date(&dates.oldest)?];
            dates.sort();
            Some(dates)
        }
        None => None,
    };
    let StatsLine { total_nb_tasks: total, status, types: kinds, index_uids: indexes, .. } = line.stats;
    Ok(Some(Batch {
        uid: line.uid,
        details: line.details,
        stats: Stats { total, status, kinds, indexes, embedder_requests: line.embedder_requests, stages: line.stages },
        started_at: date(&line.started_at)?,
        finished_at: Some(date(finished_at)?),
        enqueued,
        strategy: match line.stop_reason {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        },
        also_under: line.also_under,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_come_back() {
        let batch = Batch {
            uid: BatchUid(7),
            details: Map::from_iter([("deletedDocuments".to_string(), 3.into())]),
            stats: Stats {
                total: 3,
                status: BTreeMap::from([(Status::Succeeded, 2), (Status::Failed, 1)]),
                kinds: BTreeMap::from([(Kind::IndexSwap, 1), (Kind::DocumentDeletion, 2)]),
                indexes: BTreeMap::from([("a".to_string(), 2)]),
                embedder_requests: EmbedderRequests { total: 3, failed: 1, last_error: Some("it slept".into()) },
                stages: vec![("reading operations".into(), 5)],
            },
            started_at: Timestamp(10),
            finished_at: Some(Timestamp(20)),
            enqueued: Some([Timestamp(1), Timestamp(2)]),
            strategy: "it was enough".into(),
            also_under: BTreeSet::from(["b".to_string()]),
        };
        let text = serde_json::to_string(&line(batch.clone())).unwrap();
        assert_eq!(self::batch(serde_json::from_str(&text).unwrap()), Ok(Some(batch)));
        let running = r#"{"uid":1,"startedAt":"2024-01-01T00:00:00Z","stopReason":{"other":1}}"#;
        assert_eq!(self::batch(serde_json::from_str(running).unwrap()), Ok(None));
    }
}
