//! What changes in the columns when the facts of a document do.

use storage_engine::TreeId;

use super::keys::{self, Flag, Place};
use super::values;
use crate::facets::extract::{Facts, FieldFacts};
use crate::facets::geo::GeoPoint;
use crate::facets::geo::cells::{Bounds, cells_of};
use crate::facets::geo::shapes::Shape;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::{FACET_FLAGS, FACET_NUMBERS, FACET_STRINGS, GEO_CELLS};

/// Hears of changes.
pub(super) trait Told {
    /// A document enters or leaves a block, whose key comes without its number.
    fn change(&mut self, tree: TreeId, key: &[u8], document: LocalDocId, enters: bool);
    /// The values of a document on a field, by their key; none where these are empty.
    fn values(&mut self, key: [u8; 6], bytes: Vec<u8>);
    /// Its point.
    fn point(&mut self, document: LocalDocId, point: Option<GeoPoint>);
    /// Its shape.
    fn shape(&mut self, document: LocalDocId, shape: Option<Box<[u8]>>);
}

/// Tells what changes when a document's facts were `old` and become `new`.
pub(super) fn tell(document: LocalDocId, old: Option<&Facts>, new: Option<&Facts>, told: &mut impl Told) {
    let nothing = Facts::default();
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    for (field, facts) in &new.fields {
        tell_field(*field, document, (old.fields.get(field), Some(facts)), told);
    }
    for (field, facts) in &old.fields {
        if !new.fields.contains_key(field) {
            tell_field(*field, document, (Some(facts), None), told);
        }
    }
    if old.point != new.point {
        let bounds = |facts: &Facts| facts.point.map(|point| Bounds::of_point(point.lng, point.lat));
        tell_place(Place::Point, document, (bounds(old), bounds(new)), told);
        told.point(document, new.point);
    }
    if old.shape != new.shape {
        let bounds = |facts: &Facts| facts.shape.as_ref().map(Shape::bounds);
        tell_place(Place::Shape, document, (bounds(old), bounds(new)), told);
        told.shape(document, new.shape.as_ref().map(|shape| Box::from(shape.bytes())));
    }
}

fn tell_place(place: Place, document: LocalDocId, (old, new): (Option<Bounds>, Option<Bounds>), told: &mut impl Told) {
    let (old, new) = (old.map(|old| cells_of(&old)), new.map(|new| cells_of(&new)));
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    for cell in old.iter().filter(|cell| !new.contains(cell)) {
        told.change(GEO_CELLS, &keys::cell(place, *cell), document, false);
    }
    for cell in new.iter().filter(|cell| !old.contains(cell)) {
        told.change(GEO_CELLS, &keys::cell(place, *cell), document, true);
    }
}

fn tell_field(
    field: FieldId,
    document: LocalDocId,
    (old, new): (Option<&FieldFacts>, Option<&FieldFacts>),
    told: &mut impl Told,
) {
    if old == new {
        return;
    }
    let has = |facts: Option<&FieldFacts>, flag| match (facts, flag) {
        (None, _) => false,
        (Some(_), Flag::Exists) => true,
        (Some(facts), Flag::Null) => facts.null,
        (Some(facts), Flag::Empty) => facts.empty,
    };
    for flag in [Flag::Exists, Flag::Null, Flag::Empty] {
        if has(old, flag) != has(new, flag) {
            told.change(FACET_FLAGS, &keys::flag(field, flag), document, has(new, flag));
        }
    }
    let nothing = FieldFacts::default();
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    for bits in old.numbers.symmetric_difference(&new.numbers) {
        told.change(FACET_NUMBERS, &keys::number(field, *bits), document, new.numbers.contains(bits));
    }
    for value in old.strings.keys().filter(|value| !new.strings.contains_key(*value)) {
        told.change(FACET_STRINGS, &keys::string(field, value), document, false);
    }
    for value in new.strings.keys().filter(|value| !old.strings.contains_key(*value)) {
        told.change(FACET_STRINGS, &keys::string(field, value), document, true);
    }
    if old.numbers != new.numbers || old.strings != new.strings {
        told.values(keys::values(field, document), values::encode(new));
    }
}

/// The changes of one document, put together on another thread: a document may have a million values.
pub struct FactChanges {
    document: LocalDocId,
    /// The keys of blocks, one behind the other, and of each its tree, where it ends, and whether the document enters.
    keys: Vec<u8>,
    blocks: Vec<(TreeId, u32, bool)>,
    /// How many of these were moved.
    moved: usize,
    values: Vec<([u8; 6], Vec<u8>)>,
    point: Option<Option<GeoPoint>>,
    shape: Option<Option<Box<[u8]>>>,
}

impl FactChanges {
    /// What changes when a document's facts were `old` and become `new`.
    pub fn between(document: LocalDocId, old: Option<&Facts>, new: Option<&Facts>) -> Self {
        let (keys, blocks, values) = (Vec::new(), Vec::new(), Vec::new());
        let mut changes = Self { document, keys, blocks, moved: 0, values, point: None, shape: None };
        tell(document, old, new, &mut changes);
        changes
    }

    /// Tells about so many of the changes that it did not tell before; true when these were all.
    pub(super) fn move_some(&mut self, told: &mut impl Told, most: usize) -> bool {
        let end = self.blocks.len().min(self.moved.saturating_add(most));
        let mut start = self.moved.checked_sub(1).map_or(0, |before| self.blocks[before].1 as usize);
        for (tree, key_end, enters) in &self.blocks[self.moved..end] {
            told.change(*tree, &self.keys[start..*key_end as usize], self.document, *enters);
            start = *key_end as usize;
        }
        self.moved = end;
        if end < self.blocks.len() {
            return false;
        }
        self.values.drain(..).for_each(|(key, bytes)| told.values(key, bytes));
        self.point.take().into_iter().for_each(|point| told.point(self.document, point));
        self.shape.take().into_iter().for_each(|shape| told.shape(self.document, shape));
        true
    }
}

impl Told for FactChanges {
    fn change(&mut self, tree: TreeId, key: &[u8], _: LocalDocId, enters: bool) {
        self.keys.extend_from_slice(key);
        // A document's keys are not much longer than its text, which has far less than 4 GiB.
        self.blocks.push((tree, self.keys.len() as u32, enters));
    }

    fn values(&mut self, key: [u8; 6], bytes: Vec<u8>) {
        self.values.push((key, bytes));
    }

    fn point(&mut self, _: LocalDocId, point: Option<GeoPoint>) {
        self.point = Some(point);
    }

    fn shape(&mut self, _: LocalDocId, shape: Option<Box<[u8]>>) {
        self.shape = Some(shape);
    }
}
