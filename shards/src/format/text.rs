//! Highlights and crops one text.

use super::crop::{Span, window};
use super::matcher::TextMatch;

/// How a text is shown.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle<'s> {
    /// Put around matches.
    pub tags: Option<(&'s str, &'s str)>,
    /// Most words shown; `None`: all.
    pub words_max: Option<usize>,
    /// Put where the text was cut.
    pub marker: &'s str,
}

/// The text as it is shown. `tokens` are its own where it is cropped; otherwise they are not looked at.
pub fn format_text(text: &str, tokens: &[Span], matches: &[TextMatch], style: TextStyle<'_>) -> String {
    let (mut start, mut end) = (0, text.len());
    if let Some(words_max) = style.words_max.filter(|words| *words > 0 && !tokens.is_empty()) {
        let shown = window(tokens, matches, words_max);
        start = tokens.get(shown.start).map_or(0, |token| token.start as usize);
        end = tokens[..shown.end].last().map_or(0, |token| text.len().min(token.end as usize));
    }
    let mut shown = String::with_capacity(end - start + 16);
    if start > 0 {
        shown.push_str(style.marker);
    }
    let mut at = start;
    if let Some((open, close)) = style.tags {
        // Where words follow each other without anything between, the crop's neighbours touch it: as in the reference, of
        // these nothing is shown but the tags.
        let touches = |m: &&TextMatch| m.end as usize >= start && m.start as usize <= end;
        for matched in matches.iter().filter(|m| m.length > 0).filter(touches) {
            let within = |at: usize| at.max(start).min(end);
            let (from, to) = (within(matched.start as usize), within(matched.start as usize + matched.length as usize));
            shown.push_str(text.get(at..from).unwrap_or(""));
            shown.push_str(open);
            shown.push_str(text.get(from..to).unwrap_or(""));
            shown.push_str(close);
            at = to;
        }
    }
    shown.push_str(text.get(at..end).unwrap_or(""));
    if end < text.len() {
        shown.push_str(style.marker);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MatchWords;
    use crate::query::{Derivations, Node, Phrase, PrefixMode, QueryGraph};

    fn graph(words: &[&str]) -> QueryGraph {
        let node = |(at, word): (usize, &&str)| {
            let prefix = word.ends_with('*').then_some(PrefixMode::List(None));
            let text = word.trim_end_matches('*').to_owned();
            let is_phrase = word.contains(' ');
            let phrase = is_phrase.then(|| Phrase(word.split(' ').map(|word| Some(word.to_owned())).collect()));
            let derivations = Derivations { text, word: !is_phrase, prefix, phrase, ..Derivations::default() };
            Node { first: at as u8, len: 1, position: at as u16, last_position: at as u16, derivations }
        };
        let nodes: Vec<Node> = words.iter().enumerate().map(node).collect();
        QueryGraph {
            term_count: nodes.len() as u8,
            drop_ranks: vec![None; nodes.len()],
            nodes,
            ..QueryGraph::default()
        }
    }

    fn show(words: &[&str], text: &str, words_max: Option<usize>) -> String {
        let (words, mut tokens) = (MatchWords::of(&graph(words)), Vec::new());
        let mut finder = words.finder(text);
        for token in charabia::TokenizerBuilder::<Vec<u8>>::new().build().tokenize(text) {
            tokens.push(Span::of(&token));
            finder.push(token);
        }
        format_text(text, &tokens, &finder.finish(), TextStyle { tags: Some(("<", ">")), words_max, marker: "…" })
    }

    #[test]
    fn matches_are_wrapped_where_they_stand() {
        for (words, text, want) in [
            (&["winter"][..], "Winter is coming", "<Winter> is coming"),
            (&["phone*"], "two phones, one Phone", "two <phone>s, one <Phone>"),
            (&["ete"], "un été chaud", "un <été> chaud"),
            (&["x"], "", ""),
            (&["a", "b"], "b a & a", "<b> <a> & <a>"),
        ] {
            assert_eq!(show(words, text, None), want);
        }
    }

    /// Of a word that begins where the crop ends, or ends where it begins, the tags are shown.
    #[test]
    fn words_without_anything_between_touch_the_crop() {
        // One script ends where the other begins.
        let text = "one twoдва three";
        for (words, words_max, want) in [
            (&["two"][..], 1, "…<two>…"),
            (&["two", "два"], 1, "…<two><>…"),
            (&["два", "three", "two"], 2, "…<><два> <three>"),
            (&["два", "three", "t*"], 2, "…<><два> <three>"),
            (&["two", "два"], 2, "…<two><два>…"),
        ] {
            assert_eq!(show(words, text, Some(words_max)), want, "{words:?} {words_max}");
        }
    }

    #[test]
    fn crops_show_the_best_stretch_and_grow_to_both_sides() {
        let text = "one two three four five six seven eight nine ten";
        for (words, words_max, want) in [
            (&["zzz"][..], 3, "one two three…"),
            (&["five"], 3, "…four <five> six…"),
            (&["five"], 1, "…<five>…"),
            (&["one"], 3, "<one> two three…"),
            (&["ten"], 3, "…eight nine <ten>"),
            (&["two", "nine", "ten"], 3, "…eight <nine> <ten>"),
            (&["five"], 20, "one two three four <five> six seven eight nine ten"),
            (&["four five"], 2, "…<four five>…"),
            (&["four five six seven"], 2, "one two three <four five>…"),
            (&["nine ten"], 1, "one two three four five six seven eight <nine>…"),
        ] {
            assert_eq!(show(words, text, Some(words_max)), want, "{words:?} {words_max}");
        }
    }
}
