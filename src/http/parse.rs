//! Parses request heads and bodies strictly: input that two implementations could understand differently is rejected, so that no
//! proxy in front of this server can be misled about where a request ends.
//!
//! Both parsers are plain state machines over whatever bytes have arrived. Their results do not depend on how the input was
//! split, which the tests check.

use super::request::{Head, Headers, Method};

/// The largest head (request line and headers), in bytes.
pub const HEAD_BYTES_MAX: usize = 72 * 1024;
/// The longest request target, in bytes. A `GET` search carries its filter here.
pub const TARGET_BYTES_MAX: usize = 64 * 1024 - 2;
/// The most headers of one request.
pub const HEADERS_MAX: usize = 100;
/// The longest line between chunks (size and extensions) and the most bytes of trailers.
pub const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;
/// Digits of a chunk's size: enough for any size that fits 60 bits.
const CHUNK_SIZE_DIGITS_MAX: usize = 15;

/// Why bytes are no request. The connection answers with [`ParseError::status`] and closes, because it cannot know where
/// the next request would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not HTTP, or against its grammar.
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    /// The target is longer than [`TARGET_BYTES_MAX`].
    #[error("the request target is longer than {TARGET_BYTES_MAX} bytes")]
    TargetTooLong,
    /// More bytes than [`HEAD_BYTES_MAX`] or more headers than [`HEADERS_MAX`].
    #[error("the head is larger than {HEAD_BYTES_MAX} bytes or has more than {HEADERS_MAX} headers")]
    HeadTooLarge,
    /// A transfer coding other than `chunked`.
    #[error("the only transfer coding that is understood is `chunked`")]
    UnknownTransferCoding,
    /// Another version than 1.0 and 1.1.
    #[error("only HTTP/1.0 and HTTP/1.1 are spoken here")]
    UnknownVersion,
    /// An `Expect` other than `100-continue`.
    #[error("the only expectation that can be met is `100-continue`")]
    UnknownExpectation,
}

impl ParseError {
    /// The status to answer with.
    pub fn status(self) -> u16 {
        match self {
            ParseError::Malformed(_) => 400,
            ParseError::TargetTooLong => 414,
            ParseError::HeadTooLarge => 431,
            ParseError::UnknownTransferCoding => 501,
            ParseError::UnknownVersion => 505,
            ParseError::UnknownExpectation => 417,
        }
    }
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes; 0 when there is no body.
    Length(u64),
    /// Chunks up to one of size 0.
    Chunked,
}

/// A head together with what the connection must know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedHead {
    /// What the service sees.
    pub head: Head,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the client wants another request on this connection.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether it speaks HTTP/1.0, to which no chunks may be sent.
    pub is_http_10: bool,
}

/// Finds the end of a head in input that arrives in pieces, looking at each byte once.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScanner {
    scanned: usize,
    line_start: usize,
    lines: usize,
}

impl HeadScanner {
    /// Looks at `input`, which begins with what was there at the last call. Returns the length of the head with the empty
    /// line that ends it, or `None` while that is still to come.
    pub fn find_end(&mut self, input: &[u8]) -> Result<Option<usize>, ParseError> {
        if self.scanned == 0 && input.first().is_some_and(|byte| !is_token_byte(*byte)) {
            return Err(ParseError::Malformed("it does not begin with a method"));
        }
        let end = input.len().min(HEAD_BYTES_MAX);
        while let Some(offset) = memchr::memchr(b'\n', &input[self.scanned.min(end)..end]) {
            let line_feed = self.scanned + offset;
            if line_feed == 0 || input[line_feed - 1] != b'\r' {
                return Err(ParseError::Malformed("a line does not end with CR and LF"));
            }
            if line_feed - self.line_start == 1 {
                return Ok(Some(line_feed + 1));
            }
            self.lines += 1;
            self.scanned = line_feed + 1;
            self.line_start = self.scanned;
            if self.lines > HEADERS_MAX + 1 {
                return Err(ParseError::HeadTooLarge);
            }
        }
        self.scanned = end;
        if self.lines == 0 && end > TARGET_BYTES_MAX + 32 {
            return Err(ParseError::TargetTooLong);
        }
        if input.len() >= HEAD_BYTES_MAX { Err(ParseError::HeadTooLarge) } else { Ok(None) }
    }
}

