//! Chat workspaces and their settings.

use serde_json::{Map, Value, json};

use super::decode::{self, Node};
use super::error::{ApiError, ErrorCode};
use super::page::Page;
use super::router::{Answer, Call, Route};
use super::settings::mask::mask;
use crate::app::App;
use crate::chats::{
    ChatAccess, ChatChange, ChatPatch, ChatPrompts, ChatSettings, ChatSource, Chats, NAME_BYTES_MAX, TextChanges, find,
};
use crate::control::ControlChange;
use crate::http::Response;
use crate::routes;

/// Every mistake in a body has this code here.
const CODE: ErrorCode = ErrorCode::BadRequest;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/chats" ChatsGet => list;
        Get "/chats/{workspace}" ChatsGet => one;
        Delete "/chats/{workspace}" ChatsDelete => delete;
        Get "/chats/{workspace}/settings" ChatsSettingsGet => settings;
        Patch "/chats/{workspace}/settings" ChatsSettingsUpdate => update;
        Delete "/chats/{workspace}/settings" ChatsSettingsUpdate => reset;
    }
}

async fn list(call: Call<App>) -> Answer {
    let page = Page::parse(&call.query(), ErrorCode::InvalidIndexOffset, ErrorCode::InvalidIndexLimit)?;
    check_feature(&call)?;
    let chats = call.app.control.state().chats.clone();
    Ok(page.answer(chats.keys(), |name| json!({ "uid": name })))
}

async fn one(call: Call<App>) -> Answer {
    check_feature(&call)?;
    let name = call.param(0);
    decode::check_index_uid(name)?;
    find(&call.app.control.state().chats, name)?;
    Ok(Response::from_json(200, &json!({ "uid": name })))
}

async fn delete(call: Call<App>) -> Answer {
    check_feature(&call)?;
    call.app.control.change(ControlChange::Chat(ChatChange::Delete(call.param(0).into()))).await?;
    Ok(Response::empty(204))
}

async fn settings(call: Call<App>) -> Answer {
    check_feature(&call)?;
    shown(&call)
}

async fn update(mut call: Call<App>) -> Answer {
    let patch = call.decoded(|body| patch(&Node::body(&body))).await?;
    check_feature(&call)?;
    let name = call.param(0);
    if name.len() > NAME_BYTES_MAX {
        let message = format!("The name of a workspace has at most {NAME_BYTES_MAX} bytes.");
        return Err(ApiError::new(ErrorCode::InvalidIndexUid, message));
    }
    call.app.control.change(ControlChange::Chat(ChatChange::Patch(name.into(), patch))).await?;
    shown(&call)
}

async fn reset(call: Call<App>) -> Answer {
    check_feature(&call)?;
    call.app.control.change(ControlChange::Chat(ChatChange::Reset(call.param(0).into()))).await?;
    shown(&call)
}

fn check_feature(call: &Call<App>) -> Result<(), ApiError> {
    match call.app.control.state().features.chat_completions {
        true => Ok(()),
        false => Err(ApiError::feature_not_enabled("Using the routes under `/chats`", "chatCompletions")),
    }
}

fn shown(call: &Call<App>) -> Answer {
    let state = call.app.control.state();
    let mut object = export(find(&state.chats, call.param(0))?);
    if let Some(Value::String(key)) = object.get_mut("apiKey") {
        *key = mask(key);
    }
    Ok(Response::from_json(200, &object))
}

/// Settings as clients see them, with built-in prompts where there are none of their own, but with the key in clear.
pub fn export(settings: &ChatSettings) -> Value {
    let mut object = Map::new();
    object.insert("source".into(), json!(settings.source));
    let (mut access, mut prompts) = (settings.access.clone(), settings.prompts.effective());
    for name in ChatAccess::NAMES {
        object.insert((*name).into(), access.text(name).and_then(Option::take).into());
    }
    let prompt = |name: &&str| ((*name).to_owned(), Value::from(prompts.text(name).and_then(Option::take)));
    let prompts: Map<String, Value> = ChatPrompts::NAMES.iter().map(prompt).collect();
    object.insert("prompts".into(), prompts.into());
    object.into()
}

/// The settings that [`export`] wrote, here or in the reference.
///
/// # Errors
/// What is wrong with them.
pub fn import(name: &str, value: &Value) -> Result<ChatSettings, ApiError> {
    let change = ChatChange::Patch(name.into(), patch(&Node::body(value))?);
    let (_, settings) = change.apply(&mut Chats::new())?;
    let mut settings = settings.unwrap_or_default();
    settings.prompts.forget_built_in();
    Ok(settings)
}

fn patch(body: &Node<'_>) -> Result<ChatPatch, ApiError> {
    let mut patch = ChatPatch::default();
    // The reference takes an empty list for an object without fields.
    if body.value().as_array().is_some_and(Vec::is_empty) {
        return Ok(patch);
    }
    for field in body.fields(CODE)? {
        match field.name() {
            "source" => patch.source = Some(field.nullable(source)?.unwrap_or_default()),
            "prompts" => patch.prompts = Some(field.nullable(prompts)?),
            name if ChatAccess::NAMES.contains(&name) => patch.access.push((name.into(), text(&field)?)),
            _ => return Err(field.unknown(CODE)),
        }
    }
    Ok(patch)
}

fn text(field: &Node<'_>) -> Result<Option<String>, ApiError> {
    field.nullable(|field| field.string(CODE))
}

/// A source that is no text is a malformed payload to clients, one of another name is not.
fn source(field: &Node<'_>) -> Result<ChatSource, ApiError> {
    let name = field.str(ErrorCode::MalformedPayload)?;
    ChatSource::named(name).ok_or_else(|| field.expected("`openAi`, `azureOpenAi`, `mistral` or `vLlm`", CODE))
}

fn prompts(node: &Node<'_>) -> Result<TextChanges, ApiError> {
    let prompt = |field: Node<'_>| match ChatPrompts::NAMES.contains(&field.name()) {
        true => Ok((field.name().to_owned(), text(&field)?)),
        false => Err(field.unknown(CODE)),
    };
    node.fields(CODE)?.map(prompt).collect()
}
