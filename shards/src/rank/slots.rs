//! The occurrences of everything a node may stand for, in the documents of a chunk.

use roaring::RoaringBitmap;

use super::classes::{ANY_CLASS, NodeDocs};
use super::cost::{ALONE, Occurrence, REVERSIBLE, SEARCHED, TYPED};
use super::plan::RankPlan;
use crate::ids::FieldId;
use crate::query::{Phrase, PrefixMode, TermSource};

/// Documents ranked together: local numbers, rising. At most 2^24.
pub struct Chunk<'a> {
    /// As a list.
    pub docs: &'a [u32],
    /// As a set.
    pub set: &'a RoaringBitmap,
}

/// Occurrences by document of a chunk.
#[derive(Default)]
pub struct Side {
    starts: Vec<u32>,
    occurrences: Vec<Occurrence>,
}

/// A node in one typo class: its occurrences in a chunk.
pub struct Slot {
    heads: Side,
    /// Where the last words of its phrases are; `None` when all its derivations are single words.
    tails: Option<Side>,
}

impl Side {
    fn new(mut occurrences: Vec<Occurrence>, sorted: bool, docs: usize) -> Self {
        if !sorted {
            occurrences.sort_unstable();
        }
        let mut starts = Vec::with_capacity(docs + 1);
        let mut at = 0;
        for doc in 0..=docs {
            while occurrences.get(at).is_some_and(|occurrence| occurrence.index() < doc) {
                at += 1;
            }
            starts.push(at as u32);
        }
        Self { starts, occurrences }
    }

    /// The occurrences in the document at `index` of the chunk, by field and position.
    pub fn of(&self, index: usize) -> &[Occurrence] {
        &self.occurrences[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}

impl Slot {
    /// First words, which also tell the place of a phrase.
    pub fn heads(&self, index: usize) -> &[Occurrence] {
        self.heads.of(index)
    }

    /// Last words.
    pub fn tails(&self, index: usize) -> &[Occurrence] {
        self.tails.as_ref().unwrap_or(&self.heads).of(index)
    }
}

struct Gatherer<'a> {
    plan: &'a RankPlan,
    source: &'a dyn TermSource,
    chunk: &'a Chunk<'a>,
    heads: Vec<Occurrence>,
    tails: Vec<Occurrence>,
    /// Lists appended to the heads; one list alone is sorted as it comes.
    lists: usize,
    has_phrases: bool,
}

/// Gathers node `at` in `class` (or [`ANY_CLASS`]).
pub fn gather(
    plan: &RankPlan,
    source: &dyn TermSource,
    node_docs: &NodeDocs,
    at: usize,
    class: u8,
    chunk: &Chunk<'_>,
) -> Slot {
    let d = &plan.graph.nodes[at].derivations;
    let multiword = d.split.is_some() || d.phrase.is_some() || d.synonyms.iter().any(|s| s.0.len() > 1);
    let mut gatherer =
        Gatherer { plan, source, chunk, heads: Vec::new(), tails: Vec::new(), lists: 0, has_phrases: multiword };
    let has = |wanted: u8| class == wanted || class == ANY_CLASS;
    if has(0) {
        gatherer.class_zero(node_docs, at);
    }
    if has(1) {
        gatherer.words(&d.one_typo);
        if let Some((left, right)) = &d.split {
            let docs = node_docs.split(left, right);
            gatherer.pair(left, right, &docs);
        }
    }
    if has(2) {
        gatherer.words(&d.two_typos);
    }
    let sorted = gatherer.lists <= 1;
    let tails = multiword.then(|| Side::new(gatherer.tails, sorted, chunk.docs.len()));
    Slot { heads: Side::new(gatherer.heads, sorted, chunk.docs.len()), tails }
}

/// The occurrences of one word as they are, for the exact-attribute rule.
pub fn gather_word(plan: &RankPlan, source: &dyn TermSource, word: &str, chunk: &Chunk<'_>) -> Side {
    let mut occurrences = Vec::new();
    let docs = &*source.term_docs(word) & chunk.set;
    collect(plan, source, chunk, word, &docs, TYPED, &mut |occurrence| occurrences.push(occurrence));
    Side::new(occurrences, true, chunk.docs.len())
}

fn collect(
    plan: &RankPlan,
    source: &dyn TermSource,
    chunk: &Chunk<'_>,
    word: &str,
    docs: &RoaringBitmap,
    flags: u8,
    push: &mut dyn FnMut(Occurrence),
) {
    let mut index = 0;
    source.occurrences(word, docs, &mut |doc, field, positions| {
        while chunk.docs[index] < doc {
            index += 1;
        }
        let flags = flags | if plan.fields.is_searched(field) { SEARCHED } else { 0 };
        for position in positions {
            push(Occurrence::new(index, field, *position, flags));
        }
    });
}

impl Gatherer<'_> {
    fn class_zero(&mut self, node_docs: &NodeDocs, at: usize) {
        let node = &self.plan.graph.nodes[at];
        let d = &node.derivations;
        if let Some(phrase) = &d.phrase {
            self.phrase(node_docs, phrase);
            return;
        }
        if d.word {
            let typed = if node.len == 1 { TYPED } else { 0 };
            self.word(&d.text, typed | REVERSIBLE);
        }
        match &d.prefix {
            Some(PrefixMode::List(_)) => self.words(node_docs.prefix_words(at)),
            Some(PrefixMode::Table) => self.table(&d.text),
            None => {}
        }
        for synonym in &d.synonyms {
            self.phrase(node_docs, synonym);
        }
    }

