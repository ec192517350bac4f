//! Unpacks untrusted archives.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use tar::EntryType;

/// Bytes read from the file at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest part of a name that file systems take. Names of indexes may be longer.
const PART_BYTES_MAX: usize = 255;

/// Why an archive could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It cannot be opened or read, or is none.
    #[error("`{}` cannot be read as an archive: {source}", path.display())]
    Read {
        /// The archive.
        path: PathBuf,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// A name in it leads out of it, or is of something that is neither a file nor a folder.
    #[error("the archive holds `{0}`, which is neither a file nor a folder inside of it")]
    Foreign(String),
    /// A file of it cannot be written.
    #[error("`{}` cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Unpacks an archive into a folder, which is made. Files and folders only: a link could lead out of it. A part of a name that is
/// too long for a file system is shortened, so that it stays different from others. What was written is not durable yet. Blocks.
///
/// # Errors
/// [`UnpackError`]; what was unpacked until then stays.
pub fn unpack(archive: &Path, target: &Path) -> Result<(), UnpackError> {
    let unreadable = |source| UnpackError::Read { path: archive.to_owned(), source };
    let file = BufReader::with_capacity(BUFFER_BYTES, File::open(archive).map_err(unreadable)?);
    make_folder(target)?;
    let mut tar = tar::Archive::new(GzDecoder::new(file));
    for entry in tar.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        let foreign = || UnpackError::Foreign(name.display().to_string());
        let path = target.join(inside(&name).ok_or_else(foreign)?);
        match entry.header().entry_type() {
            EntryType::Directory => make_folder(&path)?,
            EntryType::Regular | EntryType::Continuous => {
                if let Some(folder) = path.parent() {
                    make_folder(folder)?;
                }
                let unwritable = |source| UnpackError::Write { path: path.clone(), source };
                // A second entry of the same name must not be written through what the first one made.
                let mut file = File::create_new(&path).map_err(unwritable)?;
                io::copy(&mut entry, &mut file).map_err(unreadable)?;
            }
            EntryType::XGlobalHeader => {}
            _ => return Err(foreign()),
        }
    }
    // The checksum of all of it stands behind the end that the entries tell of.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(unreadable)?;
    Ok(())
}

/// The name without its `.` parts; `None` when it is absolute or goes up.
fn inside(name: &Path) -> Option<PathBuf> {
    name.components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(part) => Some(shortened(part)),
            _ => None,
        })
        .collect()
}

fn shortened(part: &OsStr) -> PathBuf {
    match part.len() {
        0..=PART_BYTES_MAX => part.into(),
        _ => hex::encode(Sha256::digest(part.as_bytes())).into(),
    }
}

fn make_folder(path: &Path) -> Result<(), UnpackError> {
    fs::create_dir_all(path).map_err(|source| UnpackError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};

    use super::*;

    fn archive(folder: &Path, name: &[u8], kind: EntryType) -> PathBuf {
        let path = folder.join("hostile.tar.gz");
        let mut tar = Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::fast()));
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        if kind == EntryType::Symlink {
            header.set_link_name("/etc").unwrap();
        }
        header.set_size(0);
        header.set_cksum();
        tar.append(&header, io::empty()).unwrap();
        tar.into_inner().unwrap().finish().unwrap();
        path
    }

    /// An archive from elsewhere must not write outside of its folder.
    #[test]
    fn names_that_lead_out_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("in/target");
        for (name, kind) in [
            (&b"../out"[..], EntryType::Regular),
            (b"/etc/x", EntryType::Regular),
            (b"a/../../b", EntryType::Directory),
            (b"link", EntryType::Symlink),
            (b"hard", EntryType::Link),
        ] {
            let path = archive(folder.path(), name, kind);
            assert!(matches!(unpack(&path, &target), Err(UnpackError::Foreign(_))), "{kind:?}");
        }
        assert!(!folder.path().join("in/out").exists());
        let path = archive(folder.path(), b"./fine", EntryType::Regular);
        unpack(&path, &target).unwrap();
        assert!(target.join("fine").exists());
    }

    /// A flipped bit in a document once came in as another document.
    #[test]
    // A test of its own thread: it may block.
    #[allow(clippy::disallowed_methods)]
    fn damage_is_told_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged.tar.gz");
        let mut tar = Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::none()));
        let mut header = Header::new_gnu();
        let text = b"a text that is stored as it is";
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, "text", &text[..]).unwrap();
        tar.into_inner().unwrap().finish().unwrap();
        unpack(&path, &folder.path().join("whole")).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let place = bytes.windows(text.len()).position(|window| window == text).unwrap();
        bytes[place] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(unpack(&path, &folder.path().join("damaged")), Err(UnpackError::Read { .. })));
    }

    #[test]
    fn what_is_no_archive_is_said_to_be_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        // A test of its own thread: it may block.
        #[allow(clippy::disallowed_methods)]
        std::fs::write(&path, "this is no archive at all, although it has some length to it").unwrap();
        assert!(matches!(unpack(&path, &folder.path().join("t")), Err(UnpackError::Read { .. })));
    }
}
