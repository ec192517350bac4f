//! Fuzzy matching: words within one or two edits of a word of any length.
//!
//! The state is the band of the edit-distance matrix that still matters; each character of a term advances it. For words of usual
//! length the [bit-parallel automaton](super::bit_parallel) is faster.

use super::char_automaton::CharAutomaton;

/// Cells of a band: two to each side of the diagonal.
const CELLS: usize = 5;
/// More edits than are ever looked for.
const FAR: u8 = 3;

/// Takes the terms within some edits (at most 2) of a word, or with a prefix that is (see [`CharAutomaton::edits`]). An edit is an
/// insertion, a deletion, a substitution, or a swap of two neighbours.
pub struct BandedAutomaton {
    word: Vec<char>,
    typos: u8,
    prefix: bool,
}

/// What the characters of a term read so far have come to.
#[derive(Clone, Copy)]
pub struct Band {
    /// Characters read.
    at: usize,
    /// Edits from the first `at + cell - 2` characters of the word to what was read; [`FAR`] where that is no prefix of it.
    cells: [u8; CELLS],
    /// The same one character earlier.
    before: [u8; CELLS],
    /// The last character read.
    last: char,
    /// The edits to the prefix that was settled on; [`FAR`] before.
    settled: u8,
}

impl BandedAutomaton {
    /// The automaton of a word. More than two edits count as two.
    pub fn new(word: &str, typos: u8, prefix: bool) -> Self {
        Self { word: word.chars().collect(), typos: typos.min(FAR - 1), prefix }
    }

    /// The same for fewer edits.
    pub fn within(&self, typos: u8) -> Self {
        Self { word: self.word.clone(), typos: typos.min(self.typos), prefix: self.prefix }
    }

    /// The edits between the whole word and the `at` characters read.
    fn whole(&self, at: usize, cells: &[u8; CELLS]) -> u8 {
        (self.word.len() + 2).checked_sub(at).and_then(|cell| cells.get(cell)).copied().unwrap_or(FAR)
    }

    /// The edits to the `at` characters read, if these are a prefix to settle on; [`FAR`] where they are not.
    fn settled(&self, at: usize, cells: &[u8; CELLS]) -> u8 {
        let edits = self.whole(at, cells);
        if self.prefix && edits <= self.typos && cells.iter().all(|cell| *cell >= edits) { edits } else { FAR }
    }
}

impl CharAutomaton for BandedAutomaton {
    type State = Band;

    fn start(&self) -> Band {
        let mut cells = [FAR; CELLS];
        for (cell, edits) in cells.iter_mut().enumerate().skip(2) {
            let count = cell - 2;
            if count <= self.word.len() {
                *edits = count as u8;
            }
        }
        Band { at: 0, cells, before: [FAR; CELLS], last: '\0', settled: self.settled(0, &cells) }
    }

    fn read(&self, band: &Band, char: char) -> Band {
        if band.settled < FAR {
            return *band;
        }
        let at = band.at + 1;
        let mut cells = [FAR; CELLS];
        for cell in 0..CELLS {
            // The characters of the word that this cell is about.
            let Some(count) = (at + cell).checked_sub(2).filter(|count| *count <= self.word.len()) else { continue };
            let mut edits = FAR;
            if count == 0 {
                edits = at.min(usize::from(FAR)) as u8;
            } else {
                edits = edits.min(band.cells[cell] + u8::from(self.word[count - 1] != char));
                if cell > 0 {
                    edits = edits.min(cells[cell - 1] + 1);
                }
            }
            if cell + 1 < CELLS {
                edits = edits.min(band.cells[cell + 1] + 1);
            }
            if count > 1 && at > 1 && self.word[count - 1] == band.last && self.word[count - 2] == char {
                edits = edits.min(band.before[cell] + 1);
            }
            cells[cell] = edits.min(FAR);
        }
        Band { at, cells, before: band.cells, last: char, settled: self.settled(at, &cells) }
    }

    fn edits(&self, band: &Band) -> u8 {
        band.settled.min(self.whole(band.at, &band.cells))
    }

    fn can_match(&self, band: &Band) -> bool {
        band.cells.iter().any(|edits| *edits <= self.typos)
    }

    fn typos(&self) -> u8 {
        self.typos
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
            word in "[abé]{1,7}", term in "[abé]{0,9}", typos in 1_u8..=2, prefix: bool,
        ) {
            check_distance(&BandedAutomaton::new(&word, typos, prefix), (&word, prefix), &term)?;
        }

        #[test]
        fn what_cannot_match_never_does(word in "[ab]{1,7}", term in "[ab]{0,9}", typos in 1_u8..=2, prefix: bool) {
            check_ruled_out(&BandedAutomaton::new(&word, typos, prefix), &term)?;
        }
    }
}
