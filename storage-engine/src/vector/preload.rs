//! Reading into memory, one after another, what searches would otherwise read one by one.

use futures_util::future::join_all;

use super::files::{self, Records};
use super::links::PageNo;
use super::partition::VectorPartition;
use super::state::{READS_IN_FLIGHT, VectorSnapshot};
use super::{FetchError, Pace};
use crate::io::DiskFile;

/// Bytes of full vectors in one read.
const BYTES_PER_READ: usize = 128 << 10;
/// Such reads in flight at once.
const RUNS_IN_FLIGHT: usize = 4;

impl VectorSnapshot {
    /// Loads the links of the bottom layer into memory, as many as its budget allows, so that the first searches need not wait
    /// for them.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn preload(&self, pace: &dyn Pace) -> Result<(), FetchError> {
        let Some(base) = &self.state.base else { return Ok(()) };
        let pages = (0..base.pages).take(base.cache.capacity()).filter(|page| !base.cache.contains(*page));
        let pages: Vec<PageNo> = pages.map(PageNo).collect();
        for batch in pages.chunks(READS_IN_FLIGHT) {
            self.state.load(batch).await?;
            if pace.due() {
                pace.pause().await;
            }
        }
        Ok(())
    }

    /// Keeps the full vectors of the nodes from `first` on that these runs of records hold, while there is room.
    async fn preload_runs(&self, file: &dyn DiskFile, first: u32, last: u32) -> Result<bool, FetchError> {
        let shared = &*self.shared;
        let records = Records::vectors(&shared.config);
        let step = (BYTES_PER_READ / records.stride).max(1);
        let wanted = |node: &u32| self.state.live.contains(*node) && !shared.cache.contains(*node);
        let runs: Vec<(u32, usize)> = (first..last)
            .step_by(step)
            .map(|start| (start, step.min((last - start) as usize)))
            .filter(|(start, count)| (*start..*start + *count as u32).any(|node| wanted(&node)))
            .collect();
        let reads = runs.iter().map(|(start, count)| file.read_direct(records.offset(*start), count * records.stride));
        for ((start, _), bytes) in runs.iter().zip(join_all(reads).await) {
            let bytes = bytes?;
            for (node, record) in (*start..).zip(bytes.chunks_exact(records.stride)).filter(|(node, _)| wanted(node)) {
                let Some((_, _, content)) = records.decode(node, record) else {
                    let (file, number) = (files::VECTORS.to_owned(), node.into());
                    return Err(FetchError::Damaged { file, what: "record", number });
                };
                let vector = files::vector_of(content, shared.config.dimensions).into();
                if !shared.cache.put_if_room(node, vector) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl VectorPartition {
    /// Loads into memory what the budget holds whole: links of the bottom layer, then full vectors, read past the system's page cache.
    /// What does not fit whole is left to be read as searches need it, which tells better what to keep. States may be published
    /// meanwhile.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn preload_whole(&self, pace: &dyn Pace) -> Result<(), FetchError> {
        let snapshot = self.snapshot();
        if snapshot.state.base.as_ref().is_some_and(|base| base.cache.capacity() >= base.pages as usize) {
            snapshot.preload(pace).await?;
        }
        let Some(file) = snapshot.shared.vectors.clone() else { return Ok(()) };
        if snapshot.len() > snapshot.shared.cache.room() as u64 {
            return Ok(());
        }
        let stride = Records::vectors(snapshot.config()).stride;
        let step = (BYTES_PER_READ / stride).max(1) * RUNS_IN_FLIGHT;
        let nodes = snapshot.state.node_count;
        drop(snapshot);
        for first in (0..nodes).step_by(step) {
            // A node that a snapshot has is not written anew while it is held, and a short hold lets deleted nodes be used again.
            let snapshot = self.snapshot();
            if !snapshot.preload_runs(&*file, first, nodes.min(first.saturating_add(step as u32))).await? {
                return Ok(());
            }
            drop(snapshot);
            if pace.due() {
                pace.pause().await;
            }
            if pace.stopped() {
                return Ok(());
            }
        }
        Ok(())
    }
}
