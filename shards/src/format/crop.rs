//! Choosing the part of a text that is shown.

use std::cmp::Reverse;
use std::ops::Range;

use charabia::{SeparatorKind, Token};

use super::matcher::TextMatch;

/// Distances between matches count up to this.
const DISTANCE_MAX: usize = 7;

/// The tokens to show of a text when it may have `words_max` (at least 1) words: those around the best matches.
pub fn window(tokens: &[Token<'_>], matches: &[TextMatch], words_max: usize) -> Range<usize> {
    let best = best_stretch(matches, words_max);
    let (mut window, shown) = match best {
        Some(stretch) => {
            let (first, last) = (&matches[stretch.start], &matches[stretch.end - 1]);
            (first.first_token..last.last_token + 1, last.words.1 - first.words.0 + 1)
        }
        None => (0..0, 0),
    };
    let mut missing = words_max.saturating_sub(shown);
    while missing > 0 {
        let before = window.start.checked_sub(1).map(|at| kind(&tokens[at]));
        let after = tokens.get(window.end).map(kind);
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Soft,
    Hard,
}

fn kind(token: &Token<'_>) -> Kind {
    match token.separator_kind() {
        None => Kind::Word,
        Some(SeparatorKind::Soft) => Kind::Soft,
        Some(SeparatorKind::Hard) => Kind::Hard,
    }
}

/// The stretch of matches to show; `None` without matches.
fn best_stretch(matches: &[TextMatch], words_max: usize) -> Option<Range<usize>> {
    let mut best: Option<(Range<usize>, _)> = None;
    let mut end = 0;
    for start in 0..matches.len() {
        let before = end;
        end = end.max(start);
        while matches.get(end).is_some_and(|matched| matched.words.1 - matches[start].words.0 < words_max) {
            end += 1;
        }
        // A stretch that ends where the one before ended lies within it.
        if end > start && (start == 0 || end > before) {
            let value = stretch_value(&matches[start..end]);
            if best.as_ref().is_none_or(|(_, known)| value > *known) {
                best = Some((start..end, value));
            }
        }
    }
    best.map(|(stretch, _)| stretch).or_else(|| (!matches.is_empty()).then_some(0..1))
}

/// More of the query first, then nearer together, then more in the order of the query.
fn stretch_value(matches: &[TextMatch]) -> (usize, Reverse<usize>, usize) {
    let mut positions: Vec<u16> =
        matches.iter().flat_map(|matched| matched.positions.0..=matched.positions.1).collect();
    positions.sort_unstable();
    positions.dedup();
    let inner: usize = matches.iter().map(|matched| matched.phrase_words - 1).sum();
    let (mut distance, mut ordered) = (inner, inner);
    for pair in matches.windows(2) {
        distance += (pair[1].words.0 - pair[0].words.1).min(DISTANCE_MAX);
        ordered += usize::from(pair[1].positions.0 > pair[0].positions.1);
    }
    (positions.len(), Reverse(distance), ordered)
}
