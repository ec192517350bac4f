//! The text sent to the personalization service: the user's context and the displayed fields of the hits.

use std::borrow::Cow;

use crate::api::search::members::{Members, Name};

/// Bytes of the words, of the person and of a hit that are told.
pub(super) const TEXT_BYTES_MAX: usize = 32 << 10;

/// Members that searches add to documents. They say how a document was found, not what it is.
const ADDED: [&str; 7] = [
    "_formatted",
    "_matchesPosition",
    "_rankingScore",
    "_rankingScoreDetails",
    "_geoDistance",
    "_federation",
    "_vectors",
];

/// What is looked for and whom it is for; `None` where neither is said.
pub(super) fn of_search(words: &str, user_context: &str) -> Option<String> {
    let labelled = [("Search", words), ("User", user_context)];
    let lines = labelled.into_iter().filter(|(_, text)| !text.trim().is_empty());
    let lines = lines.map(|(label, text)| format!("{label}: {}", cut(text.trim(), TEXT_BYTES_MAX)));
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// What a hit shows of its document, a line for each attribute, in at most so many bytes.
pub(super) fn of_hit(hit: &Members<'_>, bytes_max: usize) -> String {
    let mut text = String::new();
    for (name, value) in hit.0.iter().filter(|(name, _)| !ADDED.contains(&&**name)) {
        if text.len() >= bytes_max {
            break;
        }
        // Texts as they are read, all else as JSON.
        let value = match serde_json::from_str::<Name<'_>>(value.get()) {
            Ok(Name(decoded)) => decoded,
            Err(_) => Cow::Borrowed(value.get()),
        };
        for part in [&**name, ": ", cut(&value, bytes_max), "\n"] {
            text.push_str(part);
        }
    }
    text.truncate(cut(&text, bytes_max).len());
    text
}

/// The first bytes of a text, down to the end of a character.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(json: &str, bytes_max: usize) -> String {
        of_hit(&serde_json::from_str(json).unwrap(), bytes_max)
    }

    #[test]
    fn a_search_is_its_words_and_its_person() {
        assert_eq!(of_search(" red boots ", "likes\nhills").as_deref(), Some("Search: red boots\nUser: likes\nhills"));
        assert_eq!(of_search("", "likes hills").as_deref(), Some("User: likes hills"));
        assert_eq!(of_search("boots", "  ").as_deref(), Some("Search: boots"));
        assert_eq!(of_search(" ", ""), None);
        let long = of_search(&"\u{e9}".repeat(TEXT_BYTES_MAX), &"x".repeat(TEXT_BYTES_MAX + 1)).unwrap();
        assert_eq!(long.len(), 2 * TEXT_BYTES_MAX + "Search: \nUser: ".len());
    }

    #[test]
    fn a_hit_is_told_by_its_attributes_alone() {
        let json = r#"{"title":"A \"b\"\nc","year":1990,"tags":["x",{"y":null}],"_geo":{"lat":1,"lng":2},"_own":true,
            "_vectors":{"e":[1]},"_geoDistance":3,"_federation":{},"_formatted":{"title":"<em>A</em>"},
            "_matchesPosition":{},"_rankingScore":0.5,"_rankingScoreDetails":{}}"#;
        let text =
            "title: A \"b\"\nc\nyear: 1990\ntags: [\"x\",{\"y\":null}]\n_geo: {\"lat\":1,\"lng\":2}\n_own: true\n";
        assert_eq!(hit(json, 1000), text);
        assert_eq!(hit(r#"{"_rankingScore":1}"#, 1000), "");
    }

    #[test]
    fn texts_end_at_a_character() {
        let json = format!(r#"{{"t":"{}","more":1}}"#, "\u{e9}".repeat(100));
        for bytes_max in 0..220 {
            let text = hit(&json, bytes_max);
            assert!(text.len() <= bytes_max && text.len() + 1 >= bytes_max.min(212), "{bytes_max}: {}", text.len());
        }
    }
}
