//! `GET /metrics`: counters and gauges in Prometheus format.
//!
//! The limits of the task queue's store are omitted, because here it is limited only by the disk.

use shards::engine::StoreBytes;
use shards::timestamp::Timestamp;

use super::error::ApiError;
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::archive::aside;
use crate::auth::AuthError;
use crate::control::ControlState;
use crate::control::message::ControlFigures;
use crate::http::Response;
use crate::metrics::{Exposition, ProcessFigures};
use crate::routes;

/// The format's content type.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/metrics" MetricsGet => metrics;
    }
}

async fn metrics(call: Call<App>) -> Answer {
    let state = call.app.control.state();
    if !state.features.metrics {
        return Err(ApiError::feature_not_enabled("Getting metrics", "metrics"));
    }
    if !call.grant.sees_everything() {
        return Err(AuthError::InvalidApiKey.into());
    }
    let figures = call.app.control.figures().await?;
    let mut out = Exposition::default();
    call.app.all_counts().await.write(&mut out);
    indexes(&state, &figures, &mut out);
    tasks(&figures, &mut out);
    let now = Timestamp::from_unix(call.app.runtime.unix_time());
    let waited = figures.oldest_unfinished.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
    out.gauge("task_queue_latency_seconds", "Age of the oldest task that is not finished", waited);
    out.gauge("task_queue_used_size", "Bytes in use in the store of tasks", figures.status.used_bytes as f64);
    batches(&figures, &mut out);
    out.gauge("search_queue_size", "Searches that may wait", call.app.options.search_queue_max as f64);
    process(&call).await?.write(&mut out);
    Ok(Response::with_type(200, CONTENT_TYPE, out.into_text().into_bytes()))
}

fn indexes(state: &ControlState, figures: &ControlFigures, out: &mut Exposition) {
    let status = &figures.status;
    let stored: StoreBytes = state.indexes.values().map(|view| view.store_bytes).sum();
    out.gauge("db_size_bytes", "Bytes of the database's files", (status.file_bytes + stored.file) as f64);
    out.gauge("used_db_size_bytes", "Bytes in use within them", (status.used_bytes + stored.used) as f64);
    out.gauge("index_count", "Indexes", state.indexes.len() as f64);
    if !state.indexes.is_empty() {
        out.family("index_docs_count", "gauge", "Documents of each index");
    }
    for (uid, view) in state.indexes.iter() {
        out.value(&vec![("index", uid.to_string())], view.documents as f64);
    }
    let is_indexing = figures.processing.is_some();
    out.gauge("is_indexing", "Whether a task is being processed", u8::from(is_indexing).into());
    if let Some(date) = state.indexes.values().map(|view| view.updated_at).max() {
        out.gauge("last_update", "When an index changed last, in Unix seconds", date.date().unix_timestamp() as f64);
    }
}

/// The tasks by index, status and type; statuses and types also where there is none.
fn tasks(figures: &ControlFigures, out: &mut Exposition) {
    out.family("nb_tasks", "gauge", "Tasks by index, status and type");
    let mut value = |kind: &str, value: &str, count: u64| {
        out.value(&vec![("kind", kind.to_owned()), ("value", value.to_owned())], count as f64);
    };
    figures.by_index.iter().for_each(|(name, count)| value("indexes", name, *count));
    figures.by_status.iter().for_each(|(status, count)| value("statuses", status.name(), *count));
    figures.by_kind.iter().for_each(|(kind, count)| value("types", kind.name(), *count));
}

/// How far the batch in progress is, and how long the one before took.
fn batches(figures: &ControlFigures, out: &mut Exposition) {
    let labels = |batch: u32, step: &str| vec![("batch_uid", batch.to_string()), ("step_name", step.to_owned())];
    if let Some((batch, progress)) = &figures.processing {
        out.family("batch_running_progress_trace", "gauge", "Share done of each step of the batch in progress");
        for (step, finished, total) in &progress.steps {
            out.value(&labels(batch.0, step), *finished as f64 / (*total).max(1) as f64);
        }
    }
    if let Some((batch, trace)) = &figures.ended {
        let about = "Milliseconds of the batch that ended last";
        out.family("last_finished_batches_progress_trace_ms", "gauge", about);
        for (step, took) in trace {
            out.value(&labels(batch.0, step), took.as_millis() as f64);
        }
    }
}

async fn process(call: &Call<App>) -> Result<ProcessFigures, ApiError> {
    aside(&*call.app.runtime, ProcessFigures::read).await.map_err(ApiError::internal)
}
