//! Arrays of values that are JSON already: hits are spliced from the bytes that their owners wrote.

use super::part::{Pacer, pause};
use crate::runtime::steps::doing;

/// A JSON array of these values.
pub(super) fn json_array(items: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(items.iter().map(|item| item.as_ref().len() + 1).sum::<usize>() + 2);
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item.as_ref());
    }
    out.push(b']');
    out
}

/// Bytes of an array that are copied between two looks at whether others wait.
const BYTES_PER_LOOK: usize = 64 << 10;

/// Room behind an array for what an answer has besides its hits.
const ROOM_BYTES: usize = 1024;

/// The same with room for what follows in an answer, giving way to others.
pub(super) async fn json_array_in_steps(items: &[impl AsRef<[u8]>], pacer: &dyn Pacer) -> Vec<u8> {
    doing("answer");
    let bytes: usize = items.iter().map(|item| item.as_ref().len() + 1).sum();
    let mut out = Vec::with_capacity(bytes + ROOM_BYTES);
    out.push(b'[');
    let mut since_look = 0;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        for piece in item.as_ref().chunks(BYTES_PER_LOOK) {
            out.extend_from_slice(piece);
            since_look += piece.len();
            if since_look >= BYTES_PER_LOOK {
                since_look = 0;
                pause(pacer).await;
            }
        }
    }
    out.push(b']');
    out
}
