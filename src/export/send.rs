//! The requests of an export.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shards::engine::{DocumentsQuery, IndexView};
use shards::error::UserError;
use shards::runtime::Nanos;

use super::{ExportIndexes, ExportRequest, Exported};
use crate::api::settings::{GatedFeatures, export_all};
use crate::control::indexes::IndexError;
use crate::control::plane::ControlPlane;
use crate::http::Method;
use crate::outgoing::{Deadlines, GzipPayload, Request, Url, WholeResponse};

/// The name of the outer step of the progress.
const INDEXES_STEP: &str = "exporting indexes";
/// The name of the inner step of the progress.
const DOCUMENTS_STEP: &str = "exporting documents";
/// Time for one request. A target answers documents only when it has checked and stored them all.
const DEADLINES: Deadlines =
    Deadlines { connect: Duration::from_secs(5), idle: Duration::from_secs(60), total: Duration::from_secs(600) };
/// How long a target that cannot be reached is tried: a wrong address must not hold up the other tasks for long.
const UNREACHABLE_TIME: Duration = Duration::from_secs(25);
/// How long a request is tried that a target takes and cannot answer.
const RETRY_TIME: Duration = Duration::from_secs(15 * 60);
/// The first pause between two tries.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The largest answer that is read, in bytes: task summaries, indexes and errors.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Bytes of documents in one request at most, whatever the client allows: they are in memory, packed, until they were taken.
const PAYLOAD_BYTES_MAX: u64 = 256 << 20;
/// Bytes of documents that are read from an index at once, as its average says.
const PAGE_BYTES: u64 = 2 << 20;
/// Documents that are read at once.
const PAGE_DOCUMENTS_MAX: u64 = 1000;

/// An export under way.
pub struct Sender<'a> {
    plane: &'a ControlPlane,
    request: &'a ExportRequest,
    payload_bytes_max: u64,
}

impl<'a> Sender<'a> {
    /// An export for this request; `payload_bytes` holds when the request names no size.
    pub fn new(plane: &'a ControlPlane, request: &'a ExportRequest, payload_bytes: u64) -> Self {
        let payload_bytes_max = request.payload_bytes.unwrap_or(payload_bytes).min(PAYLOAD_BYTES_MAX);
        Self { plane, request, payload_bytes_max }
    }

    /// Sends every index that the request is about, in the order of their names. Dropping the future stops it; what was sent
    /// stays with the other server.
    ///
    /// # Errors
    /// The other server cannot be reached or refuses, or the filter does not hold for an index.
    pub async fn run(&self) -> Result<Exported, IndexError> {
        let state = self.plane.state();
        let meant = |(uid, view): (&Arc<str>, &Arc<IndexView>)| {
            Some((uid.to_string(), view.clone(), self.request.of_index(uid)?.clone()))
        };
        let indexes: Vec<(String, Arc<IndexView>, ExportIndexes)> = state.indexes.iter().filter_map(meant).collect();
        let total = indexes.len() as u64;
        let mut exported = Exported::new();
        for (uid, view, wanted) in indexes {
            let outer = (INDEXES_STEP, exported.len() as u64, total);
            self.show_progress(&[outer]);
            let documents = self.send_index(&uid, &view, &wanted, outer).await?;
            exported.insert(uid, (wanted, documents));
        }
        Ok(exported)
    }

    /// Sends one index; how many documents.
    async fn send_index(
        &self,
        uid: &str,
        view: &Arc<IndexView>,
        wanted: &ExportIndexes,
        outer: (&str, u64, u64),
    ) -> Result<u64, IndexError> {
        // A filter that does not hold must not leave an empty index behind.
        let query = DocumentsQuery { filter: wanted.filter.clone(), limit: 0, ..DocumentsQuery::default() };
        let documents = self.plane.indexes.documents(view.clone(), query).await.map_err(internal)?.total;
        let is_there = self.is_there(uid).await?;
        let primary_key = view.primary_key.as_deref();
        if !is_there {
            self.ask(Method::Post, "indexes", Some(&json!({ "uid": uid, "primaryKey": primary_key }))).await?;
        } else if wanted.override_settings {
            let body = json!({ "primaryKey": primary_key });
            self.ask(Method::Patch, &format!("indexes/{uid}"), Some(&body)).await?;
        }
        if !is_there || wanted.override_settings {
            let features = self.plane.state().features;
            let gated = GatedFeatures {
                chat_completions: features.chat_completions,
                foreign_keys: features.foreign_keys,
                ..GatedFeatures::default()
            };
            let settings = export_all(&view.settings, gated);
            self.ask(Method::Patch, &format!("indexes/{uid}/settings"), Some(&settings)).await?;
        }
        self.send_documents(uid, view, wanted, (documents, outer)).await?;
        Ok(documents)
    }

