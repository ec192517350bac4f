//! Starting from a snapshot: its files become the database directory.

use std::fs;
use std::path::Path;

use super::{FORMAT, HEAD, Head, version};
use crate::archive::{UnpackError, unpack};

/// Why a snapshot cannot be started from.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// It is not a snapshot of this server.
    #[error("it is not a snapshot of this server ({0})")]
    NoSnapshot(String),
    /// It was written by another version.
    #[error("it was written by version {0} of the server; add `--experimental-dumpless-upgrade` to import it anyway")]
    Version(String),
}

/// Unpacks a snapshot into the database directory, which is empty. Nothing is durable yet. Blocks.
///
/// # Errors
/// [`RestoreError`]; what was unpacked until then stays.
pub fn restore(snapshot: &Path, root: &Path, upgrade: bool) -> Result<(), RestoreError> {
    unpack(snapshot, root)?;
    let head = root.join(HEAD);
    let no_snapshot = |error: &dyn std::fmt::Display| RestoreError::NoSnapshot(error.to_string());
    let text = fs::read_to_string(&head).map_err(|error| no_snapshot(&error))?;
    let found: Head = serde_json::from_str(&text).map_err(|error| no_snapshot(&error))?;
    if found.format != FORMAT {
        return Err(no_snapshot(&format!("its layout {} is not known", found.format)));
    }
    if found.version != version() && !upgrade {
        return Err(RestoreError::Version(found.version));
    }
    fs::remove_file(&head).map_err(|error| no_snapshot(&error))
}
