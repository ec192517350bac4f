//! The words within one or two edits of a word of any length.
//!
//! The state is the band of the edit-distance matrix that can still matter, and each character of a term gives the next one.
//! For words of usual lengths the [bits of numbers](super::bit_parallel) are faster.

use fst::Automaton;

/// Cells of a band: two to each side of the diagonal.
const CELLS: usize = 5;
/// More edits than are ever looked for.
const FAR: u8 = 3;

/// Takes the terms within some edits (at most 2) of a word, or with a prefix that is. An edit is an insertion, a deletion, a
/// substitution, or a swap of two neighbours.
pub struct BandedAutomaton {
    word: Vec<char>,
    typos: u8,
    prefix: bool,
}

/// What the bytes of a term read so far have come to.
#[derive(Clone)]
pub struct Band {
    /// Characters read.
    at: usize,
    /// Edits from the first `at + cell - 2` characters of the word to what was read; [`FAR`] where that is no prefix of it.
    cells: [u8; CELLS],
    /// The same one character earlier.
    before: [u8; CELLS],
    /// The last character read.
    last: char,
    /// The least edits to any prefix of what was read.
    best: u8,
    /// A character of several bytes, as far as it was read, and the bytes it lacks.
    partial: (u32, u8),
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

    /// The distance of a term, when it is within reach.
    pub fn distance(&self, term: &str) -> Option<u8> {
        let mut band = self.start();
        for char in term.chars() {
            band = self.read(&band, char);
            if !self.can_match(&band) {
                return None;
            }
        }
        Some(self.edits(&band)).filter(|edits| *edits <= self.typos)
    }

    /// The edits to what was read, or for a prefix to the nearest prefix of it.
    fn edits(&self, band: &Band) -> u8 {
        if self.prefix { band.best } else { self.whole(band.at, &band.cells) }
    }

    /// The edits between the whole word and the `at` characters read.
    fn whole(&self, at: usize, cells: &[u8; CELLS]) -> u8 {
        (self.word.len() + 2).checked_sub(at).and_then(|cell| cells.get(cell)).copied().unwrap_or(FAR)
    }

    fn read(&self, band: &Band, char: char) -> Band {
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
        let best = band.best.min(self.whole(at, &cells));
        Band { at, cells, before: band.cells, last: char, best, partial: (0, 0) }
    }
}

impl Automaton for BandedAutomaton {
    type State = Band;

    fn start(&self) -> Band {
        let mut cells = [FAR; CELLS];
        for (cell, edits) in cells.iter_mut().enumerate().skip(2) {
            let count = cell - 2;
            if count <= self.word.len() {
                *edits = count as u8;
            }
        }
        let best = self.whole(0, &cells);
        Band { at: 0, cells, before: [FAR; CELLS], last: '\0', best, partial: (0, 0) }
    }

    fn is_match(&self, band: &Band) -> bool {
        band.partial.1 == 0 && self.edits(band) <= self.typos
    }

    fn can_match(&self, band: &Band) -> bool {
        band.cells.iter().any(|edits| *edits <= self.typos) || (self.prefix && band.best <= self.typos)
    }

    fn accept(&self, band: &Band, byte: u8) -> Band {
        let (code, missing) = match (band.partial, byte) {
            ((code, missing @ 1..), _) => (code << 6 | u32::from(byte & 0x3f), missing - 1),
            (_, 0xf0..) => (u32::from(byte & 0x07), 3),
            (_, 0xe0..) => (u32::from(byte & 0x0f), 2),
            (_, 0xc0..) => (u32::from(byte & 0x1f), 1),
            _ => (u32::from(byte), 0),
        };
        if missing > 0 {
            return Band { partial: (code, missing), ..band.clone() };
        }
        self.read(band, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The edits between `word` and the first characters of `term`, for each number of these, by the textbook table.
    pub fn distances(word: &str, term: &str) -> Vec<usize> {
        let (word, term): (Vec<char>, Vec<char>) = (word.chars().collect(), term.chars().collect());
        let mut table = vec![vec![0; term.len() + 1]; word.len() + 1];
        for i in 0..=word.len() {
            for j in 0..=term.len() {
                if i == 0 || j == 0 {
                    table[i][j] = i + j;
                    continue;
                }
                let substituted = table[i - 1][j - 1] + usize::from(word[i - 1] != term[j - 1]);
                let mut best = substituted.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                if i > 1 && j > 1 && word[i - 1] == term[j - 2] && word[i - 2] == term[j - 1] {
                    best = best.min(table[i - 2][j - 2] + 1);
                }
                table[i][j] = best;
            }
        }
        table.pop().unwrap_or_default()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn distances_are_those_of_the_textbook(
            word in "[abé]{1,7}", term in "[abé]{0,9}", typos in 1_u8..=2, prefix: bool,
        ) {
            let banded = BandedAutomaton::new(&word, typos, prefix);
            let all = distances(&word, &term);
            let edits = if prefix { all.iter().min() } else { all.last() };
            let wanted = edits.filter(|edits| **edits <= usize::from(typos)).map(|edits| *edits as u8);
            prop_assert_eq!(banded.distance(&term), wanted);
            let end = term.bytes().fold(banded.start(), |band, byte| banded.accept(&band, byte));
            prop_assert_eq!(banded.is_match(&end), wanted.is_some());
        }

        /// What the start of a term rules out must not come in reach again.
        #[test]
        fn what_cannot_match_never_does(word in "[ab]{1,7}", term in "[ab]{0,9}", typos in 1_u8..=2, prefix: bool) {
            let banded = BandedAutomaton::new(&word, typos, prefix);
            let mut band = banded.start();
            let mut could = true;
            for byte in term.bytes() {
                could &= banded.can_match(&band);
                band = banded.accept(&band, byte);
                prop_assert!(could || !banded.is_match(&band));
            }
        }
    }
}
