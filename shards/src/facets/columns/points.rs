//! Finds the documents whose points are in an area.

use std::ops::ControlFlow;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::block_union::BlockUnion;
use super::keys::{self, Place};
use super::places::Places;
use super::reader::{Columns, ENTRIES_PER_LOOK, decode_block, decode_point};
use super::store::ColumnError;
use crate::facets::geo::GeoPoint;
use crate::facets::geo::areas::{Area, Lies};
use crate::facets::geo::cells::{COVER_CELLS, Cell, cover_with};
use crate::ids::LocalDocId;
use crate::partition::trees::{GEO_CELLS, GEO_POINTS};

/// Fewer points than this are looked up one by one.
const SCATTERED_MAX: u64 = 20_000;

/// An area is covered with about this many cells where places are not held: many of them, since those at its edges have entries
/// that lie outside.
const AREA_CELLS: usize = 256;

/// Documents in an area, and those of which that has to be looked up.
type Found = (RoaringBitmap, RoaringBitmap);

impl Columns<'_> {
    /// The documents whose point is in an area.
    pub async fn with_point(&self, area: &dyn Area, pace: &dyn Pace) -> Result<RoaringBitmap, ColumnError> {
        let held = self.resident.map(|resident| &resident.places);
        let places = match held {
            Some(held) => held.get(self, pace).await?,
            None => None,
        };
        let (inside, unknown) = match &places {
            Some(places) => self.by_places(area, places, pace).await?,
            None => {
                // Where places are not kept, wholly covered cells are taken in larger pieces.
                let in_pieces = held.is_some_and(|held| held.is_too_large(&()));
                let mut read = 0;
                let found = self.by_entries(area, (AREA_CELLS, in_pieces), (&mut read, u64::MAX), pace).await?;
                held.into_iter().for_each(|held| held.add_reads((), read));
                found.unwrap_or_default()
            }
        };
        Ok(self.of_points(unknown, &|point| area.holds(point), pace).await? | inside)
    }

    /// By the places of all documents, unless few entries have to be read.
    async fn by_places(&self, area: &dyn Area, places: &Places, pace: &dyn Pace) -> Result<Found, ColumnError> {
        let most = places.entries_instead();
        match self.by_entries(area, (COVER_CELLS, false), (&mut 0, most), pace).await? {
            Some(found) => Ok(found),
            None => Ok(places.within(area, pace).await),
        }
    }

    /// By the entries of the cells that cover the area; `None` when these are more than so many.
    async fn by_entries(
        &self,
        area: &dyn Area,
        (cells, in_pieces): (usize, bool),
        (read, most): (&mut u64, u64),
        pace: &dyn Pace,
    ) -> Result<Option<Found>, ColumnError> {
        let place = Place::Point;
        let (mut inside, mut unknown) = (BlockUnion::default(), BlockUnion::default());
        let mut whole = RoaringBitmap::new();
        let cover = cover_with(area.rectangles(), cells);
        for cell in cover.wholes {
            let after = cell.last_code().checked_add(1);
            let before = after.map_or_else(|| vec![place as u8 + 1], |code| keys::cell_start(place, code));
            if in_pieces && area.holds_cell(cell) {
                // The finest parts only: those out of the usual ranges are under the whole globe itself.
                let from = keys::cell(place, cell.below_whole());
                whole |= self.between(GEO_CELLS, &from, Some(&before), pace).await?;
                continue;
            }
            let mut entry = |key: &[u8], value: &[u8]| {
                if key >= before.as_slice() || *read >= most {
                    return Ok(ControlFlow::Break(()));
                }
                *read += 1;
                let cell = keys::cell_of(key).ok_or(ColumnError::Corrupt(GEO_CELLS))?;
                let lies = if cell.holds_points() { area.lies(cell.spot()) } else { Lies::Unknown };
                let set = match lies {
                    Lies::Inside => &mut inside,
                    Lies::Unknown => &mut unknown,
                    Lies::Outside => return Ok(ControlFlow::Continue(())),
                };
                let (base, block) = decode_block(GEO_CELLS, key, value)?;
                set.add(base, block);
                Ok(ControlFlow::Continue(()))
            };
            self.scan((GEO_CELLS, false), &keys::cell(place, cell), &mut entry, pace).await?;
            if *read >= most {
                return Ok(None);
            }
        }
        let mut unknown = unknown.finish();
        // Those out of the usual ranges are under the whole globe; no points are under other cells than that and the finest.
        unknown |= self.of_value(GEO_CELLS, &keys::cell(place, Cell::WHOLE))?;
        whole |= inside.finish();
        Ok(Some((whole, unknown)))
    }

    /// Those of some documents with points whose point satisfies `belongs`.
    async fn of_points(
        &self,
        candidates: RoaringBitmap,
        belongs: &dyn Fn(GeoPoint) -> bool,
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        let mut found = RoaringBitmap::new();
        if candidates.len() < SCATTERED_MAX {
            for (number, document) in candidates.iter().enumerate() {
                if number % ENTRIES_PER_LOOK == 0 && pace.due() {
                    pace.pause().await;
                }
                let point = self.point(LocalDocId(document))?.ok_or(ColumnError::Corrupt(GEO_POINTS))?;
                if belongs(point) {
                    found.insert(document);
                }
            }
            return Ok(found);
        }
        // So many are read faster one after the other than looked up.
        let mut entry = |key: &[u8], value: &[u8]| {
            let point = decode_point(value).ok_or(ColumnError::Corrupt(GEO_POINTS))?;
            let document = keys::document_of(key).ok_or(ColumnError::Corrupt(GEO_POINTS))?.0;
            if belongs(point) && candidates.contains(document) {
                found.insert(document);
            }
            Ok(ControlFlow::Continue(()))
        };
        self.scan((GEO_POINTS, false), &[0], &mut entry, pace).await?;
        Ok(found)
    }
}
