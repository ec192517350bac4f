//! Writes the facts of a batch's documents.

use std::borrow::Cow;
use std::collections::BTreeMap;

use smallvec::SmallVec;
use storage_engine::TreeId;

use super::block::{self, Block};
use super::changes::{FactChanges, Told, tell};
use super::keys;
use super::store::{ColumnError, ColumnWrite};
use super::touched::{Touched, Touches};
use crate::facets::extract::Facts;
use crate::facets::geo::GeoPoint;
use crate::ids::LocalDocId;
use crate::partition::terms::{TermNo, Terms};
use crate::partition::trees::{FACET_VALUES, GEO_POINTS, GEO_SHAPES};
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
    touched: Touched,
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
    /// Blocks of one tree that only lose documents, in the order of keys: their turn has come.
    losing: Vec<TermNo>,
    /// Those of them that take longer.
    large: Vec<TermNo>,
}

/// Bytes of a block's key by which blocks are sorted first: the tree, the field and some of the value.
const SORTED_BYTES: usize = 12;
/// Keys sorted for each entry that might be written instead.
const SORTED_PER_ENTRY: usize = 16;
/// Blocks that lose documents are gone through together, up to so many: each may be in a leaf of its own, to be copied.
const LOSING_MAX: usize = if cfg!(test) { 3 } else { 64 };
/// Blocks of more bytes are written one by one, each of which takes as long as several others.
const LARGE_BYTES: usize = if cfg!(test) { 8 } else { 512 };
const LARGE_COST: usize = 4;
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
        tell(document, old, new, self);
    }

    /// As [`Self::add`] for a document whose changes are known, about so many of them; true when these were all.
    pub fn add_some(&mut self, changes: &mut FactChanges, most: usize) -> bool {
        changes.move_some(self, most)
    }

    /// About how much memory the gathered changes take, in bytes.
    pub fn pending_bytes(&self) -> usize {
        let entries = self.values.len() * 64 + (self.points.len() + self.shapes.len()) * 40 + self.shapes_bytes;
        // A flush needs half as much again for each change.
        self.blocks.memory_bytes() + self.changes.len() * size_of::<Change>() * 3 / 2 + self.values_bytes + entries
    }

    /// What was written since this was asked last.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
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
                while let Some(block) = order.large.pop() {
                    self.write_block(store, &order, block, &mut buffer)?;
                    left = left.saturating_sub(LARGE_COST);
                    if left == 0 {
                        self.stage = Stage::Write(order);
                        return Ok(false);
                    }
                }
                while let Some(block) = order.next_block(&self.blocks) {
                    if order.changes_of(block).iter().all(|change| change & ENTERS == 0) {
                        if !order.takes_losing(block, &self.blocks) {
                            self.write_losing(store, &mut order, &mut buffer)?;
                            left = 0;
                        }
                        order.losing.push(block);
                    } else {
                        self.write_block(store, &order, block, &mut buffer)?;
                        left -= 1;
                    }
                    if left == 0 {
                        self.stage = Stage::Write(order);
                        return Ok(false);
                    }
                }
                if !order.losing.is_empty() {
                    self.write_losing(store, &mut order, &mut buffer)?;
                    self.stage = Stage::Write(order);
                    return Ok(false);
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

    fn sort(&mut self, done: usize, mut order: Order, entries_max: usize) -> Stage {
        let until = done.saturating_add(entries_max.saturating_mul(SORTED_PER_ENTRY)).min(self.blocks.len());
        for block in done..until {
            let key = self.blocks.text(block as TermNo);
            let mut beginning = [0; SORTED_BYTES];
            let len = key.len().min(SORTED_BYTES);
            beginning[..len].copy_from_slice(&key[..len]);
            order.by_key.entry(beginning).or_default().push(block as TermNo);
            self.touched.touch_block(TreeId(key[0]), &key[1..]);
        }
        if until < self.blocks.len() { Stage::Sort(until, order) } else { Stage::Write(order) }
    }

    /// Writes values, points and shapes, after the blocks.
    fn flush_rest(&mut self, store: &mut dyn ColumnWrite, order: Order, mut left: usize) -> Result<bool, ColumnError> {
        self.stage = Stage::Write(order);
        // Keys that go, of one tree; those of documents that are deleted together are most often neighbours.
        let mut gone: Vec<SmallVec<[u8; 6]>> = Vec::new();
        while left > 0
            && let Some((key, bytes)) = self.values.pop_first()
        {
            left -= 1;
            let (field, document) = keys::field_and_document(key);
            self.touched.touch_document(Touches::Values(field), document);
            if bytes.is_empty() { gone.push(key.into()) } else { store.put(FACET_VALUES, &key, &bytes)? }
        }
        delete_all(store, FACET_VALUES, &mut gone)?;
        while left > 0
            && let Some((document, point)) = self.points.pop_first()
        {
            left -= 1;
            self.touched.touch_document(Touches::Point, document);
            let key = document.0.to_be_bytes();
            match point {
                Some(point) => {
                    let value = [point.lat.to_le_bytes(), point.lng.to_le_bytes()].concat();
                    store.put(GEO_POINTS, &key, &value)?;
                }
                None => gone.push(SmallVec::from_slice(&key)),
            }
        }
        delete_all(store, GEO_POINTS, &mut gone)?;
        while left > 0
            && let Some((document, shape)) = self.shapes.pop_first()
        {
            left -= 1;
            let key = document.0.to_be_bytes();
            match shape {
                Some(bytes) => store.put(GEO_SHAPES, &key, &bytes)?,
                None => gone.push(SmallVec::from_slice(&key)),
            }
        }
        delete_all(store, GEO_SHAPES, &mut gone)?;
        if self.values.is_empty() && self.points.is_empty() && self.shapes.is_empty() {
            *self = Self { touched: self.take_touched(), ..Self::new() };
            return Ok(true);
        }
        Ok(false)
    }

    /// Takes documents out of blocks that get none. Those that are left without any go together.
    fn write_losing(
        &self,
        store: &mut dyn ColumnWrite,
        order: &mut Order,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ColumnError> {
        let losing = std::mem::take(&mut order.losing);
        let Some(first) = losing.first() else { return Ok(()) };
        let tree = TreeId(self.blocks.text(*first)[0]);
        let keys: SmallVec<[&[u8]; LOSING_MAX]> = losing.iter().map(|block| &self.blocks.text(*block)[1..]).collect();
        let (mut left, mut large, mut is_corrupt) = (Vec::new(), Vec::new(), false);
        let mut doomed = |at: usize, value: &[u8]| {
            if value.len() > LARGE_BYTES {
                large.push(losing[at]);
                return false;
            }
            let Some(before) = Block::decode(value) else {
                is_corrupt = true;
                return false;
            };
            let changes = in_order(order.changes_of(losing[at]));
            let after = match before.only() {
                Some(number) if changes.iter().any(|change| *change as u16 == number) => return true,
                _ => apply(&before.numbers(), &changes),
            };
            if !after.is_empty() {
                left.push((at, after));
                return false;
            }
            true
        };
        store.delete_run(tree, &keys, &mut doomed)?;
        if is_corrupt {
            return Err(ColumnError::Corrupt(tree));
        }
        order.large = large;
        left.sort_unstable_by_key(|(at, _)| *at);
        for (at, numbers) in left {
            block::encode(&numbers, buffer);
            store.put(tree, keys[at], buffer)?;
        }
        Ok(())
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
        let after = apply(&before, &in_order(order.changes_of(block)));
        if after.is_empty() {
            return store.delete(tree, key);
        }
        block::encode(&after, buffer);
        store.put(tree, key, buffer)
    }
}

impl Told for ColumnWriter {
    fn change(&mut self, tree: TreeId, key: &[u8], document: LocalDocId, enters: bool) {
        let mut whole: SmallVec<[u8; 64]> = SmallVec::new();
        whole.push(tree.0);
        whole.extend_from_slice(key);
        whole.extend_from_slice(&((document.0 >> 16) as u16).to_be_bytes());
        self.changes.push(Change { block: self.blocks.number(&whole), low: document.0 as u16, enters });
    }

    fn values(&mut self, key: [u8; 6], bytes: Vec<u8>) {
        self.values_bytes += bytes.len();
        self.values.insert(key, bytes);
    }

    fn point(&mut self, document: LocalDocId, point: Option<GeoPoint>) {
        self.points.insert(document, point);
    }

    fn shape(&mut self, document: LocalDocId, shape: Option<Box<[u8]>>) {
        self.shapes_bytes += shape.as_ref().map_or(0, |shape| shape.len());
        self.shapes.insert(document, shape);
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

    /// Whether a block may wait together with those that only lose documents.
    fn takes_losing(&self, block: TermNo, keys: &Terms) -> bool {
        let is_same_tree = |first: &TermNo| keys.text(*first).first() == keys.text(block).first();
        self.losing.first().is_none_or(|first| self.losing.len() < LOSING_MAX && is_same_tree(first))
    }

    /// What changes in a block, in the order in which it was added.
    fn changes_of(&self, block: TermNo) -> &[u32] {
        let at = block as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.changes[start as usize..self.ends[at] as usize]
    }
}

/// Removes keys, which rise, and forgets them.
fn delete_all(store: &mut dyn ColumnWrite, tree: TreeId, keys: &mut Vec<SmallVec<[u8; 6]>>) -> Result<(), ColumnError> {
    let keys = std::mem::take(keys);
    let run: Vec<&[u8]> = keys.iter().map(SmallVec::as_slice).collect();
    store.delete_run(tree, &run, &mut |_, _| true)
}

/// Changes by ascending document; of several of one document the last one stands last.
fn in_order(changes: &[u32]) -> Cow<'_, [u32]> {
    if changes.is_sorted_by_key(|change| *change as u16) {
        return Cow::Borrowed(changes);
    }
    let mut sorted = changes.to_vec();
    // Stable.
    sorted.sort_by_key(|change| *change as u16);
    Cow::Owned(sorted)
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
