//! Collects the documents of many values into one set.

use roaring::RoaringBitmap;

use super::block::{Block, DocumentBits};

/// Numbers that are gathered before they are put into bits, at least.
const PENDING_MIN: usize = if cfg!(test) { 4 } else { 4096 };
/// From so many numbers for each block on, bits take less time than sorting.
const NUMBERS_PER_BLOCK: usize = if cfg!(test) { 2 } else { 128 };
/// Sets of more numbers in each block are bits already.
const SPARSE_MAX: u64 = if cfg!(test) { 4 } else { 4096 };
/// A block of so few numbers needs no bits of its own.
const FEW: u64 = 64;

/// A union of blocks in any order. A range over many rare values meets one tiny block for each; adding those one by one
/// would search the set each time, and sorting them takes longer than to set a bit for each.
#[derive(Default)]
pub struct BlockUnion {
    /// Dense sets, together.
    dense: RoaringBitmap,
    /// Numbers that are in no bits yet.
    pending: Vec<u32>,
    bits: DocumentBits,
    /// All numbers are in the first so many blocks.
    spread: usize,
    added: u64,
}

impl BlockUnion {
    pub(super) fn add(&mut self, base: u32, block: Block<'_>) {
        self.added += block.len();
        match block {
            Block::List(numbers) => {
                self.pending.extend(numbers.iter().map(|number| base | u32::from(u16::from_le_bytes(*number))));
                self.gathered(base);
            }
            Block::Runs(_) if block.len() <= FEW => {
                block.each(&mut |number| self.pending.push(base | u32::from(number)));
                self.gathered(base);
            }
            other => self.bits.block(base).insert_all(other),
        }
    }

    /// Adds a set of documents.
    pub fn add_set(&mut self, set: &RoaringBitmap) {
        let blocks = set.max().map_or(0, |last| u64::from(last >> 16) + 1);
        if set.len() > blocks * SPARSE_MAX {
            self.dense |= set;
            return;
        }
        self.bits.extend(set.iter());
    }

    /// How many documents were added in blocks, some of them again and again.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Looks after numbers that were gathered of a block.
    fn gathered(&mut self, base: u32) {
        self.spread = self.spread.max((base >> 16) as usize + 1);
        if self.pending.len() >= PENDING_MIN.max(self.spread.saturating_mul(NUMBERS_PER_BLOCK)) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.bits.extend(self.pending.drain(..));
    }

    /// All documents.
    pub fn finish(mut self) -> RoaringBitmap {
        let mut set = self.dense;
        if self.bits.is_empty() && self.pending.len() < self.spread.saturating_mul(NUMBERS_PER_BLOCK) {
            self.pending.sort_unstable();
            self.pending.dedup();
            set |= RoaringBitmap::from_sorted_iter(self.pending).expect("sorted without duplicates above");
            return set;
        }
        self.bits.extend(self.pending.into_iter());
        self.bits.add_to(&mut set);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::block::encode;
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Whatever kinds of blocks come, and in any order: the set is that of all their numbers.
        #[test]
        fn all_numbers_are_in_the_union(
            lists in proptest::collection::vec((0..4u32, proptest::collection::btree_set(0..9000u16, 0..5)), 0..20),
            runs in proptest::collection::vec((0..4u32, 0..u16::MAX, 0..3000u16), 0..3),
            sets in proptest::collection::vec(proptest::collection::btree_set(0..400_000u32, 0..20), 0..3),
            every in proptest::option::of(2..9u16),
        ) {
            let (mut union, mut expected) = (BlockUnion::default(), BTreeSet::new());
            let lists = lists.into_iter().map(|(at, list)| (at, list.into_iter().collect::<Vec<u16>>()));
            let runs = runs.into_iter().map(|(at, first, length)| (at, (first..=first.saturating_add(length)).collect()));
            let dense = every.map(|every| (2, (0..60_000).filter(|number| number % every == 0).collect()));
            for (at, numbers) in runs.chain(lists).chain(dense) {
                let mut bytes = Vec::new();
                encode(&numbers, &mut bytes);
                union.add(at << 16, Block::decode(&bytes).expect("just encoded"));
                expected.extend(numbers.iter().map(|number| at << 16 | u32::from(*number)));
            }
            for set in sets {
                union.add_set(&set.iter().copied().collect());
                expected.extend(set);
            }
            prop_assert!(union.finish().iter().eq(expected));
        }
    }
}
