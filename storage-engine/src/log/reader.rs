//! Reads the log on opening: each segment from front to back, in pieces, so a long log takes no more memory than a short one.
//! Every frame's checksum is verified; of its content only the head that the visitor asks for is kept.

use super::frame::{Checksum, FRAME_BYTES_MAX, HEADER_BYTES, Header};
use super::{MAGIC, Position, SEGMENT_HEADER_BYTES, VERSION};
use crate::io::{DiskError, DiskFile};

/// Bytes read at once: as many as are hashed between two points at which other tasks get their turn.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Takes in what a log holds when it is opened, frame by frame in their order.
pub trait Visitor {
    /// How many of a frame's first bytes are wanted, given those read so far: first none, then as many as were wanted last,
    /// until they suffice or the frame has no more. The frame has not been verified then: nothing but this may be taken from it.
    fn wanted(&self, head: &[u8]) -> usize;
    /// A frame that is whole, and its first bytes: as many as were wanted and it has.
    fn frame(&mut self, position: Position, head: Vec<u8>);
}

/// The bytes of a file from some place on, one piece after another.
struct Pieces<'a> {
    file: &'a dyn DiskFile,
    piece_bytes: usize,
    /// Where in the file the next piece begins.
    next: u64,
    piece: Vec<u8>,
    /// How much of the piece has been taken.
    taken: usize,
}

impl<'a> Pieces<'a> {
    fn new(file: &'a dyn DiskFile, from: u64, piece_bytes: usize) -> Self {
        Self { file, piece_bytes, next: from, piece: Vec::new(), taken: 0 }
    }

    /// Bytes that have not been taken.
    fn left(&self) -> u64 {
        self.file.len().saturating_sub(self.next) + (self.piece.len() - self.taken) as u64
    }

    /// Takes the next bytes, at most `len_max`; none only at the end of the file.
    async fn take(&mut self, len_max: u64) -> Result<&[u8], DiskError> {
        let left = self.left();
        if self.taken == self.piece.len() && left > 0 {
            let len = left.min(self.piece_bytes as u64);
            // The piece before goes first: two of them are never held.
            self.piece = Vec::new();
            self.taken = 0;
            self.piece = self.file.read_at(self.next, len as usize).await?;
            self.next += len;
        }
        let rest = &self.piece[self.taken..];
        let bytes = &rest[..len_max.min(rest.len() as u64) as usize];
        self.taken += bytes.len();
        Ok(bytes)
    }

    /// Takes the next `N` bytes, if there are as many.
    async fn take_array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, DiskError> {
        if self.left() < N as u64 {
            return Ok(None);
        }
        let (mut array, mut filled) = ([0; N], 0);
        while filled < N {
            let bytes = self.take((N - filled) as u64).await?;
            array[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        }
        Ok(Some(array))
    }

    /// Takes the frame that is to lie at `offset` in the log, and as much of its content as is wanted; nothing when no whole one
    /// is there.
    async fn take_frame(
        &mut self,
        offset: u64,
        wanted: impl Fn(&[u8]) -> usize,
    ) -> Result<Option<(Position, Vec<u8>)>, DiskError> {
        let Some(bytes) = self.take_array::<HEADER_BYTES>().await? else { return Ok(None) };
        let Header { len, synced } = Header::of(&bytes);
        if len > FRAME_BYTES_MAX || len as u64 > self.left() {
            return Ok(None);
        }
        let mut sum = Checksum::new(len, offset, synced);
        let mut head = Head::new(wanted);
        let mut left = len as u64;
        while left > 0 {
            let content = self.take(left).await?;
            head.take(content);
            sum.add(content).await;
            left -= content.len() as u64;
        }
        let position = Position { offset, len: len as u32 };
        Ok((sum.header(len, synced) == bytes).then_some((position, head.bytes)))
    }
}

/// The first bytes of a frame, as many as are wanted.
struct Head<W> {
    bytes: Vec<u8>,
    wanted: W,
    len: usize,
}

impl<W: Fn(&[u8]) -> usize> Head<W> {
    fn new(wanted: W) -> Self {
        let len = wanted(&[]);
        Self { bytes: Vec::new(), wanted, len }
    }

    /// Takes from the next bytes of the frame what is wanted.
    fn take(&mut self, mut content: &[u8]) {
        while self.bytes.len() < self.len && !content.is_empty() {
            let (taken, rest) = content.split_at(content.len().min(self.len - self.bytes.len()));
            self.bytes.extend_from_slice(taken);
            content = rest;
            if self.bytes.len() == self.len {
                self.len = (self.wanted)(&self.bytes);
            }
        }
    }
}

/// What a segment begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SegmentHead {
    /// A header of this version, and frames: they take so many bytes of the file, the header included.
    Whole(u64),
    /// A header of another format version.
    Version(u32),
    /// No header, although a frame follows. A segment's header is durable before its first frame is written.
    Damaged,
    /// No header and no frame: the segment was interrupted while it was created.
    Torn,
}

/// Shows the visitor a segment's frames up to the first that is not whole.
pub(super) async fn read_segment(
    file: &dyn DiskFile,
    start: u64,
    piece_bytes: usize,
    visitor: &mut dyn Visitor,
) -> Result<SegmentHead, DiskError> {
    let mut pieces = Pieces::new(file, 0, piece_bytes);
    let Some(header) = pieces.take_array::<{ SEGMENT_HEADER_BYTES as usize }>().await? else {
        return Ok(SegmentHead::Torn);
    };
    let [.., v0, v1, v2, v3, _, _, _, _] = header;
    let version = u32::from_le_bytes([v0, v1, v2, v3]);
    let is_marked = header[..8] == MAGIC;
    if !is_marked || version == 0 {
        let first = pieces.take_frame(start, |_| 0).await?;
        return Ok(if first.is_some() { SegmentHead::Damaged } else { SegmentHead::Torn });
    }
    if version != VERSION {
        return Ok(SegmentHead::Version(version));
    }
    let mut end = start;
    while let Some((position, head)) = pieces.take_frame(end, |head| visitor.wanted(head)).await? {
        end = position.end();
        visitor.frame(position, head);
    }
    Ok(SegmentHead::Whole(SEGMENT_HEADER_BYTES + end - start))
}

/// Whether somewhere in the file from byte `from` on, which lies at `position` in the log, there is a frame that was written when
/// the log was durable beyond `position`.
pub(super) async fn proves_durable(
    file: &dyn DiskFile,
    from: u64,
    position: u64,
    piece_bytes: usize,
) -> Result<bool, DiskError> {
    let mut pieces = Pieces::new(file, from, piece_bytes);
    let (mut window, mut window_start) = (Vec::new(), from);
    loop {
        let piece = pieces.take(u64::MAX).await?;
        if piece.is_empty() {
            return Ok(false);
        }
        window.extend_from_slice(piece);
        for (at, bytes) in (window_start..).zip(window.array_windows::<HEADER_BYTES>()) {
            let (header, place) = (Header::of(bytes), position + (at - from));
            // Few places pass the comparison, so hardly a checksum is computed in vain.
            if header.synced > position && header.synced <= place {
                let frame_bytes = header.len.saturating_add(HEADER_BYTES);
                let mut frame = Pieces::new(file, at, piece_bytes.min(frame_bytes));
                if frame.take_frame(place, |_| 0).await?.is_some() {
                    return Ok(true);
                }
            }
        }
        // A frame's header may lie in two pieces.
        let scanned = window.len().saturating_sub(HEADER_BYTES - 1);
        window.drain(..scanned);
        window_start += scanned as u64;
    }
}
