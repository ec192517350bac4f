//! A frame: length, checksum, how far the log was durable when it was written, bytes.
//!
//! The checksum covers the frame's place in the log, so that what an older segment of the same name left behind is not
//! taken for a frame. The third number tells a torn tail from damage: when a later frame was written after the place of a
//! bad one had been synced, the bad one was acknowledged, and must not be cut off in silence.

use futures_lite::future::yield_now;
use xxhash_rust::xxh3::Xxh3;

/// Length (u32), checksum (u64), durable end (u64).
pub(super) const HEADER_BYTES: usize = 20;
/// Bytes of content hashed at once: some ten microseconds of work.
const STEP_BYTES: usize = 256 << 10;
/// Longest content of one frame.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

/// The checksum of a frame, taken piece by piece.
pub(super) struct Checksum(Xxh3);

impl Checksum {
    /// Of a frame of `len` bytes of content at `position`, written while the log was durable up to `synced`.
    pub(super) fn new(len: usize, position: u64, synced: u64) -> Self {
        let mut hash = Xxh3::new();
        // The length is part of it: a length torn to a smaller one would otherwise need a second look.
        for number in [position, synced, len as u64] {
            hash.update(&number.to_le_bytes());
        }
        Self(hash)
    }

    /// Adds the next bytes of the content, giving way to other tasks in between.
    pub(super) async fn add(&mut self, content: &[u8]) {
        for piece in content.chunks(STEP_BYTES) {
            self.0.update(piece);
            if piece.len() == STEP_BYTES {
                yield_now().await;
            }
        }
    }

    /// What stands before the content in the log.
    pub(super) fn header(&self, len: usize, synced: u64) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&(len as u32).to_le_bytes());
        out[4..12].copy_from_slice(&self.0.digest().to_le_bytes());
        out[12..].copy_from_slice(&synced.to_le_bytes());
        out
    }
}

fn checksum(content: &[u8], position: u64, synced: u64) -> u64 {
    let mut sum = Checksum::new(content.len(), position, synced);
    sum.0.update(content);
    sum.0.digest()
}

/// The content of the frame at the start of `bytes`, if a whole one is there.
pub(super) fn decode(bytes: &[u8], position: u64) -> Option<&[u8]> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u64::from_le_bytes(bytes.get(4..12)?.try_into().ok()?);
    let content = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(len)?)?;
    (len <= FRAME_BYTES_MAX && checksum(content, position, synced(bytes)?) == sum).then_some(content)
}

/// How far the log was durable when the frame with this header was written.
pub(super) fn synced_of(header: &[u8; HEADER_BYTES]) -> u64 {
    synced(header).unwrap_or(0)
}

/// How far the log was durable when the frame at the start of `bytes` was written. Only `decode` tells whether it is one.
fn synced(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(12..HEADER_BYTES)?.try_into().ok()?))
}

/// Whether somewhere in `bytes`, which lie at `position`, there is a frame that was written when the log was durable beyond
/// `position`.
pub(super) fn proves_durable(bytes: &[u8], position: u64) -> bool {
    (0..bytes.len()).any(|at| {
        let (rest, place) = (&bytes[at..], position + at as u64);
        // Few places pass the comparison, so hardly a checksum is computed in vain.
        synced(rest).is_some_and(|synced| synced > position && synced <= place) && decode(rest, place).is_some()
    })
}
