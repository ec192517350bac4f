//! Separators from the settings, recognized by a set lookup.
//!
//! The library scans its list of separators for each token: with 20,000 of them each word took 20 microseconds.

use ahash::AHashMap;
use charabia::normalizer::{LOSSY_NORMALIZERS, NORMALIZERS, NormalizerOption};
use charabia::separators::{CONTEXT_SEPARATORS, DEFAULT_SEPARATORS};
use charabia::{SeparatorKind, Token, TokenKind};

use crate::settings::Settings;

/// Separators other than the default ones.
#[derive(Clone)]
pub(super) struct Separators(AHashMap<String, SeparatorKind>);

impl Separators {
    /// Those of the settings; `None` where they are the default ones.
    pub(super) fn new(settings: &Settings) -> Option<Self> {
        if settings.separator_tokens.is_empty() && settings.non_separator_tokens.is_empty() {
            return None;
        }
        let with_kind = |text: String| {
            let is_hard = CONTEXT_SEPARATORS.contains(&text.as_str());
            (text, if is_hard { SeparatorKind::Hard } else { SeparatorKind::Soft })
        };
        let defaults = DEFAULT_SEPARATORS.iter().map(|text| (*text).to_owned());
        let all = defaults.chain(settings.separator_tokens.iter().cloned());
        let all = all.filter(|text| !settings.non_separator_tokens.contains(text));
        Some(Self(all.map(with_kind).collect()))
    }

    /// All of them, in any order.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What the library makes of a token by options that name these separators. The options given must name none.
    pub(super) fn normalize<'t>(&self, mut token: Token<'t>, option: &NormalizerOption<'_>) -> Token<'t> {
        let lossy = LOSSY_NORMALIZERS.iter().take(if option.lossy { usize::MAX } else { 0 });
        for normalizer in NORMALIZERS.iter().chain(lossy) {
            if !normalizer.should_normalize(&token) {
                continue;
            }
            let is_told = token.kind != TokenKind::Unknown;
            token = normalizer.normalize(token, option);
            // This one told words from stop words. The others look at the kind, and go on from here.
            if !is_told
                && token.kind == TokenKind::Word
                && let Some(kind) = self.0.get(token.lemma())
            {
                token.kind = TokenKind::Separator(*kind);
            }
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use charabia::TokenizerBuilder;
    use proptest::prelude::*;

    use super::*;
    use crate::text::TextTokenizer;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    proptest! {
        /// Tokens are those that the library cuts by a list of the same separators.
        #[test]
        fn a_set_tells_what_a_list_tells(text in "(the|The|É|ﬁ|ی|كتاب|[a-c]{1,4}|xx|[ .,!;#|\u{0}\u{200c}]{1,2}|. |。|-|§|ö|日本|한국|ไทย){0,12}") {
            let settings = Settings {
                stop_words: set(&["the", "xx", "."]),
                separator_tokens: set(&["xx", "§", "ی", "O", "fi", "|", "the"]),
                non_separator_tokens: set(&["#", "-", ". "]),
                dictionary: set(&["a-b"]),
                ..Settings::default()
            };
            let ours = TextTokenizer::new(&settings);
            let defaults = DEFAULT_SEPARATORS.iter().copied().chain(settings.separator_tokens.iter().map(String::as_str));
            let list: Vec<&str> = defaults.filter(|text| !settings.non_separator_tokens.contains(*text)).collect();
            let stop_words = fst::Set::from_iter(&settings.stop_words).unwrap();
            let dictionary: Vec<&str> = settings.dictionary.iter().map(String::as_str).collect();
            let mut theirs = TokenizerBuilder::new();
            theirs.stop_words(&stop_words).separators(&list).words_dict(&dictionary);
            let theirs = theirs.build();
            prop_assert_eq!(
                format!("{:?}", ours.tokens(&text, None)),
                format!("{:?}", theirs.tokenize(&text).collect::<Vec<_>>())
            );
        }
    }

    #[test]
    fn the_default_ones_need_no_set() {
        assert!(Separators::new(&Settings { stop_words: set(&["a"]), ..Settings::default() }).is_none());
        let other =
            Separators::new(&Settings { non_separator_tokens: set(&["!", "x"]), ..Settings::default() }).unwrap();
        let all: BTreeSet<&str> = DEFAULT_SEPARATORS.iter().copied().filter(|text| *text != "!").collect();
        assert_eq!(other.texts().collect::<BTreeSet<_>>(), all);
        let kinds = [";", "\"", "!"].map(|text| other.0.get(text).copied());
        assert_eq!(kinds, [Some(SeparatorKind::Hard), Some(SeparatorKind::Soft), None]);
    }
}
