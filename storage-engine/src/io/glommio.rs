//! Real files: reads, writes and syncs through glommio's rings, views through a shared read-only memory map.
//!
//! Reads and writes go through the page cache, which the map shares, so a view shows what was written. Must be used on a glommio
//! executor.

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use glommio::io::{BufferedFile, Directory, DmaFile, OpenOptions};

use super::direct::Direct;
use super::mapping::Mapping;
use super::{Disk, DiskError, DiskFile, IoFuture, OpenMode, Piece, View, calls, folders, has_bytes};

/// One read or write of the ring is at most this long: longer ones hold up all that wait behind them, and copying them
/// holds the core.
const TRANSFER_BYTES_MAX: usize = 128 << 10;

/// Groups of writes with at most this many bytes go to the helper thread as one job.
const HELPER_BYTES_MAX: usize = 512 << 10;
/// Writes of a larger group that are in flight at once. They begin in one step of the core, and the kernel's thread that
/// copies them takes the same processor.
const WRITES_IN_FLIGHT: usize = 2;

/// Files of the operating system, through the executor that polls the futures.
#[derive(Clone, Default)]
pub struct GlommioDisk;

struct GlommioFile {
    path: PathBuf,
    file: BufferedFile,
    /// The same file for the helper thread, which may outlive whoever asked for its work.
    helper: Arc<std::fs::File>,
    len: Cell<u64>,
    map: Mapping,
    direct: Direct<Rc<DmaFile>>,
}

fn glommio_error(path: &Path, what: &'static str, error: glommio::GlommioError<()>) -> DiskError {
    DiskError::of(path, what, &system_error(error))
}

fn system_error(error: glommio::GlommioError<()>) -> std::io::Error {
    match error {
        // What it is converted to has lost the system's number.
        glommio::GlommioError::EnhancedIoError { source, .. } => source,
        error => error.into(),
    }
}

/// Runs file system calls that may wait for the device on the executor's helper thread.
async fn on_helper<T: Send + 'static>(
    path: &Path,
    what: &'static str,
    call: impl FnOnce(&Path) -> std::io::Result<T> + Send + 'static,
) -> Result<T, DiskError> {
    let owned = path.to_path_buf();
    let done = glommio::executor().spawn_blocking(move || call(&owned)).await;
    done.map_err(|error| DiskError::of(path, what, &error))
}

/// Runs a file system call whose names are in memory as a rule: listing and looking up a few files.
fn names<'a, T: 'a>(
    path: &'a Path,
    what: &'static str,
    call: impl FnOnce() -> std::io::Result<T> + 'a,
) -> IoFuture<'a, T> {
    Box::pin(async move { call().map_err(|error| DiskError::of(path, what, &error)) })
}

/// glommio opens relative names beside no folder at all, which fails: it gets whole ones only.
fn whole(path: &Path) -> Result<PathBuf, DiskError> {
    std::path::absolute(path).map_err(|error| DiskError::of(path, "make absolute", &error))
}

impl Disk for GlommioDisk {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> IoFuture<'a, Rc<dyn DiskFile>> {
        Box::pin(async move {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            match mode {
                OpenMode::Existing => {}
                OpenMode::CreateNew => drop(options.create_new(true)),
                OpenMode::OpenOrCreate => drop(options.create(true)),
            }
            let file = options.buffered_open(whole(path)?).await.map_err(|error| glommio_error(path, "open", error))?;
            let len = file.file_size().await.map_err(|error| glommio_error(path, "size", error))?;
            // SAFETY: the descriptor is open as long as `file` lives, which is longer than this call.
            let helper = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) }.try_clone_to_owned();
            let helper = helper.map_err(|error| DiskError::of(path, "open", &error))?;
            let (path, helper) = (path.to_path_buf(), Arc::new(std::fs::File::from(helper)));
            let file: Rc<dyn DiskFile> = Rc::new(GlommioFile {
                path,
                file,
                helper,
                len: Cell::new(len),
                map: Mapping::default(),
                direct: Direct::default(),
            });
            Ok(file)
        })
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        Box::pin(on_helper(path, "create folder", folders::create_durably))
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, Vec<String>> {
        names(path, "list folder", move || calls::list_dir(path))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> IoFuture<'a, ()> {
        names(from, "rename", move || std::fs::rename(from, to))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        // Giving back the space of a large file takes long: the executor's helper thread does it.
        Box::pin(async move {
            glommio::io::remove(whole(path)?).await.map_err(|error| glommio_error(path, "remove", error))
        })
    }

    fn remove_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        Box::pin(on_helper(path, "remove folder", calls::remove_dir_all))
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        Box::pin(async move {
            let folder =
                Directory::open(whole(path)?).await.map_err(|error| glommio_error(path, "open folder", error))?;
            folder.sync().await.map_err(|error| glommio_error(path, "sync folder", error))?;
            folder.close().await.map_err(|error| glommio_error(path, "close folder", error))
        })
    }

    fn exists<'a>(&'a self, path: &'a Path) -> IoFuture<'a, bool> {
        names(path, "look up", move || path.try_exists())
    }
}

