//! The topology of the network.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use super::tasks::accepted;
use super::uuids;
use crate::app::App;
use crate::control::ControlChange;
use crate::http::Response;
use crate::network::change::Message;
use crate::network::task::{Origin, TaskNetwork};
use crate::network::topology::TopologyChange;
use crate::network::{Network, NetworkPatch, Remote, RemotePatch, Shard, ShardPatch, headers, ready};
use crate::routes;
use crate::tasks::task::{Content, NewTask};

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/network" NetworkGet => get;
        Patch "/network" NetworkUpdate => update;
        Post "/network/control" NetworkUpdate => control;
    }
}

async fn get(call: Call<App>) -> Answer {
    check_feature(&call)?;
    Ok(Response::from_json(200, &*call.app.control.state().network))
}

async fn update(mut call: Call<App>) -> Answer {
    let body = call.decoded(Ok).await?;
    match headers::read(&call.request.headers)? {
        None => by_client(call, &body).await,
        Some(TaskNetwork::Import { from, change, .. }) => {
            // An instance without indexes says so in this way, too.
            check_feature(&call)?;
            call.app.control.hear(change.network_version, Message::NoIndex(from.remote_name)).await?;
            Ok(Response::from_json(200, &*call.app.control.state().network))
        }
        Some(network) => by_leader(call, body, network).await,
    }
}

/// What a client changes. With a leader every other instance takes part, so each is asked before anything is stored.
async fn by_client(call: Call<App>, body: &Value) -> Answer {
    let patch = decode(&Node::body(body))?;
    check_feature(&call)?;
    let before = call.app.control.state().network.clone();
    let later = Uuid::from_u128(before.version.as_u128().saturating_add(1));
    let after = patch.applied(&before, uuids::v7(&*call.app.runtime).max(later))?;
    if after.leader.is_none() {
        call.app.control.change(ControlChange::Network(Box::new(patch))).await?;
        return Ok(Response::from_json(200, &*call.app.control.state().network));
    }
    let change = TopologyChange { before: (*before).clone(), after, starts_empty: false };
    ready::check_others(&call.app.outgoing, &change).await?;
    let content = Content::NetworkTopologyChange { change: Box::new(change) };
    Ok(accepted(&call.app.control.register(content.into(), None).await?))
}

/// A network as the leader tells it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    remotes: BTreeMap<String, Remote>,
    shards: BTreeMap<String, Shard>,
    previous_remotes: Option<BTreeMap<String, Remote>>,
    #[serde(default)]
    previous_shards: BTreeMap<String, Shard>,
    #[serde(rename = "self")]
    own_name: Option<String>,
    leader: Option<String>,
}