    fn words(&mut self, words: &[String]) {
        for word in words {
            self.word(word, REVERSIBLE);
        }
    }

    /// Takes all occurrences: places and nearness count in whatever field, even where the search does not look.
    fn word(&mut self, word: &str, flags: u8) {
        let docs = &*self.source.term_docs(word) & self.chunk.set;
        if docs.is_empty() {
            return;
        }
        self.lists += 1;
        let (heads, tails, both) = (&mut self.heads, &mut self.tails, self.has_phrases);
        collect(self.plan, self.source, self.chunk, word, &docs, flags, &mut |occurrence| {
            heads.push(occurrence);
            if both {
                tails.push(occurrence);
            }
        });
    }

    /// In table mode only the typed word itself counts in the other order.
    fn table(&mut self, prefix: &str) {
        let table = self.source.prefix_table(prefix);
        self.lists += 1;
        for (index, doc) in self.chunk.docs.iter().enumerate() {
            for (field, position) in table.of(*doc) {
                let flags = if self.plan.fields.is_searched(field) { SEARCHED } else { 0 };
                let occurrence = Occurrence::new(index, field, position, flags);
                self.heads.push(occurrence);
                if self.has_phrases {
                    self.tails.push(occurrence);
                }
            }
        }
    }

    fn phrase(&mut self, node_docs: &NodeDocs, phrase: &Phrase) {
        let docs = &*node_docs.phrase(phrase) & self.chunk.set;
        let Some(first) = phrase.0.iter().flatten().next().filter(|_| !docs.is_empty()) else { return };
        self.lists += 2;
        let alone = if phrase.0.first().is_some_and(Option::is_some) { 0 } else { ALONE };
        let heads = &mut self.heads;
        collect(self.plan, self.source, self.chunk, first, &docs, alone, &mut |occurrence| heads.push(occurrence));
        if let Some(Some(last)) = phrase.0.last() {
            let tails = if self.has_phrases { &mut self.tails } else { return };
            collect(self.plan, self.source, self.chunk, last, &docs, 0, &mut |occurrence| tails.push(occurrence));
        }
    }

    fn pair(&mut self, left: &str, right: &str, docs: &RoaringBitmap) {
        let docs = docs & self.chunk.set;
        if docs.is_empty() {
            return;
        }
        self.lists += 2;
        let (heads, tails) = (&mut self.heads, &mut self.tails);
        collect(self.plan, self.source, self.chunk, left, &docs, 0, &mut |occurrence| heads.push(occurrence));
        collect(self.plan, self.source, self.chunk, right, &docs, 0, &mut |occurrence| tails.push(occurrence));
    }
}

/// Which fields hold an occurrence of every list, of those that are searched.
pub fn common_fields(lists: &[&[Occurrence]]) -> Vec<FieldId> {
    let Some((first, rest)) = lists.split_first() else { return Vec::new() };
    let mut fields: Vec<FieldId> =
        first.iter().filter(|o| o.has(SEARCHED) && o.has(TYPED)).map(|o| o.field()).collect();
    fields.dedup();
    fields.retain(|field| rest.iter().all(|list| list.iter().any(|o| o.has(TYPED) && o.field() == *field)));
    fields
}
