//! Arrays that are cheap to copy: copies share chunks until one of them changes a chunk. A published state and the draft of the
//! next are two such copies.

use std::ptr::NonNull;
use std::rc::Rc;

use super::slabs::{Piece, Slabs};

/// Elements in a chunk.
const CHUNK: usize = 1024;

/// An array in shared chunks. Elements past the end read as the default.
#[derive(Clone, Debug)]
pub struct Chunked<T> {
    chunks: Vec<Rc<[T]>>,
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T: Clone + Default> Chunked<T> {
    /// The element at `index`, or none past the end.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    /// The element at `index` for changing; the array grows to hold it, and a chunk that others share is copied.
    pub fn get_mut(&mut self, index: u32) -> &mut T {
        let chunk = index as usize / CHUNK;
        while self.chunks.len() <= chunk {
            self.chunks.push(vec![T::default(); CHUNK].into());
        }
        &mut Rc::make_mut(&mut self.chunks[chunk])[index as usize % CHUNK]
    }
}

/// Byte strings of one length in shared chunks.
#[derive(Clone, Debug)]
pub struct Strides {
    stride: usize,
    chunks: Vec<StridesChunk>,
    slabs: Slabs,
}

/// A chunk, and where its bytes lie: a reader gets to them without a look at the piece.
#[derive(Clone, Debug)]
struct StridesChunk {
    start: NonNull<u8>,
    piece: Rc<Piece>,
}

/// Strings in a chunk: few, so that a change of one copies little.
const STRIDES_PER_CHUNK: usize = 128;

impl Strides {
    /// No strings yet, of `stride` bytes each, at least 1.
    pub fn new(stride: usize) -> Self {
        Self { stride, chunks: Vec::new(), slabs: Slabs::new(STRIDES_PER_CHUNK * stride) }
    }

    /// Bytes of a string.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The string at `index`.
    ///
    /// # Panics
    /// Where none was ever written at or after it.
    #[inline(always)]
    pub fn get(&self, index: u32) -> &[u8] {
        let (chunk, at) = (index as usize / STRIDES_PER_CHUNK, index as usize % STRIDES_PER_CHUNK);
        let start = self.chunks[chunk].start;
        // SAFETY: the start is that of the chunk's piece, which has STRIDES_PER_CHUNK strings, lives as long as the chunk, and is
        // not written while this array is borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(at * self.stride), self.stride) }
    }

    /// The string at `index` for changing; the array grows to hold it.
    pub fn get_mut(&mut self, index: u32) -> &mut [u8] {
        let (chunk, at) = (index as usize / STRIDES_PER_CHUNK, index as usize % STRIDES_PER_CHUNK);
        while self.chunks.len() <= chunk {
            let piece = self.slabs.piece();
            self.chunks.push(StridesChunk { start: piece.start(), piece: Rc::new(piece) });
        }
        let chunk = &mut self.chunks[chunk];
        let piece = Rc::make_mut(&mut chunk.piece);
        chunk.start = piece.start();
        &mut piece[at * self.stride..(at + 1) * self.stride]
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * STRIDES_PER_CHUNK * self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader holds a state while the writer makes the next: a chunk that is changed in place would change under it.
    #[test]
    fn a_copy_keeps_its_content() {
        let mut array = Chunked::<u32>::default();
        *array.get_mut(5000) = 7;
        let copy = array.clone();
        *array.get_mut(5000) = 8;
        *array.get_mut(9000) = 9;
        assert_eq!((copy.get(5000), copy.get(9000), copy.get(3)), (Some(&7), None, Some(&0)));
        assert_eq!((array.get(5000), array.get(9000)), (Some(&8), Some(&9)));

        let mut strings = Strides::new(3);
        strings.get_mut(200).copy_from_slice(b"abc");
        let copy = strings.clone();
        strings.get_mut(200).copy_from_slice(b"xyz");
        assert_eq!((copy.get(200), strings.get(200), strings.get(0)), (&b"abc"[..], &b"xyz"[..], &[0u8; 3][..]));
    }
}
