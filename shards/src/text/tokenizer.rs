//! The tokenizer of one index, configured from its settings.
//!
//! [`TextTokenizer::tokens`] returns full tokens with their positions in the text, for queries and highlighting. Indexing uses
//! [`TextTokenizer::visit`], which has a fast path for ASCII text with the default separators: the same words in a fraction of
//! the time, because it builds no tokens and detects no language. A property test checks that the two are equal.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use charabia::normalizer::{ClassifierOption, NormalizerOption};
use charabia::segmenter::{DEFAULT_SEPARATOR_AHO, SegmentedTokenIter};
use charabia::separators::DEFAULT_SEPARATORS;
use charabia::{Language, Normalize, Segment, SeparatorKind, Token, TokenKind};
use self_cell::self_cell;

use super::morphology::{self, Morphology, Recut};
use super::separators::Separators;
use crate::settings::{Settings, matches_pattern};

/// What one token means for positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A word in its normalised form; empty when the text held control characters only.
    Word(&'a str),
    /// A word that is not indexed but takes a position.
    StopWord,
    /// A separator; hard ones put the words at its sides far apart.
    Separator(SeparatorKind),
}

impl<'a> Piece<'a> {
    /// What a token means; nothing where the tokenizer cannot tell.
    pub fn of(token: &'a Token<'_>) -> Option<Self> {
        match token.kind {
            TokenKind::Word => Some(Piece::Word(token.lemma())),
            TokenKind::StopWord => Some(Piece::StopWord),
            TokenKind::Separator(kind) => Some(Piece::Separator(kind)),
            TokenKind::Unknown => None,
        }
    }
}

/// A text being cut.
enum Segments<'s, 't> {
    Cut(SegmentedTokenIter<'t, 's, 's>),
    Recut(Recut<'t, 's, SegmentedTokenIter<'t, 's, 's>>),
}

impl<'t> Iterator for Segments<'_, 't> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        match self {
            Segments::Cut(segments) => segments.next(),
            Segments::Recut(segments) => segments.next(),
        }
    }
}

/// The texts that a tokenizer refers to.
struct Sources {
    stop_words: Option<fst::Set<Vec<u8>>>,
    separators: Option<Separators>,
}

self_cell!(
    struct Normalisers {
        owner: Sources,
        #[covariant]
        dependent: Options,
    }
);

/// How tokens are classified and written.
struct Options<'a> {
    /// For queries and documents.
    indexed: NormalizerOption<'a>,
    /// For texts that are shown.
    shown: NormalizerOption<'a>,
}

/// How much longer a text takes that the short cut does not take: 80 to 320 nanoseconds a byte, by language; Korean by a
/// dictionary 730.
const LONG_WAY_WORK: usize = 8;

/// The tokenizer of one index. Not cheap to build (an automaton when separators or dictionary words are set, a set of stop
/// words): an index has one for all cores, which [`super::shared`] makes.
pub struct TextTokenizer {
    normalisers: Normalisers,
    /// Finds separators, and words that are cut in one piece; `None` for the default separators alone.
    automaton: Option<AhoCorasick>,
    morphology: Option<Arc<Morphology>>,
    rules: Vec<(Vec<String>, Vec<Language>)>,
    plain: bool,
}

impl TextTokenizer {
    /// The tokenizer that these settings ask for, with the dictionaries that are installed.
    pub fn new(settings: &Settings) -> Self {
        Self::with_morphology(settings, morphology::installed())
    }

    pub(super) fn with_morphology(settings: &Settings, morphology: Option<Arc<Morphology>>) -> Self {
        let sources =
            Sources { stop_words: stop_word_set(&settings.stop_words), separators: Separators::new(settings) };
        let plain = sources.separators.is_none() && settings.dictionary.is_empty();
        let automaton = if plain { None } else { automaton(sources.separators.as_ref(), &settings.dictionary) };
        let rules = settings.localized_attributes.iter().flatten().map(|rule| {
            let languages = rule.locales.iter().filter_map(Language::from_code).collect();
            (rule.attribute_patterns.clone(), languages)
        });
        Self { normalisers: normalisers(sources), automaton, morphology, rules: rules.collect(), plain }
    }

    /// A tokenizer that differs from this one by its stop words.
    pub fn with_stop_words(&self, stop_words: &BTreeSet<String>) -> Self {
        let separators = self.normalisers.borrow_owner().separators.clone();
        Self {
            normalisers: normalisers(Sources { stop_words: stop_word_set(stop_words), separators }),
            // What the automaton consists of is shared.
            automaton: self.automaton.clone(),
            morphology: self.morphology.clone(),
            rules: self.rules.clone(),
            plain: self.plain,
        }
    }

