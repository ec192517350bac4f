//! Posting blocks: which documents hold a term, and where.
//!
//! A term's posting list is a run of blocks of about [`BLOCK_BYTES`], each under the key *term, 0x00, first document*. A
//! block is
//!
//! ```text
//! varint n                 documents in the block, at least 1
//! n - 1 varints            distance of each further document from the one before, at least 1
//! n occurrence lists       one for each document
//! ```
//!
//! so that the documents are read without touching positions. An occurrence list holds the fields in rising order, each as a
//! varint header (distance from the field before it, from 0 for the first; one bit: several positions; one bit: last field of
//! the document), the number of positions if several, and the positions (the first as it is, then distances).

use smallvec::SmallVec;

use crate::ids::FieldId;

/// Wanted size of a block: small enough that changing one document rewrites little, large enough that keys weigh little.
pub const BLOCK_BYTES: usize = 1000;

/// One place of a term in a document: field, then position within the field.
pub type Occurrence = (FieldId, u16);

/// The stored bytes are not a posting block: the file was damaged in a way that page checksums did not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("posting block is damaged")]
pub struct DamagedBlock;

/// The key of the block of `term` that begins with document `first`.
pub fn block_key(term: &[u8], first: u32, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(term);
    key.push(0);
    key.extend_from_slice(&first.to_be_bytes());
}

/// The term and the first document of a block's key.
pub fn parse_block_key(key: &[u8]) -> Option<(&[u8], u32)> {
    let (rest, first) = key.split_last_chunk::<4>()?;
    let (zero, term) = rest.split_last()?;
    (*zero == 0).then(|| (term, u32::from_be_bytes(*first)))
}

/// Appends a number in base 128, low digits first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front of `bytes`; `None` when they end early or the number has more than 32 bits.
#[inline]
pub fn take_varint(bytes: &mut &[u8]) -> Option<u32> {
    let (first, mut rest) = bytes.split_first()?;
    let mut value = u32::from(first & 0x7f);
    let (mut byte, mut shift) = (*first, 7);
    while byte & 0x80 != 0 {
        let (next, tail) = rest.split_first()?;
        (byte, rest) = (*next, tail);
        let digit = u32::from(byte & 0x7f);
        if shift > 28 || (shift == 28 && digit > 0x0f) {
            return None;
        }
        value |= digit << shift;
        shift += 7;
    }
    *bytes = rest;
    Some(value)
}

/// Appends the occurrence list of one document. `occurrences`: field << 16 | position, rising, without repeats, not empty.
pub fn put_occurrences(out: &mut Vec<u8>, occurrences: &[u32]) {
    let (mut at, mut field_before) = (0, 0);
    while at < occurrences.len() {
        let field = occurrences[at] >> 16;
        let count = occurrences[at..].iter().take_while(|o| **o >> 16 == field).count();
        let last = at + count == occurrences.len();
        put_varint(out, (field - field_before) << 2 | u32::from(count > 1) << 1 | u32::from(last));
        if count > 1 {
            put_varint(out, count as u32);
        }
        let mut position_before = 0;
        for occurrence in &occurrences[at..at + count] {
            let position = occurrence & 0xffff;
            put_varint(out, position - position_before);
            position_before = position;
        }
        (at, field_before) = (at + count, field);
    }
}

/// Takes one occurrence list from the front of `bytes`, calling `each` with its occurrences in rising order.
#[inline]
pub fn take_occurrences(bytes: &mut &[u8], mut each: impl FnMut(Occurrence)) -> Option<()> {
    let mut field = 0u32;
    loop {
        let header = take_varint(bytes)?;
        field += header >> 2;
        let id = FieldId(u16::try_from(field).ok()?);
        let count = if header & 2 == 0 { 1 } else { take_varint(bytes)? };
        let mut position = 0u32;
        for _ in 0..count {
            position = position.checked_add(take_varint(bytes)?)?;
            each((id, u16::try_from(position).ok()?));
        }
        if header & 1 == 1 {
            return Some(());
        }
    }
}

/// Passes over one occurrence list at the front of `bytes`.
#[inline]
fn skip_occurrences(bytes: &mut &[u8]) -> Option<()> {
    // Most lists are of one position in one field, in two bytes or three.
    if let [header, position, rest @ ..] = *bytes
        && header & 0x83 == 1
    {
        *bytes = if position & 0x80 == 0 { rest } else { after_varints(rest, 1)? };
        return Some(());
    }
    loop {
        let header = take_varint(bytes)?;
        let count = if header & 2 == 0 { 1 } else { take_varint(bytes)? };
        *bytes = after_varints(bytes, count)?;
        if header & 1 == 1 {
            return Some(());
        }
    }
}

