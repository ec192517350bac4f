//! Where the points of documents are, kept in memory.
//!
//! Most documents have a cell of their own, so that an area of a million documents meets as many entries. Once areas have read many,
//! the cell of each document is kept, in the order of documents: to compare all of them with an area takes less time than to read the
//! entries of a hundredth.

use std::ops::ControlFlow;
use std::rc::Rc;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::epoch_cache::{Asked, Derived, EpochCache, Outcome};
use super::keys::{self, Place};
use super::reader::{Columns, decode_block};
use super::store::ColumnError;
use super::touched::{Touched, Touches};
use crate::facets::geo::GeoPoint;
use crate::facets::geo::areas::Area;
use crate::facets::geo::cells::{Bounds, Spot, cells_of};
use crate::ids::LocalDocId;
use crate::partition::trees::GEO_CELLS;
use crate::runtime::pause_at;

/// They are kept once at least a quarter as many entries were read as there are.
const ENTRIES_PER_READ: u64 = 4;
/// Bytes of the places of a partition at most.
const BYTES_MAX: usize = if cfg!(test) { 400 } else { 16 << 20 };
/// Documents of a word of bits, and of a block of these.
const WORD_BITS: usize = 64;
const BLOCK_WORDS: usize = 1024;

/// The cells of all points within the usual ranges, by document.
#[derive(Clone)]
pub(super) struct Places {
    spots: Vec<Spot>,
    /// A bit for each document that has one.
    known: Vec<u64>,
    /// Documents with other points.
    unusual: RoaringBitmap,
}

/// The places held by a partition at one epoch. What was read is counted in entries.
pub(super) type HeldPlaces = EpochCache<(), Places>;

impl Derived for Places {
    const READS_MIN: u64 = if cfg!(test) { 10 } else { 1 << 16 };
    const PART_COST: u64 = 4;

    fn bytes(&self) -> usize {
        self.spots.capacity() * size_of::<Spot>() + self.known.capacity() * size_of::<u64>()
    }

    fn parts(&self) -> u64 {
        self.spots.len() as u64
    }
}

impl HeldPlaces {
    /// The places, if they are held or worth keeping.
    pub async fn get(&self, columns: &Columns<'_>, pace: &dyn Pace) -> Result<Option<Rc<Places>>, ColumnError> {
        let mut builder = match self.ask((), usize::MAX, |reads| reads.are_enough()) {
            Asked::Built(places) => return Ok(Some(places)),
            Asked::Missing => return Ok(None),
            Asked::Build(builder) => builder,
        };
        let outcome = match builder.take_stale() {
            Some((mut places, stale)) => {
                places.renew(columns, &stale, pace).await?;
                if places.bytes() > BYTES_MAX { Outcome::TooLarge } else { Outcome::Built(places) }
            }
            None => Places::read(columns, builder.reads.count.saturating_mul(ENTRIES_PER_READ), pace).await?,
        };
        Ok(builder.end(outcome))
    }

    /// Those of the next epoch.
    pub fn after(&self, touched: &Touched) -> Self {
        self.renewed(|(), _| touched.documents(Touches::Point))
    }
}

impl Places {
    async fn read(columns: &Columns<'_>, entries_max: u64, pace: &dyn Pace) -> Result<Outcome<Self>, ColumnError> {
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
                too = Some(Outcome::TooSoon);
            } else if made.bytes() > BYTES_MAX {
                too = Some(Outcome::TooLarge);
            }
            Ok(if too.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        columns.scan((GEO_CELLS, false), &[Place::Point as u8], &mut entry, pace).await?;
        Ok(too.unwrap_or(Outcome::Built(made)))
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

    /// Reads the points of some documents again.
    async fn renew(
        &mut self,
        columns: &Columns<'_>,
        documents: &RoaringBitmap,
        pace: &dyn Pace,
    ) -> Result<(), ColumnError> {
        for document in documents {
            pause_at(0, 1, pace).await;
            self.unusual.remove(document);
            if let Some(known) = self.known.get_mut(document as usize / WORD_BITS) {
                *known &= !(1 << (document as usize % WORD_BITS));
            }
            let Some(GeoPoint { lat, lng }) = columns.point(LocalDocId(document))? else { continue };
            for cell in cells_of(&Bounds::of_point(lng, lat)) {
                if cell.holds_points() {
                    self.put(document, cell.spot());
                } else {
                    self.unusual.insert(document);
                }
            }
        }
        Ok(())
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
