//! Typo budgets: how many edits may separate a query word from a document word.

use crate::settings::TypoTolerance;

/// Words of cost 1 used for one node, in byte order of the index's dictionary.
pub const ONE_TYPO_MAX: usize = 150;
/// Words of cost 2 used for one node.
pub const TWO_TYPOS_MAX: usize = 50;
/// Words used for one prefix in list mode.
pub const PREFIX_WORDS_MAX: usize = 1000;
/// From this number of words on a short prefix is looked up as a whole.
pub const PREFIX_TABLE_WORDS: usize = 100;
/// Longer prefixes are never looked up as a whole.
pub const PREFIX_TABLE_BYTES: usize = 4;
/// Longer words are not indexed and match nothing.
pub const WORD_BYTES_MAX: usize = 250;

/// Edits allowed for `word` (normalised): 0, 1 or 2, by its length in characters.
pub fn typo_budget(word: &str, tolerance: &TypoTolerance) -> u8 {
    if !tolerance.enabled || tolerance.disable_on_words.contains(word) {
        return 0;
    }
    let chars = word.chars().count();
    match tolerance.min_word_size_for_typos {
        sizes if chars < usize::from(sizes.one_typo) => 0,
        sizes if chars < usize::from(sizes.two_typos) => 1,
        _ => 2,
    }
}

/// What a candidate at `distance` edits costs within `budget`; `None` when it does not match. A first character that
/// differs costs one more edit.
pub fn typo_cost(word: &str, candidate: &str, distance: u8, budget: u8) -> Option<u8> {
    let cost = if word.chars().next() == candidate.chars().next() { distance } else { distance + 1 };
    (distance > 0 && cost <= budget).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_follow_the_length_in_characters() {
        let tolerance = TypoTolerance { disable_on_words: ["wednesday".into()].into(), ..TypoTolerance::default() };
        for (word, budget) in
            [("four", 0), ("fiver", 1), ("ééééé", 1), ("eightttt", 1), ("ninenines", 2), ("wednesday", 0)]
        {
            assert_eq!(typo_budget(word, &tolerance), budget, "{word}");
        }
        assert_eq!(typo_budget("ninenines", &TypoTolerance { enabled: false, ..TypoTolerance::default() }), 0);
    }

    #[test]
    fn another_first_character_costs_two() {
        assert_eq!(typo_cost("winter", "wintor", 1, 1), Some(1));
        assert_eq!(typo_cost("winter", "minter", 1, 1), None);
        assert_eq!(typo_cost("wintering", "mintering", 1, 2), Some(2));
        assert_eq!(typo_cost("wintering", "mintoring", 2, 2), None);
        assert_eq!(typo_cost("winter", "winters", 0, 2), None);
    }
}
