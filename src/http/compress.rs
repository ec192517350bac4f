//! Response compression: negotiates the content coding and encodes in bounded steps.

use std::io::{self, Write};

use flate2::Compression;

/// Bodies below this many bytes are wrapped without being compressed: the coding is asked for by clients that send the
/// same header with every request, an answer of one packet gains nothing, and setting up a compressor would cost more than
/// the request itself.
pub const STORED_BYTES_MAX: usize = 512;
/// How much is compressed between two looks at the clock.
pub const STEP_BYTES: usize = 16 * 1024;
/// Brotli's quality, 0 to 11: near gzip's speed at a better ratio.
const BROTLI_QUALITY: i32 = 3;
/// The largest brotli window, as the logarithm of its bytes.
const BROTLI_WINDOW_LOG_MAX: i32 = 18;
/// The header of a gzip member without a name and a time.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A coding of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `br`
    Brotli,
    /// `gzip`
    Gzip,
    /// `deflate`, which is zlib
    Deflate,
}

impl Coding {
    /// The coding of this name, in any letter case.
    fn named(name: &[u8]) -> Option<Coding> {
        let all = [Coding::Brotli, Coding::Gzip, Coding::Deflate];
        all.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }

    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }
}

/// The items of `Accept-Encoding` values: each name with its weight in thousandths, none where that cannot be read.
fn items<'a>(values: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = (&'a [u8], Option<u16>)> {
    values.flat_map(|value| value.split(|byte| *byte == b',')).map(|item| {
        let mut parts = item.split(|byte| *byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        (name, parts.next().map_or(Some(1000), weight_of))
    })
}

/// The coding for a client that sent these `Accept-Encoding` values: the one of the greatest weight, at equal weights br
/// before gzip before deflate. `None` (identity) when none of them is wanted, when identity weighs more, and for `*`.
pub fn negotiate<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Coding> {
    let mut best: Option<(u16, Coding)> = None;
    let mut identity_weight = 0;
    for (name, weight) in items(values) {
        let weight = weight.unwrap_or(0);
        if weight == 0 {
            continue;
        }
        let Some(coding) = Coding::named(name) else {
            if name.eq_ignore_ascii_case(b"identity") {
                identity_weight = weight;
            }
            continue;
        };
        let rank = |coding: Coding| std::cmp::Reverse(coding as u8);
        if best.is_none_or(|(other_weight, other)| (weight, rank(coding)) > (other_weight, rank(other))) {
            best = Some((weight, coding));
        }
    }
    best.filter(|(weight, _)| *weight >= identity_weight).map(|(_, coding)| coding)
}

/// Whether a client that sent these `Accept-Encoding` values takes no answer at all: it refuses those without a coding, by name
/// or by `*`, and wants none of the codings.
pub fn is_unacceptable<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut identity, mut others) = (None, None);
    for (name, weight) in items(values) {
        let is_wanted = weight != Some(0);
        if is_wanted && Coding::named(name).is_some() {
            return false;
        }
        if name == b"*" {
            others = Some(is_wanted);
        } else if name.eq_ignore_ascii_case(b"identity") {
            identity = Some(is_wanted);
        }
    }
    identity.or(others) == Some(false) && others != Some(true)
}

/// The weight `q=0.5` in thousandths; `None` when it is not of that form.
fn weight_of(parameter: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(parameter.trim_ascii()).ok()?;
    let number = text.strip_prefix("q=").or_else(|| text.strip_prefix("Q="))?;
    let weight: f32 = number.parse().ok()?;
    (0.0..=1.0).contains(&weight).then(|| (weight * 1000.0).round() as u16)
}

/// Compresses one body step by step.
pub struct Compressor {
    encoder: Encoder,
}

enum Encoder {
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Deflate(flate2::write::ZlibEncoder<Vec<u8>>),
}

impl Compressor {
    /// A compressor for a body of `body_len` bytes.
    pub fn new(coding: Coding, body_len: usize) -> Compressor {
        let output = Vec::with_capacity(body_len / 3 + 64);
        let encoder = match coding {
            Coding::Brotli => {
                // A window no larger than the body keeps the set-up of small bodies cheap.
                let body_log = usize::BITS - body_len.max(1).leading_zeros();
                let window_log = (body_log as i32 + 1).clamp(10, BROTLI_WINDOW_LOG_MAX);
                let params = brotli::enc::BrotliEncoderParams {
                    quality: BROTLI_QUALITY,
                    lgwin: window_log,
                    size_hint: body_len,
                    ..Default::default()
                };
                Encoder::Brotli(Box::new(brotli::CompressorWriter::with_params(output, 4096, &params)))
            }
            Coding::Gzip => Encoder::Gzip(flate2::write::GzEncoder::new(output, Compression::fast())),
            Coding::Deflate => Encoder::Deflate(flate2::write::ZlibEncoder::new(output, Compression::fast())),
        };
        Compressor { encoder }
    }

    /// Takes the next bytes of the body; at most [`STEP_BYTES`] at once keep the executor's promises.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Brotli(encoder) => encoder.write_all(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Deflate(encoder) => encoder.write_all(bytes),
        }
    }

    /// The compressed body.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.encoder {
            Encoder::Brotli(mut encoder) => {
                encoder.flush()?;
                Ok(encoder.into_inner())
            }
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Deflate(encoder) => encoder.finish(),
        }
    }
}

