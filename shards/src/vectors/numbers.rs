//! A parser for JSON arrays of numbers, several times faster than a general one: such arrays make up almost all of a document
//! with vectors and of a vector search. Between numbers they have no space or, as many clients write them, one.

/// Powers of ten that 64-bit floats hold exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// The same as integers.
const INTEGER_TENS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// Integers below this are exact, too.
const EXACT_MAX: u64 = 1 << 53;
/// Digits that always fit 64 bits.
const DIGITS_MAX: usize = 19;

/// Reads `[1,2]` as one list, and `[[1,2],[3]]` as several. `None` for anything else, which may be a list all the same: a
/// general reader must tell.
pub fn lists(json: &[u8]) -> Option<Vec<Vec<f32>>> {
    let mut rest = json.strip_prefix(b"[")?;
    let mut found = Vec::new();
    if rest.first() == Some(&b'[') {
        loop {
            rest = rest.strip_prefix(b"[")?;
            found.push(list(&mut rest, found.last().map_or(0, Vec::len))?);
            match rest.split_off_first()? {
                b',' => {}
                b']' => break,
                _ => return None,
            }
        }
    } else {
        found.push(list(&mut rest, json.len() / 8)?);
    }
    rest.is_empty().then_some(found)
}

/// Reads a list such as `[1,2]`, with which `json` begins, where all its numbers fit 32-bit floats; also gives what follows it.
pub fn leading_list(json: &[u8]) -> Option<(Vec<f32>, &[u8])> {
    let mut rest = json.strip_prefix(b"[")?;
    let numbers = list(&mut rest, json.len() / 8)?;
    numbers.iter().all(|number| number.is_finite()).then_some((numbers, rest))
}

/// The numbers up to the closing bracket, which is taken; about so many are expected.
fn list(rest: &mut &[u8], expected: usize) -> Option<Vec<f32>> {
    let mut numbers = Vec::with_capacity(expected);
    if rest.first() == Some(&b']') {
        *rest = &rest[1..];
        return Some(numbers);
    }
    loop {
        numbers.push(number(rest)? as f32);
        match rest.split_off_first()? {
            b',' => *rest = rest.strip_prefix(b" ").unwrap_or(rest),
            b']' => return Some(numbers),
            _ => return None,
        }
    }
}

/// Takes a number. Its digits as an integer and its power of ten are exact in nearly all cases, and then one multiplication or
/// division rounds correctly (Clinger 1990); the standard library reads the others.
fn number(rest: &mut &[u8]) -> Option<f64> {
    let bytes = *rest;
    let negative = bytes.first() == Some(&b'-');
    let (mut at, mut digits, mut power, mut mantissa) = (usize::from(negative), 0, 0i32, 0u64);
    let mut take_digits = |at: &mut usize| {
        let start = *at;
        while let Some(text) = bytes[*at..].first_chunk() {
            let (count, value) = leading_digits(*text);
            mantissa = mantissa.wrapping_mul(INTEGER_TENS[count]).wrapping_add(value);
            *at += count;
            if count < text.len() {
                digits += *at - start;
                return *at - start;
            }
        }
        while let Some(digit) = bytes.get(*at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit.into());
            *at += 1;
        }
        digits += *at - start;
        *at - start
    };
    let whole = take_digits(&mut at);
    if whole == 0 || (whole > 1 && bytes[at - whole] == b'0') {
        return None;
    }
    if bytes.get(at) == Some(&b'.') {
        at += 1;
        let places = take_digits(&mut at);
        if places == 0 {
            return None;
        }
        power = -i32::try_from(places).ok()?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        let negative = bytes.get(at) == Some(&b'-');
        at += usize::from(negative || bytes.get(at) == Some(&b'+'));
        let start = at;
        let mut exponent = 0i32;
        while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            exponent = exponent.saturating_mul(10).saturating_add(digit.into());
            at += 1;
        }
        if at == start {
            return None;
        }
        power = power.saturating_add(if negative { -exponent } else { exponent });
    }
    let (text, after) = bytes.split_at(at);
    *rest = after;
    if digits > DIGITS_MAX || mantissa > EXACT_MAX || power.unsigned_abs() as usize >= TENS.len() {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let ten = TENS[power.unsigned_abs() as usize];
    let value = if power < 0 { mantissa as f64 / ten } else { mantissa as f64 * ten };
    // Signs are as good as random: see `leading_digits`.
    Some(f64::from_bits(value.to_bits() | u64::from(negative) << 63))
}

/// How many digits a text begins with, and their value. Numbers of a list differ in how many they have, so there is no branch that
/// depends on it: the processor would guess wrong each other time.
#[inline(always)]
fn leading_digits(text: [u8; 8]) -> (usize, u64) {
    let values = u64::from_le_bytes(text) ^ 0x3030_3030_3030_3030;
    // The highest bit of a byte is set where it is no digit; of those behind the first such byte nothing is asked.
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let count = others.trailing_zeros() / 8;
    // Zeros come before the digits; then pairs of digits become one number, and pairs of these.
    let digits = values.checked_shl(64 - 8 * count).unwrap_or(0);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let (first, second) = (pairs & 0xff_0000_00ff, pairs >> 16 & 0xff_0000_00ff);
    let value = first.wrapping_mul(100 + (1_000_000 << 32)).wrapping_add(second.wrapping_mul(1 + (10_000 << 32))) >> 32;
    (count as usize, value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_both_depths_are_read() {
        assert_eq!(lists(b"[]"), Some(vec![vec![]]));
        assert_eq!(lists(b"[1,-2.5]"), Some(vec![vec![1.0, -2.5]]));
        assert_eq!(lists(b"[1, -2.5, 3]"), Some(vec![vec![1.0, -2.5, 3.0]]));
        assert_eq!(lists(b"[[1],[2,3e1]]"), Some(vec![vec![1.0], vec![2.0, 30.0]]));
        assert_eq!(lists(b"[[]]"), Some(vec![vec![]]));
    }

    #[test]
    fn what_is_no_plain_list_is_left() {
        for json in [
            "", "[", "[1", "[1,]", "[,1]", "[1] ", "[ 1]", "[1,  2]", "[1, ]", "[01]", "[1.]", "[.5]", "[1e]", "[--1]",
            "[null]",
        ] {
            assert_eq!(lists(json.as_bytes()), None, "{json}");
        }
        for json in ["[[1],2]", "[1,[2]]", "[[[1]]]", "[[1]", "[[1]]]", "[\"1\"]", "[-]", "[+1]"] {
            assert_eq!(lists(json.as_bytes()), None, "{json}");
        }
    }

    fn spelled() -> impl Strategy<Value = String> {
        let plain = any::<f64>().prop_filter("numbers", |v| v.is_finite()).prop_map(|v| v.to_string());
        let short = any::<f32>().prop_filter("numbers", |v| v.is_finite()).prop_map(|v| format!("{v:e}"));
        prop_oneof![plain, short, "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?"]
    }

    proptest! {
        /// Read as by the general reader, to the bit.
        #[test]
        fn numbers_are_those_of_the_general_reader(spelled in proptest::collection::vec(spelled(), 0..8)) {
            let json = format!("[{}]", spelled.join(","));
            let Ok(general) = serde_json::from_str::<Vec<f32>>(&json) else {
                // Out of the range of floats: infinite here, refused by the caller.
                prop_assert!(lists(json.as_bytes()).is_some_and(|lists| lists[0].iter().any(|v| v.is_infinite())));
                return Ok(());
            };
            let bits = |list: &[f32]| list.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(lists(json.as_bytes()).map(|lists| bits(&lists[0])), Some(bits(&general)));
        }
    }
}
