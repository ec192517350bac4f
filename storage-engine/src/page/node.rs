//! B+tree nodes: their encoding in a page, and their decoded form that a transaction can change.
//!
//! The keys of a node share a prefix, which the page stores once. Leaf keys have at least 1 byte; the first key of a branch is
//! empty, so every key finds a child. Separators are truncated to the shortest key that separates.

use std::cmp::Ordering;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{PAGE_BYTES, PageNo, ReadError};

pub(crate) const HEADER_BYTES: usize = 16;
const SLOT_BYTES: usize = 2;
/// Lengths before the key of a leaf's entry: of the key's rest and of the value.
const LEAF_LENGTHS_BYTES: usize = 4;
/// Length before the key of a branch's entry.
const BRANCH_LENGTHS_BYTES: usize = 2;
const CHILD_BYTES: usize = 8;
/// Page and length of a value that lies in a run of its own.
const RUN_REFERENCE_BYTES: usize = 12;
/// Stands for the value's length when the value lies in a run.
const IN_RUN: u16 = u16::MAX;
/// Key and value that together are longer leave the value to a run; at least three entries fit a page.
pub(crate) const INLINE_BYTES_MAX: usize = 1300;

pub(crate) const KIND_LEAF: u8 = 1;
pub(crate) const KIND_BRANCH: u8 = 2;
pub(crate) const KIND_RUN: u8 = 3;

