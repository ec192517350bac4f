//! Real files on any executor. Reads that the page cache answers are made in place. What waits for the device goes through the
//! core's own ring if it is a read and the core has one, and to helper threads, which serve all cores, otherwise.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use blocking::unblock;

use super::direct::Direct;
use super::mapping::Mapping;
use super::ring::Ring;
use super::ring_buffers::BLOCK_BYTES;
use super::{Disk, DiskError, DiskFile, Driver, IoFuture, OpenMode, Piece, View, calls, folders, has_bytes};

/// Reads up to this long are made in place or by the ring: copying longer ones holds the core.
const SHORT_BYTES_MAX: usize = 128 << 10;

/// Files of the operating system, on any executor.
#[derive(Clone, Default)]
pub struct SystemDisk {
    ring: Option<Rc<Ring>>,
}

impl SystemDisk {
    /// One that reads through a ring. The executor must turn it; see [`Disk::driver`].
    pub fn over(ring: Rc<Ring>) -> Self {
        Self { ring: Some(ring) }
    }
}

/// A file opened past the page cache.
#[derive(Clone)]
struct DirectFile {
    file: Arc<File>,
    /// Of what its reads begin and end at multiples, in bytes: a power of two, at most [`BLOCK_BYTES`].
    alignment: usize,
}

struct SystemFile {
    path: PathBuf,
    ring: Option<Rc<Ring>>,
    /// There until it is dropped.
    file: Option<Arc<File>>,
    len: Cell<u64>,
    map: Mapping,
    direct: Direct<DirectFile>,
    /// Whether the kernel tells of reads that they would wait.
    tells_waits: Cell<bool>,
}

/// Makes a call on a helper thread.
fn aside<'a, T: Send + 'static>(
    path: &'a Path,
    what: &'static str,
    call: impl FnOnce(&Path) -> std::io::Result<T> + Send + 'static,
) -> IoFuture<'a, T> {
    let owned = path.to_path_buf();
    Box::pin(async move { unblock(move || call(&owned)).await.map_err(|error| DiskError::of(path, what, &error)) })
}

impl Disk for SystemDisk {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> IoFuture<'a, Rc<dyn DiskFile>> {
        Box::pin(async move {
            let open = move |path: &Path| {
                let mut options = OpenOptions::new();
                options.read(true).write(true);
                match mode {
                    OpenMode::Existing => {}
                    OpenMode::CreateNew => drop(options.create_new(true)),
                    OpenMode::OpenOrCreate => drop(options.create(true)),
                }
                let file = options.open(path)?;
                let len = file.metadata()?.len();
                Ok((file, len))
            };
            let (file, len) = aside(path, "open", open).await?;
            let file: Rc<dyn DiskFile> = Rc::new(SystemFile {
                path: path.to_path_buf(),
                ring: self.ring.clone(),
                file: Some(Arc::new(file)),
                len: Cell::new(len),
                map: Mapping::default(),
                direct: Direct::default(),
                tells_waits: Cell::new(true),
            });
            Ok(file)
        })
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        aside(path, "create folder", folders::create_durably)
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, Vec<String>> {
        aside(path, "list folder", calls::list_dir)
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> IoFuture<'a, ()> {
        let to = to.to_path_buf();
        aside(from, "rename", move |from| std::fs::rename(from, to))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        aside(path, "remove", |path| std::fs::remove_file(path))
    }

    fn remove_dir_all<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        aside(path, "remove folder", calls::remove_dir_all)
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> IoFuture<'a, ()> {
        aside(path, "sync folder", |path| File::open(path)?.sync_all())
    }

    fn exists<'a>(&'a self, path: &'a Path) -> IoFuture<'a, bool> {
        aside(path, "look up", |path| path.try_exists())
    }

    fn driver(&self) -> Option<Rc<dyn Driver>> {
        let ring: Rc<dyn Driver> = self.ring.clone()?;
        Some(ring)
    }
}

impl SystemFile {
    fn file(&self) -> Result<Arc<File>, DiskError> {
        self.file.clone().ok_or_else(|| self.failed("use", "it is closed".to_owned()))
    }

    fn failed(&self, what: &'static str, reason: String) -> DiskError {
        DiskError::Failed { path: self.path.display().to_string(), what, reason }
    }

    /// Makes a call on a helper thread, with the file.
    async fn with_file<T: Send + 'static>(
        &self,
        what: &'static str,
        call: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, DiskError> {
        let file = self.file()?;
        unblock(move || call(&file)).await.map_err(|error| DiskError::of(&self.path, what, &error))
    }

    /// What the page cache has of a read: all of it or nothing.
    fn read_in_place(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        if !self.tells_waits.get() || len > SHORT_BYTES_MAX {
            return None;
        }
        let mut bytes = vec![0; len];
        let piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let file = self.file.as_ref()?.as_raw_fd();
        // SAFETY: the one piece is of a vector that outlives the call, which writes no more than its length into it.
        let read = unsafe { libc::preadv2(file, &raw const piece, 1, offset.try_into().ok()?, libc::RWF_NOWAIT) };
        match usize::try_from(read) {
            Ok(read) => (read == len).then_some(bytes),
            Err(_) => {
                // Another kernel, or a sandbox, may not know the flag.
                self.tells_waits.set(Error::last_os_error().kind() == ErrorKind::WouldBlock);
                None
            }
        }
    }

