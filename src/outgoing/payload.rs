//! Bodies that are packed while they are written.

use std::io;

use shards::runtime::{Checkpoint, Runtime};

use crate::http::compress::{Coding, Compressor, STEP_BYTES};

/// A guess at the size of a body, in bytes, for the first allocation.
const BODY_BYTES: usize = 64 * 1024;

/// A body in gzip, written piece by piece. Only the packed bytes are in memory.
pub struct GzipPayload {
    compressor: Compressor,
    plain_bytes: u64,
    checkpoint: Checkpoint,
}

impl Default for GzipPayload {
    fn default() -> Self {
        let compressor = Compressor::new(Coding::Gzip, BODY_BYTES);
        Self { compressor, plain_bytes: 0, checkpoint: Checkpoint::default() }
    }
}

impl GzipPayload {
    /// Adds bytes, giving way to others after each bounded step.
    ///
    /// # Errors
    /// The compressor failed, which it has no reason to.
    pub async fn push(&mut self, runtime: &dyn Runtime, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(STEP_BYTES) {
            self.compressor.push(part)?;
            self.checkpoint.look(runtime).await;
        }
        self.plain_bytes += bytes.len() as u64;
        Ok(())
    }

    /// How much was added, unpacked.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// The packed body.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.compressor.finish()
    }
}
