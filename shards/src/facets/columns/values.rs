//! A document's values on one field, as bytes: for sort, distinct and the spelling of facets.
//!
//! How many numbers (varint), their bits (big-endian, ascending); then for each string, ascending by bytes: its length
//! (varint), the normalised text, and the length of its spelling plus one (varint) with the spelling, or 0 when the spelling
//! is the normalised text.

use crate::facets::extract::FieldFacts;

/// The values of one document on one field, read from their bytes.
#[derive(Clone, Copy, Debug)]
pub struct DocValues<'b> {
    numbers: &'b [[u8; 8]],
    strings: &'b [u8],
}

/// Writes the values; nothing when there are none.
pub(super) fn encode(facts: &FieldFacts) -> Vec<u8> {
    let mut out = Vec::new();
    if facts.numbers.is_empty() && facts.strings.is_empty() {
        return out;
    }
    put_varint(facts.numbers.len(), &mut out);
    for bits in &facts.numbers {
        out.extend_from_slice(&bits.to_be_bytes());
    }
    for (value, spelling) in &facts.strings {
        put_varint(value.len(), &mut out);
        out.extend_from_slice(value.as_bytes());
        if value == spelling {
            put_varint(0, &mut out);
        } else {
            put_varint(spelling.len() + 1, &mut out);
            out.extend_from_slice(spelling.as_bytes());
        }
    }
    out
}

impl<'b> DocValues<'b> {
    /// `None` if the bytes are not what [`encode`] writes. Strings are only looked at when they are asked for.
    pub(super) fn decode(bytes: &'b [u8]) -> Option<Self> {
        let (count, rest) = take_varint(bytes)?;
        let (numbers, strings) = rest.split_at_checked(count.checked_mul(8)?)?;
        Some(Self { numbers: numbers.as_chunks().0, strings })
    }

    /// The bits of the numbers, ascending (see `normalise::number_bits`).
    pub fn numbers(self) -> impl DoubleEndedIterator<Item = u64> + 'b {
        self.numbers.iter().map(|bits| u64::from_be_bytes(*bits))
    }

    /// The normalised strings, ascending, each with its spelling in the document. Ends early at corrupt bytes.
    pub fn strings(self) -> Strings<'b> {
        Strings { rest: self.strings }
    }
}

/// Walks the strings of one document.
#[derive(Clone, Debug)]
pub struct Strings<'b> {
    rest: &'b [u8],
}

impl Strings<'_> {
    /// The bytes still to walk.
    pub fn bytes_left(&self) -> usize {
        self.rest.len()
    }
}

impl<'b> Iterator for Strings<'b> {
    type Item = (&'b str, &'b str);

    fn next(&mut self) -> Option<Self::Item> {
        let value = take_text(&mut self.rest)?;
        let (length, after) = take_varint(self.rest)?;
        self.rest = after;
        let Some(length) = length.checked_sub(1) else { return Some((value, value)) };
        let (spelling, after) = self.rest.split_at_checked(length)?;
        self.rest = after;
        Some((value, std::str::from_utf8(spelling).ok()?))
    }
}

fn take_text<'b>(rest: &mut &'b [u8]) -> Option<&'b str> {
    let (length, after) = take_varint(rest)?;
    let (text, after) = after.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

fn put_varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0usize;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_come_back(numbers: BTreeSet<u64>, strings: BTreeMap<String, String>) {
            let strings: BTreeMap<Box<str>, Box<str>> =
                strings.into_iter().map(|(value, spelling)| (value.into(), spelling.into())).collect();
            let facts = FieldFacts { numbers: numbers.clone(), strings: strings.clone(), ..FieldFacts::default() };
            let bytes = encode(&facts);
            if bytes.is_empty() {
                prop_assert!(numbers.is_empty() && strings.is_empty());
                return Ok(());
            }
            let values = DocValues::decode(&bytes).expect("just encoded");
            prop_assert_eq!(values.numbers().collect::<BTreeSet<_>>(), numbers);
            prop_assert_eq!(values.strings().map(|(v, s)| (v.into(), s.into())).collect::<BTreeMap<_, _>>(), strings);
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            if let Some(values) = DocValues::decode(&bytes) {
                prop_assert!(values.numbers().count() <= bytes.len());
                prop_assert!(values.strings().count() <= bytes.len());
            }
        }
    }
}
