//! One number for each task or batch, looked up by range: dates, and the batch of a task.
//!
//! Numbers that belong to neighbouring uids are near each other (dates grow with the uid), so a block of uids is mostly
//! taken or passed over as a whole by its smallest and largest number. 8 bytes a uid.

use std::collections::BTreeMap;
use std::ops::Bound;

use roaring::RoaringBitmap;

/// Uids in one block.
const BLOCK_UIDS: u32 = 1024;
/// Stands for "no number".
const ABSENT: i64 = i64::MIN;

/// A number for each of some uids.
#[derive(Default)]
pub struct Column {
    blocks: BTreeMap<u32, Block>,
}

struct Block {
    values: Box<[i64]>,
    present: u32,
    /// At most the smallest number present; a removal does not raise it.
    at_least: i64,
    /// At least the largest number present; a removal does not lower it.
    at_most: i64,
}

/// A range of numbers.
pub type Range = (Bound<i64>, Bound<i64>);

impl Column {
    /// The number of a uid.
    pub fn get(&self, uid: u32) -> Option<i64> {
        let value = self.blocks.get(&(uid / BLOCK_UIDS))?.values[(uid % BLOCK_UIDS) as usize];
        (value != ABSENT).then_some(value)
    }

    /// Sets or takes away the number of a uid. The smallest `i64` stands for none.
    pub fn set(&mut self, uid: u32, value: Option<i64>) {
        let value = value.unwrap_or(ABSENT);
        if value == ABSENT && !self.blocks.contains_key(&(uid / BLOCK_UIDS)) {
            return;
        }
        let block = self.blocks.entry(uid / BLOCK_UIDS).or_insert_with(|| Block {
            values: vec![ABSENT; BLOCK_UIDS as usize].into_boxed_slice(),
            present: 0,
            at_least: i64::MAX,
            at_most: i64::MIN,
        });
        let slot = &mut block.values[(uid % BLOCK_UIDS) as usize];
        block.present -= u32::from(*slot != ABSENT);
        *slot = value;
        if value != ABSENT {
            block.present += 1;
            block.at_least = block.at_least.min(value);
            block.at_most = block.at_most.max(value);
        } else if block.present == 0 {
            self.blocks.remove(&(uid / BLOCK_UIDS));
        }
    }

    /// All uids whose number lies in `range`.
    pub fn within(&self, range: Range) -> RoaringBitmap {
        let mut found = RoaringBitmap::new();
        for (number, block) in &self.blocks {
            let first = number * BLOCK_UIDS;
            if is_below(block.at_most, range.0) || is_above(block.at_least, range.1) {
                continue;
            }
            if block.present == BLOCK_UIDS && contains(range, block.at_least) && contains(range, block.at_most) {
                found.insert_range(first..=first + (BLOCK_UIDS - 1));
                continue;
            }
            for (uid, value) in (first..).zip(&block.values) {
                if *value != ABSENT && contains(range, *value) {
                    found.insert(uid);
                }
            }
        }
        found
    }
}

fn is_below(value: i64, lower: Bound<i64>) -> bool {
    match lower {
        Bound::Included(lower) => value < lower,
        Bound::Excluded(lower) => value <= lower,
        Bound::Unbounded => false,
    }
}

fn is_above(value: i64, upper: Bound<i64>) -> bool {
    match upper {
        Bound::Included(upper) => value > upper,
        Bound::Excluded(upper) => value >= upper,
        Bound::Unbounded => false,
    }
}

fn contains(range: Range, value: i64) -> bool {
    !is_below(value, range.0) && !is_above(value, range.1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bound() -> impl Strategy<Value = Bound<i64>> {
        prop_oneof![
            Just(Bound::Unbounded),
            (-5..40i64).prop_map(Bound::Included),
            (-5..40i64).prop_map(Bound::Excluded)
        ]
    }

    proptest! {
        /// Blocks that are taken or passed over as a whole must give what looking at each number gives, also after
        /// removals, which leave a block's limits too wide.
        #[test]
        fn ranges_agree_with_a_plain_map(
            changes in prop::collection::vec((0..2100u32, prop::option::of(0..30i64)), 0..200),
            filled in prop::bool::ANY, lower in bound(), upper in bound(),
        ) {
            let (mut column, mut twin) = (Column::default(), BTreeMap::new());
            let base = (0..if filled { 1100u32 } else { 0 }).map(|uid| (uid, Some(i64::from(uid / 50))));
            for (uid, value) in base.chain(changes) {
                column.set(uid, value);
                match value {
                    Some(value) => { twin.insert(uid, value); }
                    None => { twin.remove(&uid); }
                }
                prop_assert_eq!(column.get(uid), twin.get(&uid).copied());
            }
            let wanted: RoaringBitmap =
                twin.iter().filter(|(_, value)| contains((lower, upper), **value)).map(|(uid, _)| *uid).collect();
            prop_assert_eq!(column.within((lower, upper)), wanted);
        }
    }
}
