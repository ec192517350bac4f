//! Templates: Liquid texts, and the requests and answers of `rest` embedders with their placeholders.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Fault;

const TEXT: &str = "{{text}}";
const FRAGMENT: &str = "{{fragment}}";
const EMBEDDING: &str = "{{embedding}}";
const REPEAT: &str = "{{..}}";

/// Checks that a Liquid template parses, with the standard tags and filters.
///
/// # Errors
/// What is wrong with it, in one line.
pub(super) fn check_liquid(template: &str) -> Result<(), String> {
    static PARSER: LazyLock<Option<liquid::Parser>> =
        LazyLock::new(|| liquid::ParserBuilder::with_stdlib().build().ok());
    let parser = PARSER.as_ref().ok_or("templates are not available")?;
    parser.parse(template).map(drop).map_err(|error| error.to_string().lines().next().unwrap_or_default().to_string())
}

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
    let wanted: &[&str] = if with_fragments { &[FRAGMENT] } else { &[TEXT, FRAGMENT] };
    let request = given("request").map(|request| placeholder(request, wanted, "request")).transpose()?;
    let response = given("response").map(|response| placeholder(response, &[EMBEDDING], "response")).transpose()?;
    if let (Some(request), Some(response)) = (request, response)
        && request.repeated != response.repeated
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
        Value::String(template) => check_liquid(template),
        Value::Array(items) => items.iter().try_for_each(check_strings),
        Value::Object(fields) => fields.values().try_for_each(check_strings),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Where the one placeholder of a request or an answer stands.
struct Placeholder {
    /// Within the first item of a list whose second is `{{..}}`: once for each text.
    repeated: bool,
}

/// Finds the one placeholder of `wanted`. A `{{..}}` must be the second item of a list, and the placeholder within the first.
fn placeholder(value: &Value, wanted: &[&str], field: &str) -> Result<Placeholder, Fault> {
    let mut scan = Scan { wanted, found: Vec::new(), repeats: 0, misplaced: false };
    scan.walk(value, false);
    let fault = |why: &str| Err(Fault::embedding(format!("`{field}` {why}")));
    match scan.found[..] {
        _ if scan.misplaced => fault("has a `{{..}}` that is not the second item of its list"),
        _ if scan.repeats > 1 => fault("has more than one `{{..}}`"),
        [repeated] if repeated || scan.repeats == 0 => Ok(Placeholder { repeated }),
        [_] => fault("has its placeholder outside the list that `{{..}}` repeats"),
        [] => fault(&format!("has no `{}`", wanted.join("` or `"))),
        _ => fault(&format!("has more than one `{}`", wanted.join("` or `"))),
    }
}

struct Scan<'a> {
    wanted: &'a [&'a str],
    /// For each placeholder met, whether it is repeated.
    found: Vec<bool>,
    repeats: usize,
    misplaced: bool,
}

impl Scan<'_> {
    fn walk(&mut self, value: &Value, repeated: bool) {
        match value {
            Value::String(text) if text == REPEAT => self.misplaced = true,
            Value::String(text) if self.wanted.contains(&text.as_str()) => self.found.push(repeated),
            Value::Array(items) => {
                let repeats = items.len() > 1 && items[1] == REPEAT && items[0] != REPEAT;
                self.repeats += usize::from(repeats);
                for (at, item) in items.iter().enumerate() {
                    if !(repeats && at == 1) {
                        self.walk(item, repeated || (repeats && at == 0));
                    }
                }
            }
            Value::Object(fields) => fields.values().for_each(|value| self.walk(value, repeated)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_one_placeholder_and_at_most_one_repetition() {
        let repeated = |value: Value| placeholder(&value, &[TEXT], "request").map(|found| found.repeated).ok();
        for (value, wanted) in [
            (json!("{{text}}"), Some(false)),
            (json!({"input": ["{{text}}"]}), Some(false)),
            (json!({"input": ["{{text}}", "{{..}}", "ignored"]}), Some(true)),
            (json!({"x": [{"y": "{{text}}"}, "{{..}}"]}), Some(true)),
            (json!(3), None),
            (json!("a {{text}} b"), None),
            (json!({"input": "{{..}}"}), None),
            (json!(["{{..}}", "{{text}}"]), None),
            (json!(["{{text}}", "x", "{{..}}"]), None),
            (json!(["{{text}}", "{{..}}", "{{..}}"]), None),
            (json!([["{{text}}", "{{..}}"], "{{..}}"]), None),
            (json!({"a": ["x", "{{..}}"], "b": "{{text}}"}), None),
            (json!({"a": ["{{text}}", "{{..}}"], "b": "{{text}}"}), None),
        ] {
            assert_eq!(repeated(value.clone()), wanted, "{value}");
        }
    }

    #[test]
    fn liquid_is_parsed_with_its_standard_library() {
        assert_eq!(check_liquid(crate::api::settings::DEFAULT_TEMPLATE), Ok(()));
        assert_eq!(check_liquid("{{ doc.a | upcase | join: ',' }} {{ anything }}"), Ok(()));
        assert!(check_liquid("{{doc.t").is_err() && check_liquid("{{ doc.t | no_such_filter }}").is_err());
    }
}
