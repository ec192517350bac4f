//! Sorting in bounded steps: short runs are sorted one by one, then merged item by item.

use std::cmp::Ordering;
use std::vec::IntoIter;

use storage_engine::vector::Pace;

use crate::runtime::pause_at;

/// Items that are sorted at once, or merged between two looks at whether others wait.
const RUN_ITEMS: usize = 256;

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

/// The items in order, of which no two are equal. Gives way to others.
pub async fn sorted<T>(
    items: impl IntoIterator<Item = T>,
    compare: impl Fn(&T, &T) -> Ordering,
    pace: &dyn Pace,
) -> Vec<T> {
    let (mut runs, mut items, mut count) = (Runs::default(), items.into_iter().peekable(), 0);
    while items.peek().is_some() {
        let mut run: Vec<T> = items.by_ref().take(RUN_ITEMS).collect();
        run.sort_unstable_by(&compare);
        if count == 0 && items.peek().is_none() {
            return run;
        }
        count += run.len();
        runs.push(run, &compare);
        pause_at(0, RUN_ITEMS, pace).await;
    }
    let mut sorted = Vec::with_capacity(count);
    while let Some(item) = runs.pop(&compare) {
        sorted.push(item);
        pause_at(sorted.len(), RUN_ITEMS, pace).await;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use proptest::prelude::*;

    use super::*;
    use crate::facets::test_support::Pauses;

    /// Lists of hundreds of thousands were once sorted in one step.
    #[test]
    fn sorting_a_long_list_gives_way() {
        let pauses = Pauses::default();
        let items = (0..10_000u32).map(|at| at.wrapping_mul(2_654_435_761));
        let mut expected: Vec<u32> = items.clone().collect();
        expected.sort_unstable();
        assert!(block_on(sorted(items, u32::cmp, &pauses)) == expected);
        assert!(pauses.0.get() >= 78, "{}", pauses.0.get());
        assert_eq!(block_on(sorted([3, 1, 2], u8::cmp, &pauses)), [1, 2, 3]);
    }

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
