//! Reads the columns of one snapshot.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use roaring::RoaringBitmap;
use storage_engine::TreeId;
use storage_engine::vector::Pace;

use super::block::Block;
use super::block_union::BlockUnion;
use super::cuts::Cut;
use super::keys::{self, Flag, Place, Stretch};
use super::resident::ResidentFields;
use super::store::{ColumnError, ColumnRead, Entry};
use super::value_walk::FieldValue;
use super::values::DocValues;
use crate::facets::geo::GeoPoint;
use crate::facets::geo::cells::{Bounds, cover};
use crate::facets::geo::shapes::Region;
use crate::facets::normalise::STRING_BYTES_MAX;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::{
    FACET_FLAGS, FACET_NUMBERS, FACET_STRINGS, FACET_VALUES, GEO_CELLS, GEO_POINTS, GEO_SHAPES,
};

/// Entries read between two looks at whether others wait; points and shapes are looked at as often.
pub(super) const ENTRIES_PER_LOOK: usize = 16;

/// Called with each value of a walk and its documents; `Break` ends the walk.
pub type Visit<'v, V> = dyn FnMut(&V, RoaringBitmap) -> Result<ControlFlow<()>, ColumnError> + 'v;

/// The columns of one partition in one snapshot.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    pub(super) store: &'a dyn ColumnRead,
    pub(super) resident: Option<&'a ResidentFields>,
}

impl<'a> Columns<'a> {
    /// The columns kept in this store.
    pub fn new(store: &'a dyn ColumnRead) -> Self {
        Self { store, resident: None }
    }

    /// The same, with what is held in memory of them at this epoch.
    pub fn held_by(self, resident: Option<&'a ResidentFields>) -> Self {
        Self { resident, ..self }
    }

    /// The documents with this number, given as its bits.
    pub fn with_number(&self, field: FieldId, bits: u64) -> Result<RoaringBitmap, ColumnError> {
        self.of_value(FACET_NUMBERS, &keys::number(field, bits))
    }

    /// The documents with a number in this range of bits.
    pub async fn with_number_in(
        &self,
        field: FieldId,
        from: Bound<u64>,
        to: Bound<u64>,
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        let from = match from {
            Bound::Included(bits) => keys::number(field, bits),
            Bound::Excluded(bits) => keys::number(field, bits.saturating_add(1)),
            Bound::Unbounded => keys::field(field),
        };
        let before = match to {
            Bound::Included(bits) => Some(keys::number(field, bits.saturating_add(1))),
            Bound::Excluded(bits) => Some(keys::number(field, bits)),
            Bound::Unbounded => keys::after_field(field),
        };
        self.between(FACET_NUMBERS, &from, before.as_deref(), pace).await
    }

    /// The documents with this normalised string.
    pub fn with_string(&self, field: FieldId, value: &str) -> Result<RoaringBitmap, ColumnError> {
        let mut union = BlockUnion::default();
        self.add_with_string(field, value, &mut union)?;
        Ok(union.finish())
    }

    /// Adds the documents with this number, as bits.
    pub fn add_with_number(&self, field: FieldId, bits: u64, union: &mut BlockUnion) -> Result<(), ColumnError> {
        self.add_value(FACET_NUMBERS, &keys::number(field, bits), union)
    }

    /// Adds the documents with this normalised string.
    pub fn add_with_string(&self, field: FieldId, value: &str, union: &mut BlockUnion) -> Result<(), ColumnError> {
        match value.len() > STRING_BYTES_MAX {
            true => Ok(()),
            false => self.add_value(FACET_STRINGS, &keys::string(field, value), union),
        }
    }

    /// The documents with a string in this range of bytes.
    pub async fn with_string_in(
        &self,
        field: FieldId,
        from: Bound<&str>,
        to: Bound<&str>,
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        // The keys of a value continue with 0, those of longer ones with at least 1.
        let beyond = |value: &str| [keys::string_prefix(field, value.as_bytes()), vec![1]].concat();
        let from = match from {
            Bound::Included(value) => keys::string_prefix(field, value.as_bytes()),
            Bound::Excluded(value) => beyond(value),
            Bound::Unbounded => keys::field(field),
        };
        let before = match to {
            Bound::Included(value) => Some(beyond(value)),
            Bound::Excluded(value) => Some(keys::string_prefix(field, value.as_bytes())),
            Bound::Unbounded => keys::after_field(field),
        };
        self.between(FACET_STRINGS, &from, before.as_deref(), pace).await
    }

