//! Foreign keys: replaces IDs in the hits of a finished page by documents of other indexes. IDs of documents that the caller may
//! not search remain as they are. So do all IDs in a search over the network: the documents that they stand for may be on other
//! instances, and these do not know what the caller may see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use shards::document::primary_key;
use shards::engine::{DocumentsQuery, IndexView};
use shards::format::select::Paths;
use shards::settings::ForeignKey;

use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::Call;
use crate::app::App;
use crate::control::ControlState;

/// Bytes of the documents of other indexes in the hits of one request at most. One document may be named by any number of ids,
/// so that a page of a few kilobytes could become one of gigabytes.
const FOREIGN_BYTES_MAX: usize = 32 << 20;

/// What becomes of an object where ids are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objects {
    /// Every leaf below it is looked at.
    Entered,
    /// It stays as it is.
    Left,
}

/// The documents of each foreign index by their ids.
type Found = BTreeMap<String, BTreeMap<String, Foreign>>;

/// A document of another index.
struct Foreign {
    document: Value,
    /// Its length as it was stored.
    bytes: usize,
}

/// Puts documents in the place of their ids in the hits (a JSON array) of a search of one index.
///
/// # Errors
/// `index_not_found` for a foreign index that does not exist, whether or not a hit has such an id; `payload_too_large` where the
/// documents take more than [`FOREIGN_BYTES_MAX`].
pub(super) async fn hits(
    call: &Call<App>,
    state: &ControlState,
    view: &IndexView,
    hits: Vec<u8>,
) -> Result<Vec<u8>, ApiError> {
    let keys = &view.settings.foreign_keys;
    if keys.is_empty() || !state.features.foreign_keys {
        return Ok(hits);
    }
    for key in keys {
        existing(state, &key.foreign_index_uid)?;
    }
    Box::pin(rewrite(call, state, hits, Objects::Entered, |_| keys)).await
}

/// As [`hits`], for hits of several indexes that say where they are from.
///
/// # Errors
/// As [`hits`], but `index_not_found` only where a hit has an id that stands for a document of such an index.
pub(super) async fn federated(
    call: &Call<App>,
    state: &ControlState,
    views: &[(Arc<str>, Arc<IndexView>)],
    hits: Vec<u8>,
) -> Result<Vec<u8>, ApiError> {
    if !is_needed(state, views) {
        return Ok(hits);
    }
    let keys_of = |hit: &Value| {
        let uid = hit.pointer("/_federation/indexUid").and_then(Value::as_str);
        let view = views.iter().find(|(name, _)| Some(&**name) == uid);
        view.map_or(&[][..], |(_, view)| &view.settings.foreign_keys)
    };
    rewrite(call, state, hits, Objects::Left, keys_of).await
}

fn existing<'s>(state: &'s ControlState, uid: &str) -> Result<&'s Arc<IndexView>, ApiError> {
    state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))
}

/// Whether hits of these indexes can have ids that stand for documents.
fn is_needed(state: &ControlState, views: &[(Arc<str>, Arc<IndexView>)]) -> bool {
    state.features.foreign_keys && views.iter().any(|(_, view)| !view.settings.foreign_keys.is_empty())
}

async fn rewrite<'k>(
    call: &Call<App>,
    state: &ControlState,
    hits: Vec<u8>,
    objects: Objects,
    keys_of: impl Fn(&Value) -> &'k [ForeignKey],
) -> Result<Vec<u8>, ApiError> {
    let grant = &call.grant;
    let keys_of = move |hit: &Value| keys_of(hit).iter().filter(move |key| grant.sees_index(&key.foreign_index_uid));
    let mut hits: Vec<Value> = serde_json::from_slice(&hits).map_err(ApiError::internal)?;
    let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for hit in &mut hits {
        for key in keys_of(hit) {
            let ids = wanted.entry(&key.foreign_index_uid).or_default();
            each_id(hit, &key.field_name, objects, &mut |id, _| {
                ids.insert(id);
            });
        }
    }
    let mut found = Found::new();
    for (uid, ids) in wanted.into_iter().filter(|(_, ids)| !ids.is_empty()) {
        found.insert(uid.to_owned(), documents(call, (uid, existing(state, uid)?), ids).await?);
    }
    let mut bytes_left = Some(FOREIGN_BYTES_MAX);
    for hit in &mut hits {
        for key in keys_of(hit) {
            let documents = found.get(&key.foreign_index_uid);
            each_id(hit, &key.field_name, objects, &mut |id, place| {
                let foreign = documents.and_then(|documents| documents.get(&id));
                bytes_left = bytes_left.and_then(|left| left.checked_sub(foreign.map_or(0, |foreign| foreign.bytes)));
                if bytes_left.is_some() {
                    *place = foreign.map_or_else(|| Value::Object(Map::new()), |foreign| foreign.document.clone());
                }
            });
        }
        if bytes_left.is_none() {
            let message = format!(
                "The documents that stand for foreign keys take more than {FOREIGN_BYTES_MAX} bytes; ask for fewer hits."
            );
            return Err(ApiError::new(ErrorCode::PayloadTooLarge, message));
        }
        if call.app.runtime.should_yield() {
            call.app.runtime.yield_now().await;
        }
    }
    serde_json::to_vec(&hits).map_err(ApiError::internal)
}