impl GlommioFile {
    /// Through the ring, some writes at once.
    async fn write_large_groups(&self, groups: Vec<Vec<Piece>>) -> Result<(), DiskError> {
        for (number, group) in groups.into_iter().enumerate() {
            let mut group = group.into_iter();
            loop {
                let some: Vec<_> =
                    group.by_ref().take(WRITES_IN_FLIGHT).map(|(at, bytes)| self.write_at(at, bytes)).collect();
                if some.is_empty() {
                    break;
                }
                // All are waited for, also when one has failed: one still under way could otherwise overwrite what a later
                // commit puts into the same place.
                let written: Result<(), DiskError> = join_all(some).await.into_iter().collect();
                written.map_err(|error| if number == 0 { error } else { error.into_failure("write") })?;
            }
            self.sync().await.map_err(|error| error.into_failure("sync"))?;
        }
        Ok(())
    }

    /// The file for reads past the page cache, opened at the first of them.
    async fn direct(&self) -> Option<Rc<DmaFile>> {
        // By its descriptor: its name may be another's by now.
        let open = async {
            let name = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            DmaFile::open(name).await.map(Rc::new).map_err(system_error)
        };
        self.direct.get(open).await
    }
}

impl DiskFile for GlommioFile {
    fn len(&self) -> u64 {
        self.len.get()
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        Box::pin(async move {
            if !has_bytes(self.len.get(), offset, len) {
                return Err(DiskError::past_the_end(&self.path, offset, len));
            }
            let mut out = Vec::with_capacity(len);
            while out.len() < len {
                let at = offset + out.len() as u64;
                let read = self.file.read_at(at, (len - out.len()).min(TRANSFER_BYTES_MAX)).await;
                let read = read.map_err(|error| glommio_error(&self.path, "read", error))?;
                if read.is_empty() {
                    return Err(DiskError::past_the_end(&self.path, offset, len));
                }
                out.extend_from_slice(&read);
            }
            Ok(out)
        })
    }

    fn read_direct(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        Box::pin(async move {
            let within = has_bytes(self.len.get(), offset, len);
            let Some(file) = self.direct().await.filter(|_| within && len <= TRANSFER_BYTES_MAX) else {
                return self.read_at(offset, len).await;
            };
            let read = file.read_at(offset, len).await.map_err(|error| glommio_error(&self.path, "read", error))?;
            // The end of the file may be new to the device: the page cache has it.
            if read.len() < len { self.read_at(offset, len).await } else { Ok(read.to_vec()) }
        })
    }

    fn write_at(&self, offset: u64, bytes: Vec<u8>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let mut done = 0;
            while done < bytes.len() {
                // The ring keeps what it writes until it is done, so each part is a copy: little beside the write.
                let part = bytes[done..].chunks(TRANSFER_BYTES_MAX).next().unwrap_or_default().to_vec();
                let written = self.file.write_at(part, offset + done as u64).await;
                // The kernel stops short when the device is nearly full, or for a signal; the rest tells which.
                match written.map_err(|error| glommio_error(&self.path, "write", error))? {
                    0 => return Err(DiskError::NoSpace { path: self.path.display().to_string() }),
                    written => done += written,
                }
            }
            self.len.set(self.len.get().max(offset + bytes.len() as u64));
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            if len > self.len.get() {
                // A full device is met here, where nothing is lost yet, and not at a later write or sync. A file system that
                // cannot set space aside still can grow the file.
                let set_aside = self.file.pre_allocate(len, false).await;
                let set_aside = set_aside.map_err(|error| glommio_error(&self.path, "set space aside", error));
                if let Err(error @ DiskError::NoSpace { .. }) = set_aside {
                    return Err(error);
                }
            }
            self.file.truncate(len).await.map_err(|error| glommio_error(&self.path, "set length", error))?;
            self.len.set(len);
            Ok(())
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move { self.file.fdatasync().await.map_err(|error| glommio_error(&self.path, "sync", error)) })
    }

    /// Each operation of the ring on a buffered file goes to a kernel thread and back. A small commit is one job instead: the helper
    /// thread writes and syncs, and the core is woken once.
    fn write_groups(&self, groups: Vec<Vec<Piece>>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let (end, bytes) = calls::extent(&groups);
            if bytes > HELPER_BYTES_MAX {
                return self.write_large_groups(groups).await;
            }
            let (file, path) = (self.helper.clone(), self.path.clone());
            glommio::executor().spawn_blocking(move || calls::write_groups(&file, &path, &groups)).await?;
            self.len.set(self.len.get().max(end));
            Ok(())
        })
    }

    fn view(&self) -> Result<View, DiskError> {
        // SAFETY: the file belongs to this process alone (the data folder is locked), and is cut only by compaction, which works
        // on a file of its own.
        unsafe { self.map.view(&self.helper, self.len.get(), &self.path) }
    }
}