/// The value of a leaf's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeafValue {
    Inline(Box<[u8]>),
    /// In a run of pages that starts here.
    Run {
        page: PageNo,
        len: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafEntry {
    pub key: Box<[u8]>,
    pub value: LeafValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BranchEntry {
    /// Smallest key that may lie below; empty for the first.
    pub key: Box<[u8]>,
    pub child: PageNo,
}

/// A node that a transaction has made its own.
#[derive(Clone, Debug)]
pub(crate) enum DirtyNode {
    Leaf(Vec<LeafEntry>),
    Branch(Vec<BranchEntry>),
}

pub(crate) fn leaf_entry_bytes(entry: &LeafEntry) -> usize {
    let value = match &entry.value {
        LeafValue::Inline(bytes) => bytes.len(),
        LeafValue::Run { .. } => RUN_REFERENCE_BYTES,
    };
    SLOT_BYTES + LEAF_LENGTHS_BYTES + entry.key.len() + value
}

pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The checksum of a page's bytes behind the checksum itself; the page's place is part of it, so that a page written to
/// the wrong place is found.
pub(crate) fn checksum(bytes: &[u8], page: PageNo) -> u64 {
    xxh3_64_with_seed(&bytes[8..], page.0)
}

/// Bytes of the page that a leaf of these entries makes.
pub(crate) fn leaf_bytes(entries: &[LeafEntry]) -> usize {
    let prefix = leaf_prefix_len(entries);
    HEADER_BYTES + prefix + entries.iter().map(|entry| leaf_entry_bytes(entry) - prefix).sum::<usize>()
}

fn branch_bytes(entries: &[BranchEntry]) -> usize {
    let each = entries.iter().map(|e| SLOT_BYTES + BRANCH_LENGTHS_BYTES + CHILD_BYTES + e.key.len());
    HEADER_BYTES + each.sum::<usize>()
}

fn leaf_prefix_len(entries: &[LeafEntry]) -> usize {
    match (entries.first(), entries.last()) {
        (Some(first), Some(last)) => common_prefix(&first.key, &last.key),
        _ => 0,
    }
}

impl DirtyNode {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Branch(entries) => entries.len(),
        }
    }

    /// Bytes of the page that this node makes. May be more than a page: then it must be split.
    pub(crate) fn encoded_bytes(&self) -> usize {
        match self {
            Self::Leaf(entries) => leaf_bytes(entries),
            Self::Branch(entries) => branch_bytes(entries),
        }
    }

    /// Both in one node of at most so many bytes, or both again. `right` comes after this one, and `separator` is its smallest key in their branch.
    pub(crate) fn joined(self, right: Self, separator: Box<[u8]>, bytes_max: usize) -> Result<Self, (Self, Self)> {
        match (self, right) {
            (Self::Leaf(mut left), Self::Leaf(mut right)) => {
                let count = left.len();
                left.append(&mut right);
                if leaf_bytes(&left) <= bytes_max {
                    return Ok(Self::Leaf(left));
                }
                let right = left.split_off(count);
                Err((Self::Leaf(left), Self::Leaf(right)))
            }
            (Self::Branch(mut left), Self::Branch(mut right)) => {
                let count = left.len();
                if let Some(first) = right.first_mut() {
                    first.key = separator;
                }
                left.append(&mut right);
                let joined = Self::Branch(left);
                if joined.encoded_bytes() <= bytes_max {
                    return Ok(joined);
                }
                let Self::Branch(mut left) = joined else { unreachable!("it was just made one") };
                let mut right = left.split_off(count);
                if let Some(first) = right.first_mut() {
                    first.key = Box::default();
                }
                Err((Self::Branch(left), Self::Branch(right)))
            }
            others => Err(others),
        }
    }

    /// Splits a node of two entries or more; the right part and the key that separates it. `at_end`: the last entry is what made it too
    /// large, so that ascending inserts leave full pages behind.
    fn split(&mut self, at_end: bool) -> (Box<[u8]>, Self) {
        let middle = |sizes: Vec<usize>| {
            let (half, mut sum) = (sizes.iter().sum::<usize>() / 2, 0);
            let at = sizes.iter().take_while(|size| {
                sum += **size;
                sum <= half
            });
            at.count().clamp(1, sizes.len() - 1)
        };
        match self {
            Self::Leaf(entries) => {
                let len = entries.len();
                let at = if at_end { len - 1 } else { middle(entries.iter().map(leaf_entry_bytes).collect()) };
                let right = entries.split_off(at);
                let shared = common_prefix(&entries[at - 1].key, &right[0].key);
                // Keys ascend, so the right one has a byte where they part.
                let separator = right[0].key[..(shared + 1).min(right[0].key.len())].into();
                (separator, Self::Leaf(right))
            }
            Self::Branch(entries) => {
                let len = entries.len();
                let sizes = entries.iter().map(|e| e.key.len() + SLOT_BYTES + BRANCH_LENGTHS_BYTES + CHILD_BYTES);
                let at = if at_end { len - 1 } else { middle(sizes.collect()) };
                let mut right = entries.split_off(at);
                let separator = std::mem::take(&mut right[0].key);
                (separator, Self::Branch(right))
            }
        }
    }

    /// Splits until every part fits a page: the parts to the right, each with the key that separates it. One entry can make
    /// many parts, when it takes away the prefix that the others shared.
    pub(crate) fn split_to_fit(&mut self, at_end: bool) -> Vec<(Box<[u8]>, Self)> {
        if self.encoded_bytes() <= PAGE_BYTES {
            return Vec::new();
        }
        let (separator, mut right) = self.split(at_end);
        let mut parts = self.split_to_fit(false);
        let further = right.split_to_fit(at_end);
        parts.push((separator, right));
        parts.extend(further);
        parts
    }

    /// The page, checksum included. The node fits (`encoded_bytes`).
    pub(crate) fn encode(&self, page: PageNo) -> Vec<u8> {
        let prefix = match self {
            Self::Leaf(entries) => leaf_prefix_len(entries),
            Self::Branch(_) => 0,
        };
        let mut out = vec![0u8; HEADER_BYTES + SLOT_BYTES * self.len()];
        out.reserve_exact(PAGE_BYTES.saturating_sub(out.len()));
        let slot = |out: &mut Vec<u8>, at: usize| {
            let offset = (out.len() as u16).to_le_bytes();
            out[HEADER_BYTES + at * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&offset);
        };
        match self {
            Self::Leaf(entries) => {
                out[8] = KIND_LEAF;
                out.extend_from_slice(entries.first().map_or(&[], |entry| &entry.key[..prefix]));
                for (at, entry) in entries.iter().enumerate() {
                    slot(&mut out, at);
                    let rest = &entry.key[prefix..];
                    out.extend_from_slice(&(rest.len() as u16).to_le_bytes());
                    match &entry.value {
                        LeafValue::Inline(bytes) => {
                            out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
                            out.extend_from_slice(rest);
                            out.extend_from_slice(bytes);
                        }
                        LeafValue::Run { page, len } => {
                            out.extend_from_slice(&IN_RUN.to_le_bytes());
                            out.extend_from_slice(rest);
                            out.extend_from_slice(&page.0.to_le_bytes());
                            out.extend_from_slice(&len.to_le_bytes());
                        }
                    }
                }
            }
            Self::Branch(entries) => {
                out[8] = KIND_BRANCH;
                for (at, entry) in entries.iter().enumerate() {
                    slot(&mut out, at);
                    out.extend_from_slice(&(entry.key.len() as u16).to_le_bytes());
                    out.extend_from_slice(&entry.key);
                    out.extend_from_slice(&entry.child.0.to_le_bytes());
                }
            }
        }
        assert!(out.len() <= PAGE_BYTES, "a node is split before it outgrows its page");
        out[10..12].copy_from_slice(&(self.len() as u16).to_le_bytes());
        out[12..14].copy_from_slice(&(prefix as u16).to_le_bytes());
        out.resize(PAGE_BYTES, 0);
        let sum = checksum(&out, page).to_le_bytes();
        out[..8].copy_from_slice(&sum);
        out
    }
}

