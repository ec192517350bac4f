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
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !byte.is_ascii_uppercase()) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
