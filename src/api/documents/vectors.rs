//! `_vectors` as readers see it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What stands under `_vectors` of a document whose stored field of that name is `stored`: for each embedder of the index
/// its vectors in one shape, for other names what the document had.
pub fn shown(stored: Option<&[u8]>, embedders: &BTreeMap<String, Value>) -> Value {
    let stored = stored.and_then(|raw| serde_json::from_slice(raw).ok());
    let Some(Value::Object(stored)) = stored else { return Value::Object(Map::new()) };
    let show = |(name, value): (String, Value)| {
        let value = if embedders.contains_key(&name) { of_embedder(value) } else { value };
        (name, value)
    };
    Value::Object(stored.into_iter().map(show).collect())
}

/// `null`, one vector, a list of vectors, or the object that is shown: all mean embeddings and whether to make them again.
fn of_embedder(value: Value) -> Value {
    match value {
        Value::Object(mut fields) => {
            let embeddings = fields.remove("embeddings").unwrap_or_default();
            let regenerate = fields.remove("regenerate").unwrap_or(Value::Bool(false));
            json!({"regenerate": regenerate, "embeddings": list_of_vectors(embeddings)})
        }
        value => json!({"regenerate": false, "embeddings": list_of_vectors(value)}),
    }
}

fn list_of_vectors(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) if items.first().is_some_and(Value::is_array) => items.into_iter().map(floats).collect(),
        Value::Array(items) if !items.is_empty() => vec![floats(Value::Array(items))],
        _ => Vec::new(),
    }
}

fn floats(vector: Value) -> Value {
    match vector {
        Value::Array(numbers) => numbers.into_iter().map(|number| json!(number.as_f64())).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_giving_vectors_reads_the_same() {
        let embedders = BTreeMap::from([("m".to_string(), json!({}))]);
        let one = |stored: Value| shown(Some(stored.to_string().as_bytes()), &embedders);
        let wanted = json!({"m": {"regenerate": false, "embeddings": [[1.0, 2.0]]}});
        assert_eq!(one(json!({"m": [1, 2]})), wanted);
        assert_eq!(one(json!({"m": [[1, 2]]})), wanted);
        assert_eq!(one(json!({"m": {"embeddings": [1, 2], "regenerate": false}})), wanted);
        assert_eq!(one(json!({"m": null})), json!({"m": {"regenerate": false, "embeddings": []}}));
        assert_eq!(one(json!({"other": [1, 2]})), json!({"other": [1, 2]}));
        assert_eq!(shown(None, &embedders), json!({}));
    }
}
