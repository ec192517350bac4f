//! A log frame: length, checksum, durable end, content.
//!
//! The checksum covers the frame's position in the log, so remains of an older segment with the same name are not mistaken for a
//! frame. The durable end distinguishes a torn tail from damage: if a later frame was written after the position of an invalid
//! one had been synced, the invalid one was acknowledged and must not be truncated silently.

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

/// What the bytes before a content say. Only the checksum tells whether they are a frame's.
pub(super) struct Header {
    /// Bytes of content.
    pub(super) len: usize,
    /// How far the log was durable when the frame was written.
    pub(super) synced: u64,
}

impl Header {
    /// What these bytes say.
    pub(super) fn of(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [l0, l1, l2, l3, _, _, _, _, _, _, _, _, synced @ ..] = *bytes;
        Self { len: u32::from_le_bytes([l0, l1, l2, l3]) as usize, synced: u64::from_le_bytes(synced) }
    }
}
