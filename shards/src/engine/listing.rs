//! Finds a page of documents in the order of their numbers.

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use crate::facets::sort::SortKeys;
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::runtime::pause_at;
use crate::sorted_lists::walk_window;

/// Documents that are named between two looks at whether others wait.
const DOCUMENTS_PER_LOOK: usize = 256;

/// Documents that a partition lists.
#[derive(Debug)]
pub enum Listed {
    /// Local numbers, where these are the order: all that may be on the page or before it.
    Numbers(RoaringBitmap),
    /// The first in another order, and how many come before these.
    Sorted(Vec<(SortKeys, DocId)>, u64),
}

/// Leaves out the documents behind the first `count`.
pub fn keep_first(docs: &mut RoaringBitmap, count: usize) {
    if let Some(after) = u32::try_from(count).ok().and_then(|count| docs.select(count)) {
        docs.remove_range(after..);
    }
}

/// The documents of a page, given the local numbers of all partitions. What is before the page is counted, not walked.
/// Gives way to others.
pub async fn page_of(parts: &[RoaringBitmap], (offset, limit): (usize, usize), pace: &dyn Pace) -> Vec<DocId> {
    let before = |local: u32| parts.iter().map(|part| part.range_cardinality(..local)).sum::<u64>();
    // The greatest local number before which no document of the page is.
    let (mut from, mut beyond) = (0, u32::MAX);
    while beyond - from > 1 {
        let middle = from + (beyond - from) / 2;
        if before(middle) <= offset as u64 { from = middle } else { beyond = middle }
    }
    let skip = offset - usize::try_from(before(from)).unwrap_or(offset).min(offset);
    let wanted = skip.saturating_add(limit);
    let count = parts.len() as u16;
    let mut lists = Vec::with_capacity(parts.len());
    for (number, part) in parts.iter().enumerate() {
        let mut docs = Vec::new();
        for local in part.range(from..).take(wanted) {
            docs.push(LocalDocId(local).global(PartitionNo(number as u16), count));
            pause_at(docs.len(), DOCUMENTS_PER_LOOK, pace).await;
        }
        lists.push(docs);
    }
    let mut page = Vec::with_capacity(lists.iter().map(Vec::len).sum::<usize>().min(limit));
    walk_window(lists, (skip, limit), Ord::cmp, |doc| page.push(doc), pace).await;
    page
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use proptest::prelude::*;
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::test_support::Pauses;

    fn page_of(parts: &[RoaringBitmap], offset: usize, limit: usize) -> Vec<DocId> {
        block_on(super::page_of(parts, (offset, limit), &Unpaced))
    }

    proptest! {
        #[test]
        fn a_page_is_cut_out_of_all(
            docs in proptest::collection::btree_set(0..200u32, 0..80),
            count in 1..4u16,
            offset in 0..100usize,
            limit in 0..20usize,
        ) {
            let mut parts = vec![RoaringBitmap::new(); usize::from(count)];
            for doc in &docs {
                let doc = DocId(*doc);
                parts[usize::from(doc.partition(count).0)].insert(doc.local(count).0);
            }
            let expected: Vec<DocId> = docs.iter().skip(offset).take(limit).map(|doc| DocId(*doc)).collect();
            prop_assert_eq!(&page_of(&parts, offset, limit), &expected);
            parts.iter_mut().for_each(|part| keep_first(part, offset + limit));
            prop_assert_eq!(page_of(&parts, offset, limit), expected);
        }
    }

    /// Each document before a page was once walked, named and sorted.
    #[test]
    fn what_is_before_a_page_is_not_walked() {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..2_000_000_000);
        let page: Vec<DocId> = (3_999_999_990..3_999_999_993).map(DocId).collect();
        assert_eq!(page_of(&[all.clone(), all], 3_999_999_990, 3), page);
    }
    /// Hundreds of thousands were once named and sorted in one step.
    #[test]
    fn long_pages_give_way() {
        let all: RoaringBitmap = (0..5000).collect();
        let pauses = Pauses::default();
        let page = block_on(super::page_of(&[all.clone(), all], (0, usize::MAX), &pauses));
        assert!(page.into_iter().eq((0..10_000).map(DocId)));
        assert!(pauses.0.get() >= 2 * (10_000 / DOCUMENTS_PER_LOOK), "{}", pauses.0.get());
    }
}
