//! Which field identifies the documents of an index, and what may identify one.

use serde_json::Value;
use smallvec::SmallVec;

use crate::document::payload::DocumentFields;
use crate::error::UserError;
use crate::fields::FieldsMap;
use crate::ids::FieldId;

/// Longest id in bytes.
pub const ID_BYTES_MAX: usize = 511;

/// The primary key that the first document of a payload suggests: its only top-level name that ends in `id` in any letter
/// case.
pub fn infer(document: &DocumentFields, names: &FieldsMap) -> Result<String, UserError> {
    let mut fields: SmallVec<[FieldId; 16]> = SmallVec::from_slice(&document.in_order);
    let mut seen = SmallVec::<[FieldId; 16]>::new();
    fields.retain(|field| {
        let first = !seen.contains(field);
        seen.push(*field);
        first
    });
    let named = fields.iter().filter_map(|field| names.name(*field));
    let candidates: Vec<&str> = named.filter(|name| name.to_lowercase().ends_with("id")).collect();
    match candidates.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(UserError::new(
            "index_primary_key_no_candidate_found",
            "The primary key inference failed as the engine did not find any field ending with `id` in its name. \
             Please specify the primary key manually using the `primaryKey` query parameter.",
        )),
        [first, second, ..] => Err(UserError::new(
            "index_primary_key_multiple_candidates_found",
            format!(
                "The primary key inference failed as the engine found {} fields ending with `id` in their names: \
                 '{first}' and '{second}'. Please specify the primary key manually using the `primaryKey` query parameter.",
                candidates.len()
            ),
        )),
    }
}

/// Finds the ids of documents by a primary key, which may be a dotted path.
pub struct KeyFinder<'k> {
    key: &'k str,
    /// The field of that whole name, looked up once it is known to the index.
    field: Option<FieldId>,
}

impl<'k> KeyFinder<'k> {
    /// A finder for this key.
    pub fn new(key: &'k str) -> Self {
        Self { key, field: None }
    }

    /// The document's id as text. Fails with `missing_document_id` or `invalid_document_id`.
    pub fn id<'v>(
        &mut self,
        fields: impl Iterator<Item = (FieldId, &'v [u8])> + Clone,
        names: &FieldsMap,
    ) -> Result<String, UserError> {
        // A key without a name names nothing, not even a field of that name.
        if self.field.is_none() && !self.key.is_empty() {
            self.field = names.id(self.key);
        }
        if !self.key.contains('.') {
            let flat = self.field.and_then(|wanted| fields.clone().find(|(field, _)| *field == wanted));
            return match flat {
                Some((_, value)) => id_of_json(value),
                None => Err(self.missing(fields, names)),
            };
        }
        let mut found: SmallVec<[Value; 2]> = SmallVec::new();
        for (field, value) in fields.clone() {
            let Some(name) = names.name(field) else { continue };
            if let Some(rest) = below(self.key, name) {
                let value: Value = serde_json::from_slice(value).unwrap_or_default();
                collect(rest, value, &mut found);
            }
        }
        match found.as_slice() {
            [] => Err(self.missing(fields, names)),
            [value] => id_of_json(value.to_string().as_bytes()),
            _ => Err(UserError::new(
                "invalid_document_id",
                format!("The document holds several values for the primary key `{}`.", self.key),
            )),
        }
    }

    fn missing<'v>(&self, fields: impl Iterator<Item = (FieldId, &'v [u8])>, names: &FieldsMap) -> UserError {
        let mut text = Vec::new();
        crate::document::record::write_fields(fields, names, &mut text);
        let text = String::from_utf8_lossy(&text[..text.len().min(500)]).into_owned();
        UserError::new("missing_document_id", format!("Document doesn't have a `{}` attribute: `{text}`.", self.key))
    }
}

/// What is left of a path below `name`: `Some("")` when the path is the name itself.
fn below<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(name)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

fn collect(path: &str, value: Value, found: &mut SmallVec<[Value; 2]>) {
    // A path that ends in a dot would leave nothing below the name, which is not the name itself; such keys match nothing.
    if path.is_empty() {
        found.push(value);
    } else if let Value::Object(members) = value {
        for (name, value) in members {
            if let Some(rest) = below(path, &name) {
                collect(rest, value, found);
            }
        }
    }
}

