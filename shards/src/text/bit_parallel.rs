//! Fuzzy matching: words within one or two edits of a word of usual length.
//!
//! For each number of edits, the states of the nondeterministic automaton are the bits of one integer, so a character of a term
//! advances all of them with a few operations and almost nothing is precomputed (S. Wu, U. Manber, "Fast text searching allowing
//! errors", CACM 35(10), 1992). A transposition in progress, between its two characters, has bits of its own.

use super::char_automaton::CharAutomaton;

/// Characters of a word at most: one bit is for its end.
pub const CHARS_MAX: usize = 63;
/// The most edits.
const EDITS_MAX: usize = 2;
/// More edits than are ever looked for.
const FAR: u8 = EDITS_MAX as u8 + 1;

/// Takes the terms within some edits (at most 2) of a word, or with a prefix that is (see [`CharAutomaton::edits`]). An edit is an
/// insertion, a deletion, a substitution, or a swap of two neighbours.
#[derive(Clone)]
pub struct BitAutomaton {
    /// For each ASCII character the places in the word where it stands, a bit each.
    ascii: Box<[u64; 128]>,
    /// The same places for the word's other characters.
    others: Vec<(char, u64)>,
    /// A bit for each number of characters of the word, none to all.
    all: u64,
    typos: u8,
    prefix: bool,
}

/// The same for a number of edits that is known when this is compiled.
pub struct BitSteps<'a, const TYPOS: usize>(pub &'a BitAutomaton);

/// What the characters of a term read so far have come to.
#[derive(Clone, Copy)]
pub struct Reached {
    /// For each number of edits: the numbers of the word's first characters that those many turn into what was read.
    with: [u64; EDITS_MAX + 1],
    /// Where the first of two swapped characters was read, by the edits before the swap.
    swapping: [u64; EDITS_MAX],
    /// The edits to the prefix that was settled on; [`FAR`] before.
    settled: u8,
}

impl BitAutomaton {
    /// The automaton of a word; none where the word has more than [`CHARS_MAX`] characters. More than two edits count as two.
    pub fn new(word: &str, typos: u8, prefix: bool) -> Option<Self> {
        let (mut ascii, mut others, mut end) = (Box::new([0; 128]), Vec::new(), 1u64);
        for (at, char) in word.chars().enumerate() {
            if at == CHARS_MAX {
                return None;
            }
            let place = 1 << at;
            match ascii.get_mut(char as usize) {
                Some(places) => *places |= place,
                None => match others.iter_mut().find(|(other, _)| *other == char) {
                    Some((_, places)) => *places |= place,
                    None => others.push((char, place)),
                },
            }
            end = place << 1;
        }
        let all = end | (end - 1);
        Some(Self { ascii, others, all, typos: typos.min(EDITS_MAX as u8), prefix })
    }

    /// The same for fewer edits.
    pub fn within(&self, typos: u8) -> Self {
        Self { typos: typos.min(self.typos), ..self.clone() }
    }

    fn places(&self, char: char) -> u64 {
        match self.ascii.get(char as usize) {
            Some(places) => *places,
            None => self.others.iter().find(|(other, _)| *other == char).map_or(0, |(_, places)| *places),
        }
    }

    /// What the next character comes to, for `TYPOS` edits.
    #[inline]
    fn advance<const TYPOS: usize>(&self, before: &Reached, char: char) -> Reached {
        if before.settled < FAR {
            return *before;
        }
        let places = self.places(char);
        let (mut with, mut swapping) = ([0; EDITS_MAX + 1], [0; EDITS_MAX]);
        with[0] = (before.with[0] & places) << 1;
        for edits in 1..=TYPOS {
            let less = before.with[edits - 1];
            let matched = (before.with[edits] & places) << 1;
            let swapped = (before.swapping[edits - 1] & places) << 2;
            let (inserted, substituted, deleted) = (less, less << 1, with[edits - 1] << 1);
            with[edits] = (matched | swapped | inserted | substituted | deleted) & self.all;
            swapping[edits - 1] = less & (places >> 1);
        }
        let settled = if self.prefix { self.settled(&with) } else { FAR };
        Reached { with, swapping, settled }
    }

    /// The edits between the whole word and what was read.
    fn whole(&self, with: &[u64; EDITS_MAX + 1]) -> u8 {
        let end = self.all ^ (self.all >> 1);
        with.iter().position(|with| with & end != 0).map_or(FAR, |edits| edits as u8)
    }

