//! The facts about a document that filters, facets, sort and distinct read: for every faceted path whether it exists, is
//! null, is empty, and which strings and numbers it holds.

use std::collections::BTreeMap;

use ahash::AHashSet;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::document::primary_key::KeyFinder;
use crate::facets::geo::shapes::{Shape, shape_of};
use crate::facets::geo::{self, GeoPoint};
use crate::facets::normalise::{cut, normalise, number_bits};
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::network_shards::{SHARD_FIELD, rendezvous};
use crate::settings::Settings;

/// The facts of one document. Two documents with equal facts have the same entries in every column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// For each faceted path that the document has; never holds an entry that does not exist.
    pub fields: BTreeMap<FieldId, FieldFacts>,
    /// The document's valid `_geo`, where the index's settings ask for it.
    pub point: Option<GeoPoint>,
    /// The document's valid `_geojson`, likewise.
    pub shape: Option<Shape>,
}

/// The facts of one document on one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldFacts {
    /// The value (or that of some object in an array) is `null` itself.
    pub null: bool,
    /// The value (or that of some object in an array) is `""`, `[]` or `{}` itself.
    pub empty: bool,
    /// [`number_bits`] of the numbers.
    pub numbers: std::collections::BTreeSet<u64>,
    /// Normalised and cut strings, each with the last spelling of it in the document.
    pub strings: BTreeMap<Box<str>, Box<str>>,
}

/// Extracts facts of many documents under the same settings. It remembers which paths are faceted; the index may meet new
/// paths between two documents.
pub struct Extractor<'s> {
    settings: &'s Settings,
    /// When set, facts of other fields are left out: for a rebuild of some columns.
    only: Option<AHashSet<FieldId>>,
    takes_points: bool,
    takes_shapes: bool,
    /// By field number: whether its facts are wanted. As long as the part of the fields map seen so far.
    wanted: Vec<bool>,
    /// Every dotted beginning of a wanted path, itself included: what need not be entered is passed over.
    leads: AHashSet<Box<str>>,
    /// Finds the ids of documents, where their network shard is a fact.
    key: Option<KeyFinder<'s>>,
}

impl<'s> Extractor<'s> {
    /// Facts of all faceted paths under these settings.
    pub fn new(settings: &'s Settings) -> Self {
        Self {
            settings,
            only: None,
            takes_points: geo::takes_points(settings),
            takes_shapes: geo::takes_shapes(settings),
            wanted: Vec::new(),
            leads: AHashSet::new(),
            key: None,
        }
    }

    /// Facts of these fields alone (as far as they are faceted), and points and shapes.
    pub fn only(settings: &'s Settings, fields: impl IntoIterator<Item = FieldId>) -> Self {
        Self { only: Some(fields.into_iter().collect()), ..Self::new(settings) }
    }

    /// The same with the field that identifies documents, by which network shards have them.
    pub fn with_key(mut self, primary_key: Option<&'s str>) -> Self {
        let wants = self.only.as_ref().is_none_or(|only| only.contains(&SHARD_FIELD));
        self.key = primary_key.filter(|_| wants && !self.settings.network_shards.is_empty()).map(KeyFinder::new);
        self
    }

    /// The facts of a document, given as its top-level fields with their JSON. The JSON must be valid (it was checked when
    /// the document was accepted); what follows an error within a field is passed over.
    pub fn extract<'a>(
        &mut self,
        fields: &FieldsMap,
        document: impl Iterator<Item = (FieldId, &'a [u8])> + Clone,
    ) -> Facts {
        self.learn(fields);
        let mut facts = Facts::default();
        self.add_shard(fields, document.clone(), &mut facts);
        let mut path = String::new();
        for (field, json) in document {
            let Some(name) = fields.name(field) else { continue };
            match name {
                "_vectors" => continue,
                "_geo" if self.takes_points => {
                    self.add_point(fields, json, &mut facts);
                    continue;
                }
                "_geojson" if self.takes_shapes => {
                    facts.shape = serde_json::from_slice(json).ok().and_then(|value| shape_of(&value));
                    continue;
                }
                _ if !self.leads.contains(name) => continue,
                _ => {}
            }
            path.clear();
            path.push_str(name);
            let mut walk = Walk { extractor: self, fields, facts: &mut facts, path: &mut path };
            let mut json = serde_json::Deserializer::from_slice(json);
            let parsed = walk.value(true).deserialize(&mut json);
            debug_assert!(parsed.is_ok(), "invalid JSON in field {name}");
        }
        facts
    }

