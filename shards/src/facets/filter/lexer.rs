//! Lexer of the filter language: words, quotes, escapes and numbers.

use std::borrow::Cow;

use super::tree::SyntaxError;

/// Words that are refused unless quoted.
const RESERVED: [&str; 14] = [
    "AND",
    "OR",
    "NOT",
    "IN",
    "TO",
    "EXISTS",
    "IS",
    "NULL",
    "EMPTY",
    "CONTAINS",
    "STARTS",
    "WITH",
    "_geoRadius",
    "_geoBoundingBox",
];

/// Reads a filter's text from left to right.
pub(super) struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// A place to [`rewind`](Self::rewind) to, in bytes.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn rewind(&mut self, position: usize) {
        self.at = position;
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    pub fn starts_with(&self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    /// Moves past `token` if it comes next.
    pub fn take(&mut self, token: &str) -> bool {
        let found = self.starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Moves past a keyword that comes next and does not run into a word character.
    pub fn take_keyword(&mut self, keyword: &str) -> bool {
        let follows = self.rest().strip_prefix(keyword);
        let found = follows.is_some_and(|follows| !follows.starts_with(is_word_char));
        if found {
            self.at += keyword.len();
        }
        found
    }

    /// As [`take_keyword`](Self::take_keyword), past white space before it. When the keyword is not there the white space
    /// stays: whether it is allowed is for the next one to say.
    pub fn take_spaced_keyword(&mut self, keyword: &str) -> bool {
        let start = self.at;
        self.skip_white();
        let found = self.take_keyword(keyword);
        if !found {
            self.at = start;
        }
        found
    }

    /// Passes over space, tab, CR and LF: the white space between tokens.
    pub fn skip_white(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(is_white).len();
    }

    /// Passes over any Unicode white space, which is allowed before a value.
    pub fn skip_any_white(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Passes over white space between tokens; whether there was any, now or directly before.
    pub fn take_white(&mut self) -> bool {
        self.skip_white();
        self.text[..self.at].ends_with(is_white)
    }

    /// The bare word that comes next, which may be empty.
    pub fn peek_word(&self) -> &'t str {
        leading(self.rest(), is_word_char)
    }

    /// An attribute or operand: a word or quoted text, unescaped. Passes over the white space around it.
    pub fn value(&mut self, expected: &str) -> Result<String, SyntaxError> {
        self.skip_any_white();
        let text = match self.rest().chars().next() {
            Some(quote @ ('\'' | '"')) => self.quoted(quote)?,
            Some(first) if is_word_char(first) => self.word()?.to_owned(),
            Some(found) => {
                let what = format!("expected {expected}, found `{found}`");
                return Err(self.error(&what));
            }
            None => return Err(self.error(&format!("expected {expected}, found the end of the filter"))),
        };
        self.skip_white();
        Ok(text)
    }

    fn word(&mut self) -> Result<&'t str, SyntaxError> {
        let start = self.at;
        let word = self.peek_word();
        self.at += word.len();
        let is_geo = word == "_geo" || word.starts_with("_geoPoint") || word.starts_with("_geoDistance");
        if is_geo {
            let what = format!("`{word}` is a reserved keyword and thus can't be used as a filter expression");
            return Err(self.error_from(start, &what));
        }
        if RESERVED.contains(&word) {
            let what = format!("`{word}` is a reserved keyword: put it in quotes to use it as a value");
            return Err(self.error_from(start, &what));
        }
        Ok(word)
    }

    /// Text in quotes, unescaped. The same kind of quote inside is escaped with a backslash.
    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let start = self.at;
        let inner = &self.rest()[1..];
        let mut escaped = false;
        for (at, character) in inner.char_indices() {
            if escaped {
                escaped = false;
            } else if character == '\\' {
                escaped = true;
            } else if character == quote {
                self.at += 1 + at + 1;
                let decoded = unescape(&inner[..at]);
                return decoded
                    .map(Cow::into_owned)
                    .ok_or_else(|| self.error_from(start, "the quoted value holds an escape that means nothing"));
            }
        }
        self.at = self.text.len();
        Err(self.error_from(start, &format!("expected a closing quote `{quote}`")))
    }

    /// A name between dots: quoted, or word characters other than the dot.
    pub fn segment(&mut self, expected: &str) -> Result<String, SyntaxError> {
        if let Some(quote @ ('\'' | '"')) = self.rest().chars().next() {
            return self.quoted(quote);
        }
        match self.bare_segment() {
            "" => Err(self.error(&format!("expected {expected}"))),
            name => Ok(name.to_owned()),
        }
    }

    /// Word characters other than the dot; may be empty.
    pub fn bare_segment(&mut self) -> &'t str {
        let segment = leading(self.rest(), |character| is_word_char(character) && character != '.');
        self.at += segment.len();
        segment
    }

    /// A decimal number: sign, digits, point, exponent, with white space around. One that is too large is infinite: only whoever
    /// uses it refuses it.
    pub fn number(&mut self) -> Result<f64, SyntaxError> {
        self.skip_white();
        let start = self.at;
        let written = leading(self.rest(), |character| {
            character.is_ascii_digit() || matches!(character, '+' | '-' | '.' | 'e' | 'E')
        });
        self.at += written.len();
        let number = written.parse().map_err(|_| self.error_from(start, "expected a number"))?;
        self.skip_white();
        Ok(number)
    }

    /// An error at the current place.
    pub fn error(&self, what: &str) -> SyntaxError {
        SyntaxError::new(what, self.text, self.at..self.text.len())
    }

    /// An error about what was read since `start`, in bytes.
    pub fn error_from(&self, start: usize, what: &str) -> SyntaxError {
        SyntaxError::new(what, self.text, start..self.at)
    }
}

