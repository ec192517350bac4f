//! Parses a query text into words, phrases and negative words with their positions.

use std::ops::Range;

use charabia::{SeparatorKind, Token, TokenKind};

/// Tokens of a query that are read; what follows is ignored.
pub const TOKENS_MAX: usize = 1000;
/// Terms of a query; what follows the last one is ignored.
pub const TERMS_MAX: usize = 10;
/// What a hard separator adds to the distance of one between neighbours.
const HARD_SEPARATOR_EXTRA: u16 = 7;

/// A query text, cut into what must match and what must not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedQuery {
    /// At most [`TERMS_MAX`]; none for a placeholder search.
    pub terms: Vec<Term>,
    /// Words and phrases (of one or more words) that no document of the result may hold.
    pub negatives: Vec<Vec<Option<String>>>,
}

/// One thing that documents should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// What it is.
    pub kind: TermKind,
    /// The position of its first word (or hole) in the query, from 0.
    pub position: u16,
    /// The position of its last word (or hole).
    pub last_position: u16,
}

/// A word, or words in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermKind {
    /// A normalised word.
    Word {
        /// The word.
        text: String,
        /// Whether words that begin with it match too.
        prefix: bool,
    },
    /// Words held exactly, in this order; `None` is a stop word, which any word fills. At least one is a word.
    Phrase(Vec<Option<String>>),
}

struct OpenPhrase {
    words: Vec<Option<String>>,
    position: u16,
    negative: bool,
}

struct Parser<'q> {
    text: &'q str,
    parsed: ParsedQuery,
    /// The bytes of the last words of which nothing is left.
    vanished: Range<usize>,
    /// Where the last word ends: a minus in it says nothing of what follows.
    word_end: usize,
    /// The position that the next word takes.
    position: u16,
    phrase: Option<OpenPhrase>,
}

