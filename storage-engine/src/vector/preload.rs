//! Sequentially reads into memory what searches would otherwise read piece by piece.

use std::ops::Range;

use futures_util::future::join_all;

use super::files::Records;
use super::links::PageNo;
use super::partition::VectorPartition;
use super::state::{READS_IN_FLIGHT, VectorSnapshot};
use super::{FetchError, Pace};
use crate::io::DiskFile;

/// Bytes of full vectors in one read.
const BYTES_PER_READ: usize = 128 << 10;
/// Such reads in flight at once.
const READS_AHEAD: u32 = 4;

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

    /// Keeps the full vectors of these nodes, which are read `at_once` by `at_once`; false where there is no room for more.
    async fn preload_vectors(&self, file: &dyn DiskFile, nodes: Range<u32>, at_once: u32) -> Result<bool, FetchError> {
        let shared = &*self.shared;
        let records = Records::vectors(&shared.config);
        let wanted = |node: &u32| self.state.live.contains(*node) && !shared.cache.contains(*node);
        let runs = nodes.clone().step_by(at_once as usize);
        let runs = runs.map(|first| first..nodes.end.min(first.saturating_add(at_once)));
        let runs: Vec<Range<u32>> = runs.filter(|run| run.clone().any(|node| wanted(&node))).collect();
        let reads = runs.iter().map(|run| file.read_direct(records.offset(run.start), run.len() * records.stride));
        for (run, bytes) in runs.iter().zip(join_all(reads).await) {
            let bytes = bytes?;
            let found = run.clone().zip(bytes.chunks_exact(records.stride));
            for (node, record) in found.filter(|(node, _)| wanted(node)) {
                if !shared.cache.put_if_room(node, shared.vector_in(node, record)?) {
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
        let at_once = (BYTES_PER_READ / Records::vectors(snapshot.config()).stride).max(1) as u32;
        let (nodes, step) = (snapshot.state.node_count, at_once * READS_AHEAD);
        drop(snapshot);
        for first in (0..nodes).step_by(step as usize) {
            // A node that a snapshot has is not written anew while it is held, and a short hold lets deleted nodes be used again.
            let snapshot = self.snapshot();
            if !snapshot.preload_vectors(&*file, first..nodes.min(first.saturating_add(step)), at_once).await? {
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