/// The longest beginning of `text` whose characters all satisfy `belongs`.
fn leading(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    &text[..text.find(|character| !belongs(character)).unwrap_or(text.len())]
}

fn is_white(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn is_word_char(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.')
}

/// Decodes backslash escapes; `None` for one that means nothing.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let kind = rest.chars().next()?;
        let after = &rest[kind.len_utf8()..];
        let (character, length) = match kind {
            'n' => ('\n', 1),
            't' => ('\t', 1),
            'r' => ('\r', 1),
            'b' => ('\u{8}', 1),
            'f' => ('\u{c}', 1),
            '\\' | '\'' | '"' | '/' => (kind, 1),
            'x' => (character_of(after.get(..2)?, 16)?, 3),
            'u' if after.starts_with('{') => {
                let digits = &after[1..after.find('}')?];
                (character_of(digits, 16)?, digits.len() + 3)
            }
            'u' => (character_of(after.get(..4)?, 16)?, 5),
            '0'..='7' => {
                let longest = if kind <= '3' { 3 } else { 2 };
                let digits = leading(rest, |digit| digit.is_digit(8));
                let digits = &digits[..digits.len().min(longest)];
                (character_of(digits, 8)?, digits.len())
            }
            _ => return None,
        };
        decoded.push(character);
        rest = &rest[length..];
    }
    decoded.push_str(rest);
    Some(Cow::Owned(decoded))
}

/// The character of a code written in digits; a sign is no digit.
fn character_of(digits: &str, radix: u32) -> Option<char> {
    if digits.starts_with('+') {
        return None;
    }
    u32::from_str_radix(digits, radix).ok().and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_decode_or_mean_nothing() {
        for (written, meant) in [
            (r"a\n\t\r\b\f\\\'\x22", "a\n\t\r\u{8}\u{c}\\'\""),
            (r"\/\x41\u00e9\u{1F600}", "/Aé😀"),
            (r"\101\60\7", "A0\u{7}"),
            (r"\1011", "A1"),
            (r"\477", "'7"),
            ("é", "é"),
        ] {
            assert_eq!(unescape(written).as_deref(), Some(meant), "{written}");
        }
        for nothing in [r"\q", r"\ud800", r"\uzzzz", r"\u12", r"\x", r"\x4", r"\u{}", r"\u{12", r"\x+1", r"\8", r"\é"]
        {
            assert_eq!(unescape(nothing), None, "{nothing}");
        }
    }
}
