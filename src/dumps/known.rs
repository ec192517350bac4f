//! Leaves out what another version of the server wrote into a dump and this one does not know.

use serde_json::Value;

/// The members of an object that are known; a warning tells of the others. Anything else stays as it is, for its reader to refuse.
pub fn only_known(mut value: Value, what: &str, is_known: impl Fn(&str) -> bool) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|name, _| {
            let known = is_known(name);
            if !known {
                tracing::warn!(field = name, "{what} of the dump has a field that is not known: it is left out");
            }
            known
        });
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let value = json!({"a": {"x": 1}, "b": null, "c": [2]});
        assert_eq!(only_known(value, "it", |name| name != "b").to_string(), r#"{"a":{"x":1},"c":[2]}"#);
        assert_eq!(only_known(json!(["b"]), "it", |_| false), json!(["b"]));
    }
}
