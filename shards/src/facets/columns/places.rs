//! Where the points of documents are, kept in memory as long as the epoch lasts.
//!
//! Most documents have a cell of their own, so that an area of a million documents meets as many entries. Once areas have read many,
//! the cell of each document is kept, in the order of documents: to compare all of them with an area takes less time than to read the
//! entries of a hundredth.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::keys::{self, Place};
use super::reader::{Columns, decode_block};
use super::store::ColumnError;
use crate::facets::geo::areas::Area;
use crate::facets::geo::cells::Spot;
use crate::partition::trees::GEO_CELLS;

/// Entries that areas read before places are first kept.
const READ_MIN: u64 = if cfg!(test) { 10 } else { 1 << 16 };
/// They are kept once at least a quarter as many entries were read as there are.
const ENTRIES_PER_READ: u64 = 4;
/// Bytes of the places of a partition at most.
const BYTES_MAX: usize = if cfg!(test) { 400 } else { 16 << 20 };
/// Documents of a word of bits, and of a block of these.
const WORD_BITS: usize = 64;
const BLOCK_WORDS: usize = 1024;

/// The cells of all points within the usual ranges, by document.
pub(super) struct Places {
    spots: Vec<Spot>,
    /// A bit for each document that has one.
    known: Vec<u64>,
    /// Documents with other points.
    unusual: RoaringBitmap,
}

/// The places held by a partition at one epoch.
#[derive(Default)]
pub(super) struct HeldPlaces(RefCell<State>);

enum State {
    /// So many entries were read; from so many on they are to be kept.
    Read(u64, u64),
    /// Somebody reads them.
    Left,
    /// There are too many.
    TooLarge,
    Held(Rc<Places>),
}

impl Default for State {
    fn default() -> Self {
        Self::Read(0, READ_MIN)
    }
}

/// Has others read them where their reading fails or is dropped half-way, as it is when its client has gone.
struct Unread<'h> {
    held: &'h HeldPlaces,
    read: (u64, u64),
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        let mut state = self.held.0.borrow_mut();
        if matches!(*state, State::Left) {
            *state = State::Read(self.read.0, self.read.1);
        }
    }
}

impl HeldPlaces {
    /// Bytes of them, about.
    pub fn bytes(&self) -> usize {
        match &*self.0.borrow() {
            State::Held(places) => places.bytes(),
            _ => 0,
        }
    }

    /// Forgets them; false when there are none.
    pub fn forget(&self) -> bool {
        matches!(self.0.replace(State::default()), State::Held(_))
    }

    /// Whether they would take too much memory.
    pub fn are_too_large(&self) -> bool {
        matches!(*self.0.borrow(), State::TooLarge)
    }

    /// The places, if they are held or worth keeping.
    pub async fn get(&self, columns: &Columns<'_>, pace: &dyn Pace) -> Result<Option<Rc<Places>>, ColumnError> {
        let read = {
            let mut state = self.0.borrow_mut();
            let read = match &*state {
                State::Held(places) => return Ok(Some(places.clone())),
                State::Read(read, from) if read >= from => (*read, *from),
                _ => return Ok(None),
            };
            *state = State::Left;
            read
        };
        let unread = Unread { held: self, read };
        let made = Places::read(columns, read.0.saturating_mul(ENTRIES_PER_READ), pace).await?;
        std::mem::forget(unread);
        let (state, places) = match made {
            Made::Places(places) => {
                let places = Rc::new(places);
                (State::Held(places.clone()), Some(places))
            }
            Made::TooManyEntries => (State::Read(read.0, read.1.max(read.0).saturating_mul(2)), None),
            Made::TooLarge => (State::TooLarge, None),
        };
        self.0.replace(state);
        Ok(places)
    }

    /// Tells that areas have read more entries.
    pub fn add_read(&self, entries: u64) {
        if let State::Read(read, _) = &mut *self.0.borrow_mut() {
            *read = read.saturating_add(entries);
        }
    }
}

enum Made {
    Places(Places),
    TooManyEntries,
    TooLarge,
}

impl Places {
    async fn read(columns: &Columns<'_>, entries_max: u64, pace: &dyn Pace) -> Result<Made, ColumnError> {
        let mut made = Self { spots: Vec::new(), known: Vec::new(), unusual: RoaringBitmap::new() };
        let (mut entries, mut too) = (0, None);
        let mut entry = |key: &[u8], value: &[u8]| {
            if key.first() != Some(&(Place::Point as u8)) {
                return Ok(ControlFlow::Break(()));
            }
            entries += 1;
            let cell = keys::cell_of(key).ok_or(ColumnError::Corrupt(GEO_CELLS))?;
            let (base, block) = decode_block(GEO_CELLS, key, value)?;
            if cell.holds_points() {
                let spot = cell.spot();
                block.each(&mut |number| made.put(base | u32::from(number), spot));
            } else {
                block.add_to(base, &mut made.unusual);
            }
            if entries > entries_max {
                too = Some(Made::TooManyEntries);
            } else if made.bytes() > BYTES_MAX {
                too = Some(Made::TooLarge);
            }
            Ok(if too.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        columns.scan((GEO_CELLS, false), &[Place::Point as u8], &mut entry, pace).await?;
        Ok(too.unwrap_or(Made::Places(made)))
    }

    fn put(&mut self, document: u32, spot: Spot) {
        let at = document as usize;
        if self.spots.len() <= at {
            self.spots.resize((at / WORD_BITS + 1) * WORD_BITS, Spot::default());
            self.known.resize(self.spots.len() / WORD_BITS, 0);
        }
        self.spots[at] = spot;
        self.known[at / WORD_BITS] |= 1 << (at % WORD_BITS);
    }

    fn bytes(&self) -> usize {
        self.spots.capacity() * size_of::<Spot>() + self.known.capacity() * size_of::<u64>()
    }

    /// Up to so many entries it takes less time to read them than to compare all cells.
    pub fn entries_instead(&self) -> u64 {
        (self.spots.len() / 256) as u64
    }

    /// The documents whose point is in an area, and those of which that has to be looked up.
    pub async fn within(&self, area: &dyn Area, pace: &dyn Pace) -> (RoaringBitmap, RoaringBitmap) {
        let (mut inside, mut unknown) = (RoaringBitmap::new(), self.unusual.clone());
        let (mut inside_bytes, mut unknown_bytes) = (Vec::new(), Vec::new());
        let blocks = self.spots.chunks(WORD_BITS * BLOCK_WORDS).zip(self.known.chunks(BLOCK_WORDS));
        for (block, (spots, known)) in blocks.enumerate() {
            inside_bytes.clear();
            unknown_bytes.clear();
            let mut any_unknown = 0;
            for (spots, known) in spots.chunks(WORD_BITS).zip(known) {
                let (inside, unknown) = area.lie(spots);
                any_unknown |= unknown & known;
                inside_bytes.extend_from_slice(&(inside & known).to_le_bytes());
                unknown_bytes.extend_from_slice(&(unknown & known).to_le_bytes());
            }
            let base = (block * WORD_BITS * BLOCK_WORDS) as u32;
            inside |= RoaringBitmap::from_lsb0_bytes(base, &inside_bytes);
            if any_unknown != 0 {
                unknown |= RoaringBitmap::from_lsb0_bytes(base, &unknown_bytes);
            }
            if pace.due() {
                pace.pause().await;
            }
        }
        (inside, unknown)
    }
}
