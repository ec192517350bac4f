//! The map of a file that grows.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use blocking::unblock;
use memmap2::{Mmap, MmapOptions, RemapOptions};

use super::{DiskError, View};

/// Address space mapped at least: it costs nothing until touched, and a file that grows need not be mapped again.
const MAP_BYTES_MIN: u64 = 64 << 20;
/// Maps of more are taken down by a helper thread, in pieces of so much: it takes the kernel 90 microseconds for each mebibyte that
/// was looked at.
const PIECE_BYTES: usize = 1 << 20;

/// A shared read-only map, made when it is first asked for and made anew when the file has outgrown it.
#[derive(Default)]
pub(super) struct Mapping(RefCell<Option<Rc<Map>>>);

struct Map {
    /// There until it is dropped.
    map: Option<Mmap>,
    /// Bytes that the file had when it was last asked for: nobody looks behind them.
    in_use: Cell<usize>,
}

impl Map {
    fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Drop for Map {
    /// The last reader drops it, on its core, which must not wait for the kernel. Where no helper thread can be had, the map stays
    /// until one comes; the end of the process waits for none.
    fn drop(&mut self) {
        let Some(map) = self.map.take() else { return };
        let in_use = self.in_use.get();
        if in_use <= PIECE_BYTES {
            unmap(map, in_use);
        } else {
            unblock(move || unmap(map, in_use)).detach();
        }
    }
}

/// Takes a map down from its end, so that others of the process who map or allocate memory wait for a piece and not for all.
fn unmap(mut map: Mmap, in_use: usize) {
    for start in (1..in_use.div_ceil(PIECE_BYTES)).rev().map(|piece| piece * PIECE_BYTES) {
        // SAFETY: it gets shorter, and nobody else has it.
        if unsafe { map.remap(start, RemapOptions::new()) }.is_err() {
            break;
        }
    }
    drop(map);
    #[cfg(test)]
    tests::UNMAPPED.with(|count| count.set(count.get() + 1));
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
        if let Some(known) = map.as_ref().filter(|known| known.bytes().len() as u64 >= len) {
            known.in_use.set(known.in_use.get().max(len as usize));
            return Ok(known.clone());
        }
        let bytes = (len * 2).max(MAP_BYTES_MIN) as usize;
        // SAFETY: as the caller grants.
        let new = unsafe { MmapOptions::new().len(bytes).map(file) };
        let new = new.map_err(|error| DiskError::of(path, "map", &error))?;
        // A failure only costs read-ahead that is of no use: pages are read in no order.
        let _ = new.advise(memmap2::Advice::Random);
        let new = Rc::new(Map { map: Some(new), in_use: Cell::new(len as usize) });
        *map = Some(new.clone());
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    thread_local! {
        /// Maps that this thread took down.
        pub(super) static UNMAPPED: Cell<usize> = const { Cell::new(0) };
    }

    fn is_mapped(path: &Path) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.ends_with(&*path.to_string_lossy()))
    }

    /// Taking down the map of a large file once held its core for tens of milliseconds, whenever the last search of an old state
    /// ended.
    #[test]
    fn only_small_maps_are_taken_down_by_their_core() {
        for (bytes, own) in [(PIECE_BYTES, 1), (3 * PIECE_BYTES + 5000, 0)] {
            let mut named = tempfile::NamedTempFile::new().unwrap();
            named.write_all(&vec![7; bytes]).unwrap();
            let mapping = Mapping::default();
            // SAFETY: nobody writes to the file any more.
            let view = unsafe { mapping.view(named.as_file(), bytes as u64, named.path()) }.unwrap();
            assert!((*view).as_ref()[..bytes].iter().all(|byte| *byte == 7));
            drop(mapping);
            assert!(is_mapped(named.path()), "a reader has it");
            UNMAPPED.set(0);
            drop(view);
            assert_eq!(UNMAPPED.get(), own, "{bytes} bytes");
            // A minute at most, on a machine that does something else.
            let gone = (0..60_000).any(|_| {
                let gone = !is_mapped(named.path());
                if !gone {
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                gone
            });
            assert!(gone, "{bytes} bytes stay mapped");
        }
    }
}
