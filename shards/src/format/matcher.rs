//! Finds the words of a query in a text.

use std::collections::VecDeque;

use charabia::Token;

use crate::query::{Phrase, QueryGraph};

/// A run of tokens that matches a part of the query. Small, since each word of a long text may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextMatch {
    /// The number of its first token in the text, and of its last.
    pub tokens: (u32, u32),
    /// The number of its first word in the text, and of its last.
    pub words: (u32, u32),
    /// The query positions it stands for, first and last.
    pub positions: (u16, u16),
    /// Bytes of the text where its first token begins.
    pub start: u32,
    /// Bytes of the text where its last token ends.
    pub end: u32,
    /// Bytes of the text that match, from the start on.
    pub length: u32,
    /// Words of a matched phrase; 1 for a single word.
    pub phrase_words: u32,
}

/// What a text is searched for: everything that the search itself looked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchWords {
    phrases: Vec<(Phrase, (u16, u16))>,
    /// Whole words first, longer joins before shorter, then prefixes.
    words: Vec<KnownWords>,
}

#[derive(Clone, Debug, PartialEq)]
struct KnownWords {
    /// Sorted.
    words: Vec<String>,
    positions: (u16, u16),
    /// What was typed, when the words stand for beginnings of words.
    prefix: Option<String>,
    /// Words that begin with it; sorted.
    prefixed: Vec<String>,
}

impl MatchWords {
    /// The words of a completed graph.
    pub fn of(graph: &QueryGraph) -> Self {
        let mut all = Self::default();
        let mut nodes: Vec<_> = graph.nodes.iter().collect();
        nodes.sort_by_key(|node| (node.derivations.prefix.is_some(), std::cmp::Reverse(node.len), node.first));
        for node in nodes {
            let d = &node.derivations;
            let positions = (node.position, node.last_position);
            all.phrases.extend(d.phrase.iter().map(|phrase| (phrase.clone(), positions)));
            all.phrases.extend(d.synonyms.iter().map(|synonym| (synonym.clone(), positions)));
            if let Some((left, right)) = &d.split {
                all.phrases.push((Phrase(vec![Some(left.clone()), Some(right.clone())]), positions));
            }
            let mut words: Vec<String> = d.one_typo.iter().chain(&d.two_typos).cloned().collect();
            if d.word {
                words.push(d.text.clone());
            }
            words.sort_unstable();
            let prefix = d.prefix.as_ref().map(|_| d.text.clone());
            if !words.is_empty() || !d.prefixed.is_empty() {
                all.words.push(KnownWords { words, positions, prefix, prefixed: d.prefixed.clone() });
            }
        }
        all
    }

    /// Whether nothing can match.
    pub fn is_empty(&self) -> bool {
        self.phrases.is_empty() && self.words.is_empty()
    }

    /// What finds them in a text that is given token by token.
    pub fn finder<'w, 't>(&'w self, text: &'t str) -> Finder<'w, 't> {
        let ahead_max = self.phrases.iter().map(|(phrase, _)| phrase.0.len()).max().unwrap_or(1).max(1);
        let ahead = VecDeque::with_capacity(ahead_max);
        Finder { wanted: self, text_len: text.len(), ahead, ahead_max, token: 0, word: 0, found: Vec::new() }
    }
}

/// Finds matches in a text.
pub struct Finder<'w, 't> {
    wanted: &'w MatchWords,
    text_len: usize,
    /// Words that are not judged yet, with the numbers of their tokens: as many as the longest phrase has.
    ahead: VecDeque<(u32, Token<'t>)>,
    ahead_max: usize,
    /// Tokens so far.
    token: u32,
    /// Words that are judged.
    word: u32,
    found: Vec<TextMatch>,
}

impl<'t> Finder<'_, 't> {
    /// Takes the next token of the text.
    pub fn push(&mut self, token: Token<'t>) {
        let number = self.token;
        self.token += 1;
        if token.is_separator() {
            return;
        }
        self.ahead.push_back((number, token));
        if self.ahead.len() == self.ahead_max {
            self.judge_first();
        }
    }

