//! Reserved fields: what `_geo` and `_geojson` must look like when a document is added.

use serde_json::Value;

use crate::document::payload::DocumentFields;
use crate::error::UserError;
use crate::facets::geo::shapes::check_shape;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::settings::{FilterableRule, Settings};

/// Checks the reserved fields of documents; made once for a batch.
pub struct Reserved {
    geo: bool,
    geojson: bool,
}

impl Reserved {
    /// What these settings make active.
    pub fn new(settings: &Settings) -> Self {
        let filterable = |name: &str| {
            let plain = |rule: &FilterableRule| matches!(rule, FilterableRule::Name(other) if other == name);
            settings.filterable_attributes.iter().any(plain)
        };
        Self {
            geo: filterable("_geo") || settings.sortable_attributes.contains("_geo"),
            geojson: filterable("_geojson"),
        }
    }

    /// Checks one document's reserved fields.
    pub fn check(&self, document: &DocumentFields, id: &str, names: &FieldsMap) -> Result<(), UserError> {
        if !(self.geo || self.geojson) {
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
}
