//! A strict JSON reader over bytes that copies values into one canonical spelling while it checks them.
//!
//! Documents are kept as JSON text and spliced into answers as they are, so they must be stored as the server writes JSON: no
//! blanks, shortest escapes, numbers as their 64-bit value prints. One pass does the checking, the rewriting and reports the
//! names of members, which is several times cheaper than building a tree.

use memchr::memchr2;

/// Deepest nesting of arrays and objects; deeper input is refused, so that no reader of stored documents can run out of stack.
pub const DEPTH_MAX: u32 = 128;

/// Where and why a text is not the JSON expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// Offset into the bytes read.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Hears of the members of the objects that a reader copies.
pub trait Names {
    /// What stands for an object while its members are read.
    type Scope: Copy;
    /// A member of the object `scope`. Returns what stands for the member's value should it be an object (or hold some in an
    /// array), or false when this object had a member of the same name before.
    fn member(&mut self, scope: Self::Scope, name: &str) -> Result<Self::Scope, NameError>;
    /// Begins an object under `scope`; its members are told apart from those of other objects under the same scope.
    fn object(&mut self, scope: Self::Scope) -> Self::Scope;
}

/// Why a member is not taken as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The object has a member of this name already.
    Repeated,
    /// The index can hold no more names.
    Full,
}

/// Names are of no interest.
#[derive(Default)]
pub struct Unnamed;

impl Names for Unnamed {
    type Scope = ();
    fn member(&mut self, (): (), _: &str) -> Result<(), NameError> {
        Ok(())
    }
    fn object(&mut self, (): ()) {}
}

/// Why copying a value failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The text is not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The index can hold no more names.
    #[error("too many field names")]
    NamesFull,
    /// An object names a member twice; the value must be read by slower means that keep the last one.
    #[error("an object names a member twice")]
    Repeated,
}

/// Reads values from a slice, front to back.
pub struct JsonReader<'a> {
    bytes: &'a [u8],
    at: usize,
    keeps_numbers: bool,
}

/// Numbers with a decimal point and without an exponent are in the range of 64-bit floats up to so many bytes.
const DIGITS_IN_RANGE: usize = 300;

