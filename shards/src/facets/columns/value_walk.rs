//! Reads values in the order that a sort needs them: those of a field from the best on, or those of some documents.

use std::ops::ControlFlow;

use roaring::RoaringBitmap;
use storage_engine::TreeId;

use super::cuts::Cut;
use super::keys;
use super::reader::{Columns, decode_block, decode_point};
use super::store::ColumnError;
use super::values::DocValues;
use crate::facets::geo::GeoPoint;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::{FACET_NUMBERS, FACET_STRINGS, FACET_VALUES, GEO_POINTS};

/// Bytes of a block that take as long to read as to find the block.
const BYTES_PER_ENTRY: usize = 512;

/// Where there are up to so many numbers for each document asked for, passing over the others is cheaper than looking up each.
const SCAN_SPARSITY: usize = 3;

/// Called with the place of a document among those asked for, and with its entry.
type EachEntry<'e> = dyn FnMut(usize, &[u8]) -> Result<(), ColumnError> + 'e;

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    /// The bits of a number.
    Number(u64),
    /// A normalised string.
    String(String),
}

/// How far a walk over the values of a field has come: numbers, then strings, in either direction.
pub struct ValueWalk {
    field: FieldId,
    descending: bool,
    /// The tree that is walked; `None` at the end.
    tree: Option<TreeId>,
    /// Where the walk goes on: at this key or, downwards, before it.
    from: Vec<u8>,
    /// The key of a block of the value that is being read; empty between values.
    current: Vec<u8>,
    /// The documents of its blocks so far.
    documents: RoaringBitmap,
}

impl ValueWalk {
    /// Before the first value.
    pub fn new(field: FieldId, descending: bool) -> Self {
        let from = start(field, descending);
        let tree = Some(FACET_NUMBERS);
        Self { field, descending, tree, from, current: Vec::new(), documents: RoaringBitmap::new() }
    }

    /// At a key of a tree, or before it downwards; at the first value of this tree where none is given.
    pub(super) fn at(field: FieldId, descending: bool, tree: TreeId, key: Option<&[u8]>) -> Self {
        let from = key.map_or_else(|| start(field, descending), <[u8]>::to_vec);
        Self { tree: Some(tree), from, ..Self::new(field, descending) }
    }

    /// At a cut.
    pub fn from(field: FieldId, descending: bool, cut: &Cut) -> Self {
        let (tree, from) = match &cut.0 {
            Some(FieldValue::Number(bits)) => (Some(FACET_NUMBERS), keys::number(field, *bits)),
            Some(FieldValue::String(value)) => (Some(FACET_STRINGS), keys::string(field, value)),
            None => (None, Vec::new()),
        };
        Self { tree, from, ..Self::new(field, descending) }
    }

    /// Reads on for about `effort` entries, and calls `value` for each value that was read to its end. Gives the effort it took;
    /// `None` once all values were met.
    pub fn step(
        &mut self,
        columns: Columns<'_>,
        effort: usize,
        value: &mut dyn FnMut(FieldValue, RoaringBitmap),
    ) -> Result<Option<usize>, ColumnError> {
        let Some(tree) = self.tree else { return Ok(None) };
        let prefix = keys::field(self.field);
        let (mut spent, mut resume) = (0, None);
        let (current, documents, descending) = (&mut self.current, &mut self.documents, self.descending);
        let mut entry = |key: &[u8], bytes: &[u8]| {
            if !key.starts_with(&prefix) || key.len() < prefix.len() + 2 {
                return Ok(ControlFlow::Break(()));
            }
            let same = keys::are_of_one_value(current, key);
            if !same {
                if !current.is_empty() {
                    value(value_of(tree, current)?, std::mem::take(documents));
                }
                current.clear();
                current.extend_from_slice(key);
            }
            let (base, block) = decode_block(tree, key, bytes)?;
            block.add_to(base, documents);
            spent += 1 + bytes.len() / BYTES_PER_ENTRY;
            if spent < effort {
                return Ok(ControlFlow::Continue(()));
            }
            // No key lies between a key and the same followed by 0.
            resume = Some(if descending { key.to_vec() } else { [key, &[0]].concat() });
            Ok(ControlFlow::Break(()))
        };
        match descending {
            true => columns.store.scan_back(tree, &self.from, &mut entry)?,
            false => columns.store.scan(tree, &self.from, &mut entry)?,
        }
        if let Some(next) = resume {
            self.from = next;
            return Ok(Some(spent));
        }
        if !self.current.is_empty() {
            value(value_of(tree, &self.current)?, std::mem::take(&mut self.documents));
            self.current.clear();
        }
        self.tree = (tree == FACET_NUMBERS).then_some(FACET_STRINGS);
        self.from = start(self.field, self.descending);
        Ok(Some(spent + 1))
    }
}

