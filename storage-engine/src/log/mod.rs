//! The log: frames appended to segment files, durable when `append` returns. Concurrent appends share one sync.
//!
//! A segment is named by the position of its first byte, sixteen hexadecimal digits and `.log`. Positions count from 0 over the
//! whole life of the log. A segment begins with a header; the last segment may end in a torn frame, which is truncated on opening
//! because its append never returned.

mod frame;
mod reader;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::{FutureExt, LocalBoxFuture, Shared};

pub use frame::FRAME_BYTES_MAX;
use frame::{Checksum, Header};
pub use reader::Visitor;
use reader::{PIECE_BYTES, SegmentHead};

use crate::io::{Disk, DiskError, DiskFile, OpenMode};

const MAGIC: [u8; 8] = *b"SKERRYLG";
const VERSION: u32 = 1;
/// Frames that wait together have about this many bytes at most; more of them wait for these to be taken.
const WAITING_BYTES_MAX: u64 = 64 << 20;
/// Parts of frames are put together for one write up to this many bytes.
const GATHERED_BYTES_MAX: usize = 256 << 10;
/// Magic, version, nothing.
const SEGMENT_HEADER_BYTES: u64 = 16;
/// A last segment that holds nothing of use any more is replaced by an empty one when it is at least this long.
const USELESS_BYTES_MAX: u64 = 1 << 20;

/// How to open a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// A segment that is at least this long gets no further frame.
    pub segment_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20 }
    }
}

/// Where a frame lies: by its first byte, and how long its content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Bytes from the start of the log.
    pub offset: u64,
    /// Bytes of the content.
    pub len: u32,
}

impl Position {
    /// The place behind the frame, in bytes from the start of the log.
    pub fn end(self) -> u64 {
        self.offset + frame::HEADER_BYTES as u64 + u64::from(self.len)
    }
}

/// Why an operation on the log failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A frame that was durable is damaged: later ones were written after its sync, so this is no torn write.
    #[error(
        "{file}: the log is damaged at byte {offset}, where it had been durable; restore it from a dump or a replica"
    )]
    Damaged {
        /// The segment.
        file: String,
        /// Bytes from the start of the log.
        offset: u64,
    },
    /// The segment was written by another version of the program.
    #[error(
        "{file}: the log has format version {found}, this program reads version {VERSION}; use the one that wrote it"
    )]
    Version {
        /// The segment.
        file: String,
        /// Its format version.
        found: u32,
    },
    /// No frame lies at this position.
    #[error("there is no frame at byte {0} of the log")]
    NoFrame(u64),
    /// The frame is longer than [`FRAME_BYTES_MAX`].
    #[error("a frame has {0} bytes, at most {FRAME_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// An earlier write or sync failed.
    #[error("an earlier write to the log failed: start the server again")]
    Poisoned,
}

struct Segment {
    start: u64,
    path: PathBuf,
    file: Rc<dyn DiskFile>,
}

/// A write of frames under way; gives the position of the first of them.
type Flush = Shared<LocalBoxFuture<'static, Result<u64, LogError>>>;

/// Frames that wait for the flush after the one under way.
#[derive(Default)]
struct Waiting {
    /// Each in its parts. They are encoded when their place is certain: the flush before may still fail.
    frames: Vec<Vec<Vec<u8>>>,
    /// Bytes they will take.
    bytes: u64,
    /// They begin a new segment.
    in_new_segment: bool,
    /// The flush that will take them.
    flush: Option<Flush>,
}

struct Inner {
    disk: Rc<dyn Disk>,
    dir: PathBuf,
    options: LogOptions,
    /// In the order of their positions; the last is written to.
    segments: RefCell<Vec<Segment>>,
    /// The position behind the last durable frame.
    end: Cell<u64>,
    waiting: RefCell<Waiting>,
    /// The last flush started: flushes come one after another. It is kept here so that it goes on when those who waited for it
    /// do so no longer.
    last: RefCell<Option<Flush>>,
    poisoned: Cell<bool>,
}

/// An append-only log in a folder of its own. Clones are the same log; it belongs to one core.
#[derive(Clone)]
pub struct Log(Rc<Inner>);

fn segment_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{start:016x}.log"))
}

