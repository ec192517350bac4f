//! Sending documents to the instances that have them after a change of the topology.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use shards::document::primary_key::KeyFinder;
use shards::engine::{DocumentScan, IndexView};
use shards::runtime::Checkpoint;

use super::change::{Change, Message};
use super::forward::Forward;
use super::headers::{self, percent_encode};
use super::task::{ImportFrom, ImportMetadata, TaskNetwork};
use super::{Remote, failure};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::settings::{GatedFeatures, export_all};
use crate::control::plane::ControlPlane;
use crate::http::Method;
use crate::outgoing::{GzipPayload, Request, WholeResponse};

/// The first pause between two tries.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The documents of an index on their way to one instance.
struct Sending<'a> {
    plane: &'a ControlPlane,
    change: &'a Change,
    name: &'a str,
    remote: &'a Remote,
    index_count: u64,
}

/// Sends every other instance what it must have of this one, again and again until it has taken it. Dropping the future
/// stops it; what was sent is known by its keys and not taken twice.
///
/// # Errors
/// An index cannot be read.
pub async fn export(plane: &ControlPlane, change: &Change) -> Result<(), String> {
    let indexes: Vec<(Arc<str>, Arc<IndexView>)> =
        plane.state().indexes.iter().map(|(uid, view)| (uid.clone(), view.clone())).collect();
    for name in change.topology.others_after() {
        let Some(remote) = change.topology.after.remotes.get(name) else { continue };
        let sending = Sending { plane, change, name, remote, index_count: indexes.len() as u64 };
        if indexes.is_empty() {
            let own_name = change.topology.own_name().unwrap_or_default();
            let mut pause = PAUSE_FIRST;
            while let Err(error) = plane.tell(change, name, Message::NoIndex(own_name.into())).await {
                if is_over(&error) {
                    break;
                }
                sending.rest(&error, &mut pause).await;
            }
        }
        for (uid, view) in &indexes {
            sending.index(uid, view).await?;
        }
    }
    Ok(())
}

/// Whether an instance has ended the change, so that it needs nothing any more.
fn is_over(error: &ApiError) -> bool {
    error.message.contains(ErrorCode::NetworkVersionMismatch.name())
}

