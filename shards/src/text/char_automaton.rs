//! Automata that read characters and count edits, and the adapter that feeds them the bytes of terms.

use super::term_map::ByteAutomaton;

/// Counts the edits between a word and terms, character by character.
pub trait CharAutomaton {
    /// What the characters read so far have come to.
    type State: Copy;

    /// Before the first character.
    fn start(&self) -> Self::State;

    /// After one more character.
    fn read(&self, state: &Self::State, char: char) -> Self::State;

    /// The edits to what was read; more than [`Self::typos`] where that is unknown. For a prefix, once these are the fewest that any
    /// number of the word's characters takes, so that more of the word could not take fewer: they are then settled, and what
    /// follows does not matter. *Rest* is within two edits of *result*, but *resting* is not: *res* and one more letter are nearer.
    fn edits(&self, state: &Self::State) -> u8;

    /// Whether what was read may yet become, or is, within reach.
    fn can_match(&self, state: &Self::State) -> bool;

    /// What may come next, for [`Self::may_come`].
    fn foreseen(&self, _: &Self::State) -> u64 {
        u64::MAX
    }

    /// Whether an ASCII character may come where this was foreseen, for something within reach.
    fn may_come(&self, _foreseen: u64, _ascii: u8) -> bool {
        true
    }

    /// The most edits that are within reach.
    fn typos(&self) -> u8;

    /// The distance of a term, when it is within reach.
    fn distance(&self, term: &str) -> Option<u8> {
        let mut state = self.start();
        for char in term.chars() {
            state = self.read(&state, char);
            if !self.can_match(&state) {
                return None;
            }
        }
        Some(self.edits(&state)).filter(|edits| *edits <= self.typos())
    }
}

impl<A: CharAutomaton> CharAutomaton for &A {
    type State = A::State;

    fn start(&self) -> Self::State {
        (**self).start()
    }

    #[inline]
    fn read(&self, state: &Self::State, char: char) -> Self::State {
        (**self).read(state, char)
    }

    fn edits(&self, state: &Self::State) -> u8 {
        (**self).edits(state)
    }

    #[inline]
    fn can_match(&self, state: &Self::State) -> bool {
        (**self).can_match(state)
    }

    fn foreseen(&self, state: &Self::State) -> u64 {
        (**self).foreseen(state)
    }

    #[inline]
    fn may_come(&self, foreseen: u64, ascii: u8) -> bool {
        (**self).may_come(foreseen, ascii)
    }

    fn typos(&self) -> u8 {
        (**self).typos()
    }
}

/// An automaton of characters that reads the bytes of terms.
pub struct ByBytes<A>(pub A);

/// What the bytes of a term read so far have come to.
#[derive(Clone, Copy)]
pub struct BytesRead<S> {
    state: S,
    /// A character of several bytes, as far as it was read, and the bytes it lacks.
    partial: (u32, u8),
}

impl<A: CharAutomaton> ByteAutomaton for ByBytes<A> {
    type State = BytesRead<A::State>;

    fn start(&self) -> Self::State {
        BytesRead { state: self.0.start(), partial: (0, 0) }
    }

    #[inline]
    fn step(&self, read: &Self::State, byte: u8) -> Option<Self::State> {
        let (code, missing) = match (read.partial, byte) {
            ((_, 0), 0..0x80) => (u32::from(byte), 0),
            ((code, missing @ 1..), _) => (code << 6 | u32::from(byte & 0x3f), missing - 1),
            (_, 0xf0..) => (u32::from(byte & 0x07), 3),
            (_, 0xe0..) => (u32::from(byte & 0x0f), 2),
            (_, 0xc0..) => (u32::from(byte & 0x1f), 1),
            _ => (u32::from(byte), 0),
        };
        if missing > 0 {
            return Some(BytesRead { partial: (code, missing), ..*read });
        }
        let char = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        let state = self.0.read(&read.state, char);
        self.0.can_match(&state).then_some(BytesRead { state, partial: (0, 0) })
    }

    fn foreseen(&self, read: &Self::State) -> u64 {
        if read.partial.1 == 0 { self.0.foreseen(&read.state) } else { u64::MAX }
    }

    #[inline]
    fn may_come(&self, foreseen: u64, byte: u8) -> bool {
        !byte.is_ascii() || self.0.may_come(foreseen, byte)
    }

    fn taken(&self, read: &Self::State) -> Option<u8> {
        Some(self.0.edits(&read.state)).filter(|edits| read.partial.1 == 0 && *edits <= self.0.typos())
    }
}

/// What every such automaton must do.
#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::textbook;

    /// The distance of the automaton of `word`, by characters and by bytes, is the textbook's.
    pub fn check_distance(
        automaton: &impl CharAutomaton,
        (word, prefix): (&str, bool),
        term: &str,
    ) -> Result<(), TestCaseError> {
        let wanted = textbook::distance(word, prefix, automaton.typos().into(), term).map(|edits| edits as u8);
        prop_assert_eq!(automaton.distance(term), wanted);
        let bytes = ByBytes(automaton);
        let end = term.bytes().try_fold(bytes.start(), |read, byte| bytes.step(&read, byte));
        prop_assert_eq!(end.and_then(|end| bytes.taken(&end)), wanted);
        Ok(())
    }

    /// What the start of a term rules out does not come in reach again, and what is not foreseen is ruled out.
    pub fn check_ruled_out(automaton: &impl CharAutomaton, term: &str) -> Result<(), TestCaseError> {
        let (mut state, mut could) = (automaton.start(), true);
        for char in term.chars() {
            could &= automaton.can_match(&state);
            let foreseen = automaton.foreseen(&state);
            for ascii in 0..128_u8 {
                let is_possible = automaton.can_match(&automaton.read(&state, char::from(ascii)));
                prop_assert!(automaton.may_come(foreseen, ascii) || !is_possible);
            }
            state = automaton.read(&state, char);
            prop_assert!(could || automaton.edits(&state) > automaton.typos());
        }
        Ok(())
    }
}
