//! One HTTP request on a connection of its own: small, blocking, and strict about what it reads.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// What a server answered.
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The last header of this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Sends one request to a server on loopback and reads the whole answer; a gzip answer is unpacked.
pub fn send(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: Option<&[u8]>,
) -> io::Result<Answer> {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    send_to(to, Duration::from_secs(60), (method, path), headers, body)
}

/// The same to a server anywhere; `patience` is for connecting, and for each silence after that.
pub fn send_to(
    to: SocketAddr,
    patience: Duration,
    (method, path): (&str, &str),
    headers: &[(String, String)],
    body: Option<&[u8]>,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept-encoding")) {
        head.push_str("Accept-Encoding: identity\r\n");
    }
    match body {
        Some(body) => head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len())),
        None if matches!(method, "POST" | "PUT" | "PATCH") => head.push_str("Content-Length: 0\r\n\r\n"),
        None => head.push_str("\r\n"),
    }
    stream.write_all(head.as_bytes())?;
    // A server may refuse a body before it has read all of it: then the answer counts, not the broken pipe.
    let written = stream.write_all(body.unwrap_or_default());
    let answer = read(BufReader::new(stream));
    if answer.is_err() {
        written?;
    }
    answer
}

fn read(mut from: BufReader<TcpStream>) -> io::Result<Answer> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let status: u16 = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| bad("no status line"))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            from.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if status == 100 {
            continue;
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        if answer.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            read_chunks(&mut from, &mut answer.body)?;
        } else if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().map_err(|_| bad("the length is no number"))?;
            answer.body.resize(length, 0);
            from.read_exact(&mut answer.body)?;
        } else {
            from.read_to_end(&mut answer.body)?;
        }
        if answer.header("content-encoding") == Some("gzip") {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut plain)?;
            answer.body = plain;
        }
        return Ok(answer);
    }
}

fn read_chunks(from: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim().split(';').next().unwrap_or(""), 16)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "bad chunk size"))?;
        let start = body.len();
        body.resize(start + size, 0);
        from.read_exact(&mut body[start..])?;
        from.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(());
        }
    }
}
