//! Webhook routes: create, read, update and delete.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use super::settings::mask::mask;
use super::uuids;
use crate::app::App;
use crate::control::ControlChange;
use crate::http::Response;
use crate::routes;
use crate::webhooks::{HeaderChanges, Webhook, WebhookChange, WebhookPatch, check_room, webhook_not_found};

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/webhooks" WebhooksGet => list;
        Post "/webhooks" WebhooksCreate => create;
        Get "/webhooks/{uuid}" WebhooksGet => one;
        Patch "/webhooks/{uuid}" WebhooksUpdate => update;
        Delete "/webhooks/{uuid}" WebhooksDelete => delete;
    }
}

async fn list(call: Call<App>) -> Answer {
    let state = call.app.control.state();
    let results: Vec<Value> = state.webhooks.iter().map(|(uid, webhook)| object(*uid, webhook)).collect();
    Ok(Response::from_json(200, &json!({ "results": results })))
}

async fn create(mut call: Call<App>) -> Answer {
    let asked = call.decoded(|body| Asked::decode(&Node::body(&body))).await?;
    let headers = asked.headers.flatten().unwrap_or_default();
    let headers: BTreeMap<String, String> =
        headers.into_iter().map(|(name, value)| (name, value.unwrap_or_default())).collect();
    check_room(&call.app.control.state().webhooks)?;
    let (uid, webhook) = (uuids::v4(&*call.app.runtime), Webhook::asked(asked.url.unwrap_or_default(), headers)?);
    call.app.control.change(ControlChange::Webhook(WebhookChange::Create(uid, webhook.clone()))).await?;
    Ok(Response::from_json(201, &object(uid, &webhook)))
}

async fn one(call: Call<App>) -> Answer {
    shown(&call, uid(&call)?)
}

async fn update(mut call: Call<App>) -> Answer {
    let asked = call.decoded(|body| Asked::decode(&Node::body(&body))).await?;
    let uid = uid(&call)?;
    let patch = WebhookPatch { url: asked.url, headers: asked.headers };
    call.app.control.change(ControlChange::Webhook(WebhookChange::Patch(uid, patch))).await?;
    shown(&call, uid)
}

async fn delete(call: Call<App>) -> Answer {
    call.app.control.change(ControlChange::Webhook(WebhookChange::Delete(uid(&call)?))).await?;
    Ok(Response::empty(204))
}

fn shown(call: &Call<App>, uid: Uuid) -> Answer {
    let state = call.app.control.state();
    let webhook = state.webhooks.get(&uid).ok_or_else(|| webhook_not_found(uid))?;
    Ok(Response::from_json(200, &object(uid, webhook)))
}

fn uid(call: &Call<App>) -> Result<Uuid, ApiError> {
    let text = call.param(0);
    let wrong = |error| ApiError::new(ErrorCode::InvalidWebhookUuid, format!("`{text}` is not a UUID: {error}."));
    Uuid::parse_str(text).map_err(wrong)
}

/// A webhook as clients see it, its secret hidden.
fn object(uid: Uuid, webhook: &Webhook) -> Value {
    let shown = |(name, value): (&String, &String)| {
        let value = if name.eq_ignore_ascii_case("authorization") { hidden(value) } else { value.clone() };
        (name.clone(), Value::from(value))
    };
    let headers: Map<String, Value> = webhook.headers.iter().map(shown).collect();
    json!({ "uuid": uid, "isEditable": !uid.is_nil(), "url": webhook.url, "headers": headers })
}

fn hidden(authorization: &str) -> String {
    match authorization.strip_prefix("Bearer ") {
        Some(secret) => format!("Bearer {}", mask(secret)),
        None => mask(authorization),
    }
}

/// What a body asks for.
#[derive(Debug, Default)]
struct Asked {
    /// Null is as good as an empty one: that it is missing is told after other mistakes.
    url: Option<String>,
    headers: Option<Option<HeaderChanges>>,
}

impl Asked {
    fn decode(body: &Node<'_>) -> Result<Self, ApiError> {
        let mut asked = Self::default();
        for field in body.fields(ErrorCode::BadRequest)? {
            let immutable = match field.name() {
                "url" => {
                    let url = field.nullable(|field| field.string(ErrorCode::InvalidWebhookUrl))?;
                    asked.url = Some(url.unwrap_or_default());
                    continue;
                }
                "headers" => {
                    asked.headers = Some(field.nullable(headers)?);
                    continue;
                }
                "uuid" => ErrorCode::ImmutableWebhookUuid,
                "isEditable" => ErrorCode::ImmutableWebhookIsEditable,
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            };
            return Err(ApiError::new(immutable, format!("The field `{}` of a webhook cannot be set.", field.name())));
        }
        Ok(asked)
    }
}

fn headers(node: &Node<'_>) -> Result<HeaderChanges, ApiError> {
    const CODE: ErrorCode = ErrorCode::InvalidWebhookHeaders;
    let header = |field: Node<'_>| Ok((field.name().to_owned(), field.nullable(|value| value.string(CODE))?));
    node.fields(CODE)?.map(header).collect()
}
