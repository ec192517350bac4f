//! Effects of a settings change on the columns.

use std::ops::ControlFlow;

use super::keys::{self, Place};
use super::store::{ColumnError, ColumnWrite};
use crate::facets::geo;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::network_shards::SHARD_FIELD;
use crate::partition::trees::{
    FACET_FLAGS, FACET_NUMBERS, FACET_STRINGS, FACET_VALUES, GEO_CELLS, GEO_POINTS, GEO_SHAPES,
};
use crate::settings::{Settings, covers_subtree};

/// What must be done when an index's settings change: first drop, then extract from every document with
/// `Extractor::only(new_settings, plan.add)` and give it to a `ColumnWriter` as a new document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReindexPlan {
    /// Fields whose facts are no longer kept, or are other ones.
    pub drop: Vec<FieldId>,
    /// Fields whose facts must be read from every document.
    pub add: Vec<FieldId>,
    /// Points, shapes are no longer kept.
    pub drop_places: Vec<Place>,
    /// Points, shapes must be read from every document.
    pub add_places: bool,
}

impl ReindexPlan {
    /// The plan from one state of the settings to the next.
    pub fn between(fields: &FieldsMap, old: &Settings, new: &Settings) -> Self {
        let points = (geo::takes_points(old), geo::takes_points(new));
        let shapes = (geo::takes_shapes(old), geo::takes_shapes(new));
        let mut plan = Self { add_places: [points, shapes].contains(&(false, true)), ..Self::default() };
        for (place, takes) in [(Place::Point, points), (Place::Shape, shapes)] {
            if takes == (true, false) {
                plan.drop_places.push(place);
            }
        }
        for (field, name) in fields.iter() {
            // Whether `_geo` is a place or an ordinary object decides what its facts are.
            let changes_meaning = (points.0 != points.1 && covers_subtree("_geo", name))
                || (shapes.0 != shapes.1 && covers_subtree("_geojson", name));
            let (was, is) = (old.faceted(name), new.faceted(name));
            if was && (!is || changes_meaning) {
                plan.drop.push(field);
            }
            if is && (!was || changes_meaning) {
                plan.add.push(field);
            }
        }
        if old.network_shards != new.network_shards {
            plan.drop.extend((!old.network_shards.is_empty()).then_some(SHARD_FIELD));
            plan.add.extend((!new.network_shards.is_empty()).then_some(SHARD_FIELD));
        }
        plan
    }

    /// Whether any document must be read.
    pub fn reads_documents(&self) -> bool {
        !self.add.is_empty() || self.add_places
    }
}

/// Deletes the facts of a field, at most about `entries_max` entries; true when none is left.
pub fn drop_field(store: &mut dyn ColumnWrite, field: FieldId, entries_max: usize) -> Result<bool, ColumnError> {
    for tree in [FACET_NUMBERS, FACET_STRINGS, FACET_FLAGS, FACET_VALUES] {
        if !drop_starting(store, tree, &keys::field(field), entries_max)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes all points or shapes, at most about `entries_max` entries; true when none is left.
pub fn drop_places(store: &mut dyn ColumnWrite, place: Place, entries_max: usize) -> Result<bool, ColumnError> {
    let tree = match place {
        Place::Point => GEO_POINTS,
        Place::Shape => GEO_SHAPES,
    };
    Ok(drop_starting(store, tree, &[], entries_max)? && drop_starting(store, GEO_CELLS, &[place as u8], entries_max)?)
}

fn drop_starting(
    store: &mut dyn ColumnWrite,
    tree: storage_engine::TreeId,
    prefix: &[u8],
    entries_max: usize,
) -> Result<bool, ColumnError> {
    let mut doomed: Vec<Vec<u8>> = Vec::new();
    let mut is_last = true;
    // A store's keys have at least one byte, and so has the key that a scan starts from.
    let from = if prefix.is_empty() { &[0] } else { prefix };
    store.scan(tree, from, &mut |key, _| {
        if !key.starts_with(prefix) {
            return Ok(ControlFlow::Break(()));
        }
        if doomed.len() >= entries_max {
            is_last = false;
            return Ok(ControlFlow::Break(()));
        }
        doomed.push(key.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    for key in &doomed {
        store.delete(tree, key)?;
    }
    Ok(is_last)
}
