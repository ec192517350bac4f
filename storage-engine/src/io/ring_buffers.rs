//! Buffers of a ring: some registered with the kernel, which then need not look up their pages for each read.

use std::ops::Range;

use io_uring::IoUring;

/// Reads past the page cache begin and end at multiples of this, in the file and in memory: a multiple of any device's blocks.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Blocks of a registered buffer: a vector of 1,536 dimensions and what its ends share with its neighbours.
const SLOT_BLOCKS: usize = 4;
/// Registered buffers, 1 MiB in all: registered memory is locked, and some hosts allow little of it.
const SLOTS: usize = 64;

#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Memory to read into.
pub(super) struct Buffer {
    blocks: Box<[Block]>,
    slot: Option<u16>,
}

/// The registered buffers that are free. None are made until one is wanted: only files beyond memory need them.
#[derive(Default)]
pub(super) struct Buffers {
    free: Vec<Buffer>,
    are_made: bool,
}

impl Buffer {
    fn new(blocks: usize, slot: Option<u16>) -> Self {
        Self { blocks: vec![Block([0; BLOCK_BYTES]); blocks].into_boxed_slice(), slot }
    }

    /// Its number with the kernel, where it is registered.
    pub(super) fn slot(&self) -> Option<u16> {
        self.slot
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.blocks.as_mut_ptr().cast()
    }

    /// Bytes of it, which must lie within.
    pub(super) fn copy(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len());
        for (number, block) in self.blocks.iter().enumerate() {
            let start = number * BLOCK_BYTES;
            let within = range.start.clamp(start, start + BLOCK_BYTES)..range.end.clamp(start, start + BLOCK_BYTES);
            bytes.extend_from_slice(&block.0[within.start - start..within.end - start]);
        }
        bytes
    }
}

impl Buffers {
    /// A buffer of at least `bytes`.
    pub(super) fn take(&mut self, bytes: usize, ring: &IoUring) -> Buffer {
        if bytes > SLOT_BLOCKS * BLOCK_BYTES {
            return Buffer::new(bytes.div_ceil(BLOCK_BYTES), None);
        }
        if !std::mem::replace(&mut self.are_made, true) {
            self.register(ring);
        }
        self.free.pop().unwrap_or_else(|| Buffer::new(bytes.div_ceil(BLOCK_BYTES), None))
    }

    /// Takes a buffer back that the kernel is done with.
    pub(super) fn give(&mut self, buffer: Buffer) {
        if buffer.slot.is_some() {
            self.free.push(buffer);
        }
    }

    fn register(&mut self, ring: &IoUring) {
        let mut slots: Vec<Buffer> = (0..SLOTS).map(|slot| Buffer::new(SLOT_BLOCKS, Some(slot as u16))).collect();
        let pieces: Vec<libc::iovec> = slots
            .iter_mut()
            .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT_BLOCKS * BLOCK_BYTES })
            .collect();
        // SAFETY: the memory is that of the buffers, which are dropped only after all reads have ended, and used by nothing else
        // while one is in flight.
        let registered = unsafe { ring.submitter().register_buffers(&pieces) };
        // Where the limit of locked memory forbids it, reads go into buffers made for each.
        if registered.is_ok() {
            self.free = slots;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_over_the_ends_of_blocks() {
        let mut buffer = Buffer::new(3, None);
        for (number, block) in buffer.blocks.iter_mut().enumerate() {
            block.0.fill(number as u8);
        }
        assert_eq!(buffer.copy(4095..4097), [0, 1]);
        assert_eq!(buffer.copy(4096..3 * 4096), [vec![1; 4096], vec![2; 4096]].concat());
        assert!(buffer.copy(0..0).is_empty());
        assert_eq!(buffer.as_mut_ptr() as usize % BLOCK_BYTES, 0);
    }
}
