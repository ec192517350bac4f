//! Field values as merging of facets and of distinct hits distinguishes them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facets::distinct::GroupValue;
use crate::facets::normalise::{cut, normalise, number_bits, number_text};

/// One value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FieldValue {
    /// A number as it is written: `1` and `1.0` are two.
    Number(Box<str>),
    /// A normalised string, or a boolean as text.
    Text(Box<str>),
}

impl FieldValue {
    /// The distinct group that the value makes.
    pub(in crate::search) fn group(&self) -> GroupValue {
        match self {
            Self::Text(text) => GroupValue::String(cut(text).into()),
            Self::Number(text) => GroupValue::Number(number_bits(text.parse().unwrap_or_default())),
        }
    }

    /// The key that a facet shows for the value, its case and spelling aside.
    pub(super) fn facet_key(&self) -> Box<str> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(text) => match text.parse::<f64>() {
                Ok(number) => number_text(number).into(),
                Err(_) => text.clone(),
            },
        }
    }
}

/// The different values at a dotted path of a document, given by its top-level fields. Those in arrays count; objects do not.
pub fn values_at<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>, path: &str) -> Vec<FieldValue> {
    let mut found = Vec::new();
    for (name, json) in fields {
        if (name == path || is_below(path, name))
            && let Ok(value) = serde_json::from_slice::<Value>(json)
        {
            collect(&value, name, path, &mut found);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether `path` leads below `parent`.
fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('.'))
}

fn collect(value: &Value, at: &str, path: &str, found: &mut Vec<FieldValue>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, at, path, found)),
        Value::Object(members) => {
            for (name, value) in members {
                let below = format!("{at}.{name}");
                if below == path || is_below(path, &below) {
                    collect(value, &below, path, found);
                }
            }
        }
        Value::Number(number) if at == path => found.push(FieldValue::Number(number.to_string().into())),
        Value::Bool(truth) if at == path => found.push(FieldValue::Text(truth.to_string().into())),
        Value::String(text) if at == path => {
            let text = normalise(text);
            if !text.is_empty() {
                found.push(FieldValue::Text(text.into()));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(document: &Value, path: &str) -> Vec<String> {
        let fields: Vec<(String, String)> =
            document.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let fields = fields.iter().map(|(name, json)| (name.as_str(), json.as_bytes()));
        let shown = |value| match value {
            FieldValue::Number(text) => format!("number {text}"),
            FieldValue::Text(text) => text.into(),
        };
        values_at(fields, path).into_iter().map(shown).collect()
    }

    #[test]
    fn values_are_found_along_paths() {
        let document = json!({
            "a": [1, 1.0, "X ", "x", true, null, "", {"b": [{"c": "deep"}, {"c": ["deeper"]}]}],
            "a.b": {"c": "literal"},
            "ab": "other",
        });
        assert_eq!(values(&document, "a"), ["number 1", "number 1.0", "true", "x"]);
        assert_eq!(values(&document, "a.b.c"), ["deep", "deeper", "literal"]);
        assert!(values(&document, "a.b").is_empty() && values(&document, "none").is_empty());
    }

    #[test]
    fn numbers_have_the_keys_that_facets_show() {
        for (number, key) in [("1.0", "1"), ("1e2", "100"), ("9.5", "9.5")] {
            assert_eq!(&*FieldValue::Number(number.into()).facet_key(), key);
        }
    }
}
