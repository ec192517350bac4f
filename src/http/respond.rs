//! Serializes responses: head and body as one run of bytes, with length, CORS, `Vary` and `Retry-After` headers.

use super::compress::{self, Coding};
use super::parse::is_token_byte;
use super::request::{Head, Method, Response, ResponseBody};

/// What answers vary by that do not say it themselves.
const VARY_ORIGIN: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
/// Every method, as a preflight lists them.
const ALL_METHODS: &str = "GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, PATCH";
/// Seconds for which a browser may keep the answer to a preflight.
const PREFLIGHT_AGE_SECONDS: &str = "86400";
/// Seconds after which a client that got a 503 may come back.
const RETRY_AFTER_SECONDS: &str = "10";
/// The interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What of a request decides how its answer is written.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Whether it was `HEAD`: the answer has no body, only its length.
    pub is_head: bool,
    /// Whether it had an `Origin`.
    pub has_origin: bool,
    /// The coding that the client wants most.
    pub coding: Option<Coding>,
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// Whether the client knows no chunks.
    pub is_http_10: bool,
}

impl Manner {
    /// The manner of answering this request.
    pub fn of(head: &Head, keep_alive: bool, is_http_10: bool) -> Manner {
        Manner {
            is_head: head.method == Method::Head,
            has_origin: head.headers.contains("origin"),
            coding: compress::negotiate(head.headers.all("accept-encoding")),
            keep_alive,
            is_http_10,
        }
    }

    /// The manner of answering what was no request; the connection closes after it.
    pub fn unknown() -> Manner {
        Manner { is_head: false, has_origin: false, coding: None, keep_alive: false, is_http_10: false }
    }
}

/// The answer to a CORS preflight: `OPTIONS` with the name of a method in `Access-Control-Request-Method`, on any path. `None`
/// for every other request.
pub fn preflight(head: &Head) -> Option<Response> {
    let method = head.headers.get_str("access-control-request-method").filter(|_| head.method == Method::Options)?;
    if method.is_empty() || !method.bytes().all(is_token_byte) {
        return None;
    }
    if !ALL_METHODS.split(", ").any(|known| known == method) {
        return Some(plain(400, "Requested method is not allowed"));
    }
    let mut response = Response::empty(200)
        .header("Access-Control-Allow-Methods", ALL_METHODS)
        .header("Access-Control-Max-Age", PREFLIGHT_AGE_SECONDS);
    if !head.headers.contains("origin") {
        response = response.header("Access-Control-Allow-Origin", "*");
    }
    if let Some(names) = head.headers.get_str("access-control-request-headers") {
        response = response.header("Access-Control-Allow-Headers", names);
    }
    Some(response)
}

/// The answer to a client that takes none of the codings that answers can be in, nor one without. `None` for all others.
pub fn unacceptable(head: &Head) -> Option<Response> {
    let refused = compress::is_unacceptable(head.headers.all("accept-encoding"));
    refused.then(|| plain(406, "br, gzip, deflate").header("Vary", "Accept-Encoding"))
}

/// A text for people, of no type.
fn plain(status: u16, text: &str) -> Response {
    Response { body: ResponseBody::Bytes(text.into()), ..Response::empty(status) }
}

/// How the end of an answer's body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body and no word of it, as with 204 and 304.
    None,
    /// So many bytes.
    Bytes(usize),
    /// Chunks.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// How the end of this answer's body will be told.
pub fn body_length(response: &Response, manner: Manner) -> BodyLength {
    match &response.body {
        _ if response.status == 204 || response.status == 304 => BodyLength::None,
        ResponseBody::Bytes(bytes) => BodyLength::Bytes(bytes.len()),
        ResponseBody::Stream(_) | ResponseBody::Endless(_) if manner.is_http_10 => BodyLength::UntilClose,
        ResponseBody::Stream(_) | ResponseBody::Endless(_) => BodyLength::Chunked,
    }
}

/// Appends the head of `response` to `output`. `coded` is the coding that its body is in already. `date` is the value of the
/// `Date` header.
pub fn write_head(output: &mut Vec<u8>, response: &Response, manner: Manner, coded: Option<Coding>, date: &str) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(itoa::Buffer::new().format(response.status).as_bytes());
    output.push(b' ');
    output.extend_from_slice(reason(response.status).as_bytes());
    output.extend_from_slice(b"\r\n");
    let length = body_length(response, manner);
    match length {
        BodyLength::None | BodyLength::UntilClose => {}
        BodyLength::Bytes(length) => write_field(output, "Content-Length", itoa::Buffer::new().format(length)),
        BodyLength::Chunked => write_field(output, "Transfer-Encoding", "chunked"),
    }
    if !manner.keep_alive || length == BodyLength::UntilClose {
        write_field(output, "Connection", "close");
    } else if manner.is_http_10 {
        write_field(output, "Connection", "keep-alive");
    }
    for (name, value) in &response.headers {
        write_field(output, name, value);
    }
    let has = |wanted: &str| response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    if !has("vary") {
        write_field(output, "Vary", VARY_ORIGIN);
    }
    if let Some(coding) = coded {
        write_field(output, "Content-Encoding", coding.name());
        write_field(output, "Vary", "accept-encoding");
    }
    if manner.has_origin {
        write_field(output, "Access-Control-Allow-Origin", "*");
    }
    if response.status == 503 && !has("retry-after") {
        write_field(output, "Retry-After", RETRY_AFTER_SECONDS);
    }
    if !date.is_empty() {
        write_field(output, "Date", date);
    }
    output.extend_from_slice(b"\r\n");
}