/// A whole page whose checksum was verified.
#[derive(Clone, Copy)]
pub(crate) struct PageRef<'a> {
    bytes: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The first eight of the `len` bytes at `start`, as a number that orders as they do; missing ones count as zeros.
fn first_word(bytes: &[u8], start: usize, len: usize) -> u64 {
    match bytes.get(start..start + 8) {
        Some(word) if len >= 8 => word.try_into().map_or(0, u64::from_be_bytes),
        Some(word) => word.try_into().map_or(0, u64::from_be_bytes) & !(u64::MAX >> (8 * len as u32)),
        None => {
            let mut word = [0; 8];
            let end = bytes.len().min(start + len.min(8));
            let found = bytes.get(start..end).unwrap_or_default();
            word[..found.len()].copy_from_slice(found);
            u64::from_be_bytes(word)
        }
    }
}

/// A value as a node refers to it.
pub(crate) enum ValueRef<'a> {
    Inline(&'a [u8]),
    Run { page: PageNo, len: usize },
}

impl From<ValueRef<'_>> for LeafValue {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Inline(bytes) => Self::Inline(bytes.into()),
            ValueRef::Run { page, len } => Self::Run { page, len: len as u32 },
        }
    }
}

impl<'a> PageRef<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn kind(self) -> u8 {
        self.bytes[8]
    }

    fn count(self) -> usize {
        u16_at(self.bytes, 10).unwrap_or(0)
    }

    fn prefix(self) -> &'a [u8] {
        let len = u16_at(self.bytes, 12).unwrap_or(0);
        let start = HEADER_BYTES + SLOT_BYTES * self.count();
        self.bytes.get(start..start + len).unwrap_or(&[])
    }

    /// The rest of an entry's key, and where what follows it starts.
    fn key_rest(self, at: usize, lengths_bytes: usize) -> Option<(&'a [u8], usize)> {
        let cell = u16_at(self.bytes, HEADER_BYTES + at * SLOT_BYTES)?;
        let (start, len) = (cell + lengths_bytes, u16_at(self.bytes, cell)?);
        Some((self.bytes.get(start..start + len)?, start + len))
    }

    fn lengths_bytes(self) -> usize {
        if self.kind() == KIND_LEAF { LEAF_LENGTHS_BYTES } else { BRANCH_LENGTHS_BYTES }
    }

    /// Where `probe` is among the keys, as [`NodeRef::search`] tells it; `None` when an entry lies outside of the page.
    fn search(self, probe: &[u8]) -> Option<Result<usize, usize>> {
        let (prefix, count, lengths_bytes) = (self.prefix(), self.count(), self.lengths_bytes());
        let Some(wanted) = probe.strip_prefix(prefix) else {
            return Some(Err(if prefix > probe { 0 } else { count }));
        };
        let wanted_word = first_word(wanted, 0, wanted.len());
        let (mut low, mut high) = (0, count);
        let mut probe = Probe::first(self, wanted_word, wanted.len());
        while low < high {
            let middle = probe.next(low, high);
            let cell = u16_at(self.bytes, HEADER_BYTES + middle * SLOT_BYTES)?;
            let (start, len) = (cell + lengths_bytes, u16_at(self.bytes, cell)?);
            // Most keys differ within their first bytes, so that the whole of them is rarely looked at.
            let order = match first_word(self.bytes, start, len).cmp(&wanted_word) {
                Ordering::Equal => self.bytes.get(start..start + len)?.cmp(wanted),
                unequal => unequal,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(Ok(middle)),
            }
        }
        Some(Err(low))
    }

    /// The first bytes of an entry's key, as [`first_word`] gives them.
    fn word(self, at: usize) -> Option<u64> {
        let cell = u16_at(self.bytes, HEADER_BYTES + at * SLOT_BYTES)?;
        Some(first_word(self.bytes, cell + self.lengths_bytes(), u16_at(self.bytes, cell)?))
    }

    fn value(self, at: usize) -> Option<ValueRef<'a>> {
        let cell = u16_at(self.bytes, HEADER_BYTES + at * SLOT_BYTES)?;
        let (_, start) = self.key_rest(at, LEAF_LENGTHS_BYTES)?;
        let len = u16_at(self.bytes, cell + 2)?;
        if len == usize::from(IN_RUN) {
            let page = PageNo(u64_at(self.bytes, start)?);
            let len = u32::from_le_bytes(self.bytes.get(start + 8..start + 12)?.try_into().ok()?);
            return Some(ValueRef::Run { page, len: len as usize });
        }
        self.bytes.get(start..start + len).map(ValueRef::Inline)
    }

    /// Bytes of its slots and entries. Entries lie one behind the other, the last one at the end.
    fn rest_bytes(self) -> Option<usize> {
        let count = self.count();
        let Some(last) = count.checked_sub(1) else { return Some(0) };
        let (_, end) = self.key_rest(last, self.lengths_bytes())?;
        let end = match self.kind() == KIND_LEAF {
            true => match self.value(last)? {
                ValueRef::Inline(bytes) => end + bytes.len(),
                ValueRef::Run { .. } => end + RUN_REFERENCE_BYTES,
            },
            false => end + CHILD_BYTES,
        };
        end.checked_sub(HEADER_BYTES + self.prefix().len())
    }

    fn child(self, at: usize) -> Option<PageNo> {
        let (_, start) = self.key_rest(at, BRANCH_LENGTHS_BYTES)?;
        u64_at(self.bytes, start).map(PageNo)
    }
}

