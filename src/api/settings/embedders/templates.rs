//! Templates: Liquid texts, and the requests and responses of `rest` embedders with their placeholders.

use serde_json::{Map, Value};

use super::meaning::Fault;
use crate::embedders::exchange::{EMBEDDING, FRAGMENT, Pattern, TEXT};
use crate::embedders::template::TextTemplate;

/// When fields are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// At the request: what else the embedder has is not known.
    Sent,
    /// In the task: this is the whole embedder.
    Merged,
}

const FRAGMENTS: [&str; 2] = ["indexingFragments", "searchFragments"];

/// Fragments that there are: those that a change takes away are not.
fn fragments<'f>(fields: &'f Map<String, Value>, field: &str) -> impl Iterator<Item = (&'f String, &'f Value)> {
    let all = fields.get(field).and_then(Value::as_object).into_iter().flatten();
    all.filter(|(_, fragment)| !fragment.is_null())
}

fn has_fragments(fields: &Map<String, Value>) -> bool {
    FRAGMENTS.iter().any(|field| fragments(fields, field).next().is_some())
}

/// A body has fragments or a template of documents.
pub(super) fn check_either(fields: &Map<String, Value>) -> Result<(), Fault> {
    if has_fragments(fields) && fields.get("documentTemplate").is_some_and(|template| !template.is_null()) {
        return Err(Fault::embedding("fragments and `documentTemplate` do not go together"));
    }
    Ok(())
}

/// An embedder that both indexes and searches has fragments for both or for neither.
pub(super) fn check_both_sides(fields: &Map<String, Value>) -> Result<(), Fault> {
    let any = |field: &str| fragments(fields, field).next().is_some();
    if any("indexingFragments") != any("searchFragments") {
        return Err(Fault::embedding("`indexingFragments` and `searchFragments` must both be given, or neither"));
    }
    Ok(())
}

/// Checks `request`, and beside it `response` and the fragments: without a request they are not looked into.
pub(super) fn check_requests(fields: &Map<String, Value>, phase: Phase) -> Result<(), Fault> {
    let given = |field: &str| fields.get(field).filter(|value| !value.is_null());
    let Some(request) = given("request") else { return Ok(()) };
    let wanted: &[&'static str] = match (has_fragments(fields), phase) {
        (true, _) => &[FRAGMENT],
        (false, Phase::Sent) => &[TEXT, FRAGMENT],
        (false, Phase::Merged) => &[TEXT],
    };
    for field in FRAGMENTS {
        for (name, fragment) in fragments(fields, field) {
            check_strings(fragment).map_err(|why| Fault::embedding(format!("`{field}.{name}`: {why}")))?;
        }
    }
    let request = placeholder(request, wanted, "request")?;
    let response = given("response").map(|response| placeholder(response, &[EMBEDDING], "response")).transpose()?;
    if response.is_some_and(|response| request.is_repeated() != response.is_repeated()) {
        return Err(Fault::embedding("`request` and `response` must both repeat with `{{..}}`, or neither"));
    }
    Ok(())
}

/// Checks what only using an embedder shows: how an ollama server is asked, and how long the vectors of fragments are.
pub(super) fn check_address(fields: &Map<String, Value>, source: &str) -> Result<(), Fault> {
    if has_fragments(fields) && !fields.contains_key("dimensions") {
        return Err(Fault::embedding("an embedder with fragments needs `dimensions`"));
    }
    match fields.get("url").and_then(Value::as_str) {
        Some(url) if source == "ollama" && !url.ends_with("/api/embeddings") && !url.ends_with("/api/embed") => {
            Err(Fault::embedding("the `url` of an ollama server ends in `/api/embed` or `/api/embeddings`"))
        }
        _ => Ok(()),
    }
}

/// Every string within a fragment is a template.
fn check_strings(value: &Value) -> Result<(), String> {
    match value {
        Value::String(template) => TextTemplate::parse(template).map(drop),
        Value::Array(items) => items.iter().try_for_each(check_strings),
        Value::Object(fields) => fields.values().try_for_each(check_strings),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Finds the one placeholder of `wanted` in a setting.
fn placeholder(value: &Value, wanted: &[&'static str], field: &str) -> Result<Pattern, Fault> {
    Pattern::parse(value, wanted).map_err(|why| Fault::embedding(format!("`{field}` {why}")))
}
