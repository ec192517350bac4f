//! Templates: Liquid texts, and the requests and answers of `rest` embedders with their placeholders.

use serde_json::{Map, Value};

use super::Fault;
use crate::embedders::exchange::{EMBEDDING, FRAGMENT, Pattern, TEXT};
use crate::embedders::template::TextTemplate;

/// Checks `request`, `response`, the fragments and the address of an ollama server, as far as they are given.
pub(super) fn check_requests(fields: &Map<String, Value>, is_ollama: bool) -> Result<(), Fault> {
    let given = |field: &str| fields.get(field).filter(|value| !value.is_null());
    let with_fragments =
        given("indexingFragments").or(given("searchFragments")).is_some_and(|f| *f != Value::Object(Map::new()));
    if with_fragments && given("documentTemplate").is_some() {
        return Err(Fault::embedding("fragments and `documentTemplate` do not go together"));
    }
    for field in ["indexingFragments", "searchFragments"] {
        for (name, fragment) in given(field).and_then(Value::as_object).into_iter().flatten() {
            check_strings(fragment).map_err(|why| Fault::embedding(format!("`{field}.{name}`: {why}")))?;
        }
    }
    let wanted: &[&'static str] = if with_fragments { &[FRAGMENT] } else { &[TEXT, FRAGMENT] };
    let request = given("request").map(|request| placeholder(request, wanted, "request")).transpose()?;
    let response = given("response").map(|response| placeholder(response, &[EMBEDDING], "response")).transpose()?;
    if let (Some(request), Some(response)) = (request, response)
        && request.is_repeated() != response.is_repeated()
    {
        return Err(Fault::embedding("`request` and `response` must both repeat with `{{..}}`, or neither"));
    }
    match given("url").and_then(Value::as_str) {
        Some(url) if is_ollama && !url.ends_with("/api/embeddings") && !url.ends_with("/api/embed") => {
            Err(Fault::embedding("the `url` of an ollama server ends in `/api/embed` or `/api/embeddings`"))
        }
        _ => Ok(()),
    }
}

/// Checks a merged embedder's fragments against each other and against its `request`. `both_sides`: indexing and searching
/// are done by this one embedder, so that it needs fragments for both or for neither.
pub(super) fn check_fragments(fields: &Map<String, Value>, both_sides: bool) -> Result<(), Fault> {
    let any = |field: &str| fields.get(field).and_then(Value::as_object).is_some_and(|fragments| !fragments.is_empty());
    let (indexing, search) = (any("indexingFragments"), any("searchFragments"));
    if both_sides && indexing != search {
        return Err(Fault::embedding("`indexingFragments` and `searchFragments` must both be given, or neither"));
    }
    if (indexing || search) && !fields.contains_key("dimensions") {
        return Err(Fault::embedding("an embedder with fragments needs `dimensions`"));
    }
    let Some(request) = fields.get("request") else { return Ok(()) };
    let wanted = if indexing || search { FRAGMENT } else { TEXT };
    placeholder(request, &[wanted], "request").map(drop)
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