/// Where a search looks next.
///
/// Each look at a page that is not in the processor's caches costs more than many comparisons there. Keys that are numbers lie
/// evenly, so it begins where the key would be if all did: that, and a place near it, is most often all there is to see.
enum Probe {
    /// At a guess.
    Guess(usize),
    /// So far from the guess, on the side where the key is.
    Near(usize),
    /// In the middle.
    Halves,
}

/// Nodes of fewer entries are searched by halves.
const GUESSED_ENTRIES_MIN: usize = 8;
/// Longer keys are no numbers.
const NUMBER_BYTES_MAX: usize = 8;
/// Entries by which a guess is usually wrong, at most.
const GUESS_REACH: usize = 3;

impl Probe {
    /// Where to begin among the keys of a page; `len` is the length of what is looked for.
    fn first(page: PageRef<'_>, wanted: u64, len: usize) -> Self {
        let count = page.count();
        if count < GUESSED_ENTRIES_MIN || len > NUMBER_BYTES_MAX {
            return Self::Halves;
        }
        if page.kind() == KIND_LEAF {
            // Numbers that documents were given in order have no gaps.
            let last_bit = u64::BITS - 8 * len.clamp(1, 8) as u32;
            let from_first = |first| wanted.saturating_sub(first) >> last_bit;
            return page
                .word(0)
                .map_or(Self::Halves, |first| Self::Guess(from_first(first).min(count as u64) as usize));
        }
        // The first key of a branch is empty.
        let (Some(least), Some(greatest)) = (page.word(1), page.word(count - 1)) else { return Self::Halves };
        let (whole, part) = (greatest.saturating_sub(least).max(1), wanted.saturating_sub(least));
        let from_first = u128::from(part) * (count as u128 - 2) / u128::from(whole);
        Self::Guess(1 + from_first.min(count as u128) as usize)
    }

    /// The entry to look at, from `low` to before `high`.
    fn next(&mut self, low: usize, high: usize) -> usize {
        match *self {
            Self::Guess(at) => {
                let at = at.clamp(low, high - 1);
                *self = Self::Near(at);
                at
            }
            Self::Near(guess) => {
                *self = Self::Halves;
                let at = if low > guess { guess + GUESS_REACH } else { guess.saturating_sub(GUESS_REACH) };
                at.clamp(low, high - 1)
            }
            Self::Halves => usize::midpoint(low, high),
        }
    }
}

