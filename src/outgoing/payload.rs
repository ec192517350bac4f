//! Bodies that are packed while they are written, or read while they are sent.

use std::io;

use futures_util::future::LocalBoxFuture;
use shards::runtime::{Checkpoint, Runtime};

use crate::http::compress::{Coding, Compressor, STEP_BYTES};

/// A guess at the size of a body, in bytes, for the first allocation.
const BODY_BYTES: usize = 64 * 1024;

/// A body that is read while it is sent: no more of it than a piece is in memory.
pub trait StreamedBody {
    /// Its bytes, known before the first is sent.
    fn len(&self) -> u64;
    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The next piece, not empty; asked for while there are bytes left.
    fn next(&mut self) -> LocalBoxFuture<'_, io::Result<Vec<u8>>>;
}

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