    /// The documents with a string that begins so.
    pub async fn with_string_starting(
        &self,
        field: FieldId,
        prefix: &str,
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        self.starting(FACET_STRINGS, &keys::string_prefix(field, prefix.as_bytes()), pace).await
    }

    /// The documents with a string that contains this one. Looks at every value of the field.
    pub async fn with_string_containing(
        &self,
        field: FieldId,
        part: &str,
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        let finder = memchr::memmem::Finder::new(part);
        let before = keys::after_field(field);
        let accepts = |key: &[u8]| keys::string_of(key).is_some_and(|value| finder.find(&value).is_some());
        self.accepted(FACET_STRINGS, (&keys::field(field), before.as_deref()), accepts, pace).await
    }

    /// The documents with a string that contains one of these. Looks at every value of the field, once.
    pub async fn with_string_containing_any(
        &self,
        field: FieldId,
        parts: &[Cow<'_, str>],
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        let parts = parts.iter().map(|part| part.as_bytes());
        // Fails only where the parts are larger than any request.
        let finder = AhoCorasick::builder().kind(Some(AhoCorasickKind::NoncontiguousNFA)).build(parts);
        let finder = finder.map_err(|_| ColumnError::Corrupt(FACET_STRINGS))?;
        let before = keys::after_field(field);
        let accepts = |key: &[u8]| keys::string_of(key).is_some_and(|value| finder.is_match(&value));
        self.accepted(FACET_STRINGS, (&keys::field(field), before.as_deref()), accepts, pace).await
    }

    /// The documents whose field is flagged so.
    pub fn flagged(&self, field: FieldId, flag: Flag) -> Result<RoaringBitmap, ColumnError> {
        self.of_value(FACET_FLAGS, &keys::flag(field, flag))
    }

    /// Whether a document's field is flagged so.
    pub fn is_flagged(&self, field: FieldId, flag: Flag, document: LocalDocId) -> Result<bool, ColumnError> {
        let key = [keys::flag(field, flag), ((document.0 >> 16) as u16).to_be_bytes().to_vec()].concat();
        let Some(bytes) = self.store.get(FACET_FLAGS, &key)? else { return Ok(false) };
        Ok(Block::decode(bytes).ok_or(ColumnError::Corrupt(FACET_FLAGS))?.contains(document.0 as u16))
    }

    /// A document's values on a field; `None` when it has no number and no string there.
    pub fn values(&self, field: FieldId, document: LocalDocId) -> Result<Option<DocValues<'a>>, ColumnError> {
        let bytes = self.store.get(FACET_VALUES, &keys::values(field, document))?;
        bytes.map(|bytes| DocValues::decode(bytes).ok_or(ColumnError::Corrupt(FACET_VALUES))).transpose()
    }

    /// A document's point.
    pub fn point(&self, document: LocalDocId) -> Result<Option<GeoPoint>, ColumnError> {
        let bytes = self.store.get(GEO_POINTS, &document.0.to_be_bytes())?;
        bytes.map(|bytes| decode_point(bytes).ok_or(ColumnError::Corrupt(GEO_POINTS))).transpose()
    }

    /// The documents whose shape meets the region.
    pub async fn with_shape(&self, region: &Region, pace: &dyn Pace) -> Result<RoaringBitmap, ColumnError> {
        let mut found = RoaringBitmap::new();
        for document in &self.near(Place::Shape, region.bounds(), pace).await? {
            if pace.due() {
                pace.pause().await;
            }
            let shape = self.store.get(GEO_SHAPES, &document.to_be_bytes())?;
            let shape = shape.ok_or(ColumnError::Corrupt(GEO_SHAPES))?;
            if region.meets(shape, pace).await.map_err(|_| ColumnError::Corrupt(GEO_SHAPES))? {
                found.insert(document);
            }
        }
        Ok(found)
    }

    /// The documents under the cells of these rectangles: all that meet them, and some that lie near.
    async fn near(&self, place: Place, rectangles: &[Bounds], pace: &dyn Pace) -> Result<RoaringBitmap, ColumnError> {
        let cover = cover(rectangles);
        let mut near = RoaringBitmap::new();
        for cell in cover.wholes {
            let after = cell.last_code().checked_add(1);
            let before = after.map_or_else(|| vec![place as u8 + 1], |code| keys::cell_start(place, code));
            near |= self.between(GEO_CELLS, &keys::cell(place, cell), Some(&before), pace).await?;
        }
        for cell in cover.around {
            near |= self.of_value(GEO_CELLS, &keys::cell(place, cell))?;
        }
        Ok(near)
    }