/// How many bytes of empty lines stand before a request: one CRLF is allowed there, for clients that send one after a body.
/// `None` while more input is needed to tell.
pub fn leading_blank_len(input: &[u8]) -> Option<usize> {
    match input {
        [b'\r'] | [] => None,
        [b'\r', b'\n', ..] => Some(2),
        _ => Some(0),
    }
}

/// Parses one complete head, `bytes` ending with the empty line that [`HeadScanner`] found.
pub fn parse_head(bytes: &[u8]) -> Result<ParsedHead, ParseError> {
    let mut slots = [const { std::mem::MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut slots) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(ParseError::Malformed("the head does not end where its empty line is")),
        Err(error) => return Err(head_error(error)),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(ParseError::Malformed("the request line is incomplete"));
    };
    if target.len() > TARGET_BYTES_MAX {
        return Err(ParseError::TargetTooLong);
    }
    let mut headers = Headers::with_capacity(bytes.len());
    for header in request.headers.iter() {
        headers.push(header.name, header.value);
    }
    let method = Method::parse(method);
    let (path, query) = split_target(target, method)?;
    let is_http_10 = minor == 0;
    check_host(&headers, is_http_10)?;
    let framing = framing_of(&headers, is_http_10)?;
    let keep_alive = keeps_alive(&headers, is_http_10);
    let expects_continue = expects_continue(&headers)? && !is_http_10 && framing != Framing::Length(0);
    Ok(ParsedHead { head: Head { method, path, query, headers }, framing, keep_alive, expects_continue, is_http_10 })
}

fn head_error(error: httparse::Error) -> ParseError {
    match error {
        httparse::Error::TooManyHeaders => ParseError::HeadTooLarge,
        httparse::Error::Version => ParseError::UnknownVersion,
        httparse::Error::HeaderName => ParseError::Malformed("the name of a header is invalid"),
        httparse::Error::HeaderValue => ParseError::Malformed("the value of a header is invalid"),
        httparse::Error::NewLine => ParseError::Malformed("a line ends wrongly"),
        httparse::Error::Token | httparse::Error::Status => ParseError::Malformed("the request line is invalid"),
    }
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The normalised path and the raw query of a request target.
fn split_target(target: &str, method: Method) -> Result<(String, String), ParseError> {
    if target == "*" && method == Method::Options {
        return Ok(("*".to_owned(), String::new()));
    }
    let local = if target.starts_with('/') { target } else { without_authority(target)? };
    // A fragment is for the client alone.
    let local = local.split_once('#').map_or(local, |(local, _)| local);
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    // Clients escape these. The reference refuses each of them in the one part and not always in the other.
    if path.contains(['<', '>', '`']) || query.contains(['<', '>', '"']) {
        return Err(ParseError::Malformed("the request target holds a character that must be escaped"));
    }
    Ok((normalise_path(path), query.to_owned()))
}

/// What follows `http://authority` in a target of the absolute form.
fn without_authority(target: &str) -> Result<&str, ParseError> {
    const WRONG: ParseError = ParseError::Malformed("the request target is neither a path nor an absolute URL");
    let (scheme, rest) = target.split_once("://").ok_or(WRONG)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(WRONG);
    }
    let authority_len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if authority_len == 0 {
        return Err(WRONG);
    }
    Ok(&rest[authority_len..])
}

/// The path with slashes merged and without those at its end.
fn normalise_path(path: &str) -> String {
    let mut normal = String::with_capacity(path.len().max(1));
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        normal.push('/');
        normal.push_str(segment);
    }
    if normal.is_empty() {
        normal.push('/');
    }
    normal
}

/// HTTP/1.1 wants exactly one `Host`; two of them are how requests are smuggled past a virtual host.
fn check_host(headers: &Headers, is_http_10: bool) -> Result<(), ParseError> {
    let mut hosts = headers.all("host");
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        (None, None) if is_http_10 => return Ok(()),
        (None, None) => return Err(ParseError::Malformed("the Host header is missing")),
        (_, Some(_)) => return Err(ParseError::Malformed("there is more than one Host header")),
    };
    let fits = host.iter().all(|byte| byte.is_ascii_graphic() && !b"/?#@\\,<>\"".contains(byte));
    if fits { Ok(()) } else { Err(ParseError::Malformed("the Host header is invalid")) }
}

