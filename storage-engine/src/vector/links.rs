//! Links of the bottom layer: a file of pages plus the changes made since it was written.
//!
//! A page holds the links of [`NODES_PER_PAGE`] nodes in records of two cache lines, so one read gets all links of a node.
//! Changes are kept as one [`Patch`] per page, with records only for the changed nodes.

use std::path::PathBuf;
use std::rc::Rc;

use super::LINKS_BOTTOM;
use super::cache::ClockCache;
use super::chunked::Chunked;
use super::files::checksum;
use super::kernels::{prefetch, prefetch_line};
use crate::io::DiskFile;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Nodes whose links are in a page.
pub const NODES_PER_PAGE: u32 = 31;
/// Bytes before the first record: checksum (8), page number (4), zero (4), a length for each record.
const PAGE_HEADER_BYTES: usize = 128;
const RECORD_BYTES: usize = LINKS_BOTTOM * 4;
const LENGTHS_AT: usize = 16;

const _: () = assert!(PAGE_HEADER_BYTES + NODES_PER_PAGE as usize * RECORD_BYTES == PAGE_BYTES);
const _: () = assert!(LENGTHS_AT + NODES_PER_PAGE as usize <= PAGE_HEADER_BYTES);

/// Number of a page in the graph's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageNo(pub u32);

impl PageNo {
    /// The page with a node's links.
    #[inline(always)]
    pub fn of(node: u32) -> Self {
        Self(node / NODES_PER_PAGE)
    }
}

/// The links of a node in the bottom layer.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    len: u32,
    nodes: [u32; LINKS_BOTTOM],
}

impl Default for Links {
    fn default() -> Self {
        Self { len: 0, nodes: [0; LINKS_BOTTOM] }
    }
}

impl Links {
    /// Asks the processor to fetch them.
    #[inline(always)]
    fn prefetch(&self) {
        // The last of the nodes is on another cache line than the first.
        prefetch_line(&self.len);
        prefetch_line(&self.nodes[LINKS_BOTTOM / 2]);
        prefetch_line(&self.nodes[LINKS_BOTTOM - 1]);
    }

    /// The nodes linked to.
    #[inline(always)]
    pub fn as_slice(&self) -> &[u32] {
        &self.nodes[..self.len as usize]
    }

    /// Links to exactly these, of which there are at most [`LINKS_BOTTOM`].
    pub fn of(nodes: &[u32]) -> Self {
        let mut links = Self { len: nodes.len() as u32, nodes: [0; LINKS_BOTTOM] };
        links.nodes[..nodes.len()].copy_from_slice(nodes);
        links
    }
}

/// The records of a page that have changed.
#[derive(Clone, Debug, Default)]
pub struct Patch {
    /// Bit `n` is set where the record of the page's n-th node is here.
    mask: u32,
    /// The records, in the order of their nodes.
    records: Vec<Links>,
}

impl Patch {
    fn rank(&self, at: u32) -> usize {
        (self.mask & ((1 << at) - 1)).count_ones() as usize
    }

    fn get(&self, at: u32) -> Option<&Links> {
        (self.mask >> at & 1 == 1).then(|| &self.records[self.rank(at)])
    }

    fn set(&mut self, at: u32, links: Links) {
        let rank = self.rank(at);
        if self.mask >> at & 1 == 1 {
            self.records[rank] = links;
        } else {
            self.mask |= 1 << at;
            // Room for what is there and no more: as many changes are kept as memory allows, so that half of it must not lie idle. The
            // allocator's own sizes leave some for the next.
            self.records.reserve_exact(1);
            self.records.insert(rank, links);
        }
    }
}

/// Changes of the bottom layer since its file was written.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    patches: Chunked<Option<Rc<Patch>>>,
    records: usize,
}

impl Overlay {
    /// A node's links, if they have changed.
    #[inline]
    pub fn get(&self, node: u32) -> Option<&Links> {
        self.patches.get(PageNo::of(node).0)?.as_ref()?.get(node % NODES_PER_PAGE)
    }

    /// Asks the processor to fetch a node's links; false where they have not changed.
    #[inline]
    pub fn prefetch(&self, node: u32) -> bool {
        self.get(node).map(Links::prefetch).is_some()
    }

    /// Sets a node's links.
    pub fn set(&mut self, node: u32, links: Links) {
        let patch = Rc::make_mut(self.patches.get_mut(PageNo::of(node).0).get_or_insert_default());
        let before = patch.records.len();
        patch.set(node % NODES_PER_PAGE, links);
        self.records += patch.records.len() - before;
    }

    /// Bytes of the changed records.
    pub fn bytes(&self) -> u64 {
        (self.records * size_of::<Links>()) as u64
    }

