//! Answers as they come back: the head at once, the body as it arrives.

use std::rc::Rc;

use super::clock::Clock;
use super::connection::Connection;
use super::error::{Phase, SendError};
use super::pool::{Key, Pool};
use crate::http::parse::{BodyDecoder, Framing, has_token};
use crate::http::{Headers, Method};

/// The largest head of an answer, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most headers of an answer.
const HEADERS_MAX: usize = 128;

/// An answer whose body has still to be read.
pub struct Response {
    /// The status, 200 to 599 as a rule.
    pub status: u16,
    /// Its headers.
    pub headers: Headers,
    /// Its body. Dropping it unread closes the connection.
    pub body: Body,
}

/// An answer that has been read.
#[derive(Clone, Debug)]
pub struct WholeResponse {
    /// The status.
    pub status: u16,
    /// Its headers.
    pub headers: Headers,
    /// Its body.
    pub body: Vec<u8>,
}

/// A body that arrives piece by piece.
pub struct Body {
    /// While there is something to read.
    connection: Option<Connection>,
    end: End,
    clock: Clock,
    /// Where the connection goes when the body has been read.
    home: Option<(Rc<Pool>, Key)>,
}

/// How the end of a body is known.
#[derive(Debug)]
enum End {
    Framed(BodyDecoder),
    Close,
    Reached,
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) status: u16,
    pub(super) headers: Headers,
    end: End,
    keeps_alive: bool,
}

/// Reads a head from the beginning of `bytes`: the head and its length, or `None` while it is not complete.
pub(super) fn parse_head(bytes: &[u8], method: Method) -> Result<Option<(AnswerHead, usize)>, SendError> {
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut slots);
    let length = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(SendError::Malformed("its head is too large"));
        }
        Err(_) => return Err(SendError::Malformed("it does not begin with an HTTP head")),
    };
    let status = answer.code.ok_or(SendError::Malformed("it has no status"))?;
    let mut headers = Headers::with_capacity(length);
    for header in answer.headers.iter() {
        headers.push(header.name, header.value);
    }
    let is_http_11 = answer.version == Some(1);
    let (end, is_plain) = end_of(&headers, status, method)?;
    let asked = if is_http_11 {
        !has_token(&headers, "connection", "close")
    } else {
        has_token(&headers, "connection", "keep-alive")
    };
    let keeps_alive = asked && is_plain && !matches!(end, End::Close);
    Ok(Some((AnswerHead { status, headers, end, keeps_alive }, length)))
}

/// How the body ends, and whether the headers are so clear about it that the connection can be used again.
fn end_of(headers: &Headers, status: u16, method: Method) -> Result<(End, bool), SendError> {
    let mut lengths = headers.all("content-length").flat_map(|value| value.split(|byte| *byte == b','));
    let length = lengths.next().map(<[u8]>::trim_ascii);
    if lengths.any(|other| Some(other.trim_ascii()) != length) {
        return Err(SendError::Malformed("it names two lengths"));
    }
    if method == Method::Head || matches!(status, 100..=199 | 204 | 304) {
        return Ok((End::Reached, true));
    }
    if headers.contains("transfer-encoding") {
        let mut codings = headers.all("transfer-encoding");
        let only_chunked = codings.next().is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        if !only_chunked || codings.next().is_some() {
            return Err(SendError::Malformed("it has an unknown transfer coding"));
        }
        return Ok((End::Framed(BodyDecoder::new(Framing::Chunked)), length.is_none()));
    }
    let Some(length) = length else { return Ok((End::Close, false)) };
    let digits = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(0) => Ok((End::Reached, true)),
        Some(length) => Ok((End::Framed(BodyDecoder::new(Framing::Length(length))), true)),
        None => Err(SendError::Malformed("its length is no number")),
    }
}

impl Response {
    /// The answer that begins with this head. `home` is where its connection may go afterwards.
    pub(super) fn new(head: AnswerHead, connection: Connection, clock: Clock, home: Option<(Rc<Pool>, Key)>) -> Self {
        let home = home.filter(|_| head.keeps_alive);
        let mut body = Body { connection: Some(connection), end: head.end, clock, home };
        if matches!(body.end, End::Reached) {
            body.release();
        }
        Self { status: head.status, headers: head.headers, body }
    }