    /// Whether the other server has an index of this name.
    async fn is_there(&self, uid: &str) -> Result<bool, IndexError> {
        let path = format!("indexes/{uid}");
        let answer = self.try_until(self.request(Method::Get, &path)?).await?;
        match answer.status {
            200..=299 => Ok(true),
            404 if error_of(&answer).0 == "index_not_found" => Ok(false),
            _ => Err(refused(Method::Get, &path, &answer)),
        }
    }

    async fn send_documents(
        &self,
        uid: &str,
        view: &Arc<IndexView>,
        wanted: &ExportIndexes,
        (total, outer): (u64, (&str, u64, u64)),
    ) -> Result<(), IndexError> {
        let (mut payload, mut after, mut sent) = (GzipPayload::default(), None, 0);
        let mut line = Vec::new();
        loop {
            let limit = page_documents(view);
            let query = DocumentsQuery {
                filter: wanted.filter.clone(),
                after,
                limit,
                vectors: true,
                ..DocumentsQuery::default()
            };
            let page = self.plane.indexes.documents(view.clone(), query).await.map_err(internal)?;
            for document in &page.documents {
                line.clear();
                document.write_json(&page.fields, &mut line);
                line.push(b'\n');
                let bytes = payload.plain_bytes() + line.len() as u64;
                if payload.plain_bytes() > 0 && bytes > self.payload_bytes_max {
                    self.send_payload(uid, std::mem::take(&mut payload)).await?;
                    self.show_progress(&[outer, (DOCUMENTS_STEP, sent, total)]);
                }
                payload.push(&*self.plane.runtime, &line).await.map_err(unpackable)?;
                sent += 1;
            }
            match page.documents.last() {
                Some(last) if page.documents.len() as u64 == limit => after = Some(last.doc),
                _ => break,
            }
        }
        if payload.plain_bytes() > 0 {
            self.send_payload(uid, payload).await?;
        }
        Ok(())
    }

    async fn send_payload(&self, uid: &str, payload: GzipPayload) -> Result<(), IndexError> {
        let path = format!("indexes/{uid}/documents");
        let request = self.request(Method::Post, &path)?;
        let body = payload.finish().map_err(unpackable)?;
        let request = request.body("application/x-ndjson", body).header("Content-Encoding", "gzip");
        accepted(Method::Post, &path, self.try_until(request).await?)
    }