/// What the leader says: taken as it stands.
async fn by_leader(call: Call<App>, body: Value, network: TaskNetwork) -> Answer {
    check_feature(&call)?;
    if body.get("leader").is_none_or(Value::is_null) {
        let message = "A change that another instance tells of needs a leader.";
        return Err(ApiError::new(ErrorCode::InvalidNetworkLeader, message));
    }
    let told: Told = serde_json::from_value(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let stored = call.app.control.state().network.clone();
    let replaced = call.request.headers.get_str(headers::PREVIOUS_VERSION);
    let was_led = replaced.map_or(!told.previous_shards.is_empty(), |version| version != headers::UNLED);
    let replaced = replaced.and_then(|text| text.parse::<Uuid>().ok());
    // The leader sends a change again when it has not heard the answer: that is known by its origin.
    let is_repeated = stored.version == network.version() && stored.leader == told.leader;
    if stored.leader.is_some() && !is_repeated && replaced.is_some_and(|replaced| stored.version > replaced) {
        let message = "network_version_too_old: the network has changed since; its leader is another one.";
        return Err(ApiError::new(ErrorCode::NetworkVersionTooOld, message));
    }
    // It was of this network and is not now: whatever has changed since, this instance has not heard of it.
    let knows = |name: &Option<String>| name.as_ref().is_some_and(|name| stored.remotes.contains_key(name));
    let is_member =
        |remotes: &BTreeMap<String, Remote>| told.own_name.as_ref().is_some_and(|name| remotes.contains_key(name));
    let starts_empty = was_led
        && stored.leader.is_some()
        && knows(&told.leader)
        && told.own_name.is_some()
        && told.previous_remotes.as_ref().is_some_and(|remotes| !is_member(remotes));
    let before = Network {
        own_name: stored.own_name.clone().or_else(|| told.own_name.clone()),
        leader: told.leader.clone().filter(|_| was_led),
        remotes: told.previous_remotes.unwrap_or_else(|| stored.remotes.clone()),
        shards: told.previous_shards,
        version: stored.version,
    };
    let after = Network {
        own_name: told.own_name,
        leader: told.leader,
        remotes: told.remotes,
        shards: told.shards,
        version: network.version(),
    };
    let content = Content::NetworkTopologyChange { change: Box::new(TopologyChange { before, after, starts_empty }) };
    let task = NewTask { network: Some(network), ..NewTask::from(content) };
    Ok(accepted(&call.app.control.register(task, None).await?))
}

/// A message of another instance about a change of the topology that is under way.
#[derive(Deserialize)]
struct Said {
    origin: Origin,
    message: SaidMessage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum SaidMessage {
    ExportNoIndexForRemote { remote: String },
    ImportFinishedForRemote { remote: String, successful: bool },
}

async fn control(mut call: Call<App>) -> Answer {
    let decode = |body| serde_json::from_value(body).map_err(|error| ApiError::bad_request(error.to_string()));
    let said: Said = call.decoded(decode).await?;
    check_feature(&call)?;
    let message = match said.message {
        SaidMessage::ExportNoIndexForRemote { remote } => Message::NoIndex(remote),
        SaidMessage::ImportFinishedForRemote { remote, successful } => Message::ImportFinished(remote, successful),
    };
    call.app.control.hear(said.origin.network_version, message).await?;
    Ok(Response::empty(200))
}

fn check_feature(call: &Call<App>) -> Result<(), ApiError> {
    match call.app.control.state().features.network {
        true => Ok(()),
        false => Err(ApiError::feature_not_enabled("Using the routes under `/network`", "network")),
    }
}

fn decode(body: &Node<'_>) -> Result<NetworkPatch, ApiError> {
    let mut patch = NetworkPatch::default();
    for field in body.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "self" => patch.own_name = Some(name(&field, ErrorCode::InvalidNetworkSelf)?),
            "leader" => patch.leader = Some(name(&field, ErrorCode::InvalidNetworkLeader)?),
            "remotes" => patch.remotes = Some(map(&field, ErrorCode::InvalidNetworkRemotes, remote)?),
            "shards" => patch.shards = Some(map(&field, ErrorCode::InvalidNetworkShards, shard)?),
            "previousRemotes" => {
                let message = "The field `previousRemotes` is for instances that tell each other of a change.";
                return Err(ApiError::new(ErrorCode::UnexpectedNetworkPreviousRemotes, message));
            }
            // What an instance tells another; it says nothing here.
            "previousShards" => drop(map(&field, ErrorCode::InvalidNetworkShards, shard)?),
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    Ok(patch)
}

fn name(node: &Node<'_>, code: ErrorCode) -> Result<Option<String>, ApiError> {
    node.nullable(|node| node.string(code))
}

/// An object of patches by name, with nulls for what goes.
fn map<T>(
    node: &Node<'_>,
    code: ErrorCode,
    read: impl Fn(&Node<'_>) -> Result<T, ApiError>,
) -> Result<Option<BTreeMap<String, Option<T>>>, ApiError> {
    let entry = |field: Node<'_>| Ok((field.name().to_owned(), field.nullable(&read)?));
    node.nullable(|node| node.fields(code)?.map(entry).collect())
}

fn remote(node: &Node<'_>) -> Result<RemotePatch, ApiError> {
    let mut patch = RemotePatch::default();
    for field in node.fields(ErrorCode::InvalidNetworkRemotes)? {
        let value = |code| name(&field, code);
        match field.name() {
            "url" => patch.url = Some(value(ErrorCode::InvalidNetworkUrl)?),
            "searchApiKey" => patch.search_api_key = Some(value(ErrorCode::InvalidNetworkSearchApiKey)?),
            "writeApiKey" => patch.write_api_key = Some(value(ErrorCode::InvalidNetworkWriteApiKey)?),
            _ => return Err(field.unknown(ErrorCode::InvalidNetworkRemotes)),
        }
    }
    Ok(patch)
}

fn shard(node: &Node<'_>) -> Result<ShardPatch, ApiError> {
    let mut patch = ShardPatch::default();
    for field in node.fields(ErrorCode::InvalidNetworkShards)? {
        // Clients know wrong lists by the code of remotes.
        let list = || {
            let list = field.nullable(|list| list.strings(ErrorCode::InvalidNetworkRemotes))?;
            Ok::<_, ApiError>(list.map(BTreeSet::from_iter))
        };
        match field.name() {
            "remotes" => patch.remotes = list()?,
            "addRemotes" => patch.added = list()?.unwrap_or_default(),
            "removeRemotes" => patch.removed = list()?.unwrap_or_default(),
            _ => return Err(field.unknown(ErrorCode::InvalidNetworkShards)),
        }
    }
    Ok(patch)
}
