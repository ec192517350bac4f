//! Indexes: lists, single ones, and the tasks that create, update, swap, compact and delete them.

use serde_json::{Value, json};
use shards::engine::IndexView;

use super::decode::{Node, check_index_uid, is_index_uid};
use super::error::{ApiError, ErrorCode};
use super::page::Page;
use super::router::{Answer, Call, Route};
use super::tasks::{accepted, register as register_task};
use crate::app::App;
use crate::http::Response;
use crate::network::headers;
use crate::network::task::TaskNetwork;
use crate::routes;
use crate::tasks::task::{Content, Swap};

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/indexes" IndexesGet => list;
        Post "/indexes" IndexesCreate => create;
        Get "/indexes/{uid}" IndexesGet => one;
        Patch "/indexes/{uid}" IndexesUpdate => update;
        Delete "/indexes/{uid}" IndexesDelete => delete;
        Post "/indexes/{uid}/compact" IndexesCompact => compact;
        Post "/swap-indexes" IndexesSwap => swap;
    }
}

async fn list(call: Call<App>) -> Answer {
    let page = Page::parse(&call.query(), ErrorCode::InvalidIndexOffset, ErrorCode::InvalidIndexLimit)?;
    let state = call.app.control.state();
    let visible: Vec<_> = state.indexes.iter().filter(|(uid, _)| call.grant.sees_index(uid)).collect();
    Ok(page.answer(visible.into_iter(), |(uid, view)| object(uid, view)))
}

async fn one(call: Call<App>) -> Answer {
    let uid = call.index_uid()?;
    // An instance that is about to send documents looks whether it has to make the index.
    if let Ok(Some(TaskNetwork::Import { from, change, .. })) = headers::read(&call.request.headers) {
        call.app.control.may_import(change.network_version, from.remote_name).await?;
    }
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?;
    Ok(Response::from_json(200, &object(uid, view)))
}

async fn create(mut call: Call<App>) -> Answer {
    let (index, primary_key) = call.decoded(|body| decode_creation(&Node::body(&body))).await?;
    call.grant.check_index(&index)?;
    register(&call, Content::IndexCreation { index, primary_key }).await
}

/// The name of an index to make and its primary key.
fn decode_creation(body: &Node<'_>) -> Result<(String, Option<String>), ApiError> {
    let (mut index, mut primary_key) = (None, None);
    for field in body.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "uid" => {
                let uid = field.string(ErrorCode::InvalidIndexUid)?;
                check_index_uid(&uid)?;
                index = Some(uid);
            }
            "primaryKey" => primary_key = field.nullable(|f| f.string(ErrorCode::InvalidIndexPrimaryKey))?,
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    let index = index.ok_or_else(|| body.missing("uid", ErrorCode::MissingIndexUid))?;
    Ok((index, primary_key))
}

async fn update(mut call: Call<App>) -> Answer {
    let (primary_key, new_index) = call.decoded(|body| decode_update(&Node::body(&body))).await?;
    let index = call.index_uid()?.to_string();
    if let Some(new) = &new_index {
        check_index_uid(new)?;
        call.grant.check_index(new)?;
    }
    let renamed = new_index.clone().map(|new| [index.clone(), new]);
    register(&call, Content::IndexUpdate { index, primary_key, new_index, renamed }).await
}

/// The primary key that an index is to have and its new name.
fn decode_update(body: &Node<'_>) -> Result<(Option<String>, Option<String>), ApiError> {
    let (mut primary_key, mut new_index) = (None, None);
    for field in body.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "primaryKey" => primary_key = field.nullable(|f| f.string(ErrorCode::InvalidIndexPrimaryKey))?,
            "uid" => new_index = field.nullable(|f| f.string(ErrorCode::InvalidIndexUid))?,
            "createdAt" => return Err(field.unknown(ErrorCode::ImmutableIndexCreatedAt)),
            "updatedAt" => return Err(field.unknown(ErrorCode::ImmutableIndexUpdatedAt)),
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    Ok((primary_key, new_index))
}

async fn delete(call: Call<App>) -> Answer {
    let index = call.index_uid()?.to_string();
    register(&call, Content::IndexDeletion { index }).await
}

async fn compact(call: Call<App>) -> Answer {
    let index = call.index_uid()?.to_string();
    register(&call, Content::IndexCompaction { index }).await
}

