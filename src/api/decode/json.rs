//! One value of a JSON body and the way to it.

use std::{fmt, io};

use serde_json::Value;

use crate::api::error::{ApiError, ErrorCode};

/// Longest piece of a client's value that a message repeats, in characters.
const QUOTED_CHARS_MAX: usize = 80;

/// A value in a JSON body with the path that leads to it, so that a message can name the place.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    value: &'a Value,
    step: Step<'a>,
    parent: Option<&'a Node<'a>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> Node<'a> {
    /// The whole body.
    pub fn body(value: &'a Value) -> Self {
        Self { value, step: Step::Root, parent: None }
    }

    /// The name of the field that holds this value; empty for an item of a list and for the body.
    pub fn name(&self) -> &'a str {
        match self.step {
            Step::Field(name) => name,
            Step::Root | Step::Item(_) => "",
        }
    }

    /// The value as it was sent.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// `None` for null, else what `read` makes of the value.
    pub fn nullable<T>(&self, read: impl FnOnce(&Self) -> Result<T, ApiError>) -> Result<Option<T>, ApiError> {
        if self.value.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    /// A string, copied.
    pub fn string(&self, code: ErrorCode) -> Result<String, ApiError> {
        self.str(code).map(String::from)
    }

    /// A string.
    pub fn str(&self, code: ErrorCode) -> Result<&'a str, ApiError> {
        self.value.as_str().ok_or_else(|| self.expected("a string", code))
    }

    /// True or false.
    pub fn boolean(&self, code: ErrorCode) -> Result<bool, ApiError> {
        self.value.as_bool().ok_or_else(|| self.expected("a boolean", code))
    }

    /// An integer from 0 to 2^64 - 1; `1.0` is none.
    pub fn u64(&self, code: ErrorCode) -> Result<u64, ApiError> {
        self.value.as_u64().ok_or_else(|| self.expected("a positive integer", code))
    }

    /// As [`Self::u64`], no larger than this machine's sizes.
    pub fn usize(&self, code: ErrorCode) -> Result<usize, ApiError> {
        usize::try_from(self.u64(code)?).map_err(|_| self.expected("a smaller integer", code))
    }

    /// An integer from 0 to 255.
    pub fn u8(&self, code: ErrorCode) -> Result<u8, ApiError> {
        u8::try_from(self.u64(code)?).map_err(|_| self.expected("an integer from 0 to 255", code))
    }

    /// An integer from 0 to 2^32 - 1.
    pub fn u32(&self, code: ErrorCode) -> Result<u32, ApiError> {
        u32::try_from(self.u64(code)?).map_err(|_| self.expected("an integer below 4294967296", code))
    }

    /// Any number.
    pub fn f64(&self, code: ErrorCode) -> Result<f64, ApiError> {
        self.value.as_f64().ok_or_else(|| self.expected("a number", code))
    }

    /// A number from 0 to 1, both included.
    pub fn ratio(&self, code: ErrorCode) -> Result<f64, ApiError> {
        let number = self.f64(code)?;
        if (0.0..=1.0).contains(&number) {
            Ok(number)
        } else {
            Err(self.expected("a number between 0.0 and 1.0", code))
        }
    }

    /// The items of a list.
    pub fn items<'b>(&'b self, code: ErrorCode) -> Result<impl ExactSizeIterator<Item = Node<'b>>, ApiError> {
        let Value::Array(items) = self.value else { return Err(self.expected("an array", code)) };
        let item = move |(at, value)| Node { value, step: Step::Item(at), parent: Some(self) };
        Ok(items.iter().enumerate().map(item))
    }

    /// A list of strings.
    pub fn strings(&self, code: ErrorCode) -> Result<Vec<String>, ApiError> {
        self.items(code)?.map(|item| item.string(code)).collect()
    }

    /// The fields of an object, in the order of the body.
    pub fn fields<'b>(&'b self, code: ErrorCode) -> Result<impl ExactSizeIterator<Item = Node<'b>>, ApiError> {
        let Value::Object(fields) = self.value else { return Err(self.expected("an object", code)) };
        let field = move |(name, value): (&'b String, _)| Node { value, step: Step::Field(name), parent: Some(self) };
        Ok(fields.iter().map(field))
    }

    /// The error for a field that the object around it does not have.
    pub fn unknown(&self, code: ErrorCode) -> ApiError {
        let (name, place) = (self.name(), self.parent.map_or_else(|| "the body".to_string(), |node| node.place()));
        ApiError::new(code, format!("Unknown field `{}` in {place}.", quoted(name)))
    }

    /// The error for a field that is required and absent in this object.
    pub fn missing(&self, name: &str, code: ErrorCode) -> ApiError {
        ApiError::new(code, format!("Missing field `{name}` in {}.", self.place()))
    }

    /// The error for a value of another kind than `wanted`, which reads as "a string" does.
    pub fn expected(&self, wanted: &str, code: ErrorCode) -> ApiError {
        let found = Excerpt::of(self.value).text();
        ApiError::new(code, format!("Invalid value in {}: expected {wanted}, but found `{found}`.", self.place()))
    }

    /// The error for a value of the right kind that will not do; `why` is a sentence without its place.
    pub fn invalid(&self, why: impl fmt::Display, code: ErrorCode) -> ApiError {
        ApiError::new(code, format!("Invalid value in {}: {why}", self.place()))
    }

    fn place(&self) -> String {
        match self.step {
            Step::Root => "the body".into(),
            _ => format!("`{}`", Path(self)),
        }
    }
}

