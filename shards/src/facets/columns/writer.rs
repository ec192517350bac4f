//! Writes the facts of a batch of documents.

use std::collections::BTreeMap;
use std::ops::Range;

use storage_engine::TreeId;

use super::block::{self, Block};
use super::keys::{self, Flag};
use super::store::{ColumnError, ColumnWrite};
use super::values;
use crate::facets::extract::{Facts, FieldFacts};
use crate::facets::geo::GeoPoint;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::{FACET_FLAGS, FACET_NUMBERS, FACET_STRINGS, FACET_VALUES, GEO_POINTS};

/// Gathers what changes in the columns, then writes each touched entry once, in ascending order of keys.
///
/// It holds the changes in memory (see [`pending_bytes`](Self::pending_bytes)): flush it between slices of a large batch.
#[derive(Default)]
pub struct ColumnWriter {
    /// The block keys of `changes`, each with its tree before it.
    keys: Vec<u8>,
    changes: Vec<Change>,
    /// How many changes are written already; more than none only while a flush is under way.
    written: usize,
    values: BTreeMap<[u8; 6], Vec<u8>>,
    values_bytes: usize,
    points: BTreeMap<LocalDocId, Option<GeoPoint>>,
}

/// One document enters or leaves one block.
struct Change {
    key: Range<usize>,
    low: u16,
    enters: bool,
}

impl ColumnWriter {
    /// A writer without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A document's facts were `old` (`None`: it was not there) and become `new` (`None`: it is deleted). `old` must be what
    /// the columns hold. When a document comes up several times, the calls count in their order.
    pub fn add(&mut self, document: LocalDocId, old: Option<&Facts>, new: Option<&Facts>) {
        debug_assert_eq!(self.written, 0, "no documents may be added while a flush is under way");
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
            self.points.insert(document, new.point);
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
        let start = self.keys.len();
        self.keys.push(tree.0);
        self.keys.extend_from_slice(key);
        self.keys.extend_from_slice(&((document.0 >> 16) as u16).to_be_bytes());
        self.changes.push(Change { key: start..self.keys.len(), low: document.0 as u16, enters });
    }

    /// About how much memory the gathered changes take, in bytes.
    pub fn pending_bytes(&self) -> usize {
        let entries = self.values.len() * 64 + self.points.len() * 40;
        self.keys.len() + self.changes.len() * size_of::<Change>() + self.values_bytes + entries
    }

    /// Writes everything. The writer may be used again.
    pub fn flush(&mut self, store: &mut dyn ColumnWrite) -> Result<(), ColumnError> {
        while !self.flush_some(store, usize::MAX)? {}
        Ok(())
    }

    /// Writes about `entries_max` entries; true when all is written. Until then no document may be added. The first call
    /// also sorts the changes.
    pub fn flush_some(&mut self, store: &mut dyn ColumnWrite, entries_max: usize) -> Result<bool, ColumnError> {
        if self.written == 0 {
            let keys = &self.keys;
            // Stable, so that of several changes of one document the last one stands last.
            self.changes.sort_by(|a, b| keys[a.key.clone()].cmp(&keys[b.key.clone()]).then(a.low.cmp(&b.low)));
        }
        let mut left = entries_max;
        let mut buffer = Vec::new();
        while self.written < self.changes.len() {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            self.write_block(store, &mut buffer)?;
        }
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
        *self = Self::new();
        Ok(true)
    }

    /// Applies all changes of the next block.
    fn write_block(&mut self, store: &mut dyn ColumnWrite, buffer: &mut Vec<u8>) -> Result<(), ColumnError> {
        let changes = &self.changes[self.written..];
        let whole_key = &self.keys[changes[0].key.clone()];
        let count = changes.iter().take_while(|change| &self.keys[change.key.clone()] == whole_key).count();
        let (tree, key) = (TreeId(whole_key[0]), &whole_key[1..]);
        let before = match store.get(tree, key)? {
            Some(bytes) => Block::decode(bytes).ok_or(ColumnError::Corrupt(tree))?.numbers(),
            None => Vec::new(),
        };
        let after = apply(&before, &changes[..count]);
        if after.is_empty() {
            store.delete(tree, key)?;
        } else {
            block::encode(&after, buffer);
            store.put(tree, key, buffer)?;
        }
        self.written += count;
        Ok(())
    }
}

/// Merges changes, ascending and the last one of a document counting, into ascending numbers.
fn apply(before: &[u16], changes: &[Change]) -> Vec<u16> {
    let mut after = Vec::with_capacity(before.len() + changes.len());
    let mut before = before.iter().copied().peekable();
    for (at, change) in changes.iter().enumerate() {
        if changes.get(at + 1).is_some_and(|next| next.low == change.low) {
            continue;
        }
        while let Some(number) = before.next_if(|number| *number < change.low) {
            after.push(number);
        }
        before.next_if_eq(&change.low);
        if change.enters {
            after.push(change.low);
        }
    }
    after.extend(before);
    after
}
