//! File system calls that more than one back end makes.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{DiskError, Piece};

/// Names in a folder, sorted.
pub(super) fn list_dir(path: &Path) -> Result<Vec<String>> {
    let entries: Result<Vec<_>> = std::fs::read_dir(path)?.collect();
    let mut found: Vec<String> =
        entries?.into_iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    found.sort();
    Ok(found)
}

/// Removes a folder and all in it; one that is not there is no error.
pub(super) fn remove_dir_all(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Writes all bytes at `offset`.
pub(super) fn write_at(file: &File, path: &Path, offset: u64, bytes: &[u8]) -> std::result::Result<(), DiskError> {
    file.write_all_at(bytes, offset).map_err(|error: Error| match error.kind() {
        // The kernel stops short when the device is nearly full, and then writes nothing.
        ErrorKind::WriteZero => DiskError::NoSpace { path: path.display().to_string() },
        _ => DiskError::of(path, "write", &error),
    })
}

/// See [`super::DiskFile::write_groups`].
pub(super) fn write_groups(file: &File, path: &Path, groups: &[Vec<Piece>]) -> std::result::Result<(), DiskError> {
    for (number, group) in groups.iter().enumerate() {
        for (offset, bytes) in group {
            let written = write_at(file, path, *offset, bytes);
            written.map_err(|error| if number == 0 { error } else { error.into_failure("write") })?;
        }
        file.sync_data().map_err(|error| DiskError::of(path, "sync", &error).into_failure("sync"))?;
    }
    Ok(())
}

/// Where the bytes of groups end, and how many they are.
pub(super) fn extent(groups: &[Vec<Piece>]) -> (u64, usize) {
    let pieces = || groups.iter().flatten();
    let end = pieces().map(|(offset, bytes)| offset + bytes.len() as u64).max().unwrap_or(0);
    (end, pieces().map(|(_, bytes)| bytes.len()).sum())
}
