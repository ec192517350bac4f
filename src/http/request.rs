//! Requests and responses as handlers see them, and the trait between handlers and the connection.
//!
//! A [`Head`] keeps the received bytes in one allocation and remembers where each field lies, so a request costs two allocations
//! however many headers a browser adds.

use std::fmt;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use serde::Serialize;
use smallvec::SmallVec;

/// The verb of a request. Names are compared with letter case, as HTTP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`; its answer never has a body.
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// Any other token; no route has it.
    Other,
}

impl Method {
    /// The method with this name.
    pub fn parse(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        }
    }

    /// Its name, as in a request line; `OTHER` for those that no route has.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Other => "OTHER",
        }
    }
}

/// Where one header lies in the bytes of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    name_start: u32,
    name_len: u32,
    value_start: u32,
    value_len: u32,
}

/// The headers of a request in the order they came, names compared without letter case.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    bytes: Vec<u8>,
    spans: SmallVec<[Span; 16]>,
}

impl Headers {
    /// Headers of these names and values, for tests and for requests that do not come from a socket.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::with_capacity(pairs.iter().map(|(name, value)| name.len() + value.len()).sum());
        for (name, value) in pairs {
            headers.push(name, value.as_bytes());
        }
        headers
    }

    /// No headers yet, with room for `byte_count` bytes of names and values.
    pub fn with_capacity(byte_count: usize) -> Headers {
        Headers { bytes: Vec::with_capacity(byte_count), spans: SmallVec::new() }
    }

    /// Adds one header at the end.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        let name_start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(value);
        self.spans.push(Span {
            name_start,
            name_len: name.len() as u32,
            value_start: name_start + name.len() as u32,
            value_len: value.len() as u32,
        });
    }

    /// The bytes of the first header of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The first header of this name, when it is UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Every value of this name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Whether a header of this name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names (as they were spelled) and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.spans.iter().map(|span| {
            let name = &self.bytes[span.name_start as usize..][..span.name_len as usize];
            let value = &self.bytes[span.value_start as usize..][..span.value_len as usize];
            (std::str::from_utf8(name).expect("names are pushed as text"), value)
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, value)| (name, String::from_utf8_lossy(value)))).finish()
    }
}

/// Everything of a request but its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The verb.
    pub method: Method,
    /// The path, still percent-encoded, with doubled slashes merged and trailing ones removed (the root stays `/`).
    pub path: String,
    /// What follows the first `?`, raw; empty when there is none.
    pub query: String,
    /// The headers.
    pub headers: Headers,
}

/// Why a request has no readable body. The service decides which error the client sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is larger than the limit that the service named.
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
        /// Whether `Content-Length` already said so.
        announced: bool,
        /// Whether the body was compressed; the limit counts the bytes after decompression.
        compressed: bool,
    },
    /// It is compressed by `encoding`, and the bytes cannot be decoded.
    Undecodable {
        /// `gzip`, `deflate` or `br`.
        encoding: &'static str,
    },
    /// It is to be read into values, and those would take more memory than there is for all requests.
    TooManyValues,
}

/// A whole request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The verb.
    pub method: Method,
    /// As in [`Head`].
    pub path: String,
    /// As in [`Head`].
    pub query: String,
    /// The headers.
    pub headers: Headers,
    /// The body, decompressed; empty when there was none. A body that could not be read is no reason to skip the checks
    /// that come before it (authorization, path), so its error comes along.
    pub body: Result<Vec<u8>, BodyError>,
}

impl Request {
    /// A request without a body, for tests.
    pub fn new(method: Method, path: &str) -> Request {
        Request {
            method,
            path: path.to_owned(),
            query: String::new(),
            headers: Headers::default(),
            body: Ok(Vec::new()),
        }
    }

    /// The request that this head and body make.
    pub fn from_parts(head: Head, body: Result<Vec<u8>, BodyError>) -> Request {
        Request { method: head.method, path: head.path, query: head.query, headers: head.headers, body }
    }
}

