//! Embedders: which fields each source takes, how a change is merged, and what the result must satisfy.

mod templates;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use shards::error::UserError;
use shards::settings::Settings;
use storage_engine::vector::DIMENSIONS_MAX;

use super::check::{object, one_of, or_null, string};
use super::{DEFAULT_TEMPLATE, DEFAULT_TEMPLATE_BYTES};
use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};
use crate::embedders::template::TextTemplate;

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

/// The models of the openAi source with the length of their vectors; shorter ones may be asked for except of the last.
const OPENAI_MODELS: [(&str, u64); 3] =
    [("text-embedding-3-small", 1536), ("text-embedding-3-large", 3072), ("text-embedding-ada-002", 1536)];

const OPENAI_FIXED_MODEL: &str = "text-embedding-ada-002";
const HUGGING_FACE_MODEL: &str = "BAAI/bge-base-en-v1.5";
const HUGGING_FACE_REVISION: &str = "617ca489d9e86b49b8167676d8220688b99db36e";

/// Where an embedder object stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    Search,
    Indexing,
}

/// What a source makes of a field.
#[derive(PartialEq, Eq)]
enum Rule {
    Must,
    May,
    MustNot,
}

fn rule(source: &str, field: &str, place: Place) -> Rule {
    let nested = place != Place::Top;
    let must = match field {
        "source" => return if nested { Rule::Must } else { Rule::May },
        "distribution" | "binaryQuantized" => return if nested { Rule::MustNot } else { Rule::May },
        "searchEmbedder" | "indexingEmbedder" => source == "composite" && !nested,
        "model" => source == "ollama",
        "dimensions" => source == "userProvided",
        "url" | "request" | "response" => source == "rest",
        _ => false,
    };
    let may = match field {
        "model" => matches!(source, "openAi" | "huggingFace"),
        "revision" | "pooling" => source == "huggingFace",
        "apiKey" | "dimensions" => matches!(source, "openAi" | "ollama" | "rest"),
        "url" => matches!(source, "openAi" | "ollama"),
        "documentTemplate" | "documentTemplateMaxBytes" => place != Place::Search && has_template(source),
        "headers" => source == "rest",
        "indexingFragments" => source == "rest" && place != Place::Search,
        "searchFragments" => source == "rest" && place != Place::Indexing,
        _ => false,
    };
    match (must, may) {
        (true, _) => Rule::Must,
        (false, true) => Rule::May,
        (false, false) => Rule::MustNot,
    }
}

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
        for field in node.fields(code)? {
            match field.name() {
                "value" => value = Some(field.value().clone()),
                _ => return Err(field.unknown(code)),
            }
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

/// What the body's embedders mean, as far as the body alone shows it; `embedders` is what [`check`] gave.
pub(super) fn check_meaning(embedders: &Value) -> Result<(), ApiError> {
    for (name, embedder) in embedders.as_object().into_iter().flatten() {
        if name.is_empty() {
            return Err(ApiError::new(CODE, "An embedder needs a name that is not empty."));
        }
        if let Some(fields) = embedder.as_object() {
            check_sent(fields, Place::Top).map_err(|fault| fault.error(name))?;
        }
    }
    Ok(())
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
        check_merged(&merged, Place::Top)
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
    let template_is_default = merged.get("documentTemplate").is_none_or(|template| template == DEFAULT_TEMPLATE);
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
    if has_fragments && template_is_default {
        // The default template was only filled in; fragments take its place.
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

/// Why an embedder will not do.
struct Fault {
    code: ErrorCode,
    why: String,
}

impl Fault {
    fn settings(why: impl Into<String>) -> Self {
        Self { code: CODE, why: why.into() }
    }

    fn embedding(why: impl Into<String>) -> Self {
        Self { code: ErrorCode::VectorEmbeddingError, why: why.into() }
    }

    fn error(self, name: &str) -> ApiError {
        ApiError::new(self.code, format!("In embedder `{name}`: {}.", self.why))
    }
}

/// The checks of a body: its values, and the table of sources when it names one.
fn check_sent(fields: &Map<String, Value>, place: Place) -> Result<(), Fault> {
    let source = fields.get("source").and_then(Value::as_str);
    templates::check_requests(fields, source == Some("ollama"))?;
    check_values(fields)?;
    if let Some(source) = source {
        check_fields(source, fields, place)?;
    } else if place != Place::Top && fields.contains_key("source") {
        return Err(Fault::settings("the embedders of a composite one need a `source`"));
    }
    for (field, place) in [("searchEmbedder", Place::Search), ("indexingEmbedder", Place::Indexing)] {
        if let Some(Value::Object(inner)) = fields.get(field) {
            if source == Some("composite") && !inner.contains_key("source") {
                return Err(Fault::settings(format!("`{field}` needs a `source`")));
            }
            check_sent(inner, place)?;
        }
    }
    Ok(())
}

/// The checks of a merged embedder: everything that does not need the embedder itself.
fn check_merged(fields: &Map<String, Value>, place: Place) -> Result<(), Fault> {
    let source = source_of(fields);
    check_values(fields)?;
    check_fields(source, fields, place)?;
    templates::check_requests(fields, source == "ollama")?;
    templates::check_fragments(fields, place == Place::Top)?;
    for (field, place) in [("searchEmbedder", Place::Search), ("indexingEmbedder", Place::Indexing)] {
        if let Some(Value::Object(inner)) = fields.get(field) {
            check_merged(inner, place)?;
        }
    }
    Ok(())
}

/// Taking back a field counts as giving it: a source that does not take the field refuses null too.
fn check_taken_back(source: &str, change: &Map<String, Value>) -> Result<(), Fault> {
    let nulls = change.iter().filter(|(_, value)| value.is_null());
    match nulls.map(|(field, _)| field).find(|field| rule(source, field, Place::Top) == Rule::MustNot) {
        Some(field) => Err(Fault::settings(format!("source `{source}` does not take `{field}`"))),
        None => Ok(()),
    }
}

fn check_values(fields: &Map<String, Value>) -> Result<(), Fault> {
    match fields.get("dimensions").and_then(Value::as_u64) {
        Some(0) => return Err(Fault::settings("`dimensions` must be at least 1")),
        Some(count) if count > u64::from(DIMENSIONS_MAX) => {
            return Err(Fault::settings(format!("`dimensions` must be at most {DIMENSIONS_MAX}")));
        }
        _ => {}
    }
    if let Some(url) = fields.get("url").and_then(Value::as_str)
        && !is_absolute_url(url)
    {
        return Err(Fault::settings(format!("`{url}` is no absolute URL")));
    }
    if let Some(template) = fields.get("documentTemplate").and_then(Value::as_str) {
        TextTemplate::parse(template).map_err(|why| Fault::settings(format!("`documentTemplate`: {why}")))?;
        if fields.get("documentTemplateMaxBytes").and_then(Value::as_u64) == Some(0) {
            return Err(Fault::settings("`documentTemplateMaxBytes` must be at least 1"));
        }
    }
    for field in ["indexingFragments", "searchFragments"] {
        if fields.get(field).and_then(Value::as_object).is_some_and(|fragments| fragments.len() > EMBEDDERS_MAX) {
            return Err(Fault::settings(format!("`{field}` takes at most {EMBEDDERS_MAX} fragments")));
        }
    }
    Ok(())
}

fn check_fields(source: &str, fields: &Map<String, Value>, place: Place) -> Result<(), Fault> {
    if place != Place::Top && matches!(source, "composite" | "userProvided") {
        return Err(Fault::settings(format!("source `{source}` cannot stand inside a composite embedder")));
    }
    for field in FIELDS {
        let value = fields.get(field);
        match rule(source, field, place) {
            Rule::MustNot if value.is_some() => {
                return Err(Fault::settings(format!("source `{source}` does not take `{field}` here")));
            }
            Rule::Must if value.is_none_or(Value::is_null) => {
                return Err(Fault::settings(format!("source `{source}` needs `{field}`")));
            }
            _ => {}
        }
    }
    if source == "openAi" { check_openai(fields) } else { Ok(()) }
}

fn check_openai(fields: &Map<String, Value>) -> Result<(), Fault> {
    let model = fields.get("model").and_then(Value::as_str).unwrap_or(OPENAI_MODELS[0].0);
    let Some((_, longest)) = OPENAI_MODELS.iter().find(|(name, _)| *name == model) else {
        return Err(Fault::settings(format!("`{model}` is no model of openAi")));
    };
    match fields.get("dimensions").and_then(Value::as_u64) {
        Some(size) if size > *longest || (model == OPENAI_FIXED_MODEL && size != *longest) => {
            Err(Fault::settings(format!("`{model}` makes vectors of {longest} numbers, not of {size}")))
        }
        _ => Ok(()),
    }
}

/// Whether this is an absolute URL with a host, as HTTP clients need it.
fn is_absolute_url(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        && !host.is_empty()
        && !host.contains(char::is_whitespace)
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