    /// Takes note of the paths the index has met since the last call.
    fn learn(&mut self, fields: &FieldsMap) {
        for (field, name) in fields.iter().skip(self.wanted.len()) {
            let wanted = self.only.as_ref().is_none_or(|only| only.contains(&field)) && self.settings.faceted(name);
            self.wanted.push(wanted);
            if wanted {
                self.leads.extend(name.match_indices('.').map(|(at, _)| Box::from(&name[..at])));
                self.leads.insert(name.into());
            }
        }
    }

    fn wants(&self, field: FieldId) -> bool {
        self.wanted.get(usize::from(field.0)).copied().unwrap_or(false)
    }

    /// The network shard of a document is kept as the place of its name.
    fn add_shard<'a>(
        &mut self,
        fields: &FieldsMap,
        document: impl Iterator<Item = (FieldId, &'a [u8])> + Clone,
        facts: &mut Facts,
    ) {
        let Some(key) = &mut self.key else { return };
        let names = &self.settings.network_shards;
        let Ok(id) = key.id(document, fields) else { return };
        let name = rendezvous(names.iter().map(String::as_str), &id);
        if let Some(place) = names.iter().position(|other| Some(other.as_str()) == name) {
            facts.fields.entry(SHARD_FIELD).or_default().numbers.insert(number_bits(place as f64));
        }
    }

    /// A point has facts on `_geo.lat` and `_geo.lng` only, as numbers even when it was written in strings.
    fn add_point(&self, fields: &FieldsMap, json: &[u8], facts: &mut Facts) {
        let value = serde_json::from_slice(json).ok();
        let Some(point) = value.and_then(|value| geo::stored_point(&value).ok().flatten()) else { return };
        facts.point = Some(point);
        for (name, number) in [("_geo.lat", point.lat), ("_geo.lng", point.lng)] {
            if let Some(field) = fields.id(name).filter(|field| self.wants(*field)) {
                facts.fields.entry(field).or_default().numbers.insert(number_bits(number));
            }
        }
    }
}

/// Where the walk through a document's JSON is.
struct Walk<'w, 's> {
    extractor: &'w Extractor<'s>,
    fields: &'w FieldsMap,
    facts: &'w mut Facts,
    path: &'w mut String,
}

impl<'w, 's> Walk<'w, 's> {
    /// Looks up the current path once; its elements, if the value is an array, share the answer.
    fn value<'v>(&'v mut self, direct: bool) -> Value<'v, 'w, 's> {
        let field = self.fields.id(self.path).filter(|field| self.extractor.wants(*field));
        if let Some(field) = field {
            self.facts.fields.entry(field).or_default();
        }
        Value { walk: self, field, direct }
    }
}

/// One JSON value at the walk's path. `direct` tells a field's own value from an element of an array: only the former can
/// make the field null or empty.
struct Value<'v, 'w, 's> {
    walk: &'v mut Walk<'w, 's>,
    field: Option<FieldId>,
    direct: bool,
}

