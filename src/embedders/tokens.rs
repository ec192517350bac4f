//! Truncates texts that are too long for OpenAI's models.

use serde_json::Value;
use shards::runtime::Runtime;

use crate::archive::aside;

/// Tokens that a model takes.
const TOKENS_MAX: usize = 8191;

/// The text as it is when its tokens fit; otherwise the numbers of the first that do.
pub(super) async fn cut(runtime: &dyn Runtime, input: Value) -> Value {
    let kept = input.clone();
    // A long text takes milliseconds, and the first use reads the vocabulary.
    aside(runtime, move || cut_to(input, TOKENS_MAX)).await.unwrap_or(kept)
}

fn cut_to(input: Value, tokens_max: usize) -> Value {
    let Some(text) = input.as_str() else { return input };
    let tokens = tiktoken_rs::cl100k_base_singleton().encode_ordinary(text);
    if tokens.len() < tokens_max { input } else { tokens.into_iter().take(tokens_max).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_texts_become_their_first_tokens() {
        assert_eq!(cut_to(json!("hello world"), 3), json!("hello world"));
        assert_eq!(cut_to(json!("hello world"), 2), json!([15339, 1917]));
        assert_eq!(cut_to(json!("hello world, again"), 2), json!([15339, 1917]));
        assert_eq!(cut_to(json!({"image": 1}), 0), json!({"image": 1}));
    }
}
