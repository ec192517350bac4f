//! Creating and syncing directories so that they survive a power cut.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes a folder with those above it, where they are missing. The names of new ones are durable when it returns: whoever
/// syncs files in them relies on that. Blocks.
///
/// # Errors
/// A folder cannot be made, or the one that holds its name cannot be synced.
pub fn create_durably(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    std::fs::create_dir_all(path)?;
    missing.iter().filter_map(|folder| folder.parent()).try_for_each(|parent| {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_with_those_above_them() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c");
        for _ in 0..2 {
            create_durably(&path).unwrap();
            assert!(path.is_dir());
        }
        File::create(root.path().join("file")).unwrap();
        assert!(create_durably(&root.path().join("file/d")).is_err());
    }
}
