//! The map of a file that grows.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use memmap2::{Mmap, MmapOptions};

use super::{DiskError, View};

/// Address space mapped at least: it costs nothing until touched, and a file that grows need not be mapped again.
const MAP_BYTES_MIN: u64 = 64 << 20;

/// A shared read-only map, made when it is first asked for and made anew when the file has outgrown it.
#[derive(Default)]
pub(super) struct Mapping(RefCell<Option<Rc<Map>>>);

struct Map(Mmap);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Mapping {
    /// The bytes of `file`, at least `len`.
    ///
    /// # Errors
    /// The system does not map it.
    ///
    /// # Safety
    /// No other process may write to the file, it may not be cut while it is open, and only pages that nobody writes may be
    /// looked at (the page store reads only those below its page count that no write touches while a snapshot may read them).
    pub(super) unsafe fn view(&self, file: &File, len: u64, path: &Path) -> Result<View, DiskError> {
        let mut map = self.0.borrow_mut();
        if let Some(known) = map.as_ref().filter(|known| known.0.len() as u64 >= len) {
            return Ok(known.clone());
        }
        let bytes = (len * 2).max(MAP_BYTES_MIN) as usize;
        // SAFETY: as the caller grants.
        let new = unsafe { MmapOptions::new().len(bytes).map(file) };
        let new = Rc::new(Map(new.map_err(|error| DiskError::of(path, "map", &error))?));
        // A failure only costs read-ahead that is of no use: pages are read in no order.
        let _ = new.0.advise(memmap2::Advice::Random);
        *map = Some(new.clone());
        Ok(new)
    }
}