/// Where the body ends. `Content-Length` must be there once and hold digits alone; it excludes `Transfer-Encoding`, of
/// which only a single `chunked` is known.
fn framing_of(headers: &Headers, is_http_10: bool) -> Result<Framing, ParseError> {
    let mut lengths = headers.all("content-length");
    let (length, second_length) = (lengths.next(), lengths.next());
    let mut codings = headers.all("transfer-encoding");
    let (coding, second_coding) = (codings.next(), codings.next());
    if second_length.is_some() || second_coding.is_some() {
        return Err(ParseError::Malformed("the header that says where the body ends is there twice"));
    }
    match (length, coding) {
        (None, None) => Ok(Framing::Length(0)),
        (Some(_), Some(_)) => {
            Err(ParseError::Malformed("both Content-Length and Transfer-Encoding say where the body ends"))
        }
        (Some(length), None) => parse_length(length).map(Framing::Length),
        (None, Some(_)) if is_http_10 => Err(ParseError::Malformed("HTTP/1.0 has no Transfer-Encoding")),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (None, Some(_)) => Err(ParseError::UnknownTransferCoding),
    }
}

fn parse_length(value: &[u8]) -> Result<u64, ParseError> {
    const WRONG: ParseError = ParseError::Malformed("Content-Length is not a whole number that fits 64 bits");
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(WRONG);
    }
    std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()).ok_or(WRONG)
}

pub(crate) fn has_token(headers: &Headers, name: &str, token: &str) -> bool {
    headers
        .all(name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

fn keeps_alive(headers: &Headers, is_http_10: bool) -> bool {
    if has_token(headers, "connection", "close") {
        return false;
    }
    !is_http_10 || has_token(headers, "connection", "keep-alive")
}

fn expects_continue(headers: &Headers) -> Result<bool, ParseError> {
    let mut is_expected = false;
    for value in headers.all("expect") {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(ParseError::UnknownExpectation);
        }
        is_expected = true;
    }
    Ok(is_expected)
}

/// What a [`BodyDecoder`] made of some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that belong to this body and need not be shown again.
    pub consumed: usize,
    /// Whether the body is complete; what follows is the next request.
    pub done: bool,
}

/// Takes the framing off a body.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: BodyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    /// So many bytes to the end of the body.
    Length(u64),
    /// Before or among the digits of a chunk's size.
    Size { digits: usize, size: u64 },
    /// In the extensions after a size; `seen` bytes of them so far.
    Extension { size: u64, seen: usize },
    /// After the CR of a size line.
    SizeLineFeed { size: u64 },
    /// In a chunk, so many bytes before its end.
    Data { left: u64 },
    /// After a chunk's data.
    DataReturn,
    /// After the CR behind a chunk's data.
    DataLineFeed,
    /// In the trailers; `line` bytes of the current line, `seen` of all; whether the line's name has ended.
    Trailer { line: usize, seen: usize, is_named: bool },
    /// After the CR of a trailer line.
    TrailerLineFeed { line: usize, seen: usize },
    /// The body is complete.
    Done,
}

impl BodyDecoder {
    /// A decoder at the start of a body.
    pub fn new(framing: Framing) -> BodyDecoder {
        let state = match framing {
            Framing::Length(0) => BodyState::Done,
            Framing::Length(length) => BodyState::Length(length),
            Framing::Chunked => BodyState::Size { digits: 0, size: 0 },
        };
        BodyDecoder { state }
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == BodyState::Done
    }