fn segment_start(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

impl Log {
    /// Opens the log in `dir`, which is made where needed, and shows the visitor every frame in it. When this fails, what the
    /// visitor was shown until then does not count.
    ///
    /// # Errors
    /// [`LogError::Disk`]; [`LogError::Damaged`] for damage that no power cut explains; [`LogError::Version`].
    pub async fn open(
        disk: Rc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        visitor: &mut dyn Visitor,
    ) -> Result<Self, LogError> {
        Self::open_in_pieces(disk, dir, options, visitor, PIECE_BYTES).await
    }

    /// The same, reading this many bytes at once.
    async fn open_in_pieces(
        disk: Rc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        visitor: &mut dyn Visitor,
        piece_bytes: usize,
    ) -> Result<Self, LogError> {
        disk.create_dir_all(dir).await?;
        let mut starts: Vec<u64> = disk.list_dir(dir).await?.iter().filter_map(|name| segment_start(name)).collect();
        starts.sort_unstable();
        let (mut segments, mut end) = (Vec::new(), starts.first().copied().unwrap_or(0));
        for (at, start) in starts.iter().copied().enumerate() {
            let path = segment_path(dir, start);
            let file = disk.open(&path, OpenMode::Existing).await?;
            let damaged = |offset| LogError::Damaged { file: path.display().to_string(), offset };
            let whole = match reader::read_segment(&*file, start, piece_bytes, visitor).await? {
                SegmentHead::Whole(bytes) => bytes,
                SegmentHead::Torn => 0,
                SegmentHead::Damaged => return Err(damaged(start)),
                SegmentHead::Version(found) => {
                    return Err(LogError::Version { file: path.display().to_string(), found });
                }
            };
            let last = at + 1 == starts.len();
            let position = start + whole.max(SEGMENT_HEADER_BYTES) - SEGMENT_HEADER_BYTES;
            if !last && starts.get(at + 1) != Some(&position) {
                return Err(damaged(start + whole));
            }
            if last && whole < file.len() {
                let rest = whole.max(SEGMENT_HEADER_BYTES);
                if reader::proves_durable(&*file, rest, position, piece_bytes).await? {
                    return Err(damaged(position));
                }
                // Cut off for good: a later frame must not be followed by the remains of this one.
                file.set_len(whole).await?;
                file.sync().await?;
            }
            end = position;
            if last && whole < SEGMENT_HEADER_BYTES {
                // Torn before its header was whole: it is made again.
                disk.remove_file(&path).await?;
                continue;
            }
            segments.push(Segment { start, path, file });
        }
        let inner = Inner {
            disk,
            dir: dir.to_path_buf(),
            options,
            segments: RefCell::new(segments),
            end: Cell::new(end),
            waiting: RefCell::default(),
            last: RefCell::default(),
            poisoned: Cell::new(false),
        };
        Ok(Self(Rc::new(inner)))
    }

    /// Appends a frame of these parts, concatenated, and returns once it is durable. Frames appended meanwhile share the
    /// next sync. When the future is dropped early, the frame may or may not be in the log.
    ///
    /// # Errors
    /// [`LogError`]; when the device was full, nothing was appended and it may be tried again. After another failure of a write
    /// or sync nothing more is taken.
    pub async fn append(&self, parts: Vec<Vec<u8>>) -> Result<Position, LogError> {
        let mut positions = self.append_all(vec![parts]).await?;
        Ok(positions.remove(0))
    }

    /// Appends several frames, each of its parts, with one sync; all of them or none.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn append_all(&self, frames: Vec<Vec<Vec<u8>>>) -> Result<Vec<Position>, LogError> {
        let inner = &self.0;
        let lens: Vec<usize> = frames.iter().map(|parts| parts.iter().map(Vec::len).sum()).collect();
        if let Some(len) = lens.iter().find(|len| **len > FRAME_BYTES_MAX) {
            return Err(LogError::TooLong(*len));
        }
        if inner.poisoned.get() {
            return Err(LogError::Poisoned);
        }
        loop {
            let full = {
                let waiting = inner.waiting.borrow();
                waiting.flush.clone().filter(|_| waiting.bytes >= WAITING_BYTES_MAX)
            };
            let Some(flush) = full else { break };
            // How it ends is told to those whose frames are in it.
            drop(flush.await);
        }
        // Nothing is awaited in between, so one flush takes them all.
        let waits: Vec<(Flush, u64)> =
            frames.into_iter().zip(&lens).map(|(parts, len)| self.wait(parts, *len)).collect();
        let mut positions = Vec::with_capacity(waits.len());
        for ((flush, before), len) in waits.into_iter().zip(lens) {
            positions.push(Position { offset: flush.await? + before, len: len as u32 });
        }
        Ok(positions)
    }

    /// Adds a frame to those that wait; the flush that will take it, and how many bytes that flush writes before it.
    fn wait(&self, parts: Vec<Vec<u8>>, len: usize) -> (Flush, u64) {
        let mut waiting = self.0.waiting.borrow_mut();
        let before = waiting.bytes;
        waiting.frames.push(parts);
        waiting.bytes += (frame::HEADER_BYTES + len) as u64;
        (self.next_flush(&mut waiting), before)
    }

    /// The flush that will take what waits.
    fn next_flush(&self, waiting: &mut Waiting) -> Flush {
        let flush = waiting.flush.get_or_insert_with(|| {
            let (log, earlier) = (self.clone(), self.0.last.borrow_mut().take());
            let flush = async move {
                if let Some(earlier) = earlier {
                    // Its error was told to those who waited for it; `poisoned` says whether it ends all writing.
                    drop(earlier.await);
                }
                let taken = std::mem::take(&mut *log.0.waiting.borrow_mut());
                log.write(taken).await
            };
            let flush = flush.boxed_local().shared();
            self.0.last.replace(Some(flush.clone()));
            flush
        });
        flush.clone()
    }

    async fn write(&self, taken: Waiting) -> Result<u64, LogError> {
        let inner = &self.0;
        if inner.poisoned.get() {
            return Err(LogError::Poisoned);
        }
        let start = inner.end.get();
        let end = start + taken.bytes;
        match self.write_at_end(start, taken).await {
            Ok(()) => inner.end.set(end),
            Err(error) => {
                // Files are opened before anything is written to them.
                let is_harmless = matches!(error, DiskError::NoSpace { .. } | DiskError::TooManyFiles { .. });
                let may_go_on = is_harmless && !inner.poisoned.get() && self.cut(start).await.is_ok();
                inner.poisoned.set(!may_go_on);
                return Err(error.into());
            }
        }
        Ok(start)
    }

    /// Writes frames behind the last one and makes them durable. Short ones are put together; long parts are written as they
    /// are.
    async fn write_at_end(&self, start: u64, taken: Waiting) -> Result<(), DiskError> {
        let (segment_start, file) = self.segment_for(start, taken.in_new_segment).await?;
        let place = |position: u64| SEGMENT_HEADER_BYTES + position - segment_start;
        let (mut position, mut gathered) = (start, Vec::new());
        for parts in taken.frames {
            let len = parts.iter().map(Vec::len).sum();
            let mut sum = Checksum::new(len, position + gathered.len() as u64, start);
            for part in &parts {
                sum.add(part).await;
            }
            gathered.extend_from_slice(&sum.header(len, start));
            for part in parts {
                let full = gathered.len() + part.len() > GATHERED_BYTES_MAX;
                if full && !gathered.is_empty() {
                    let bytes = std::mem::take(&mut gathered);
                    let written = bytes.len() as u64;
                    file.write_at(place(position), bytes).await?;
                    position += written;
                }
                if part.len() > GATHERED_BYTES_MAX {
                    let written = part.len() as u64;
                    file.write_at(place(position), part).await?;
                    position += written;
                } else {
                    gathered.extend_from_slice(&part);
                }
            }
        }
        // A failure found only by the sync leaves open what is durable: unlike a write that was refused, it cannot be taken
        // back, and is no `NoSpace`.
        let last = if gathered.is_empty() { Vec::new() } else { vec![(place(position), gathered)] };
        file.write_groups(vec![last]).await
    }

    /// Takes away what a write that found the device full may have left behind `position`.
    async fn cut(&self, position: u64) -> Result<(), DiskError> {
        let last = self.0.segments.borrow().last().map(|segment| (segment.start, segment.file.clone()));
        match last {
            Some((start, file)) => file.set_len(SEGMENT_HEADER_BYTES + position - start).await,
            None => Ok(()),
        }
    }

    /// The segment that takes frames from `position` on: the last, or a new one when that is long enough or none of its frames
    /// should stand before these.
    async fn segment_for(&self, position: u64, fresh: bool) -> Result<(u64, Rc<dyn DiskFile>), DiskError> {
        let inner = &self.0;
        let last = inner.segments.borrow().last().map(|segment| (segment.start, segment.file.clone()));
        let longest = if fresh { 1 } else { inner.options.segment_bytes };
        if let Some((start, file)) = last.filter(|(start, _)| position - start < longest) {
            return Ok((start, file));
        }
        let path = segment_path(&inner.dir, position);
        match self.new_segment(&path).await {
            Ok(file) => {
                inner.segments.borrow_mut().push(Segment { start: position, path, file: file.clone() });
                Ok((position, file))
            }
            Err(error) => {
                // The segment before may go on: a file that says it begins in its midst must not stay.
                inner.poisoned.set(true);
                if inner.disk.exists(&path).await? {
                    inner.disk.remove_file(&path).await?;
                    inner.disk.sync_dir(&inner.dir).await?;
                }
                inner.poisoned.set(false);
                Err(error)
            }
        }
    }

    async fn new_segment(&self, path: &Path) -> Result<Rc<dyn DiskFile>, DiskError> {
        let file = self.0.disk.open(path, OpenMode::OpenOrCreate).await?;
        file.set_len(0).await?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        file.write_at(0, header).await?;
        // Before any frame: a wrong header in front of a frame is then damage, never a power cut.
        file.sync().await?;
        self.0.disk.sync_dir(&self.0.dir).await?;
        Ok(file)
    }

    /// The content of a frame.
    ///
    /// # Errors
    /// [`LogError::NoFrame`] when nothing is there, as after its segment was removed; [`LogError::Damaged`] when the bytes are
    /// not those that were written.
    pub async fn read(&self, position: Position) -> Result<Vec<u8>, LogError> {
        self.read_behind(position, 0).await
    }

    /// The content of a frame without its first `skipped` bytes.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn read_behind(&self, position: Position, skipped: usize) -> Result<Vec<u8>, LogError> {
        let missing = LogError::NoFrame(position.offset);
        let found = {
            let segments = self.0.segments.borrow();
            let at = segments.partition_point(|segment| segment.start <= position.offset);
            at.checked_sub(1).map(|at| (segments[at].start, segments[at].file.clone(), segments[at].path.clone()))
        };
        let Some((start, file, path)) = found else { return Err(missing) };
        let (at, len) = (SEGMENT_HEADER_BYTES + position.offset - start, position.len as usize);
        let header_bytes = frame::HEADER_BYTES as u64;
        if file.len() < at + header_bytes + len as u64 || skipped > len {
            return Err(missing);
        }
        let header = file.read_at(at, frame::HEADER_BYTES).await?;
        let Ok(header) = <[u8; frame::HEADER_BYTES]>::try_from(header) else { return Err(missing) };
        let head = file.read_at(at + header_bytes, skipped).await?;
        let rest = file.read_at(at + header_bytes + skipped as u64, len - skipped).await?;
        let Header { synced, .. } = Header::of(&header);
        let mut sum = Checksum::new(len, position.offset, synced);
        sum.add(&head).await;
        sum.add(&rest).await;
        if sum.header(len, synced) == header {
            return Ok(rest);
        }
        Err(LogError::Damaged { file: path.display().to_string(), offset: position.offset })
    }

    /// Removes the segments in which every frame lies before `offset`. When that is all of them and the last one is long, an
    /// empty one takes its place; otherwise the last one stays.
    ///
    /// # Errors
    /// [`LogError::Disk`]; what could not be removed is tried again next time.
    pub async fn remove_before(&self, offset: u64) -> Result<(), LogError> {
        let last = self.0.segments.borrow().last().map(|segment| segment.start);
        let long = USELESS_BYTES_MAX.min(self.0.options.segment_bytes);
        if last.is_some_and(|start| start + long <= offset) && self.0.end.get() <= offset {
            let flush = {
                let mut waiting = self.0.waiting.borrow_mut();
                waiting.in_new_segment = true;
                self.next_flush(&mut waiting)
            };
            flush.await?;
        }
        loop {
            let first = {
                let segments = self.0.segments.borrow();
                match segments.as_slice() {
                    [first, second, ..] if second.start <= offset => first.path.clone(),
                    _ => return Ok(()),
                }
            };
            self.0.disk.remove_file(&first).await?;
            self.0.segments.borrow_mut().remove(0);
            self.0.disk.sync_dir(&self.0.dir).await?;
        }
    }

    /// The position behind the last frame.
    pub fn end(&self) -> u64 {
        self.0.end.get()
    }

    /// Bytes of all segments.
    pub fn file_bytes(&self) -> u64 {
        self.0.segments.borrow().iter().map(|segment| segment.file.len()).sum()
    }
}
