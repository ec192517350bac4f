//! Embedders: the types of their fields, and how a change is merged.

mod meaning;
mod templates;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use shards::error::UserError;
use shards::settings::Settings;

use self::meaning::{Fault, OPENAI_MODELS, Place, check_merged, check_taken_back};
use super::check::{object, one_of, or_null, string};
use super::{DEFAULT_TEMPLATE, DEFAULT_TEMPLATE_BYTES};
use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};

pub(super) use self::meaning::check_meaning;

/// Most embedders of one index, and most fragments of one embedder.
const EMBEDDERS_MAX: usize = 255;

const CODE: ErrorCode = ErrorCode::InvalidSettingsEmbedders;

/// The fields of an embedder, in the order in which they are shown.
const FIELDS: [&str; 18] = [
    "source",
    "model",
    "revision",
    "pooling",
    "apiKey",
    "dimensions",
    "binaryQuantized",
    "documentTemplate",
    "documentTemplateMaxBytes",
    "url",
    "indexingFragments",
    "searchFragments",
    "request",
    "response",
    "headers",
    "searchEmbedder",
    "indexingEmbedder",
    "distribution",
];

/// The fields that a change of source drops.
const DROPPED_WITH_SOURCE: [&str; 12] = [
    "model",
    "revision",
    "pooling",
    "dimensions",
    "url",
    "indexingFragments",
    "searchFragments",
    "request",
    "response",
    "headers",
    "searchEmbedder",
    "indexingEmbedder",
];

const HUGGING_FACE_MODEL: &str = "BAAI/bge-base-en-v1.5";
const HUGGING_FACE_REVISION: &str = "617ca489d9e86b49b8167676d8220688b99db36e";

fn has_template(source: &str) -> bool {
    matches!(source, "openAi" | "huggingFace" | "ollama" | "rest")
}

/// Types and names of the body's embedders; null for an embedder stays null.
pub(super) fn check(node: &Node<'_>, code: ErrorCode) -> Result<Value, ApiError> {
    let embedders = object(node, code, |field| or_null(field, code, embedder))?;
    Ok(sorted(embedders).into())
}

fn embedder(node: &Node<'_>, code: ErrorCode) -> Result<Value, ApiError> {
    let read = |field: &Node<'_>| match field.name() {
        "source" => or_null(field, code, |node, code| {
            one_of(node, &["openAi", "huggingFace", "ollama", "userProvided", "rest", "composite"], code)
        }),
        "model" | "revision" | "apiKey" | "url" | "documentTemplate" => or_null(field, code, string),
        "pooling" => or_null(field, code, |node, code| one_of(node, &["useModel", "forceCls", "forceMean"], code)),
        "dimensions" | "documentTemplateMaxBytes" => {
            or_null(field, code, |node, code| node.usize(code).map(|size| Value::from(size as u64)))
        }
        "binaryQuantized" => or_null(field, code, |node, code| node.boolean(code).map(Value::from)),
        "indexingFragments" | "searchFragments" => or_null(field, code, fragments),
        "request" | "response" => Ok(Some(field.value().clone())),
        "headers" => or_null(field, code, |node, code| {
            object(node, code, |header| string(header, code).map(Some)).map(|headers| sorted(headers).into())
        }),
        "searchEmbedder" | "indexingEmbedder" => or_null(field, code, embedder),
        "distribution" => or_null(field, code, distribution),
        _ => Ok(None),
    };
    object(node, code, read).map(|fields| in_order(fields).into())
}

fn fragments(node: &Node<'_>, code: ErrorCode) -> Result<Value, ApiError> {
    let fragment = |node: &Node<'_>, code| {
        let mut value = None;
        // Other members are passed over.
        for field in node.fields(code)?.filter(|field| field.name() == "value") {
            value = Some(field.value().clone());
        }
        let value = value.ok_or_else(|| node.missing("value", code))?;
        Ok(json!({"value": value}))
    };
    object(node, code, |field| or_null(field, code, fragment)).map(|fragments| sorted(fragments).into())
}

fn distribution(node: &Node<'_>, code: ErrorCode) -> Result<Value, ApiError> {
    let (mut mean, mut sigma) = (None, None);
    for field in node.fields(code)? {
        match field.name() {
            "mean" => mean = Some(field.ratio(code)?),
            "sigma" => match field.ratio(code)? {
                0.0 => return Err(field.expected("a number above 0.0", code)),
                value => sigma = Some(value),
            },
            _ => return Err(field.unknown(code)),
        }
    }
    let mean = mean.ok_or_else(|| node.missing("mean", code))?;
    let sigma = sigma.ok_or_else(|| node.missing("sigma", code))?;
    Ok(json!({"mean": mean, "sigma": sigma}))
}

/// Puts the changes into the index's embedders; null removes all of them.
pub(super) fn apply(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    let Some(changes) = value.as_object() else {
        settings.embedders.clear();
        return Ok(());
    };
    for (name, change) in changes {
        let Some(change) = change.as_object() else {
            settings.embedders.remove(name);
            continue;
        };
        let stored = settings.embedders.get(name).and_then(Value::as_object);
        let merged = merge(stored, change, Place::Top);
        let was_quantized = stored.is_some_and(|stored| flag(stored, "binaryQuantized"));
        if was_quantized && change.get("binaryQuantized") == Some(&Value::Bool(false)) {
            let fault = Fault::settings("`binaryQuantized` cannot be taken back: the full vectors are gone");
            return Err(fault.error(name).into());
        }
        check_merged(&merged)
            .and_then(|()| check_taken_back(source_of(&merged), change))
            .map_err(|fault| UserError::from(fault.error(name)))?;
        settings.embedders.insert(name.clone(), with_defaults(merged, Place::Top).into());
    }
    if settings.embedders.len() > EMBEDDERS_MAX {
        let message = format!("An index takes at most {EMBEDDERS_MAX} embedders.");
        return Err(ApiError::new(CODE, message).into());
    }
    Ok(())
}

