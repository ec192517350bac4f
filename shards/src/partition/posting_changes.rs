//! Changes of a batch to the posting lists: gathered in memory, then written in one pass in key order.

use std::collections::BTreeMap;
use std::rc::Rc;

use storage_engine::{ReadTree, TreeId, WriteTxn};

use super::error::PartitionError;
use super::memory::TermCounts;
use super::terms::{TermNo, Terms};
use super::trees::{DICTIONARY, POSTINGS};
use super::words::DocumentWords;
use crate::runtime::{Checkpoint, Runtime};
use crate::segments::{Pieces, Segments};
use crate::text::dictionary::TermKind;
use crate::text::postings::{Block, BlockWriter, block_key, parse_block_key};

const WAS: u32 = 1;
const IS: u32 = 2;
const WAS_TOLERANT: u32 = 4;
const IS_TOLERANT: u32 = 8;
/// The flags of an entry lie below the length of its list.
const FLAG_BITS: u32 = 4;

/// Entries handled between two looks at the clock: each touches memory anywhere, some tens of nanoseconds.
const ENTRIES_PER_STEP: usize = 2048;
/// Entries removed together, each perhaps from a leaf of its own.
const GONE_TOGETHER: usize = if cfg!(test) { 3 } else { 64 };
/// Terms sorted at once: some ten microseconds.
const SORTED_AT_ONCE: usize = 128;
/// Terms with more first bytes in common are sorted at once however many they are: a word that long is rarely one of many.
const COMMON_BYTES_MAX: usize = 32;

/// What becomes of one term in one document.
#[derive(Clone, Copy)]
struct Entry {
    term: TermNo,
    doc: u32,
    /// Where the new occurrence list lies: gathered lists take far less than 4 GiB.
    start: u32,
    len_and_flags: u32,
}

/// Changes of posting lists, held in memory until they are written. Documents must be added in rising order, each once
/// between two writes.
#[derive(Default)]
pub struct PostingChanges {
    /// The terms met.
    pub terms: Terms,
    entries: Segments<Entry>,
    lists: Pieces,
}

/// Terms whose kind changed, by text: `None` when they are gone.
pub type KindChanges = BTreeMap<Rc<str>, Option<TermKind>>;

impl PostingChanges {
    /// About how many bytes of memory the gathered changes take.
    pub fn memory_bytes(&self) -> usize {
        // Writing needs as much again as one index for each entry.
        self.entries.len() * (size_of::<Entry>() + 4) + self.lists.len() + self.terms.memory_bytes()
    }

    /// A document had the words `old` and has the words `new` from now on.
    pub fn add(&mut self, doc: u32, old: &DocumentWords, new: &DocumentWords) {
        debug_assert!(self.entries.last().is_none_or(|last| last.doc < doc), "documents rise");
        for (term, list, flags) in changed_terms(old, new) {
            self.put(doc, term, list, flags);
        }
    }

    /// As [`Self::add`], for a document of many words, in short steps.
    pub async fn add_in_steps(&mut self, runtime: &dyn Runtime, doc: u32, old: &DocumentWords, new: &DocumentWords) {
        debug_assert!(self.entries.last().is_none_or(|last| last.doc < doc), "documents rise");
        let mut checkpoint = Checkpoint::default();
        for (term, list, flags) in changed_terms(old, new) {
            self.put(doc, term, list, flags);
            checkpoint.tick(runtime).await;
        }
    }

    fn put(&mut self, doc: u32, term: TermNo, list: &[u8], flags: u32) {
        let start = self.lists.push(list) as u32;
        self.entries.push(Entry { term, doc, start, len_and_flags: (list.len() as u32) << FLAG_BITS | flags });
    }