/// What is behind the first `count` numbers of `bytes`.
fn after_varints(bytes: &[u8], count: u32) -> Option<&[u8]> {
    let mut rest = bytes;
    for _ in 0..count {
        let last = rest.iter().position(|byte| byte & 0x80 == 0)?;
        rest = &rest[last + 1..];
    }
    Some(rest)
}

/// Reads one block: first the documents, then, on demand, the occurrences.
#[derive(Clone)]
pub struct Block<'a> {
    docs: SmallVec<[u32; 64]>,
    lists: &'a [u8],
}

impl<'a> Block<'a> {
    /// Decodes the documents of the block that begins with document `first`.
    pub fn parse(first: u32, mut bytes: &'a [u8]) -> Result<Self, DamagedBlock> {
        let count = take_varint(&mut bytes).filter(|n| *n > 0 && *n as usize <= bytes.len()).ok_or(DamagedBlock)?;
        let mut docs = SmallVec::from_elem(first, count as usize);
        let mut doc = first;
        for place in &mut docs[1..] {
            let step = take_varint(&mut bytes).filter(|step| *step > 0).ok_or(DamagedBlock)?;
            doc = doc.checked_add(step).ok_or(DamagedBlock)?;
            *place = doc;
        }
        Ok(Self { docs, lists: bytes })
    }

    /// The block's documents, rising.
    pub fn docs(&self) -> &[u32] {
        &self.docs
    }

    /// Calls `each` with every document and its undecoded occurrence list.
    pub fn for_each_list(&self, mut each: impl FnMut(u32, &'a [u8])) -> Result<(), DamagedBlock> {
        let mut rest = self.lists;
        for doc in &self.docs {
            let before = rest;
            skip_occurrences(&mut rest).ok_or(DamagedBlock)?;
            each(*doc, &before[..before.len() - rest.len()]);
        }
        Ok(())
    }
}

/// Document, field and position from the high bits down (32, 16, 16).
fn pack(doc: u32, (field, position): Occurrence) -> u64 {
    u64::from(doc) << 32 | u64::from(field.0) << 16 | u64::from(position)
}

impl Block<'_> {
    /// Calls `each` with every occurrence, packed as document, field, position from the high bits down (32, 16, 16).
    pub fn for_each(&self, mut each: impl FnMut(u64)) -> Result<(), DamagedBlock> {
        let mut lists = self.lists;
        for doc in &self.docs {
            take_occurrences(&mut lists, |place| each(pack(*doc, place))).ok_or(DamagedBlock)?;
        }
        Ok(())
    }

    /// Appends the occurrences in the documents of `wanted` (rising), packed as by [`Self::for_each`]. Answers the part of
    /// `wanted` that lies behind the block.
    pub fn pack_wanted<'w>(&self, wanted: &'w [u32], out: &mut Vec<u64>) -> Result<&'w [u32], DamagedBlock> {
        let (mut wanted, mut lists) = (wanted, self.lists);
        for doc in &self.docs {
            let before = wanted.iter().take_while(|next| *next < doc).count();
            wanted = &wanted[before..];
            match wanted.split_first() {
                None => break,
                Some((next, rest)) if next == doc => {
                    take_occurrences(&mut lists, |place| out.push(pack(*doc, place))).ok_or(DamagedBlock)?;
                    wanted = rest;
                }
                Some(_) => skip_occurrences(&mut lists).ok_or(DamagedBlock)?,
            }
        }
        Ok(wanted)
    }
}

/// Builds the blocks of one term from documents in rising order.
pub struct BlockWriter {
    limit: usize,
    first: u32,
    last: u32,
    count: u32,
    steps: Vec<u8>,
    lists: Vec<u8>,
}

impl Default for BlockWriter {
    fn default() -> Self {
        Self::with_limit(BLOCK_BYTES)
    }
}