/// A body of less than [`STORED_BYTES_MAX`] bytes in the wrapping of a coding, its bytes as they are.
pub fn store(coding: Coding, body: &[u8]) -> Vec<u8> {
    debug_assert!(body.len() < STORED_BYTES_MAX && !body.is_empty());
    let mut wrapped = Vec::with_capacity(body.len() + 24);
    match coding {
        Coding::Brotli => store_brotli(body, &mut wrapped),
        Coding::Gzip => {
            wrapped.extend_from_slice(&GZIP_HEADER);
            store_deflate_block(body, &mut wrapped);
            let mut checksum = flate2::Crc::new();
            checksum.update(body);
            wrapped.extend_from_slice(&checksum.sum().to_le_bytes());
            wrapped.extend_from_slice(&(body.len() as u32).to_le_bytes());
        }
        Coding::Deflate => {
            wrapped.extend_from_slice(&[0x78, 0x01]);
            store_deflate_block(body, &mut wrapped);
            wrapped.extend_from_slice(&adler32(body).to_be_bytes());
        }
    }
    wrapped
}

/// One last block of kind "stored": its length, the complement of that, the bytes (RFC 1951, section 3.2.4).
fn store_deflate_block(body: &[u8], wrapped: &mut Vec<u8>) {
    let length = body.len() as u16;
    wrapped.push(1);
    wrapped.extend_from_slice(&length.to_le_bytes());
    wrapped.extend_from_slice(&(!length).to_le_bytes());
    wrapped.extend_from_slice(body);
}

/// One uncompressed meta-block and an empty last one (RFC 7932, section 9). The bits, least significant first: `0` a window
/// of 64 KiB; `0` not the last; `00` four nibbles of length; 16 bits of length - 1; `1` uncompressed; padding to a byte.
fn store_brotli(body: &[u8], wrapped: &mut Vec<u8>) {
    let length_less_one = (body.len() - 1) as u32;
    let bits = (length_less_one << 4) | (1 << 20);
    wrapped.extend_from_slice(&bits.to_le_bytes()[..3]);
    wrapped.extend_from_slice(body);
    // Last and empty.
    wrapped.push(0b11);
}

fn adler32(body: &[u8]) -> u32 {
    // Neither sum can pass 32 bits before the remainder is taken, as bodies are short.
    let (low, high) = body.iter().fold((1u32, 0u32), |(low, high), byte| {
        let low = low + u32::from(*byte);
        (low, high + low)
    });
    ((high % 65_521) << 16) | (low % 65_521)
}

/// Compresses a body in one go, whatever its size.
pub fn compress(coding: Coding, body: &[u8]) -> io::Result<Vec<u8>> {
    if body.len() < STORED_BYTES_MAX {
        return Ok(store(coding, body));
    }
    let mut compressor = Compressor::new(coding, body.len());
    compressor.push(body)?;
    compressor.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    fn unpack(coding: Coding, packed: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Brotli => brotli::Decompressor::new(packed, 4096).read_to_end(&mut plain),
            Coding::Gzip => flate2::read::GzDecoder::new(packed).read_to_end(&mut plain),
            Coding::Deflate => flate2::read::ZlibDecoder::new(packed).read_to_end(&mut plain),
        }
        .unwrap();
        plain
    }

    const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Gzip, Coding::Deflate];

    #[test]
    fn a_client_may_refuse_every_answer() {
        let cases: [(&str, bool); 11] = [
            ("identity;q=0", true),
            ("*;q=0", true),
            ("identity;q=0, *;q=0", true),
            ("identity;q=0, gzip;q=0", true),
            ("zstd, identity;q=0", true),
            ("identity;q=0, gzip", false),
            ("*;q=0, br;q=0.1", false),
            ("identity;q=0, *", false),
            ("identity, *;q=0", false),
            ("gzip;q=0", false),
            ("", false),
        ];
        for (value, expected) in cases {
            assert_eq!(is_unacceptable(std::iter::once(value.as_bytes())), expected, "{value}");
        }
    }

    #[test]
    fn the_heaviest_coding_wins_and_then_the_better_one() {
        let cases: [(&[&str], Option<Coding>); 14] = [
            (&[], None),
            (&["gzip"], Some(Coding::Gzip)),
            (&["gzip, deflate, br"], Some(Coding::Brotli)),
            (&["deflate, GZIP"], Some(Coding::Gzip)),
            (&["gzip", "br"], Some(Coding::Brotli)),
            (&["br;q=0.5, gzip;q=0.8"], Some(Coding::Gzip)),
            (&["gzip;q=0, identity"], None),
            (&["gzip;q=0.5, identity;q=0.8"], None),
            (&["gzip, identity"], Some(Coding::Gzip)),
            (&["*"], None),
            (&["zstd"], None),
            (&["zstd, deflate;q=0.001"], Some(Coding::Deflate)),
            (&["br;q=x"], None),
            (&["br;q=7, , ;;"], None),
        ];
        for (values, expected) in cases {
            assert_eq!(negotiate(values.iter().map(|value| value.as_bytes())), expected, "{values:?}");
        }
    }

    /// Wrapped bytes must be what real decoders of each format accept, at every length that is wrapped.
    #[test]
    fn stored_bodies_unpack_at_every_length() {
        let body: Vec<u8> = (0..STORED_BYTES_MAX - 1).map(|at| (at * 7) as u8).collect();
        for length in 1..STORED_BYTES_MAX {
            for coding in CODINGS {
                assert_eq!(unpack(coding, &store(coding, &body[..length])), &body[..length], "{coding:?} {length}");
            }
        }
    }

    proptest! {
        #[test]
        fn compressed_bodies_unpack(body in proptest::collection::vec(any::<u8>(), 1..4000), repeat in 1..40usize) {
            let body = body.repeat(repeat);
            for coding in CODINGS {
                prop_assert_eq!(&unpack(coding, &compress(coding, &body).unwrap()), &body);
            }
        }

        #[test]
        fn any_header_is_read(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            negotiate(std::iter::once(value.as_slice()));
        }
    }
}