    /// Writes all changes and forgets them. Notes in `kinds` which terms appeared, disappeared or changed kind.
    pub async fn write(
        &mut self,
        runtime: &dyn Runtime,
        txn: &mut WriteTxn,
        kinds: &mut KindChanges,
    ) -> Result<(), PartitionError> {
        let mut checkpoint = Checkpoint::default();
        let grouped = self.group(runtime, &mut checkpoint).await;
        let mut counts = Vec::with_capacity(grouped.terms.len());
        let mut gone = Gone::default();
        for (term, range) in &grouped.terms {
            let entries = &grouped.order[range.clone()];
            let before = txn.get(DICTIONARY, self.terms.text(*term))?.map(TermCounts::parse).transpose()?;
            match before {
                None => self.write_new_term(txn, *term, entries, runtime, &mut checkpoint).await?,
                Some(_) => self.write_known_term((txn, &mut gone), *term, entries, runtime, &mut checkpoint).await?,
            }
            let mut after = before.unwrap_or_default();
            for some in entries.chunks(ENTRIES_PER_STEP) {
                self.count(&mut after, some);
                checkpoint.look(runtime).await;
            }
            counts.push((*term, before, after));
            checkpoint.tick(runtime).await;
        }
        gone.remove(txn, POSTINGS)?;
        let mut value = Vec::new();
        for (term, before, after) in counts {
            let text = self.terms.text(term);
            value.clear();
            after.put(&mut value);
            match (before, after.kind()) {
                (None, None) => {}
                (Some(_), None) => gone.push(txn, DICTIONARY, text)?,
                (_, Some(_)) => txn.put(DICTIONARY, text, &value)?,
            }
            if before.and_then(TermCounts::kind) != after.kind() {
                let text = std::str::from_utf8(text).map_err(|_| PartitionError::Damaged("term"))?;
                kinds.insert(text.into(), after.kind());
            }
            checkpoint.tick(runtime).await;
        }
        gone.remove(txn, DICTIONARY)?;
        self.terms.clear();
        self.entries.clear();
        self.lists.clear();
        Ok(())
    }

    /// Puts the entries in order of terms (by text), then documents.
    async fn group(&self, runtime: &dyn Runtime, checkpoint: &mut Checkpoint) -> Grouped {
        let mut ends = vec![0u32; self.terms.len()];
        for entries in self.entries.chunks().flat_map(|entries| entries.chunks(ENTRIES_PER_STEP)) {
            entries.iter().for_each(|entry| ends[entry.term as usize] += 1);
            checkpoint.look(runtime).await;
        }
        let mut sorted = Vec::with_capacity(self.terms.len());
        let mut total = 0;
        for (term, end) in ends.iter_mut().enumerate() {
            let count = *end;
            *end = total;
            total += count;
            if count > 0 {
                sorted.push(term as TermNo);
            }
            checkpoint.tick(runtime).await;
        }
        let sorted = self.sorted(sorted, runtime, checkpoint).await;
        let mut order = vec![0u32; self.entries.len()];
        let mut number = 0;
        for entries in self.entries.chunks().flat_map(|entries| entries.chunks(ENTRIES_PER_STEP)) {
            for entry in entries {
                let end = &mut ends[entry.term as usize];
                order[*end as usize] = number;
                *end += 1;
                number += 1;
            }
            checkpoint.look(runtime).await;
        }
        let mut terms = Vec::with_capacity(sorted.len());
        for term in sorted {
            let start = if term == 0 { 0 } else { ends[term as usize - 1] as usize };
            terms.push((term, start..ends[term as usize] as usize));
            checkpoint.tick(runtime).await;
        }
        Grouped { terms, order }
    }

    /// Terms by text. Many are spread by their first two bytes, then by the next two and so on, until a group is small
    /// enough to be sorted in one step.
    async fn sorted(&self, terms: Vec<TermNo>, runtime: &dyn Runtime, checkpoint: &mut Checkpoint) -> Vec<TermNo> {
        let mut sorted = Vec::with_capacity(terms.len());
        // What comes first is on top. With each group, how many bytes its terms have in common.
        let mut groups = vec![(terms, 0)];
        while let Some((mut terms, common)) = groups.pop() {
            if terms.len() <= SORTED_AT_ONCE || common > COMMON_BYTES_MAX {
                terms.sort_unstable_by(|a, b| self.terms.text(*a).cmp(self.terms.text(*b)));
                sorted.append(&mut terms);
                checkpoint.look(runtime).await;
                continue;
            }
            // A term that ends here is with those that go on with zeros, and before them once sorted.
            let byte = |term: TermNo, at: usize| self.terms.text(term).get(at).copied().unwrap_or(0);
            let mut spread: BTreeMap<[u8; 2], Vec<TermNo>> = BTreeMap::new();
            for term in terms {
                spread.entry([byte(term, common), byte(term, common + 1)]).or_default().push(term);
                checkpoint.tick(runtime).await;
            }
            groups.extend(spread.into_values().rev().map(|terms| (terms, common + 2)));
        }
        sorted
    }

