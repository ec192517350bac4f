//! Committing a transaction, in four steps: write its pages, sync, write the meta page, sync.
//!
//! Until the meta page is written, nothing that the newest state uses has been touched, so a failure or a power cut leaves that
//! state. If a power cut tears the meta page, its checksum fails and the other one counts.

use super::alloc;
use super::node::{DirtyNode, HEADER_BYTES};
use super::read::Snapshot;
use super::store::InFlight;
use super::store::{Current, encode_run};
use super::write::WriteTxn;
use super::{CommitError, PAGE_BYTES, PageNo};
use crate::io::{DiskError, DiskFile, Piece};

/// Neighbouring pages are written together, up to this many bytes.
const WRITE_BYTES_MAX: usize = 256 << 10;
/// Other tasks get their turn after this many nodes encoded or given up: some ten microseconds of work.
pub(super) const YIELD_NODES: usize = 16;
/// The same for values of several pages.
const YIELD_BYTES: usize = YIELD_NODES * PAGE_BYTES;
/// The file grows by at least this much, so that its length seldom changes.
pub(super) const GROWTH_BYTES_MIN: u64 = 256 << 10;

impl WriteTxn {
    /// Makes the changes durable as the state of `epoch`, which must be greater than the newest one's.
    ///
    /// # Errors
    /// [`CommitError`]; the newest state is then the one before. When the device was full while pages were written, the
    /// store can be written again; after any other failure it must be opened again.
    pub async fn commit(mut self, epoch: u64) -> Result<Snapshot, CommitError> {
        let shared = self.store.0.clone();
        if shared.poisoned.get() {
            return Err(CommitError::Poisoned);
        }
        let (current, slot, file) = {
            let current = shared.current.borrow();
            (current.meta.epoch, current.slot, current.file.clone())
        };
        if epoch <= current {
            return Err(CommitError::Epoch { wanted: epoch, current });
        }
        if let Some(error) = self.broken.take() {
            return Err(CommitError::Broken(error));
        }
        self.pack().await;
        let writes = self.encode(epoch).await;
        let in_flight = InFlight::new(shared.clone());
        let slot = PageNo(1 - slot.0);
        let meta = (slot.offset(), self.meta.encode(slot));
        if let Err(error) =
            write_pages(&*file.file, self.alloc.page_count(), writes, meta, |page| file.forget(page)).await
        {
            if matches!(error, DiskError::NoSpace { .. }) {
                // Only free pages were written, and all writes have ended: the store is as it was.
                in_flight.end();
            }
            return Err(error.into());
        }
        let view = file.file.view()?;
        let alloc = std::mem::take(&mut self.alloc);
        let before = shared.current.replace(Current { meta: self.meta.clone(), slot, view, file, alloc });
        shared.before.replace(Some((before.meta, before.alloc)));
        in_flight.end();
        Ok(self.store.snapshot())
    }

    /// All pages to write, in the order of their places, with the free list among them; completes the meta page.
    async fn encode(&mut self, epoch: u64) -> Vec<(PageNo, Vec<u8>)> {
        if self.meta.free_list != PageNo::NONE {
            self.give_up(self.meta.free_list, u64::from(self.meta.free_list_pages));
        }
        // The list's own place is taken first: taking it changes the list, which must then still fit.
        let mut free = self.alloc.all();
        free.unite(&self.given_up);
        let most = alloc::encoded_bytes_max(&free);
        let pages = (HEADER_BYTES + most).div_ceil(PAGE_BYTES) as u64;
        let place = self.alloc.allocate(pages);
        free.remove(place.0, pages);
        self.alloc.hold(epoch, &std::mem::take(&mut self.given_up));
        let list = alloc::encode(&free).await;
        assert!(list.len() <= most, "the free list fits the place that was set aside for it");
        let mut writes: Vec<(PageNo, Vec<u8>)> = Vec::with_capacity(self.nodes.len() + self.values.len() + 1);
        writes.push((place, encode_run(place, &list)));
        encode_all(std::mem::take(&mut self.nodes), self.values.take(), &mut writes).await;
        writes.sort_unstable_by_key(|(page, _)| *page);
        self.meta.epoch = epoch;
        self.meta.page_count = self.alloc.page_count();
        self.meta.free_list = place;
        self.meta.free_list_bytes = list.len() as u32;
        self.meta.free_list_pages = pages as u32;
        writes
    }
}

/// Encodes nodes and values, with their places, giving way to other tasks in between.
pub(super) async fn encode_all(
    nodes: impl IntoIterator<Item = (u64, DirtyNode)>,
    values: impl Iterator<Item = (u64, Vec<u8>)>,
    writes: &mut Vec<(PageNo, Vec<u8>)>,
) {
    for (done, (page, node)) in nodes.into_iter().enumerate() {
        writes.push((PageNo(page), node.encode(PageNo(page))));
        if done % YIELD_NODES == YIELD_NODES - 1 {
            futures_lite::future::yield_now().await;
        }
    }
    let mut encoded = 0;
    for (page, data) in values {
        encoded += data.len();
        writes.push((PageNo(page), encode_run(PageNo(page), &data)));
        if encoded >= YIELD_BYTES {
            encoded = 0;
            futures_lite::future::yield_now().await;
        }
    }
}

/// Makes the file long enough for `need` bytes, and `more` where the device has them.
pub(super) async fn make_room(file: &dyn DiskFile, need: u64, more: u64) -> Result<(), DiskError> {
    if file.len() >= need {
        return Ok(());
    }
    match file.set_len((need + more).next_multiple_of(PAGE_BYTES as u64)).await {
        Err(DiskError::NoSpace { .. }) => file.set_len(need).await,
        other => other,
    }
}

/// Writes pages, neighbours together, and when they are durable the meta page; the file is long enough first.
async fn write_pages(
    file: &dyn DiskFile,
    page_count: u64,
    pages: Vec<(PageNo, Vec<u8>)>,
    meta: Piece,
    forget: impl Fn(PageNo),
) -> Result<(), DiskError> {
    let need = PageNo(page_count).offset();
    if file.len() < need {
        make_room(file, need, (file.len() / 16).max(GROWTH_BYTES_MIN)).await?;
        // Maps the file at its new length. Once the meta page is durable nothing may fail any more: the caller would take the
        // state for lost that the next start finds.
        file.view()?;
    }
    let pieces = neighbours_together(pages, forget).await;
    file.write_groups(vec![pieces, vec![meta]]).await
}

/// Pages in the order of their places, neighbours in one piece. Each is told of.
pub(super) async fn neighbours_together(pages: Vec<(PageNo, Vec<u8>)>, tell: impl Fn(PageNo)) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut gone_through = 0;
    for (page, bytes) in pages {
        tell(page);
        gone_through += bytes.len();
        match pieces.last_mut() {
            Some((start, gathered))
                if *start + gathered.len() as u64 == page.offset()
                    && gathered.len() + bytes.len() <= WRITE_BYTES_MAX =>
            {
                gathered.extend_from_slice(&bytes);
            }
            _ => pieces.push((page.offset(), bytes)),
        }
        if gone_through >= YIELD_BYTES {
            gone_through = 0;
            futures_lite::future::yield_now().await;
        }
    }
    pieces
}
