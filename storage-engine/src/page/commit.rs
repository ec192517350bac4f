//! Making a transaction the newest state, in four steps: its pages, a sync, the meta page, a sync.
//!
//! Until the meta page is written nothing that the newest state uses has been touched, so a failure or a power cut leaves
//! that state. A meta page torn by a power cut is not whole, and the other one counts.

use futures_util::future::join_all;

use super::node::HEADER_BYTES;
use super::read::Snapshot;
use super::store::InFlight;
use super::store::{Current, encode_run};
use super::write::WriteTxn;
use super::{CommitError, PAGE_BYTES, PageNo};
use crate::io::{DiskError, DiskFile, IoFuture};

/// Neighbouring pages are written together, up to this many bytes.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Writes in flight at once.
const WRITES_IN_FLIGHT: usize = 16;
/// Other tasks get their turn after this many nodes encoded: some hundred microseconds of work.
const YIELD_NODES: usize = 64;
/// The file grows by at least this much, so that its length seldom changes.
const GROWTH_BYTES_MIN: u64 = 256 << 10;

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
        let writes = self.encode(epoch).await;
        let in_flight = InFlight::new(shared.clone());
        if let Err(error) = write_pages(&*file.file, self.alloc.page_count(), writes, |page| file.forget(page)).await {
            if matches!(error, DiskError::NoSpace { .. }) {
                // Only free pages were written, and all writes have ended: the store is as it was.
                in_flight.end();
            }
            return Err(error.into());
        }
        file.file.sync().await?;
        let slot = PageNo(1 - slot.0);
        file.file.write_at(slot.offset(), self.meta.encode(slot)).await?;
        file.file.sync().await?;
        let view = file.file.view()?;
        let alloc = std::mem::take(&mut self.alloc);
        *shared.current.borrow_mut() = Current { meta: self.meta.clone(), slot, view, file, alloc };
        in_flight.end();
        Ok(self.store.snapshot())
    }

    /// All pages to write, in the order of their places, with the free list among them; completes the meta page.
    async fn encode(&mut self, epoch: u64) -> Vec<(PageNo, Vec<u8>)> {
        if self.meta.free_list != PageNo::NONE {
            self.given_up.push((self.meta.free_list.0, u64::from(self.meta.free_list_pages)));
        }
        // The list's own place is taken first: taking it changes the list, which must then still fit.
        let most = self.alloc.encoded_bytes_max(self.given_up.len());
        let pages = (HEADER_BYTES + most).div_ceil(PAGE_BYTES) as u64;
        let place = self.alloc.allocate(pages);
        self.alloc.hold(epoch, std::mem::take(&mut self.given_up));
        let list = self.alloc.encode();
        assert!(list.len() <= most, "the free list fits the place that was set aside for it");
        let mut writes: Vec<(PageNo, Vec<u8>)> = Vec::with_capacity(self.nodes.len() + self.runs.len() + 1);
        writes.push((place, encode_run(place, &list)));
        for (done, (page, node)) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            writes.push((PageNo(page), node.encode(PageNo(page))));
            if done % YIELD_NODES == YIELD_NODES - 1 {
                futures_lite::future::yield_now().await;
            }
        }
        writes.extend(self.runs.drain().map(|(page, data)| (PageNo(page), encode_run(PageNo(page), &data))));
        writes.sort_unstable_by_key(|(page, _)| *page);
        self.meta.epoch = epoch;
        self.meta.page_count = self.alloc.page_count();
        self.meta.free_list = place;
        self.meta.free_list_bytes = list.len() as u32;
        self.meta.free_list_pages = pages as u32;
        writes
    }
}

/// Writes pages, neighbours together, several writes at once; the file is long enough first.
pub(super) async fn write_pages(
    file: &dyn DiskFile,
    page_count: u64,
    writes: Vec<(PageNo, Vec<u8>)>,
    forget: impl Fn(PageNo),
) -> Result<(), DiskError> {
    let need = PageNo(page_count).offset();
    if file.len() < need {
        let generous = (need + (file.len() / 16).max(GROWTH_BYTES_MIN)).next_multiple_of(PAGE_BYTES as u64);
        match file.set_len(generous).await {
            Err(DiskError::NoSpace { .. }) => file.set_len(need).await?,
            other => other?,
        }
    }
    let mut batch = Vec::with_capacity(WRITES_IN_FLIGHT);
    let mut pending: Option<(u64, Vec<u8>)> = None;
    for (page, bytes) in writes {
        forget(page);
        match &mut pending {
            Some((start, gathered))
                if *start + gathered.len() as u64 == page.offset()
                    && gathered.len() + bytes.len() <= WRITE_BYTES_MAX =>
            {
                gathered.extend_from_slice(&bytes);
            }
            _ => {
                if let Some((start, gathered)) = pending.replace((page.offset(), bytes)) {
                    batch.push(file.write_at(start, gathered));
                }
            }
        }
        if batch.len() == WRITES_IN_FLIGHT {
            finish(&mut batch).await?;
        }
    }
    if let Some((start, gathered)) = pending {
        batch.push(file.write_at(start, gathered));
    }
    finish(&mut batch).await
}

/// Waits for all writes, also when one has failed: one still under way could otherwise overwrite what a later commit puts
/// into the same pages.
async fn finish(batch: &mut Vec<IoFuture<'_, ()>>) -> Result<(), DiskError> {
    join_all(batch.drain(..)).await.into_iter().collect()
}
