//! Arrays of already serialized values: hits are spliced from the bytes that their owners wrote.

use storage_engine::vector::Pace;

use crate::runtime::pause;
use crate::runtime::steps::doing;

/// Bytes of an array that are copied between two looks at whether others wait.
const BYTES_PER_LOOK: usize = 64 << 10;

/// Room behind an array for what an answer has besides its hits.
const ROOM_BYTES: usize = 1024;

/// A JSON array of these values with room for what follows in an answer. Gives way to others.
pub(super) async fn json_array_in_steps(items: &[impl AsRef<[u8]>], pacer: &dyn Pace) -> Vec<u8> {
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
