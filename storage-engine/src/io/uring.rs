//! Real files: reads, writes and syncs through the core's io_uring, views through a shared read-only map.
//!
//! Reads and writes go through the page cache, which the map shares, so that what was written is what a view shows.
//! Must be used on a glommio executor.

use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use glommio::io::{BufferedFile, Directory, OpenOptions};
use memmap2::{Mmap, MmapOptions};

use super::{Disk, DiskError, DiskFile, IoFuture, OpenMode, View};

/// Address space mapped at least: it costs nothing until touched, and a file that grows need not be mapped again.
const MAP_BYTES_MIN: u64 = 64 << 20;

/// Files of the operating system, through the executor that polls the futures.
#[derive(Clone, Default)]
pub struct UringDisk;

struct UringFile {
    path: PathBuf,
    file: BufferedFile,
    len: Cell<u64>,
    map: RefCell<Option<Rc<Map>>>,
}

struct Map(Mmap);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn glommio_error(path: &Path, what: &'static str, error: glommio::GlommioError<()>) -> DiskError {
    DiskError::of(path, what, &std::io::Error::from(error))
}

/// Runs a file system call whose names are in memory as a rule: making, listing and removing names of a few files.
fn names<'a, T: 'a>(
    path: &'a Path,
    what: &'static str,
    call: impl FnOnce() -> std::io::Result<T> + 'a,
) -> IoFuture<'a, T> {
    Box::pin(async move { call().map_err(|error| DiskError::of(path, what, &error)) })
}

impl Disk for UringDisk {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> IoFuture<'a, Rc<dyn DiskFile>> {
        Box::pin(async move {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            match mode {
                OpenMode::Existing => {}
                OpenMode::CreateNew => drop(options.create_new(true)),
                OpenMode::OpenOrCreate => drop(options.create(true)),
            }
            let file = options.buffered_open(path).await.map_err(|error| glommio_error(path, "open", error))?;
            let len = file.file_size().await.map_err(|error| glommio_error(path, "size", error))?;
            let file: Rc<dyn DiskFile> =
                Rc::new(UringFile { path: path.to_path_buf(), file, len: Cell::new(len), map: RefCell::new(None) });
            Ok(file)
        })
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        names(path, "create folder", move || std::fs::create_dir_all(path))
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, Vec<String>> {
        names(path, "list folder", move || {
            let entries: Result<Vec<_>, _> = std::fs::read_dir(path)?.collect();
            let mut found: Vec<String> =
                entries?.into_iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            found.sort();
            Ok(found)
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> IoFuture<'a, ()> {
        names(from, "rename", move || std::fs::rename(from, to))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        names(path, "remove", move || std::fs::remove_file(path))
    }

    fn remove_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        names(path, "remove folder", move || match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        })
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        Box::pin(async move {
            let folder = Directory::open(path).await.map_err(|error| glommio_error(path, "open folder", error))?;
            folder.sync().await.map_err(|error| glommio_error(path, "sync folder", error))?;
            folder.close().await.map_err(|error| glommio_error(path, "close folder", error))
        })
    }

    fn exists<'a>(&'a self, path: &'a Path) -> IoFuture<'a, bool> {
        names(path, "look up", move || path.try_exists())
    }
}

impl UringFile {
    fn failed(&self, what: &'static str, reason: String) -> DiskError {
        DiskError::Failed { path: self.path.display().to_string(), what, reason }
    }
}

impl DiskFile for UringFile {
    fn len(&self) -> u64 {
        self.len.get()
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        Box::pin(async move {
            let mut out = Vec::with_capacity(len);
            while out.len() < len {
                let at = offset + out.len() as u64;
                let read = self.file.read_at(at, len - out.len()).await;
                let read = read.map_err(|error| glommio_error(&self.path, "read", error))?;
                if read.is_empty() {
                    return Err(self.failed("read", format!("{len} bytes at {offset} lie past the end")));
                }
                out.extend_from_slice(&read);
            }
            Ok(out)
        })
    }

    fn write_at(&self, offset: u64, bytes: Vec<u8>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let len = bytes.len();
            let written = self.file.write_at(bytes, offset).await;
            let written = written.map_err(|error| glommio_error(&self.path, "write", error))?;
            if written < len {
                // The kernel stops short when the device is full, or nearly.
                return Err(DiskError::NoSpace { path: self.path.display().to_string() });
            }
            self.len.set(self.len.get().max(offset + len as u64));
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.file.truncate(len).await.map_err(|error| glommio_error(&self.path, "set length", error))?;
            self.len.set(len);
            Ok(())
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move { self.file.fdatasync().await.map_err(|error| glommio_error(&self.path, "sync", error)) })
    }

    fn view(&self) -> Result<View, DiskError> {
        let mut map = self.map.borrow_mut();
        if let Some(known) = map.as_ref().filter(|known| known.0.len() as u64 >= self.len.get()) {
            return Ok(known.clone());
        }
        let bytes = (self.len.get() * 2).max(MAP_BYTES_MIN) as usize;
        // SAFETY: the map is read-only and shared. The file belongs to this process alone (the data folder is locked), it
        // is cut only by compaction, which works on a file of its own, and the page store reads only pages below its page
        // count that no write touches while a snapshot may read them.
        let new = unsafe { MmapOptions::new().len(bytes).map(self.file.as_raw_fd()) };
        let new = Rc::new(Map(new.map_err(|error| DiskError::of(&self.path, "map", &error))?));
        // A failure only costs read-ahead that is of no use: pages are read in no order.
        let _ = new.0.advise(memmap2::Advice::Random);
        *map = Some(new.clone());
        Ok(new)
    }
}
