//! Sorting in bounded steps: short runs are sorted one by one, then merged item by item.

use std::cmp::Ordering;
use std::vec::IntoIter;

/// Sorted runs, merged from the least item on. The order is given with each call and must always be the same.
pub struct Runs<T> {
    /// A binary heap by first items; no run in it is empty.
    heap: Vec<IntoIter<T>>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self { heap: Vec::new() }
    }
}

impl<T> Runs<T> {
    /// Adds a run that is sorted.
    pub fn push(&mut self, run: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
        if run.is_empty() {
            return;
        }
        self.heap.push(run.into_iter());
        let mut at = self.heap.len() - 1;
        while at > 0 && self.is_less(at, (at - 1) / 2, &compare) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// The least item.
    pub fn peek(&self) -> Option<&T> {
        self.heap.first()?.as_slice().first()
    }

    /// Takes the least item out.
    pub fn pop(&mut self, compare: impl Fn(&T, &T) -> Ordering) -> Option<T> {
        let item = self.heap.first_mut()?.next();
        if self.peek().is_none() {
            self.heap.swap_remove(0);
        }
        let mut at = 0;
        loop {
            let least = [2 * at + 1, 2 * at + 2].into_iter().filter(|child| *child < self.heap.len());
            let least = least.reduce(|a, b| if self.is_less(b, a, &compare) { b } else { a });
            match least {
                Some(child) if self.is_less(child, at, &compare) => {
                    self.heap.swap(child, at);
                    at = child;
                }
                _ => return item,
            }
        }
    }

    /// Frees up to `count` items; false when none is left. What is left is in no order, so nothing can be asked of it any more.
    pub fn discard(&mut self, count: usize) -> bool {
        let Some(run) = self.heap.last_mut() else { return false };
        run.take(count).for_each(drop);
        if run.as_slice().is_empty() {
            self.heap.pop();
        }
        true
    }

    fn is_less(&self, a: usize, b: usize, compare: impl Fn(&T, &T) -> Ordering) -> bool {
        match (self.heap[a].as_slice(), self.heap[b].as_slice()) {
            ([a, ..], [b, ..]) => compare(a, b).is_lt(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn merging_sorts(lists in proptest::collection::vec(proptest::collection::vec(0..50u32, 0..9), 0..12)) {
            let mut runs = Runs::default();
            for mut list in lists.clone() {
                list.sort_unstable();
                runs.push(list, u32::cmp);
            }
            let mut expected = lists.concat();
            expected.sort_unstable();
            let mut merged = Vec::new();
            while let Some(least) = runs.peek().copied() {
                prop_assert_eq!(runs.pop(u32::cmp), Some(least));
                merged.push(least);
            }
            prop_assert_eq!(merged, expected);
            prop_assert_eq!(runs.pop(u32::cmp), None);
        }

        #[test]
        fn what_is_left_can_be_freed_bit_by_bit(lists in proptest::collection::vec(proptest::collection::vec(0..9u32, 0..9), 0..9), popped in 0..9usize) {
            let mut runs = Runs::default();
            for mut list in lists.clone() {
                list.sort_unstable();
                runs.push(list, u32::cmp);
            }
            let left = lists.concat().len() - (0..popped).filter_map(|_| runs.pop(u32::cmp)).count();
            let steps = (0..=left).take_while(|_| runs.discard(2)).count();
            prop_assert!(steps <= left && 2 * steps >= left && runs.peek().is_none());
        }
    }
}
