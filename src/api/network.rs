//! The topology of the network.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::control::ControlChange;
use crate::http::Response;
use crate::network::{NetworkPatch, RemotePatch, ShardPatch};
use crate::routes;

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

async fn update(call: Call<App>) -> Answer {
    let patch = decode(&Node::body(&call.json()?))?;
    check_feature(&call)?;
    let changed = patch.applied(&call.app.control.state().network, Uuid::nil())?;
    if changed.leader.is_some() {
        // Said rather than pretended: a leader's documents would have to be dealt out to the shards.
        let message = "This version of the server does not shard documents, so a network cannot have a leader.";
        return Err(ApiError::new(ErrorCode::RequiresEnterpriseEdition, message));
    }
    call.app.control.change(ControlChange::Network(Box::new(patch))).await?;
    Ok(Response::from_json(200, &*call.app.control.state().network))
}

/// A message of another instance about a change of the topology that is under way. There is none here.
async fn control(call: Call<App>) -> Answer {
    check_message(&Node::body(&call.json()?))?;
    check_feature(&call)?;
    let message = "No change of the network's topology is under way here.";
    Err(ApiError::new(ErrorCode::ImportTaskWithoutNetworkTask, message))
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

/// Whether a body is a message that instances send each other.
fn check_message(body: &Node<'_>) -> Result<(), ApiError> {
    const CODE: ErrorCode = ErrorCode::BadRequest;
    let (mut has_origin, mut has_message) = (false, false);
    for field in body.fields(CODE)? {
        match field.name() {
            "origin" => {
                check_origin(&field)?;
                has_origin = true;
            }
            "message" => {
                check_content(&field)?;
                has_message = true;
            }
            _ => return Err(field.unknown(CODE)),
        }
    }
    match (has_origin, has_message) {
        (true, true) => Ok(()),
        (false, _) => Err(body.missing("origin", CODE)),
        (_, false) => Err(body.missing("message", CODE)),
    }
}

fn check_origin(node: &Node<'_>) -> Result<(), ApiError> {
    const CODE: ErrorCode = ErrorCode::BadRequest;
    let (mut has_name, mut has_task) = (false, false);
    for field in node.fields(CODE)? {
        match field.name() {
            "remoteName" => has_name = field.str(CODE).map(|_| true)?,
            "taskUid" => has_task = field.u32(CODE).map(|_| true)?,
            "networkVersion" => {
                let text = field.nullable(|field| field.string(CODE))?.unwrap_or_else(|| Uuid::nil().to_string());
                Uuid::parse_str(&text).map_err(|error| field.invalid(error, CODE))?;
            }
            _ => return Err(field.unknown(CODE)),
        }
    }
    match (has_name, has_task) {
        (true, true) => Ok(()),
        (false, _) => Err(node.missing("remoteName", CODE)),
        (_, false) => Err(node.missing("taskUid", CODE)),
    }
}

fn check_content(node: &Node<'_>) -> Result<(), ApiError> {
    const CODE: ErrorCode = ErrorCode::BadRequest;
    let (mut kind, mut has_remote, mut has_success) = ("", false, false);
    for field in node.fields(CODE)? {
        match field.name() {
            "type" => kind = message_kind(&field)?,
            "remote" => has_remote = field.str(CODE).map(|_| true)?,
            "successful" => has_success = field.boolean(CODE).map(|_| true)?,
            _ => return Err(field.unknown(CODE)),
        }
    }
    match kind {
        "" => Err(node.missing("type", CODE)),
        _ if !has_remote => Err(node.missing("remote", CODE)),
        "import" if !has_success => Err(node.missing("successful", CODE)),
        _ => Ok(()),
    }
}

fn message_kind(field: &Node<'_>) -> Result<&'static str, ApiError> {
    match field.str(ErrorCode::BadRequest)? {
        "exportNoIndexForRemote" => Ok("export"),
        "importFinishedForRemote" => Ok("import"),
        _ => Err(field.expected("`exportNoIndexForRemote` or `importFinishedForRemote`", ErrorCode::BadRequest)),
    }
}