/// The documents of these ids that the caller's token admits, with what their index displays.
async fn documents(
    call: &Call<App>,
    (uid, view): (&str, &Arc<IndexView>),
    ids: BTreeSet<String>,
) -> Result<BTreeMap<String, Foreign>, ApiError> {
    let Some(primary_key) = &view.primary_key else { return Ok(BTreeMap::new()) };
    let query = DocumentsQuery {
        limit: ids.len() as u64,
        ids: Some(ids.into_iter().collect()),
        filter: call.grant.tenant_filter(uid).cloned(),
        ..DocumentsQuery::default()
    };
    let page = call.app.reader.documents(view.clone(), query).await?;
    let displayed = if view.settings.displayed_attributes.iter().any(|name| name == "*") {
        Paths::All
    } else {
        Paths::Named(view.settings.displayed_attributes.clone())
    };
    let mut documents = BTreeMap::new();
    for document in &page.documents {
        let (mut shown, mut whole) = (Map::new(), Map::new());
        for (field, bytes) in &document.fields {
            let Some(name) = page.fields.name(*field) else { continue };
            let value: Value = serde_json::from_slice(bytes).map_err(ApiError::internal)?;
            if let Some(kept) = displayed.select(name, &value, false) {
                shown.insert(name.to_owned(), kept);
            }
            whole.insert(name.to_owned(), value);
        }
        if let Some(id) = at_path(&whole, primary_key).and_then(as_id) {
            let bytes = document.fields.iter().map(|(_, value)| value.len()).sum();
            documents.insert(id, Foreign { document: Value::Object(shown), bytes });
        }
    }
    Ok(documents)
}

/// The value at a dotted path, or under the path as a name.
fn at_path<'v>(fields: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    at_path(fields.get(first)?.as_object()?, rest)
}

/// A value that can be the id of a document.
fn as_id(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if primary_key::is_valid(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// Visits every id at `path` in a hit and in its `_formatted`.
fn each_id(hit: &mut Value, path: &str, objects: Objects, visit: &mut dyn FnMut(String, &mut Value)) {
    if let Some(formatted) = hit.get_mut("_formatted") {
        below(formatted, path, objects, visit);
    }
    below(hit, path, objects, visit);
}

fn below(value: &mut Value, path: &str, objects: Objects, visit: &mut dyn FnMut(String, &mut Value)) {
    match value {
        Value::Object(fields) => {
            let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
            match (fields.get_mut(first), rest) {
                (Some(inner), None) => leaves(inner, objects, visit),
                (Some(inner), Some(rest)) => below(inner, rest, objects, visit),
                (None, _) => {}
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| below(item, path, objects, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn leaves(value: &mut Value, objects: Objects, visit: &mut dyn FnMut(String, &mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| leaves(item, objects, visit)),
        Value::Object(fields) if objects == Objects::Entered => {
            fields.values_mut().for_each(|value| leaves(value, objects, visit));
        }
        _ => {
            if let Some(id) = as_id(value) {
                visit(id, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The hit with `<id>` in the place of ids.
    fn marked(hit: Value, path: &str, objects: Objects) -> Value {
        let mut hit = hit;
        each_id(&mut hit, path, objects, &mut |id, place| *place = format!("<{id}>").into());
        hit
    }

    #[test]
    fn ids_are_found_wherever_the_path_leads() {
        let both = |hit: Value, path: &str| marked(hit, path, Objects::Entered);
        assert_eq!(both(json!({"a": "x", "b": "x"}), "a"), json!({"a": "<x>", "b": "x"}));
        assert_eq!(both(json!({"a": [1, "b c", null, true, 1.5]}), "a"), json!({"a": ["<1>", "b c", null, true, 1.5]}));
        assert_eq!(both(json!({"m": [{"by": 1}, {"by": "y"}]}), "m.by"), json!({"m": [{"by": "<1>"}, {"by": "<y>"}]}));
        assert_eq!(both(json!({"t": 1}), "a"), json!({"t": 1}));
        assert_eq!(
            both(json!({"a": 1, "_formatted": {"a": "1"}}), "a"),
            json!({"a": "<1>", "_formatted": {"a": "<1>"}})
        );
        assert_eq!(both(json!({"a": {"x": 1}}), "a"), json!({"a": {"x": "<1>"}}));
        assert_eq!(marked(json!({"a": {"x": 1}}), "a", Objects::Left), json!({"a": {"x": 1}}));
    }
}
