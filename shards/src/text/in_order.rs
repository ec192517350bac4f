//! Reads texts in rising order by automata: what a text shares with the one before is not read again, and where no text that begins
//! alike is taken, the next that may be is known.

use super::bit_parallel::{BitAutomaton, BitSteps};
use super::char_automaton::{ByBytes, CharAutomaton};
use super::dictionary::{BeginsWith, TypoAutomaton};
use super::term_map::ByteAutomaton;

/// Behind every plain byte, space to tilde, and before those of other characters, except control characters.
pub const AFTER_PLAIN: u8 = b'~' + 1;

/// Reads texts of plain bytes that rise.
pub trait InOrder {
    /// Whether the text, or one that begins so, may be taken. If not: the length of what comes before the byte that rules it out, and
    /// the least plain byte that may stand there instead, or [`AFTER_PLAIN`].
    ///
    /// # Errors
    /// These two.
    fn read(&mut self, plain: &[u8]) -> Result<(), (usize, u8)>;

    /// Whether what was read last is taken.
    fn takes(&self) -> bool;
}

/// Takes what the automaton does.
pub fn typos(automaton: &TypoAutomaton) -> Box<dyn InOrder + '_> {
    match automaton {
        TypoAutomaton::Bits(bits) => match BitAutomaton::typos(bits) {
            0 => Box::new(Path::new(ByBytes(BitSteps::<0>(bits)))),
            1 => Box::new(Path::new(ByBytes(BitSteps::<1>(bits)))),
            _ => Box::new(Path::new(ByBytes(BitSteps::<2>(bits)))),
        },
        TypoAutomaton::Banded(banded) => Box::new(Path::new(ByBytes(banded))),
    }
}

/// Takes what begins so.
pub fn beginning(text: &str) -> Box<dyn InOrder + '_> {
    Box::new(Path::new(BeginsWith(text.as_bytes())))
}

/// Takes this text.
pub fn equal(text: &str) -> Box<dyn InOrder + '_> {
    Box::new(Path::new(Equals(text.as_bytes())))
}

/// The states of an automaton after each byte of a text.
struct Path<A: ByteAutomaton> {
    automaton: A,
    text: Vec<u8>,
    /// One more than there are bytes.
    states: Vec<A::State>,
}

impl<A: ByteAutomaton> Path<A> {
    fn new(automaton: A) -> Self {
        let states = vec![automaton.start()];
        Self { automaton, text: Vec::new(), states }
    }
}

impl<A: ByteAutomaton> InOrder for Path<A> {
    fn read(&mut self, plain: &[u8]) -> Result<(), (usize, u8)> {
        let shared = common_prefix(&self.text, plain);
        self.text.truncate(shared);
        self.states.truncate(shared + 1);
        for (at, byte) in plain.iter().enumerate().skip(shared) {
            let state = self.states[at];
            let Some(next) = self.automaton.step(&state, *byte) else {
                let foreseen = self.automaton.foreseen(&state);
                let others = byte + 1..AFTER_PLAIN;
                let next = others.into_iter().find(|other| self.automaton.may_come(foreseen, *other));
                return Err((at, next.unwrap_or(AFTER_PLAIN)));
            };
            self.text.push(*byte);
            self.states.push(next);
        }
        Ok(())
    }

    fn takes(&self) -> bool {
        self.states.last().is_some_and(|state| self.automaton.taken(state).is_some())
    }
}

/// Takes one text.
struct Equals<'t>(&'t [u8]);

impl ByteAutomaton for Equals<'_> {
    /// How much of it was read.
    type State = usize;

    fn start(&self) -> usize {
        0
    }

    fn step(&self, read: &usize, byte: u8) -> Option<usize> {
        (self.0.get(*read) == Some(&byte)).then_some(read + 1)
    }

    fn taken(&self, read: &usize) -> Option<u8> {
        (*read == self.0.len()).then_some(0)
    }
}

/// How many bytes two texts begin with alike.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::textbook::distance;

    /// Whether a text is taken, found the slow way.
    type Takes<'t> = Box<dyn Fn(&str) -> bool + 't>;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// What is passed over is not taken, and what is read is taken where the slow way says so.
        #[test]
        fn texts_that_are_passed_over_are_not_taken(
            texts in proptest::collection::btree_set("[a-c]{0,7}", 0..60),
            (word, typos) in ("[a-d]{1,6}", 0_u8..=2),
            kind in 0..4
        ) {
            let long = format!("{word}{}", "d".repeat(80));
            let short = TypoAutomaton::new(&word, typos, true);
            let banded = TypoAutomaton::new(&long, typos, true);
            let (mut in_order, takes): (_, Takes<'_>) = match kind {
                0 => (beginning(&word), Box::new(|text| text.starts_with(&word))),
                1 => (equal(&word), Box::new(|text| text == word)),
                2 => (super::typos(&short), Box::new(|text| distance(&word, true, typos.into(), text).is_some())),
                _ => (super::typos(&banded), Box::new(|text| distance(&long, true, typos.into(), text).is_some())),
            };
            let mut next: Vec<u8> = Vec::new();
            for text in &texts {
                if text.as_bytes() < next.as_slice() {
                    prop_assert!(!takes(text), "{}", text);
                    continue;
                }
                match in_order.read(text.as_bytes()) {
                    Ok(()) => prop_assert_eq!(in_order.takes(), takes(text), "{}", text),
                    Err((shared, byte)) => {
                        prop_assert!(!takes(text), "{}", text);
                        prop_assert!(text.as_bytes()[shared] < byte);
                        next = [&text.as_bytes()[..shared], &[byte]].concat();
                    }
                }
            }
        }
    }
}
