//! Parts of a file, read while they are sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use shards::runtime::{self, Runtime};

use super::error::S3Error;
use super::parts::Part;
use crate::archive::aside;
use crate::outgoing::StreamedBody;

/// Bytes that are read at once, and in memory for each part on its way.
const PIECE_BYTES: u64 = 1 << 20;

/// Opens a file: it, and its length.
pub async fn open(runtime: &dyn Runtime, path: &Path) -> Result<(Arc<File>, u64), S3Error> {
    let path = path.to_owned();
    let opened = aside(runtime, move || {
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        opened.map_err(|error| S3Error::Io(format!("reading `{}`: {error}", path.display())))
    });
    let (len, file) = opened.await??;
    Ok((Arc::new(file), len))
}

/// A part of a file as the body of a request.
pub struct PartFile {
    runtime: Rc<dyn Runtime>,
    file: Arc<File>,
    part: Part,
    read: u64,
}

impl PartFile {
    pub fn new(runtime: Rc<dyn Runtime>, file: Arc<File>, part: Part) -> Self {
        Self { runtime, file, part, read: 0 }
    }
}

impl StreamedBody for PartFile {
    fn len(&self) -> u64 {
        self.part.len
    }

    fn next(&mut self) -> LocalBoxFuture<'_, io::Result<Vec<u8>>> {
        async move {
            let len = (self.part.len - self.read).min(PIECE_BYTES);
            let (file, offset) = (self.file.clone(), self.part.offset + self.read);
            let piece = runtime::aside(&*self.runtime, move || {
                let mut bytes = vec![0; len as usize];
                file.read_exact_at(&mut bytes, offset).map(|()| bytes)
            });
            let piece = piece.await.map_err(io::Error::other)??;
            self.read += len;
            Ok(piece)
        }
        .boxed_local()
    }
}
