//! Collects the documents of many values into one set.

use roaring::RoaringBitmap;

use super::block::Block;

/// Small blocks are gathered up to this many numbers before they are sorted into the set.
const PENDING_MAX: usize = 1 << 16;

/// A union of blocks in any order. A range over many rare values meets one tiny block for each; adding those one by one
/// would search the set each time, so they are gathered and sorted.
#[derive(Default)]
pub(super) struct BlockUnion {
    set: RoaringBitmap,
    pending: Vec<u32>,
}

impl BlockUnion {
    pub fn add(&mut self, base: u32, block: Block<'_>) {
        match block {
            Block::List(numbers) => {
                self.pending.extend(numbers.iter().map(|number| base | u32::from(u16::from_le_bytes(*number))));
                if self.pending.len() >= PENDING_MAX {
                    self.settle();
                }
            }
            other => other.add_to(base, &mut self.set),
        }
    }

    fn settle(&mut self) {
        self.pending.sort_unstable();
        self.pending.dedup();
        let pending = RoaringBitmap::from_sorted_iter(self.pending.drain(..)).expect("sorted without duplicates above");
        self.set |= pending;
    }

    pub fn finish(mut self) -> RoaringBitmap {
        self.settle();
        self.set
    }
}