    /// Reads from `input`, handing the bytes of the body to `take` piece by piece, and stops at the end of the body or of
    /// the input. Call again with what follows.
    pub fn decode(&mut self, input: &[u8], mut take: impl FnMut(&[u8])) -> Result<Decoded, ParseError> {
        let mut consumed = 0;
        while consumed < input.len() && !self.is_done() {
            let rest = &input[consumed..];
            match self.state {
                BodyState::Length(left) => {
                    let taken = clamp(left, rest.len());
                    take(&rest[..taken]);
                    consumed += taken;
                    let left = left - taken as u64;
                    self.state = if left == 0 { BodyState::Done } else { BodyState::Length(left) };
                }
                BodyState::Data { left } => {
                    let taken = clamp(left, rest.len());
                    take(&rest[..taken]);
                    consumed += taken;
                    let left = left - taken as u64;
                    self.state = if left == 0 { BodyState::DataReturn } else { BodyState::Data { left } };
                }
                _ => {
                    self.state = self.state.after_byte(rest[0])?;
                    consumed += 1;
                }
            }
        }
        Ok(Decoded { consumed, done: self.is_done() })
    }
}

/// The smaller of the two, as a length in memory.
fn clamp(left: u64, available: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(available)
}

impl BodyState {
    /// The state after one byte of the lines around chunks.
    fn after_byte(self, byte: u8) -> Result<BodyState, ParseError> {
        match (self, byte) {
            (BodyState::Size { digits, size }, byte) => size_byte(digits, size, byte),
            (BodyState::Extension { size, .. }, b'\r') => Ok(BodyState::SizeLineFeed { size }),
            (BodyState::Extension { size, seen }, byte) if is_line_byte(byte) && seen < CHUNK_LINE_BYTES_MAX => {
                Ok(BodyState::Extension { size, seen: seen + 1 })
            }
            (BodyState::Extension { .. }, _) => Err(ParseError::Malformed("the extension of a chunk is invalid")),
            (BodyState::SizeLineFeed { size: 0 }, b'\n') => {
                Ok(BodyState::Trailer { line: 0, seen: 0, is_named: false })
            }
            (BodyState::SizeLineFeed { size }, b'\n') => Ok(BodyState::Data { left: size }),
            (BodyState::DataReturn, b'\r') => Ok(BodyState::DataLineFeed),
            (BodyState::DataLineFeed, b'\n') => Ok(BodyState::Size { digits: 0, size: 0 }),
            (BodyState::Trailer { line, seen, is_named }, b'\r') if is_named || line == 0 => {
                Ok(BodyState::TrailerLineFeed { line, seen })
            }
            (BodyState::Trailer { line, seen, is_named }, byte) => trailer_byte(line, seen, is_named, byte),
            (BodyState::TrailerLineFeed { line: 0, .. }, b'\n') => Ok(BodyState::Done),
            (BodyState::TrailerLineFeed { seen, .. }, b'\n') => {
                Ok(BodyState::Trailer { line: 0, seen, is_named: false })
            }
            _ => Err(ParseError::Malformed("a chunk does not end with CR and LF")),
        }
    }
}

fn size_byte(digits: usize, size: u64, byte: u8) -> Result<BodyState, ParseError> {
    if let Some(digit) = char::from(byte).to_digit(16) {
        if digits == CHUNK_SIZE_DIGITS_MAX {
            return Err(ParseError::Malformed("the size of a chunk has too many digits"));
        }
        return Ok(BodyState::Size { digits: digits + 1, size: size * 16 + u64::from(digit) });
    }
    match byte {
        b'\r' if digits > 0 => Ok(BodyState::SizeLineFeed { size }),
        b';' if digits > 0 => Ok(BodyState::Extension { size, seen: 0 }),
        _ => Err(ParseError::Malformed("the size of a chunk is not hexadecimal")),
    }
}

/// Trailers are read and thrown away, but each has a name and a colon, and no control bytes.
fn trailer_byte(line: usize, seen: usize, is_named: bool, byte: u8) -> Result<BodyState, ParseError> {
    let ends_name = !is_named && line > 0 && byte == b':';
    if !(ends_name || if is_named { is_line_byte(byte) } else { is_token_byte(byte) }) {
        return Err(ParseError::Malformed("a trailer is invalid"));
    }
    if seen >= CHUNK_LINE_BYTES_MAX {
        return Err(ParseError::HeadTooLarge);
    }
    Ok(BodyState::Trailer { line: line + 1, seen: seen + 1, is_named: is_named || ends_name })
}

fn is_line_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests;
