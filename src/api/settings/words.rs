//! The forms in which the words of settings are kept and compared.

use std::collections::{BTreeMap, BTreeSet};

use charabia::separators::DEFAULT_SEPARATORS;
use charabia::{Tokenizer, TokenizerBuilder};
use shards::settings::Settings;
use unicode_normalization::UnicodeNormalization;

/// Compatibility-decomposed and without control characters, case and accents kept: the form of a stop word.
pub(super) fn decomposed(word: &str) -> String {
    word.nfkd().filter(|c| !c.is_control()).collect()
}

/// Normalised as a query's words are, all pieces joined: the form of a word without typos.
pub(super) fn normalized(stop_words: &BTreeSet<String>, word: &str) -> String {
    let stop_words = word_set(stop_words);
    let mut builder = TokenizerBuilder::new();
    if let Some(stop_words) = &stop_words {
        builder.stop_words(stop_words);
    }
    builder.build().tokenize(word).map(|token| token.lemma().to_string()).collect()
}

/// What synonyms mean to a search: the words of each key with the words of its values. Keys of the same words are one,
/// equal values count once, sides without a word vanish.
pub(super) fn synonym_words(
    settings: &Settings,
    synonyms: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let stop_words = word_set(&settings.stop_words);
    let separators = separators(settings);
    let dictionary: Vec<&str> = settings.dictionary.iter().map(String::as_str).collect();
    let mut builder = TokenizerBuilder::new();
    if let Some(stop_words) = &stop_words {
        builder.stop_words(stop_words);
    }
    if let Some(separators) = &separators {
        builder.separators(separators);
    }
    if !dictionary.is_empty() {
        builder.words_dict(&dictionary);
    }
    let tokenizer = builder.build();
    let mut meaning: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (key, values) in synonyms {
        let key = words(&tokenizer, key);
        let values: BTreeSet<_> = values.iter().map(|v| words(&tokenizer, v)).filter(|v| !v.is_empty()).collect();
        if !key.is_empty() && !values.is_empty() {
            meaning.entry(key).or_default().extend(values);
        }
    }
    meaning
}

fn words(tokenizer: &Tokenizer<'_>, text: &str) -> Vec<String> {
    let words = tokenizer.tokenize(text).filter(|token| token.is_word() && !token.lemma().is_empty());
    words.map(|token| token.lemma().to_string()).collect()
}

/// A set is sorted, which is all that building one from it asks for.
fn word_set(words: &BTreeSet<String>) -> Option<fst::Set<Vec<u8>>> {
    if words.is_empty() { None } else { fst::Set::from_iter(words).ok() }
}

/// The effective separators, when they differ from the tokenizer's own.
fn separators(settings: &Settings) -> Option<Vec<&str>> {
    if settings.separator_tokens.is_empty() && settings.non_separator_tokens.is_empty() {
        return None;
    }
    let added = settings.separator_tokens.iter().map(String::as_str);
    let all: BTreeSet<&str> = DEFAULT_SEPARATORS.iter().copied().chain(added).collect();
    Some(all.into_iter().filter(|separator| !settings.non_separator_tokens.contains(*separator)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_words() {
        assert_eq!((decomposed("ﬁ"), decomposed("à")), ("fi".into(), "a\u{300}".into()));
        assert_eq!(normalized(&BTreeSet::new(), "Éclair"), "eclair");
        assert_eq!(normalized(&BTreeSet::new(), "straw berry"), "straw berry");
        let synonyms = |key: &str, value: &str| BTreeMap::from([(key.to_string(), vec![value.to_string()])]);
        let settings = Settings::default();
        let meaning = |key, value| synonym_words(&settings, &synonyms(key, value));
        assert_eq!(meaning("Car", "Automobile"), meaning("car", "automobile"));
        assert_ne!(meaning("car", "auto"), meaning("car", "automobile"));
    }
}