    /// The languages that the first matching rule of `localizedAttributes` allows in a field; `None` lets the text decide.
    pub fn languages(&self, field: &str) -> Option<&[Language]> {
        let matches = |patterns: &[String]| patterns.iter().any(|pattern| matches_pattern(pattern, field));
        let rule = self.rules.iter().find(|(patterns, _)| matches(patterns));
        rule.map(|(_, languages)| languages.as_slice()).filter(|languages| !languages.is_empty())
    }

    /// How long [`Self::visit`] may take for a text (UTF-8), in what a byte takes that the short cut reads.
    pub fn work(&self, text: &[u8]) -> usize {
        if self.rules.is_empty() && self.takes_short_cut(text, None) {
            text.len()
        } else {
            text.len().saturating_mul(LONG_WAY_WORK)
        }
    }

    /// The tokens of a text, in order, separators included.
    pub fn tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>) -> Vec<Token<'t>> {
        self.first_tokens(text, languages, usize::MAX)
    }

    /// The first `count` tokens of a text, cut no further than that takes.
    pub fn first_tokens<'t>(&self, text: &'t str, languages: Option<&[Language]>, count: usize) -> Vec<Token<'t>> {
        self.iter(text, languages).take(count).collect()
    }

    /// The tokens of a text one by one, cut no further than they are taken.
    pub fn iter<'s, 't>(
        &'s self,
        text: &'t str,
        languages: Option<&'s [Language]>,
    ) -> impl Iterator<Item = Token<'t>> + use<'s, 't> {
        let normaliser = &self.normalisers.borrow_dependent().indexed;
        self.segments(text, languages).map(move |token| self.normalize(token, normaliser))
    }

    /// The tokens of a text that is shown, one by one: stop words are words, and each token knows how long its characters were.
    pub fn shown_tokens<'s, 't>(
        &'s self,
        text: &'t str,
        languages: Option<&'s [Language]>,
    ) -> impl Iterator<Item = Token<'t>> + use<'s, 't> {
        let options = self.normalisers.borrow_dependent();
        let is_plain = self.stop_words().is_none() && text.is_ascii();
        let normaliser = if is_plain { &options.indexed } else { &options.shown };
        self.segments(text, languages).map(move |token| self.normalize(token, normaliser))
    }

    /// Calls `each` with every piece of a text in order, until it breaks off. `scratch` is overwritten.
    pub fn visit(
        &self,
        text: &str,
        languages: Option<&[Language]>,
        scratch: &mut String,
        mut each: impl FnMut(Piece<'_>) -> ControlFlow<()>,
    ) {
        // That it broke off is no news to the caller.
        let _ = if self.takes_short_cut(text.as_bytes(), languages) {
            self.visit_ascii(text, scratch, &mut each)
        } else {
            self.iter(text, languages)
                .try_for_each(|token| Piece::of(&token).map_or(ControlFlow::Continue(()), &mut each))
        };
    }

    /// Whether [`Self::visit`] has a short cut for this text.
    pub fn takes_short_cut(&self, text: &[u8], languages: Option<&[Language]>) -> bool {
        self.plain && languages.is_none() && text.is_ascii()
    }

    /// The pieces of a text as they are written.
    fn segments<'s, 't>(&'s self, text: &'t str, languages: Option<&'s [Language]>) -> Segments<'s, 't> {
        let segments = text.segment_with_option(self.automaton.as_ref(), languages);
        match &self.morphology {
            None => Segments::Cut(segments),
            Some(morphology) => {
                let whole = self.automaton.as_ref().unwrap_or(&DEFAULT_SEPARATOR_AHO);
                Segments::Recut(morphology.recut(text, segments, whole))
            }
        }
    }

    fn normalize<'t>(&self, token: Token<'t>, option: &NormalizerOption<'_>) -> Token<'t> {
        match &self.normalisers.borrow_owner().separators {
            Some(separators) => separators.normalize(token, option),
            None => token.normalize(option),
        }
    }

    fn stop_words(&self) -> Option<&fst::Set<Vec<u8>>> {
        self.normalisers.borrow_owner().stop_words.as_ref()
    }

    fn visit_ascii(
        &self,
        text: &str,
        scratch: &mut String,
        each: &mut impl FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match ASCII[usize::from(bytes[at])] {
                Ascii::Soft => {
                    let spaced = matches!(bytes[at], b'.' | b',') && bytes.get(at + 1) == Some(&b' ');
                    at += 1 + usize::from(spaced);
                    each(Piece::Separator(if spaced { SeparatorKind::Hard } else { SeparatorKind::Soft }))?;
                }
                Ascii::Hard => {
                    at += 1;
                    each(Piece::Separator(SeparatorKind::Hard))?;
                }
                Ascii::Nul => {
                    each(self.ascii_word("\0", scratch))?;
                    at += 1;
                }
                Ascii::Word => {
                    let rest = &bytes[at..];
                    let len = rest.iter().position(|b| ASCII[usize::from(*b)] != Ascii::Word).unwrap_or(rest.len());
                    each(self.ascii_word(&text[at..at + len], scratch))?;
                    at += len;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn ascii_word<'s>(&self, word: &str, scratch: &'s mut String) -> Piece<'s> {
        scratch.clear();
        if word.bytes().any(|b| b.is_ascii_control() && !char::from(b).is_whitespace()) {
            scratch.extend(word.chars().filter(|c| !c.is_control() || c.is_whitespace()));
        } else {
            scratch.push_str(word);
        }
        // Stop words are told by the case they are written in, hence before folding.
        if self.stop_words().is_some_and(|set| set.contains(&scratch)) {
            return Piece::StopWord;
        }
        scratch.make_ascii_lowercase();
        Piece::Word(scratch)
    }
}

impl fmt::Debug for TextTokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextTokenizer").finish_non_exhaustive()
    }
}