    fn entry(&self, at: u32) -> Entry {
        *self.entries.get(at as usize)
    }

    fn list(&self, entry: Entry) -> &[u8] {
        self.lists.get(u64::from(entry.start), (entry.len_and_flags >> FLAG_BITS) as usize)
    }

    /// Counts what `entries` of a term change.
    fn count(&self, counts: &mut TermCounts, entries: &[u32]) {
        for at in entries {
            let flags = self.entry(*at).len_and_flags;
            let change = |count: u32, was: u32, is: u32| {
                (count + u32::from(flags & is != 0)).saturating_sub(u32::from(flags & was != 0))
            };
            counts.documents = change(counts.documents, WAS, IS);
            counts.tolerant = change(counts.tolerant, WAS_TOLERANT, IS_TOLERANT);
        }
    }

    async fn write_new_term(
        &self,
        txn: &mut WriteTxn,
        term: TermNo,
        entries: &[u32],
        runtime: &dyn Runtime,
        checkpoint: &mut Checkpoint,
    ) -> Result<(), PartitionError> {
        let (mut writer, mut key) = (BlockWriter::default(), Vec::new());
        for at in entries {
            let entry = self.entry(*at);
            if entry.len_and_flags & IS == 0 {
                continue;
            }
            if let Some((first, block)) = writer.push(entry.doc, self.list(entry)) {
                block_key(self.terms.text(term), first, &mut key);
                txn.put(POSTINGS, &key, &block)?;
                checkpoint.look(runtime).await;
            }
        }
        if let Some((first, block)) = writer.finish() {
            block_key(self.terms.text(term), first, &mut key);
            txn.put(POSTINGS, &key, &block)?;
        }
        Ok(())
    }

    async fn write_known_term(
        &self,
        (txn, gone): (&mut WriteTxn, &mut Gone),
        term: TermNo,
        mut entries: &[u32],
        runtime: &dyn Runtime,
        checkpoint: &mut Checkpoint,
    ) -> Result<(), PartitionError> {
        let text = self.terms.text(term);
        while let Some(first) = entries.first() {
            let Some(block) = StoredBlock::around(txn, text, self.entry(*first).doc)? else {
                // Earlier steps of this loop emptied the list.
                return self.write_new_term(txn, term, entries, runtime, checkpoint).await;
            };
            let within = |at: &u32| block.next.is_none_or(|next| self.entry(*at).doc < next);
            let count = entries.partition_point(within).min(ENTRIES_PER_STEP);
            let (here, later) = entries.split_at(count);
            // What is removed later must not be met again.
            let gone = later.is_empty().then_some(&mut *gone);
            self.rewrite_block((txn, gone), text, &block, here)?;
            entries = later;
            checkpoint.look(runtime).await;
        }
        Ok(())
    }

    /// Writes a block anew with the changes that fall into it.
    fn rewrite_block(
        &self,
        (txn, gone): (&mut WriteTxn, Option<&mut Gone>),
        text: &[u8],
        block: &StoredBlock,
        changes: &[u32],
    ) -> Result<(), PartitionError> {
        let added: usize = changes.iter().map(|at| self.list(self.entry(*at)).len() + 1).sum();
        let mut writer = BlockWriter::spreading(block.bytes.len() + added);
        let mut written = Vec::new();
        let mut changes = changes.iter().map(|at| self.entry(*at)).peekable();
        let push_change = |writer: &mut BlockWriter, written: &mut Vec<_>, entry: Entry| {
            if entry.len_and_flags & IS != 0 {
                written.extend(writer.push(entry.doc, self.list(entry)));
            }
        };
        Block::parse(block.first, &block.bytes)?.for_each_list(|doc, list| {
            while let Some(entry) = changes.next_if(|entry| entry.doc < doc) {
                push_change(&mut writer, &mut written, entry);
            }
            match changes.next_if(|entry| entry.doc == doc) {
                Some(entry) => push_change(&mut writer, &mut written, entry),
                None => written.extend(writer.push(doc, list)),
            }
        })?;
        for entry in changes {
            push_change(&mut writer, &mut written, entry);
        }
        written.extend(writer.finish());
        let mut key = Vec::new();
        if written.first().is_none_or(|(first, _)| *first != block.first) {
            block_key(text, block.first, &mut key);
            match gone {
                Some(gone) => gone.push(txn, POSTINGS, &key)?,
                None => drop(txn.delete(POSTINGS, &key)?),
            }
        }
        for (first, bytes) in written {
            block_key(text, first, &mut key);
            txn.put(POSTINGS, &key, &bytes)?;
        }
        Ok(())
    }
}

