//! Folds facet values for facet search: normalized like search words, but not tokenized.

use std::borrow::Cow;

use charabia::normalizer::NormalizerOption;
use charabia::{Language, Normalize, StrDetection, Token};

use crate::settings::{Settings, matches_pattern};

/// How the texts of one facet are folded: lower-case and without accents, where their script knows these.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folding {
    /// The languages that the texts may be in; `None`: any.
    languages: Option<Vec<Language>>,
}

impl Folding {
    /// For the values of a field: in the languages of the first rule of `localizedAttributes` that covers it.
    pub fn of_values(field: &str, settings: &Settings) -> Self {
        let covers = |patterns: &[String]| patterns.iter().any(|pattern| matches_pattern(pattern, field));
        let mut rules = settings.localized_attributes.iter().flatten();
        let rule = rules.find(|rule| covers(&rule.attribute_patterns));
        Self { languages: rule.map(|rule| rule.locales.iter().filter_map(Language::from_code).collect()) }
    }

    /// For what is typed to find such values: in those of their languages that the search names, if it names any. Without a
    /// rule for the field, what the search names does not matter.
    pub fn of_query(field: &str, settings: &Settings, named: Option<&[Language]>) -> Self {
        let mut folding = Self::of_values(field, settings);
        if let (Some(languages), Some(named)) = (&mut folding.languages, named) {
            languages.retain(|language| named.contains(language));
        }
        folding
    }

    /// The text, folded.
    pub fn fold<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if plain_bytes(text) == text.len() {
            return Cow::Borrowed(text);
        }
        let mut detection = StrDetection::new(text, self.languages.as_deref());
        // A language is looked for only where there are several to choose from.
        let language = match self.languages.as_deref() {
            None | Some([]) => None,
            Some(_) => detection.language(),
        };
        let token = Token { lemma: Cow::Borrowed(text), script: detection.script(), language, ..Token::default() };
        let options = NormalizerOption { create_char_map: false, lossy: true, ..NormalizerOption::default() };
        token.normalize(&options).lemma
    }

    /// Whether the [plain](plain_bytes) beginning of any text is also that of the folded text: other languages than Swedish never join
    /// a plain character with the accent behind it.
    pub fn keeps_plain_beginnings(&self) -> bool {
        !self.languages.iter().flatten().any(|language| *language == Language::Swe)
    }
}

/// How many bytes of a text come before the first that is not plain: plain ones are printable, ASCII and in no upper case.
pub fn plain_bytes(text: &str) -> usize {
    text.bytes().take_while(|byte| matches!(byte, b' '..=b'~') && !byte.is_ascii_uppercase()).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facets::normalise::normalise;

    fn folded(text: &str) -> String {
        Folding::default().fold(text).into_owned()
    }

    #[test]
    fn accents_go_and_letters_stay() {
        assert_eq!(["straße", "éa", "σς", "日本"].map(folded), ["straße", "ea", "σσ", "日本"]);
    }

    /// What looks like an accent is part of a letter in many scripts.
    #[test]
    fn marks_of_other_scripts_stay() {
        assert_ne!(folded("अनु"), folded("अन"));
        assert_ne!(folded("ຂໍ້"), folded("ຂ"));
        assert_ne!(folded("йод"), folded("иод"));
        assert_eq!(folded("ข้อ"), folded("ขอ"));
    }

    /// Characters that folding changes, of all scripts that it knows apart.
    fn text() -> impl Strategy<Value = String> {
        let marked = "[a-c' -]{0,3}[\u{300}-\u{30a}\u{308}àåæœðđıßς’]{0,2}";
        let others = "[σςάאבּאָกข้ا-يىۀیک۰-۹،\u{200c}日本がガーィ・戸戶чй\u{1}\u{7f}\t]{0,4}";
        proptest::collection::vec(prop_oneof![3 => marked, 2 => others, 1 => "\\PC{0,3}"], 0..5)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        /// Facet searches pass over values by their plain beginnings.
        #[test]
        fn plain_beginnings_stay(text in text(), languages in proptest::option::of(proptest::sample::subsequence(
            vec!["eng", "fra", "deu", "jpn", "cmn", "pes", "ara", "ell", "tur", "vie", "heb", "tha", "rus"], 0..4
        ))) {
            let languages = languages.map(|codes| codes.into_iter().filter_map(Language::from_code).collect::<Vec<_>>());
            let folding = Folding { languages };
            prop_assert!(folding.keeps_plain_beginnings());
            let value = normalise(&text);
            let (plain, folded) = (&value[..plain_bytes(&value)], folding.fold(&value));
            prop_assert!(folded.starts_with(plain), "{:?} {:?}", value, folded);
        }
    }
}
