//! Reads a dump's files on side threads.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::de::DeserializeOwned;
use shards::runtime::{Checkpoint, Runtime};

use super::import::ImportError;
use crate::archive::{CopyError, Shared, aside};

/// Bytes of lines of small records that are read together.
const GROUP_BYTES: usize = 1 << 20;

/// Whole lines of a file, some at a time.
pub struct Lines {
    runtime: Rc<dyn Runtime>,
    path: PathBuf,
    file: Shared<BufReader<File>>,
    number: u64,
}

impl Lines {
    /// Opens a file; `None` when it is not there.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub async fn open(runtime: &Rc<dyn Runtime>, path: PathBuf) -> Result<Option<Self>, ImportError> {
        let named = path.clone();
        let opened = aside(&**runtime, move || match File::open(&named) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CopyError::of(&named, "opening", &error)),
        });
        let file = opened.await??.map(|file| Shared::new(BufReader::with_capacity(256 << 10, file)));
        Ok(file.map(|file| Self { runtime: runtime.clone(), path, file, number: 0 }))
    }

    /// The next lines, about so many bytes and at least one line; empty at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn next(&mut self, bytes: usize) -> Result<Vec<u8>, ImportError> {
        let path = self.path.clone();
        let read = move |file: &mut BufReader<File>| {
            let mut lines = Vec::new();
            while lines.len() < bytes {
                let read =
                    file.read_until(b'\n', &mut lines).map_err(|error| CopyError::of(&path, "reading", &error))?;
                if read == 0 {
                    break;
                }
            }
            Ok(lines)
        };
        Ok(self.file.run(&*self.runtime, read).await?)
    }

    /// Some further values, one of each line; none at the end. Blank lines are passed over.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not such a value.
    pub async fn values<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, ImportError> {
        let mut values = Vec::new();
        let mut checkpoint = Checkpoint::default();
        while values.is_empty() {
            let lines = self.next(GROUP_BYTES).await?;
            if lines.is_empty() {
                break;
            }
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                checkpoint.tick(&*self.runtime).await;
                self.number += 1;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let value = serde_json::from_slice(line);
                values.push(
                    value
                        .map_err(|error| ImportError::corrupt(&self.path, format!("line {}: {error}", self.number)))?,
                );
            }
        }
        Ok(values)
    }
}

/// A whole file; `None` when it is not there.
///
/// # Errors
/// The file cannot be read.
pub async fn read_file(runtime: &dyn Runtime, path: &Path) -> Result<Option<Vec<u8>>, ImportError> {
    let named = path.to_owned();
    let read = aside(runtime, move || {
        let read = File::open(&named).and_then(|mut file| {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut file, &mut bytes)?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CopyError::of(&named, "reading", &error)),
        }
    });
    Ok(read.await??)
}

/// The value in a file; `None` when it is not there.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub async fn read_value<T: DeserializeOwned>(runtime: &dyn Runtime, path: &Path) -> Result<Option<T>, ImportError> {
    let Some(bytes) = read_file(runtime, path).await? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| ImportError::corrupt(path, error))
}

/// The folders in a folder, in order of their names.
///
/// # Errors
/// It cannot be listed.
pub async fn folders(runtime: &dyn Runtime, path: &Path) -> Result<Vec<PathBuf>, ImportError> {
    list(runtime, path, Path::is_dir).await?.ok_or_else(|| ImportError::corrupt(path, "it is missing"))
}

/// The files in a folder whose names end in `.json`, in order of their names; none when there is no such folder.
///
/// # Errors
/// It cannot be listed.
pub async fn json_files(runtime: &dyn Runtime, path: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let is_json = |path: &Path| path.extension().is_some_and(|end| end == "json") && path.is_file();
    Ok(list(runtime, path, is_json).await?.unwrap_or_default())
}

/// What is wanted of a folder, in order of names; `None` when it is not there.
async fn list(
    runtime: &dyn Runtime,
    path: &Path,
    is_wanted: impl Fn(&Path) -> bool + Send + 'static,
) -> Result<Option<Vec<PathBuf>>, ImportError> {
    let named = path.to_owned();
    let listed = aside(runtime, move || {
        let entries: io::Result<Vec<_>> = fs::read_dir(&named).and_then(Iterator::collect);
        let entries = match entries {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(|error| CopyError::of(&named, "listing", &error))?,
        };
        let mut paths: Vec<PathBuf> =
            entries.into_iter().map(|entry| entry.path()).filter(|path| is_wanted(path)).collect();
        paths.sort();
        Ok::<_, CopyError>(Some(paths))
    });
    Ok(listed.await??)
}