impl<'a> JsonReader<'a> {
    /// A reader at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, keeps_numbers: false }
    }

    /// Copies numbers from now on as they are written (checked all the same), or in their canonical spelling again: what is about
    /// to be read as numbers need not be printed first.
    pub fn keep_numbers(&mut self, keep: bool) {
        self.keeps_numbers = keep;
    }

    /// Goes back to an offset that was reached before.
    pub fn rewind(&mut self, offset: usize) {
        self.at = offset.min(self.at);
    }

    /// The offset reached.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The bytes from `start` to the offset reached.
    pub fn slice_from(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    /// Passes over blanks and returns the byte that follows, without taking it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Takes the next byte after blanks if it is `byte`.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// An error at the offset reached.
    pub fn fail<T>(&self, what: &'static str) -> Result<T, JsonError> {
        let what = if self.at >= self.bytes.len() { "unexpected end of input" } else { what };
        Err(JsonError { at: self.at, what })
    }

    /// Takes a string and returns what it says. `scratch` holds the text if it had escapes.
    pub fn string<'s>(&mut self, scratch: &'s mut String) -> Result<&'s str, JsonError>
    where
        'a: 's,
    {
        let (raw, escaped) = self.raw_string()?;
        if !escaped {
            return Ok(raw);
        }
        unescape(raw, scratch).map_err(|what| JsonError { at: self.at, what })?;
        Ok(scratch)
    }

    /// Takes a string and returns the text between its quotes as written, and whether it holds escapes.
    pub fn raw_string(&mut self) -> Result<(&'a str, bool), JsonError> {
        if !self.take(b'"') {
            return self.fail("expected a string");
        }
        let (start, mut escaped) = (self.at, false);
        loop {
            let Some(step) = memchr2(b'"', b'\\', &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                return self.fail("unexpected end of input");
            };
            self.at += step;
            if self.bytes[self.at] == b'"' {
                break;
            }
            escaped = true;
            self.at = (self.at + 2).min(self.bytes.len());
        }
        let raw = &self.bytes[start..self.at];
        self.at += 1;
        if raw.iter().any(|byte| *byte < 0x20) {
            return Err(JsonError { at: start, what: "control character in a string" });
        }
        match std::str::from_utf8(raw) {
            Ok(raw) => Ok((raw, escaped)),
            Err(_) => Err(JsonError { at: start, what: "a string is not UTF-8" }),
        }
    }

    /// Takes a number, `true`, `false` or `null` of canonical JSON, and returns its text.
    pub fn literal(&mut self) -> Result<&'a str, JsonError> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
        match std::str::from_utf8(&rest[..len]) {
            Ok(literal) if len > 0 => {
                self.at += len;
                Ok(literal)
            }
            _ => self.fail("expected a value"),
        }
    }

    /// Takes one value, checks it and appends it to `out` in canonical spelling, reporting names of members.
    pub fn copy_value<N: Names>(
        &mut self,
        out: &mut Vec<u8>,
        names: &mut N,
        scope: N::Scope,
        depth: u32,
    ) -> Result<(), CopyError> {
        match self.peek() {
            Some(b'"') => Ok(self.copy_string(out)?),
            Some(b'{') => self.copy_object(out, names, scope, depth),
            Some(b'[') => self.copy_array(out, names, scope, depth),
            Some(b't') => Ok(self.copy_word(out, b"true")?),
            Some(b'f') => Ok(self.copy_word(out, b"false")?),
            Some(b'n') => Ok(self.copy_word(out, b"null")?),
            Some(b'-' | b'0'..=b'9') => Ok(self.copy_number(out)?),
            _ => Ok(self.fail("expected a value")?),
        }
    }

    fn copy_word(&mut self, out: &mut Vec<u8>, word: &'static [u8]) -> Result<(), JsonError> {
        if !self.bytes[self.at..].starts_with(word) {
            return self.fail("expected a value");
        }
        self.at += word.len();
        out.extend_from_slice(word);
        Ok(())
    }

    fn copy_string(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let (raw, escaped) = self.raw_string()?;
        if escaped {
            let mut text = String::with_capacity(raw.len());
            unescape(raw, &mut text).map_err(|what| JsonError { at: self.at, what })?;
            put_string(out, &text);
        } else {
            out.push(b'"');
            out.extend_from_slice(raw.as_bytes());
            out.push(b'"');
        }
        Ok(())
    }

    fn copy_number(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let start = self.at;
        self.at += usize::from(self.bytes[self.at] == b'-');
        let whole = self.digits();
        if whole == 0 || (whole > 1 && self.bytes[self.at - whole] == b'0') {
            return self.fail("expected a number");
        }
        let (mut integer, mut exponent) = (true, false);
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            integer = false;
            if self.digits() == 0 {
                return self.fail("expected a digit");
            }
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            (integer, exponent) = (false, true);
            self.at += usize::from(matches!(self.bytes.get(self.at), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return self.fail("expected a digit");
            }
        }
        let raw = &self.bytes[start..self.at];
        // Digits only up to 18 places are their own canonical spelling; the sign of a zero makes it a float.
        let as_written = self.keeps_numbers && !exponent && raw.len() < DIGITS_IN_RANGE;
        if as_written || (integer && raw.len() <= 18 && raw != b"-0") {
            out.extend_from_slice(raw);
            return Ok(());
        }
        put_number(out, raw).ok_or(JsonError { at: start, what: "number out of range" })
    }

    fn digits(&mut self) -> usize {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    fn copy_array<N: Names>(
        &mut self,
        out: &mut Vec<u8>,
        names: &mut N,
        scope: N::Scope,
        depth: u32,
    ) -> Result<(), CopyError> {
        self.enter(depth)?;
        out.push(b'[');
        if !self.take(b']') {
            loop {
                self.copy_value(out, names, scope, depth + 1)?;
                if self.take(b']') {
                    break;
                }
                if !self.take(b',') {
                    self.fail("expected `,` or `]`")?;
                }
                out.push(b',');
            }
        }
        out.push(b']');
        Ok(())
    }

    fn copy_object<N: Names>(
        &mut self,
        out: &mut Vec<u8>,
        names: &mut N,
        scope: N::Scope,
        depth: u32,
    ) -> Result<(), CopyError> {
        self.enter(depth)?;
        let scope = names.object(scope);
        out.push(b'{');
        if !self.take(b'}') {
            let mut scratch = String::new();
            loop {
                let name = self.string(&mut scratch)?;
                put_string(out, name);
                let inner = names.member(scope, name).map_err(|error| match error {
                    NameError::Repeated => CopyError::Repeated,
                    NameError::Full => CopyError::NamesFull,
                })?;
                if !self.take(b':') {
                    self.fail("expected `:`")?;
                }
                out.push(b':');
                self.copy_value(out, names, inner, depth + 1)?;
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    self.fail("expected `,` or `}`")?;
                }
                out.push(b',');
            }
        }
        out.push(b'}');
        Ok(())
    }

    /// Takes an opening bracket, if the nesting allows it.
    fn enter(&mut self, depth: u32) -> Result<(), JsonError> {
        if depth >= DEPTH_MAX {
            return self.fail("nested too deeply");
        }
        self.at += 1;
        Ok(())
    }

    /// Takes one value, checking it.
    pub fn skip_value(&mut self, scratch: &mut Vec<u8>, depth: u32) -> Result<(), JsonError> {
        scratch.clear();
        // Nobody reads the copy: its numbers need no spelling.
        let kept = std::mem::replace(&mut self.keeps_numbers, true);
        let copied = self.copy_value(scratch, &mut Unnamed, (), depth);
        self.keeps_numbers = kept;
        match copied {
            Ok(()) => Ok(()),
            Err(CopyError::Json(error)) => Err(error),
            // Nothing else happens when names are of no interest.
            Err(_) => self.fail("unreadable value"),
        }
    }
}

