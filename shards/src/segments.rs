//! Lists that grow without moving their elements: a vector that doubles copies all of them at once, which blocks a core for
//! milliseconds if the vector is large.

use std::mem::size_of;

/// Bytes of one segment.
const SEGMENT_BYTES: usize = 256 << 10;
/// The offset within a segment takes so many bits of a place.
const OFFSET_BITS: u32 = SEGMENT_BYTES.ilog2();

/// A list of values in segments.
#[derive(Clone, Debug)]
pub struct Segments<T> {
    segments: Vec<Vec<T>>,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self { segments: Vec::new() }
    }
}

impl<T> Segments<T> {
    /// Values in a segment, a power of two.
    const LEN: usize = 1 << (SEGMENT_BYTES / size_of::<T>()).ilog2();

    /// How many values there are.
    pub fn len(&self) -> usize {
        match self.segments.split_last() {
            Some((last, full)) => full.len() * Self::LEN + last.len(),
            None => 0,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Adds a value at the end.
    pub fn push(&mut self, value: T) {
        match self.segments.last_mut().filter(|last| last.len() < Self::LEN) {
            Some(last) => last.push(value),
            None => {
                // The first one grows from nothing, as most lists stay short.
                let room = if self.segments.is_empty() { 0 } else { Self::LEN };
                let mut segment = Vec::with_capacity(room);
                segment.push(value);
                self.segments.push(segment);
            }
        }
    }

    /// The value of a number below `len`.
    pub fn get(&self, at: usize) -> &T {
        &self.segments[at / Self::LEN][at % Self::LEN]
    }

    /// The value of a number below `len`, to be changed.
    pub fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.segments[at / Self::LEN][at % Self::LEN]
    }

    /// The last value.
    pub fn last(&self) -> Option<&T> {
        self.segments.last()?.last()
    }

    /// The values in their order, some thousands at a time.
    pub fn chunks(&self) -> impl Iterator<Item = &[T]> {
        self.segments.iter().map(Vec::as_slice)
    }

    /// Bytes of memory in use, about.
    pub fn memory_bytes(&self) -> usize {
        self.segments.len() * SEGMENT_BYTES
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.segments.clear();
    }
}

impl<T> IntoIterator for Segments<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.segments.into_iter().flatten()
    }
}

/// Pieces of bytes, each of which lies in one segment.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    segments: Vec<Vec<u8>>,
    bytes: usize,
}

/// How much there was, for [`Pieces::truncate`].
#[derive(Clone, Copy, Debug)]
pub struct PiecesMark {
    segments: usize,
    last_len: usize,
    bytes: usize,
}

impl Pieces {
    /// Adds a piece; its place, which is below 2^32 while all pieces together take less than 4 GiB, and no more than a
    /// quarter of a MiB each.
    pub fn push(&mut self, piece: &[u8]) -> u64 {
        self.bytes += piece.len();
        let fits = |segment: &&mut Vec<u8>| segment.len() + piece.len() <= SEGMENT_BYTES;
        let number = self.segments.len();
        match self.segments.last_mut().filter(fits) {
            Some(last) => {
                let offset = last.len() as u64;
                last.extend_from_slice(piece);
                ((number - 1) as u64) << OFFSET_BITS | offset
            }
            None => {
                // A piece longer than a segment gets one of its own.
                let room = if number == 0 { piece.len() } else { piece.len().max(SEGMENT_BYTES) };
                let mut segment = Vec::with_capacity(room);
                segment.extend_from_slice(piece);
                self.segments.push(segment);
                (number as u64) << OFFSET_BITS
            }
        }
    }

    /// The first `len` bytes of the piece at `place`.
    pub fn get(&self, place: u64, len: usize) -> &[u8] {
        if len == 0 {
            // Nothing needs no place.
            return &[];
        }
        let offset = (place % SEGMENT_BYTES as u64) as usize;
        &self.segments[(place >> OFFSET_BITS) as usize][offset..offset + len]
    }

    /// Bytes of all pieces.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How much there is now.
    pub fn mark(&self) -> PiecesMark {
        let last_len = self.segments.last().map_or(0, Vec::len);
        PiecesMark { segments: self.segments.len(), last_len, bytes: self.bytes }
    }

    /// Forgets what was added since `mark`.
    pub fn truncate(&mut self, mark: PiecesMark) {
        self.segments.truncate(mark.segments);
        if let Some(last) = self.segments.last_mut() {
            last.truncate(mark.last_len);
        }
        self.bytes = mark.bytes;
    }

    /// Forgets all pieces.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_numbers() {
        let mut list: Segments<u32> = Segments::default();
        assert!(list.is_empty() && list.last().is_none());
        for value in 0..200_000 {
            list.push(value);
        }
        assert_eq!((list.len(), list.last(), *list.get(131_072)), (200_000, Some(&199_999), 131_072));
        assert_eq!(list.chunks().map(<[u32]>::len).sum::<usize>(), 200_000);
        assert!(list.into_iter().eq(0..200_000));
    }

    #[test]
    fn pieces_of_any_length_are_found_again() {
        let mut pieces = Pieces::default();
        assert!(pieces.is_empty() && pieces.get(0, 0).is_empty());
        let lengths = [0, 1, 200_000, 100_000, 262_144, 1, 700_000, 3, 0];
        let piece = |at: usize| vec![at as u8; lengths[at]];
        let places: Vec<u64> = (0..lengths.len()).map(|at| pieces.push(&piece(at))).collect();
        let mark = pieces.mark();
        let later = pieces.push(&[9; 300_000]);
        assert_eq!(pieces.get(later, 300_000), [9; 300_000]);
        pieces.truncate(mark);
        assert_eq!(pieces.len(), lengths.iter().sum::<usize>());
        let later = pieces.push(&[8; 4]);
        assert_eq!(pieces.get(later, 4), [8; 4]);
        for (at, place) in places.into_iter().enumerate() {
            assert_eq!(pieces.get(place, lengths[at]), piece(at));
        }
    }
}
