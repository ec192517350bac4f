//! Normalization of words in settings, for storage and comparison.

use std::collections::{BTreeMap, BTreeSet};

use shards::settings::Settings;
use shards::text::tokenizer::TextTokenizer;

/// Words normalised as a query's are, under these stop words, all pieces of each joined: the form of words without typos.
pub(super) fn normalized(stop_words: &BTreeSet<String>, words: &BTreeSet<String>) -> BTreeSet<String> {
    let tokenizer = TextTokenizer::new(&Settings { stop_words: stop_words.clone(), ..Settings::default() });
    let joined = |word: &String| tokenizer.tokens(word, None).iter().map(|token| token.lemma().to_string()).collect();
    words.iter().map(joined).collect()
}

/// What synonyms mean to a search: the words of each key with the words of its values. Keys of the same words are one,
/// equal values count once, sides without a word vanish.
pub(super) fn synonym_words(
    settings: &Settings,
    synonyms: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let tokenizer = TextTokenizer::new(settings);
    let words = |text: &String| -> Vec<String> {
        let tokens = tokenizer.tokens(text, None);
        let words = tokens.iter().filter(|token| token.is_word() && !token.lemma().is_empty());
        words.map(|token| token.lemma().to_string()).collect()
    };
    let mut meaning: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (key, values) in synonyms {
        let key = words(key);
        let values: BTreeSet<_> = values.iter().map(words).filter(|value| !value.is_empty()).collect();
        if !key.is_empty() && !values.is_empty() {
            meaning.entry(key).or_default().extend(values);
        }
    }
    meaning
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_typos_are_kept_normalised() {
        let words = BTreeSet::from(["Éclair".to_string(), "straw berry".to_string()]);
        let wanted = BTreeSet::from(["eclair".to_string(), "straw berry".to_string()]);
        assert_eq!(normalized(&BTreeSet::new(), &words), wanted);
    }

    #[test]
    fn synonyms_are_compared_by_their_words() {
        let synonyms = |key: &str, value: &str| BTreeMap::from([(key.to_string(), vec![value.to_string()])]);
        let settings = Settings::default();
        let meaning = |key, value| synonym_words(&settings, &synonyms(key, value));
        assert_eq!(meaning("Car", "Automobile"), meaning("car", "automobile"));
        assert_ne!(meaning("car", "auto"), meaning("car", "automobile"));
    }
}
