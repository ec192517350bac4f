//! The page allocator. A page released by epoch n was part of the state before n: it is free for n + 1, unless a snapshot still
//! reads a state before n.

use std::collections::BTreeMap;

use super::PageNo;

/// Free pages as runs, and pages given up that snapshots may still read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocator {
    /// First page -> length, never touching each other.
    free: BTreeMap<u64, u64>,
    /// Epoch that gave them up -> runs.
    held: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Pages of the file, used or free.
    page_count: u64,
}

impl Allocator {
    pub(crate) fn new(page_count: u64) -> Self {
        Self { page_count, ..Self::default() }
    }

    pub(crate) fn page_count(&self) -> u64 {
        self.page_count
    }

    pub(crate) fn free_pages(&self) -> u64 {
        let held: u64 = self.held.values().flatten().map(|(_, len)| len).sum();
        self.free.values().sum::<u64>() + held
    }

    /// A run of `len` pages: the first that is free, else new ones at the end.
    pub(crate) fn allocate(&mut self, len: u64) -> PageNo {
        let found = self.free.iter().find(|(_, free)| **free >= len).map(|(start, free)| (*start, *free));
        let Some((start, free)) = found else {
            let start = self.page_count;
            self.page_count += len;
            return PageNo(start);
        };
        self.free.remove(&start);
        if free > len {
            self.free.insert(start + len, free - len);
        }
        PageNo(start)
    }

    /// Makes a run free at once: nothing reads it.
    pub(crate) fn release(&mut self, start: PageNo, len: u64) {
        let (mut start, mut len) = (start.0, len);
        if let Some((before, before_len)) = self.free.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + before_len == start
        {
            self.free.remove(&before);
            (start, len) = (before, before_len + len);
        }
        if let Some(after_len) = self.free.remove(&(start + len)) {
            len += after_len;
        }
        self.free.insert(start, len);
    }

    /// Keeps runs that epoch `epoch` gave up until no snapshot before it is left.
    pub(crate) fn hold(&mut self, epoch: u64, runs: Vec<(u64, u64)>) {
        if !runs.is_empty() {
            self.held.entry(epoch).or_default().extend(runs);
        }
    }

    /// Keeps all that is free as if epoch `epoch` had given it up.
    pub(crate) fn hold_all(&mut self, epoch: u64) {
        let free = std::mem::take(&mut self.free).into_iter().collect();
        self.hold(epoch, free);
    }

    /// Frees what no snapshot can read: `oldest` is the oldest state that is read, now or by the next snapshot.
    pub(crate) fn release_held(&mut self, oldest: u64) {
        let still_held = self.held.split_off(&(oldest + 1));
        let done = std::mem::replace(&mut self.held, still_held);
        for (start, len) in done.into_values().flatten() {
            self.release(PageNo(start), len);
        }
    }

    /// All runs that are free once no snapshot is left, as after a restart.
    fn runs(&self) -> Vec<(u64, u64)> {
        let mut merged = Self { free: self.free.clone(), ..Self::default() };
        for (start, len) in self.held.values().flatten() {
            merged.release(PageNo(*start), *len);
        }
        merged.free.into_iter().collect()
    }

    /// The free list as it is written: for each run its start (u64) and length (u32).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (mut start, mut len) in self.runs() {
            while len > 0 {
                let part = len.min(u64::from(u32::MAX));
                out.extend_from_slice(&start.to_le_bytes());
                out.extend_from_slice(&(part as u32).to_le_bytes());
                (start, len) = (start + part, len - part);
            }
        }
        out
    }

    /// Most bytes that `encode` can give after `more` further runs were given up.
    pub(crate) fn encoded_bytes_max(&self, more: usize) -> usize {
        let held: usize = self.held.values().map(Vec::len).sum();
        (self.free.len() + held + more + 4) * 12
    }

    /// Reads back what `encode` wrote; `None` when a run lies outside the file or touches another.
    pub(crate) fn decode(bytes: &[u8], page_count: u64) -> Option<Self> {
        let mut found = Self::new(page_count);
        let mut end = 2;
        for run in bytes.chunks(12) {
            let start = u64::from_le_bytes(run.get(..8)?.try_into().ok()?);
            let len = u64::from(u32::from_le_bytes(run.get(8..12)?.try_into().ok()?));
            if start < end || len == 0 || start.checked_add(len)? > page_count {
                return None;
            }
            found.release(PageNo(start), len);
            end = start + len;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_are_reused_lowest_first() {
        let mut alloc = Allocator::new(2);
        assert_eq!((alloc.allocate(1), alloc.allocate(3), alloc.allocate(1)), (PageNo(2), PageNo(3), PageNo(6)));
        alloc.release(PageNo(2), 1);
        alloc.release(PageNo(3), 3);
        assert_eq!((alloc.allocate(4), alloc.allocate(1), alloc.page_count()), (PageNo(2), PageNo(7), 8));
    }

    #[test]
    fn held_pages_wait_for_the_snapshots_before_them() {
        let mut alloc = Allocator::new(10);
        alloc.hold(5, vec![(4, 2)]);
        alloc.release_held(4);
        assert_eq!(alloc.allocate(1), PageNo(10));
        alloc.release_held(5);
        assert_eq!(alloc.allocate(2), PageNo(4));
    }

    #[test]
    fn the_list_reads_back_and_nonsense_is_refused() {
        let mut alloc = Allocator::new(30);
        alloc.release(PageNo(4), 2);
        alloc.hold(3, vec![(9, 1), (6, 1)]);
        let bytes = alloc.encode();
        assert!(bytes.len() <= alloc.encoded_bytes_max(0));
        let mut back = Allocator::decode(&bytes, 30).expect("it was just written");
        assert_eq!((back.free_pages(), back.allocate(3)), (4, PageNo(4)));
        assert!(Allocator::decode(&bytes, 9).is_none() && Allocator::decode(&bytes[1..], 30).is_none());
    }
}