/// What follows the head of a response.
pub enum ResponseBody {
    /// All of it.
    Bytes(Vec<u8>),
    /// Pieces as they come, sent as chunks and never compressed. Dropped when the client goes.
    Stream(LocalBoxStream<'static, Vec<u8>>),
    /// As [`Self::Stream`], without an end of its own: what has come is all there is when the server stops.
    Endless(LocalBoxStream<'static, Vec<u8>>),
}

impl ResponseBody {
    /// The bytes, unless it is a stream.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            ResponseBody::Bytes(bytes) => Some(bytes),
            ResponseBody::Stream(_) | ResponseBody::Endless(_) => None,
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponseBody::Bytes(bytes) => f.debug_tuple("Bytes").field(&String::from_utf8_lossy(bytes)).finish(),
            ResponseBody::Stream(_) => f.write_str("Stream"),
            ResponseBody::Endless(_) => f.write_str("Endless"),
        }
    }
}

/// An answer. The connection adds the length, the CORS and `Vary` headers, and compresses the body where it was asked to.
#[derive(Debug)]
pub struct Response {
    /// The status code, 100 to 599.
    pub status: u16,
    /// Headers beside those that the connection adds; values hold no line breaks (they are replaced by blanks).
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: ResponseBody,
}

impl Response {
    /// An answer without a body and without a content type.
    pub fn empty(status: u16) -> Response {
        Response { status, headers: Vec::new(), body: ResponseBody::Bytes(Vec::new()) }
    }

    /// An answer whose body is this text, which must be JSON.
    pub fn json(status: u16, body: Vec<u8>) -> Response {
        Response::with_type(status, "application/json", body)
    }

    /// An answer whose body is `value` written as JSON. A value that serde_json cannot write (a map whose keys are not
    /// strings) is a defect of the caller and becomes an empty 500.
    pub fn from_json<T: Serialize>(status: u16, value: &T) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response::json(status, body),
            Err(error) => {
                tracing::error!(%error, "cannot serialize a response as JSON");
                Response::empty(500)
            }
        }
    }

    /// An answer of any content type.
    pub fn with_type(status: u16, content_type: &str, body: Vec<u8>) -> Response {
        Response { status, headers: vec![("Content-Type", content_type.to_owned())], body: ResponseBody::Bytes(body) }
    }

    /// The same answer with one more header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }
}

/// What answers requests: one for each core, shared by its connections.
pub trait Service {
    /// Called when the head has been read and before the body is: `Ok` is the largest body in bytes after decompression
    /// that is to be read, `Err` the final answer (401, 404...), after which the body is thrown away unread.
    fn admit(&self, head: &Head) -> Result<u64, Response>;

    /// Whether the body is read into JSON values, which take many times its length: room for those is then found before
    /// the request is answered.
    fn reads_values(&self, _head: &Head) -> bool {
        false
    }

    /// Whether a request does nothing but read: what is under way of its answer may then be dropped when its client has gone.
    fn only_reads(&self, _method: Method, _path: &str) -> bool {
        false
    }

    /// Answers one request. A panic inside is caught and becomes a 500.
    fn call(&self, request: Request) -> LocalBoxFuture<'static, Response>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_without_letter_case_and_in_order() {
        let headers = Headers::from_pairs(&[("Accept", "a"), ("X-Two", "1"), ("x-two", "2"), ("Empty", "")]);
        assert_eq!(headers.get_str("ACCEPT"), Some("a"));
        assert_eq!(headers.all("x-TWO").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(headers.get("empty"), Some(&b""[..]));
        assert_eq!(headers.get("absent"), None);
        assert_eq!(headers.len(), 4);
    }

    #[test]
    fn method_names_have_letter_case() {
        assert_eq!(Method::parse("GET"), Method::Get);
        assert_eq!(Method::parse("get"), Method::Other);
    }
}
