//! The numbers of an index's documents.

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
