//! Bounds the memory that the caches of all partitions of a core take.
//!
//! Each partition has bounds of its own, which allow an index that is searched in many ways to have what it needs. A core with
//! hundreds of indexes could not afford that for each: the partitions that were searched longest ago are evicted first.

use std::cell::{Cell, RefCell};

use ahash::AHashMap;

use super::Engine;
use super::messages::Place;

/// The part of a core's memory that is for it.
const MEMORY_PART: u64 = 8;
/// And that it gets at least.
const BYTES_MIN: u64 = if cfg!(test) { 64 << 10 } else { 8 << 20 };
/// Parts that are forgotten after one search at most: as a rule until there is room for what it has added.
const PARTS_PER_SEARCH: usize = 256;

/// What the partitions of a core keep.
pub(super) struct KeptMemory {
    bytes_max: usize,
    /// Of all.
    bytes: Cell<usize>,
    partitions: RefCell<AHashMap<Place, Share>>,
    /// Counts searches, to tell which was earlier.
    searches: Cell<u64>,
}

/// What one partition keeps.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bytes: usize,
    /// The number of the search that came last.
    searched: u64,
}

impl KeptMemory {
    /// For a core with so many bytes of memory.
    pub fn of_core(memory_bytes: u64) -> Self {
        let bytes_max = usize::try_from((memory_bytes / MEMORY_PART).max(BYTES_MIN)).unwrap_or(usize::MAX);
        Self { bytes_max, bytes: Cell::default(), partitions: RefCell::default(), searches: Cell::default() }
    }

    /// A partition was searched, and keeps so many bytes now.
    fn note_search(&self, place: Place, bytes: usize) {
        self.searches.set(self.searches.get() + 1);
        self.partitions.borrow_mut().entry(place).or_default().searched = self.searches.get();
        self.note(place, bytes);
    }

    /// A partition keeps so many bytes now; nothing is known of one without any.
    fn note(&self, place: Place, bytes: usize) {
        let mut partitions = self.partitions.borrow_mut();
        let Some(share) = partitions.get_mut(&place) else { return };
        self.bytes.set(self.bytes.get() + bytes - share.bytes);
        share.bytes = bytes;
        if bytes == 0 {
            partitions.remove(&place);
        }
    }

    fn is_too_much(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }

    /// The partition that is to forget something, while they keep too much: that which was searched longest ago.
    fn forgetful(&self) -> Option<Place> {
        if !self.is_too_much() {
            return None;
        }
        let partitions = self.partitions.borrow();
        partitions.iter().min_by_key(|(_, share)| share.searched).map(|(place, _)| *place)
    }
}

impl Engine {
    /// Takes note of what a partition keeps after a search, and has others forget as much where it is too much.
    pub(super) fn bound_kept(&self, place: Place) {
        let kept = &self.kept;
        kept.note_search(place, self.kept_bytes(place));
        let mut parts = PARTS_PER_SEARCH;
        while let Some(forgetful) = kept.forgetful().filter(|_| parts > 0) {
            let reader = self.partition(forgetful).ok().and_then(|home| home.newest_reader());
            loop {
                let forgot = reader.as_ref().is_some_and(|reader| reader.forget_some());
                kept.note(forgetful, if forgot { self.kept_bytes(forgetful) } else { 0 });
                parts -= 1;
                if !forgot || parts == 0 || !kept.is_too_much() {
                    break;
                }
            }
        }
    }

    /// Bytes that a partition keeps of earlier searches; none where there is no such partition any more.
    pub(super) fn kept_bytes(&self, place: Place) -> usize {
        let reader = self.partition(place).ok().and_then(|home| home.newest_reader());
        reader.map_or(0, |reader| reader.kept_bytes())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::PartitionNo;

    fn place(index: u128) -> Place {
        Place { index: Uuid::from_u128(index), layout: 0, partition: PartitionNo(0) }
    }

    #[test]
    fn what_was_searched_longest_ago_is_forgotten_first() {
        let kept = KeptMemory::of_core(0);
        let max = kept.bytes_max;
        kept.note_search(place(1), max / 2);
        kept.note_search(place(2), max / 2);
        assert_eq!(kept.forgetful(), None);
        kept.note_search(place(3), max / 2);
        assert_eq!(kept.forgetful(), Some(place(1)));
        kept.note_search(place(1), max / 2);
        assert_eq!(kept.forgetful(), Some(place(2)));
        kept.note(place(2), 10);
        assert_eq!(kept.forgetful(), Some(place(2)));
        kept.note(place(2), 0);
        assert_eq!((kept.forgetful(), kept.bytes.get()), (None, max / 2 * 2));
        // One that is gone, or was never searched, changes nothing.
        kept.note(place(2), max);
        assert_eq!((kept.forgetful(), kept.partitions.borrow().len()), (None, 2));
        // One alone that keeps too much forgets of its own.
        kept.note(place(3), 0);
        kept.note_search(place(1), max + 1);
        assert_eq!(kept.forgetful(), Some(place(1)));
    }
}