/// Lays a change over a stored embedder (or over nothing). Null takes a field away.
fn merge(stored: Option<&Map<String, Value>>, change: &Map<String, Value>, place: Place) -> Map<String, Value> {
    let mut merged = stored.cloned().unwrap_or_default();
    // A new embedder is an openAi one unless it says otherwise; a source taken back is the default of all, a local model.
    let source = match change.get("source") {
        None => source_of(&merged).to_string(),
        Some(source) => source.as_str().unwrap_or("huggingFace").to_string(),
    };
    if stored.is_some() && source != source_of(&merged) {
        DROPPED_WITH_SOURCE.iter().for_each(|field| drop(merged.shift_remove(*field)));
        if !has_template(&source) {
            merged.shift_remove("documentTemplate");
            merged.shift_remove("documentTemplateMaxBytes");
        }
    }
    merged.insert("source".into(), source.into());
    for (field, value) in change.iter().filter(|(field, _)| *field != "source") {
        match (field.as_str(), value) {
            ("documentTemplateMaxBytes", value) if ignores_max_bytes(stored, change, value) => {
                merged.shift_remove(field);
            }
            (_, Value::Null) => drop(merged.shift_remove(field)),
            ("indexingFragments" | "searchFragments", Value::Object(changes)) => {
                let mut fragments: BTreeMap<String, Value> =
                    merged.get(field).and_then(Value::as_object).into_iter().flatten().map(own).collect();
                fragments.extend(changes.iter().map(own));
                fragments.retain(|_, fragment| !fragment.is_null());
                merged.insert(field.clone(), Value::Object(fragments.into_iter().collect()));
            }
            ("indexingEmbedder", Value::Object(change)) if place == Place::Top => {
                let inner = merge(merged.get(field).and_then(Value::as_object), change, Place::Indexing);
                merged.insert(field.clone(), inner.into());
            }
            _ => drop(merged.insert(field.clone(), value.clone())),
        }
    }
    let has_fragments = ["indexingFragments", "searchFragments"].iter().any(|field| non_empty(&merged, field));
    if has_fragments {
        // Fragments take the template's place.
        merged.shift_remove("documentTemplate");
        merged.shift_remove("documentTemplateMaxBytes");
    }
    in_order(merged)
}

/// A size is only kept beside a template that is there: not with one taken back in the same change, nor on a new embedder
/// that is given none, nor when a new one is given 0.
fn ignores_max_bytes(stored: Option<&Map<String, Value>>, change: &Map<String, Value>, value: &Value) -> bool {
    let sent = change.get("documentTemplate");
    sent.is_some_and(Value::is_null) || (stored.is_none() && (sent.is_none() || value == 0))
}

/// Fills in what a source shows without being told.
fn with_defaults(mut fields: Map<String, Value>, place: Place) -> Map<String, Value> {
    let source = source_of(&fields).to_string();
    match source.as_str() {
        "openAi" => default(&mut fields, "model", OPENAI_MODELS[0].0),
        "huggingFace" => {
            if !fields.contains_key("model") {
                default(&mut fields, "revision", HUGGING_FACE_REVISION);
            }
            default(&mut fields, "model", HUGGING_FACE_MODEL);
            default(&mut fields, "pooling", "useModel");
        }
        "rest" => default(&mut fields, "headers", json!({})),
        _ => {}
    }
    for field in ["indexingFragments", "searchFragments"] {
        if !non_empty(&fields, field) {
            fields.shift_remove(field);
        }
    }
    let has_fragments = fields.contains_key("indexingFragments") || fields.contains_key("searchFragments");
    if has_template(&source) && !has_fragments && place != Place::Search {
        default(&mut fields, "documentTemplate", DEFAULT_TEMPLATE);
        default(&mut fields, "documentTemplateMaxBytes", DEFAULT_TEMPLATE_BYTES);
    }
    for (field, place) in [("searchEmbedder", Place::Search), ("indexingEmbedder", Place::Indexing)] {
        if let Some(Value::Object(inner)) = fields.get_mut(field) {
            *inner = with_defaults(std::mem::take(inner), place);
        }
    }
    in_order(fields)
}

fn default(fields: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    fields.entry(field).or_insert_with(|| value.into());
}

fn source_of(fields: &Map<String, Value>) -> &str {
    fields.get("source").and_then(Value::as_str).unwrap_or("openAi")
}

fn flag(fields: &Map<String, Value>, field: &str) -> bool {
    fields.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn non_empty(fields: &Map<String, Value>, field: &str) -> bool {
    fields.get(field).and_then(Value::as_object).is_some_and(|object| !object.is_empty())
}

fn own((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// The fields of one embedder in the order of [`FIELDS`].
fn in_order(mut fields: Map<String, Value>) -> Map<String, Value> {
    FIELDS.iter().filter_map(|field| fields.shift_remove(*field).map(|value| (field.to_string(), value))).collect()
}

fn sorted(object: Map<String, Value>) -> Map<String, Value> {
    object.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
}

#[cfg(test)]
mod tests;