/// A node to read, wherever it is.
#[derive(Clone, Copy)]
pub(crate) enum NodeRef<'a> {
    Clean(PageRef<'a>),
    Leaf(&'a [LeafEntry]),
    Branch(&'a [BranchEntry]),
}

const BROKEN: &str = "an entry lies outside of its page";

impl<'a> NodeRef<'a> {
    pub(crate) fn is_leaf(self) -> bool {
        match self {
            Self::Clean(page) => page.kind() == KIND_LEAF,
            Self::Leaf(_) => true,
            Self::Branch(_) => false,
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Clean(page) => page.count(),
            Self::Leaf(entries) => entries.len(),
            Self::Branch(entries) => entries.len(),
        }
    }

    /// `Ok(i)`: entry `i` has this key; `Err(i)`: it would stand before entry `i`.
    pub(crate) fn search(self, probe: &[u8]) -> Result<Result<usize, usize>, &'static str> {
        match self {
            Self::Clean(page) => page.search(probe).ok_or(BROKEN),
            Self::Leaf(entries) => Ok(entries.binary_search_by(|entry| (*entry.key).cmp(probe))),
            Self::Branch(entries) => Ok(entries.binary_search_by(|entry| (*entry.key).cmp(probe))),
        }
    }

    /// Which child of a branch may hold `probe`.
    pub(crate) fn child_for(self, probe: &[u8]) -> Result<usize, &'static str> {
        Ok(match self.search(probe)? {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        })
    }

    pub(crate) fn child(self, at: usize) -> Result<PageNo, &'static str> {
        match self {
            Self::Clean(page) => page.child(at),
            Self::Branch(entries) => entries.get(at).map(|entry| entry.child),
            Self::Leaf(_) => None,
        }
        .ok_or(BROKEN)
    }

    pub(crate) fn key_into(self, at: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
        out.clear();
        match self {
            Self::Clean(page) => {
                let (rest, _) = page.key_rest(at, page.lengths_bytes()).ok_or(BROKEN)?;
                out.extend_from_slice(page.prefix());
                out.extend_from_slice(rest);
            }
            Self::Leaf(entries) => out.extend_from_slice(&entries.get(at).ok_or(BROKEN)?.key),
            Self::Branch(entries) => out.extend_from_slice(&entries.get(at).ok_or(BROKEN)?.key),
        }
        Ok(())
    }

    pub(crate) fn value(self, at: usize) -> Result<ValueRef<'a>, &'static str> {
        match self {
            Self::Clean(page) => page.value(at),
            Self::Leaf(entries) => entries.get(at).map(|entry| match &entry.value {
                LeafValue::Inline(bytes) => ValueRef::Inline(bytes),
                LeafValue::Run { page, len } => ValueRef::Run { page: *page, len: *len as usize },
            }),
            Self::Branch(_) => None,
        }
        .ok_or(BROKEN)
    }

    /// Bytes of its entries, less the prefix that they share: it takes no fewer joined with others.
    pub(crate) fn rest_bytes(self) -> Result<usize, &'static str> {
        Ok(match self {
            Self::Clean(page) => page.rest_bytes().ok_or(BROKEN)?,
            Self::Leaf(entries) => leaf_bytes(entries) - HEADER_BYTES - leaf_prefix_len(entries),
            Self::Branch(entries) => branch_bytes(entries) - HEADER_BYTES,
        })
    }

    /// The node as entries of a transaction's own.
    pub(crate) fn to_dirty(self, file: &str, page: PageNo) -> Result<DirtyNode, ReadError> {
        let broken = |reason| ReadError::Misplaced { file: file.to_owned(), page: page.0, reason };
        let mut key = Vec::new();
        if self.is_leaf() {
            let mut entries = Vec::with_capacity(self.len() + 1);
            for at in 0..self.len() {
                self.key_into(at, &mut key).map_err(broken)?;
                let value = self.value(at).map_err(broken)?.into();
                entries.push(LeafEntry { key: key.as_slice().into(), value });
            }
            return Ok(DirtyNode::Leaf(entries));
        }
        let mut entries = Vec::with_capacity(self.len() + 1);
        for at in 0..self.len() {
            self.key_into(at, &mut key).map_err(broken)?;
            entries.push(BranchEntry { key: key.as_slice().into(), child: self.child(at).map_err(broken)? });
        }
        Ok(DirtyNode::Branch(entries))
    }
}
