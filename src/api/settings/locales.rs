//! Languages that settings and searches can name.

use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};

/// Two-letter and three-letter names of each language.
const LOCALES: [(&str, &str); 69] = [
    ("af", "afr"),
    ("ak", "aka"),
    ("am", "amh"),
    ("ar", "ara"),
    ("az", "aze"),
    ("be", "bel"),
    ("bn", "ben"),
    ("bg", "bul"),
    ("ca", "cat"),
    ("cs", "ces"),
    ("da", "dan"),
    ("de", "deu"),
    ("el", "ell"),
    ("en", "eng"),
    ("eo", "epo"),
    ("et", "est"),
    ("fi", "fin"),
    ("fr", "fra"),
    ("gu", "guj"),
    ("he", "heb"),
    ("hi", "hin"),
    ("hr", "hrv"),
    ("hu", "hun"),
    ("hy", "hye"),
    ("id", "ind"),
    ("it", "ita"),
    ("jv", "jav"),
    ("ja", "jpn"),
    ("kn", "kan"),
    ("ka", "kat"),
    ("km", "khm"),
    ("ko", "kor"),
    ("la", "lat"),
    ("lv", "lav"),
    ("lt", "lit"),
    ("ml", "mal"),
    ("mr", "mar"),
    ("mk", "mkd"),
    ("my", "mya"),
    ("ne", "nep"),
    ("nl", "nld"),
    ("nb", "nob"),
    ("or", "ori"),
    ("pa", "pan"),
    ("fa", "pes"),
    ("pl", "pol"),
    ("pt", "por"),
    ("ro", "ron"),
    ("ru", "rus"),
    ("si", "sin"),
    ("sk", "slk"),
    ("sl", "slv"),
    ("sn", "sna"),
    ("es", "spa"),
    ("sr", "srp"),
    ("sv", "swe"),
    ("ta", "tam"),
    ("te", "tel"),
    ("tl", "tgl"),
    ("th", "tha"),
    ("tk", "tuk"),
    ("tr", "tur"),
    ("uk", "ukr"),
    ("ur", "urd"),
    ("uz", "uzb"),
    ("vi", "vie"),
    ("yi", "yid"),
    ("zh", "zho"),
    ("zu", "zul"),
];

/// Three-letter names that have no shorter one.
const LONG_ONLY: [&str; 1] = ["cmn"];

/// The three-letter name of a language given by either of its names; `None` for any other text.
pub fn three_letters(name: &str) -> Option<&'static str> {
    let paired = LOCALES.iter().find(|(two, three)| *two == name || *three == name).map(|(_, three)| *three);
    paired.or_else(|| LONG_ONLY.iter().find(|long| **long == name).copied())
}

/// A list of languages, as the client wrote them.
pub fn check(node: &Node<'_>, code: ErrorCode) -> Result<Vec<String>, ApiError> {
    let locale = |item: Node<'_>| {
        let name = item.string(code)?;
        match three_letters(&name) {
            Some(_) => Ok(name),
            None => Err(item.expected("a supported locale such as `en` or `eng`", code)),
        }
    };
    node.items(code)?.map(locale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_mean_the_same_language() {
        assert_eq!((three_letters("fr"), three_letters("fra")), (Some("fra"), Some("fra")));
        assert_eq!(three_letters("cmn"), Some("cmn"));
        for bad in ["", "FR", "fr-FR", "xx", "french"] {
            assert_eq!(three_letters(bad), None, "{bad}");
        }
    }
}