/// The id that a JSON value is: an integer of 64 bits, or a string of 1 to 511 bytes of `A-Z a-z 0-9 - _`.
pub fn id_of_json(value: &[u8]) -> Result<String, UserError> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let id = match value.first() {
        Some(b'"') => text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).filter(|id| is_valid(id)),
        Some(b'-' | b'0'..=b'9') => Some(text).filter(|text| text.bytes().all(|b| b == b'-' || b.is_ascii_digit())),
        _ => None,
    };
    id.map(str::to_owned).ok_or_else(|| {
        UserError::new(
            "invalid_document_id",
            format!(
                "Document identifier `{text}` is invalid. A document identifier can be of type integer or string, only \
                 composed of alphanumeric characters (a-z A-Z 0-9), hyphens (-) and underscores (_), and can not be more \
                 than {ID_BYTES_MAX} bytes."
            ),
        )
    })
}

/// Whether a string may be an id.
pub fn is_valid(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::names::FieldNames;
    use crate::document::payload::read_document;

    fn with<T>(text: &str, then: impl FnOnce(&DocumentFields, &FieldsMap) -> T) -> T {
        let (mut map, mut document) = (FieldsMap::default(), DocumentFields::default());
        read_document(text.as_bytes(), &mut FieldNames::new(&mut map), &mut document).unwrap();
        then(&document, &map)
    }

    fn inferred(text: &str) -> Result<String, &'static str> {
        with(text, |document, names| infer(document, names).map_err(|error| error.code))
    }

    fn id(key: &str, text: &str) -> Result<String, &'static str> {
        with(text, |document, names| KeyFinder::new(key).id(document.iter(), names).map_err(|error| error.code))
    }

    #[test]
    fn names_that_end_in_id_are_candidates() {
        assert_eq!(inferred(r#"{"a":1,"BookID":2}"#), Ok("BookID".into()));
        assert_eq!(inferred(r#"{"meta.id":1}"#), Ok("meta.id".into()));
        assert_eq!(inferred(r#"{"identifier":1,"meta":{"id":1}}"#), Err("index_primary_key_no_candidate_found"));
        assert_eq!(inferred(r#"{"id":1,"covid":1}"#), Err("index_primary_key_multiple_candidates_found"));
        assert_eq!(inferred(r#"{"id":1,"id":2}"#), Ok("id".into()));
    }

    #[test]
    fn ids_are_integers_or_short_words() {
        for (value, wanted) in [("7", "7"), ("-9223372036854775808", "-9223372036854775808"), (r#""a-_Z9""#, "a-_Z9")] {
            assert_eq!(id("id", &format!(r#"{{"id":{value}}}"#)), Ok(wanted.into()));
        }
        assert_eq!(id("id", r#"{"id":18446744073709551615}"#), Ok("18446744073709551615".into()));
        let long = format!("\"{}\"", "x".repeat(512));
        let bad = [
            "1.0",
            "1e2",
            "-0",
            "18446744073709551616",
            "true",
            "null",
            "[1]",
            "{}",
            "\"\"",
            "\"a b\"",
            "\"é\"",
            &long,
        ];
        for value in bad {
            assert_eq!(id("id", &format!(r#"{{"id":{value}}}"#)), Err("invalid_document_id"), "{value}");
        }
        assert_eq!(id("id", r#"{"x":1}"#), Err("missing_document_id"));
        assert_eq!(id("", r#"{"":1}"#), Err("missing_document_id"));
    }

    #[test]
    fn nested_keys_match_any_spelling_of_the_path() {
        for text in [r#"{"a":{"b":{"c":1}}}"#, r#"{"a.b":{"c":1}}"#, r#"{"a":{"b.c":1}}"#, r#"{"a.b.c":1}"#] {
            assert_eq!(id("a.b.c", text), Ok("1".into()), "{text}");
        }
        assert_eq!(id("a.b", r#"{"a":{"b":1},"a.b":1}"#), Err("invalid_document_id"));
        for text in [r#"{"a":[{"b":1}]}"#, r#"{"a":3}"#, r#"{"ab":1}"#] {
            assert_eq!(id("a.b", text), Err("missing_document_id"), "{text}");
        }
    }
}
