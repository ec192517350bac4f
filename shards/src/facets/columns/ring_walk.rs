//! Finds points in growing rings around a place.

use std::ops::ControlFlow;

use roaring::RoaringBitmap;

use super::keys::{self, Place};
use super::reader::{Columns, decode_block};
use super::store::ColumnError;
use crate::facets::geo::cells::{Bounds, cover};
use crate::facets::geo::{GeoPoint, MERIDIAN_M, around};
use crate::partition::trees::GEO_CELLS;

/// Radius of the first ring. Empty rings take little time.
const FIRST_RADIUS_M: f64 = 1000.0;
/// Distances are exact to a few decimetres where they are greatest.
const MARGIN_M: f64 = 1.0;

/// A ring of documents around a place.
pub struct Ring {
    /// All documents with a point in it, and some others.
    pub docs: RoaringBitmap,
    /// Documents that are not among these are farther than that; nearer, where the farthest come first.
    pub bound_m: f64,
}

/// How far a walk has come.
pub enum RingStep {
    /// It took so much effort and is not at the end of a ring.
    Spent(usize),
    /// It is.
    Ring(Ring),
    /// The next ring would be most of the globe.
    End,
}

/// Rings around a place, each twice as wide as the one before; around the opposite place where the farthest come first.
pub struct RingWalk {
    centre: GeoPoint,
    descending: bool,
    radius_m: f64,
    /// Keys of the cells of a ring that are still to be read: from the first up to but without the second. The last comes first.
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    docs: RoaringBitmap,
    is_in_ring: bool,
}

impl RingWalk {
    /// Before the first ring.
    pub fn new(place: GeoPoint, descending: bool) -> Self {
        let GeoPoint { lat, lng } = place;
        let opposite = GeoPoint { lat: -lat, lng: if lng > 0.0 { lng - 180.0 } else { lng + 180.0 } };
        Self {
            centre: if descending { opposite } else { place },
            descending,
            radius_m: FIRST_RADIUS_M / 2.0,
            ranges: Vec::new(),
            docs: RoaringBitmap::new(),
            is_in_ring: false,
        }
    }

    /// Reads on for about `effort` entries.
    pub fn step(&mut self, columns: Columns<'_>, effort: usize) -> Result<RingStep, ColumnError> {
        if !self.is_in_ring {
            self.radius_m *= 2.0;
            let within = around(self.centre, self.radius_m);
            if within.contains(&Bounds::GLOBE) {
                return Ok(RingStep::End);
            }
            self.ranges = ranges(&within);
            self.is_in_ring = true;
        }
        let mut spent = 0;
        while spent < effort
            && let Some((from, before)) = self.ranges.last_mut()
        {
            let mut resume = None;
            spent += 1;
            let docs = &mut self.docs;
            let mut entry = |key: &[u8], bytes: &[u8]| {
                if key >= before.as_slice() {
                    return Ok(ControlFlow::Break(()));
                }
                let (base, block) = decode_block(GEO_CELLS, key, bytes)?;
                block.add_to(base, docs);
                spent += 1;
                if spent < effort {
                    return Ok(ControlFlow::Continue(()));
                }
                resume = Some([key, &[0]].concat());
                Ok(ControlFlow::Break(()))
            };
            columns.store.scan(GEO_CELLS, from, &mut entry)?;
            match resume {
                Some(next) => *from = next,
                None => drop(self.ranges.pop()),
            }
        }
        if !self.ranges.is_empty() {
            return Ok(RingStep::Spent(spent));
        }
        self.is_in_ring = false;
        let reach = self.radius_m - MARGIN_M;
        let bound_m = if self.descending { MERIDIAN_M - reach } else { reach };
        Ok(RingStep::Ring(Ring { docs: std::mem::take(&mut self.docs), bound_m }))
    }
}

/// The keys of the cells of some rectangles.
fn ranges(within: &[Bounds]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let place = Place::Point;
    let cover = cover(within);
    let wholes = cover.wholes.iter().map(|cell| {
        let after = cell.last_code().checked_add(1);
        let before = after.map_or_else(|| vec![place as u8 + 1], |code| keys::cell_start(place, code));
        (keys::cell(place, *cell), before)
    });
    let around = cover.around.iter().map(|cell| {
        let from = keys::cell(place, *cell);
        let mut before = from.clone();
        // Levels are small numbers.
        before.last_mut().into_iter().for_each(|level| *level += 1);
        (from, before)
    });
    wholes.chain(around).collect()
}