    /// Reads the body.
    ///
    /// # Errors
    /// As [`Body::chunk`], and [`SendError::TooLarge`] for more than `bytes_max` bytes.
    pub async fn whole(self, bytes_max: u64) -> Result<WholeResponse, SendError> {
        let body = self.body.collect(bytes_max).await?;
        Ok(WholeResponse { status: self.status, headers: self.headers, body })
    }
}

impl Body {
    /// The next bytes, as they arrive; `None` at the end.
    ///
    /// # Errors
    /// The connection broke before the end, a deadline passed, or the framing is malformed.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, SendError> {
        loop {
            let Some(connection) = &mut self.connection else { return Ok(None) };
            let mut bytes = Vec::new();
            match &mut self.end {
                End::Reached => {}
                End::Close => bytes = std::mem::take(&mut connection.input),
                End::Framed(decoder) => {
                    let decoded = decoder.decode(&connection.input, |part| bytes.extend_from_slice(part));
                    let decoded = decoded.map_err(|_| SendError::Malformed("its chunks are invalid"))?;
                    connection.input.drain(..decoded.consumed);
                    if decoded.done {
                        self.end = End::Reached;
                    }
                }
            }
            if matches!(self.end, End::Reached) {
                self.release();
            }
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
            let Some(connection) = &mut self.connection else { return Ok(None) };
            if self.clock.within(Phase::Transfer, connection.fill()).await? == 0 {
                let is_end = matches!(self.end, End::Close);
                self.connection = None;
                return if is_end { Ok(None) } else { Err(SendError::Broken("it ended within the answer".into())) };
            }
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// As [`Self::chunk`], and [`SendError::TooLarge`] for more than `bytes_max` bytes.
    pub async fn collect(mut self, bytes_max: u64) -> Result<Vec<u8>, SendError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if (body.len() + bytes.len()) as u64 > bytes_max {
                return Err(SendError::TooLarge { limit: bytes_max });
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// Gives the connection back, if another request may use it.
    fn release(&mut self) {
        if let (Some(connection), Some((pool, key))) = (self.connection.take(), self.home.take())
            && connection.input.is_empty()
        {
            pool.put(key, connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, method: Method) -> Result<Option<(AnswerHead, usize)>, SendError> {
        parse_head(text.as_bytes(), method)
    }

    /// Status, keep-alive and how the body ends.
    fn shape(text: &str) -> (u16, bool, &'static str) {
        let (head, _) = parsed(text, Method::Get).unwrap().unwrap();
        let end = match head.end {
            End::Reached => "none",
            End::Close => "close",
            End::Framed(_) => "framed",
        };
        (head.status, head.keeps_alive, end)
    }

    #[test]
    fn the_head_says_how_the_body_ends() {
        assert_eq!(shape("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), (200, true, "framed"));
        assert_eq!(shape("HTTP/1.1 200\r\ncontent-length: 5, 5\r\nConnection: Close\r\n\r\n"), (200, false, "framed"));
        assert_eq!(shape("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), (200, true, "framed"));
        // A length beside chunks is how answers are smuggled: the chunks count, and the connection is not used again.
        let both = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(shape(both), (200, false, "framed"));
        assert_eq!(shape("HTTP/1.1 200 OK\r\n\r\n"), (200, false, "close"));
        assert_eq!(shape("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), (200, false, "none"));
        assert_eq!(
            shape("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"),
            (200, true, "none")
        );
        assert_eq!(shape("HTTP/1.1 204 No Content\r\n\r\n"), (204, true, "none"));
        let (head, length) = parsed("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nrest", Method::Head).unwrap().unwrap();
        assert!(matches!(head.end, End::Reached) && length == 38);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bad in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ] {
            assert!(matches!(parsed(bad, Method::Get), Err(SendError::Malformed(_))), "{bad}");
        }
        assert!(parsed("HTTP/1.1 200 OK\r\nContent-", Method::Get).unwrap().is_none());
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        assert!(parsed(&endless, Method::Get).is_err());
    }
}