/// Where the values of a field begin in the direction of a walk.
fn start(field: FieldId, descending: bool) -> Vec<u8> {
    match descending {
        true => keys::after_field(field).unwrap_or_else(|| vec![u8::MAX; 1024]),
        false => keys::field(field),
    }
}

pub(super) fn value_of(tree: TreeId, key: &[u8]) -> Result<FieldValue, ColumnError> {
    let value = match tree == FACET_NUMBERS {
        true => {
            key.get(2..).and_then(|rest| rest.first_chunk()).map(|bits| FieldValue::Number(u64::from_be_bytes(*bits)))
        }
        false => keys::string_of(key).and_then(|value| String::from_utf8(value).ok()).map(FieldValue::String),
    };
    value.ok_or(ColumnError::Corrupt(tree))
}

impl Columns<'_> {
    /// Calls `each` for those of the documents, given by rising number, that have values on a field, with their place among them.
    pub fn values_of(
        &self,
        field: FieldId,
        documents: &[u32],
        each: &mut dyn FnMut(usize, DocValues<'_>),
    ) -> Result<(), ColumnError> {
        let mut decoded = |at: usize, bytes: &[u8]| {
            each(at, DocValues::decode(bytes).ok_or(ColumnError::Corrupt(FACET_VALUES))?);
            Ok(())
        };
        self.entries_of(FACET_VALUES, &|document| keys::values(field, document), documents, &mut decoded)
    }

    /// The same for their points.
    pub fn points_of(&self, documents: &[u32], each: &mut dyn FnMut(usize, GeoPoint)) -> Result<(), ColumnError> {
        let mut decoded = |at: usize, bytes: &[u8]| {
            each(at, decode_point(bytes).ok_or(ColumnError::Corrupt(GEO_POINTS))?);
            Ok(())
        };
        self.entries_of(GEO_POINTS, &|document| document.0.to_be_bytes(), documents, &mut decoded)
    }

    /// Looks documents up one by one, or reads all from the first to the last where they lie close together.
    fn entries_of<const KEY: usize>(
        &self,
        tree: TreeId,
        key_of: &dyn Fn(LocalDocId) -> [u8; KEY],
        documents: &[u32],
        each: &mut EachEntry<'_>,
    ) -> Result<(), ColumnError> {
        let (Some(first), Some(last)) = (documents.first(), documents.last()) else { return Ok(()) };
        if documents.len() == 1 || (last - first) as usize / SCAN_SPARSITY > documents.len() {
            let mut look_up = self.store.look_up(tree);
            for (at, document) in documents.iter().enumerate() {
                if let Some(bytes) = look_up(&key_of(LocalDocId(*document)))? {
                    each(at, bytes)?;
                }
            }
            return Ok(());
        }
        let (end, mut at) = (key_of(LocalDocId(*last)), 0);
        let mut entry = |key: &[u8], bytes: &[u8]| {
            if key > end.as_slice() {
                return Ok(ControlFlow::Break(()));
            }
            let found = keys::document_of(key).ok_or(ColumnError::Corrupt(tree))?.0;
            while documents.get(at).is_some_and(|document| *document < found) {
                at += 1;
            }
            match documents.get(at) {
                Some(document) if *document == found => each(at, bytes)?,
                Some(_) => {}
                None => return Ok(ControlFlow::Break(())),
            }
            Ok(ControlFlow::Continue(()))
        };
        self.store.scan(tree, &key_of(LocalDocId(*first)), &mut entry)
    }
}
