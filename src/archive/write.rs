//! Writes an archive piece by piece.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// Bytes of a tar block; every entry is filled up to a whole number of them.
const BLOCK_BYTES: u64 = 512;
/// Bytes gathered before they are written to the file.
const BUFFER_BYTES: usize = 256 << 10;

/// An archive being written. All calls block.
pub struct ArchiveWriter {
    tar: Builder<GzEncoder<BufWriter<File>>>,
    /// Unix seconds, the date of all entries.
    date: u64,
    /// Bytes of the entry in work, and of them still to come.
    entry: (u64, u64),
}

impl ArchiveWriter {
    /// Makes the file, or empties it, for an archive whose entries have this date (Unix seconds).
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, date: u64) -> io::Result<Self> {
        // A copy holds up the queue: speed counts for more than the last percents of size.
        Self::create_with(path, date, Compression::fast())
    }

    /// As [`Self::create`], compressed as it is said.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create_with(path: &Path, date: u64, compression: Compression) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        let tar = Builder::new(GzEncoder::new(file, compression));
        Ok(Self { tar, date, entry: (0, 0) })
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn folder(&mut self, name: &str) -> io::Result<()> {
        let mut header = self.header(EntryType::Directory, 0o755, 0);
        self.tar.append_data(&mut header, name, io::empty())
    }

    /// Adds a file with this content.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.begin(name, content.len() as u64)?;
        self.write(content)?;
        self.end()
    }

    /// Begins a file of `len` bytes, which [`Self::write`] and [`Self::end`] complete.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(&mut self, name: &str, len: u64) -> io::Result<()> {
        let mut header = self.header(EntryType::Regular, 0o644, len);
        // The header alone: the content follows in pieces.
        self.tar.append_data(&mut header, name, io::empty())?;
        self.entry = (len, len);
        Ok(())
    }

    /// Adds a piece of the file that was begun.
    ///
    /// # Errors
    /// The file cannot be written, or the piece is longer than what was announced.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.entry.1.checked_sub(bytes.len() as u64);
        self.entry.1 = left.ok_or_else(|| io::Error::other("a file grew while it was copied"))?;
        self.tar.get_mut().write_all(bytes)
    }

    /// Ends the file that was begun.
    ///
    /// # Errors
    /// The file cannot be written, or less was written than announced.
    pub fn end(&mut self) -> io::Result<()> {
        let (len, left) = self.entry;
        if left > 0 {
            return Err(io::Error::other("a file shrank while it was copied"));
        }
        let padding = len.next_multiple_of(BLOCK_BYTES) - len;
        self.tar.get_mut().write_all(&[0; BLOCK_BYTES as usize][..padding as usize])
    }

    /// Completes the archive and makes its content durable; its name is not.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> io::Result<()> {
        let file = self.tar.into_inner()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()
    }

    fn header(&self, kind: EntryType, mode: u32, len: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(self.date);
        header.set_size(len);
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::unpack;

    /// Names of indexes have up to 400 bytes, those of plain tar headers 100.
    #[test]
    fn pieces_and_long_names_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let long = format!("indexes/{}/documents.jsonl", "n".repeat(400));
        let mut archive = ArchiveWriter::create(&path, 1).unwrap();
        archive.folder("indexes").unwrap();
        archive.begin(&long, 1300).unwrap();
        archive.write(&[b'x'; 700]).unwrap();
        archive.write(&[b'y'; 600]).unwrap();
        archive.end().unwrap();
        archive.file("empty", b"").unwrap();
        archive.file("block", &[b'z'; 512]).unwrap();
        archive.finish().unwrap();
        let target = folder.path().join("out");
        unpack(&path, &target).unwrap();
        // A test of its own thread: it may block.
        #[allow(clippy::disallowed_methods)]
        let read = |name: &str| std::fs::read(target.join(name)).unwrap();
        let mut folders = target.join("indexes").read_dir().unwrap();
        let shortened = folders.next().unwrap().unwrap().file_name().into_string().unwrap();
        let wanted = [[b'x'; 700].as_slice(), &[b'y'; 600]].concat();
        assert_eq!(read(&format!("indexes/{shortened}/documents.jsonl")), wanted);
        assert_eq!(read("block"), [b'z'; 512]);
        assert_eq!(read("empty"), b"");
    }

    #[test]
    fn lengths_must_be_as_announced() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = ArchiveWriter::create(&folder.path().join("a"), 1).unwrap();
        archive.begin("a", 3).unwrap();
        assert!(archive.write(b"four").is_err());
        archive.begin("b", 3).unwrap();
        archive.write(b"no").unwrap();
        assert!(archive.end().is_err());
    }
}
