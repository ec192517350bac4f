//! Counts the strings of a field that somebody looks for, and passes over those that cannot be among them.

use std::ops::ControlFlow;

use storage_engine::TreeId;
use storage_engine::vector::Pace;

use super::counting::{Counted, CountedSet};
use super::keys;
use super::reader::{Columns, ENTRIES_PER_LOOK, decode_block};
use super::store::{ColumnError, LeapingEntry, Onward};
use crate::ids::FieldId;
use crate::partition::trees::FACET_STRINGS;

/// Says which strings a walk looks for.
pub trait Guide {
    /// Whether a string, which is greater than all before, is looked for. Where neither it nor any other below some later text is, puts
    /// this text into `next`, which is empty before.
    fn wants(&mut self, value: &str, next: &mut Vec<u8>) -> bool;

    /// Takes a string that it wants and that documents of the set have; `Break` ends the walk.
    fn take(&mut self, value: &str, counted: Counted) -> ControlFlow<()>;
}

impl Columns<'_> {
    /// Walks through the normalised strings of a field, upwards, as far as a document of the set has them. False when it would read
    /// more blocks than it may, so that strings were missed.
    pub async fn count_guided(
        &self,
        field: FieldId,
        (set, blocks_left): (&CountedSet, &mut u64),
        guide: &mut dyn Guide,
        pace: &dyn Pace,
    ) -> Result<bool, ColumnError> {
        let prefix = keys::field(field);
        // The key of a block of the string that is being read, the string, and what was counted of it if it is wanted.
        let (mut current, mut text): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        let (mut is_wanted, mut counted): (bool, Option<Counted>) = (false, None);
        let (mut is_whole, mut skipped) = (true, Vec::new());
        let mut entry = |key: &[u8], block: &[u8], next: &mut Vec<u8>| {
            if !key.starts_with(&prefix) || key.len() < prefix.len() + 2 {
                return Ok(Onward::End);
            }
            let same = keys::are_of_one_value(&current, key);
            if !same {
                if let Some(counted) = counted.take()
                    && guide.take(as_text(&text)?, counted).is_break()
                {
                    return Ok(Onward::End);
                }
                current.clear();
                current.extend_from_slice(key);
                keys::string_into(key, &mut text).ok_or(ColumnError::Corrupt(FACET_STRINGS))?;
                skipped.clear();
                is_wanted = guide.wants(as_text(&text)?, &mut skipped);
            }
            let Some(left) = blocks_left.checked_sub(1) else {
                is_whole = false;
                counted = None;
                return Ok(Onward::End);
            };
            *blocks_left = left;
            if is_wanted {
                let (base, block) = decode_block(FACET_STRINGS, key, block)?;
                counted = set.count(base, block).map(|more| more.and(counted)).or(counted);
            } else if !skipped.is_empty() {
                debug_assert!(skipped > text, "a walk goes upwards");
                *next = keys::string_prefix(field, &skipped);
                return Ok(Onward::Key);
            }
            Ok(Onward::Next)
        };
        self.leap(FACET_STRINGS, &prefix, &mut entry, pace).await?;
        if let Some(counted) = counted {
            // The last string has no successor that would end it; whether to go on no longer matters.
            let _ = guide.take(as_text(&text)?, counted);
        }
        Ok(is_whole)
    }

    /// As [`ColumnRead::leap`](super::ColumnRead::leap), and lets others have their turn in between.
    async fn leap(
        &self,
        tree: TreeId,
        from: &[u8],
        entry: &mut LeapingEntry<'_>,
        pace: &dyn Pace,
    ) -> Result<(), ColumnError> {
        let mut from = from.to_vec();
        loop {
            let (mut seen, mut resume) = (0, None);
            let mut piece = |key: &[u8], value: &[u8], next: &mut Vec<u8>| {
                let onward = entry(key, value, next)?;
                seen += 1;
                if onward != Onward::End && seen % ENTRIES_PER_LOOK == 0 && pace.due() {
                    // No key lies between a key and the same followed by 0.
                    resume = Some(if onward == Onward::Key { std::mem::take(next) } else { [key, &[0]].concat() });
                    return Ok(Onward::End);
                }
                Ok(onward)
            };
            self.store.leap(tree, &from, &mut piece)?;
            let Some(next) = resume else { return Ok(()) };
            from = next;
            pace.pause().await;
        }
    }
}

fn as_text(value: &[u8]) -> Result<&str, ColumnError> {
    std::str::from_utf8(value).map_err(|_| ColumnError::Corrupt(FACET_STRINGS))
}
