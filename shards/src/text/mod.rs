//! From text to words, and from words to posting lists and the term dictionary.

mod banded;
mod bit_parallel;
mod char_automaton;
pub mod dictionary;
pub mod in_order;
pub mod morphology;
pub mod postings;
pub mod segmenter;
mod separators;
pub mod shared;
mod term_map;
#[cfg(test)]
pub(crate) mod textbook;
pub mod tokenizer;
pub mod words;

pub use dictionary::Dictionary;
pub use tokenizer::TextTokenizer;

/// Longest indexed word in bytes; a longer one keeps its position but cannot be found.
pub const WORD_BYTES_MAX: usize = 250;
/// Positions beyond this one are not indexed.
pub const POSITION_MAX: u32 = 65_535;
