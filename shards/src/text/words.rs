//! Positions of words in a field.
//!
//! Positions count from 0 in each field: +1 from word to word, +8 across a hard separator and from one value of the field to the
//! next (array items, values of the same path in different objects; an empty text or a null counts as a value). Stop words,
//! overlong words and words made only of spaces take a position without being indexed, but at the end of a value they do not
//! shift the next one. Where spaces are not separators, words may have leading and trailing spaces; they are indexed without
//! them.

use std::ops::ControlFlow;

use charabia::{Language, SeparatorKind};

use super::tokenizer::{Piece, TextTokenizer};
use super::{POSITION_MAX, WORD_BYTES_MAX};

/// How far apart two words are that a hard separator or the end of a value divides.
const FAR: u32 = 8;

/// The position reached in one field of one document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldCursor {
    /// The position of the last word that is indexed, or where the last value began if it had none; `None` before the first value.
    last: Option<u32>,
}

impl FieldCursor {
    /// Whether the field has had no value yet.
    pub fn is_fresh(&self) -> bool {
        self.last.is_none()
    }

    /// A value that has no text, such as null.
    pub fn skip_value(&mut self) {
        self.last = Some(self.next_start());
    }

    /// Calls `each` with the words of the field's next value and their positions, rising. The rest of a value beyond the last
    /// position that is indexed is not cut: neither it nor any later value has a word to give.
    pub fn visit_value(
        &mut self,
        tokenizer: &TextTokenizer,
        languages: Option<&[Language]>,
        text: &str,
        scratch: &mut String,
        mut each: impl FnMut(&str, u16),
    ) {
        let mut value = self.begin();
        if !value.is_beyond() {
            tokenizer.visit(text, languages, scratch, |piece| value.piece(piece, &mut each));
        }
        self.end(&value);
    }

    /// The field's next value, to be told all its pieces.
    pub fn begin(&self) -> ValueCursor {
        let position = self.next_start();
        ValueCursor { position, last: position, begun: false, step: 0 }
    }

    /// The value's pieces are at an end.
    pub fn end(&mut self, value: &ValueCursor) {
        self.last = Some(value.last);
    }

    fn next_start(self) -> u32 {
        self.last.map_or(0, |last| last.saturating_add(FAR))
    }
}

/// The position reached in one value.
#[derive(Debug)]
pub struct ValueCursor {
    position: u32,
    /// The position of the last word that is indexed.
    last: u32,
    /// Separators in front of the first word do not move it, but those behind a lone accent, of which nothing is left, do.
    begun: bool,
    step: u32,
}

impl ValueCursor {
    /// Whether nothing of the value is indexed, as what came before it took all positions.
    pub fn is_beyond(&self) -> bool {
        self.position > POSITION_MAX
    }

