//! Query strings: names and values decoded, each value read as the type its route wants.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::api::error::{ApiError, ErrorCode};

/// The parameters of a query string, decoded, in order. A repeated name keeps its first place and its last value.
pub struct Params(Vec<Param>);

/// One parameter.
pub struct Param {
    name: String,
    value: String,
}

impl Params {
    /// Reads what stands after the `?`. Never fails: undecodable bytes become U+FFFD, empty pairs are passed over.
    pub fn parse(raw: &str) -> Self {
        let mut params: Vec<Param> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (percent_decode(name, true), percent_decode(value, true));
            match places.entry(name) {
                Entry::Occupied(place) => params[*place.get()].value = value,
                Entry::Vacant(place) => {
                    params.push(Param { name: place.key().clone(), value });
                    place.insert(params.len() - 1);
                }
            }
        }
        Self(params)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Param> {
        self.0.iter()
    }
}

impl Param {
    /// The decoded name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The decoded value.
    pub fn text(&self) -> &str {
        &self.value
    }

    /// Exactly `true` or `false`.
    pub fn boolean(&self, code: ErrorCode) -> Result<bool, ApiError> {
        match self.value.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.expected("`true` or `false`", code)),
        }
    }

    /// Decimal digits, at most 2^64 - 1.
    pub fn u64(&self, code: ErrorCode) -> Result<u64, ApiError> {
        self.value.parse().map_err(|_| self.expected("a positive integer", code))
    }

    /// As [`Self::u64`], no larger than this machine's sizes.
    pub fn usize(&self, code: ErrorCode) -> Result<usize, ApiError> {
        self.value.parse().map_err(|_| self.expected("a positive integer", code))
    }

    /// Decimal digits, at most 2^32 - 1.
    pub fn u32(&self, code: ErrorCode) -> Result<u32, ApiError> {
        self.value.parse().map_err(|_| self.expected("a positive integer below 4294967296", code))
    }

    /// A number from 0 to 1, both included.
    pub fn ratio(&self, code: ErrorCode) -> Result<f64, ApiError> {
        let ratio = self.value.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.ok_or_else(|| self.expected("a number between 0.0 and 1.0", code))
    }

    /// The items between commas. Empty items are dropped, so that an empty value is an empty list.
    pub fn list(&self) -> Vec<String> {
        self.value.split(',').filter(|item| !item.is_empty()).map(String::from).collect()
    }

    /// As [`Self::list`], where `*` anywhere in the list stands for no restriction: `None`.
    pub fn list_or_star(&self) -> Option<Vec<String>> {
        let items = self.list();
        (!items.iter().any(|item| item == "*")).then_some(items)
    }

    /// The error for a parameter that the route does not have.
    pub fn unknown(&self) -> ApiError {
        ApiError::bad_request(format!("Unknown parameter `{}`.", self.name))
    }

    /// The error for a value of another kind than `wanted`, which reads as "a positive integer" does.
    pub fn expected(&self, wanted: &str, code: ErrorCode) -> ApiError {
        let message =
            format!("Invalid value in parameter `{}`: expected {wanted}, but found `{}`.", self.name, self.value);
        ApiError::new(code, message)
    }
}

/// Undoes percent-encoding; `+` means a blank where `plus_is_blank` (query strings, not paths). A broken escape stays as it
/// is, bytes that are not UTF-8 become U+FFFD.
pub fn percent_decode(text: &str, plus_is_blank: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex_digit(*high).zip(hex_digit(*low)),
            _ => None,
        };
        bytes.push(match (first, escaped) {
            (_, Some((high, low))) => {
                rest = &tail[2..];
                high << 4 | low
            }
            (b'+', None) if plus_is_blank => b' ',
            _ => *first,
        });
    }
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(raw: &str) -> Param {
        Params::parse(raw).0.remove(0)
    }

    #[test]
    fn names_and_values_are_decoded() {
        let params = Params::parse("a=1&&b=x+y%20z&a=2&flag&c=%FF%zz");
        let read: Vec<_> = params.iter().map(|p| (p.name(), p.text())).collect();
        assert_eq!(read, [("a", "2"), ("b", "x y z"), ("flag", ""), ("c", "\u{FFFD}%zz")]);
        assert!(Params::parse("").is_empty());
        assert_eq!(percent_decode("a+b%2Fc%", false), "a+b/c%");
    }

    /// However many there are, each keeps its first place and its last value.
    #[test]
    fn many_names_keep_their_order() {
        let names: Vec<String> = (0..8000).map(|n| format!("n{}", n * 7919 % 8000)).collect();
        let once: Vec<String> = names.iter().map(|name| format!("{name}=1")).collect();
        let again: Vec<String> = names.iter().rev().map(|name| format!("{name}=2")).collect();
        let params = Params::parse(&[once, again].concat().join("&"));
        assert!(params.iter().map(Param::name).eq(&names));
        assert!(params.iter().all(|param| param.text() == "2"));
    }

    #[test]
    fn integers_take_a_plus_and_leading_zeros() {
        let code = ErrorCode::InvalidTaskLimit;
        for (raw, wanted) in [
            ("n=01", Some(1)),
            ("n=%2B1", Some(1)),
            ("n=4294967295", Some(u32::MAX)),
            ("n=4294967296", None),
            ("n=-1", None),
            ("n=", None),
            ("n=1.0", None),
            ("n=+1", None),
        ] {
            assert_eq!(one(raw).u32(code).ok(), wanted, "{raw}");
        }
        assert_eq!(one("b=True").boolean(code).ok(), None);
    }

    /// An empty list matches nothing, which is not the same as no list.
    #[test]
    fn lists_drop_empty_items_and_keep_blanks() {
        assert_eq!(one("l=1,,2").list(), ["1", "2"]);
        assert_eq!(one("l=").list(), Vec::<String>::new());
        assert_eq!(one("l=a,%20b").list(), ["a", " b"]);
        assert_eq!(one("l=a,*").list_or_star(), None);
        assert_eq!(one("l=").list_or_star(), Some(Vec::new()));
    }
}