    /// Visits the numbers of a field, as bits, in order; from a cut on if one is given.
    pub async fn walk_numbers(
        &self,
        (field, descending): (FieldId, bool),
        from: Option<&Cut>,
        visit: &mut Visit<'_, u64>,
        pace: &dyn Pace,
    ) -> Result<(), ColumnError> {
        let mut visit = |key: &[u8], documents: RoaringBitmap| {
            let bits = key.get(2..).and_then(|rest| rest.first_chunk()).ok_or(ColumnError::Corrupt(FACET_NUMBERS))?;
            visit(&u64::from_be_bytes(*bits), documents)
        };
        let from = match from.map(|cut| &cut.0) {
            None => None,
            Some(Some(FieldValue::Number(bits))) => Some(keys::number(field, *bits)),
            Some(_) => return Ok(()),
        };
        self.walk((FACET_NUMBERS, descending), (field, from), &mut visit, pace).await
    }

    /// Visits the normalised strings of a field in order, in the same way.
    pub async fn walk_strings(
        &self,
        (field, descending): (FieldId, bool),
        from: Option<&Cut>,
        visit: &mut Visit<'_, str>,
        pace: &dyn Pace,
    ) -> Result<(), ColumnError> {
        let mut visit = |key: &[u8], documents: RoaringBitmap| {
            let value = keys::string_of(key).and_then(|value| String::from_utf8(value).ok());
            visit(&value.ok_or(ColumnError::Corrupt(FACET_STRINGS))?, documents)
        };
        let from = match from.map(|cut| &cut.0) {
            None | Some(Some(FieldValue::Number(_))) => None,
            Some(Some(FieldValue::String(value))) => Some(keys::string(field, value)),
            Some(None) => return Ok(()),
        };
        self.walk((FACET_STRINGS, descending), (field, from), &mut visit, pace).await
    }

    /// Visits the values of a field, each with the key of one of its blocks and the documents of all of them.
    async fn walk(
        &self,
        (tree, descending): (TreeId, bool),
        (field, from): (FieldId, Option<Vec<u8>>),
        visit: &mut Visit<'_, [u8]>,
        pace: &dyn Pace,
    ) -> Result<(), ColumnError> {
        let prefix = keys::field(field);
        let mut current: Vec<u8> = Vec::new();
        let mut documents = RoaringBitmap::new();
        let mut is_over = false;
        let mut entry = |key: &[u8], value: &[u8]| {
            if !key.starts_with(&prefix) || key.len() < prefix.len() + 2 {
                return Ok(ControlFlow::Break(()));
            }
            let same = keys::are_of_one_value(&current, key);
            if !same && !current.is_empty() {
                let flow = visit(&current, std::mem::take(&mut documents))?;
                if flow.is_break() {
                    is_over = true;
                    return Ok(flow);
                }
            }
            if !same {
                current.clear();
                current.extend_from_slice(key);
            }
            let (base, block) = decode_block(tree, key, value)?;
            block.add_to(base, &mut documents);
            Ok(ControlFlow::Continue(()))
        };
        let after = || keys::after_field(field).unwrap_or_else(|| vec![u8::MAX; 1024]);
        let from = from.unwrap_or_else(|| if descending { after() } else { prefix.clone() });
        self.scan((tree, descending), &from, &mut entry, pace).await?;
        if !is_over && !current.is_empty() {
            // The last value has no successor that would end it; whether to go on no longer matters.
            let _ = visit(&current, documents)?;
        }
        Ok(())
    }

