//! Bodies of requests: collected under a limit that counts the bytes after decompression.
//!
//! A compressed body is collected first and unpacked in bounded steps, so that a small body that unpacks to a huge one
//! neither passes the limit nor holds the executor.

use std::io::{self, Cursor, Read};

use super::request::{BodyError, Headers};

/// How much one [`Unpacker::step`] makes, in bytes: well under half a millisecond of work.
const STEP_BYTES: usize = 64 * 1024;
/// How much larger than the limit a compressed body may be: packed bytes that do not shrink have headers of their own.
const PACKED_SLACK_BYTES: u64 = 64 * 1024;
/// Room is made for so many times what has come, up to what is announced.
const GROWTH: u64 = 8;
/// The buffer of the brotli decoder, in bytes.
const BROTLI_BUFFER_BYTES: usize = 4096;

/// A `Content-Encoding` that bodies of requests may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// As it stands. Also any name that is not known: the bytes are then read as they are.
    Plain,
    /// gzip, one or more members.
    Gzip,
    /// zlib.
    Deflate,
    /// Brotli.
    Brotli,
}

impl Packing {
    /// What the headers say.
    pub fn of(headers: &Headers) -> Packing {
        match headers.get_str("content-encoding").map(str::trim) {
            Some(name) if name.eq_ignore_ascii_case("gzip") => Packing::Gzip,
            Some(name) if name.eq_ignore_ascii_case("deflate") => Packing::Deflate,
            Some(name) if name.eq_ignore_ascii_case("br") => Packing::Brotli,
            _ => Packing::Plain,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Packing::Plain => "identity",
            Packing::Gzip => "gzip",
            Packing::Deflate => "deflate",
            Packing::Brotli => "br",
        }
    }
}

/// Collects the bytes of one body as they come off the wire.
#[derive(Debug)]
pub struct BodyCollector {
    packing: Packing,
    limit: u64,
    bytes: Vec<u8>,
    /// What the client announced, 0 where it did not.
    announced: u64,
    too_large: bool,
}

impl BodyCollector {
    /// A collector for a body of at most `limit` bytes when unpacked.
    pub fn new(packing: Packing, limit: u64) -> BodyCollector {
        BodyCollector { packing, limit, bytes: Vec::new(), announced: 0, too_large: false }
    }

    /// Whether a body that announces this length is too large already.
    pub fn refuse_announced(&mut self, length: u64) -> Option<BodyError> {
        let refused = length > self.wire_limit();
        self.too_large |= refused;
        let compressed = self.packing != Packing::Plain;
        refused.then_some(BodyError::TooLarge { limit: self.limit, announced: true, compressed })
    }

    /// Makes room for a body of this length, when it is short: longer ones grow as they come, so that an announcement
    /// alone costs no memory.
    pub fn expect(&mut self, length: u64) {
        const AT_ONCE_MAX: u64 = 64 * 1024;
        self.bytes.reserve_exact(length.min(AT_ONCE_MAX) as usize);
        self.announced = length.min(self.wire_limit());
    }

    /// Takes bytes off the wire. Once the limit is passed it keeps none.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.too_large || self.bytes.len() as u64 + bytes.len() as u64 > self.wire_limit() {
            self.too_large = true;
            self.bytes = Vec::new();
            return;
        }
        if self.bytes.len() + bytes.len() > self.bytes.capacity() {
            // Growing moves what is there, all at once. An announcement is believed as far as part of it has come.
            let wanted = ((self.bytes.len() + bytes.len()) as u64).saturating_mul(GROWTH).min(self.announced);
            let more = (wanted as usize).saturating_sub(self.bytes.len()).max(bytes.len());
            self.bytes.reserve(more);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether the limit was passed, so that reading on is of no use.
    pub fn is_too_large(&self) -> bool {
        self.too_large
    }

    /// The work of unpacking what was collected.
    pub fn unpack(self) -> Unpacker {
        let packed_bytes = self.bytes.capacity();
        let source = Cursor::new(self.bytes);
        let state = if self.too_large {
            State::Finished(Err(BodyError::TooLarge {
                limit: self.limit,
                announced: false,
                compressed: self.packing != Packing::Plain,
            }))
        } else if self.packing == Packing::Plain || source.get_ref().is_empty() {
            State::Finished(Ok(source.into_inner()))
        } else {
            let reader: Box<dyn Read> = match self.packing {
                Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
                Packing::Deflate => Box::new(flate2::bufread::ZlibDecoder::new(source)),
                Packing::Brotli | Packing::Plain => Box::new(brotli::Decompressor::new(source, BROTLI_BUFFER_BYTES)),
            };
            State::Reading { reader, unpacked: Vec::new() }
        };
        Unpacker { packing: self.packing, limit: self.limit, packed_bytes, state }
    }

    /// The most bytes that may come over the wire.
    fn wire_limit(&self) -> u64 {
        match self.packing {
            Packing::Plain => self.limit,
            _ => self.limit.saturating_add(PACKED_SLACK_BYTES),
        }
    }
}

/// Unpacks a body step by step.
pub struct Unpacker {
    packing: Packing,
    limit: u64,
    packed_bytes: usize,
    state: State,
}

enum State {
    Reading { reader: Box<dyn Read>, unpacked: Vec<u8> },
    Finished(Result<Vec<u8>, BodyError>),
}