    /// The file for reads past the page cache, opened at the first of them.
    async fn direct(&self) -> Option<DirectFile> {
        // By its descriptor: its name may be another's by now.
        let descriptor = self.file.as_ref()?.as_raw_fd();
        let open = async {
            let name = format!("/proc/self/fd/{descriptor}");
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_DIRECT);
            unblock(move || {
                let file = options.open(name)?;
                Ok(DirectFile { alignment: alignment(&file), file: Arc::new(file) })
            })
            .await
        };
        self.direct.get(open).await
    }
}

/// Of what a file's reads past the page cache begin and end at multiples: whole blocks would read up to twice what is wanted.
fn alignment(file: &File) -> usize {
    // SAFETY: the struct is plain numbers, for which zero is a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the name is an empty string, and the pointer is to a local that outlives the call.
    let failed = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut found)
    };
    let told = failed == 0 && found.stx_mask & libc::STATX_DIOALIGN != 0;
    // Linux before 6.1, and some file systems, do not tell.
    let alignment = if told { found.stx_dio_offset_align as usize } else { BLOCK_BYTES };
    if alignment.is_power_of_two() { alignment.min(BLOCK_BYTES) } else { BLOCK_BYTES }
}

/// Reads past the page cache; fewer bytes where the file ends before.
fn read_aligned(DirectFile { file, alignment }: &DirectFile, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let skipped = (offset % *alignment as u64) as usize;
    let wanted = (skipped + len).next_multiple_of(*alignment);
    let mut bytes = vec![0; wanted + BLOCK_BYTES];
    let start = bytes.as_ptr().align_offset(BLOCK_BYTES);
    let mut read = 0;
    while read < skipped + len {
        match file.read_at(&mut bytes[start + read..start + wanted], offset - skipped as u64 + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if read % alignment != 0 {
            break;
        }
    }
    let end = read.min(skipped + len);
    Ok(bytes[start + skipped.min(end)..start + end].to_vec())
}

impl DiskFile for SystemFile {
    fn len(&self) -> u64 {
        self.len.get()
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        Box::pin(async move {
            if !has_bytes(self.len.get(), offset, len) {
                return Err(DiskError::past_the_end(&self.path, offset, len));
            }
            if let Some(bytes) = self.read_in_place(offset, len) {
                return Ok(bytes);
            }
            if let Some(ring) = self.ring.as_ref().filter(|_| len <= SHORT_BYTES_MAX) {
                match ring.read(self.file()?, offset, len, 1).await {
                    Ok(bytes) if bytes.len() == len => return Ok(bytes),
                    // It may stop short, and the helper thread's error tells more.
                    Ok(_) | Err(_) => {}
                }
            }
            let read = move |file: &File| {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, offset).map(|()| bytes)
            };
            self.with_file("read", read).await
        })
    }

    fn read_direct(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        Box::pin(async move {
            let within = has_bytes(self.len.get(), offset, len);
            let Some(direct) = self.direct().await.filter(|_| within) else { return self.read_at(offset, len).await };
            let read = match self.ring.as_ref().filter(|_| len <= SHORT_BYTES_MAX) {
                Some(ring) => ring.read(direct.file, offset, len, direct.alignment).await,
                None => unblock(move || read_aligned(&direct, offset, len)).await,
            };
            match read {
                Ok(bytes) if bytes.len() == len => Ok(bytes),
                // The end of the file may be new to the device: the page cache has it.
                Ok(_) => self.read_at(offset, len).await,
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    self.direct.refuse();
                    self.read_at(offset, len).await
                }
                Err(error) => Err(DiskError::of(&self.path, "read", &error)),
            }
        })
    }

    fn write_at(&self, offset: u64, bytes: Vec<u8>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let (file, path, end) = (self.file()?, self.path.clone(), offset + bytes.len() as u64);
            unblock(move || calls::write_at(&file, &path, offset, &bytes)).await?;
            self.len.set(self.len.get().max(end));
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let grows = len > self.len.get();
            let set = move |file: &File| {
                if grows && let Err(error) = set_aside(file, len) {
                    // A full device is met here, where nothing is lost yet, and not at a later write or sync. A file system that
                    // cannot set space aside still can grow the file.
                    if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                        return Err(error);
                    }
                }
                file.set_len(len)
            };
            self.with_file("set length", set).await?;
            self.len.set(len);
            Ok(())
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(self.with_file("sync", File::sync_data))
    }

    /// One job: the core is woken once.
    fn write_groups(&self, groups: Vec<Vec<Piece>>) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let (file, path, (end, _)) = (self.file()?, self.path.clone(), calls::extent(&groups));
            unblock(move || calls::write_groups(&file, &path, &groups)).await?;
            self.len.set(self.len.get().max(end));
            Ok(())
        })
    }

    fn view(&self) -> Result<View, DiskError> {
        // SAFETY: the file belongs to this process alone (the data folder is locked), and is cut only by compaction, which works
        // on a file of its own.
        unsafe { self.map.view(&*self.file()?, self.len.get(), &self.path) }
    }
}

impl Drop for SystemFile {
    /// Closing a file that was removed gives back its space, which takes long. Others are closed at once: where descriptors are
    /// short, whoever opens the next file counts on it.
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if file.metadata().is_ok_and(|metadata| metadata.nlink() == 0) {
            unblock(move || drop(file)).detach();
        }
    }
}

/// Sets the space of a file aside, up to `len`.
fn set_aside(file: &File, len: u64) -> std::io::Result<()> {
    let len = len.try_into().map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    // SAFETY: the call takes no pointers, and the descriptor is open.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}