    /// Visits entries upwards from the first key that is at least `from`, or downwards from the last that is below it, and
    /// lets others have their turn in between.
    pub(super) async fn scan(
        &self,
        (tree, descending): (TreeId, bool),
        from: &[u8],
        entry: &mut Entry<'_>,
        pace: &dyn Pace,
    ) -> Result<(), ColumnError> {
        let mut from = from.to_vec();
        loop {
            let (mut seen, mut resume) = (0, None);
            let mut piece = |key: &[u8], value: &[u8]| {
                if entry(key, value)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                seen += 1;
                if seen % ENTRIES_PER_LOOK == 0 && pace.due() {
                    // No key lies between a key and the same followed by 0.
                    resume = Some(if descending { key.to_vec() } else { [key, &[0]].concat() });
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            };
            match descending {
                true => self.store.scan_back(tree, &from, &mut piece)?,
                false => self.store.scan(tree, &from, &mut piece)?,
            }
            let Some(next) = resume else { return Ok(()) };
            from = next;
            pace.pause().await;
        }
    }

    /// The documents of the blocks of one value, or of whatever else has few of them: those whose key begins so.
    pub(super) fn of_value(&self, tree: TreeId, prefix: &[u8]) -> Result<RoaringBitmap, ColumnError> {
        let mut union = BlockUnion::default();
        self.add_value(tree, prefix, &mut union)?;
        Ok(union.finish())
    }

    fn add_value(&self, tree: TreeId, prefix: &[u8], union: &mut BlockUnion) -> Result<(), ColumnError> {
        self.store.scan(tree, prefix, &mut |key, value| add_block(tree, prefix, key, value, union))
    }

    /// The documents of all blocks whose key begins so.
    async fn starting(&self, tree: TreeId, prefix: &[u8], pace: &dyn Pace) -> Result<RoaringBitmap, ColumnError> {
        let mut union = BlockUnion::default();
        let mut entry = |key: &[u8], value: &[u8]| add_block(tree, prefix, key, value, &mut union);
        self.scan((tree, false), prefix, &mut entry, pace).await?;
        Ok(union.finish())
    }

    /// The documents of the blocks from `from` on, up to but without `before`: of one field, or of what lies in cells of one kind.
    pub(super) async fn between(
        &self,
        tree: TreeId,
        from: &[u8],
        before: Option<&[u8]>,
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        let stretch = Stretch::around(tree, from);
        if let Some(coarse) = self.resident.map(|resident| &resident.coarse)
            && let Some(pieces) = coarse.get(self, stretch, pace).await?
            && let Some((mut documents, first, rest)) = pieces.within(stretch.start(), (from, before), pace).await
        {
            documents |= self.accepted(tree, (from, Some(first)), |_| true, pace).await?;
            if let Some(rest) = rest {
                documents |= self.accepted(tree, (rest, before), |_| true, pace).await?;
            }
            return Ok(documents);
        }
        let mut read = 0;
        let count = |_: &[u8]| {
            read += 1;
            true
        };
        let documents = self.accepted(tree, (from, before), count, pace).await?;
        if let Some(resident) = self.resident {
            resident.coarse.add_reads(stretch, read);
        }
        Ok(documents)
    }

    /// The documents of the blocks from one key on, up to but without another, if their keys are accepted.
    async fn accepted(
        &self,
        tree: TreeId,
        (from, before): (&[u8], Option<&[u8]>),
        mut accepts: impl FnMut(&[u8]) -> bool,
        pace: &dyn Pace,
    ) -> Result<RoaringBitmap, ColumnError> {
        let mut union = BlockUnion::default();
        let mut entry = |key: &[u8], value: &[u8]| {
            if before.is_some_and(|before| key >= before) {
                return Ok(ControlFlow::Break(()));
            }
            if accepts(key) {
                let (base, block) = decode_block(tree, key, value)?;
                union.add(base, block);
            }
            Ok(ControlFlow::Continue(()))
        };
        self.scan((tree, false), from, &mut entry, pace).await?;
        Ok(union.finish())
    }
}

/// Adds an entry's documents if its key begins so; the first that does not ends the scan.
fn add_block(
    tree: TreeId,
    prefix: &[u8],
    key: &[u8],
    value: &[u8],
    union: &mut BlockUnion,
) -> Result<ControlFlow<()>, ColumnError> {
    if !key.starts_with(prefix) {
        return Ok(ControlFlow::Break(()));
    }
    let (base, block) = decode_block(tree, key, value)?;
    union.add(base, block);
    Ok(ControlFlow::Continue(()))
}

pub(super) fn decode_block<'b>(tree: TreeId, key: &[u8], value: &'b [u8]) -> Result<(u32, Block<'b>), ColumnError> {
    keys::block_base(key).zip(Block::decode(value)).ok_or(ColumnError::Corrupt(tree))
}

pub(super) fn decode_point(bytes: &[u8]) -> Option<GeoPoint> {
    match bytes.as_chunks() {
        ([lat, lng], []) => Some(GeoPoint { lat: f64::from_le_bytes(*lat), lng: f64::from_le_bytes(*lng) }),
        _ => None,
    }
}
