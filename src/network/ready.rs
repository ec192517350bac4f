//! Whether the other instances can take part in a change of the topology.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

use super::topology::TopologyChange;
use super::{Network, Remote, failure};
use crate::api::error::{ApiError, ErrorCode};
use crate::http::Method;
use crate::outgoing::{Client, Deadlines, Request};

/// Instances asked side by side.
const ASKED_AT_ONCE: usize = 40;
/// Time for one answer.
const PATIENCE: Deadlines =
    Deadlines { connect: Duration::from_secs(3), idle: Duration::from_secs(10), total: Duration::from_secs(10) };
/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Asks every other instance of either network. One that is being removed need not answer, but enough of the network before
/// must: a leader that was cut off while another one took its place changes nothing any more, and the other way round.
///
/// # Errors
/// `feature_not_enabled`, `unprocessed_network_task`, `network_version_too_old` when another instance knows a later network;
/// `network_version_mismatch` when one does not know the present one; `remote_could_not_send_request` when too few answer; and
/// why an instance that stays gives no answer.
pub async fn check_others(client: &Client, change: &TopologyChange) -> Result<(), ApiError> {
    let (before, own_name) = (&change.before, change.own_name());
    let mut answering = usize::from(own_name.is_some_and(|name| before.remotes.contains_key(name)));
    let asked = change.others().into_iter().map(|name| async move {
        let stays = change.after.remotes.get(name);
        let remote = stays.or_else(|| change.before.remotes.get(name));
        let answer = match remote {
            Some(remote) => check(client, name, remote, &change.before).await,
            None => Ok(()),
        };
        (name, stays.is_some(), answer)
    });
    let mut answers = stream::iter(asked).buffered(ASKED_AT_ONCE);
    while let Some((name, stays, answer)) = answers.next().await {
        match answer {
            Ok(()) => answering += usize::from(before.remotes.contains_key(name)),
            Err(error) if stays || error.code == ErrorCode::NetworkVersionTooOld => return Err(error),
            Err(error) => tracing::warn!(remote = name, %error, "an instance being removed does not respond"),
        }
    }
    if before.leader.is_some() && !before.is_quorum(answering) {
        let all = before.remotes.len();
        let message = format!(
            "Only {answering} of the {all} instances of the network answer. The others may have another leader by now: a change \
             needs more than half of them, or half with the leader."
        );
        return Err(ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message));
    }
    Ok(())
}

async fn check(client: &Client, name: &str, remote: &Remote, before: &Network) -> Result<(), ApiError> {
    let features = get(client, name, remote, "/experimental-features").await?;
    if features["network"] != true {
        let message = format!("The remote `{name}` needs the experimental feature `network`, which is off there.");
        return Err(ApiError::new(ErrorCode::FeatureNotEnabled, message));
    }
    let tasks = "/tasks?types=networkTopologyChange&statuses=enqueued,processing&limit=1";
    let tasks = get(client, name, remote, tasks).await?;
    if tasks["results"].as_array().is_none_or(|tasks| !tasks.is_empty()) {
        let message = format!("On the remote `{name}` an earlier change of the topology has not ended.");
        return Err(ApiError::new(ErrorCode::UnprocessedNetworkTask, message));
    }
    let known = get(client, name, remote, "/network").await?;
    let version = known["version"].as_str().and_then(|text| text.parse::<Uuid>().ok());
    let Some(version) = version.filter(|_| !known["leader"].is_null()) else { return Ok(()) };
    if version > before.version {
        let message =
            format!("The remote `{name}` knows a later version of the network, which another instance leads.");
        return Err(ApiError::new(ErrorCode::NetworkVersionTooOld, message));
    }
    if version < before.version && before.leader.is_some() && before.remotes.contains_key(name) {
        let message = format!(
            "The remote `{name}` has missed a change of the network, and with it documents. Take it out of the network, then add \
             it again: it begins empty and gets everything."
        );
        return Err(ApiError::new(ErrorCode::NetworkVersionMismatch, message));
    }
    Ok(())
}

async fn get(client: &Client, name: &str, remote: &Remote, target: &str) -> Result<Value, ApiError> {
    let url = Url::parse(&remote.url).and_then(|url| url.join(target)).map_err(|error| {
        let message = format!("The URL of the remote `{name}` cannot be called: {error}.");
        ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message)
    })?;
    let request = Request::new(Method::Get, url, PATIENCE).bearer(remote.write_api_key.as_deref());
    let answer = client.fetch(request, ANSWER_BYTES_MAX).await.map_err(|error| failure::unanswered(name, &error))?;
    match failure::refused(name, &answer) {
        Some(error) => Err(error),
        None => serde_json::from_slice(&answer.body).map_err(|error| failure::unreadable(name, error)),
    }
}
