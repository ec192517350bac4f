//! Sort values, and those of distinct groups, out of the columns.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use crate::facets::FacetSource;
use crate::facets::columns::{
    BlockUnion, Columns, Cut, DocValues, FieldValue, PieceWalk, RingStep, RingWalk, ValueWalk,
};
use crate::facets::distinct::{GroupValue, add_members, group_values, groups_of};
use crate::facets::geo::GeoPoint;
use crate::facets::normalise::number_of_bits;
use crate::ids::{FieldId, LocalDocId};
use crate::rank::sort_source::SortSource;
use crate::rank::{SortBy, SortValue};

/// Reads what orders the documents of a partition.
pub struct ColumnSorter {
    source: Rc<dyn FacetSource>,
    distinct: Option<Arc<str>>,
    wanted: RefCell<Vec<WantedPieces>>,
}

/// A field of which pieces were asked for.
struct WantedPieces {
    field: FieldId,
    /// Documents to be read without them.
    unread: u64,
    /// Whether they were made, if they are worth it.
    is_tried: bool,
}

impl ColumnSorter {
    /// Reads from a partition. Documents are in distinct groups by their values of the field `distinct`.
    pub fn new(source: Rc<dyn FacetSource>, distinct: Option<Arc<str>>) -> Self {
        Self { source, distinct, wanted: RefCell::default() }
    }

    fn held_columns(&self) -> Columns<'_> {
        self.source.columns().held_by(self.source.resident_fields())
    }

    /// Makes the pieces of a field, to be held.
    async fn make_pieces(&self, field: FieldId, unread: u64, pace: &dyn Pace) -> Result<(), String> {
        let made = self.held_columns().piece_walk(field, false, unread, pace).await;
        made.map(drop).map_err(|error| error.to_string())
    }
}

impl SortSource for ColumnSorter {
    fn group_values(&self, docs: &[u32]) -> Result<Option<Vec<Vec<GroupValue>>>, String> {
        let Some(field) = &self.distinct else { return Ok(None) };
        let mut groups = vec![Vec::new(); docs.len()];
        let read = match self.source.fields().id(field) {
            Some(field) if docs.is_sorted() => {
                self.source.columns().values_of(field, docs, &mut |at, found| groups[at] = groups_of(found))
            }
            Some(_) => groups.iter_mut().zip(docs).try_for_each(|(groups, doc)| {
                *groups = group_values(&*self.source, field, LocalDocId(*doc))?;
                Ok(())
            }),
            None => Ok(()),
        };
        read.map(|()| Some(groups)).map_err(|error| error.to_string())
    }

    fn group_members(&self, values: &[GroupValue], most: u64) -> Result<RoaringBitmap, String> {
        let Some(field) = &self.distinct else { return Ok(RoaringBitmap::new()) };
        let mut members = BlockUnion::default();
        for value in values {
            if members.added() >= most {
                break;
            }
            add_members(&*self.source, field, value, &mut members).map_err(|error| error.to_string())?;
        }
        Ok(members.finish())
    }

    fn sort_values(&self, by: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String> {
        let mut values = vec![SortValue::Missing; docs.len()];
        let columns = self.source.columns();
        let read = match by {
            SortBy::Field { name, descending } => match self.source.fields().id(name) {
                Some(field) => {
                    columns.values_of(field, docs, &mut |at, found| values[at] = best_of(found, *descending))
                }
                None => Ok(()),
            },
            SortBy::Geo { lat, lng, .. } => {
                let place = GeoPoint { lat: *lat, lng: *lng };
                columns.points_of(docs, &mut |at, GeoPoint { lat, lng }| {
                    let distance = place.distance_m(GeoPoint { lat, lng });
                    values[at] = SortValue::Point { distance, lat, lng, own: distance };
                })
            }
        };
        read.map_err(|error| error.to_string())?;
        Ok(values)
    }

    fn walk(&self, by: &SortBy, from: Option<&Cut>) -> Option<ValueWalk> {
        let SortBy::Field { name, descending } = by else { return None };
        let field = self.source.fields().id(name)?;
        Some(match from {
            Some(cut) => ValueWalk::from(field, *descending, cut),
            None => ValueWalk::new(field, *descending),
        })
    }

    fn walk_on(
        &self,
        walk: &mut ValueWalk,
        effort: usize,
        value: &mut dyn FnMut(SortValue, RoaringBitmap),
    ) -> Result<Option<usize>, String> {
        let mut found = |found: FieldValue, docs: RoaringBitmap| match found {
            FieldValue::Number(bits) => value(SortValue::Number(number_of_bits(bits)), docs),
            FieldValue::String(text) => value(SortValue::Text(text), docs),
        };
        walk.step(self.source.columns(), effort, &mut found).map_err(|error| error.to_string())
    }

    fn pieces(&self, by: &SortBy) -> Option<PieceWalk> {
        let SortBy::Field { name, descending } = by else { return None };
        self.held_columns().held_pieces(self.source.fields().id(name)?, *descending)
    }

    fn want_pieces(&self, by: &SortBy, unread: u64) -> bool {
        let SortBy::Field { name, .. } = by else { return false };
        let Some(field) = self.source.fields().id(name) else { return false };
        let mut wanted = self.wanted.borrow_mut();
        let is_new = wanted.iter().all(|known| known.field != field);
        if is_new {
            wanted.push(WantedPieces { field, unread, is_tried: false });
        }
        is_new
    }

    fn prepare<'a>(&'a self, pace: &'a dyn Pace) -> Option<LocalBoxFuture<'a, Result<(), String>>> {
        let mut wanted = self.wanted.borrow_mut();
        let wanted = wanted.iter_mut().find(|wanted| !wanted.is_tried)?;
        wanted.is_tried = true;
        Some(self.make_pieces(wanted.field, wanted.unread, pace).boxed_local())
    }

    fn rings(&self, by: &SortBy) -> Option<RingWalk> {
        let SortBy::Geo { lat, lng, descending, .. } = by else { return None };
        Some(RingWalk::new(GeoPoint { lat: *lat, lng: *lng }, *descending))
    }

    fn rings_on(&self, rings: &mut RingWalk, effort: usize) -> Result<RingStep, String> {
        rings.step(self.source.columns(), effort).map_err(|error| error.to_string())
    }
}

/// The value that counts: the best for the direction; a number is better than any string.
fn best_of(values: DocValues<'_>, descending: bool) -> SortValue {
    let number = if descending { values.numbers().next_back() } else { values.numbers().next() };
    if let Some(bits) = number {
        return SortValue::Number(number_of_bits(bits));
    }
    let string = if descending { values.strings().last() } else { values.strings().next() };
    string.map_or(SortValue::Missing, |(value, _)| SortValue::Text(value.to_owned()))
}
