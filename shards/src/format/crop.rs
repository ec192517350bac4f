//! Chooses the part of a text that is shown.

use std::cmp::Reverse;
use std::ops::Range;

use charabia::{SeparatorKind, Token};

use super::matcher::{TextMatch, position};

/// Distances between matches count up to this.
const DISTANCE_MAX: usize = 7;

/// Where a token stands in its text, and what it is. Small, since every second or third byte of a long text may begin one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes of the text where it begins.
    pub start: u32,
    /// Bytes of the text where it ends.
    pub end: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Soft,
    Hard,
}

impl Span {
    /// That of a token.
    pub fn of(token: &Token<'_>) -> Self {
        let kind = match token.separator_kind() {
            None => Kind::Word,
            Some(SeparatorKind::Soft) => Kind::Soft,
            Some(SeparatorKind::Hard) => Kind::Hard,
        };
        Self { start: position(token.byte_start), end: position(token.byte_end), kind }
    }
}

/// The tokens to show of a text when it may have `words_max` (at least 1) words: those around the best matches.
pub fn window(tokens: &[Span], matches: &[TextMatch], words_max: usize) -> Range<usize> {
    let best = best_stretch(matches, words_max);
    let (mut window, shown) = match best {
        Some(stretch) => {
            let (first, last) = (&matches[stretch.start], &matches[stretch.end - 1]);
            let shown = words_to(first, last) + 1;
            if shown > words_max {
                return long_phrase(tokens, first, words_max);
            }
            (first.tokens.0 as usize..last.tokens.1 as usize + 1, shown)
        }
        None => (0..0, 0),
    };
    let mut missing = words_max.saturating_sub(shown);
    while missing > 0 {
        let before = window.start.checked_sub(1).map(|at| tokens[at].kind);
        let after = tokens.get(window.end).map(|token| token.kind);
        let (left, right) = match (before, after) {
            (None, None) => break,
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            (Some(Kind::Word), Some(Kind::Word)) => (true, missing > 1),
            (Some(Kind::Word), Some(_)) => (true, false),
            (Some(_), Some(Kind::Word)) => (false, true),
            (Some(before), Some(after)) if before == after => (true, missing > 1),
            (Some(before), Some(_)) => (before == Kind::Soft, before != Kind::Soft),
        };
        if left {
            window.start -= 1;
            missing -= usize::from(before == Some(Kind::Word));
        }
        if right && missing > 0 {
            window.end += 1;
            missing -= usize::from(after == Some(Kind::Word));
        }
    }
    window
}

/// What is shown of a text around a phrase of more words than may be shown. As in the reference that is all in front of it, and
/// so many of its words; but where a separator follows the phrase, the last token of these is left out, mostly a separator, too.
fn long_phrase(tokens: &[Span], phrase: &TextMatch, words_max: usize) -> Range<usize> {
    let (first, last) = (phrase.tokens.0 as usize, phrase.tokens.1 as usize);
    let mut words = (first..=last).filter(|at| tokens[*at].kind == Kind::Word);
    let end = words.nth(words_max).unwrap_or(last + 1);
    let is_separator = |at: usize| tokens.get(at).is_some_and(|token| token.kind != Kind::Word);
    // At the end of a text the reference fails.
    let at_end = last + 1 == tokens.len();
    let shortened = if at_end { end > 0 && is_separator(end - 1) } else { is_separator(last + 1) };
    0..end - usize::from(shortened && end > 0)
}

/// Words from the first of one match to the last of another.
fn words_to(first: &TextMatch, last: &TextMatch) -> usize {
    (last.words.1 - first.words.0) as usize
}

/// More of the query first, then nearer together, then more in the order of the query.
type Value = (usize, Reverse<usize>, usize);

/// The stretch of matches to show; `None` without matches.
fn best_stretch(matches: &[TextMatch], words_max: usize) -> Option<Range<usize>> {
    let mut best: Option<(Range<usize>, Value)> = None;
    let mut stretch = Stretch::new(matches);
    for start in 0..matches.len() {
        let before = stretch.range.end;
        if start > 0 {
            stretch.drop_first();
        }
        let fits = |matched: &TextMatch| words_to(&matches[start], matched) < words_max;
        while matches.get(stretch.range.end).is_some_and(fits) {
            stretch.grow();
        }
        // A stretch that ends where the one before ended lies within it.
        if !stretch.range.is_empty() && (start == 0 || stretch.range.end > before) {
            let value = stretch.value();
            if best.as_ref().is_none_or(|(_, known)| value > *known) {
                best = Some((stretch.range.clone(), value));
            }
        }
    }
    best.map(|(stretch, _)| stretch).or_else(|| (!matches.is_empty()).then_some(0..1))
}

/// A stretch that moves along the matches, and what its value is made of: a long text may have as many stretches as words, each
/// nearly as long as the text.
struct Stretch<'m> {
    matches: &'m [TextMatch],
    range: Range<usize>,
    /// By query position, how many of the matches stand for it.
    of_position: Vec<usize>,
    /// Query positions that some of them stand for.
    positions: usize,
    distance: usize,
    ordered: usize,
}

