//! Snapshots: copies of the whole database in Skerry's own format, to start another instance from.
//!
//! A snapshot is a gzip-compressed tar of a database directory: the control store, a log with only the waiting tasks, and the
//! index files as they are on disk. While a snapshot task runs, no batch changes an index, so these files do not change.
//! Concurrent changes (API keys, feature switches, newly accepted tasks) do not affect the copy.

pub mod restore;
pub mod s3;
pub mod schedule;
pub mod write;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The entry that says what a snapshot holds, the first one.
const HEAD: &str = "snapshot.json";
/// The version of the layout.
const FORMAT: u32 = 1;

/// What a snapshot says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// The version of its layout.
    format: u32,
    /// The version of the server that wrote it.
    version: String,
}

/// The version of this server.
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The snapshot of the database in `root`, within its folder.
pub fn snapshot_path(folder: &Path, root: &Path) -> PathBuf {
    let whole = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let name = whole.file_name().map_or_else(|| "data.ms".into(), |name| name.to_string_lossy().into_owned());
    folder.join(format!("{name}.snapshot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_named_after_the_database() {
        let path = |root: &str| snapshot_path(Path::new("s"), Path::new(root));
        assert_eq!(path("./data.ms"), Path::new("s/data.ms.snapshot"));
        assert_eq!(path("/var/lib/skerry/"), Path::new("s/skerry.snapshot"));
        assert_eq!(path("/"), Path::new("s/data.ms.snapshot"));
    }
}
