//! File descriptors that stay free when an index is made.
//!
//! An index keeps files open for good. A server filled to its limit with them could not start again, as opening the same
//! indexes takes a few descriptors more for a moment, nor could it compact or accept a client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::indexes::IndexError;

/// How many stay free, and how many more for each core.
const SPARE_FILES: usize = 16;
const SPARE_FILES_PER_CORE: usize = 4;

/// Descriptors that are held while an index is made: as many are free afterwards.
pub struct SpareFiles {
    _held: Vec<OwnedFd>,
}

impl SpareFiles {
    /// Takes what a server of so many cores must keep.
    ///
    /// # Errors
    /// [`IndexError::TooManyFiles`] if that many are not free.
    pub fn hold(core_count: u16) -> Result<Self, IndexError> {
        let count = SPARE_FILES + SPARE_FILES_PER_CORE * usize::from(core_count);
        let input = io::stdin();
        let held: io::Result<Vec<OwnedFd>> = (0..count).map(|_| input.as_fd().try_clone_to_owned()).collect();
        held.map(|held| Self { _held: held }).map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => IndexError::TooManyFiles,
            _ => IndexError::Failed(format!("no file descriptor can be set aside: {error}")),
        })
    }
}