impl<'m> Stretch<'m> {
    /// Empty, in front of the first match.
    fn new(matches: &'m [TextMatch]) -> Self {
        let positions = matches.iter().map(|matched| usize::from(matched.positions.1) + 1).max().unwrap_or(0);
        Self { matches, range: 0..0, of_position: vec![0; positions], positions: 0, distance: 0, ordered: 0 }
    }

    /// Takes the next match in.
    fn grow(&mut self) {
        let end = self.range.end;
        let matched = &self.matches[end];
        for position in matched.positions.0..=matched.positions.1 {
            let count = &mut self.of_position[usize::from(position)];
            self.positions += usize::from(*count == 0);
            *count += 1;
        }
        let (mut distance, mut ordered) = of_match(matched);
        if !self.range.is_empty() {
            let (apart, in_order) = of_neighbours(&self.matches[end - 1], matched);
            distance += apart;
            ordered += in_order;
        }
        self.distance += distance;
        self.ordered += ordered;
        self.range.end += 1;
    }

    /// Leaves the first match behind; an empty stretch moves past it.
    fn drop_first(&mut self) {
        let start = self.range.start;
        self.range.start += 1;
        if self.range.end == start {
            self.range.end += 1;
            return;
        }
        let matched = &self.matches[start];
        for position in matched.positions.0..=matched.positions.1 {
            let count = &mut self.of_position[usize::from(position)];
            *count -= 1;
            self.positions -= usize::from(*count == 0);
        }
        let (mut distance, mut ordered) = of_match(matched);
        if !self.range.is_empty() {
            let (apart, in_order) = of_neighbours(matched, &self.matches[start + 1]);
            distance += apart;
            ordered += in_order;
        }
        self.distance -= distance;
        self.ordered -= ordered;
    }

    fn value(&self) -> Value {
        (self.positions, Reverse(self.distance), self.ordered)
    }
}

/// What a match adds to the distance and to the order of its stretch.
fn of_match(matched: &TextMatch) -> (usize, usize) {
    let inner = matched.phrase_words as usize - 1;
    (inner, inner)
}

/// What two matches side by side add.
fn of_neighbours(left: &TextMatch, right: &TextMatch) -> (usize, usize) {
    let apart = ((right.words.0 - left.words.1) as usize).min(DISTANCE_MAX);
    (apart, usize::from(right.positions.0 > left.positions.1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The value of a stretch by its definition.
    fn naive_value(matches: &[TextMatch]) -> Value {
        let mut positions: Vec<u16> =
            matches.iter().flat_map(|matched| matched.positions.0..=matched.positions.1).collect();
        positions.sort_unstable();
        positions.dedup();
        let inner: usize = matches.iter().map(|matched| matched.phrase_words as usize - 1).sum();
        let (mut distance, mut ordered) = (inner, inner);
        for pair in matches.windows(2) {
            distance += ((pair[1].words.0 - pair[0].words.1) as usize).min(DISTANCE_MAX);
            ordered += usize::from(pair[1].positions.0 > pair[0].positions.1);
        }
        (positions.len(), Reverse(distance), ordered)
    }

    /// [`best_stretch`], each stretch looked through as a whole.
    fn naive_stretch(matches: &[TextMatch], words_max: usize) -> Option<Range<usize>> {
        let mut best: Option<(Range<usize>, Value)> = None;
        let mut end = 0;
        for start in 0..matches.len() {
            let before = end;
            end = end.max(start);
            while matches.get(end).is_some_and(|matched| words_to(&matches[start], matched) < words_max) {
                end += 1;
            }
            if end > start && (start == 0 || end > before) {
                let value = naive_value(&matches[start..end]);
                if best.as_ref().is_none_or(|(_, known)| value > *known) {
                    best = Some((start..end, value));
                }
            }
        }
        best.map(|(stretch, _)| stretch).or_else(|| (!matches.is_empty()).then_some(0..1))
    }

    /// Matches, each so many words behind the one before it and of so many words, from a query position on that it stands for
    /// so many of.
    fn laid_out(matches: &[(u32, u32, u16, u16)]) -> Vec<TextMatch> {
        let mut next = 0;
        let matches = matches.iter().map(|(gap, phrase_words, position, more)| {
            let first = next + gap;
            next = first + phrase_words;
            TextMatch {
                tokens: (2 * first, 2 * (next - 1)),
                words: (first, next - 1),
                positions: (*position, position + more),
                start: 0,
                end: 0,
                length: 0,
                phrase_words: *phrase_words,
            }
        });
        matches.collect()
    }

    proptest! {
        #[test]
        fn a_sliding_stretch_finds_what_the_naive_twin_finds(
            matches in prop::collection::vec((0..10u32, 1..4u32, 0..5u16, 0..3u16), 0..40),
            words_max in 1..40usize,
        ) {
            let matches = laid_out(&matches);
            prop_assert_eq!(best_stretch(&matches, words_max), naive_stretch(&matches, words_max));
        }
    }

    /// To look each stretch of such a text through as a whole would take hours.
    #[test]
    fn a_long_text_full_of_matches_is_looked_through_once() {
        let mut matches = vec![(0, 1, 0, 0); 400_000];
        matches[300_000].2 = 1;
        let matches = laid_out(&matches);
        assert_eq!(best_stretch(&matches, 200_000), Some(100_001..300_001));
    }
}