    /// Takes the value's next piece. Calls `each` with a word that is indexed and its position; breaks off where nothing more is.
    pub fn piece(&mut self, piece: Piece<'_>, mut each: impl FnMut(&str, u16)) -> ControlFlow<()> {
        match piece {
            Piece::Separator(SeparatorKind::Hard) if self.begun => self.step = FAR,
            Piece::Separator(SeparatorKind::Soft) if self.begun => self.step = self.step.max(1),
            Piece::Separator(_) => {}
            Piece::Word("") => self.begun = true,
            Piece::Word(_) | Piece::StopWord => {
                self.position = self.position.saturating_add(self.step);
                (self.begun, self.step) = (true, 1);
                if self.is_beyond() {
                    return ControlFlow::Break(());
                }
                if let Piece::Word(word) = piece
                    && let word = word.trim()
                    && (1..=WORD_BYTES_MAX).contains(&word.len())
                {
                    self.last = self.position;
                    each(word, self.position as u16);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether a word is of digits and ASCII punctuation only, and so under `disableOnNumbers`.
pub fn is_numeric(word: &str) -> bool {
    word.chars().all(|c| c.is_numeric() || c.is_ascii_punctuation())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn positions(settings: &Settings, values: &[Option<&str>]) -> Vec<(String, u16)> {
        let (tokenizer, mut cursor) = (TextTokenizer::new(settings), FieldCursor::default());
        let mut found = Vec::new();
        for value in values {
            match value {
                None => cursor.skip_value(),
                Some(text) => cursor.visit_value(&tokenizer, None, text, &mut String::new(), |word, position| {
                    found.push((word.to_owned(), position));
                }),
            }
        }
        found
    }

    fn of(text: &str) -> Vec<u16> {
        positions(&Settings::default(), &[Some(text)]).into_iter().map(|(_, position)| position).collect()
    }

    #[test]
    fn soft_separators_add_one_and_hard_ones_eight() {
        assert_eq!(of("sun-flower field"), [0, 1, 2]);
        assert_eq!(of("sun. flower, 3.14"), [0, 8, 16, 17]);
        assert_eq!(of("! sun"), [0], "separators in front do not count");
        assert_eq!(of("a ;b"), [0, 8]);
        // Tone marks by themselves.
        assert_eq!(of("ี้สมัชชา"), [0]);
        assert_eq!(of("ี้ ี้ สมัชชา"), [1]);
        assert_eq!(of("! ี้. สมัชชา ี้ สมัชชา"), [8, 9]);
    }

    /// Phrases must not cross from one array item into the next, and a null between two items widens the gap.
    #[test]
    fn values_of_a_field_stand_eight_apart_even_when_empty() {
        let default = Settings::default();
        assert_eq!(positions(&default, &[None, Some("fox")]), [("fox".into(), 8)]);
        assert_eq!(positions(&default, &[Some(""), None, Some("fox")]), [("fox".into(), 16)]);
        assert_eq!(positions(&default, &[Some("red fox"), Some("den")])[2], ("den".into(), 9));
    }

    #[test]
    fn stop_words_and_long_words_keep_their_place() {
        let settings = Settings { stop_words: ["of".to_owned()].into(), ..Settings::default() };
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        let found = positions(&settings, &[Some(&format!("lord of rings {long} end"))]);
        assert_eq!(found, [("lord".into(), 0), ("rings".into(), 2), ("end".into(), 4)]);
    }

    /// As the reference does: it goes on from the last word that it indexed.
    #[test]
    fn stop_words_and_long_words_at_the_end_of_a_value_do_not_move_the_next() {
        let settings = Settings { stop_words: ["of".to_owned(), "to".to_owned()].into(), ..Settings::default() };
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        let start_of_next = |text: &str| positions(&settings, &[Some(text), Some("end")]).pop();
        for text in ["lord", "lord of", "lord of to", "lord. of", &format!("lord {long}"), "of", "of to", ""] {
            assert_eq!(start_of_next(text), Some(("end".into(), 8)), "{text}");
        }
        assert_eq!(start_of_next("of lord to"), Some(("end".into(), 9)));
    }

    #[test]
    fn positions_end_at_the_limit() {
        let text = "a. ".repeat(9000);
        let found = of(&text);
        assert_eq!((found.len(), found.last()), (8192, Some(&65528)));
        let default = Settings::default();
        let found = positions(&default, &[Some(&text), None, Some("fox")]);
        assert_eq!((found.len(), &*found[8191].0), (8192, "a"), "later values have no place left");
    }

    /// Cutting several megabytes of Japanese takes seconds, of which all but the beginning went for nothing.
    #[test]
    fn texts_are_cut_no_further_than_they_are_indexed() {
        let text = "a. ".repeat(9000);
        let (tokenizer, mut scratch) = (TextTokenizer::new(&Settings::default()), String::new());
        // What is cut last stays in there.
        let mut cursor = FieldCursor::default();
        cursor.visit_value(&tokenizer, None, &format!("{text} end"), &mut scratch, |_, _| {});
        assert_eq!(scratch, "a");
        cursor.visit_value(&tokenizer, None, "later", &mut scratch, |_, _| {});
        assert_eq!(scratch, "a");
    }

    #[test]
    fn numbers_with_punctuation_are_numeric() {
        assert!(is_numeric("42") && is_numeric("3$") && is_numeric("٣") && !is_numeric("4x4"));
    }

    #[test]
    fn blanks_that_do_not_separate_are_not_indexed() {
        let settings = Settings {
            non_separator_tokens: [" ".to_owned()].into(),
            dictionary: ["of".to_owned()].into(),
            ..Settings::default()
        };
        let words = |text: &str| positions(&settings, &[Some(text)]);
        let wanted =
            |words: &[(&str, u16)]| words.iter().map(|(word, at)| ((*word).to_owned(), *at)).collect::<Vec<_>>();
        assert_eq!(words("king of the hill"), wanted(&[("king", 0), ("of", 1), ("the hill", 2)]));
        assert_eq!(words("of of"), wanted(&[("of", 0), ("of", 2)]));
    }
}
