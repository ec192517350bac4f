//! Request bodies, collected under a limit that counts the bytes after decompression.
//!
//! A compressed body is collected first and decompressed in bounded steps, so a small body that expands to a huge one neither
//! passes the limit nor blocks the executor.

use std::cell::Cell;
use std::io::{self, BufRead, Cursor, ErrorKind, Read};
use std::rc::Rc;

use super::request::{BodyError, Headers};

/// How much one [`Unpacker::step`] makes, in bytes: well under half a millisecond of work.
const STEP_BYTES: usize = 64 * 1024;
/// How much one [`Unpacker::step`] takes, in bytes: a stream may hold any number of members or blocks in which nothing is, and
/// an empty gzip member of 20 bytes takes longer than two kilobytes of text.
const RATION_BYTES: usize = 4096;
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
        } else if self.packing == Packing::Plain || self.packing != Packing::Gzip && source.get_ref().is_empty() {
            // No bytes are no gzip member, but what the other two make of nothing is nothing to clients of the interface.
            State::Finished(Ok(source.into_inner()))
        } else {
            let ration = Rc::new(Ration::default());
            let source = Rationed { source, ration: ration.clone() };
            let reader: Box<dyn Read> = match self.packing {
                Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
                Packing::Deflate => Box::new(flate2::bufread::ZlibDecoder::new(source)),
                Packing::Brotli | Packing::Plain => {
                    Box::new(AskedTwice(brotli::Decompressor::new(source, BROTLI_BUFFER_BYTES)))
                }
            };
            State::Reading { reader, ration, unpacked: Vec::new() }
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

/// What a reader may take, and whether it has taken everything.
#[derive(Default)]
struct Ration {
    bytes: Cell<usize>,
    is_at_end: Cell<bool>,
}

/// Packed bytes, of which a reader is given no more than its ration. Then it is told to come again.
struct Rationed {
    source: Cursor<Vec<u8>>,
    ration: Rc<Ration>,
}

impl BufRead for Rationed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let left = self.source.fill_buf()?;
        let given = left.len().min(self.ration.bytes.get());
        if given == 0 && !left.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(&left[..given])
    }

    fn consume(&mut self, amount: usize) {
        self.ration.bytes.set(self.ration.bytes.get().saturating_sub(amount));
        self.source.consume(amount);
        self.ration.is_at_end.set(self.source.position() >= self.source.get_ref().len() as u64);
    }
}

impl Read for Rationed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

/// A brotli decoder, which looks for bytes that follow in its own buffer only when it is asked again at the end.
struct AskedTwice<R: Read>(brotli::Decompressor<R>);

impl<R: Read> Read for AskedTwice<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => self.0.read(buffer),
            count => Ok(count),
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
    Reading { reader: Box<dyn Read>, ration: Rc<Ration>, unpacked: Vec<u8> },
    Finished(Result<Vec<u8>, BodyError>),
}

impl Unpacker {
    /// Does a bounded piece of work; `true` when [`Unpacker::finish`] has nothing left to do.
    pub fn step(&mut self) -> bool {
        let State::Reading { reader, ration, unpacked } = &mut self.state else { return true };
        let before = unpacked.len();
        ration.bytes.set(RATION_BYTES);
        unpacked.resize(before + STEP_BYTES, 0);
        let result = read_some(reader, &mut unpacked[before..]);
        unpacked.truncate(before + *result.as_ref().unwrap_or(&0));
        let finished = match result {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => Err(BodyError::Undecodable { encoding: self.packing.name() }),
            Ok(_) if unpacked.len() as u64 > self.limit => {
                Err(BodyError::TooLarge { limit: self.limit, announced: false, compressed: true })
            }
            Ok(0) if ration.is_at_end.get() => Ok(std::mem::take(unpacked)),
            // What follows the end is lost to the client, who may have packed twice.
            Ok(0) => Err(BodyError::Undecodable { encoding: self.packing.name() }),
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
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
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
        }
    }

    /// Bytes after the end were left out without a word.
    #[test]
    fn a_body_ends_where_its_bytes_do() {
        for packing in PACKED {
            for plain in [&b"[]"[..], &[b'a'; 100_000], b""] {
                let wire = pack(packing, plain);
                assert_eq!(read(packing, 100_000, &wire), Ok(plain.to_vec()), "{packing:?}");
                for rest in [&b"x"[..], b"\0", &[0; 2 * RATION_BYTES]] {
                    let undecodable = Err(BodyError::Undecodable { encoding: packing.name() });
                    assert_eq!(read(packing, 100_000, &[&wire, rest].concat()), undecodable, "{packing:?}");
                }
            }
        }
        let twice = pack(Packing::Gzip, b"[]").repeat(2);
        assert_eq!(read(Packing::Gzip, 1000, &twice), Ok(b"[][]".to_vec()), "a member may follow");
    }

    /// An empty body was missing whatever it said to be; clients of the interface know that gzip is more than nothing.
    #[test]
    fn no_bytes_are_no_gzip() {
        assert_eq!(read(Packing::Gzip, 1000, b""), Err(BodyError::Undecodable { encoding: "gzip" }));
        for packing in [Packing::Deflate, Packing::Brotli, Packing::Plain] {
            assert_eq!(read(packing, 1000, b""), Ok(Vec::new()));
        }
    }

    /// Nothing comes out of it, so that a bound on what comes out alone would not end a step.
    #[test]
    fn a_step_takes_no_more_than_its_ration() {
        let empty = pack(Packing::Gzip, b"");
        let members = 10 * RATION_BYTES / empty.len();
        let mut collector = BodyCollector::new(Packing::Gzip, 1 << 20);
        collector.push(&empty.repeat(members));
        collector.push(&pack(Packing::Gzip, b"birch"));
        let mut unpacker = collector.unpack();
        let steps = std::iter::repeat_with(|| unpacker.step()).take_while(|is_done| !is_done).count();
        assert!((9..=11).contains(&steps), "{steps}");
        assert_eq!(unpacker.finish(), Ok(b"birch".to_vec()));
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

        /// Wherever a ration ends, within a header too, the reader goes on from there.
        #[test]
        fn any_ration_gives_the_same(
            plain in proptest::collection::vec(any::<u8>(), 0..300),
            rations in proptest::collection::vec(1..40usize, 1..20),
        ) {
            for packing in PACKED {
                let mut wire = pack(packing, &plain);
                if packing == Packing::Gzip {
                    wire.extend(pack(packing, b"second member"));
                }
                let mut collector = BodyCollector::new(packing, 1000);
                collector.push(&wire);
                let State::Reading { mut reader, ration, .. } = collector.unpack().state else { panic!("not packed") };
                let (mut unpacked, mut piece) = (Vec::new(), [0; 64]);
                for bytes in rations.iter().cycle() {
                    ration.bytes.set(*bytes);
                    match read_some(&mut reader, &mut piece) {
                        Ok(0) => break,
                        Ok(count) => unpacked.extend_from_slice(&piece[..count]),
                        Err(error) => prop_assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                prop_assert_eq!(Ok(unpacked), read(packing, 1000, &wire));
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
