//! Keys of the columns. Integers are big-endian, so byte order is the order of values.

use storage_engine::TreeId;

use crate::facets::geo::cells::Cell;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::GEO_CELLS;

/// Longest operand that can matter to a comparison with stored strings, in bytes: those have at most 468.
const OPERAND_BYTES_MAX: usize = crate::facets::normalise::STRING_BYTES_MAX + 1;

/// What is flagged about a document's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Flag {
    /// It is there.
    Exists = 0,
    /// It is null.
    Null = 1,
    /// It is an empty string, array or object.
    Empty = 2,
}

/// What lies in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// The `_geo` of documents.
    Point = 0,
    /// Their `_geojson`.
    Shape = 1,
}

/// A stretch of a tree: the values of a field, or the cells of points or of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stretch {
    tree: TreeId,
    start: [u8; 2],
    len: u8,
}

impl Stretch {
    /// The one that a key is in.
    pub fn around(tree: TreeId, key: &[u8]) -> Self {
        let len = key.len().min(if tree == GEO_CELLS { 1 } else { 2 });
        let mut start = [0; 2];
        start[..len].copy_from_slice(&key[..len]);
        Self { tree, start, len: len as u8 }
    }

    /// The values of a field.
    pub fn of_field(tree: TreeId, field: FieldId) -> Self {
        Self { tree, start: field.0.to_be_bytes(), len: 2 }
    }

    /// The tree.
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// With what its keys begin.
    pub fn start(&self) -> &[u8] {
        &self.start[..usize::from(self.len)]
    }
}

/// The beginning of all keys of a field.
pub(super) fn field(field: FieldId) -> Vec<u8> {
    field.0.to_be_bytes().to_vec()
}

/// The beginning of the keys after all those of a field; `None` after the last possible one.
pub(super) fn after_field(field: FieldId) -> Option<Vec<u8>> {
    field.0.checked_add(1).map(|next| next.to_be_bytes().to_vec())
}

/// A block key without its last two bytes, which are `doc >> 16`.
pub(super) fn number(field: FieldId, bits: u64) -> Vec<u8> {
    let mut key = self::field(field);
    key.extend_from_slice(&bits.to_be_bytes());
    key
}

/// As [`number`], for a string value.
pub(super) fn string(field: FieldId, value: &str) -> Vec<u8> {
    let mut key = string_prefix(field, value.as_bytes());
    key.push(0);
    key
}

/// The common beginning of the keys of all strings that begin so. The bytes 0 and 1 are escaped (as `01 01` and `01 02`) so
/// that the closing 0 sorts below whatever may follow it in a longer string.
pub(super) fn string_prefix(field: FieldId, value: &[u8]) -> Vec<u8> {
    let mut key = self::field(field);
    for byte in value.iter().take(OPERAND_BYTES_MAX) {
        match byte {
            0 | 1 => key.extend_from_slice(&[1, byte + 1]),
            _ => key.push(*byte),
        }
    }
    key
}

/// The string of a whole `FACET_STRINGS` key; `None` if the key is malformed.
pub(super) fn string_of(key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    string_into(key, &mut value)?;
    Some(value)
}

/// As [`string_of`], into a buffer that is used again.
pub(super) fn string_into(key: &[u8], value: &mut Vec<u8>) -> Option<()> {
    let escaped = key.get(2..key.len().checked_sub(3)?)?;
    value.clear();
    value.reserve(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            1 => value.push(bytes.next()?.checked_sub(1)?),
            _ => value.push(*byte),
        }
    }
    Some(())
}

/// As [`number`], for a flag.
pub(super) fn flag(field: FieldId, flag: Flag) -> Vec<u8> {
    let mut key = self::field(field);
    key.push(flag as u8);
    key
}

/// As [`number`], for a cell.
pub(super) fn cell(place: Place, cell: Cell) -> Vec<u8> {
    let mut key = cell_start(place, cell.code);
    key.push(cell.level);
    key
}

/// The beginning of the keys of cells that begin at a code.
pub(super) fn cell_start(place: Place, code: u32) -> Vec<u8> {
    let mut key = vec![place as u8];
    key.extend_from_slice(&code.to_be_bytes());
    key
}

/// The cell of a whole `GEO_CELLS` key; `None` if the key is malformed.
pub(super) fn cell_of(key: &[u8]) -> Option<Cell> {
    let code = key.get(1..)?.first_chunk()?;
    Cell::stored(u32::from_be_bytes(*code), *key.get(5)?)
}

/// The key of a document's values on a field.
pub(super) fn values(field: FieldId, document: LocalDocId) -> [u8; 6] {
    let [high, low] = field.0.to_be_bytes();
    let [a, b, c, d] = document.0.to_be_bytes();
    [high, low, a, b, c, d]
}

/// The field and the document of a `FACET_VALUES` key.
pub(super) fn field_and_document(key: [u8; 6]) -> (FieldId, LocalDocId) {
    let [high, low, a, b, c, d] = key;
    (FieldId(u16::from_be_bytes([high, low])), LocalDocId(u32::from_be_bytes([a, b, c, d])))
}

/// The document of a `FACET_VALUES`, `GEO_POINTS` or `GEO_SHAPES` key.
pub(super) fn document_of(key: &[u8]) -> Option<LocalDocId> {
    key.last_chunk().map(|bytes| LocalDocId(u32::from_be_bytes(*bytes)))
}

/// Whether two keys are of blocks of one value.
pub(super) fn are_of_one_value(key: &[u8], other: &[u8]) -> bool {
    key.len() == other.len() && key.len().checked_sub(2).is_some_and(|end| key[..end] == other[..end])
}

/// The key of the first block that a block's value may have.
pub(super) fn first_of_value(key: &[u8]) -> Box<[u8]> {
    let mut key: Box<[u8]> = key.into();
    if let Some(block) = key.last_chunk_mut() {
        *block = [0; 2];
    }
    key
}

/// The first document number of a block.
pub(super) fn block_base(key: &[u8]) -> Option<u32> {
    key.last_chunk().map(|bytes| u32::from(u16::from_be_bytes(*bytes)) << 16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A value's blocks must be neighbours, in the order of the values, whatever bytes these hold.
        #[test]
        fn string_keys_sort_like_strings(left in "[\0\u{1}\u{2}a]{0,6}", right in "[\0\u{1}\u{2}a]{0,6}", blocks: (u16, u16)) {
            let whole = |value: &str, block: u16| [string(FieldId(7), value), block.to_be_bytes().to_vec()].concat();
            let (left_key, right_key) = (whole(&left, blocks.0), whole(&right, blocks.1));
            prop_assert_eq!(string_of(&left_key), Some(left.clone().into_bytes()));
            let order = left.as_bytes().cmp(right.as_bytes()).then(blocks.0.cmp(&blocks.1));
            prop_assert_eq!(left_key.cmp(&right_key), order);
        }
    }

    /// The store's limit for keys is 1024 bytes.
    #[test]
    fn the_longest_key_fits() {
        let longest = "\0".repeat(crate::facets::normalise::STRING_BYTES_MAX);
        assert!(string(FieldId(0), &longest).len() + 2 <= 1024);
    }
}
