//! Whether two servers have the same index.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde_json::Value;

use crate::http::Client;

/// Documents of one request.
const PAGE: usize = 500;

/// How documents of two servers compare.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The same in all their members and vectors.
    pub equal: usize,
    /// On both, but not the same.
    pub different: usize,
    /// On one only.
    pub missing: usize,
}

/// Compares all documents of an index, with their vectors, by their ids.
pub fn documents(one: &mut Client, other: &mut Client, index: &str) -> io::Result<Counts> {
    let (one, other) = (all(one, index)?, all(other, index)?);
    Ok(count(&one, &other))
}

/// The names of the settings that are not the same.
pub fn settings(one: &mut Client, other: &mut Client, index: &str) -> io::Result<Vec<String>> {
    let path = format!("/indexes/{index}/settings");
    let (one, other) = (one.json("GET", &path, None)?, other.json("GET", &path, None)?);
    let names: BTreeSet<&String> =
        [&one, &other].into_iter().filter_map(Value::as_object).flat_map(|s| s.keys()).collect();
    Ok(names.into_iter().filter(|name| !are_same(&one[*name], &other[*name])).cloned().collect())
}

/// All documents of an index as they are shown, by their ids.
fn all(client: &mut Client, index: &str) -> io::Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for offset in (0..).step_by(PAGE) {
        let path = format!("/indexes/{index}/documents?limit={PAGE}&offset={offset}&retrieveVectors=true");
        let mut page = client.json("GET", &path, None)?;
        let Some(documents) = page["results"].as_array_mut().filter(|documents| !documents.is_empty()) else { break };
        found.extend(documents.drain(..).map(|document| (document["id"].to_string(), document)));
    }
    Ok(found)
}

fn count(one: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>) -> Counts {
    let mut counts = Counts { missing: other.keys().filter(|id| !one.contains_key(*id)).count(), ..Counts::default() };
    for (id, document) in one {
        match other.get(id) {
            None => counts.missing += 1,
            Some(same) if are_same(document, same) => counts.equal += 1,
            Some(_) => counts.different += 1,
        }
    }
    counts
}

/// Whether two values are the same. Numbers are compared as the 32-bit floats that vectors are made of when they are no whole
/// ones: how many digits are written is each server's choice.
fn are_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| are_same(value, other));
            one.len() == other.len() && one.iter().all(same)
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() || other.is_f64() => {
            one.as_f64().map(|number| number as f32) == other.as_f64().map(|number| number as f32)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn documents(values: Vec<Value>) -> BTreeMap<String, Value> {
        values.into_iter().map(|document| (document["id"].to_string(), document)).collect()
    }

    #[test]
    fn every_document_is_counted_once() {
        let one = documents(vec![json!({"id": 1, "v": [0.1, 1]}), json!({"id": 2, "a": 1}), json!({"id": 3})]);
        let other = documents(vec![
            json!({"v": [0.10000000149011612, 1.0], "id": 1}),
            json!({"id": 2, "a": 2}),
            json!({"id": "3"}),
        ]);
        assert_eq!(count(&one, &other), Counts { equal: 1, different: 1, missing: 2 });
    }

    #[test]
    fn values_that_are_more_or_other_differ() {
        for (one, other) in [
            (json!({"a": 1}), json!({"a": 1, "b": null})),
            (json!([1]), json!([1, 1])),
            (json!(1), json!("1")),
            (json!(12345678901_i64), json!(12345678902_i64)),
            (json!(null), json!(false)),
        ] {
            assert!(!are_same(&one, &other) && !are_same(&other, &one), "{one} {other}");
        }
    }
}
