//! The page allocator. A page released by epoch n was part of the state before n: it is free for n + 1, unless a snapshot still
//! reads a state before n.

use std::collections::BTreeMap;
use std::ops::Range;

use super::PageNo;
use super::page_set::PageSet;

/// Bytes of a run in the list: its start (u64) and length (u32).
const RUN_BYTES: usize = 12;
/// Other tasks get their turn after this many runs of the list: some ten microseconds of work.
const YIELD_RUNS: usize = 4096;

/// Free pages, and pages given up that snapshots may still read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocator {
    free: PageSet,
    /// Epoch that gave them up -> pages.
    held: BTreeMap<u64, PageSet>,
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
        self.free.len() + self.held.values().map(PageSet::len).sum::<u64>()
    }

    /// A run of `len` pages: the first that is free, else new ones at the end.
    pub(crate) fn allocate(&mut self, len: u64) -> PageNo {
        let start = self.free.take(len).unwrap_or_else(|| {
            self.page_count += len;
            self.page_count - len
        });
        PageNo(start)
    }

    /// Makes a run free at once: nothing reads it.
    pub(crate) fn release(&mut self, start: PageNo, len: u64) {
        self.free.insert(start.0, len);
    }

    /// Keeps pages that epoch `epoch` gave up until no snapshot before it is left.
    pub(crate) fn hold(&mut self, epoch: u64, pages: &PageSet) {
        if !pages.is_empty() {
            self.held.entry(epoch).or_default().unite(pages);
        }
    }

    /// Keeps all that is free as if epoch `epoch` had given it up.
    pub(crate) fn hold_all(&mut self, epoch: u64) {
        let free = std::mem::take(&mut self.free);
        self.hold(epoch, &free);
    }

    /// Frees what no snapshot can read: `oldest` is the oldest state that is read, now or by the next snapshot.
    pub(crate) fn release_held(&mut self, oldest: u64) {
        let still_held = self.held.split_off(&(oldest + 1));
        let done = std::mem::replace(&mut self.held, still_held);
        done.values().for_each(|pages| self.free.unite(pages));
    }

    /// Puts together what is freed at the same time: the pages of two epochs where no state between them is read. A snapshot of
    /// long ago would otherwise leave a set for each commit since.
    pub(crate) fn join_held(&mut self, is_read: impl Fn(Range<u64>) -> bool) {
        let mut before: Option<(u64, PageSet)> = None;
        for (epoch, mut pages) in std::mem::take(&mut self.held) {
            if let Some((earlier, others)) = before.take() {
                if is_read(earlier..epoch) {
                    self.held.insert(earlier, others);
                } else {
                    pages.unite(&others);
                }
            }
            before = Some((epoch, pages));
        }
        self.held.extend(before);
    }

    #[cfg(test)]
    pub(crate) fn held_sets(&self) -> usize {
        self.held.len()
    }

    /// All pages that are free once no snapshot is left, as after a restart.
    pub(crate) fn all(&self) -> PageSet {
        let mut all = self.free.clone();
        self.held.values().for_each(|pages| all.unite(pages));
        all
    }

    /// Reads back what [`encode`] wrote; `None` when a run lies outside the file or touches another.
    pub(crate) fn decode(bytes: &[u8], page_count: u64) -> Option<Self> {
        let mut found = Self::new(page_count);
        let mut end = 2;
        for run in bytes.chunks(RUN_BYTES) {
            let start = u64::from_le_bytes(run.get(..8)?.try_into().ok()?);
            let len = u64::from(u32::from_le_bytes(run.get(8..RUN_BYTES)?.try_into().ok()?));
            if start < end || len == 0 || start.checked_add(len)? > page_count {
                return None;
            }
            found.release(PageNo(start), len);
            end = start + len;
        }
        Some(found)
    }
}

/// Most bytes of the list of these pages, also when some that lie together are taken out.
pub(crate) fn encoded_bytes_max(pages: &PageSet) -> usize {
    (pages.run_count() + 4) * RUN_BYTES
}

/// The list of these pages as it is written: the start (u64) and length (u32) of each run.
pub(crate) async fn encode(pages: &PageSet) -> Vec<u8> {
    let (mut out, mut at, mut runs) = (Vec::with_capacity(encoded_bytes_max(pages)), 0, 0);
    while let Some((mut start, mut len)) = pages.next_run(at) {
        at = start + len;
        while len > 0 {
            let part = len.min(u64::from(u32::MAX));
            out.extend_from_slice(&start.to_le_bytes());
            out.extend_from_slice(&(part as u32).to_le_bytes());
            (start, len) = (start + part, len - part);
        }
        runs += 1;
        if runs % YIELD_RUNS == 0 {
            futures_lite::future::yield_now().await;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;

    use super::*;

    fn pages(runs: &[(u64, u64)]) -> PageSet {
        let mut pages = PageSet::default();
        runs.iter().for_each(|(start, len)| pages.insert(*start, *len));
        pages
    }

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
        alloc.hold(5, &pages(&[(4, 2)]));
        alloc.release_held(4);
        assert_eq!(alloc.allocate(1), PageNo(10));
        alloc.release_held(5);
        assert_eq!(alloc.allocate(2), PageNo(4));
    }

    #[test]
    fn what_is_held_is_joined_where_no_state_between_is_read() {
        let mut alloc = Allocator::new(20);
        for epoch in 2..10 {
            alloc.hold(epoch, &pages(&[(epoch, 1)]));
        }
        // Snapshots of the states 1 and 5 are left.
        alloc.join_held(|epochs| epochs.contains(&1) || epochs.contains(&5));
        assert_eq!(alloc.held.iter().map(|(epoch, pages)| (*epoch, pages.len())).collect::<Vec<_>>(), [(5, 4), (9, 4)]);
        alloc.release_held(5);
        assert_eq!((alloc.allocate(4), alloc.allocate(1), alloc.free_pages()), (PageNo(2), PageNo(20), 4));
    }

    #[test]
    fn the_list_reads_back_and_nonsense_is_refused() {
        let mut alloc = Allocator::new(30);
        alloc.release(PageNo(4), 2);
        alloc.hold(3, &pages(&[(9, 1), (6, 1)]));
        let all = alloc.all();
        let bytes = block_on(encode(&all));
        assert!(bytes.len() <= encoded_bytes_max(&all));
        let mut back = Allocator::decode(&bytes, 30).expect("it was just written");
        assert_eq!((back.free_pages(), back.allocate(3)), (4, PageNo(4)));
        assert!(Allocator::decode(&bytes, 9).is_none() && Allocator::decode(&bytes[1..], 30).is_none());
    }
}
