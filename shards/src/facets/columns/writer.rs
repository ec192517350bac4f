//! Writes the facts of a batch's documents.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use storage_engine::TreeId;

use super::block::{self, Block};
use super::keys::{self, Flag, Place};
use super::store::{ColumnError, ColumnWrite};
use super::values;
use crate::facets::extract::{Facts, FieldFacts};
use crate::facets::geo::GeoPoint;
use crate::facets::geo::cells::{Bounds, cells_of};
use crate::facets::geo::shapes::Shape;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::terms::{TermNo, Terms};
use crate::partition::trees::{
    FACET_FLAGS, FACET_NUMBERS, FACET_STRINGS, FACET_VALUES, GEO_CELLS, GEO_POINTS, GEO_SHAPES,
};
use crate::segments::Segments;

/// Gathers what changes in the columns, then writes each touched entry once, in ascending order of keys.
///
/// It holds the changes in memory (see [`pending_bytes`](Self::pending_bytes)): flush it between slices of a large batch.
#[derive(Default)]
pub struct ColumnWriter {
    /// The keys of the blocks that change, each with its tree before it.
    blocks: Terms,
    changes: Segments<Change>,
    values: BTreeMap<[u8; 6], Vec<u8>>,
    values_bytes: usize,
    points: BTreeMap<LocalDocId, Option<GeoPoint>>,
    /// What shapes become, and about how many bytes they take.
    shapes: BTreeMap<LocalDocId, Option<Box<[u8]>>>,
    shapes_bytes: usize,
    /// How far a flush is; none is under way at the first step.
    stage: Stage,
}

/// One document enters or leaves one block.
#[derive(Clone, Copy)]
struct Change {
    block: TermNo,
    low: u16,
    enters: bool,
}

/// The steps of a flush. Each part of the work is cut into pieces, so that no call takes long.
enum Stage {
    /// Counts the changes of each block; this many chunks of changes are counted.
    Count(usize, Vec<u32>),
    /// Puts changes in order of blocks; this many chunks of changes are placed.
    Place(usize, Order),
    /// Puts blocks in order of keys: this many are in it.
    Sort(usize, Order),
    /// Writes blocks, then the rest.
    Write(Order),
}

impl Default for Stage {
    fn default() -> Self {
        Self::Count(0, Vec::new())
    }
}

/// Changes by block, and blocks by key.
#[derive(Default)]
struct Order {
    /// Where the changes of each block end (begin, until they are placed).
    ends: Vec<u32>,
    /// Of each change the document's low half, and [`ENTERS`] where it enters.
    changes: Vec<u32>,
    /// Blocks by the beginning of their keys; those of one beginning are sorted when their turn comes.
    by_key: BTreeMap<[u8; SORTED_BYTES], Vec<TermNo>>,
    /// The blocks whose turn it is, the last one first.
    next: Vec<TermNo>,
}

/// Bytes of a block's key by which blocks are sorted first: the tree, the field and some of the value.
const SORTED_BYTES: usize = 12;
/// Keys sorted for each entry that might be written instead.
const SORTED_PER_ENTRY: usize = 16;
/// Marks a change by which a document enters its block.
const ENTERS: u32 = 1 << 16;

impl ColumnWriter {
    /// A writer without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A document's facts were `old` (`None`: it was not there) and become `new` (`None`: it is deleted). `old` must be what
    /// the columns hold. When a document comes up several times, the calls count in their order.
    pub fn add(&mut self, document: LocalDocId, old: Option<&Facts>, new: Option<&Facts>) {
        debug_assert!(matches!(self.stage, Stage::Count(0, _)), "no documents may be added while a flush is under way");
        let nothing = Facts::default();
        let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
        for (field, facts) in &new.fields {
            self.change_field(*field, document, old.fields.get(field), Some(facts));
        }
        for (field, facts) in &old.fields {
            if !new.fields.contains_key(field) {
                self.change_field(*field, document, Some(facts), None);
            }
        }
        if old.point != new.point {
            let bounds = |facts: &Facts| facts.point.map(|point| Bounds::of_point(point.lng, point.lat));
            self.change_place(Place::Point, document, bounds(old), bounds(new));
            self.points.insert(document, new.point);
        }
        if old.shape != new.shape {
            let bounds = |facts: &Facts| facts.shape.as_ref().map(Shape::bounds);
            self.change_place(Place::Shape, document, bounds(old), bounds(new));
            let shape = new.shape.as_ref().map(|shape| Box::from(shape.bytes()));
            self.shapes_bytes += new.shape.as_ref().map_or(0, |shape| shape.bytes().len());
            self.shapes.insert(document, shape);
        }
    }

