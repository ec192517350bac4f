//! API keys: creating, reading, updating and deleting them.

use serde_json::Value;

use super::error::{ApiError, ErrorCode};
use super::page::Page;
use super::router::{Answer, Call, Host, Route};
use super::uuids;
use crate::app::App;
use crate::auth::{ApiKey, KeyName, KeyPatch, KeySet, NewKey, key_not_found};
use crate::control::ControlChange;
use crate::http::Response;
use crate::routes;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/keys" KeysGet => list;
        Post "/keys" KeysCreate => create;
        Get "/keys/{key}" KeysGet => one;
        Patch "/keys/{key}" KeysUpdate => update;
        Delete "/keys/{key}" KeysDelete => delete;
    }
}

async fn list(call: Call<App>) -> Answer {
    let page = Page::parse(&call.query(), ErrorCode::InvalidApiKeyOffset, ErrorCode::InvalidApiKeyLimit)?;
    let keys = call.app.keys();
    Ok(page.answer(keys.newest_first().into_iter(), |key| object(key, &keys)))
}

async fn create(mut call: Call<App>) -> Answer {
    let now = call.app.now();
    let new = call.decoded(move |body| Ok(NewKey::parse(&body, now)?)).await?;
    let key = new.into_key(uuids::v4(&*call.app.runtime), now);
    call.app.control.change(ControlChange::CreateKey(key.clone())).await?;
    Ok(Response::from_json(201, &object(&key, &call.app.keys())))
}

async fn one(call: Call<App>) -> Answer {
    let keys = call.app.keys();
    let key = find(&keys, call.param(0))?;
    Ok(Response::from_json(200, &object(&key, &keys)))
}

async fn update(mut call: Call<App>) -> Answer {
    let patch = call.decoded(|body| Ok(KeyPatch::parse(&body)?)).await?;
    let key = find(&call.app.keys(), call.param(0))?;
    call.app.control.change(ControlChange::UpdateKey(key.uid, patch, call.app.now())).await?;
    let keys = call.app.keys();
    // Another request may have deleted it since.
    let key = keys.by_uid(key.uid).ok_or_else(|| key_not_found(call.param(0)))?;
    Ok(Response::from_json(200, &object(key, &keys)))
}

async fn delete(call: Call<App>) -> Answer {
    let key = find(&call.app.keys(), call.param(0))?;
    call.app.control.change(ControlChange::DeleteKey(key.uid)).await?;
    Ok(Response::empty(204))
}

/// The key that a path segment names by its uid or its value.
fn find(keys: &KeySet, segment: &str) -> Result<ApiKey, ApiError> {
    let key = keys.find(&KeyName::parse(segment)).ok_or_else(|| key_not_found(segment))?;
    Ok(ApiKey::clone(key))
}

/// A key as clients see it. Without a master key nobody gets here, and no key has a value.
fn object(key: &ApiKey, keys: &KeySet) -> Value {
    serde_json::to_value(key.view(keys.master_key().unwrap_or_default())).unwrap_or_default()
}