/// Parses a query that was cut into `tokens`. `prefix_search` says whether the last word may be the beginning of a word.
pub fn parse(text: &str, tokens: &[Token<'_>], prefix_search: bool) -> ParsedQuery {
    let mut parser =
        Parser { text, parsed: ParsedQuery::default(), vanished: 0..0, word_end: 0, position: 0, phrase: None };
    let mut tokens = tokens.iter().take(TOKENS_MAX).peekable();
    while let Some(token) = tokens.next() {
        if parser.parsed.terms.len() == TERMS_MAX {
            parser.phrase = None;
            break;
        }
        match token.kind {
            // A lone accent of which nothing is left: no word stands there, and none before it may be a beginning.
            TokenKind::Word | TokenKind::StopWord | TokenKind::Unknown if token.lemma().is_empty() => {
                let start = parser.seen_from(token.byte_start);
                parser.vanished = start..token.byte_end;
            }
            TokenKind::Word | TokenKind::StopWord | TokenKind::Unknown => {
                let is_last = tokens.peek().is_none();
                let is_stop = token.kind == TokenKind::StopWord;
                parser.word(token.lemma(), is_stop, is_last, prefix_search, token.byte_start);
                parser.word_end = token.byte_end;
            }
            TokenKind::Separator(kind) => {
                let end = token.byte_end.min(text.len());
                parser.separator(text.get(token.byte_start..end).unwrap_or(""), token.byte_start, kind);
            }
        }
    }
    parser.close_phrase();
    parser.parsed
}

impl Parser<'_> {
    fn word(&mut self, lemma: &str, is_stop: bool, is_last: bool, prefix_search: bool, byte_start: usize) {
        let position = self.position;
        self.position = self.position.saturating_add(1);
        if let Some(phrase) = &mut self.phrase {
            if phrase.words.is_empty() {
                phrase.position = position;
            }
            phrase.words.push((!is_stop).then(|| lemma.to_owned()));
        } else if self.is_negated(byte_start) {
            self.parsed.negatives.push(vec![Some(lemma.to_owned())]);
        } else if !is_stop || is_last {
            let kind = TermKind::Word { text: lemma.to_owned(), prefix: is_last && prefix_search };
            self.parsed.terms.push(Term { kind, position, last_position: position });
        }
    }

    fn separator(&mut self, raw: &str, byte_start: usize, kind: SeparatorKind) {
        let quotes = raw.matches('"').count();
        let mut negative = false;
        if let Some(at) = raw.rfind('"') {
            negative = self.is_negated(byte_start + at);
        }
        if quotes > 0 {
            let was_open = self.phrase.is_some();
            self.close_phrase();
            if (quotes - usize::from(was_open)) % 2 == 1 {
                self.phrase = Some(OpenPhrase { words: Vec::new(), position: self.position, negative });
            }
        } else if kind == SeparatorKind::Hard && self.phrase.is_some() {
            let negative = self.phrase.as_ref().is_some_and(|phrase| phrase.negative);
            self.close_phrase();
            self.phrase = Some(OpenPhrase { words: Vec::new(), position: self.position, negative });
        }
        if kind == SeparatorKind::Hard {
            self.position = self.position.saturating_add(HARD_SEPARATOR_EXTRA);
        }
    }

    /// Whether a `-` that itself follows a blank or the start of the text stands right before what is read at byte `at`, and is no
    /// part of a word.
    fn is_negated(&self, at: usize) -> bool {
        let at = self.seen_from(at);
        let Some(before) = self.text.get(..at).and_then(|head| head.strip_suffix('-')) else { return false };
        at > self.word_end && before.chars().next_back().is_none_or(char::is_whitespace)
    }

    /// Where that begins which is read at byte `at`, with the words right before it of which nothing is left.
    fn seen_from(&self, at: usize) -> usize {
        if self.vanished.end == at { self.vanished.start } else { at }
    }

    fn close_phrase(&mut self) {
        let Some(phrase) = self.phrase.take() else { return };
        if phrase.words.iter().all(Option::is_none) {
            return;
        }
        if phrase.negative {
            self.parsed.negatives.push(phrase.words);
        } else if self.parsed.terms.len() < TERMS_MAX {
            let last_position = phrase.position.saturating_add(phrase.words.len() as u16 - 1);
            let kind = TermKind::Phrase(phrase.words);
            self.parsed.terms.push(Term { kind, position: phrase.position, last_position });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let stop_words = fst::Set::from_iter(["of", "the"]).unwrap();
        let mut builder = charabia::TokenizerBuilder::new();
        builder.stop_words(&stop_words);
        let tokens: Vec<Token<'_>> = builder.build().tokenize(text).collect();
        let parsed = parse(text, &tokens, true);
        let phrase = |words: &[Option<String>]| {
            words.iter().map(|w| w.clone().unwrap_or("_".into())).collect::<Vec<_>>().join(" ")
        };
        let terms = parsed.terms.iter().map(|term| match &term.kind {
            TermKind::Word { text, prefix } => format!("{text}{}@{}", if *prefix { "*" } else { "" }, term.position),
            TermKind::Phrase(words) => format!("\"{}\"@{}", phrase(words), term.position),
        });
        let negatives = parsed.negatives.iter().map(|words| format!("-{}", phrase(words)));
        terms.chain(negatives).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn queries_are_cut_as_documented() {
        for (text, want) in [
            ("", ""),
            ("sun flower", "sun@0, flower*@1"),
            ("sun flower ", "sun@0, flower@1"),
            ("sun. flower", "sun@0, flower*@8"),
            (". sun", "sun*@7"),
            ("!! -sun the flower", "flower*@16, -sun"),
            ("?\"sun\"", "\"sun\"@7"),
            ("(sun", "sun*@0"),
            ("\u{301} sun \u{301} flower", "sun@0, flower*@1"),
            ("sun \u{301}", "sun@0"),
            ("\"sun \u{301} flower \u{301}\" -\u{301} x", "\"sun flower\"@0, x*@2"),
            ("the lord of rings", "lord@1, rings*@3"),
            ("lord of", "lord@0, of*@1"),
            ("\"the lord of rings\" x", "\"_ lord _ rings\"@0, x*@4"),
            ("\"of the\"", ""),
            ("\"quick, brown\"", "\"quick\"@0, \"brown\"@8"),
            ("\"never closed", "\"never closed\"@0"),
            ("a \"b\" c", "a@0, \"b\"@1, c*@2"),
            ("\"a\"\"b\"", "\"a\"@0, \"b\"@1"),
            ("a -b c", "a@0, c*@2, -b"),
            ("a -\"b c\" d", "a@0, d*@3, -b c"),
            ("-7", "-7"),
            ("a -\u{301}\"b c\"", "a@0, -b c"),
            ("สมัชชา -้ข้อ", "สมชชา@0, -ขอ"),
            ("a-x", "a@0, x*@1"),
            ("- x", "x*@0"),
            ("--x", "x*@0"),
            ("-(x)", "x@0"),
            ("1 2 3 4 5 6 7 8 9 10 11", "1@0, 2@1, 3@2, 4@3, 5@4, 6@5, 7@6, 8@7, 9@8, 10@9"),
        ] {
            assert_eq!(show(text), want, "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

        /// Neither text nor pieces of the query language bring the parser down, and there are never more than ten terms.
        #[test]
        fn no_query_makes_the_parser_panic(
            text: String,
            pieces in proptest::collection::vec(proptest::sample::select(vec![
                "a", "the", "of", "\"", "\"\"", "-", " -", " -\"", " ", ". ", ", ", "\u{3000}", "大学", "é", "\u{301}", "-7", "ß", "x.y", "\0",
            ]), 0..60),
        ) {
            for text in [text, pieces.concat()] {
                let tokens: Vec<Token<'_>> = charabia::TokenizerBuilder::<Vec<u8>>::new().build().tokenize(&text).collect();
                for prefix_search in [false, true] {
                    proptest::prop_assert!(parse(&text, &tokens, prefix_search).terms.len() <= 10);
                }
            }
        }
    }
}