/// The terms that change from one state of a document to another, by rising number, each with its new list and the flags of its entry.
fn changed_terms<'w>(old: &'w DocumentWords, new: &'w DocumentWords) -> impl Iterator<Item = (TermNo, &'w [u8], u32)> {
    let (mut old_terms, mut new_terms) = (old.terms.iter().peekable(), new.terms.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let term = match (old_terms.peek(), new_terms.peek()) {
                (None, None) => return None,
                (Some((a, ..)), Some((b, ..))) => *a.min(b),
                (Some((term, ..)), None) | (None, Some((term, ..))) => *term,
            };
            let was = old_terms.next_if(|(other, ..)| *other == term);
            let is = new_terms.next_if(|(other, ..)| *other == term);
            let old_list = was.map(|(_, range, _)| old.list(range));
            let new_list = is.map(|(_, range, _)| new.list(range));
            let tolerant = (was.is_some_and(|(.., t)| *t), is.is_some_and(|(.., t)| *t));
            if old_list == new_list && tolerant.0 == tolerant.1 {
                continue;
            }
            let mut flags = 0;
            for (flag, set) in
                [(WAS, was.is_some()), (IS, is.is_some()), (WAS_TOLERANT, tolerant.0), (IS_TOLERANT, tolerant.1)]
            {
                flags |= if set { flag } else { 0 };
            }
            return Some((term, new_list.unwrap_or_default(), flags));
        }
    })
}

/// Keys of one tree that are removed together: such that rise, and are not looked at before.
#[derive(Default)]
struct Gone(Vec<Vec<u8>>);

impl Gone {
    fn push(&mut self, txn: &mut WriteTxn, tree: TreeId, key: &[u8]) -> Result<(), PartitionError> {
        self.0.push(key.to_vec());
        if self.0.len() < GONE_TOGETHER { Ok(()) } else { self.remove(txn, tree) }
    }

    fn remove(&mut self, txn: &mut WriteTxn, tree: TreeId) -> Result<(), PartitionError> {
        txn.delete_run(tree, &self.0, &mut |_, _| true)?;
        self.0.clear();
        Ok(())
    }
}

/// The entries of a batch by term.
struct Grouped {
    /// Terms in byte order with their part of `order`.
    terms: Vec<(TermNo, std::ops::Range<usize>)>,
    /// Numbers of entries.
    order: Vec<u32>,
}

/// A block as it is stored now.
struct StoredBlock {
    first: u32,
    bytes: Vec<u8>,
    /// Where the next block of the term begins.
    next: Option<u32>,
}

impl StoredBlock {
    /// The block of `term` that document `doc` belongs into: the last one that begins at or before it, otherwise the first.
    fn around(txn: &WriteTxn, term: &[u8], doc: u32) -> Result<Option<Self>, PartitionError> {
        let mut key = Vec::with_capacity(term.len() + 5);
        block_key(term, doc.saturating_add(1), &mut key);
        let of_term = |key: &[u8]| parse_block_key(key).filter(|(other, _)| *other == term).map(|(_, first)| first);
        let mut cursor = txn.cursor(POSTINGS);
        cursor.seek(&key)?;
        if cursor.prev()?.and_then(|(key, _)| of_term(key)).is_none() {
            block_key(term, 0, &mut key);
            cursor.seek(&key)?;
        }
        let Some((first, bytes)) = cursor.next()?.and_then(|(key, value)| Some((of_term(key)?, value.to_vec()))) else {
            return Ok(None);
        };
        let next = cursor.next()?.and_then(|(key, _)| of_term(key));
        Ok(Some(Self { first, bytes, next }))
    }
}
