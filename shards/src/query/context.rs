//! Everything needed to turn query texts of one index into terms; built once per epoch and core.

use ahash::AHashMap;
use charabia::{Language, Token};

use super::parse::{self, ParsedQuery};
use crate::settings::{PrefixSearch, Settings};

/// Most values used for one key.
const SYNONYM_VALUES_MAX: usize = 50;
/// Most words in the values of one key.
const SYNONYM_WORDS_MAX: usize = 100;
/// Keys of more words never match.
const SYNONYM_KEY_WORDS_MAX: usize = 3;

/// Normalised synonyms: words of the key -> values, each a list of words.
pub type Synonyms = AHashMap<Vec<String>, Vec<Vec<String>>>;

/// Cuts texts as an index does, on any thread.
pub trait Cutter: Send + Sync {
    /// The tokens of a text that is in one of `languages` (`None`: any).
    fn tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>) -> Vec<Token<'t>>;
    /// The first `count` tokens of a text, at a cost that does not grow with the rest of it.
    fn first_tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>, count: usize) -> Vec<Token<'t>>;
    /// Calls `each` with the tokens of a text that is shown: stop words are words, and each token knows how long its characters
    /// were. All of them at once would take forty times the memory of the text.
    fn each_shown_token<'t>(&self, text: &'t str, languages: Option<&[Language]>, each: &mut dyn FnMut(Token<'t>)) {
        self.tokens(text, languages).into_iter().for_each(each);
    }

    /// The languages that the index's settings name for a field.
    fn languages(&self, field: &str) -> Option<&[Language]>;
}

/// The tokenizer's view of an index's settings.
pub struct QueryContext<'t> {
    cutter: &'t dyn Cutter,
    synonyms: &'t Synonyms,
    prefix_search: bool,
}

impl<'t> QueryContext<'t> {
    /// A context of these parts, which live as long as the epoch they were made for.
    pub fn new(cutter: &'t dyn Cutter, synonyms: &'t Synonyms, settings: &Settings) -> Self {
        Self { cutter, synonyms, prefix_search: settings.prefix_search == PrefixSearch::IndexingTime }
    }

    /// Cuts a query text; `locales` are the languages it may be in (`None`: any).
    pub fn parse(&self, text: &str, locales: Option<&[Language]>) -> ParsedQuery {
        parse::parse(text, &self.cutter.first_tokens(text, locales, parse::TOKENS_MAX), self.prefix_search)
    }

    /// The values for a row of words; empty when it is no key.
    pub fn synonyms(&self, key: &[String]) -> &'t [Vec<String>] {
        self.synonyms.get(key).map_or(&[], Vec::as_slice)
    }
}

/// Normalises an index's synonyms, with the limits that hold for one key.
pub fn normalise_synonyms(settings: &Settings, cutter: &dyn Cutter) -> Synonyms {
    let words = |text: &str| -> Vec<String> {
        cutter.tokens(text, None).iter().filter(|token| token.is_word()).map(|token| token.lemma().to_owned()).collect()
    };
    let mut synonyms = Synonyms::default();
    for (key, values) in &settings.synonyms {
        let key = words(key);
        if key.is_empty() || key.len() > SYNONYM_KEY_WORDS_MAX {
            continue;
        }
        let known = synonyms.entry(key).or_default();
        // One list may be as long as a request; keys that are alike once normalised share one of the length that is used.
        let mut values = values.iter();
        while known.len() < SYNONYM_VALUES_MAX
            && let Some(value) = values.next()
        {
            let value = words(value);
            if !value.is_empty() && !known.contains(&value) {
                known.push(value);
            }
        }
    }
    for values in synonyms.values_mut() {
        let mut words_left = SYNONYM_WORDS_MAX;
        let kept = values
            .iter()
            .take_while(|value| words_left.checked_sub(value.len()).map(|left| words_left = left).is_some())
            .count();
        values.truncate(kept);
    }
    synonyms
}

#[cfg(test)]
impl Cutter for charabia::Tokenizer<'_> {
    fn tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>) -> Vec<Token<'t>> {
        self.tokenize_with_allow_list(text, languages).collect()
    }

    fn first_tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>, count: usize) -> Vec<Token<'t>> {
        self.tokenize_with_allow_list(text, languages).take(count).collect()
    }

    fn languages(&self, _: &str) -> Option<&[Language]> {
        None
    }
}
