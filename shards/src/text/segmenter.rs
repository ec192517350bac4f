//! The dictionary by which Chinese and Japanese text is cut into words: the first text of that kind has it loaded, which takes
//! some tenths of a second. So that no core does this, it is loaded on a thread of its own before such a text is cut.

use std::sync::atomic::{AtomicBool, Ordering};

use charabia::Tokenize;

static IS_LOADED: AtomicBool = AtomicBool::new(false);

/// Whether cutting this text (UTF-8) would load the dictionary: it holds characters of the planes in which Chinese and Japanese
/// are written, and nothing has loaded it before.
pub fn must_be_loaded(text: &[u8]) -> bool {
    // Characters U+3000 to U+9FFF begin with these bytes, and no others do.
    !IS_LOADED.load(Ordering::Relaxed) && !text.is_ascii() && text.iter().any(|byte| (0xE3..=0xE9).contains(byte))
}

/// Loads the dictionary; waits for whoever is at it already.
pub fn load() {
    let _ = "\u{4e2d}\u{6587}\u{5b57}".tokenize().count();
    IS_LOADED.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_writing_systems_need_the_dictionary() {
        for (text, wanted) in
            [("東京", true), ("カナ", true), ("naïve “words”", false), ("Ελλάδα", false), ("🙂", false), ("", false)]
        {
            assert_eq!(must_be_loaded(text.as_bytes()), wanted && !IS_LOADED.load(Ordering::Relaxed), "{text}");
        }
        load();
        assert!(!must_be_loaded("東京".as_bytes()));
    }
}