impl BlockWriter {
    /// A writer of blocks of at most about `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self { limit, first: 0, last: 0, count: 0, steps: Vec::new(), lists: Vec::new() }
    }

    /// A writer that spreads `total` bytes evenly over blocks of the wanted size, or leaves them in one that is little larger:
    /// blocks in the middle of a list should not be cut into a full one and a remainder each time a document is added.
    pub fn spreading(total: usize) -> Self {
        let blocks = if total <= BLOCK_BYTES * 3 / 2 { 1 } else { total.div_ceil(BLOCK_BYTES) };
        Self::with_limit(total.div_ceil(blocks) + BLOCK_BYTES / 16)
    }

    /// Adds a document with its encoded occurrence list. Returns the block that this made complete, under its first document.
    pub fn push(&mut self, doc: u32, list: &[u8]) -> Option<(u32, Vec<u8>)> {
        let full = self.count > 0 && self.steps.len() + self.lists.len() + list.len() > self.limit;
        let done = if full { self.finish() } else { None };
        if self.count == 0 {
            self.first = doc;
        } else {
            debug_assert!(doc > self.last, "documents of a posting list rise");
            put_varint(&mut self.steps, doc - self.last);
        }
        self.last = doc;
        self.count += 1;
        self.lists.extend_from_slice(list);
        done
    }

    /// The last block, if any document is left over.
    pub fn finish(&mut self) -> Option<(u32, Vec<u8>)> {
        if self.count == 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.steps.len() + self.lists.len() + 3);
        put_varint(&mut bytes, self.count);
        bytes.append(&mut self.steps);
        bytes.append(&mut self.lists);
        self.count = 0;
        Some((self.first, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<u32, BTreeSet<(u16, u16)>>;

    fn blocks(model: &Model) -> Vec<(u32, Vec<u8>)> {
        let (mut writer, mut blocks) = (BlockWriter::default(), Vec::new());
        for (doc, places) in model {
            let packed: Vec<u32> = places.iter().map(|(f, p)| u32::from(*f) << 16 | u32::from(*p)).collect();
            let mut list = Vec::new();
            put_occurrences(&mut list, &packed);
            blocks.extend(writer.push(*doc, &list));
        }
        blocks.extend(writer.finish());
        blocks
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(model in prop::collection::btree_map(
            any::<u32>(),
            prop::collection::btree_set((0..9u16, any::<u16>()), 1..6),
            1..400,
        )) {
            let mut read = Model::new();
            let wanted: Vec<u32> = model.keys().copied().filter(|doc| doc % 3 != 0).collect();
            let (mut rest, mut packed) = (wanted.as_slice(), Vec::new());
            for (first, bytes) in blocks(&model) {
                prop_assert!(bytes.len() < 2 * BLOCK_BYTES);
                let block = Block::parse(first, &bytes).unwrap();
                block.for_each_list(|doc, mut list| {
                    let mut places = BTreeSet::new();
                    take_occurrences(&mut list, |(field, position)| { places.insert((field.0, position)); }).unwrap();
                    read.insert(doc, places);
                }).unwrap();
                rest = block.pack_wanted(rest, &mut packed).unwrap();
            }
            let expected: Vec<u64> = wanted.iter().flat_map(|doc| model[doc].iter().map(|(f, p)| pack(*doc, (FieldId(*f), *p)))).collect();
            prop_assert_eq!(read, model);
            prop_assert_eq!(packed, expected);
        }

        /// Bytes from a damaged file are refused, not followed out of bounds.
        #[test]
        fn damaged_blocks_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..64), first in any::<u32>()) {
            if let Ok(block) = Block::parse(first, &bytes) {
                let _ = block.for_each_list(|_, _| {});
            }
        }

        #[test]
        fn lists_are_passed_over_as_they_are_read(
            places in prop::collection::btree_set((0..300u16, any::<u16>()), 1..8),
            behind in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let packed: Vec<u32> = places.iter().map(|(f, p)| u32::from(*f) << 16 | u32::from(*p)).collect();
            let mut list = Vec::new();
            put_occurrences(&mut list, &packed);
            let len = list.len();
            for end in 0..len {
                prop_assert_eq!(skip_occurrences(&mut &list[..end]), None);
            }
            list.extend_from_slice(&behind);
            let mut rest = list.as_slice();
            prop_assert_eq!(skip_occurrences(&mut rest), Some(()));
            prop_assert_eq!(rest, &list[len..]);
        }

        #[test]
        fn varints_are_inverse(value in any::<u32>()) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(take_varint(&mut bytes.as_slice()), Some(value));
        }
    }

    #[test]
    fn keys_of_a_term_sort_by_document_and_before_longer_terms() {
        let key = |term: &str, doc| {
            let mut key = Vec::new();
            block_key(term.as_bytes(), doc, &mut key);
            key
        };
        assert!(key("ab", 1) < key("ab", 256) && key("ab", u32::MAX) < key("abc", 0));
        assert_eq!(parse_block_key(&key("ab", 7)), Some((b"ab".as_slice(), 7)));
    }
}