impl Sending<'_> {
    async fn rest(&self, error: &ApiError, pause: &mut Duration) {
        tracing::debug!(remote = self.name, %error, "documents that move are sent again");
        self.plane.runtime.sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
    }

    async fn index(&self, uid: &str, view: &Arc<IndexView>) -> Result<(), String> {
        let total = if self.change.topology.may_send(self.name) { self.walk(view, None).await? } else { 0 };
        self.make_index(uid, view, total).await;
        if total == 0 {
            // One empty payload, so that the receiver can count the index.
            self.send(uid, (b" ".to_vec(), 0, None), total).await;
        } else {
            self.walk(view, Some((uid, total))).await?;
        }
        Ok(())
    }

    /// Counts the documents for the instance; sends them when it is said as which index.
    async fn walk(&self, view: &Arc<IndexView>, as_index: Option<(&str, u64)>) -> Result<u64, String> {
        let Some(key) = view.primary_key.as_deref() else { return Ok(0) };
        let mut finder = KeyFinder::new(key);
        let (mut count, mut in_payload, mut last) = (0, 0, 0);
        let (mut payload, mut line) = (GzipPayload::default(), Vec::new());
        let mut scan = DocumentScan::new(view.clone());
        if as_index.is_some() {
            // Nobody else could make those that were given by clients.
            scan = scan.with_vectors();
        }
        let mut checkpoint = Checkpoint::default();
        loop {
            let (documents, next) = self.plane.indexes.scan(scan).await.map_err(|error| error.to_string())?;
            scan = next;
            if documents.is_empty() {
                break;
            }
            for document in documents {
                checkpoint.tick(&*self.plane.runtime).await;
                let fields = document.fields.iter().map(|(field, json)| (*field, &**json));
                let Ok(id) = finder.id(fields, &view.fields) else { continue };
                if !self.change.topology.sends(&id, self.name) {
                    continue;
                }
                count += 1;
                let Some((uid, total)) = as_index else { continue };
                line.clear();
                document.write_json(&view.fields, &mut line);
                line.push(b'\n');
                if in_payload > 0 && payload.plain_bytes() + line.len() as u64 > self.plane.config.export_payload_bytes
                {
                    let whole = std::mem::take(&mut payload).finish().map_err(|error| error.to_string())?;
                    self.send(uid, (whole, in_payload, Some(last)), total).await;
                    in_payload = 0;
                }
                payload.push(&*self.plane.runtime, &line).await.map_err(|error| error.to_string())?;
                (in_payload, last) = (in_payload + 1, document.doc.0);
            }
        }
        if let Some((uid, total)) = as_index.filter(|_| in_payload > 0) {
            let whole = payload.finish().map_err(|error| error.to_string())?;
            self.send(uid, (whole, in_payload, Some(last)), total).await;
        }
        Ok(count)
    }

    /// Makes the index on the instance, with its settings, where it is missing.
    async fn make_index(&self, uid: &str, view: &IndexView, total: u64) {
        let path = format!("/indexes/{}", percent_encode(uid));
        let get =
            || self.request(uid, Forward { verb: Method::Get, target: path.clone(), body: None }, (0, None), total);
        if !matches!(self.until_taken(get).await, Some(answer) if answer.status == 404) {
            return;
        }
        let body = json!({ "uid": uid, "primaryKey": view.primary_key });
        let create = || self.request(uid, Forward::json(Method::Post, "/indexes".into(), &body), (0, None), total);
        self.until_taken(create).await;
        let features = self.plane.state().features;
        let gated = GatedFeatures {
            chat_completions: features.chat_completions,
            foreign_keys: features.foreign_keys,
            ..GatedFeatures::default()
        };
        let settings = export_all(&view.settings, gated);
        let target = format!("{path}/settings");
        let change = || self.request(uid, Forward::json(Method::Patch, target.clone(), &settings), (0, None), total);
        self.until_taken(change).await;
    }

    /// Sends a payload: its bytes, its documents, the number of the last one.
    async fn send(&self, uid: &str, (bytes, documents, key): (Vec<u8>, u64, Option<u32>), total: u64) {
        let target = format!("/indexes/{}/documents", percent_encode(uid));
        let bytes = Arc::new(bytes);
        let request = || {
            let message = Forward {
                verb: Method::Post,
                target: target.clone(),
                body: Some(("application/x-ndjson", bytes.clone())),
            };
            let request = self.request(uid, message, (documents, key), total)?;
            Ok(if key.is_some() { request.header("Content-Encoding", "gzip") } else { request })
        };
        self.until_taken(request).await;
    }

    fn request(
        &self,
        uid: &str,
        message: Forward,
        (document_count, task_key): (u64, Option<u32>),
        total_index_documents: u64,
    ) -> Result<Request, ApiError> {
        let own_name = self.change.topology.own_name().unwrap_or_default();
        let from = ImportFrom { remote_name: own_name.into(), index_name: Some(uid.into()), document_count };
        let metadata = ImportMetadata { index_count: self.index_count, task_key, total_index_documents };
        let network = TaskNetwork::Import { from, metadata, change: self.change.origin.clone() };
        Ok(headers::write(self.plane.message(self.name, self.remote, message)?, &network))
    }

    /// Makes a request until it is taken; `None` when the instance needs it no more.
    async fn until_taken(&self, request: impl Fn() -> Result<Request, ApiError>) -> Option<WholeResponse> {
        let mut pause = PAUSE_FIRST;
        loop {
            let error = match request() {
                Err(error) => error,
                Ok(request) => match self.plane.outgoing.fetch(request, ANSWER_BYTES_MAX).await {
                    Err(error) => failure::unanswered(self.name, &error),
                    Ok(answer) if matches!(answer.status, 200..=299 | 404) => return Some(answer),
                    Ok(answer) => {
                        let error = failure::refused(self.name, &answer)?;
                        let is_known = error.message.contains(ErrorCode::ImportTaskAlreadyReceived.name());
                        if is_known || is_over(&error) {
                            return None;
                        }
                        error
                    }
                },
            };
            self.rest(&error, &mut pause).await;
        }
    }
}
