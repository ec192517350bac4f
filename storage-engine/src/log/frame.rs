//! A frame: length, checksum, bytes. The checksum covers the frame's place in the log, so that what an older segment of
//! the same name left behind is not taken for a frame.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Length (u32) and checksum (u64).
pub(super) const HEADER_BYTES: usize = 12;
/// Longest content of one frame.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

fn checksum(content: &[u8], position: u64) -> u64 {
    // The length is part of it: a length torn to a smaller one would otherwise need a second look.
    xxh3_64_with_seed(content, position ^ (content.len() as u64).rotate_left(32))
}

/// Appends a frame of these parts, concatenated, that will lie at `position`.
pub(super) fn encode(parts: &[Vec<u8>], position: u64, out: &mut Vec<u8>) {
    let start = out.len();
    let len: usize = parts.iter().map(Vec::len).sum();
    out.reserve(HEADER_BYTES + len);
    out.resize(start + HEADER_BYTES, 0);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let sum = checksum(&out[start + HEADER_BYTES..], position);
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
    out[start + 4..start + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// The content of the frame at the start of `bytes`, if a whole one is there.
pub(super) fn decode(bytes: &[u8], position: u64) -> Option<&[u8]> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u64::from_le_bytes(bytes.get(4..HEADER_BYTES)?.try_into().ok()?);
    let content = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(len)?)?;
    (len <= FRAME_BYTES_MAX && checksum(content, position) == sum).then_some(content)
}
