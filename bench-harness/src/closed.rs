//! Many clients of a closed loop on few threads. A thread for each client would make the generator's own changes of threads a good
//! part of what is measured wherever it shares the machine with the server.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// Bytes asked for with one read.
const READ_BYTES: usize = 64 << 10;
/// Lines in the head of an answer at most.
const HEADERS_MAX: usize = 64;

/// One client: a connection with one request on its way.
struct Connection<'r> {
    stream: TcpStream,
    /// What is still to be sent.
    unsent: &'r [u8],
    /// What has come of the answer.
    answer: Vec<u8>,
    /// The request that is next.
    next: usize,
    sent: Instant,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

/// The status of an answer and its length with its head, if all of it is there.
fn whole(bytes: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(bytes).map_err(|error| invalid(error.to_string()))? else {
        return Ok(None);
    };
    let status = head.code.ok_or_else(|| invalid("no status"))?;
    let header = |name: &str| head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    if let Some(length) = header("content-length") {
        let length = std::str::from_utf8(length.value).ok().and_then(|text| text.trim().parse::<usize>().ok());
        let end = start + length.ok_or_else(|| invalid("the length is no number"))?;
        return Ok((bytes.len() >= end).then_some((status, end)));
    }
    if header("transfer-encoding").is_none() {
        return Ok(Some((status, start)));
    }
    let mut at = start;
    loop {
        let size = httparse::parse_chunk_size(&bytes[at..]).map_err(|_| invalid("bad chunk size"))?;
        let httparse::Status::Complete((line, size)) = size else { return Ok(None) };
        // Each chunk ends with a line end of its own.
        at += line + size as usize + 2;
        if at > bytes.len() {
            return Ok(None);
        }
        if size == 0 {
            return Ok(Some((status, at)));
        }
    }
}

impl<'r> Connection<'r> {
    fn send(&mut self, requests: &'r [Vec<u8>]) -> io::Result<()> {
        self.unsent = &requests[self.next % requests.len()];
        self.next += 1;
        self.answer.clear();
        self.sent = Instant::now();
        self.go_on_sending()
    }

    fn go_on_sending(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent) {
                Ok(count) => self.unsent = &self.unsent[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what is there, through `buffer`; whether the answer is whole.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(invalid("the server closed the connection")),
                Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if let Some((status, end)) = whole(&self.answer)? {
                // Nothing else was asked, so nothing may follow.
                if status != 200 || end != self.answer.len() {
                    return Err(invalid(format!("a search answered: {}", String::from_utf8_lossy(&self.answer))));
                }
                return Ok(true);
            }
        }
    }
}

/// Sends each client's requests one after another for `length`, all clients on this thread, and adds each answer's microseconds to
/// `latency`. Each client begins at one of `starts` among the requests.
pub fn run(
    address: SocketAddr,
    starts: impl Iterator<Item = usize>,
    requests: &[Vec<u8>],
    length: Duration,
    latency: &mut Histogram<u64>,
) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for (number, next) in starts.enumerate() {
        // Connected at once or not at all: only then is the stream made one that does not wait.
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(number), Interest::READABLE | Interest::WRITABLE)?;
        let (answer, sent) = (Vec::new(), Instant::now());
        connections.push(Connection { stream, unsent: &[], answer, next, sent });
    }
    let began = Instant::now();
    for connection in &mut connections {
        connection.send(requests)?;
    }
    let (mut events, mut waiting) = (Events::with_capacity(connections.len()), connections.len());
    let mut buffer = vec![0; READ_BYTES];
    while waiting > 0 {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result?,
        }
        for event in &events {
            let connection = &mut connections[event.token().0];
            connection.go_on_sending()?;
            if !event.is_readable() || !connection.receive(&mut buffer)? {
                continue;
            }
            latency.saturating_record(connection.sent.elapsed().as_micros() as u64);
            if began.elapsed() < length {
                connection.send(requests)?;
            } else {
                waiting -= 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut anywhere, an answer is whole only at its end.
    #[test]
    fn the_end_of_an_answer_is_found() {
        for answer in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde"[..],
            b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
        ] {
            for cut in 0..answer.len() {
                assert_eq!(whole(&answer[..cut]).unwrap(), None, "{cut}");
            }
            let (status, end) = whole(answer).unwrap().unwrap();
            assert_eq!((end, [200, 404, 204].contains(&status)), (answer.len(), true));
        }
        assert!(whole(b"nonsense\r\n\r\n").is_err());
    }
}