/// Appends a string with quotes and the escapes it needs.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut *out, text);
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Appends a number (of correct syntax) as its value prints: integers up to 64 bits exactly, others as 64-bit floats.
/// `None` when it is beyond them.
fn put_number(out: &mut Vec<u8>, raw: &[u8]) -> Option<()> {
    let text = std::str::from_utf8(raw).ok()?;
    let float = || text.parse().ok().and_then(serde_json::Number::from_f64);
    let number = match (text.parse::<u64>(), text.parse::<i64>()) {
        _ if text == "-0" => float()?,
        (Ok(value), _) => value.into(),
        (_, Ok(value)) => value.into(),
        _ => float()?,
    };
    serde_json::to_writer(out, &number).ok()
}

/// Resolves the escapes of a string.
pub fn unescape(raw: &str, out: &mut String) -> Result<(), &'static str> {
    out.clear();
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let Some(kind) = rest.as_bytes().get(at + 1) else { return Err("invalid escape") };
        let mut used = at + 2;
        match kind {
            b'"' => out.push('"'),
            b'\\' => out.push('\\'),
            b'/' => out.push('/'),
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let mut unit = hex4(rest, used)?;
                used += 4;
                if (0xd800..0xdc00).contains(&unit) {
                    if !rest.as_bytes()[used..].starts_with(b"\\u") {
                        return Err("lone surrogate in an escape");
                    }
                    let low = hex4(rest, used + 2)?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err("lone surrogate in an escape");
                    }
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                    used += 6;
                }
                out.push(char::from_u32(unit).ok_or("lone surrogate in an escape")?);
            }
            _ => return Err("invalid escape"),
        }
        rest = &rest[used..];
    }
    out.push_str(rest);
    Ok(())
}

fn hex4(text: &str, at: usize) -> Result<u32, &'static str> {
    let digits = text.as_bytes().get(at..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok()).ok_or("invalid escape")?;
    u32::from_str_radix(digits, 16).map_err(|_| "invalid escape")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn canonical(text: &[u8]) -> Result<Vec<u8>, JsonError> {
        let (mut reader, mut out) = (JsonReader::new(text), Vec::new());
        match reader.copy_value(&mut out, &mut Unnamed, (), 0) {
            Ok(()) => {}
            Err(CopyError::Json(error)) => return Err(error),
            Err(other) => panic!("{other}"),
        }
        if reader.peek().is_some() { reader.fail("trailing text") } else { Ok(out) }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,5}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The canonical spelling is what the rest of the server writes, so that hits and other answers do not differ.
        #[test]
        fn values_are_rewritten_as_the_server_writes_them(value in json()) {
            let compact = serde_json::to_vec(&value).unwrap();
            prop_assert_eq!(canonical(&serde_json::to_vec_pretty(&value).unwrap()).unwrap(), compact.clone());
            prop_assert_eq!(canonical(&compact).unwrap(), compact);
        }

        /// Garbage is accepted exactly where a well-tried reader accepts it.
        #[test]
        fn the_same_texts_are_refused(text in "[\\[\\]{}:,\"\\\\ue0-9.+-tfnrulsad \u{1}é]{0,12}") {
            let reference = serde_json::from_str::<Value>(&text);
            prop_assert_eq!(canonical(text.as_bytes()).is_ok(), reference.is_ok(), "{:?}", reference);
        }

        #[test]
        fn numbers_are_refused_and_written_alike(text in "-?[0-9]{0,22}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,3})?") {
            let reference = serde_json::from_str::<Value>(&text).ok().map(|value| serde_json::to_vec(&value).unwrap());
            prop_assert_eq!(canonical(text.as_bytes()).ok(), reference);
        }
    }

    #[test]
    fn escapes_become_shortest_and_lone_surrogates_are_refused() {
        assert_eq!(canonical(br#""\u00e9\/\ud83c\udf55\n\u0001""#).unwrap(), "\"é/🍕\\n\\u0001\"".as_bytes());
        for bad in [r#""\ud83c""#, r#""\udf55""#, r#""\ud83c\u0041""#, r#""\x""#, r#""\u12""#, "\"\\"] {
            assert!(canonical(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(canonical(b"\"\xff\"").is_err());
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
        assert!(canonical(nested(DEPTH_MAX as usize).as_bytes()).is_ok());
        assert!(canonical(nested(DEPTH_MAX as usize + 1).as_bytes()).is_err());
    }
}