impl Value<'_, '_, '_> {
    fn facts(&mut self) -> Option<&mut FieldFacts> {
        self.field.and_then(|field| self.walk.facts.fields.get_mut(&field))
    }

    fn add_number(mut self, number: f64) {
        if let Some(facts) = self.facts()
            && number.is_finite()
        {
            facts.numbers.insert(number_bits(number));
        }
    }

    fn add_string(mut self, text: &str) {
        if let Some(facts) = self.facts() {
            let normalised = normalise(text);
            facts.strings.insert(cut(&normalised).into(), text.into());
        }
    }

    fn set_empty(mut self) {
        if self.direct
            && let Some(facts) = self.facts()
        {
            facts.empty = true;
        }
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.add_string(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.add_number(value as f64);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.add_number(value as f64);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.add_number(value);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        if value.is_empty() {
            self.set_empty();
        } else {
            self.add_string(value);
        }
        Ok(())
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        if self.direct
            && let Some(facts) = self.facts()
        {
            facts.null = true;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut any = false;
        while seq.next_element_seed(Value { walk: &mut *self.walk, field: self.field, direct: false })?.is_some() {
            any = true;
        }
        if !any {
            self.set_empty();
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut any = false;
        let parent = self.walk.path.len();
        while map.next_key_seed(Key(self.walk.path))?.is_some() {
            any = true;
            if self.walk.extractor.leads.contains(self.walk.path.as_str()) {
                map.next_value_seed(self.walk.value(true))?;
            } else {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
            self.walk.path.truncate(parent);
        }
        if !any {
            self.set_empty();
        }
        Ok(())
    }
}

/// Appends a member's name to the path.
struct Key<'p>(&'p mut String);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.0.push('.');
        self.0.push_str(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facets::test_support::{Facets, filterable};

    fn facts_of(document: serde_json::Value) -> impl Fn(&str) -> Option<FieldFacts> {
        let mut facets = Facets::new(filterable(&["v", "w"]));
        let facts = facets.facts(&document);
        move |path| facets.fields.id(path).and_then(|field| facts.fields.get(&field)).cloned()
    }

    fn strings(facts: &FieldFacts) -> Vec<&str> {
        facts.strings.keys().map(AsRef::as_ref).collect()
    }

    /// Only a field's own value makes it null or empty; an array's elements do not, but members of objects in it do.
    #[test]
    fn elements_of_arrays_make_nothing_null_or_empty() {
        for value in [json!([null]), json!([""]), json!([[]]), json!([{}]), json!(1), json!("x")] {
            let facts = facts_of(json!({ "v": value }))("v").expect("v exists");
            assert!(!facts.null && !facts.empty, "{value}");
        }
        for value in [json!([]), json!({}), json!("")] {
            assert!(facts_of(json!({ "v": value }))("v").expect("v exists").empty, "{value}");
        }
        assert!(facts_of(json!({"v": null}))("v").expect("v exists").null);
        assert!(facts_of(json!({"v": [{"w": null}]}))("v.w").expect("v.w exists").null);
        assert!(facts_of(json!({"v": [{"w": []}]}))("v.w").expect("v.w exists").empty);
    }

    #[test]
    fn paths_cross_objects_arrays_and_literal_dots() {
        for document in
            [json!({"v": {"w": 1}}), json!({"v.w": 1}), json!({"v": [{"w": 1}]}), json!({"v": [[{"w": 1}]]})]
        {
            let of = facts_of(document.clone());
            assert_eq!(of("v.w").expect("v.w exists").numbers.len(), 1, "{document}");
            assert_eq!(of("v").is_some(), document.get("v").is_some(), "a literal dot makes no parent");
            assert_eq!(of("w"), None);
        }
    }

    #[test]
    fn values_are_normalised_once_and_booleans_are_strings() {
        let facts = facts_of(json!({"v": ["Drama", "drama ", true, " ", [2, 2.0, "2"]]}))("v").expect("v exists");
        assert_eq!(strings(&facts), ["", "2", "drama", "true"]);
        assert_eq!(facts.strings["drama"].as_ref(), "drama ", "the last spelling is kept");
        assert_eq!(facts.numbers.len(), 1);
    }

    /// With `_geo` filterable its parts are numbers whatever their form, and `_geo` itself has no facts.
    #[test]
    fn points_are_numbers_below_geo() {
        let mut facets = Facets::new(filterable(&["_geo"]));
        let facts = facets.facts(&json!({"_geo": {"lat": "1.5", "lng": -2}}));
        assert_eq!(facts.point, Some(GeoPoint { lat: 1.5, lng: -2.0 }));
        let names: Vec<_> = facts.fields.keys().filter_map(|field| facets.fields.name(*field)).collect();
        assert_eq!(names, ["_geo.lat", "_geo.lng"]);
        assert_eq!(facets.facts(&json!({"_geo": {"lat": "x", "lng": -2}})), Facts::default());
    }

    /// A path that comes up after others were seen must be found faceted too.
    #[test]
    fn new_paths_are_learned_between_documents() {
        let settings = filterable(&["v"]);
        let mut fields = FieldsMap::default();
        let v = fields.insert("v").expect("room");
        let mut extractor = Extractor::new(&settings);
        assert_eq!(extractor.extract(&fields, [(v, b"1".as_slice())].into_iter()).fields.len(), 1);
        let below = fields.insert("v.x").expect("room");
        let facts = extractor.extract(&fields, [(v, br#"{"x":1}"#.as_slice())].into_iter());
        assert!(facts.fields.contains_key(&below));
    }
}
