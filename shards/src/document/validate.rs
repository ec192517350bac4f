//! Reserved fields: what `_geo` and `_geojson` must look like when a document is added, and in stored documents when a change of
//! settings makes them count.

use serde_json::Value;

use crate::document::payload::DocumentFields;
use crate::error::UserError;
use crate::facets::geo::shapes::check_shape;
use crate::facets::geo::{check_point, stored_point, takes_points, takes_shapes};
use crate::fields::FieldsMap;
use crate::settings::Settings;

/// Checks the reserved fields of documents; made once for a batch.
#[derive(Debug, PartialEq, Eq)]
pub struct Reserved {
    geo: bool,
    geojson: bool,
}

impl Reserved {
    /// What these settings make active.
    pub fn new(settings: &Settings) -> Self {
        Self { geo: takes_points(settings), geojson: takes_shapes(settings) }
    }

    /// What a change of settings makes active; `None` for nothing.
    pub fn gained(old: &Settings, new: &Settings) -> Option<Self> {
        let (old, new) = (Self::new(old), Self::new(new));
        let gained = Self { geo: new.geo && !old.geo, geojson: new.geojson && !old.geojson };
        (gained.geo || gained.geojson).then_some(gained)
    }

    /// Checks one document's `_geo` and `_geojson`; `None` for one that it does not have, or that does not count.
    ///
    /// # Errors
    /// `invalid_document_geo_field`.
    pub fn check(&self, document: &DocumentFields, id: &str, names: &FieldsMap) -> [Option<Result<(), UserError>>; 2] {
        let value = |name: &str| parsed(document.get(names.id(name)?)?);
        let geo = self.geo.then(|| value("_geo")).flatten();
        let geojson = self.geojson.then(|| value("_geojson")).flatten();
        let checked = [geo.map(|geo| check_point(&geo).map(drop)), geojson.map(|shape| check_shape(&shape).map(drop))];
        checked.map(|checked| Some(checked?.map_err(|error| in_document(id, error))))
    }

    /// Checks a stored document's reserved fields: a `_geo` without coordinates is no point, and other members do not matter.
    ///
    /// # Errors
    /// `invalid_document_geo_field`, `invalid_document_geojson_field`; the document's `id` is asked for only then.
    pub fn check_stored<'v>(
        &self,
        mut fields: impl Iterator<Item = (&'v str, &'v [u8])>,
        id: impl FnOnce() -> String,
    ) -> Result<(), UserError> {
        let refused = fields.find_map(|(name, text)| match name {
            "_geo" if self.geo => stored_point(&parsed(text)?).err(),
            "_geojson" if self.geojson => {
                let error = check_shape(&parsed(text)?).err()?;
                Some(UserError::new("invalid_document_geojson_field", error.message))
            }
            _ => None,
        });
        refused.map_or(Ok(()), |error| Err(in_document(&id(), error)))
    }
}

fn parsed(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok()
}

fn in_document(id: &str, error: UserError) -> UserError {
    UserError::new(error.code, format!("In the document with the id `{id}`: {}", error.message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stored_documents_may_be_without_coordinates_but_not_with_half_of_them() {
        let both = Reserved { geo: true, geojson: true };
        let check = |name: &str, value: Value| {
            let text = value.to_string();
            let checked = both.check_stored([(name, text.as_bytes())].into_iter(), || "7".to_owned());
            checked.map_err(|error| (error.code, error.message.contains("`7`")))
        };
        for good in [json!("x"), json!(null), json!({}), json!([1, 2]), json!({"lat": "1", "lng": 2, "x": 3})] {
            assert_eq!(check("_geo", good), Ok(()));
        }
        for bad in [json!({"lat": 1}), json!({"lat": "a", "lng": 1}), json!({"lat": null, "lng": null})] {
            assert_eq!(check("_geo", bad), Err(("invalid_document_geo_field", true)));
        }
        assert_eq!(check("_geojson", json!({"type": "Point", "coordinates": [1, 2]})), Ok(()));
        for bad in [json!(null), json!({}), json!({"type": "Point"})] {
            assert_eq!(check("_geojson", bad), Err(("invalid_document_geojson_field", true)));
        }
        assert_eq!(check("other", json!({"lat": 1})), Ok(()));
    }

    #[test]
    fn only_what_was_not_active_before_is_checked() {
        let none = Settings::default();
        let geo = Settings { sortable_attributes: ["_geo".to_owned()].into(), ..Settings::default() };
        assert_eq!(Reserved::gained(&none, &geo), Some(Reserved { geo: true, geojson: false }));
        assert_eq!((Reserved::gained(&geo, &geo), Reserved::gained(&geo, &none)), (None, None));
    }
}
