//! Meta pages: the first two pages of a file, each of which names one state of the store.
//!
//! A meta page holds its state twice, once in each half. A torn write of the page must leave the previous state. A bit that flips
//! later must not, because that would undo a commit: it damages only one half.

use super::node::checksum;
use super::{PAGE_BYTES, PageNo, TREES_MAX};

const MAGIC: [u8; 8] = *b"SKERRYPS";
/// Version of the file format; `FORMAT.md` has the history.
pub(crate) const FORMAT_VERSION: u32 = 1;
const TREES_AT: usize = 64;
const HALF_BYTES: usize = PAGE_BYTES / 2;

/// Where one tree starts and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub page: PageNo,
    pub entries: u64,
}

/// One state of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub epoch: u64,
    /// Pages of the file in use or free; the file may be longer.
    pub page_count: u64,
    /// The run that holds the free list, or none.
    pub free_list: PageNo,
    pub free_list_bytes: u32,
    /// Pages set aside for the list; its estimate may be more than it takes.
    pub free_list_pages: u32,
    pub roots: [Root; TREES_MAX],
}

impl Meta {
    /// The state of a store in which nothing was ever written.
    pub(crate) fn empty() -> Self {
        let none = Root { page: PageNo::NONE, entries: 0 };
        Self {
            epoch: 0,
            page_count: 2,
            free_list: PageNo::NONE,
            free_list_bytes: 0,
            free_list_pages: 0,
            roots: [none; TREES_MAX],
        }
    }

    pub(crate) fn encode(&self, slot: PageNo) -> Vec<u8> {
        (0..2).flat_map(|half| self.encode_half(slot, half)).collect()
    }

    fn encode_half(&self, slot: PageNo, half: u64) -> Vec<u8> {
        let mut out = vec![0u8; HALF_BYTES];
        out[8..16].copy_from_slice(&MAGIC);
        out[16..20].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[20..24].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        out[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        out[32..40].copy_from_slice(&self.page_count.to_le_bytes());
        out[40..48].copy_from_slice(&self.free_list.0.to_le_bytes());
        out[48..52].copy_from_slice(&self.free_list_bytes.to_le_bytes());
        out[52..56].copy_from_slice(&self.free_list_pages.to_le_bytes());
        for (root, place) in self.roots.iter().zip(out[TREES_AT..].chunks_exact_mut(16)) {
            place[..8].copy_from_slice(&root.page.0.to_le_bytes());
            place[8..].copy_from_slice(&root.entries.to_le_bytes());
        }
        let sum = checksum(&out, place_of(slot, half)).to_le_bytes();
        out[..8].copy_from_slice(&sum);
        out
    }

    /// The state that a meta page names; `None` when the page is torn, empty or of another format.
    pub(crate) fn decode(bytes: &[u8], slot: PageNo) -> Option<Self> {
        // A torn write can leave one half of this state and one of the state two commits before: the newer is the later write,
        // and all its pages were synced before it began.
        let halves = bytes.chunks_exact(HALF_BYTES).zip(0..2);
        halves.filter_map(|(half, number)| Self::decode_half(half, slot, number)).max_by_key(|meta| meta.epoch)
    }

    /// The format version of a whole meta page that another version of the program wrote.
    pub(crate) fn other_version(bytes: &[u8], slot: PageNo) -> Option<u32> {
        let halves = bytes.chunks_exact(HALF_BYTES).zip(0..2).filter(|(half, number)| is_whole(half, slot, *number));
        let mut versions = halves.filter_map(|(half, _)| half[16..20].try_into().map(u32::from_le_bytes).ok());
        versions.find(|version| *version != FORMAT_VERSION)
    }

    /// Whether a page, whole or not, is a meta page of some version.
    pub(crate) fn is_marked(bytes: &[u8]) -> bool {
        bytes.chunks_exact(HALF_BYTES).any(|half| half[8..16] == MAGIC)
    }

    fn decode_half(bytes: &[u8], slot: PageNo, half: u64) -> Option<Self> {
        if !is_whole(bytes, slot, half) {
            return None;
        }
        let u32_at = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if u32_at(16)? != FORMAT_VERSION || u32_at(20)? != PAGE_BYTES as u32 {
            return None;
        }
        let mut meta = Self {
            epoch: u64_at(24)?,
            page_count: u64_at(32)?,
            free_list: PageNo(u64_at(40)?),
            free_list_bytes: u32_at(48)?,
            free_list_pages: u32_at(52)?,
            ..Self::empty()
        };
        for (at, root) in meta.roots.iter_mut().enumerate() {
            let place = TREES_AT + at * 16;
            *root = Root { page: PageNo(u64_at(place)?), entries: u64_at(place + 8)? };
        }
        Some(meta)
    }
}

/// Whether half a meta page is as it was written, by whatever version.
fn is_whole(bytes: &[u8], slot: PageNo, half: u64) -> bool {
    bytes[..8] == checksum(bytes, place_of(slot, half)).to_le_bytes() && bytes[8..16] == MAGIC
}

/// The place that goes into the checksum of half a meta page, counted in halves.
fn place_of(slot: PageNo, half: u64) -> PageNo {
    PageNo(slot.0 * 2 + half)
}
