//! A dump being written: its archive, and the entries whose length is unknown until they are complete.
//!
//! Such an entry is collected in memory. When it exceeds the size of a piece it moves to a file next to the archive, and from
//! there into the archive once it is complete. So a dump temporarily takes as much extra disk space as its largest entry.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Serialize;
use shards::runtime::Runtime;
use storage_engine::io::folders;

use crate::archive::{ArchiveWriter, CopyError, PIECE_BYTES, Shared, aside};

/// The files of a dump.
#[derive(Clone, Debug)]
pub struct Places {
    /// The dump.
    pub target: PathBuf,
    /// The archive until it is complete.
    pub unfinished: PathBuf,
    /// The entry that is being written.
    pub spool: PathBuf,
}

/// A dump in the making, as the executor sees it.
pub struct Dump {
    runtime: Rc<dyn Runtime>,
    files: Shared<Files>,
    /// The entry in work, as far as it is not in the spool.
    entry: Vec<u8>,
    spooled: u64,
}

/// The same on a side thread.
struct Files {
    places: Places,
    /// Taken when it is complete.
    archive: Option<ArchiveWriter>,
    spool: File,
}

impl Dump {
    /// Begins a dump whose entries have this date (Unix seconds), in a folder that is made when it is missing.
    ///
    /// # Errors
    /// The files cannot be made.
    pub async fn begin(runtime: Rc<dyn Runtime>, places: Places, date: u64) -> Result<Self, CopyError> {
        let files = aside(&*runtime, move || Files::create(places, date)).await??;
        Ok(Self { runtime, files: Shared::new(files), entry: Vec::new(), spooled: 0 })
    }

    /// Adds folders.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub async fn folders(&self, names: Vec<String>) -> Result<(), CopyError> {
        let add = move |files: &mut Files| names.iter().try_for_each(|name| files.archive()?.folder(name));
        self.files.run(&*self.runtime, |files| files.done(add)).await
    }

    /// Adds bytes to the entry in work.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        self.entry.extend_from_slice(bytes);
        self.spool_when_long().await
    }

    /// Adds a value to the entry in work.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub async fn json(&mut self, value: &impl Serialize) -> Result<(), CopyError> {
        serde_json::to_writer(&mut self.entry, value).map_err(|error| CopyError::Failed(error.to_string()))?;
        self.spool_when_long().await
    }

    /// Adds a value and the end of its line to the entry in work.
    ///
    /// # Errors
    /// The spool cannot be written.
    pub async fn line(&mut self, value: &impl Serialize) -> Result<(), CopyError> {
        self.json(value).await?;
        self.entry.push(b'\n');
        Ok(())
    }

    /// Ends the entry in work under this name.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub async fn end_entry(&mut self, name: String) -> Result<(), CopyError> {
        let (entry, spooled) = (std::mem::take(&mut self.entry), std::mem::take(&mut self.spooled));
        if spooled == 0 {
            let add = move |files: &mut Files| files.archive()?.file(&name, &entry);
            return self.files.run(&*self.runtime, |files| files.done(add)).await;
        }
        let len = spooled + entry.len() as u64;
        let begin = move |files: &mut Files| {
            files.spool.write_all(&entry)?;
            files.spool.rewind()?;
            files.archive()?.begin(&name, len)
        };
        self.files.run(&*self.runtime, |files| files.done(begin)).await?;
        let mut left = len;
        while left > 0 {
            let piece = left.min(PIECE_BYTES as u64);
            self.files.run(&*self.runtime, move |files| files.done(|files| files.move_piece(piece))).await?;
            left -= piece;
        }
        let end = |files: &mut Files| {
            files.spool.set_len(0)?;
            files.spool.rewind()?;
            files.archive()?.end()
        };
        self.files.run(&*self.runtime, move |files| files.done(end)).await
    }

    /// Completes the dump and gives it its name; durable when it returns.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub async fn finish(self) -> Result<(), CopyError> {
        self.files.run(&*self.runtime, |files| files.done(Files::finish)).await
    }

    async fn spool_when_long(&mut self) -> Result<(), CopyError> {
        if self.entry.len() < PIECE_BYTES {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.entry);
        self.spooled += bytes.len() as u64;
        let write = move |files: &mut Files| files.spool.write_all(&bytes);
        self.files.run(&*self.runtime, |files| files.done(write)).await
    }
}

impl Files {
    fn create(places: Places, date: u64) -> Result<Self, CopyError> {
        let made = || {
            if let Some(folder) = places.target.parent() {
                folders::create_durably(folder)?;
            }
            let archive = Some(ArchiveWriter::create(&places.unfinished, date)?);
            let spool = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&places.spool)?;
            Ok((archive, spool))
        };
        let (archive, spool) = made().map_err(|error| CopyError::of(&places.target, "writing", &error))?;
        Ok(Self { places, archive, spool })
    }

    /// Does something, and names the dump when it fails.
    fn done(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), CopyError> {
        work(self).map_err(|error| CopyError::of(&self.places.target, "writing", &error))
    }

    fn archive(&mut self) -> io::Result<&mut ArchiveWriter> {
        self.archive.as_mut().ok_or_else(|| io::Error::other("the dump has ended"))
    }

    fn move_piece(&mut self, bytes: u64) -> io::Result<()> {
        let mut piece = vec![0; bytes as usize];
        self.spool.read_exact(&mut piece)?;
        self.archive()?.write(&piece)
    }

    fn finish(&mut self) -> io::Result<()> {
        let archive = self.archive.take().ok_or_else(|| io::Error::other("the dump has ended"))?;
        archive.finish()?;
        fs::rename(&self.places.unfinished, &self.places.target)?;
        fs::remove_file(&self.places.spool)?;
        match self.places.target.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

/// Removes what an unfinished dump left behind. Blocks.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_leftovers(places: &Places) -> Result<(), CopyError> {
    let gone = |path: &Path| match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CopyError::of(path, "removing", &error)),
        _ => Ok(()),
    };
    gone(&places.unfinished)?;
    gone(&places.spool)
}