    /// The matches in the text, in order, without overlaps.
    pub fn finish(mut self) -> Vec<TextMatch> {
        while !self.ahead.is_empty() {
            self.judge_first();
        }
        self.found
    }

    fn judge_first(&mut self) {
        let matched = self.phrase().or_else(|| self.single());
        let words = matched.map_or(1, |matched| matched.phrase_words);
        self.ahead.drain(..words as usize);
        self.word += words;
        self.found.extend(matched);
    }

    fn phrase(&self) -> Option<TextMatch> {
        let fits = |phrase: &[Option<String>]| {
            (1..=self.ahead.len()).contains(&phrase.len())
                && phrase.iter().zip(&self.ahead).all(|(wanted, (_, token))| wanted.as_deref() == Some(token.lemma()))
        };
        let (Phrase(phrase), positions) = self.wanted.phrases.iter().find(|(phrase, _)| fits(&phrase.0))?;
        let last = &self.ahead[phrase.len() - 1].1;
        let length = last.byte_end.min(self.text_len).saturating_sub(self.ahead[0].1.byte_start);
        Some(self.matched(phrase.len(), *positions, length))
    }

    fn single(&self) -> Option<TextMatch> {
        let token = &self.ahead[0].1;
        let whole = token.byte_end.min(self.text_len).saturating_sub(token.byte_start);
        let length = |known: &KnownWords| known.length(token.lemma(), whole, token);
        let (known, length) = self.wanted.words.iter().find_map(|known| Some((known, length(known)?)))?;
        Some(self.matched(1, known.positions, length))
    }

    /// The match of the next words, at least one, of which so many bytes match.
    fn matched(&self, words: usize, positions: (u16, u16), length: usize) -> TextMatch {
        let ((first_token, first), (last_token, last)) = (&self.ahead[0], &self.ahead[words - 1]);
        let phrase_words = words as u32;
        TextMatch {
            tokens: (*first_token, *last_token),
            words: (self.word, self.word + phrase_words - 1),
            positions,
            start: position(first.byte_start),
            end: position(last.byte_end),
            length: position(length),
            phrase_words,
        }
    }
}

/// A place in a text. No text is as long as would be cut here: documents are smaller than requests.
pub(super) fn position(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl KnownWords {
    /// Bytes of the token that match.
    fn length(&self, lemma: &str, whole: usize, token: &Token<'_>) -> Option<usize> {
        let Some(typed) = &self.prefix else {
            return self.words.binary_search_by(|word| word.as_str().cmp(lemma)).ok().map(|_| whole);
        };
        // Of a longer word as much as was typed is shown as matching, of a shorter one (by typo) all of it.
        // Of several words that it begins with the typed one counts, else the first by bytes, hence the shortest.
        let begins = |word: &&String| lemma.starts_with(word.as_str());
        let known =
            self.words.iter().find(|word| *word == typed && begins(word)).or_else(|| self.words.iter().find(begins));
        let typed_chars = typed.chars().count();
        let bytes = match known {
            _ if self.begins_with_prefixed(lemma, typed) => typed.len(),
            Some(word) => word.char_indices().nth(typed_chars).map_or(word.len(), |(at, _)| at),
            None => return None,
        };
        Some(token.original_lengths(bytes).1.min(whole))
    }

    /// Whether the word begins with one of those that begin with what was typed.
    fn begins_with_prefixed(&self, lemma: &str, typed: &str) -> bool {
        if self.prefixed.is_empty() || !lemma.starts_with(typed) {
            return false;
        }
        let ends = lemma.char_indices().map(|(at, _)| at).filter(|at| *at >= typed.len()).chain([lemma.len()]);
        ends.into_iter().any(|end| self.prefixed.binary_search_by(|word| word.as_str().cmp(&lemma[..end])).is_ok())
    }
}
