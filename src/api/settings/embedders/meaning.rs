//! Validation of embedders: at the request as far as the body alone allows, and in the task once the change is merged.
//!
//! At the request, fields are checked individually, and in combination only if the body names a source. For the two sides of a
//! composite embedder, only the set of fields is checked there; errors in their values show when the sides are tested.

use serde_json::{Map, Value};
use storage_engine::vector::DIMENSIONS_MAX;
use url::Url;

use super::{CODE, EMBEDDERS_MAX, FIELDS, has_template, source_of, templates};
use crate::api::error::{ApiError, ErrorCode};
use crate::embedders::template::TextTemplate;

/// The models of the openAi source with the length of their vectors; shorter ones may be asked for except of the last.
pub(super) const OPENAI_MODELS: [(&str, u64); 3] =
    [("text-embedding-3-small", 1536), ("text-embedding-3-large", 3072), ("text-embedding-ada-002", 1536)];

const OPENAI_FIXED_MODEL: &str = "text-embedding-ada-002";
/// Where an embedder object stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
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

/// Why an embedder will not do.
pub(super) struct Fault {
    code: ErrorCode,
    why: String,
}

impl Fault {
    pub fn settings(why: impl Into<String>) -> Self {
        Self { code: CODE, why: why.into() }
    }

    pub fn embedding(why: impl Into<String>) -> Self {
        Self { code: ErrorCode::VectorEmbeddingError, why: why.into() }
    }

    pub fn error(self, name: &str) -> ApiError {
        ApiError::new(self.code, format!("In embedder `{name}`: {}.", self.why))
    }
}

/// What the body's embedders mean, as far as the body alone shows it; `embedders` is what [`super::check`] gave.
pub(in crate::api::settings) fn check_meaning(embedders: &Value) -> Result<(), ApiError> {
    for (name, embedder) in embedders.as_object().into_iter().flatten() {
        if name.is_empty() {
            return Err(ApiError::new(CODE, "An embedder needs a name that is not empty."));
        }
        if let Some(fields) = embedder.as_object() {
            check_sent(fields).map_err(|fault| fault.error(name))?;
        }
    }
    Ok(())
}

/// The checks of a body: its values, and the table of sources when it names one.
fn check_sent(fields: &Map<String, Value>) -> Result<(), Fault> {
    check_values(fields).map_err(Fault::settings)?;
    check_template(fields)?;
    templates::check_either(fields)?;
    templates::check_requests(fields, templates::Phase::Sent)?;
    let Some(source) = fields.get("source").and_then(Value::as_str) else { return Ok(()) };
    check_fields(source, fields, Place::Top)?;
    if source == "openAi" {
        check_openai(fields).map_err(Fault::settings)?;
    }
    for (inner, place) in sides(fields) {
        check_fields(source_of(inner), inner, place)?;
        check_template(inner)?;
    }
    Ok(())
}

/// The checks of a merged embedder: everything that does not need the embedder itself.
pub(super) fn check_merged(fields: &Map<String, Value>) -> Result<(), Fault> {
    let source = source_of(fields);
    check_values(fields).map_err(Fault::settings)?;
    check_template(fields)?;
    templates::check_both_sides(fields)?;
    templates::check_requests(fields, templates::Phase::Merged)?;
    check_fields(source, fields, Place::Top)?;
    if source == "openAi" {
        check_openai(fields).map_err(Fault::settings)?;
    }
    templates::check_address(fields, source)?;
    for (inner, place) in sides(fields) {
        check_fields(source_of(inner), inner, place)?;
        check_template(inner)?;
    }
    for (inner, _) in sides(fields) {
        check_side(inner)?;
    }
    Ok(())
}

/// The values of one side of a composite embedder.
fn check_side(fields: &Map<String, Value>) -> Result<(), Fault> {
    let source = source_of(fields);
    check_values(fields).map_err(Fault::embedding)?;
    if source == "openAi" {
        check_openai(fields).map_err(Fault::embedding)?;
    }
    templates::check_requests(fields, templates::Phase::Merged)?;
    templates::check_address(fields, source)
}

/// The two sides of a composite embedder.
fn sides(fields: &Map<String, Value>) -> impl Iterator<Item = (&Map<String, Value>, Place)> {
    let both = [("searchEmbedder", Place::Search), ("indexingEmbedder", Place::Indexing)];
    both.into_iter().filter_map(|(field, place)| Some((fields.get(field)?.as_object()?, place)))
}

/// Taking back a field counts as giving it: a source that does not take the field refuses null too.
pub(super) fn check_taken_back(source: &str, change: &Map<String, Value>) -> Result<(), Fault> {
    let nulls = change.iter().filter(|(_, value)| value.is_null());
    match nulls.map(|(field, _)| field).find(|field| rule(source, field, Place::Top) == Rule::MustNot) {
        Some(field) => Err(Fault::settings(format!("source `{source}` does not take `{field}`"))),
        None => Ok(()),
    }
}

fn check_values(fields: &Map<String, Value>) -> Result<(), String> {
    match fields.get("dimensions").and_then(Value::as_u64) {
        Some(0) => return Err("`dimensions` must be at least 1".into()),
        Some(count) if count > u64::from(DIMENSIONS_MAX) => {
            return Err(format!("`dimensions` must be at most {DIMENSIONS_MAX}"));
        }
        _ => {}
    }
    if let Some(url) = fields.get("url").and_then(Value::as_str) {
        Url::parse(url).map_err(|error| format!("`{url}` is no absolute URL: {error}"))?;
    }
    for field in ["indexingFragments", "searchFragments"] {
        if fields.get(field).and_then(Value::as_object).is_some_and(|fragments| fragments.len() > EMBEDDERS_MAX) {
            return Err(format!("`{field}` takes at most {EMBEDDERS_MAX} fragments"));
        }
    }
    Ok(())
}

fn check_template(fields: &Map<String, Value>) -> Result<(), Fault> {
    let Some(template) = fields.get("documentTemplate").and_then(Value::as_str) else { return Ok(()) };
    TextTemplate::parse(template).map_err(|why| Fault::settings(format!("`documentTemplate`: {why}")))?;
    if fields.get("documentTemplateMaxBytes").and_then(Value::as_u64) == Some(0) {
        return Err(Fault::settings("`documentTemplateMaxBytes` must be at least 1"));
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
                let named =
                    if field == "source" { "one inside a composite".into() } else { format!("source `{source}`") };
                return Err(Fault::settings(format!("{named} needs `{field}`")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether there is such a model of openAi, and whether its vectors can be as long as they are to be.
fn check_openai(fields: &Map<String, Value>) -> Result<(), String> {
    let model = fields.get("model").and_then(Value::as_str).unwrap_or(OPENAI_MODELS[0].0);
    let Some((_, longest)) = OPENAI_MODELS.iter().find(|(name, _)| *name == model) else {
        return Err(format!("`{model}` is no model of openAi"));
    };
    match fields.get("dimensions").and_then(Value::as_u64) {
        Some(size) if size > *longest || (model == OPENAI_FIXED_MODEL && size != *longest) => {
            Err(format!("`{model}` makes vectors of {longest} numbers, not of {size}"))
        }
        _ => Ok(()),
    }
}
