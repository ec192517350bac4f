//! Occurrences, in the documents of a chunk, of everything a node may stand for.

use roaring::RoaringBitmap;

use super::classes::{ANY_CLASS, NodeDocs};
use super::cost::{ALONE, Occurrence, REVERSIBLE, SEARCHED, STANDING, TYPED};
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
    node_docs: &'a NodeDocs,
    chunk: &'a Chunk<'a>,
    scratch: Scratch,
    heads: Vec<Occurrence>,
    tails: Vec<Occurrence>,
    /// Lists appended to the heads; one list alone is sorted as it comes.
    lists: usize,
    has_phrases: bool,
}

/// Buffers used again for every word.
#[derive(Default)]
struct Scratch {
    docs: Vec<u32>,
    packed: Vec<u64>,
}

/// What was gathered of a node, before it is put in order.
pub struct Gathered {
    heads: Vec<Occurrence>,
    tails: Option<Vec<Occurrence>>,
    sorted: bool,
}

impl Gathered {
    /// First words, in no particular order.
    pub fn heads(&self) -> &[Occurrence] {
        &self.heads
    }

    /// Leaves only the documents at the indices `kept` (rising) of the `docs` that were gathered, numbered anew.
    pub fn keep(&mut self, kept: &[u32], docs: usize) {
        let mut places = vec![u32::MAX; docs];
        kept.iter().enumerate().for_each(|(place, index)| places[*index as usize] = place as u32);
        let renumber = |occurrences: &mut Vec<Occurrence>| {
            occurrences.retain(|occurrence| places[occurrence.index()] != u32::MAX);
            for occurrence in occurrences {
                *occurrence = occurrence.moved_to(places[occurrence.index()] as usize);
            }
        };
        renumber(&mut self.heads);
        self.tails.iter_mut().for_each(renumber);
    }

    /// By document, of `docs` documents.
    pub fn into_slot(self, docs: usize) -> Slot {
        let tails = self.tails.map(|tails| Side::new(tails, self.sorted, docs));
        Slot { heads: Side::new(self.heads, self.sorted, docs), tails }
    }
}