    /// The edits to what was read, if it is a prefix to settle on; [`FAR`] where it is not.
    fn settled(&self, with: &[u64; EDITS_MAX + 1]) -> u8 {
        let end = self.all ^ (self.all >> 1);
        match with.iter().position(|with| *with != 0) {
            Some(least) if self.prefix && with[least] & end != 0 => least as u8,
            _ => FAR,
        }
    }
}

impl CharAutomaton for BitAutomaton {
    type State = Reached;

    fn start(&self) -> Reached {
        let mut with = [0; EDITS_MAX + 1];
        for (edits, with) in with.iter_mut().enumerate().take(usize::from(self.typos) + 1) {
            // So many characters may be missing.
            *with = ((2 << edits) - 1) & self.all;
        }
        Reached { settled: self.settled(&with), with, swapping: [0; EDITS_MAX] }
    }

    fn read(&self, before: &Reached, char: char) -> Reached {
        match self.typos {
            0 => self.advance::<0>(before, char),
            1 => self.advance::<1>(before, char),
            _ => self.advance::<2>(before, char),
        }
    }

    fn edits(&self, reached: &Reached) -> u8 {
        reached.settled.min(self.whole(&reached.with))
    }

    fn can_match(&self, reached: &Reached) -> bool {
        reached.with.iter().any(|with| *with != 0)
    }

    fn typos(&self) -> u8 {
        self.typos
    }
}

impl<const TYPOS: usize> CharAutomaton for BitSteps<'_, TYPOS> {
    type State = Reached;

    fn start(&self) -> Reached {
        self.0.start()
    }

    #[inline]
    fn read(&self, before: &Reached, char: char) -> Reached {
        self.0.advance::<TYPOS>(before, char)
    }

    fn edits(&self, reached: &Reached) -> u8 {
        self.0.edits(reached)
    }

    #[inline]
    fn can_match(&self, reached: &Reached) -> bool {
        reached.with[..=TYPOS].iter().fold(0, |any, with| any | with) != 0
    }

    /// The places of the word where a character that comes next must stand, once no edit is left; before, any may come.
    fn foreseen(&self, reached: &Reached) -> u64 {
        let fewer = reached.with[..TYPOS].iter().fold(0, |any, with| any | with);
        if fewer != 0 || reached.settled < FAR {
            return u64::MAX;
        }
        reached.with[TYPOS] | TYPOS.checked_sub(1).map_or(0, |edits| reached.swapping[edits])
    }

    #[inline]
    fn may_come(&self, foreseen: u64, ascii: u8) -> bool {
        foreseen == u64::MAX || foreseen & self.0.ascii[usize::from(ascii & 0x7f)] != 0
    }

    fn typos(&self) -> u8 {
        TYPOS as u8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::char_automaton::tests::{check_distance, check_ruled_out};
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn distances_are_those_of_the_textbook(
            word in "[abé]{0,7}", term in "[abé]{0,9}", typos in 0_u8..=2, prefix: bool,
        ) {
            let automaton = BitAutomaton::new(&word, typos, prefix).unwrap();
            check_distance(&automaton, (&word, prefix), &term)?;
            match typos {
                0 => check_distance(&BitSteps::<0>(&automaton), (&word, prefix), &term)?,
                1 => check_distance(&BitSteps::<1>(&automaton), (&word, prefix), &term)?,
                _ => check_distance(&BitSteps::<2>(&automaton), (&word, prefix), &term)?,
            }
        }

        #[test]
        fn what_cannot_match_never_does(word in "[abé]{1,7}", term in "[abé]{0,9}", typos in 0_u8..=2, prefix: bool) {
            let automaton = BitAutomaton::new(&word, typos, prefix).unwrap();
            check_ruled_out(&automaton, &term)?;
            match typos {
                0 => check_ruled_out(&BitSteps::<0>(&automaton), &term)?,
                1 => check_ruled_out(&BitSteps::<1>(&automaton), &term)?,
                _ => check_ruled_out(&BitSteps::<2>(&automaton), &term)?,
            }
        }

        /// Words whose last characters use the highest bits.
        #[test]
        fn words_as_long_as_a_number_has_bits(word in "[ab]{61,64}", typos in 0_u8..=2, at in 0..61_usize, prefix: bool) {
            let automaton = BitAutomaton::new(&word, typos, prefix);
            prop_assert_eq!(automaton.is_some(), word.len() <= CHARS_MAX);
            let Some(automaton) = automaton else { return Ok(()) };
            let substituted = format!("{}c{}", &word[..at], &word[at + 1..]);
            for term in [format!("{word}x"), word[1..].to_owned(), substituted, word.clone()] {
                check_distance(&automaton, (&word, prefix), &term)?;
            }
        }
    }
}
