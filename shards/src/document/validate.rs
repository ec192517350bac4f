//! Reserved fields: what `_geo`, `_geojson` and `_vectors` must look like when a document is added.

use serde_json::Value;

use crate::document::names::VECTORS;
use crate::document::payload::DocumentFields;
use crate::error::UserError;
use crate::facets::geo::shapes::check_shape;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::settings::{FilterableRule, Settings};

/// Checks the reserved fields of documents; made once for a batch.
pub struct Reserved<'s> {
    settings: &'s Settings,
    geo: bool,
    geojson: bool,
    vectors: bool,
}

impl<'s> Reserved<'s> {
    /// What these settings make active.
    pub fn new(settings: &'s Settings) -> Self {
        let filterable = |name: &str| {
            let plain = |rule: &FilterableRule| matches!(rule, FilterableRule::Name(other) if other == name);
            settings.filterable_attributes.iter().any(plain)
        };
        Self {
            settings,
            geo: filterable("_geo") || settings.sortable_attributes.contains("_geo"),
            geojson: filterable("_geojson"),
            vectors: !settings.embedders.is_empty(),
        }
    }

    /// Checks one document's reserved fields.
    pub fn check(&self, document: &DocumentFields, id: &str, names: &FieldsMap) -> Result<(), UserError> {
        if !(self.geo || self.geojson || self.vectors) {
            return Ok(());
        }
        let value = |name: &str| {
            let field: FieldId = names.id(name)?;
            document.get(field).and_then(|text| serde_json::from_slice::<Value>(text).ok())
        };
        if self.geo
            && let Some(geo) = value("_geo")
        {
            check_geo(&geo, id)?;
        }
        if self.geojson
            && let Some(shape) = value("_geojson")
        {
            check_geojson(&shape, id)?;
        }
        if self.vectors {
            let vectors = value(VECTORS);
            check_vectors(vectors.as_ref(), id, self.settings)?;
        }
        Ok(())
    }
}

fn check_geo(geo: &Value, id: &str) -> Result<(), UserError> {
    let fail = |why: &str| {
        let message = format!("The `_geo` field in the document with the id: `{id}` {why}. Was given `{geo}`.");
        Err(UserError::new("invalid_document_geo_field", message))
    };
    let members = match geo {
        Value::Null => return Ok(()),
        Value::Object(members) => members,
        _ => return fail("is not an object"),
    };
    let number = |name: &str| match members.get(name) {
        Some(Value::Number(_)) => true,
        Some(Value::String(text)) => text.parse::<f64>().is_ok_and(f64::is_finite),
        _ => false,
    };
    if !number("lat") || !number("lng") {
        return fail("must hold `lat` and `lng`, both numbers");
    }
    if members.len() != 2 { fail("holds more than `lat` and `lng`") } else { Ok(()) }
}

fn check_geojson(shape: &Value, id: &str) -> Result<(), UserError> {
    let named =
        |error: UserError| UserError::new(error.code, format!("In the document with the id `{id}`: {}", error.message));
    check_shape(shape).map(drop).map_err(named)
}

fn check_vectors(vectors: Option<&Value>, id: &str, settings: &Settings) -> Result<(), UserError> {
    let members = match vectors {
        Some(Value::Object(members)) => Some(members),
        None => None,
        Some(other) => {
            let message =
                format!("The `_vectors` field in the document with the id: `{id}` is not an object: `{other}`.");
            return Err(UserError::new("internal", message));
        }
    };
    for (name, value) in members.into_iter().flatten() {
        let wrong = |why: &str| {
            let message =
                format!("Bad embedder configuration in the document with id: `{id}`. `_vectors.{name}` {why}");
            UserError::new("invalid_vectors_type", message)
        };
        let lists = match value {
            Value::Null => continue,
            Value::Object(object) => {
                let expected = object.len() == 2 && object.contains_key("embeddings");
                if !expected || !object.get("regenerate").is_some_and(Value::is_boolean) {
                    return Err(wrong("must have exactly `embeddings` and `regenerate` (a boolean)."));
                }
                &object["embeddings"]
            }
            other => other,
        };
        let lengths = vector_lengths(lists).ok_or_else(|| wrong("is not a vector or a list of vectors."))?;
        let dimensions = settings.embedders.get(name).and_then(|e| e.get("dimensions")).and_then(Value::as_u64);
        if let (Some(wanted), Some(length)) = (dimensions, lengths.iter().find(|n| Some(**n) != dimensions)) {
            let message = format!(
                "Invalid vector dimensions in document with id `{id}` in `._vectors.{name}`: expected {wanted}, found {length}."
            );
            return Err(UserError::new("invalid_vector_dimensions", message));
        }
    }
    for (name, embedder) in &settings.embedders {
        let provided = embedder.get("source").and_then(Value::as_str) == Some("userProvided");
        if provided && !members.is_some_and(|members| members.contains_key(name)) {
            let message = format!(
                "While embedding documents for embedder `{name}`: no vectors provided for document `{id}`; use \
                 `\"_vectors\": {{\"{name}\": null}}` for a document without vectors."
            );
            return Err(UserError::new("vector_embedding_error", message));
        }
    }
    Ok(())
}

/// The lengths of one vector or of a list of vectors; `None` for any other value.
fn vector_lengths(value: &Value) -> Option<Vec<u64>> {
    let items = match value {
        Value::Null => return Some(Vec::new()),
        Value::Array(items) => items,
        _ => return None,
    };
    if items.iter().all(Value::is_number) {
        return Some(if items.is_empty() { Vec::new() } else { vec![items.len() as u64] });
    }
    let length = |item: &Value| {
        let numbers = item.as_array()?;
        numbers.iter().all(Value::is_number).then_some(numbers.len() as u64)
    };
    items.iter().map(length).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn coordinates_are_two_numbers() {
        for good in [json!(null), json!({"lat": 91, "lng": "1.5"}), json!({"lng": -200.0, "lat": 0})] {
            assert!(check_geo(&good, "1").is_ok(), "{good}");
        }
        let bad =
            [json!({"lat": 1}), json!({"lat": null, "lng": 1}), json!({"lat": 1, "lng": 1, "x": 1}), json!([1, 2])];
        for bad in bad.into_iter().chain([json!("1,2"), json!({"lat": "x", "lng": 1})]) {
            assert_eq!(check_geo(&bad, "1").unwrap_err().code, "invalid_document_geo_field", "{bad}");
        }
    }

    #[test]
    fn vectors_have_a_shape_and_a_length() {
        let mut settings = Settings::default();
        settings.embedders.insert("m".into(), json!({"source": "userProvided", "dimensions": 2}));
        let code = |value: Option<Value>| check_vectors(value.as_ref(), "1", &settings).map_err(|error| error.code);
        assert_eq!(code(Some(json!({"m": [1, 2]}))), Ok(()));
        assert_eq!(code(Some(json!({"m": null}))), Ok(()));
        assert_eq!(code(Some(json!({"m": {"embeddings": [[1, 2], [3, 4]], "regenerate": false}}))), Ok(()));
        assert_eq!(code(Some(json!({"m": [1, 2, 3]}))), Err("invalid_vector_dimensions"));
        assert_eq!(code(Some(json!({"m": {"embeddings": [1, 2]}}))), Err("invalid_vectors_type"));
        assert_eq!(code(Some(json!({"m": null, "other": "x"}))), Err("invalid_vectors_type"));
        assert_eq!(code(Some(json!([1]))), Err("internal"));
        assert_eq!(code(None), Err("vector_embedding_error"));
    }
}
