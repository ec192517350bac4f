//! Cuts a window out of several sorted lists without merging what is in front of it.

use std::cmp::Ordering;

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
        let heads = rest.iter().enumerate().filter_map(|(number, list)| Some((number, list.as_slice().first()?)));
        let least = heads.min_by(|a, b| compare(a.1, b.1)).map(|(number, _)| number);
        let Some(next) = least.and_then(|number| rest[number].next()) else { break };
        window.push(next);
    }
    lists.extend(rest.into_iter().map(Iterator::collect));
    window
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

    use proptest::prelude::*;

    use super::*;

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
            prop_assert_eq!(take_window(&mut lists, (skip, limit), u8::cmp), expected);
            prop_assert_eq!(take_window::<u8>(&mut Vec::new(), (skip, limit), u8::cmp), Vec::<u8>::new());
        }
    }
}
