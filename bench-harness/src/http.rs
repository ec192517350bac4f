//! A blocking keep-alive HTTP client, as thin as it can be: the load generator must cost less than the server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Between two looks at tasks.
const PAUSE: Duration = Duration::from_millis(5);
/// A connection that was idle for longer is made anew: the server may be about to close it.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// One connection to one server.
pub struct Client {
    address: String,
    key: Option<String>,
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    body: Vec<u8>,
    used: Instant,
}

impl Client {
    /// Connects. `address` is `host:port`.
    pub fn connect(address: &str, key: Option<&str>) -> io::Result<Self> {
        let stream = open(address)?;
        let key = key.map(String::from);
        Ok(Self {
            address: address.to_owned(),
            key,
            stream,
            request: Vec::new(),
            body: Vec::new(),
            used: Instant::now(),
        })
    }

    /// Sends one request and reads its answer: status and body.
    pub fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> io::Result<(u16, &[u8])> {
        if self.used.elapsed() > IDLE_MAX {
            self.stream = open(&self.address)?;
        }
        self.request.clear();
        let request = &mut self.request;
        write_head(request, (method, path), &self.address, self.key.as_deref(), (kind, body.len()))?;
        // One write for small requests, so that they leave in one packet.
        if body.len() < 64 << 10 {
            request.extend_from_slice(body);
            self.stream.get_mut().write_all(request)?;
        } else {
            self.stream.get_mut().write_all(request)?;
            self.stream.get_mut().write_all(body)?;
        }
        let status = self.read_answer()?;
        self.used = Instant::now();
        Ok((status, &self.body))
    }

    fn read_answer(&mut self) -> io::Result<u16> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let (mut line, mut status, mut length, mut chunked) = (String::new(), None, 0usize, false);
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(bad("the server closed the connection"));
            }
            let text = line.trim_end();
            if status.is_none() {
                status = text.split(' ').nth(1).and_then(|word| word.parse::<u16>().ok());
                status.ok_or_else(|| bad("no status line"))?;
            } else if text.is_empty() {
                break;
            } else if let Some((name, value)) = text.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().map_err(|_| bad("the length is no number"))?;
                }
                chunked |= name.eq_ignore_ascii_case("transfer-encoding") && value.contains("chunked");
            }
        }
        self.body.clear();
        if chunked {
            self.read_chunks()?;
        } else {
            self.body.resize(length, 0);
            self.stream.read_exact(&mut self.body)?;
        }
        status.ok_or_else(|| bad("no status line"))
    }

    fn read_chunks(&mut self) -> io::Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "bad chunk size"))?;
            let start = self.body.len();
            self.body.resize(start + size, 0);
            self.stream.read_exact(&mut self.body[start..])?;
            line.clear();
            self.stream.read_line(&mut line)?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    /// Sends JSON and reads JSON; an error status is an error here.
    pub fn json(&mut self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Value> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let (status, answer) = self.send(method, path, "application/json", &bytes)?;
        let text = String::from_utf8_lossy(answer);
        if status >= 400 {
            return Err(io::Error::other(format!("{method} {path}: {status} {text}")));
        }
        serde_json::from_slice(answer).map_err(|error| io::Error::other(format!("{method} {path}: {error}")))
    }

    /// Waits until a task has ended, and fails unless it succeeded.
    pub fn wait(&mut self, task: &Value) -> io::Result<Value> {
        let uid = task["taskUid"].as_u64().ok_or_else(|| io::Error::other(format!("no task in {task}")))?;
        self.wait_for(uid, true)
    }

    /// Waits until the server has no task left to do.
    pub fn rest(&mut self) -> io::Result<()> {
        while self.json("GET", "/tasks?statuses=enqueued,processing&limit=1", None)?["total"] != 0 {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until a task has ended, whatever came of it unless `must_succeed`.
    pub fn wait_for(&mut self, uid: u64, must_succeed: bool) -> io::Result<Value> {
        loop {
            let task = self.json("GET", &format!("/tasks/{uid}"), None)?;
            match task["status"].as_str() {
                Some("succeeded") => return Ok(task),
                Some("failed" | "canceled") if !must_succeed => return Ok(task),
                Some("failed" | "canceled") => return Err(io::Error::other(format!("the task failed: {task}"))),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// Writes the head of a request for a method and a path, with a body of a kind and a length.
pub fn write_head(
    out: &mut Vec<u8>,
    (method, path): (&str, &str),
    address: &str,
    key: Option<&str>,
    (kind, length): (&str, usize),
) -> io::Result<()> {
    write!(out, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n")?;
    if length > 0 {
        write!(out, "Content-Type: {kind}\r\n")?;
    }
    if let Some(key) = key {
        write!(out, "Authorization: Bearer {key}\r\n")?;
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn open(address: &str) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)
        .map_err(|error| io::Error::new(error.kind(), format!("no connection to {address}: {error}")))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}
