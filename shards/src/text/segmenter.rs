//! The dictionary for segmenting Chinese and Japanese. The first such text triggers loading it, which takes some tenths of a
//! second. So that no core is blocked, it is loaded on a thread of its own before such a text is segmented.

use std::sync::atomic::{AtomicBool, Ordering};

use charabia::Tokenize;

static IS_LOADED: AtomicBool = AtomicBool::new(false);

/// Whether cutting this text (UTF-8, other bytes may be between) would load the dictionary: it holds characters of the planes in
/// which Chinese and Japanese are written, and nothing has loaded it before.
pub fn must_be_loaded(text: &[u8]) -> bool {
    // Characters U+3000 to U+9FFF, and no others, are one of these bytes and two that continue it.
    let is_such = |bytes: &[u8; 3]| matches!(bytes, [0xE3..=0xE9, 0x80..=0xBF, 0x80..=0xBF]);
    !IS_LOADED.load(Ordering::Relaxed) && !text.is_ascii() && text.array_windows().any(is_such)
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
        assert!(!must_be_loaded(&[0xE5, 7, 0xE3, 0x80, 0, 0xE9]), "lengths in records are no characters");
        load();
        assert!(!must_be_loaded("東京".as_bytes()));
    }
}
