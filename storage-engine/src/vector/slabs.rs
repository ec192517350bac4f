//! Memory for large, randomly accessed arrays: pieces of equal length, cut from slabs that the kernel may back with huge pages.
//! With small pages, each random access also costs a page-table walk, which under virtualization costs more than reading the
//! code: with a million codes in huge pages, 32 clients got 1.16 times as many searches.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use memmap2::{Advice, MmapMut};

/// A slab is one huge page of x86-64, and of AArch64 with small pages of 4 KiB.
const SLAB_BYTES: usize = 2 << 20;
/// Of how many slabs' worth pieces come from the heap before the first slab is made: little data must not take a huge page.
const HEAP_SLABS: usize = 1;

/// Where pieces come from. A clone is the same.
#[derive(Clone, Debug)]
pub struct Slabs {
    piece_bytes: usize,
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Pieces on the heap now.
    on_heap: usize,
    /// Slabs by their numbers; none where one was given back.
    slabs: Vec<Option<Slab>>,
    free: Vec<Place>,
}

#[derive(Debug)]
struct Slab {
    #[expect(dead_code, reason = "it owns the memory that its pieces point to")]
    memory: MmapMut,
    /// Pieces of it in use.
    used: usize,
}

/// A piece's place among the slabs.
#[derive(Clone, Copy, Debug)]
struct Place {
    slab: usize,
    start: NonNull<u8>,
}

/// Where a piece lies.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// In a box of its own, which it frees.
    Heap,
    /// In the slab of this number.
    Slab(usize),
}

/// Bytes of a fixed number, zero at first.
#[derive(Debug)]
pub struct Piece {
    start: NonNull<u8>,
    home: Home,
    slabs: Slabs,
}

impl Slabs {
    /// Pieces of so many bytes each, at least 1.
    pub fn new(piece_bytes: usize) -> Self {
        Self { piece_bytes, inner: Rc::default() }
    }

    /// A piece of zeros.
    pub fn piece(&self) -> Piece {
        let per_slab = SLAB_BYTES / self.piece_bytes;
        let mut inner = self.inner.borrow_mut();
        let place = if inner.on_heap < HEAP_SLABS * per_slab.max(1) { None } else { inner.place(self.piece_bytes) };
        let Some(place) = place else {
            inner.on_heap += 1;
            // Its type is told: a cast would hide another, of another size than the box that is freed.
            let memory: &mut [u8] = Box::leak(vec![0; self.piece_bytes].into_boxed_slice());
            return Piece { start: NonNull::from(memory).cast(), home: Home::Heap, slabs: self.clone() };
        };
        let mut piece = Piece { start: place.start, home: Home::Slab(place.slab), slabs: self.clone() };
        drop(inner);
        piece.fill(0);
        piece
    }
}

impl Inner {
    /// A place that nobody has; none where pieces do not fit into a slab, or where the kernel gives no memory for one.
    fn place(&mut self, piece_bytes: usize) -> Option<Place> {
        if piece_bytes > SLAB_BYTES {
            return None;
        }
        if self.free.is_empty() {
            let mut memory = MmapMut::map_anon(SLAB_BYTES).ok()?;
            // Where huge pages are not to be had the slab is as good as any other memory.
            let _ = memory.advise(Advice::HugePage);
            let slab = self.slabs.iter().position(Option::is_none).unwrap_or(self.slabs.len());
            let starts = memory.chunks_exact_mut(piece_bytes).map(|piece| NonNull::from(piece).cast());
            self.free.extend(starts.map(|start| Place { slab, start }));
            // The first first: what is written in order then lies in order.
            self.free.reverse();
            self.slabs.resize_with(self.slabs.len().max(slab + 1), || None);
            self.slabs[slab] = Some(Slab { memory, used: 0 });
        }
        let place = self.free.pop()?;
        self.slabs[place.slab].as_mut()?.used += 1;
        Some(place)
    }

    /// Takes a place back, and gives back the slab that is empty then.
    fn take_back(&mut self, place: Place) {
        self.free.push(place);
        let Some(slab) = self.slabs[place.slab].as_mut() else { return };
        slab.used -= 1;
        if slab.used == 0 {
            self.free.retain(|free| free.slab != place.slab);
            self.slabs[place.slab] = None;
        }
    }
}

impl Piece {
    /// Where its bytes lie, as long as it lives.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Clone for Piece {
    fn clone(&self) -> Self {
        let mut copy = self.slabs.piece();
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the start is that of `piece_bytes` initialised bytes, of a box that this piece frees or of a slab that lives as long
        // as any piece of it; a place is given to one piece at a time, so nobody else has a reference to them that writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.slabs.piece_bytes) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this borrow of the only piece at the place is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.slabs.piece_bytes) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut inner = self.slabs.inner.borrow_mut();
        match self.home {
            Home::Heap => {
                inner.on_heap -= 1;
                let memory = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.slabs.piece_bytes);
                // SAFETY: these are the bytes of the box that was leaked for this piece, and it goes once.
                drop(unsafe { Box::from_raw(memory) });
            }
            Home::Slab(slab) => inner.take_back(Place { slab, start: self.start }),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Pieces come, are written, copied and go in any order: each keeps its bytes, new ones are zero, and slabs without pieces go.
    #[test]
    fn pieces_keep_their_bytes() {
        for piece_bytes in [1000, 51_200, SLAB_BYTES, SLAB_BYTES + 1] {
            let (slabs, mut rng) = (Slabs::new(piece_bytes), StdRng::seed_from_u64(piece_bytes as u64));
            let mut pieces: Vec<(u8, Piece)> = Vec::new();
            for step in 0..400u32 {
                let has_room = pieces.len() * piece_bytes < 16 << 20;
                match rng.random_range(0..4) {
                    0 if !pieces.is_empty() => drop(pieces.swap_remove(rng.random_range(0..pieces.len()))),
                    1 if !pieces.is_empty() && has_room => {
                        let (value, piece) = &pieces[rng.random_range(0..pieces.len())];
                        let copy = (*value, piece.clone());
                        pieces.push(copy);
                    }
                    _ if has_room => {
                        let mut piece = slabs.piece();
                        assert!(piece.len() == piece_bytes && piece.iter().all(|byte| *byte == 0));
                        piece.fill(step as u8);
                        pieces.push((step as u8, piece));
                    }
                    _ => {}
                }
                let last = pieces.last();
                assert!(last.is_none_or(|(value, piece)| piece.iter().all(|byte| byte == value)));
            }
            assert!(pieces.iter().all(|(value, piece)| piece.iter().all(|byte| byte == value)));
            pieces.clear();
            let inner = slabs.inner.borrow();
            assert_eq!((inner.on_heap, inner.free.len(), inner.slabs.iter().flatten().count()), (0, 0, 0));
        }
    }

    /// What follows the first slab's worth lies in slabs.
    #[test]
    fn many_pieces_lie_in_slabs() {
        let slabs = Slabs::new(1 << 19);
        let pieces: Vec<Piece> = (0..10).map(|_| slabs.piece()).collect();
        assert_eq!(pieces.iter().filter(|piece| matches!(piece.home, Home::Heap)).count(), 4);
        assert_eq!(slabs.inner.borrow().slabs.len(), 2);
        assert_eq!(pieces[5].start().as_ptr() as usize - pieces[4].start().as_ptr() as usize, 1 << 19);
    }
}
