//! Masks secrets in settings.

use serde_json::{Map, Value};

/// What remains of a secret: enough to tell two apart, and never all of a short one.
pub(crate) fn mask(secret: &str) -> String {
    let (shown, cover) = match secret.len() {
        0..10 => (0, "XXX..."),
        10..20 => (2, "XXXX..."),
        20..30 => (3, "XXXXX..."),
        _ => (5, "XXXXXX..."),
    };
    let end = (shown..=secret.len()).find(|end| secret.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{cover}", &secret[..end])
}

/// Masks the keys of all embedders; those within composite ones the interface shows as they are.
pub(super) fn mask_embedders(embedders: &mut Value) {
    for embedder in embedders.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(Value::String(key)) = embedder.get_mut("apiKey") {
            *key = mask(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_within_composite_embedders_are_shown() {
        let mut embedders =
            serde_json::json!({"a": {"apiKey": "secret"}, "c": {"searchEmbedder": {"apiKey": "secret"}}});
        mask_embedders(&mut embedders);
        assert_eq!(embedders["a"]["apiKey"], "XXX...");
        assert_eq!(embedders["c"]["searchEmbedder"]["apiKey"], "secret");
    }

    #[test]
    fn longer_secrets_show_a_little() {
        assert_eq!(mask("123456789"), "XXX...");
        assert_eq!(mask("1234567890"), "12XXXX...");
        assert_eq!(mask(&"1".repeat(29)), "111XXXXX...");
        assert_eq!(mask(&"1".repeat(30)), "11111XXXXXX...");
        assert_eq!(mask("aé34567890"), "aéXXXX...", "a cut inside a character moves up");
    }
}