fn normalisers(sources: Sources) -> Normalisers {
    Normalisers::new(sources, |sources| {
        // Other separators than the default ones are told by their set.
        let separators: Option<&[&str]> = sources.separators.as_ref().map(|_| [].as_slice());
        let option = |stop_words, create_char_map| NormalizerOption {
            create_char_map,
            lossy: true,
            classifier: ClassifierOption { stop_words, separators },
        };
        // The bytes are those of a set already.
        let stop_words = sources.stop_words.as_ref().and_then(|set| fst::Set::new(set.as_fst().as_bytes()).ok());
        Options { indexed: option(stop_words, false), shown: option(None, true) }
    })
}

/// Finds separators and the words of the setting `dictionary`, the longest first.
fn automaton(separators: Option<&Separators>, dictionary: &BTreeSet<String>) -> Option<AhoCorasick> {
    let words = dictionary.iter().map(String::as_str);
    let patterns: Vec<&str> = match separators {
        Some(separators) => words.chain(separators.texts()).collect(),
        None => words.chain(DEFAULT_SEPARATORS.iter().copied()).collect(),
    };
    let patterns = patterns.into_iter().filter(|text| !text.is_empty());
    let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
    // It cannot be built when its states cannot be numbered in 31 bits; no settings are as large.
    automaton.ok().filter(|automaton| automaton.patterns_len() != 0)
}

/// The form in which stop words are kept: compatibility-decomposed, without control characters, case and accents kept.
pub fn normalise_stop_word(word: &str) -> String {
    word.normalize(&NormalizerOption { lossy: false, ..NormalizerOption::default() }).into_owned()
}