    /// Makes a request that must be accepted.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(), IndexError> {
        let mut request = self.request(method, path)?;
        if let Some(body) = body {
            request = request.body("application/json", body.to_string().into_bytes());
        }
        accepted(method, path, self.try_until(request).await?)
    }

    /// A request to a path below the other server's URL. A slash at the end of that is kept, as the interface has it.
    fn request(&self, method: Method, path: &str) -> Result<Request, IndexError> {
        let text = format!("{}/{path}", self.request.url);
        let url = Url::parse(&text).map_err(|error| failed(format!("`{text}` is not an absolute URL: {error}")))?;
        Ok(Request::new(method, url, DEADLINES).bearer(self.request.api_key.as_deref()))
    }

    /// Makes a request, again and again while the other server cannot be reached or is not able to answer.
    async fn try_until(&self, request: Request) -> Result<WholeResponse, IndexError> {
        let runtime = &self.plane.runtime;
        let mut patience = Patience::new(runtime.now());
        let mut pause = PAUSE_FIRST;
        loop {
            let answer = self.plane.outgoing.fetch(request.clone(), ANSWER_BYTES_MAX).await;
            let (failure, is_unreachable) = match answer {
                Ok(answer) if matches!(answer.status, 408 | 429 | 500 | 502 | 503 | 504) => {
                    let (_, message) = error_of(&answer);
                    (format!("the target answers {}: {message}", answer.status), false)
                }
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_transient() => (error.to_string(), error.is_unreachable()),
                Err(error) => return Err(failed(error.to_string())),
            };
            let now = runtime.now();
            if now.after(pause) >= patience.end(now, is_unreachable) {
                return Err(failed(failure));
            }
            tracing::warn!(cause = failure, "retrying a request of an export");
            // Between half and all of it, so that exports from several servers do not come back together.
            let share = 0.5 + (runtime.random_u64() >> 11) as f64 / (1u64 << 54) as f64;
            runtime.sleep(pause.mul_f64(share)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn show_progress(&self, steps: &[(&str, u64, u64)]) {
        if let Some(processing) = &mut *self.plane.processing.borrow_mut() {
            processing.progress.steps.truncate(1);
            let steps = steps.iter().map(|(step, finished, total)| ((*step).to_owned(), *finished, *total));
            processing.progress.steps.extend(steps);
        }
    }
}

/// Until when a request is tried.
struct Patience {
    began: Nanos,
    /// Since when nobody has been reached.
    unreachable_since: Option<Nanos>,
}

impl Patience {
    fn new(now: Nanos) -> Self {
        Self { began: now, unreachable_since: None }
    }

    /// Until when to try after a failure.
    fn end(&mut self, now: Nanos, is_unreachable: bool) -> Nanos {
        let end = self.began.after(RETRY_TIME);
        if !is_unreachable {
            self.unreachable_since = None;
            return end;
        }
        let since = *self.unreachable_since.get_or_insert(now);
        end.min(since.after(UNREACHABLE_TIME))
    }
}

/// How many documents of this index are read at once.
fn page_documents(view: &IndexView) -> u64 {
    let average = view.raw_bytes / view.documents.max(1);
    (PAGE_BYTES / average.max(1)).clamp(1, PAGE_DOCUMENTS_MAX)
}

fn accepted(method: Method, path: &str, answer: WholeResponse) -> Result<(), IndexError> {
    if (200..300).contains(&answer.status) { Ok(()) } else { Err(refused(method, path, &answer)) }
}

fn refused(method: Method, path: &str, answer: &WholeResponse) -> IndexError {
    let (_, message) = error_of(answer);
    failed(format!("the target answered {} to {} /{path}: {message}", answer.status, method.as_str()))
}

/// Code and message of an answer that says what is wrong.
fn error_of(answer: &WholeResponse) -> (String, String) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |name: &str| body[name].as_str().map(String::from);
    (text("code").unwrap_or_default(), text("message").unwrap_or_else(|| "without a reason".into()))
}

/// Every failure of an export has the code `internal`; the message says what it was.
fn failed(cause: String) -> IndexError {
    UserError::new("internal", format!("The export failed: {cause}.")).into()
}

/// The same for what our own index says.
fn internal(error: IndexError) -> IndexError {
    match error {
        IndexError::User(error) => failed(error.message.trim_end_matches('.').to_owned()),
        other => other,
    }
}

fn unpackable(error: io::Error) -> IndexError {
    failed(format!("packing documents: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dead address once held up the task queue for a quarter of an hour.
    #[test]
    fn an_unreachable_target_is_soon_given_up_a_busy_one_is_not() {
        let at = |seconds| Nanos(0).after(Duration::from_secs(seconds));
        let mut patience = Patience::new(at(0));
        assert_eq!(patience.end(at(1), false), at(900), "it answers");
        assert_eq!(patience.end(at(100), true), at(125));
        assert_eq!(patience.end(at(110), true), at(125));
        assert_eq!(patience.end(at(115), false), at(900), "it is back");
        assert_eq!(patience.end(at(120), true), at(145));
        assert_eq!(patience.end(at(890), true), at(145));
    }
}
