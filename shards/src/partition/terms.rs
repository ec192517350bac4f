//! Assigns numbers to the terms of a batch, so that everything after the tokenizer handles integers.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::segments::{Pieces, Segments};

/// The number of a term within a batch.
pub type TermNo = u32;

/// Terms are spread over so many tables, so that none is large when it grows: growing one moves all that it holds.
const TABLES: usize = 64;

/// Terms by number and numbers by term.
pub struct Terms {
    texts: Pieces,
    /// Of each term, where its text lies and how long it is.
    spans: Segments<(u32, u32)>,
    tables: [HashTable<TermNo>; TABLES],
    hasher: RandomState,
}

impl Default for Terms {
    fn default() -> Self {
        // Numbers follow the order of first sight, so the seeds decide nothing that could be seen.
        Self {
            texts: Pieces::default(),
            spans: Segments::default(),
            tables: [const { HashTable::new() }; TABLES],
            hasher: RandomState::new(),
        }
    }
}

impl Terms {
    /// The number of a term, given one now if it is new. All terms together must have less than 4 GiB.
    pub fn number(&mut self, term: &[u8]) -> TermNo {
        let hash = self.hasher.hash_one(term);
        let table = &mut self.tables[(hash >> 32) as usize % TABLES];
        let (texts, spans) = (&mut self.texts, &mut self.spans);
        if let Some(known) = table.find(hash, |other| text(texts, spans, *other) == term) {
            return *known;
        }
        let number = spans.len() as TermNo;
        spans.push((texts.push(term) as u32, term.len() as u32));
        let hasher = &self.hasher;
        table.insert_unique(hash, number, |other| hasher.hash_one(text(texts, spans, *other)));
        number
    }

    /// The text of a term.
    pub fn text(&self, term: TermNo) -> &[u8] {
        text(&self.texts, &self.spans, term)
    }

    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of memory in use, about.
    pub fn memory_bytes(&self) -> usize {
        self.texts.len() + self.spans.len() * (size_of::<(u32, u32)>() + 8)
    }

    /// Forgets all terms.
    pub fn clear(&mut self) {
        self.texts.clear();
        self.spans.clear();
        self.tables.iter_mut().for_each(HashTable::clear);
    }
}

fn text<'t>(texts: &'t Pieces, spans: &Segments<(u32, u32)>, term: TermNo) -> &'t [u8] {
    let (place, len) = *spans.get(term as usize);
    texts.get(u64::from(place), len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_keep_their_numbers() {
        let mut terms = Terms::default();
        let words: Vec<String> = (0..5000).map(|n| format!("w{}", n % 1700)).collect();
        let numbers: Vec<TermNo> = words.iter().map(|word| terms.number(word.as_bytes())).collect();
        assert_eq!(terms.len(), 1700);
        for (word, number) in words.iter().zip(numbers) {
            assert_eq!(terms.text(number), word.as_bytes());
        }
        terms.clear();
        assert_eq!(terms.number(b"w3"), 0);
    }
}
