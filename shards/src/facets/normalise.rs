//! Normalized forms for comparing values: strings, and numbers as order-preserving bits.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

/// Longest stored string value in bytes; longer ones are cut at a character boundary.
pub const STRING_BYTES_MAX: usize = 468;

/// Bits of the number zero in [`number_bits`].
const ZERO_BITS: u64 = 1 << 63;

/// The form in which strings are compared: trimmed, compatibility-decomposed (accents stay, as combining marks) and
/// lower-cased by the full Unicode mapping. Not cut: operands are compared whole.
pub fn normalise(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim();
    if trimmed.is_ascii() {
        if trimmed.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Cow::Owned(trimmed.to_ascii_lowercase());
        }
        return Cow::Borrowed(trimmed);
    }
    Cow::Owned(trimmed.nfkd().collect::<String>().to_lowercase())
}

/// The longest beginning of a normalised string that is stored: at most [`STRING_BYTES_MAX`] bytes.
pub fn cut(normalised: &str) -> &str {
    &normalised[..normalised.floor_char_boundary(STRING_BYTES_MAX)]
}

/// Finite numbers as bits whose integer order is the numeric order. Minus zero is a value of its own directly after zero,
/// because the interface's filters tell them apart: `x > 0` finds it and `x = 0` does not.
pub fn number_bits(number: f64) -> u64 {
    let bits = number.to_bits();
    match bits {
        0 => ZERO_BITS,
        ZERO_BITS => ZERO_BITS + 1,
        // A positive number: one up, to leave room for minus zero. Finite bits end far below the overflow.
        _ if bits < ZERO_BITS => bits + ZERO_BITS + 1,
        _ => !bits,
    }
}

/// The number whose [`number_bits`] these are.
pub fn number_of_bits(bits: u64) -> f64 {
    match bits {
        ZERO_BITS => 0.0,
        _ if bits == ZERO_BITS + 1 => -0.0,
        _ if bits > ZERO_BITS => f64::from_bits(bits - ZERO_BITS - 1),
        _ => f64::from_bits(!bits),
    }
}

/// An operand as a number: decimal with optional sign and exponent. `None` for text, and for what is not finite.
pub fn parse_number(operand: &str) -> Option<f64> {
    operand.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// A number as clients see it in facets: the shortest decimal text that reads back as the same number, without exponent.
pub fn number_text(number: f64) -> String {
    // Rust's `Display` of floats is exactly this form: `5`, `9.5`, `0.0000001`.
    number.to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_fold_case_and_compatibility_forms_but_not_accents() {
        for (left, right) in [
            ("Éclair", "e\u{301}clair"),
            ("ﬁlet", "filet"),
            ("Ｔｏｋｙｏ", "tokyo"),
            ("½", "1\u{2044}2"),
            ("\u{a0} Drama\t", "drama"),
            ("ΟΔΟΣ", "οδος"),
            ("   ", ""),
            ("İ", "i\u{307}"),
        ] {
            assert_eq!(normalise(left), normalise(right), "{left}");
        }
        for (left, right) in [("Éclair", "eclair"), ("ß", "ss"), ("İ", "i"), ("two  words", "two words")] {
            assert_ne!(normalise(left), normalise(right), "{left}");
        }
    }

    #[test]
    fn cutting_respects_characters() {
        let long = "a".repeat(467) + "é";
        assert_eq!(cut(&long).len(), 467);
        assert_eq!(cut(&"a".repeat(500)).len(), 468);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn minus_zero_comes_directly_after_zero() {
        let ordered = [f64::MIN, -1.0, -f64::from_bits(1), 0.0, -0.0, f64::from_bits(1), 1.0, f64::MAX];
        assert!(ordered.windows(2).all(|pair| number_bits(pair[0]) < number_bits(pair[1])));
    }

    #[test]
    fn numbers_show_without_exponent() {
        let texts = [9.5, 10.0, 1e-7, 1e21].map(number_text);
        assert_eq!(texts, ["9.5", "10", "0.0000001", "1000000000000000000000"]);
    }

    #[test]
    fn infinities_are_no_numbers() {
        assert_eq!(["inf", "NaN", "1e999", "0x10", " 1", ""].map(parse_number), [None; 6]);
        assert_eq!(["+10", "-10", ".5", "1e3", "5."].map(parse_number), [10.0, -10.0, 0.5, 1000.0, 5.0].map(Some));
    }

    proptest! {
        #[test]
        fn number_bits_keep_the_order_and_can_be_undone(left: f64, right: f64) {
            prop_assume!(left.is_finite() && right.is_finite());
            prop_assert_eq!(number_of_bits(number_bits(left)).to_bits(), left.to_bits());
            if left != right {
                prop_assert_eq!(left < right, number_bits(left) < number_bits(right));
            }
        }
    }
}