fn stop_word_set(stop_words: &BTreeSet<String>) -> Option<fst::Set<Vec<u8>>> {
    // A set without entries would be built just as well; none spares a lookup for each word.
    if stop_words.is_empty() { None } else { fst::Set::from_iter(stop_words).ok() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ascii {
    Word,
    /// Cuts like a separator, but is removed as a control character before separators are told, which leaves an empty word.
    Nul,
    Soft,
    Hard,
}

/// What each ASCII byte is among the default separators (`.` and `,` before a space are hard, see `visit_ascii`).
const ASCII: [Ascii; 256] = {
    let mut table = [Ascii::Word; 256];
    table[0] = Ascii::Nul;
    let soft = b"\t\n\r \"#%&'()*+,-./:@[\\]_`{}";
    let hard = b"!;?";
    let mut at = 0;
    while at < soft.len() {
        table[soft[at] as usize] = Ascii::Soft;
        at += 1;
    }
    at = 0;
    while at < hard.len() {
        table[hard[at] as usize] = Ascii::Hard;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(tokenizer: &TextTokenizer, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        tokenizer.visit(text, None, &mut String::new(), |piece| {
            found.push(format!("{piece:?}"));
            ControlFlow::Continue(())
        });
        found
    }

    fn reference(tokenizer: &TextTokenizer, text: &str) -> Vec<String> {
        let name = |token: Token<'_>| match token.kind {
            TokenKind::Word => format!("{:?}", Piece::Word(token.lemma())),
            TokenKind::StopWord => format!("{:?}", Piece::StopWord),
            TokenKind::Separator(kind) => format!("{:?}", Piece::Separator(kind)),
            TokenKind::Unknown => "unknown".to_owned(),
        };
        tokenizer.tokens(text, None).into_iter().map(name).collect()
    }

    fn words(settings: &Settings, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        TextTokenizer::new(settings).visit(text, None, &mut String::new(), |piece| {
            if let Piece::Word(word) = piece {
                found.push(word.to_owned());
            }
            ControlFlow::Continue(())
        });
        found
    }

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    proptest! {
        /// The short cut for ASCII must never tell a document's words apart from those of a query, which takes the long way.
        #[test]
        fn the_ascii_short_cut_gives_the_same_pieces(text in "[ -~\t\n\r\u{0}-\u{1f}\u{7f}]{0,40}") {
            let settings = Settings { stop_words: set(&["the", "A"]), ..Settings::default() };
            for tokenizer in [TextTokenizer::new(&settings), TextTokenizer::new(&Settings::default())] {
                prop_assert_eq!(pieces(&tokenizer, &text), reference(&tokenizer, &text));
            }
        }

        #[test]
        fn the_ascii_short_cut_agrees_on_sentences(text in "([Tt]he|A|a\\.b|[a-zA-Z]{1,8}|[0-9.,-]{1,5}|C#)([ .,!;-]{1,3}(the|A|[a-z]{1,4})){0,6}") {
            let tokenizer = TextTokenizer::new(&Settings { stop_words: set(&["the", "A"]), ..Settings::default() });
            prop_assert_eq!(pieces(&tokenizer, &text), reference(&tokenizer, &text));
        }
    }

    #[test]
    fn what_the_short_cut_does_not_take_weighs_more() {
        let plain = TextTokenizer::new(&Settings::default());
        assert_eq!((plain.work(b"abc"), plain.work("aé".as_bytes())), (3, 24));
        let others = TextTokenizer::new(&Settings { separator_tokens: set(&["xx"]), ..Settings::default() });
        assert_eq!(others.work(b"abc"), 24);
    }

    #[test]
    fn stop_words_are_told_by_case_and_separators_by_the_settings() {
        let settings = Settings { stop_words: set(&["the"]), ..Settings::default() };
        assert_eq!(words(&settings, "The lord of the rings"), ["the", "lord", "of", "rings"]);
        let settings = Settings { non_separator_tokens: set(&["#", "+"]), ..Settings::default() };
        assert_eq!(words(&settings, "C# and C++"), ["c#", "and", "c++"]);
        let settings = Settings { separator_tokens: set(&["xx"]), ..Settings::default() };
        assert_eq!(words(&settings, "fooxxbar"), ["foo", "bar"]);
        let settings = Settings { dictionary: set(&["potato"]), ..Settings::default() };
        assert_eq!(words(&settings, "sweetpotatoes"), ["sweet", "potato", "es"]);
    }

    /// It shares the automaton, and must not differ in anything else from one that is built.
    #[test]
    fn other_stop_words_leave_the_rest_as_it_is() {
        let dictionary =
            Settings { dictionary: set(&["j. r."]), separator_tokens: set(&["xx"]), ..Settings::default() };
        for settings in [Settings::default(), dictionary] {
            let settings = Settings { stop_words: set(&["the"]), ..settings };
            let other = Settings { stop_words: set(&["of"]), ..settings.clone() };
            let (built, derived) =
                (TextTokenizer::new(&other), TextTokenizer::new(&settings).with_stop_words(&other.stop_words));
            for text in ["the lord of j. r. Tolkienxxthe élan", "the lord of the rings"] {
                assert_eq!(reference(&derived, text), reference(&built, text));
                assert_eq!(pieces(&derived, text), pieces(&built, text));
            }
            assert!(pieces(&derived, "the of").iter().any(|piece| piece == "StopWord"));
        }
    }

    #[test]
    fn words_are_folded_as_the_interface_says() {
        let default = Settings::default();
        assert_eq!(
            words(&default, "Élan ﬁnal Œuvre don't left|right a\u{a0}b"),
            ["elan", "final", "oeuvre", "don", "t", "left|right", "a b"]
        );
        assert_eq!(normalise_stop_word("ﬁ"), "fi");
        assert_eq!(normalise_stop_word("à"), "a\u{300}");
    }
}