/// Writes the way from the body to a node: `.faceting.sortFacetValuesBy` or `[2].indexes`.
struct Path<'n, 'a>(&'n Node<'a>);

impl fmt::Display for Path<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.0.parent {
            Path(parent).fmt(out)?;
        }
        match self.0.step {
            Step::Root => Ok(()),
            Step::Field(name) => write!(out, ".{}", quoted(name)),
            Step::Item(at) => write!(out, "[{at}]"),
        }
    }
}

/// The beginning of a value's JSON text, as much as a message repeats of it. Of a long value no more is written.
struct Excerpt(Vec<u8>);

impl Excerpt {
    /// More than is repeated, however long its characters are.
    const BYTES_MAX: usize = (QUOTED_CHARS_MAX + 1) * char::MAX.len_utf8();

    fn of(value: &Value) -> Self {
        let mut excerpt = Self(Vec::new());
        // It fails where enough is written.
        let _ = serde_json::to_writer(&mut excerpt, value);
        excerpt
    }

    /// The text, cut at a character.
    fn text(&self) -> String {
        quoted(&String::from_utf8_lossy(&self.0))
    }
}

impl io::Write for Excerpt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(Self::BYTES_MAX - self.0.len());
        self.0.extend_from_slice(&bytes[..count]);
        // A writer that takes nothing ends the writing.
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client's text, cut so that a message stays readable.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CODE: ErrorCode = ErrorCode::InvalidSearchLimit;

    /// Integers are integers: a float, a string or a negative number in their place is the field's own error.
    #[test]
    fn integers_are_strict() {
        for (value, wanted) in [
            (json!(0), Some(0)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(1.0), None),
            (json!("1"), None),
            (json!(-1), None),
            (json!(true), None),
            (json!(null), None),
        ] {
            assert_eq!(Node::body(&value).u64(CODE).ok(), wanted, "{value}");
        }
        assert_eq!(Node::body(&json!(256)).u8(CODE).ok(), None);
        assert_eq!(Node::body(&json!(1)).ratio(CODE).ok(), Some(1.0));
        assert_eq!(Node::body(&json!(1.01)).ratio(CODE).ok(), None);
    }

    #[test]
    fn a_message_names_the_place() {
        let body = json!({"faceting": {"list": ["a", 7]}});
        let root = Node::body(&body);
        let faceting = root.fields(CODE).unwrap().next().unwrap();
        let list = faceting.fields(CODE).unwrap().next().unwrap();
        let error = list.strings(CODE).unwrap_err();
        assert_eq!(error.message, "Invalid value in `.faceting.list[1]`: expected a string, but found `7`.");
        assert_eq!(list.unknown(CODE).message, "Unknown field `list` in `.faceting`.");
    }

    /// The order of the body decides which error is seen; a repeated key keeps its first place and its last value.
    #[test]
    fn fields_come_in_the_order_of_the_body() {
        let body: Value = serde_json::from_str(r#"{"z": 1, "a": 2, "z": 3}"#).unwrap();
        let root = Node::body(&body);
        let seen: Vec<_> = root.fields(CODE).unwrap().map(|f| (f.name().to_string(), f.u64(CODE).unwrap())).collect();
        assert_eq!(seen, [("z".into(), 3), ("a".into(), 2)]);
    }

    /// To write out all of a value that a message repeats a line of once took as long as reading it.
    #[test]
    fn of_a_long_value_only_the_beginning_is_written() {
        let message = |value: Value| Node::body(&value).string(CODE).unwrap_err().message;
        for item in [json!(0), json!("é\u{1F600}"), json!({"a": [null]})] {
            let (short, long) = (vec![item.clone(); 3], vec![item; 100_000]);
            for value in [json!(short), json!(long), json!({"a": long})] {
                let whole = quoted(&value.to_string());
                assert!(Excerpt::of(&value).0.len() <= Excerpt::BYTES_MAX);
                let wanted = format!("Invalid value in the body: expected a string, but found `{whole}`.");
                assert_eq!(message(value), wanted);
            }
        }
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        assert_eq!(quoted(&"é".repeat(200)).chars().count(), QUOTED_CHARS_MAX + 1);
    }
}