impl Unpacker {
    /// Does a bounded piece of work; `true` when [`Unpacker::finish`] has nothing left to do.
    pub fn step(&mut self) -> bool {
        let State::Reading { reader, unpacked } = &mut self.state else { return true };
        let before = unpacked.len();
        unpacked.resize(before + STEP_BYTES, 0);
        let result = read_some(reader, &mut unpacked[before..]);
        unpacked.truncate(before + *result.as_ref().unwrap_or(&0));
        let finished = match result {
            Err(_) => Err(BodyError::Undecodable { encoding: self.packing.name() }),
            Ok(_) if unpacked.len() as u64 > self.limit => {
                Err(BodyError::TooLarge { limit: self.limit, announced: false, compressed: true })
            }
            Ok(0) => Ok(std::mem::take(unpacked)),
            Ok(_) => return false,
        };
        self.state = State::Finished(finished);
        true
    }

    /// Bytes held: what was collected, until the last step, and what has become of it.
    pub fn held_bytes(&self) -> usize {
        match &self.state {
            State::Reading { unpacked, .. } => self.packed_bytes + unpacked.capacity(),
            State::Finished(body) => body.as_ref().map_or(0, Vec::capacity),
        }
    }

    /// The body, doing all steps that are left.
    pub fn finish(mut self) -> Result<Vec<u8>, BodyError> {
        loop {
            match self.state {
                State::Finished(result) => return result,
                State::Reading { .. } => self.step(),
            };
        }
    }
}

/// One read, repeated when it was interrupted.
fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn pack(packing: Packing, plain: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::default();
        match packing {
            Packing::Plain => plain.to_vec(),
            Packing::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Packing::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Packing::Brotli => {
                let mut packed = Vec::new();
                brotli::BrotliCompress(&mut &plain[..], &mut packed, &Default::default()).unwrap();
                packed
            }
        }
    }

    fn read(packing: Packing, limit: u64, wire: &[u8]) -> Result<Vec<u8>, BodyError> {
        let mut collector = BodyCollector::new(packing, limit);
        for piece in wire.chunks(7) {
            collector.push(piece);
        }
        collector.unpack().finish()
    }

    const PACKED: [Packing; 3] = [Packing::Gzip, Packing::Deflate, Packing::Brotli];

    #[test]
    fn names_are_known_in_any_letter_case_and_others_mean_plain() {
        let of = |name| Packing::of(&Headers::from_pairs(&[("Content-Encoding", name)]));
        assert_eq!(of("GZip"), Packing::Gzip);
        assert_eq!(of("DEFLATE"), Packing::Deflate);
        assert_eq!(of("br"), Packing::Brotli);
        for unknown in ["zstd", "x", "", "gzip, br"] {
            assert_eq!(of(unknown), Packing::Plain, "{unknown}");
        }
        assert_eq!(Packing::of(&Headers::default()), Packing::Plain);
    }

    /// The limit is of the unpacked bytes: exactly as many pass, one more does not, however well they were packed.
    #[test]
    fn the_limit_counts_unpacked_bytes() {
        let plain = vec![b'a'; 200_000];
        for packing in PACKED {
            let wire = pack(packing, &plain);
            assert!(wire.len() < 2000);
            assert_eq!(read(packing, 200_000, &wire), Ok(plain.clone()));
            let refused = BodyError::TooLarge { limit: 199_999, announced: false, compressed: true };
            assert_eq!(read(packing, 199_999, &wire), Err(refused));
        }
        assert_eq!(read(Packing::Plain, 200_000, &plain), Ok(plain.clone()));
        let refused = BodyError::TooLarge { limit: 199_999, announced: false, compressed: false };
        assert_eq!(read(Packing::Plain, 199_999, &plain), Err(refused));
    }

    #[test]
    fn a_cut_or_broken_body_is_undecodable() {
        for packing in PACKED {
            let wire = pack(packing, br#"{"id": 1, "name": "birch"}"#);
            let undecodable = Err(BodyError::Undecodable { encoding: packing.name() });
            assert_eq!(read(packing, 1000, &wire[..wire.len() - 3]), undecodable, "{packing:?}");
            assert_eq!(read(packing, 1000, b"{\"id\": 1}"), undecodable, "{packing:?}");
            assert_eq!(read(packing, 1000, b""), Ok(Vec::new()));
        }
    }

    #[test]
    fn an_announced_length_is_refused_before_any_byte() {
        let mut plain = BodyCollector::new(Packing::Plain, 10);
        assert_eq!(plain.refuse_announced(10), None);
        let refused = BodyError::TooLarge { limit: 10, announced: true, compressed: false };
        assert_eq!(plain.refuse_announced(11), Some(refused));
        plain.push(b"later");
        assert_eq!(plain.held_bytes(), 0);
    }

    proptest! {
        #[test]
        fn packed_bodies_come_out_as_they_went_in(plain in proptest::collection::vec(any::<u8>(), 1..3000)) {
            for packing in PACKED {
                prop_assert_eq!(read(packing, 3000, &pack(packing, &plain)), Ok(plain.clone()));
            }
        }

        #[test]
        fn any_bytes_end_in_a_body_or_an_error(wire in proptest::collection::vec(any::<u8>(), 0..300)) {
            for packing in PACKED {
                if let Ok(body) = read(packing, 1000, &wire) {
                    prop_assert!(body.len() <= 1000);
                }
            }
        }
    }
}
