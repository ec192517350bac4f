//! Cuts a window out of several sorted lists without merging what is in front of it.

use std::cmp::Ordering;
use std::vec::IntoIter;

use storage_engine::vector::Pace;

use crate::runtime::pause_at;
use crate::search::part::free_in_steps;

/// Items that are handed over between two looks at whether others wait.
const ITEMS_PER_LOOK: usize = 128;

/// Takes the items from place `skip` on, `limit` at most, of the order that all lists together are in. Each list must be in order
/// itself, and no two items may be equal. What is left of the lists, and added to them, has no use but to be freed.
pub fn take_window<T>(
    lists: &mut Vec<Vec<T>>,
    (skip, limit): (usize, usize),
    compare: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    let starts = split(lists, skip, &compare);
    let tails = lists.iter_mut().zip(starts).map(|(list, start)| list.split_off(start).into_iter());
    let mut rest: Vec<_> = tails.collect();
    let mut window = Vec::new();
    while window.len() < limit {
        let Some(next) = pop_least(&mut rest, &compare) else { break };
        window.push(next);
    }
    lists.extend(rest.into_iter().map(Iterator::collect));
    window
}

/// The same for long lists: hands the items of the window over one by one and frees all others, giving way meanwhile.
pub async fn walk_window<T>(
    lists: Vec<Vec<T>>,
    (skip, limit): (usize, usize),
    compare: impl Fn(&T, &T) -> Ordering,
    mut each: impl FnMut(T),
    pace: &dyn Pace,
) {
    let starts = split(&lists, skip, &compare);
    let mut rest: Vec<IntoIter<T>> = lists.into_iter().map(Vec::into_iter).collect();
    for (list, start) in rest.iter_mut().zip(starts) {
        free_in_steps(list.by_ref().take(start), pace).await;
    }
    for at in 1..=limit {
        let Some(next) = pop_least(&mut rest, &compare) else { break };
        each(next);
        pause_at(at, ITEMS_PER_LOOK, pace).await;
    }
    free_in_steps(rest.into_iter().flatten(), pace).await;
}

/// Takes the least of all first items.
fn pop_least<T>(lists: &mut [IntoIter<T>], compare: &impl Fn(&T, &T) -> Ordering) -> Option<T> {
    let heads = lists.iter().enumerate().filter_map(|(number, list)| Some((number, list.as_slice().first()?)));
    let (least, _) = heads.min_by(|a, b| compare(a.1, b.1))?;
    lists[least].next()
}

/// How many items of each list are among the first `count` of all.
fn split<T>(lists: &[Vec<T>], count: usize, compare: &impl Fn(&T, &T) -> Ordering) -> Vec<usize> {
    let mut low = vec![0; lists.len()];
    let mut high: Vec<usize> = lists.iter().map(Vec::len).collect();
    if high.iter().sum::<usize>() <= count {
        return high;
    }
    // The first ones hold all in front of `low`, and none from `high` on.
    while let Some(widest) = (0..lists.len()).max_by_key(|number| high[*number] - low[*number]) {
        if low[widest] == high[widest] {
            break;
        }
        let pivot = &lists[widest][usize::midpoint(low[widest], high[widest])];
        let to_pivot = |(list, (low, high)): (&Vec<T>, (&usize, &usize))| {
            low + list[*low..*high].partition_point(|item| compare(item, pivot).is_le())
        };
        let with_pivot: Vec<usize> = lists.iter().zip(low.iter().zip(&high)).map(to_pivot).collect();
        if with_pivot.iter().sum::<usize>() <= count {
            low = with_pivot;
        } else {
            high = with_pivot;
            // Neither is the pivot among the first ones, the last of its list up to itself.
            high[widest] -= 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_lite::future::block_on;
    use proptest::prelude::*;
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::test_support::Pauses;

    proptest! {
        #[test]
        fn a_window_is_cut_out_of_all(
            numbers: BTreeSet<u8>,
            owners in proptest::collection::vec(0..4usize, 256),
            (skip, limit) in (0..260usize, 0..40usize),
        ) {
            let mut lists = vec![Vec::new(); 4];
            numbers.iter().for_each(|number| lists[owners[usize::from(*number)]].push(*number));
            let expected: Vec<u8> = numbers.iter().copied().skip(skip).take(limit).collect();
            let mut walked = Vec::new();
            block_on(walk_window(lists.clone(), (skip, limit), u8::cmp, |number| walked.push(number), &Unpaced));
            prop_assert_eq!(&walked, &expected);
            prop_assert_eq!(take_window(&mut lists, (skip, limit), u8::cmp), expected);
            prop_assert_eq!(take_window::<u8>(&mut Vec::new(), (skip, limit), u8::cmp), Vec::<u8>::new());
        }
    }
    /// A page of hundreds of thousands was once taken out in one step, and so was what is in front of one far behind.
    #[test]
    fn walking_a_long_window_gives_way() {
        let lists = vec![(0..3000).map(|at| 2 * at).collect::<Vec<u32>>(), (0..3000).map(|at| 2 * at + 1).collect()];
        for window in [(0, usize::MAX), (5000, 10), (0, 10)] {
            let (mut walked, pauses) = (Vec::new(), Pauses::default());
            block_on(walk_window(lists.clone(), window, u32::cmp, |number| walked.push(number), &pauses));
            assert!(walked.iter().copied().eq((0..6000).skip(window.0).take(window.1)));
            assert!(pauses.0.get() >= 40, "{}", pauses.0.get());
        }
    }
}