/// Gathers node `at` in `class` (or [`ANY_CLASS`]).
pub fn gather(
    plan: &RankPlan,
    source: &dyn TermSource,
    node_docs: &NodeDocs,
    at: usize,
    class: u8,
    chunk: &Chunk<'_>,
) -> Gathered {
    let d = &plan.graph.nodes[at].derivations;
    let multiword = d.split.is_some() || d.phrase.is_some() || d.synonyms.iter().any(|s| s.0.len() > 1);
    let mut gatherer = Gatherer {
        plan,
        source,
        node_docs,
        chunk,
        scratch: Scratch::default(),
        heads: Vec::with_capacity(chunk.docs.len() * 2),
        tails: Vec::new(),
        lists: 0,
        has_phrases: multiword,
    };
    let has = |wanted: u8| class == wanted || class == ANY_CLASS;
    if has(0) {
        gatherer.class_zero(at);
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
    let Gatherer { heads, tails, lists, .. } = gatherer;
    Gathered { heads, tails: multiword.then_some(tails), sorted: lists <= 1 }
}

/// The occurrences of one word as they are, for the exact-attribute rule.
pub fn gather_word(plan: &RankPlan, source: &dyn TermSource, word: &str, chunk: &Chunk<'_>) -> Side {
    let mut occurrences = Vec::new();
    let docs = &*source.term_docs(word) & chunk.set;
    collect((plan, source, chunk), word, &docs, TYPED, &mut Scratch::default(), &mut occurrences);
    Side::new(occurrences, true, chunk.docs.len())
}

fn collect(
    (plan, source, chunk): (&RankPlan, &dyn TermSource, &Chunk<'_>),
    word: &str,
    docs: &RoaringBitmap,
    flags: u8,
    scratch: &mut Scratch,
    into: &mut Vec<Occurrence>,
) {
    scratch.docs.clear();
    scratch.docs.extend(docs);
    scratch.packed.clear();
    source.packed(word, &scratch.docs, &mut scratch.packed);
    let mut index = 0;
    for packed in &scratch.packed {
        let doc = (packed >> 32) as u32;
        while chunk.docs[index] < doc {
            index += 1;
        }
        let field = FieldId((packed >> 16) as u16);
        let flags = flags | if plan.fields.is_searched(field) { SEARCHED } else { 0 };
        into.push(Occurrence::new(index, field, *packed as u16, flags));
    }
}

impl Gatherer<'_> {
    fn class_zero(&mut self, at: usize) {
        let node = &self.plan.graph.nodes[at];
        let d = &node.derivations;
        if let Some(phrase) = &d.phrase {
            self.phrase(phrase, 0);
            return;
        }
        if d.word {
            let typed = if node.len == 1 { TYPED } else { 0 };
            self.word(&d.text, typed | REVERSIBLE);
        }
        match &d.prefix {
            Some(PrefixMode::List(_)) => self.table(at, REVERSIBLE),
            // In table mode only the typed word itself counts in the other order.
            Some(PrefixMode::Table) => self.table(at, STANDING),
            None => {}
        }
        for synonym in &d.synonyms {
            self.phrase(synonym, STANDING);
        }
    }

    fn words(&mut self, words: &[String]) {
        for word in words {
            self.word(word, REVERSIBLE);
        }
    }

    fn heads(&mut self, word: &str, docs: &RoaringBitmap, flags: u8) {
        collect((self.plan, self.source, self.chunk), word, docs, flags, &mut self.scratch, &mut self.heads);
    }

    fn tails(&mut self, word: &str, docs: &RoaringBitmap, flags: u8) {
        collect((self.plan, self.source, self.chunk), word, docs, flags, &mut self.scratch, &mut self.tails);
    }

    /// Takes all occurrences: places and nearness count in whatever field, even where the search does not look.
    fn word(&mut self, word: &str, flags: u8) {
        let docs = &*self.source.term_docs(word) & self.chunk.set;
        if docs.is_empty() {
            return;
        }
        self.lists += 1;
        let from = self.heads.len();
        self.heads(word, &docs, flags);
        self.copy_to_tails(from);
    }

    fn table(&mut self, at: usize, flags: u8) {
        self.lists += 1;
        let (from, fields, heads) = (self.heads.len(), &self.plan.fields, &mut self.heads);
        self.node_docs.table(at).within(self.chunk.docs, |index, field, position| {
            let flags = flags | if fields.is_searched(field) { SEARCHED } else { 0 };
            heads.push(Occurrence::new(index, field, position, flags));
        });
        self.copy_to_tails(from);
    }

    /// A single word ends where it begins.
    fn copy_to_tails(&mut self, from: usize) {
        if self.has_phrases {
            self.tails.extend_from_slice(&self.heads[from..]);
        }
    }

    fn phrase(&mut self, phrase: &Phrase, flags: u8) {
        let docs = &*self.node_docs.phrase(phrase) & self.chunk.set;
        let Some(first) = phrase.0.iter().flatten().next().filter(|_| !docs.is_empty()) else { return };
        self.lists += 2;
        let alone = if phrase.0.first().is_some_and(Option::is_some) { 0 } else { ALONE };
        self.heads(first, &docs, flags | alone);
        if let Some(Some(last)) = phrase.0.last()
            && self.has_phrases
        {
            self.tails(last, &docs, flags);
        }
    }

    fn pair(&mut self, left: &str, right: &str, docs: &RoaringBitmap) {
        let docs = docs & self.chunk.set;
        if docs.is_empty() {
            return;
        }
        self.lists += 2;
        self.heads(left, &docs, 0);
        self.tails(right, &docs, 0);
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
