//! What changes of documents touch in the columns. The rest of what is kept in memory of one epoch is right at the next.

use ahash::AHashMap;
use roaring::RoaringBitmap;
use storage_engine::TreeId;

use super::keys::Stretch;
use crate::ids::{FieldId, LocalDocId};
use crate::partition::trees::{FACET_NUMBERS, FACET_STRINGS, GEO_CELLS};

/// Keys that are remembered of a stretch; of more it is only known that they are many.
const KEYS_MAX: usize = if cfg!(test) { 6 } else { 512 };
/// Documents, the same way.
const DOCUMENTS_MAX: u64 = if cfg!(test) { 6 } else { 4096 };
/// Bytes of all keys; with more of them anything may be touched.
const BYTES_MAX: usize = if cfg!(test) { 1000 } else { 4 << 20 };

/// Touched blocks, values and points.
#[derive(Default)]
pub struct Touched {
    is_everything: bool,
    /// Bytes of all keys that were ever remembered.
    bytes: usize,
    /// The keys of blocks; `None` where they are many.
    blocks: AHashMap<Stretch, Option<Vec<Box<[u8]>>>>,
    /// The documents that have other values or another point; `None` where they are many.
    documents: AHashMap<Touches, Option<RoaringBitmap>>,
}

/// What documents have.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Touches {
    /// Values on a field.
    Values(FieldId),
    Point,
}

impl Touched {
    /// All there is, or may be.
    pub fn everything() -> Self {
        Self { is_everything: true, ..Self::default() }
    }

    /// Adds what was touched later.
    pub fn add(&mut self, later: Self) {
        self.is_everything |= later.is_everything;
        self.bytes += later.bytes;
        for (stretch, keys) in later.blocks {
            let known = self.blocks.entry(stretch).or_insert_with(|| Some(Vec::new()));
            *known = known.take().zip(keys).map(|(known, keys)| [known, keys].concat());
            known.take_if(|keys| keys.len() > KEYS_MAX);
        }
        for (facts, documents) in later.documents {
            let known = self.documents.entry(facts).or_insert_with(|| Some(RoaringBitmap::new()));
            *known = known.take().zip(documents).map(|(known, documents)| known | documents);
            known.take_if(|documents| documents.len() > DOCUMENTS_MAX);
        }
        self.forget_if_much();
    }

    /// A block is written or deleted.
    pub(super) fn touch_block(&mut self, tree: TreeId, key: &[u8]) {
        if self.is_everything || ![FACET_NUMBERS, FACET_STRINGS, GEO_CELLS].contains(&tree) {
            return;
        }
        let known = self.blocks.entry(Stretch::around(tree, key)).or_insert_with(|| Some(Vec::new()));
        if let Some(keys) = known {
            keys.push(key.into());
            known.take_if(|keys| keys.len() > KEYS_MAX);
            self.bytes += key.len();
            self.forget_if_much();
        }
    }

    /// A document's values or its point are written or deleted.
    pub(super) fn touch_document(&mut self, facts: Touches, document: LocalDocId) {
        if self.is_everything {
            return;
        }
        let known = self.documents.entry(facts).or_insert_with(|| Some(RoaringBitmap::new()));
        if let Some(documents) = known {
            documents.insert(document.0);
            known.take_if(|documents| documents.len() > DOCUMENTS_MAX);
        }
    }

    /// Keys may be long, and of very many fields.
    fn forget_if_much(&mut self) {
        if self.bytes > BYTES_MAX {
            *self = Self::everything();
        }
    }

    /// The keys of blocks in a stretch; `None` where they may be any.
    pub(super) fn blocks(&self, stretch: &Stretch) -> Option<&[Box<[u8]>]> {
        if self.is_everything {
            return None;
        }
        self.blocks.get(stretch).map_or(Some(&[]), |keys| keys.as_deref())
    }

    /// The documents of which these facts are others; `None` where they may be any.
    pub(super) fn documents(&self, facts: Touches) -> Option<RoaringBitmap> {
        if self.is_everything {
            return None;
        }
        self.documents.get(&facts).map_or_else(|| Some(RoaringBitmap::new()), Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_touched_is_known_unless_it_is_much() {
        let (stretch, other) = (Stretch::around(FACET_NUMBERS, b"ab1"), Stretch::around(FACET_STRINGS, b"ab1"));
        let values = Touches::Values(FieldId(3));
        let touch = |keys: std::ops::Range<u32>| {
            let mut touched = Touched::default();
            for number in keys {
                touched.touch_block(FACET_NUMBERS, format!("ab{number}").as_bytes());
                touched.touch_document(values, LocalDocId(number));
            }
            touched
        };
        let mut touched = touch(0..4);
        touched.add(touch(2..5));
        assert_eq!(touched.blocks(&stretch), None, "seven keys");
        assert_eq!(touched.documents(values), Some((0..5).collect()));
        assert_eq!(
            (touched.blocks(&other), touched.documents(Touches::Point)),
            (Some(&[][..]), Some(RoaringBitmap::new()))
        );
        touched.add(touch(5..7));
        assert_eq!(touched.documents(values), None);
        touched.add(touch(0..1));
        assert_eq!((touched.blocks(&stretch), touched.documents(values)), (None, None));
        assert_eq!(touch(7..9).blocks(&stretch).map(<[_]>::len), Some(2));
        assert_eq!(touch(0..7).blocks(&stretch), None);
        let mut long = Touched::default();
        long.touch_block(FACET_NUMBERS, &[b'a'; 999]);
        assert_eq!(long.blocks(&other), Some(&[][..]));
        long.touch_block(FACET_NUMBERS, b"ab");
        assert_eq!((long.blocks(&other), long.documents(values)), (None, None));
        touched = touch(0..1);
        touched.add(Touched::everything());
        assert_eq!((touched.blocks(&other), touched.documents(Touches::Point)), (None, None));
    }
}
