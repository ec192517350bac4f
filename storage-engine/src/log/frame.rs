//! A frame: length, checksum, how far the log was durable when it was written, bytes.
//!
//! The checksum covers the frame's place in the log, so that what an older segment of the same name left behind is not
//! taken for a frame. The third number tells a torn tail from damage: when a later frame was written after the place of a
//! bad one had been synced, the bad one was acknowledged, and must not be cut off in silence.

use xxhash_rust::xxh3::Xxh3;

/// Length (u32), checksum (u64), durable end (u64).
pub(super) const HEADER_BYTES: usize = 20;
/// Longest content of one frame.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

fn checksum(content: &[u8], position: u64, synced: u64) -> u64 {
    let mut hash = Xxh3::new();
    // The length is part of it: a length torn to a smaller one would otherwise need a second look.
    for number in [position, synced, content.len() as u64] {
        hash.update(&number.to_le_bytes());
    }
    hash.update(content);
    hash.digest()
}

/// Appends a frame of these parts, concatenated, that will lie at `position`, written while the log was durable up to
/// `synced`.
pub(super) fn encode(parts: &[Vec<u8>], position: u64, synced: u64, out: &mut Vec<u8>) {
    let start = out.len();
    let len: usize = parts.iter().map(Vec::len).sum();
    out.reserve(HEADER_BYTES + len);
    out.resize(start + HEADER_BYTES, 0);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let sum = checksum(&out[start + HEADER_BYTES..], position, synced);
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
    out[start + 4..start + 12].copy_from_slice(&sum.to_le_bytes());
    out[start + 12..start + HEADER_BYTES].copy_from_slice(&synced.to_le_bytes());
}

/// The content of the frame at the start of `bytes`, if a whole one is there.
pub(super) fn decode(bytes: &[u8], position: u64) -> Option<&[u8]> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u64::from_le_bytes(bytes.get(4..12)?.try_into().ok()?);
    let content = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(len)?)?;
    (len <= FRAME_BYTES_MAX && checksum(content, position, synced(bytes)?) == sum).then_some(content)
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
