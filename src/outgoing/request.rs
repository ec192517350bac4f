//! A request to be made.

use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::{Position, Url};

use super::error::SendError;
use crate::http::Method;
use crate::http::parse::is_token_byte;

/// Redirects followed when the caller does not say.
const REDIRECTS_MAX: u8 = 10;
/// What the server calls itself.
const USER_AGENT: &str = concat!("Skerry/", env!("CARGO_PKG_VERSION"));

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For the name, the connection and the TLS handshake, together.
    pub connect: Duration,
    /// Without a byte moving in either direction, which includes the wait for the answer's first byte.
    pub idle: Duration,
    /// For everything, redirects and the reading of the body included.
    pub total: Duration,
}

impl Deadlines {
    /// One bound for everything.
    pub fn all(total: Duration) -> Self {
        Self { connect: total, idle: total, total }
    }
}

/// A request to be made. Cheap to clone: the body is shared, so that it can be sent again.
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Rc<Vec<u8>>,
    pub(super) deadlines: Deadlines,
    pub(super) redirects_max: u8,
    pub(super) keeps_alive: bool,
    /// Bytes of a body that comes from elsewhere while it is sent.
    pub(super) streamed_bytes: Option<u64>,
    is_repeatable: bool,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: Method, url: Url, deadlines: Deadlines) -> Self {
        Self {
            method,
            url,
            headers: Vec::new(),
            body: Rc::default(),
            deadlines,
            redirects_max: REDIRECTS_MAX,
            keeps_alive: true,
            streamed_bytes: None,
            is_repeatable: matches!(
                method,
                Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options
            ),
        }
    }

    /// Adds a header. One that cannot be written makes sending fail.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds `Authorization: Bearer`, when there is a key.
    pub fn bearer(self, key: Option<&str>) -> Self {
        match key {
            Some(key) => self.header("Authorization", format!("Bearer {key}")),
            None => self,
        }
    }

    /// Sets the body and its type.
    pub fn body(mut self, content_type: &str, body: impl Into<Rc<Vec<u8>>>) -> Self {
        self.body = body.into();
        self.header("Content-Type", content_type)
    }

    /// Follows at most so many redirects; 0 gives the redirect itself as the answer.
    pub fn redirects_max(mut self, count: u8) -> Self {
        self.redirects_max = count;
        self
    }

    /// Closes the connection after the answer, and takes a fresh one.
    pub fn closes(mut self) -> Self {
        self.keeps_alive = false;
        self
    }

    /// Says that sending it twice does what sending it once does, whatever its method.
    pub fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    /// Whether sending it twice does what sending it once does.
    pub(super) fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// The head as it goes over the wire.
    pub(super) fn head(&self) -> Result<Vec<u8>, SendError> {
        let target = &self.url[Position::BeforePath..Position::AfterQuery];
        let target = if target.is_empty() { "/" } else { target };
        let host = &self.url[Position::BeforeHost..Position::AfterPort];
        let mut head = format!("{} {target} HTTP/1.1\r\n", self.method.as_str());
        let has = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !has("host") {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        if !has("user-agent") {
            head.push_str(&format!("User-Agent: {USER_AGENT}\r\n"));
        }
        if !has("accept") {
            head.push_str("Accept: */*\r\n");
        }
        if !has("authorization") && !self.url.username().is_empty() {
            head.push_str(&format!("Authorization: {}\r\n", basic_authorization(&self.url)));
        }
        if !self.keeps_alive {
            head.push_str("Connection: close\r\n");
        }
        if !self.body.is_empty() || matches!(self.method, Method::Post | Method::Put | Method::Patch) {
            let length = self.streamed_bytes.unwrap_or(self.body.len() as u64);
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        for (name, value) in &self.headers {
            if !is_header_name(name) || !is_header_value(value) {
                return Err(SendError::Header(name.clone()));
            }
            if is_ours(name) {
                continue;
            }
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Ok(head.into_bytes())
    }

    /// The request that an answer of this status and place leads to; `None` when it leads nowhere. A secret is not carried
    /// to another host.
    pub(super) fn redirected(&self, status: u16, location: Option<&[u8]>) -> Option<Self> {
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = std::str::from_utf8(location?).ok()?;
        let url = self.url.join(location).ok()?;
        let mut next = self.clone();
        if status < 307 && !matches!(next.method, Method::Get | Method::Head) {
            next.method = Method::Get;
            next.body = Rc::default();
            next.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
        }
        let origin =
            |url: &Url| (url.scheme().to_owned(), url.host_str().map(String::from), url.port_or_known_default());
        if origin(&url) != origin(&self.url) {
            let secret = ["authorization", "cookie", "proxy-authorization"];
            next.headers.retain(|(name, _)| !secret.contains(&name.to_ascii_lowercase().as_str()));
        }
        next.url = url;
        Some(next)
    }
}

/// Headers that decide where a message ends are written here and nowhere else; a caller's are left out.
fn is_ours(name: &str) -> bool {
    ["content-length", "transfer-encoding", "connection"].iter().any(|ours| name.eq_ignore_ascii_case(ours))
}

fn basic_authorization(url: &Url) -> String {
    let decoded = |text: &str| crate::api::decode::percent_decode(text, false);
    let pair = format!("{}:{}", decoded(url.username()), decoded(url.password().unwrap_or_default()));
    format!("Basic {}", STANDARD.encode(pair))
}

/// Whether a text can be the name of a header.
pub fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Whether a text can be the value of a header: no control characters but the tab.
pub fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, url: &str) -> Request {
        Request::new(method, Url::parse(url).unwrap(), Deadlines::all(Duration::from_secs(1)))
    }

    fn head(request: &Request) -> String {
        String::from_utf8(request.head().unwrap()).unwrap()
    }

    #[test]
    fn the_head_names_target_host_and_length() {
        let get = head(&request(Method::Get, "http://h.example?q=1#part"));
        assert!(get.starts_with("GET /?q=1 HTTP/1.1\r\nHost: h.example\r\n") && get.ends_with("\r\n\r\n"), "{get}");
        assert!(!get.contains("Content-Length"));
        let post = request(Method::Post, "https://u:p%40@[::1]:8/a%20b").body("text/x", vec![0; 3]).closes();
        let post = head(&post);
        assert!(post.starts_with("POST /a%20b HTTP/1.1\r\nHost: [::1]:8\r\n"), "{post}");
        for part in ["Content-Length: 3\r\n", "Content-Type: text/x\r\n", "Connection: close\r\n", "Basic dTpwQA=="] {
            assert!(post.contains(part), "{part} in {post}");
        }
    }

    /// A name or value with a line break would let whoever chose it write headers, or another request.
    #[test]
    fn headers_cannot_break_out() {
        for (name, value) in [("a b", "x"), ("", "x"), ("a", "x\r\nb: y"), ("é", "x"), ("a", "\u{0}")] {
            let refused = request(Method::Get, "http://h").header(name, value).head();
            assert_eq!(refused, Err(SendError::Header(name.into())));
        }
        assert!(request(Method::Get, "http://h").header("X", "é\t ").head().is_ok());
        let own =
            head(&request(Method::Get, "http://h").header("Host", "other").header("Transfer-Encoding", "chunked"));
        assert!(own.contains("Host: other\r\n") && !own.contains("Host: h") && !own.contains("chunked"), "{own}");
    }

    #[test]
    fn redirects_keep_what_they_may() {
        let post = request(Method::Post, "http://h/a/b").body("text/x", vec![1]).header("Authorization", "s");
        assert!(post.redirected(200, Some(b"/c")).is_none() && post.redirected(302, None).is_none());
        let found = post.redirected(302, Some(b"../c?d")).unwrap();
        assert_eq!((found.method, found.url.as_str()), (Method::Get, "http://h/c?d"));
        assert_eq!(found.headers, [("Authorization".to_owned(), "s".to_owned())]);
        assert!(found.body.is_empty());
        let moved = post.redirected(308, Some(b"http://other/")).unwrap();
        assert_eq!((moved.method, moved.body.len(), moved.headers.len()), (Method::Post, 1, 1));
    }
}