    /// A page with its changes, complete with its checksum; `base` is what the file has of it.
    pub fn patched(&self, page: PageNo, base: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = base.map_or_else(|| vec![0; PAGE_BYTES], <[u8]>::to_vec);
        bytes[8..12].copy_from_slice(&page.0.to_le_bytes());
        if let Some(patch) = self.patches.get(page.0).and_then(Option::as_ref) {
            for at in 0..NODES_PER_PAGE {
                let Some(links) = patch.get(at) else { continue };
                bytes[LENGTHS_AT + at as usize] = links.len as u8;
                let record = PAGE_HEADER_BYTES + at as usize * RECORD_BYTES;
                for (slot, node) in
                    bytes[record..record + RECORD_BYTES].as_chunks_mut::<4>().0.iter_mut().zip(links.nodes)
                {
                    *slot = node.to_le_bytes();
                }
            }
        }
        let sum = checksum(u64::from(page.0), &bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// Whether a page is what was written.
pub fn is_whole(page: PageNo, bytes: &[u8]) -> bool {
    let lengths = bytes.get(LENGTHS_AT..LENGTHS_AT + NODES_PER_PAGE as usize);
    bytes.len() == PAGE_BYTES
        && bytes[..8] == checksum(u64::from(page.0), &bytes[8..]).to_le_bytes()
        && bytes[8..12] == page.0.to_le_bytes()
        && lengths.is_some_and(|lengths| lengths.iter().all(|len| usize::from(*len) <= LINKS_BOTTOM))
}

/// The file of pages that a merge wrote, and those of its pages that are in memory.
pub struct Base {
    /// The file's name in the partition's folder.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// The file.
    pub file: Rc<dyn DiskFile>,
    /// Its pages with links; nodes beyond have none in it.
    pub pages: u32,
    /// Pages in memory.
    pub cache: ClockCache<[u8]>,
}

impl Base {
    /// Reads a node's links from its page, if that is in memory.
    pub fn links(&self, node: u32) -> Result<Links, PageNo> {
        let mut links = Links::default();
        self.each(node, |linked| {
            links.nodes[links.len as usize] = linked;
            links.len += 1;
        })?;
        Ok(links)
    }

    /// Asks the processor to fetch a node's links, if their page is in memory.
    #[inline]
    pub fn prefetch(&self, node: u32) {
        self.cache.peek(PageNo::of(node).0, |bytes| {
            let at = (node % NODES_PER_PAGE) as usize;
            prefetch_line(&bytes[LENGTHS_AT + at]);
            prefetch(&bytes[PAGE_HEADER_BYTES + at * RECORD_BYTES..][..RECORD_BYTES]);
        });
    }

    /// Shows each of a node's links, if its page is in memory.
    #[inline(always)]
    pub fn each(&self, node: u32, mut look: impl FnMut(u32)) -> Result<(), PageNo> {
        let page = PageNo::of(node);
        if page.0 >= self.pages {
            return Ok(());
        }
        let found = self.cache.with(page.0, |bytes| {
            let at = (node % NODES_PER_PAGE) as usize;
            let record = &bytes[PAGE_HEADER_BYTES + at * RECORD_BYTES..][..RECORD_BYTES];
            let slots = record.as_chunks::<4>().0.iter().take(usize::from(bytes[LENGTHS_AT + at]));
            slots.for_each(|slot| look(u32::from_le_bytes(*slot)));
        });
        found.ok_or(page)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::Room;
    use super::*;
    use crate::io::mem::MemDisk;
    use crate::io::{Disk, OpenMode};

    /// Links set in any order are read back from the overlay, and from pages made of it twice over.
    #[test]
    fn pages_hold_what_was_set() {
        let nodes = |node: u32| (0..node % 33).map(|n| n * 1000 + node).collect::<Vec<u32>>();
        let mut first = Overlay::default();
        for node in [5u32, 3, 64, 30, 31, 0, 61] {
            first.set(node, Links::of(&nodes(node)));
        }
        first.set(5, Links::of(&[9, 9]));
        assert_eq!((first.get(5).map(Links::as_slice), first.get(4).is_none()), (Some(&[9, 9][..]), true));
        let mut second = Overlay::default();
        second.set(6, Links::of(&[1; 32]));
        second.set(64, Links::default());

        let file = futures_lite::future::block_on(MemDisk::new().open("graph".as_ref(), OpenMode::CreateNew));
        let room = Room {
            parts: 3,
            part_bytes: PAGE_BYTES as u64,
            all_bytes: u64::MAX,
            with_pinned_bytes: u64::MAX,
            least: 3,
        };
        let base = Base {
            name: "graph".into(),
            path: "graph".into(),
            file: file.expect("a file"),
            pages: 3,
            cache: ClockCache::new(room),
        };
        for page in 0..3 {
            let once = first.patched(PageNo(page), None);
            assert!(is_whole(PageNo(page), &once) && !is_whole(PageNo(page + 1), &once));
            base.cache.put(page, second.patched(PageNo(page), Some(&once)).into());
        }
        for node in [3u32, 30, 31, 0, 61] {
            assert_eq!(base.links(node).expect("it is there").as_slice(), nodes(node));
        }
        assert_eq!(base.links(5).expect("it is there").as_slice(), [9, 9]);
        assert_eq!(base.links(6).expect("it is there").as_slice(), [1; 32]);
        assert_eq!(base.links(64).expect("it is there").as_slice(), [0u32; 0]);
        assert_eq!(base.links(93).expect("past the end").as_slice(), [0u32; 0]);
        base.cache.forget(1);
        assert_eq!(base.links(32).err(), Some(PageNo(1)));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut overlay = Overlay::default();
        overlay.set(2, Links::of(&[1, 2, 3]));
        let page = overlay.patched(PageNo(0), None);
        for bit in 0..PAGE_BYTES * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_whole(PageNo(0), &flipped), "bit {bit}");
        }
    }
}