async fn swap(mut call: Call<App>) -> Answer {
    let swaps = call.decoded(|body| decode_swaps(&body)).await?;
    for uid in swaps.iter().flat_map(|swap| &swap.indexes) {
        call.grant.check_index(uid)?;
    }
    register(&call, Content::IndexSwap { swaps }).await
}

fn decode_swaps(body: &Value) -> Result<Vec<Swap>, ApiError> {
    let mut swaps: Vec<Swap> = Vec::new();
    for item in Node::body(body).items(ErrorCode::BadRequest)? {
        let (mut indexes, mut rename) = (None, false);
        for field in item.fields(ErrorCode::BadRequest)? {
            match field.name() {
                "indexes" => indexes = Some(swapped(&field)?),
                "rename" => rename = field.boolean(ErrorCode::InvalidSwapRename)?,
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        let indexes = indexes.ok_or_else(|| item.missing("indexes", ErrorCode::MissingSwapIndexes))?;
        let indexes: [String; 2] = indexes.try_into().map_err(|given: Vec<String>| {
            let message = format!("Two indexes must be given for each swap, but `{given:?}` has {}.", given.len());
            ApiError::new(ErrorCode::InvalidSwapIndexes, message)
        })?;
        swaps.push(Swap { indexes, rename });
    }
    let mut seen = std::collections::BTreeSet::new();
    match swaps.iter().flat_map(|swap| &swap.indexes).find(|uid| !seen.insert(*uid)) {
        Some(twice) => {
            let message = format!("Indexes must be named once in a request, but `{twice}` is named several times.");
            Err(ApiError::new(ErrorCode::InvalidSwapDuplicateIndexFound, message))
        }
        None => Ok(swaps),
    }
}

/// The indexes of one swap, each of which some index may have for its uid.
fn swapped(field: &Node<'_>) -> Result<Vec<String>, ApiError> {
    let indexes = field.strings(ErrorCode::InvalidSwapIndexes)?;
    match indexes.iter().find(|uid| !is_index_uid(uid)) {
        Some(wrong) => {
            let message = format!("`{wrong}` is not a valid index uid.");
            Err(ApiError::new(ErrorCode::InvalidSwapIndexes, message))
        }
        None => Ok(indexes),
    }
}

async fn register(call: &Call<App>, content: Content) -> Answer {
    Ok(accepted(&register_task(call, content.into(), None).await?))
}

/// An index as clients see it.
fn object(uid: &str, view: &IndexView) -> Value {
    json!({
        "uid": uid,
        "createdAt": view.created_at.to_string(),
        "updatedAt": view.updated_at.to_string(),
        "primaryKey": view.primary_key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_checked_in_full_before_anything_is_done() {
        let code = |body: Value| decode_swaps(&body).map(|swaps| swaps.len()).map_err(|error| error.code);
        assert_eq!(code(json!([])), Ok(0));
        assert_eq!(code(json!([{"indexes": ["a", "b"]}, {"indexes": ["c", "d"], "rename": true}])), Ok(2));
        for (body, wanted) in [
            (json!({"indexes": ["a", "b"]}), ErrorCode::BadRequest),
            (json!([{"indexes": ["a", "b"], "more": 1}]), ErrorCode::BadRequest),
            (json!([{}]), ErrorCode::MissingSwapIndexes),
            (json!([{"indexes": null}]), ErrorCode::InvalidSwapIndexes),
            (json!([{"indexes": ["a", 1]}]), ErrorCode::InvalidSwapIndexes),
            (json!([{"indexes": ["a", "b c"]}]), ErrorCode::InvalidSwapIndexes),
            (json!([{"indexes": ["a", "b c"], "rename": null}]), ErrorCode::InvalidSwapIndexes),
            (json!([{"indexes": ["a"]}]), ErrorCode::InvalidSwapIndexes),
            (json!([{"indexes": ["a", "b", "c"]}]), ErrorCode::InvalidSwapIndexes),
            (json!([{"indexes": ["a", "b"], "rename": null}]), ErrorCode::InvalidSwapRename),
            (json!([{"indexes": ["a", "a"]}]), ErrorCode::InvalidSwapDuplicateIndexFound),
            (json!([{"indexes": ["a", "b"]}, {"indexes": ["b", "c"]}]), ErrorCode::InvalidSwapDuplicateIndexFound),
        ] {
            assert_eq!(code(body.clone()), Err(wanted), "{body}");
        }
    }
}
