//! Automata that read characters and count edits, and the adapter that feeds them the bytes of terms.

use fst::Automaton;

/// So many bytes are few: to look each up in a node costs less than to try all ways on from it.
const FEW: usize = 7;

/// A few bytes, rising, each once.
#[derive(Clone, Copy, Default)]
pub struct FewBytes {
    bytes: [u8; FEW],
    len: u8,
}

impl FewBytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Adds a byte; false when there is no room.
    #[must_use]
    pub fn add(&mut self, byte: u8) -> bool {
        if self.as_slice().contains(&byte) {
            return true;
        }
        let mut at = usize::from(self.len);
        if at == FEW {
            return false;
        }
        // There are one to three nearly always: a search or a move of memory would cost more.
        while at > 0 && self.bytes[at - 1] > byte {
            self.bytes[at] = self.bytes[at - 1];
            at -= 1;
        }
        self.bytes[at] = byte;
        self.len += 1;
        true
    }
}

/// An automaton that may know what comes next without trying.
pub trait ForesightedAutomaton: Automaton {
    /// The only bytes that may come next in what is taken; `None` where these are many or not known.
    fn few_next(&self, _: &Self::State) -> Option<FewBytes> {
        None
    }
}

impl ForesightedAutomaton for fst::automaton::AlwaysMatch {}

impl ForesightedAutomaton for fst::automaton::StartsWith<fst::automaton::Str<'_>> {}

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

    /// The only characters that may come next in what is within reach, where these are few and ASCII.
    fn few_next(&self, _: &Self::State) -> Option<FewBytes> {
        None
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

/// An automaton of characters that reads the bytes of terms.
pub struct ByBytes<'a, A>(pub &'a A);

/// What the bytes of a term read so far have come to.
#[derive(Clone, Copy)]
pub struct BytesRead<S> {
    state: S,
    /// A character of several bytes, as far as it was read, and the bytes it lacks.
    partial: (u32, u8),
}

impl<A: CharAutomaton> Automaton for ByBytes<'_, A> {
    type State = BytesRead<A::State>;

    fn start(&self) -> Self::State {
        BytesRead { state: self.0.start(), partial: (0, 0) }
    }

    fn is_match(&self, read: &Self::State) -> bool {
        read.partial.1 == 0 && self.0.edits(&read.state) <= self.0.typos()
    }

    fn can_match(&self, read: &Self::State) -> bool {
        self.0.can_match(&read.state)
    }

    fn accept(&self, read: &Self::State, byte: u8) -> Self::State {
        let (code, missing) = match (read.partial, byte) {
            ((code, missing @ 1..), _) => (code << 6 | u32::from(byte & 0x3f), missing - 1),
            (_, 0xf0..) => (u32::from(byte & 0x07), 3),
            (_, 0xe0..) => (u32::from(byte & 0x0f), 2),
            (_, 0xc0..) => (u32::from(byte & 0x1f), 1),
            _ => (u32::from(byte), 0),
        };
        if missing > 0 {
            return BytesRead { partial: (code, missing), ..*read };
        }
        let char = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        BytesRead { state: self.0.read(&read.state, char), partial: (0, 0) }
    }
}

impl<A: CharAutomaton> ForesightedAutomaton for ByBytes<'_, A> {
    fn few_next(&self, read: &Self::State) -> Option<FewBytes> {
        if read.partial.1 == 0 { self.0.few_next(&read.state) } else { None }
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
        let end = term.bytes().fold(bytes.start(), |read, byte| bytes.accept(&read, byte));
        prop_assert_eq!(bytes.is_match(&end), wanted.is_some());
        Ok(())
    }

    /// What the start of a term rules out does not come in reach again, nor does what was not foreseen.
    pub fn check_ruled_out(automaton: &impl CharAutomaton, term: &str) -> Result<(), TestCaseError> {
        let bytes = ByBytes(automaton);
        let (mut read, mut could) = (bytes.start(), true);
        for byte in term.bytes() {
            could &= bytes.can_match(&read);
            if let Some(few) = bytes.few_next(&read) {
                let few = few.as_slice();
                prop_assert!(few.is_sorted_by(|a, b| a < b));
                could &= few.contains(&byte);
                let mut unforeseen = (0..128).filter(|byte| !few.contains(byte));
                prop_assert!(unforeseen.all(|byte| !bytes.can_match(&bytes.accept(&read, byte))));
            }
            read = bytes.accept(&read, byte);
            prop_assert!(could || !bytes.is_match(&read));
        }
        Ok(())
    }
}