/// One header line. A line break or a NUL in a value becomes a blank: a value that echoes a request cannot add headers.
fn write_field(output: &mut Vec<u8>, name: &str, value: &str) {
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(b": ");
    output.extend(value.bytes().map(|byte| if matches!(byte, b'\r' | b'\n' | 0) { b' ' } else { byte }));
    output.extend_from_slice(b"\r\n");
}

/// Appends one chunk; an empty piece is left out, since a chunk of size 0 ends the body.
pub fn write_chunk(output: &mut Vec<u8>, piece: &[u8]) {
    if piece.is_empty() {
        return;
    }
    output.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
    output.extend_from_slice(piece);
    output.extend_from_slice(b"\r\n");
}

/// The chunk that ends a body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The phrase of a status, for people who read wires.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Headers;
    use super::*;

    fn head(method: Method, headers: &[(&str, &str)]) -> Head {
        Head { method, path: "/indexes".into(), query: String::new(), headers: Headers::from_pairs(headers) }
    }

    fn written(response: &Response, manner: Manner, coded: Option<Coding>) -> String {
        let mut output = Vec::new();
        write_head(&mut output, response, manner, coded, "");
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn an_ordinary_head_has_length_type_and_vary() {
        let manner = Manner::of(&head(Method::Get, &[]), true, false);
        assert_eq!(
            written(&Response::json(200, b"{}".to_vec()), manner, None),
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\
             Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\n\r\n"
        );
    }

    #[test]
    fn an_empty_answer_says_so_unless_its_status_does() {
        let manner = Manner::of(&head(Method::Get, &[]), false, false);
        let not_found = written(&Response::empty(404), manner, None);
        assert!(not_found.contains("Content-Length: 0\r\n") && !not_found.contains("Content-Type"));
        assert!(not_found.contains("Connection: close\r\n"));
        assert!(!written(&Response::empty(204), manner, None).contains("Content-Length"));
    }

    #[test]
    fn origins_are_allowed_and_only_when_named() {
        let plain = Manner::of(&head(Method::Get, &[]), true, false);
        assert!(!written(&Response::empty(404), plain, None).contains("Access-Control-Allow"));
        let origin = Manner::of(&head(Method::Get, &[("Origin", "http://a")]), true, false);
        assert!(written(&Response::empty(404), origin, None).contains("Access-Control-Allow-Origin: *\r\n"));
    }

    #[test]
    fn a_preflight_is_answered_for_any_path() {
        let asking = [
            ("Origin", "http://a"),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization,x-meili"),
        ];
        let request = head(Method::Options, &asking);
        let response = preflight(&request).unwrap();
        let text = written(&response, Manner::of(&request, true, false), None);
        for line in [
            "HTTP/1.1 200 OK\r\n",
            "Access-Control-Allow-Origin: *\r\n",
            "Access-Control-Allow-Headers: authorization,x-meili\r\n",
            "Access-Control-Max-Age: 86400\r\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(preflight(&head(Method::Options, &asking[..1])).is_none());
        assert!(preflight(&head(Method::Get, &asking)).is_none());
    }

    #[test]
    fn a_preflight_names_a_method_that_there_is() {
        let asked = |method| preflight(&head(Method::Options, &[("Access-Control-Request-Method", method)]));
        assert_eq!(asked("PATCH").map(|response| response.status), Some(200));
        for unknown in ["FOO", "post"] {
            assert_eq!(asked(unknown).map(|response| response.status), Some(400), "{unknown}");
        }
        for no_name in ["", "GET POST"] {
            assert_eq!(asked(no_name).map(|response| response.status), None, "{no_name}");
        }
    }

    #[test]
    fn a_coded_answer_varies_by_coding_too() {
        let manner = Manner::of(&head(Method::Get, &[("Accept-Encoding", "gzip")]), true, false);
        let text = written(&Response::json(200, b"x".to_vec()), manner, manner.coding);
        assert!(text.contains("Content-Encoding: gzip\r\nVary: accept-encoding\r\n"));
        assert!(text.contains(&format!("Vary: {VARY_ORIGIN}\r\n")));
    }

    /// A value that a client can influence must not be able to start a second answer.
    #[test]
    fn line_breaks_in_values_become_blanks() {
        let response = Response::empty(200).header("X-Echo", "a\r\nSet-Cookie: b\n\0");
        let text = written(&response, Manner::unknown(), None);
        assert!(text.contains("X-Echo: a  Set-Cookie: b  \r\n"));
    }

    #[test]
    fn overload_says_when_to_come_back() {
        assert!(written(&Response::empty(503), Manner::unknown(), None).contains("Retry-After: 10\r\n"));
        let own = Response::empty(503).header("Retry-After", "3");
        assert!(!written(&own, Manner::unknown(), None).contains("Retry-After: 10"));
    }
}
