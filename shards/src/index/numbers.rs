//! Allocation of an index's document numbers (internal IDs).

use roaring::RoaringBitmap;

/// Which numbers are in use: all below `next` that are not free. A new document takes the smallest free number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DocNumbers {
    /// No number from here on was ever used.
    pub next: u32,
    /// Numbers below `next` whose documents were deleted.
    pub free: RoaringBitmap,
}

impl DocNumbers {
    /// Takes the smallest free number; `None` when all 32-bit numbers are in use.
    pub fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.free.min() {
            self.free.remove(number);
            return Some(number);
        }
        let number = self.next;
        self.next = number.checked_add(1)?;
        Some(number)
    }

    /// Gives a number back.
    pub fn give_back(&mut self, number: u32) {
        debug_assert!(number < self.next, "only numbers in use are given back");
        self.free.insert(number);
        while self.next > 0 && self.free.remove(self.next - 1) {
            self.next -= 1;
        }
    }

    /// Gives many numbers back.
    pub fn give_back_all(&mut self, numbers: &RoaringBitmap) {
        self.free |= numbers;
        let is_free_from = |first: u32| self.free.range_cardinality(first..self.next) == u64::from(self.next - first);
        // Where the free numbers at the end begin.
        let (mut low, mut high) = (0, self.next);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_free_from(middle) { high = middle } else { low = middle + 1 }
        }
        self.free.remove_range(low..self.next);
        self.next = low;
    }

    /// How many numbers are in use.
    pub fn in_use(&self) -> u64 {
        u64::from(self.next) - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn many_are_given_back_as_one_by_one(next in 0..40u32, first in any::<u64>(), second in any::<u64>()) {
            let chosen = |bits: u64| (0..next).filter(move |number| bits >> number & 1 == 1);
            let mut together = DocNumbers { next, free: RoaringBitmap::new() };
            let mut single = together.clone();
            together.give_back_all(&chosen(first).collect());
            together.give_back_all(&chosen(second).filter(|number| first >> number & 1 == 0).collect());
            chosen(first | second).for_each(|number| single.give_back(number));
            prop_assert_eq!((together.next, together.free), (single.next, single.free));
        }

        #[test]
        fn the_smallest_free_number_is_taken(steps in prop::collection::vec(any::<Option<u8>>(), 0..200)) {
            let (mut numbers, mut used) = (DocNumbers::default(), BTreeSet::new());
            for step in steps {
                match step {
                    None => {
                        let expected = (0..).find(|n| !used.contains(n)).unwrap();
                        prop_assert_eq!(numbers.take(), Some(expected));
                        used.insert(expected);
                    }
                    Some(at) => {
                        if let Some(number) = used.iter().nth(usize::from(at)).copied() {
                            numbers.give_back(number);
                            used.remove(&number);
                        }
                    }
                }
                prop_assert_eq!(numbers.in_use(), used.len() as u64);
            }
        }
    }
}
