//! Writing documents as JSON: either all fields, spliced as stored bytes, or those selected by a list of dotted paths.

use serde_json::{Map, Value};
use shards::error::UserError;

/// The field that only `retrieveVectors` shows.
pub const VECTORS_FIELD: &str = "_vectors";

/// Which parts of documents an answer shows.
pub struct Selection {
    /// Dotted paths; `None` for everything.
    paths: Option<Vec<String>>,
}

impl Selection {
    /// The parts that these paths pick; `None` for everything, an empty list for nothing.
    pub fn new(paths: Option<Vec<String>>) -> Self {
        Self { paths }
    }

    /// Appends a document, given its top-level fields (name and raw JSON), to `out`. `vectors` is the JSON that stands under
    /// `_vectors`, when it is to be shown at all; a stored field of that name never is.
    ///
    /// # Errors
    /// A stored field that is no JSON, which only a defect can cause.
    pub fn write<'d>(
        &self,
        fields: impl Iterator<Item = (&'d str, &'d [u8])>,
        vectors: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), UserError> {
        let mut object = ObjectWriter::new(out);
        for (name, raw) in fields.filter(|(name, _)| *name != VECTORS_FIELD) {
            let Some(paths) = &self.paths else {
                object.raw(name, raw);
                continue;
            };
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            match below(name, &paths) {
                Below::Whole => object.raw(name, raw),
                Below::Nothing => {}
                Below::Parts(paths) => {
                    let value: Value = serde_json::from_slice(raw).map_err(unreadable)?;
                    if let Some(picked) = pick(value, &paths) {
                        object.value(name, &picked);
                    }
                }
            }
        }
        if let Some(vectors) = vectors {
            object.raw(VECTORS_FIELD, vectors);
        }
        object.end();
        Ok(())
    }
}

fn unreadable(error: serde_json::Error) -> UserError {
    UserError::new("internal", format!("a stored document cannot be read: {error}"))
}

/// What a list of paths picks of a field.
enum Below<'p> {
    Nothing,
    Whole,
    /// The paths that go on below it, without its name.
    Parts(Vec<&'p str>),
}

fn below<'p>(name: &str, paths: &[&'p str]) -> Below<'p> {
    if paths.contains(&name) {
        return Below::Whole;
    }
    let rest = |path: &&'p str| path.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
    let parts: Vec<&str> = paths.iter().filter_map(rest).collect();
    if parts.is_empty() { Below::Nothing } else { Below::Parts(parts) }
}

/// The picked parts of a value that longer paths reach. Objects and lists stay even when nothing in them is picked, scalars
/// do not.
fn pick(value: Value, paths: &[&str]) -> Option<Value> {
    match value {
        Value::Object(fields) => Some(pick_fields(fields, paths).into()),
        Value::Array(items) => Some(items.into_iter().filter_map(|item| pick_item(item, paths)).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn pick_fields(fields: Map<String, Value>, paths: &[&str]) -> Map<String, Value> {
    let picked = fields.into_iter().filter_map(|(name, value)| {
        let value = match below(&name, paths) {
            Below::Whole => Some(value),
            Below::Parts(paths) => pick(value, &paths),
            Below::Nothing => None,
        };
        value.map(|value| (name, value))
    });
    picked.collect()
}

/// In a list, objects of which nothing is picked are dropped; lists within it stay.
fn pick_item(item: Value, paths: &[&str]) -> Option<Value> {
    pick(item, paths).filter(|picked| picked.as_object().is_none_or(|fields| !fields.is_empty()))
}

/// Writes a JSON object field by field.
struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    separator: u8,
}

impl<'o> ObjectWriter<'o> {
    fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, separator: b'{' }
    }

    fn raw(&mut self, name: &str, raw: &[u8]) {
        self.name(name);
        self.out.extend_from_slice(raw);
    }

    fn value(&mut self, name: &str, value: &Value) {
        self.name(name);
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    fn name(&mut self, name: &str) {
        self.out.push(std::mem::replace(&mut self.separator, b','));
        serde_json::to_writer(&mut *self.out, name).expect("text can be written as JSON");
        self.out.push(b':');
    }

    fn end(self) {
        if self.separator == b'{' {
            self.out.push(b'{');
        }
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selected(document: &Value, paths: Option<&[&str]>) -> Value {
        let fields: Vec<(String, Vec<u8>)> = document
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string().into_bytes()))
            .collect();
        let paths = paths.map(|paths| paths.iter().map(|path| path.to_string()).collect());
        let mut out = Vec::new();
        let fields = fields.iter().map(|(name, raw)| (name.as_str(), raw.as_slice()));
        Selection::new(paths).write(fields, None, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn paths_pick_parts_and_keep_what_encloses_them() {
        let document = json!({"id": 1, "a": {"b": 1, "c": {"d": [1, 2]}}, "a.b": "flat", "n": null, "empty": {},
            "list": [{"k": 1, "v": 2}, {"v": 3}, "text", [{"k": 4}]], "x.y": {"z": 1, "z.w": 2}});
        for (paths, wanted) in [
            (vec!["a"], json!({"a": {"b": 1, "c": {"d": [1, 2]}}})),
            (vec!["a.b"], json!({"a": {"b": 1}, "a.b": "flat"})),
            (vec!["a.c.d", "id"], json!({"id": 1, "a": {"c": {"d": [1, 2]}}})),
            (vec!["list.k"], json!({"list": [{"k": 1}, [{"k": 4}]]})),
            (vec!["list.absent"], json!({"list": [[]]})),
            (vec!["a.b.c"], json!({"a": {}})),
            (vec!["x.y.z.w"], json!({"x.y": {"z.w": 2}})),
            (vec!["a", "a.b"], json!({"a": {"b": 1, "c": {"d": [1, 2]}}, "a.b": "flat"})),
            (vec!["n", "empty.x"], json!({"n": null, "empty": {}})),
            (vec!["A", "*", "", ".a", "a*"], json!({})),
            (vec!["a."], json!({"a": {}})),
            (vec![], json!({})),
        ] {
            assert_eq!(selected(&document, Some(&paths)), wanted, "{paths:?}");
        }
        assert_eq!(selected(&document, None), document);
    }

    /// Vectors are never shown unless they are asked for, whatever the selection says.
    #[test]
    fn stored_vectors_are_replaced() {
        let document = json!({"id": 1, "_vectors": {"e": [1]}});
        assert_eq!(selected(&document, None), json!({"id": 1}));
        assert_eq!(selected(&document, Some(&["_vectors"])), json!({}));
        let mut out = Vec::new();
        let fields = [("a\"", &b"1"[..])];
        Selection::new(None).write(fields.into_iter(), Some(b"{}"), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a\"":1,"_vectors":{}}"#);
    }
}
