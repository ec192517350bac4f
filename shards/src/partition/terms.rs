//! Numbers the terms that a batch meets, so that everything after the tokenizer handles integers.

use ahash::RandomState;
use hashbrown::HashTable;

/// The number of a term within a batch.
pub type TermNo = u32;

/// Terms by number and numbers by term; the texts lie one behind the other.
pub struct Terms {
    texts: Vec<u8>,
    /// Where each text ends.
    ends: Vec<u32>,
    numbers: HashTable<TermNo>,
    hasher: RandomState,
}

impl Default for Terms {
    fn default() -> Self {
        // Numbers follow the order of first sight, so the seeds decide nothing that could be seen.
        Self { texts: Vec::new(), ends: Vec::new(), numbers: HashTable::new(), hasher: RandomState::new() }
    }
}

impl Terms {
    /// The number of a term, given one now if it is new.
    pub fn number(&mut self, term: &str) -> TermNo {
        let hash = self.hasher.hash_one(term.as_bytes());
        let (texts, ends) = (&self.texts, &self.ends);
        if let Some(known) = self.numbers.find(hash, |other| text(texts, ends, *other) == term.as_bytes()) {
            return *known;
        }
        let number = self.ends.len() as TermNo;
        self.texts.extend_from_slice(term.as_bytes());
        self.ends.push(self.texts.len() as u32);
        let (texts, ends, hasher) = (&self.texts, &self.ends, &self.hasher);
        self.numbers.insert_unique(hash, number, |other| hasher.hash_one(text(texts, ends, *other)));
        number
    }

    /// The text of a term.
    pub fn text(&self, term: TermNo) -> &[u8] {
        text(&self.texts, &self.ends, term)
    }

    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory in use, about.
    pub fn memory_bytes(&self) -> usize {
        self.texts.capacity() + self.ends.capacity() * 4 + self.numbers.capacity() * 5
    }

    /// Forgets all terms, keeping the memory.
    pub fn clear(&mut self) {
        self.texts.clear();
        self.ends.clear();
        self.numbers.clear();
    }
}

fn text<'t>(texts: &'t [u8], ends: &[u32], term: TermNo) -> &'t [u8] {
    let at = term as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] as usize };
    &texts[start..ends[at] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_keep_their_numbers() {
        let mut terms = Terms::default();
        let words: Vec<String> = (0..5000).map(|n| format!("w{}", n % 1700)).collect();
        let numbers: Vec<TermNo> = words.iter().map(|word| terms.number(word)).collect();
        assert_eq!(terms.len(), 1700);
        for (word, number) in words.iter().zip(numbers) {
            assert_eq!(terms.text(number), word.as_bytes());
        }
        terms.clear();
        assert_eq!(terms.number("w3"), 0);
    }
}
