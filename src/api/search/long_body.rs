//! Long bodies are put together in steps: hundreds of megabytes that are copied at once, as a buffer does that grows, hold the core
//! for tenths of a second.

use shards::runtime::pause;
use storage_engine::vector::Pace;

/// Bytes that are copied between two looks at whether others wait, and of which a piece may be copied twice.
const BYTES_PER_LOOK: usize = 64 << 10;

/// A body in pieces.
#[derive(Default)]
pub(super) struct Pieces {
    before: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl Pieces {
    /// Appends a few bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.last.len() + bytes.len() > BYTES_PER_LOOK {
            self.before.push(std::mem::take(&mut self.last));
        }
        self.last.extend_from_slice(bytes);
    }

    /// Appends bytes that stay where they are if they are many.
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        if bytes.len() <= BYTES_PER_LOOK {
            return self.extend(&bytes);
        }
        self.before.push(std::mem::take(&mut self.last));
        self.before.push(bytes);
    }

    /// The whole body. Each piece is freed once it is copied.
    pub(super) async fn joined(mut self, pace: &dyn Pace) -> Vec<u8> {
        if self.before.is_empty() {
            return self.last;
        }
        self.before.push(self.last);
        let mut out = Vec::with_capacity(self.before.iter().map(Vec::len).sum());
        for piece in self.before {
            append(&mut out, &piece, pace).await;
        }
        out
    }
}

/// Puts bytes in front of others, with room for more behind. Where there is room the others are moved in their place: that takes a
/// fraction of the time of a copy elsewhere.
pub(super) async fn put_in_front(mut bytes: Vec<u8>, front: &[u8], room: usize, pace: &dyn Pace) -> Vec<u8> {
    let end = bytes.len();
    if end > BYTES_PER_LOOK && bytes.capacity() - end < front.len() + room {
        let mut out = Vec::with_capacity(front.len() + end + room);
        out.extend_from_slice(front);
        append(&mut out, &bytes, pace).await;
        return out;
    }
    bytes.reserve(front.len() + room);
    bytes.resize(end + front.len(), 0);
    let mut to = end;
    while to > 0 {
        let from = to.saturating_sub(BYTES_PER_LOOK);
        bytes.copy_within(from..to, from + front.len());
        to = from;
        pause(pace).await;
    }
    bytes[..front.len()].copy_from_slice(front);
    bytes
}

async fn append(out: &mut Vec<u8>, bytes: &[u8], pace: &dyn Pace) {
    for step in bytes.chunks(BYTES_PER_LOOK) {
        out.extend_from_slice(step);
        pause(pace).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{Future, ready};
    use std::pin::Pin;

    use futures_lite::future::block_on;

    use super::*;

    /// Counts pauses, one of which is always due.
    #[derive(Default)]
    struct Pauses(Cell<usize>);

    impl Pace for Pauses {
        fn due(&self) -> bool {
            true
        }

        fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
            self.0.set(self.0.get() + 1);
            Box::pin(ready(()))
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    /// An answer to many searches was once one buffer that doubled, all of it copied at once each time.
    #[test]
    fn pieces_are_joined_in_steps() {
        for lens in [vec![], vec![0, 3, 0], vec![10; 20_000], vec![7, 1 << 20, 9, 70_000, 65_536, 65_535, 2]] {
            let (mut pieces, mut expected, pauses) = (Pieces::default(), Vec::new(), Pauses::default());
            for len in lens {
                pieces.push(bytes(len));
                pieces.extend(b"{");
                expected.extend(bytes(len));
                expected.push(b'{');
            }
            let joined = block_on(pieces.joined(&pauses));
            assert!(joined == expected && joined.capacity() < 2 * expected.len() + 64);
            assert!(pauses.0.get() >= expected.len() / BYTES_PER_LOOK, "{}", pauses.0.get());
        }
    }

    /// With room behind or without it, of any length.
    #[test]
    fn bytes_are_put_in_front_in_steps() {
        for len in [0, 1, 5, 65_535, 65_536, 65_537, 65_544, 500_000] {
            for spare in [0, 4, 8, 20, 100] {
                let mut behind = Vec::with_capacity(len + spare);
                behind.extend(bytes(len));
                let pauses = Pauses::default();
                let all = block_on(put_in_front(behind, b"{\"hits\":", 10, &pauses));
                assert!(all.starts_with(b"{\"hits\":") && all[8..] == bytes(len) && all.capacity() >= len + 18);
                assert!(pauses.0.get() >= len / BYTES_PER_LOOK, "{}", pauses.0.get());
            }
        }
    }
}