    fn change_place(&mut self, place: Place, document: LocalDocId, old: Option<Bounds>, new: Option<Bounds>) {
        let (old, new) = (old.map(|old| cells_of(&old)), new.map(|new| cells_of(&new)));
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        for cell in old.iter().filter(|cell| !new.contains(cell)) {
            self.change(GEO_CELLS, &keys::cell(place, *cell), document, false);
        }
        for cell in new.iter().filter(|cell| !old.contains(cell)) {
            self.change(GEO_CELLS, &keys::cell(place, *cell), document, true);
        }
    }

    fn change_field(
        &mut self,
        field: FieldId,
        document: LocalDocId,
        old: Option<&FieldFacts>,
        new: Option<&FieldFacts>,
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
                self.change(FACET_FLAGS, &keys::flag(field, flag), document, has(new, flag));
            }
        }
        let nothing = FieldFacts::default();
        let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
        for bits in old.numbers.symmetric_difference(&new.numbers) {
            self.change(FACET_NUMBERS, &keys::number(field, *bits), document, new.numbers.contains(bits));
        }
        for value in old.strings.keys().filter(|value| !new.strings.contains_key(*value)) {
            self.change(FACET_STRINGS, &keys::string(field, value), document, false);
        }
        for value in new.strings.keys().filter(|value| !old.strings.contains_key(*value)) {
            self.change(FACET_STRINGS, &keys::string(field, value), document, true);
        }
        if old.numbers != new.numbers || old.strings != new.strings {
            let bytes = values::encode(new);
            self.values_bytes += bytes.len();
            self.values.insert(keys::values(field, document), bytes);
        }
    }

    /// `key` lacks its block number.
    fn change(&mut self, tree: TreeId, key: &[u8], document: LocalDocId, enters: bool) {
        let mut whole: SmallVec<[u8; 64]> = SmallVec::new();
        whole.push(tree.0);
        whole.extend_from_slice(key);
        whole.extend_from_slice(&((document.0 >> 16) as u16).to_be_bytes());
        self.changes.push(Change { block: self.blocks.number(&whole), low: document.0 as u16, enters });
    }

    /// About how much memory the gathered changes take, in bytes.
    pub fn pending_bytes(&self) -> usize {
        let entries = self.values.len() * 64 + (self.points.len() + self.shapes.len()) * 40 + self.shapes_bytes;
        // A flush needs half as much again for each change.
        self.blocks.memory_bytes() + self.changes.len() * size_of::<Change>() * 3 / 2 + self.values_bytes + entries
    }

    /// Writes everything. The writer may be used again.
    pub fn flush(&mut self, store: &mut dyn ColumnWrite) -> Result<(), ColumnError> {
        while !self.flush_some(store, usize::MAX)? {}
        Ok(())
    }

    /// Writes about `entries_max` entries, or does as much other work; true when all is written. Until then no document may be
    /// added.
    pub fn flush_some(&mut self, store: &mut dyn ColumnWrite, entries_max: usize) -> Result<bool, ColumnError> {
        let mut left = entries_max;
        let mut buffer = Vec::new();
        self.stage = match std::mem::take(&mut self.stage) {
            Stage::Count(chunk, ends) => self.count(chunk, ends),
            Stage::Place(chunk, order) => self.place(chunk, order),
            Stage::Sort(done, order) => self.sort(done, order, entries_max),
            Stage::Write(mut order) => {
                while let Some(block) = order.next_block(&self.blocks) {
                    self.write_block(store, &order, block, &mut buffer)?;
                    left -= 1;
                    if left == 0 {
                        self.stage = Stage::Write(order);
                        return Ok(false);
                    }
                }
                return self.flush_rest(store, order, left);
            }
        };
        Ok(false)
    }

    fn count(&self, chunk: usize, mut ends: Vec<u32>) -> Stage {
        ends.resize(self.blocks.len(), 0);
        if let Some(changes) = self.changes.chunks().nth(chunk) {
            changes.iter().for_each(|change| ends[change.block as usize] += 1);
            return Stage::Count(chunk + 1, ends);
        }
        let mut total = 0;
        for end in &mut ends {
            (*end, total) = (total, total + *end);
        }
        Stage::Place(0, Order { ends, changes: vec![0; self.changes.len()], ..Order::default() })
    }

    fn place(&self, chunk: usize, mut order: Order) -> Stage {
        let Some(changes) = self.changes.chunks().nth(chunk) else { return Stage::Sort(0, order) };
        for change in changes {
            let end = &mut order.ends[change.block as usize];
            order.changes[*end as usize] = u32::from(change.low) | if change.enters { ENTERS } else { 0 };
            *end += 1;
        }
        Stage::Place(chunk + 1, order)
    }

    fn sort(&self, done: usize, mut order: Order, entries_max: usize) -> Stage {
        let until = done.saturating_add(entries_max.saturating_mul(SORTED_PER_ENTRY)).min(self.blocks.len());
        for block in done..until {
            let key = self.blocks.text(block as TermNo);
            let mut beginning = [0; SORTED_BYTES];
            let len = key.len().min(SORTED_BYTES);
            beginning[..len].copy_from_slice(&key[..len]);
            order.by_key.entry(beginning).or_default().push(block as TermNo);
        }
        if until < self.blocks.len() { Stage::Sort(until, order) } else { Stage::Write(order) }
    }

    /// Writes values, points and shapes, after the blocks.
    fn flush_rest(&mut self, store: &mut dyn ColumnWrite, order: Order, mut left: usize) -> Result<bool, ColumnError> {
        self.stage = Stage::Write(order);
        while let Some((key, bytes)) = self.values.pop_first() {
            if left == 0 {
                self.values.insert(key, bytes);
                return Ok(false);
            }
            left -= 1;
            if bytes.is_empty() { store.delete(FACET_VALUES, &key)? } else { store.put(FACET_VALUES, &key, &bytes)? }
        }
        while let Some((document, point)) = self.points.pop_first() {
            if left == 0 {
                self.points.insert(document, point);
                return Ok(false);
            }
            left -= 1;
            let key = document.0.to_be_bytes();
            match point {
                Some(point) => {
                    let value = [point.lat.to_le_bytes(), point.lng.to_le_bytes()].concat();
                    store.put(GEO_POINTS, &key, &value)?;
                }
                None => store.delete(GEO_POINTS, &key)?,
            }
        }
        while let Some((document, shape)) = self.shapes.pop_first() {
            if left == 0 {
                self.shapes.insert(document, shape);
                return Ok(false);
            }
            left -= 1;
            let key = document.0.to_be_bytes();
            match shape {
                Some(bytes) => store.put(GEO_SHAPES, &key, &bytes)?,
                None => store.delete(GEO_SHAPES, &key)?,
            }
        }
        *self = Self::new();
        Ok(true)
    }

    /// Applies all changes of a block.
    fn write_block(
        &self,
        store: &mut dyn ColumnWrite,
        order: &Order,
        block: TermNo,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ColumnError> {
        let whole_key = self.blocks.text(block);
        let (tree, key) = (TreeId(whole_key[0]), &whole_key[1..]);
        let before = match store.get(tree, key)? {
            Some(bytes) => Block::decode(bytes).ok_or(ColumnError::Corrupt(tree))?.numbers(),
            None => Vec::new(),
        };
        let mut changes = order.changes_of(block);
        let sorted: Vec<u32>;
        if !changes.is_sorted_by_key(|change| *change as u16) {
            let mut list = changes.to_vec();
            // Stable, so that of several changes of one document the last one stands last.
            list.sort_by_key(|change| *change as u16);
            sorted = list;
            changes = &sorted;
        }
        let after = apply(&before, changes);
        if after.is_empty() {
            return store.delete(tree, key);
        }
        block::encode(&after, buffer);
        store.put(tree, key, buffer)
    }
}

impl Order {
    /// The next block in the order of keys.
    fn next_block(&mut self, keys: &Terms) -> Option<TermNo> {
        if self.next.is_empty() {
            let (_, mut blocks) = self.by_key.pop_first()?;
            blocks.sort_unstable_by(|a, b| keys.text(*b).cmp(keys.text(*a)));
            self.next = blocks;
        }
        self.next.pop()
    }

    /// What changes in a block, in the order in which it was added.
    fn changes_of(&self, block: TermNo) -> &[u32] {
        let at = block as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.changes[start as usize..self.ends[at] as usize]
    }
}

/// Merges changes, ascending and the last one of a document counting, into ascending numbers.
fn apply(before: &[u16], changes: &[u32]) -> Vec<u16> {
    let mut after = Vec::with_capacity(before.len() + changes.len());
    let mut before = before.iter().copied().peekable();
    for (at, change) in changes.iter().enumerate() {
        let low = *change as u16;
        if changes.get(at + 1).is_some_and(|next| *next as u16 == low) {
            continue;
        }
        while let Some(number) = before.next_if(|number| *number < low) {
            after.push(number);
        }
        before.next_if_eq(&low);
        if change & ENTERS != 0 {
            after.push(low);
        }
    }
    after.extend(before);
    after
}
