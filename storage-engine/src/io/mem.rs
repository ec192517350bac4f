//! In-memory files: nothing fails and nothing is lost. Clones share the same files.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Disk, DiskError, DiskFile, IoFuture, OpenMode, View};

#[derive(Default)]
struct Tree {
    files: BTreeMap<PathBuf, Rc<RefCell<Vec<u8>>>>,
    folders: BTreeSet<PathBuf>,
}

/// A disk in memory.
#[derive(Clone, Default)]
pub struct MemDisk(Rc<RefCell<Tree>>);

struct MemFile {
    path: PathBuf,
    bytes: Rc<RefCell<Vec<u8>>>,
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of a file, for tests that damage them.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.0.borrow().files.get(path).map(|bytes| bytes.borrow().clone())
    }

    /// Puts a file there, or replaces it.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        self.0.borrow_mut().files.insert(path.to_path_buf(), Rc::new(RefCell::new(bytes)));
    }
}

fn ready<'a, T: 'a>(result: Result<T, DiskError>) -> IoFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

fn not_found(path: &Path) -> DiskError {
    DiskError::NotFound { path: path.display().to_string() }
}

impl Disk for MemDisk {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> IoFuture<'a, Rc<dyn DiskFile>> {
        let mut tree = self.0.borrow_mut();
        let bytes = match (tree.files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => {
                return ready(Err(DiskError::Exists { path: path.display().to_string() }));
            }
            (None, OpenMode::Existing) => return ready(Err(not_found(path))),
            (Some(bytes), _) => bytes.clone(),
            (None, _) => tree.files.entry(path.to_path_buf()).or_default().clone(),
        };
        ready(Ok(Rc::new(MemFile { path: path.to_path_buf(), bytes })))
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        let mut tree = self.0.borrow_mut();
        tree.folders.extend(path.ancestors().map(Path::to_path_buf));
        ready(Ok(()))
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, Vec<String>> {
        let tree = self.0.borrow();
        if !tree.folders.contains(path) && !tree.files.keys().any(|file| file.starts_with(path)) {
            return ready(Err(not_found(path)));
        }
        let all = tree.files.keys().chain(&tree.folders);
        let names: BTreeSet<String> = all
            .filter_map(|known| known.strip_prefix(path).ok()?.components().next())
            .map(|name| name.as_os_str().to_string_lossy().into_owned())
            .collect();
        ready(Ok(names.into_iter().collect()))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> IoFuture<'a, ()> {
        let mut tree = self.0.borrow_mut();
        let Some(bytes) = tree.files.remove(from) else { return ready(Err(not_found(from))) };
        tree.files.insert(to.to_path_buf(), bytes);
        ready(Ok(()))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        ready(self.0.borrow_mut().files.remove(path).map(drop).ok_or_else(|| not_found(path)))
    }

    fn remove_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        let mut tree = self.0.borrow_mut();
        tree.files.retain(|file, _| !file.starts_with(path));
        tree.folders.retain(|folder| !folder.starts_with(path));
        ready(Ok(()))
    }

    fn sync_dir<'a>(&'a self, _path: &'a Path) -> IoFuture<'a, ()> {
        ready(Ok(()))
    }

    fn exists<'a>(&'a self, path: &'a Path) -> IoFuture<'a, bool> {
        let tree = self.0.borrow();
        ready(Ok(tree.files.contains_key(path) || tree.folders.contains(path)))
    }
}

impl DiskFile for MemFile {
    fn len(&self) -> u64 {
        self.bytes.borrow().len() as u64
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        let bytes = self.bytes.borrow();
        let found = usize::try_from(offset).ok().and_then(|start| bytes.get(start..start.checked_add(len)?));
        ready(found.map(<[u8]>::to_vec).ok_or_else(|| DiskError::past_the_end(&self.path, offset, len)))
    }

    fn write_at(&self, offset: u64, new: Vec<u8>) -> IoFuture<'_, ()> {
        let mut bytes = self.bytes.borrow_mut();
        let (start, end) = (offset as usize, offset as usize + new.len());
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(&new);
        ready(Ok(()))
    }

    fn set_len(&self, len: u64) -> IoFuture<'_, ()> {
        self.bytes.borrow_mut().resize(len as usize, 0);
        ready(Ok(()))
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        ready(Ok(()))
    }

    fn view(&self) -> Result<View, DiskError> {
        Ok(Rc::new(self.bytes.borrow().clone()))
    }
}
