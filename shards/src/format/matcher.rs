//! Finds the words of a query in a text.

use charabia::Token;

use crate::query::{Phrase, QueryGraph};

/// A run of tokens that matches a part of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextMatch {
    /// The first token.
    pub first_token: usize,
    /// The last token.
    pub last_token: usize,
    /// The number of its first word in the text, and of its last.
    pub words: (usize, usize),
    /// The query positions it stands for, first and last.
    pub positions: (u16, u16),
    /// Bytes of the text.
    pub start: usize,
    /// Bytes of the text.
    pub length: usize,
    /// Words of a matched phrase; 1 for a single word.
    pub phrase_words: usize,
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

    /// The matches in a text, in order, without overlaps.
    pub fn find(&self, text: &str, tokens: &[Token<'_>]) -> Vec<TextMatch> {
        let words: Vec<usize> = (0..tokens.len()).filter(|at| !tokens[*at].is_separator()).collect();
        let mut found = Vec::new();
        let mut at = 0;
        while at < words.len() {
            match self.phrase(text, tokens, &words, at).or_else(|| self.word(text, tokens, &words, at)) {
                Some(matched) => {
                    at = matched.words.1 + 1;
                    found.push(matched);
                }
                None => at += 1,
            }
        }
        found
    }

    fn phrase(&self, text: &str, tokens: &[Token<'_>], words: &[usize], at: usize) -> Option<TextMatch> {
        let fits = |phrase: &[Option<String>]| {
            phrase.len() <= words.len() - at
                && phrase
                    .iter()
                    .zip(&words[at..])
                    .all(|(wanted, token)| wanted.as_deref() == Some(tokens[*token].lemma()))
        };
        let (Phrase(phrase), positions) = self.phrases.iter().find(|(phrase, _)| fits(&phrase.0))?;
        let last = at + phrase.len() - 1;
        let start = tokens[words[at]].byte_start;
        let end = tokens[words[last]].byte_end.min(text.len());
        Some(TextMatch {
            first_token: words[at],
            last_token: words[last],
            words: (at, last),
            positions: *positions,
            start,
            length: end.saturating_sub(start),
            phrase_words: phrase.len(),
        })
    }

    fn word(&self, text: &str, tokens: &[Token<'_>], words: &[usize], at: usize) -> Option<TextMatch> {
        let token = &tokens[words[at]];
        let lemma = token.lemma();
        let whole = token.byte_end.min(text.len()).saturating_sub(token.byte_start);
        let (known, length) = self.words.iter().find_map(|known| Some((known, known.length(lemma, whole, token)?)))?;
        Some(TextMatch {
            first_token: words[at],
            last_token: words[at],
            words: (at, at),
            positions: known.positions,
            start: token.byte_start,
            length,
            phrase_words: 1,
        })
    }
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
