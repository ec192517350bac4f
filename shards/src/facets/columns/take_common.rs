//! Takes the documents of one value out of those that are left of a walk.

use roaring::RoaringBitmap;

/// Of up to so many documents each is looked for by itself.
const FEW: u64 = if cfg!(test) { 2 } else { 32 };

/// Takes the documents that are in `of_value` out of `rest`, and gives them. Most values of a walk have a single document: to
/// intersect that with thousands would pass over all of these.
pub fn take_common(rest: &mut RoaringBitmap, of_value: RoaringBitmap) -> RoaringBitmap {
    if of_value.len() > FEW {
        let common = of_value & &*rest;
        *rest -= &common;
        return common;
    }
    of_value.iter().filter(|document| rest.remove(*document)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_common_changes_sides(
            rest in proptest::collection::btree_set(0..9u32, 0..9),
            of_value in proptest::collection::btree_set(0..9u32, 0..5),
        ) {
            let mut left: RoaringBitmap = rest.iter().copied().collect();
            let common = take_common(&mut left, of_value.iter().copied().collect());
            prop_assert_eq!(common.iter().collect::<BTreeSet<_>>(), &rest & &of_value);
            prop_assert_eq!(left.iter().collect::<BTreeSet<_>>(), &rest - &of_value);
        }
    }
}
