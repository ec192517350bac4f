//! Estimates from the bytes of a JSON text how much memory its parsed values will take.

use serde_json::Value;

/// What a value takes in the list or object around it, which grows by doubling. A name counts as one, too.
const VALUE_BYTES: usize = 2 * size_of::<Value>();
/// What an object takes before it has more than a few members, with what is decoded from it.
const OBJECT_BYTES: usize = 1024;

/// Adds up what the values of a JSON text take at most, piece by piece. Numbers and the like lie in the values themselves, and
/// strings are no longer than the text, which is not counted.
#[derive(Debug, Default)]
pub struct JsonWeight {
    in_string: bool,
    is_escaped: bool,
    bytes: usize,
}

impl JsonWeight {
    /// Takes the next piece of the text.
    pub fn push(&mut self, json: &[u8]) {
        for byte in json {
            if self.in_string {
                let ends = *byte == b'"' && !self.is_escaped;
                self.is_escaped = *byte == b'\\' && !self.is_escaped;
                self.in_string = !ends;
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' => self.bytes += OBJECT_BYTES,
                b'[' | b',' | b':' => self.bytes += VALUE_BYTES,
                _ => {}
            }
        }
    }

    /// What it comes to so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(json: &str) -> usize {
        let mut weight = JsonWeight::default();
        json.as_bytes().chunks(3).for_each(|piece| weight.push(piece));
        weight.bytes()
    }

    #[test]
    fn values_weigh_and_what_is_in_strings_does_not() {
        assert_eq!(weight("[0,0,0]"), 3 * VALUE_BYTES);
        assert_eq!(weight(r#"[{},{"a":1}]"#), 2 * OBJECT_BYTES + 3 * VALUE_BYTES);
        assert_eq!(weight(r#""[1,2,\",{\\\",""#), 0);
        assert_eq!(weight(r#"["\\",1]"#), 2 * VALUE_BYTES);
    }
}
