//! A disk that fails after some number of operations, like the disk of a killed process.

use std::cell::Cell;
use std::future::pending;
use std::path::Path;
use std::rc::Rc;

use storage_engine::io::View;
use storage_engine::{Disk, DiskError, DiskFile, IoFuture, OpenMode};

/// How many changes a disk still takes. The one after the last is done by half if it is a write, and never returns, like
/// all that follow.
#[derive(Clone)]
pub(crate) struct Fuse(Rc<Cell<usize>>);

impl Fuse {
    pub(crate) fn of(operations: usize) -> Self {
        Self(Rc::new(Cell::new(operations + 1)))
    }

    /// Whether the disk was cut off.
    pub(crate) fn is_burnt(&self) -> bool {
        self.0.get() == 0
    }

    fn burn(&self) -> Burn {
        match self.0.get() {
            0 => Burn::Dead,
            1 => {
                self.0.set(0);
                Burn::Now
            }
            left => {
                self.0.set(left - 1);
                Burn::NotYet
            }
        }
    }
}

enum Burn {
    NotYet,
    Now,
    Dead,
}

pub(super) struct FusedDisk {
    pub(super) disk: Rc<dyn Disk>,
    pub(super) fuse: Fuse,
}

struct FusedFile {
    file: Rc<dyn DiskFile>,
    fuse: Fuse,
}

impl FusedDisk {
    fn change<'a, T: 'a>(&'a self, operation: impl FnOnce() -> IoFuture<'a, T>) -> IoFuture<'a, T> {
        match self.fuse.burn() {
            Burn::NotYet => operation(),
            Burn::Now | Burn::Dead => Box::pin(pending()),
        }
    }
}

impl Disk for FusedDisk {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> IoFuture<'a, Rc<dyn DiskFile>> {
        self.change(move || {
            let fuse = self.fuse.clone();
            let opening = self.disk.open(path, mode);
            Box::pin(async move { Ok(Rc::new(FusedFile { file: opening.await?, fuse }) as Rc<dyn DiskFile>) })
        })
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        self.change(|| self.disk.create_dir_all(path))
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, Vec<String>> {
        self.disk.list_dir(path)
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> IoFuture<'a, ()> {
        self.change(|| self.disk.rename(from, to))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        self.change(|| self.disk.remove_file(path))
    }

    fn remove_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        self.change(|| self.disk.remove_dir_all(path))
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        self.change(|| self.disk.sync_dir(path))
    }

    fn exists<'a>(&'a self, path: &'a Path) -> IoFuture<'a, bool> {
        self.disk.exists(path)
    }
}

impl DiskFile for FusedFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        self.file.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, mut bytes: Vec<u8>) -> IoFuture<'_, ()> {
        match self.fuse.burn() {
            Burn::NotYet => self.file.write_at(offset, bytes),
            Burn::Now => {
                bytes.truncate(bytes.len() / 2);
                let torn = self.file.write_at(offset, bytes);
                Box::pin(async move {
                    torn.await?;
                    pending().await
                })
            }
            Burn::Dead => Box::pin(pending()),
        }
    }

    fn set_len(&self, len: u64) -> IoFuture<'_, ()> {
        match self.fuse.burn() {
            Burn::NotYet => self.file.set_len(len),
            Burn::Now | Burn::Dead => Box::pin(pending()),
        }
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        match self.fuse.burn() {
            Burn::NotYet => self.file.sync(),
            Burn::Now | Burn::Dead => Box::pin(pending()),
        }
    }

    fn view(&self) -> Result<View, DiskError> {
        self.file.view()
    }
}
