//! Resolves the nodes of a query in one partition's dictionary and postings.

use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use storage_engine::vector::Pace;

use super::budget::{
    ONE_TYPO_MAX, PREFIX_TABLE_BYTES, PREFIX_TABLE_WORDS, PREFIX_WORDS_MAX, TWO_TYPOS_MAX, WORD_BYTES_MAX, typo_cost,
};
use super::graph::{Node, Phrase};
use super::source::{FieldTable, Reach, TermSource};
use crate::ids::FieldId;

/// What to look up for a node that is no phrase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeQuestion {
    /// The word; empty for a phrase, which needs no look-up.
    pub text: String,
    /// Whether words that begin with it count.
    pub prefix: bool,
    /// Edits allowed.
    pub budget: u8,
    /// Whether it was joined: then only tolerant occurrences count.
    pub joined: bool,
    /// The network shard over whose documents is counted; `None`: over all. Words are looked for in all documents either way.
    pub shard: Option<Arc<str>>,
}

/// What one partition found. Lists are sorted and cut at the limits, so that cutting their union gives the index's lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// Some document has the word itself.
    pub word: bool,
    /// So many words begin with it that a short prefix is looked up as a whole.
    pub many: bool,
    /// Words that begin with it: as many as decide how the prefix is looked up; none where there are [`Self::many`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixed: Vec<String>,
    /// The words that are not tolerant and begin with a short prefix: they are not counted among those, but are shown as found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixed_exact: Vec<String>,
    /// Tolerant words at cost 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub one_typo: Vec<String>,
    /// Tolerant words at cost 2.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub two_typos: Vec<String>,
    /// Byte offsets at which the word falls into two that stand side by side in so many documents (at least one).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<(u16, u64)>,
}

impl NodeQuestion {
    /// The question that completes `node`.
    pub fn of(node: &Node) -> Self {
        let d = &node.derivations;
        let prefix = d.prefix.is_some();
        Self { text: d.text.clone(), prefix, budget: d.budget, joined: node.len > 1, shard: None }
    }

    /// Looks the node up. `by_attribute` says that words count as neighbours anywhere in one field; `counted` are the documents
    /// of [`Self::shard`].
    pub async fn answer(
        &self,
        source: &dyn TermSource,
        (fields, by_attribute): (&FieldTable, bool),
        counted: Option<&RoaringBitmap>,
        pace: &dyn Pace,
    ) -> Arc<NodeFacts> {
        let key = (self.clone(), by_attribute);
        if let Some(known) = source.cache().and_then(|cache| cache.known_facts(&key)) {
            return known;
        }
        let facts = match counted {
            None => Arc::new(self.look_up(source, (fields, by_attribute), pace).await),
            // Shards have their counts for themselves, the words they share.
            Some(counted) => {
                let of_all = Self { shard: None, ..self.clone() };
                let facts = Box::pin(of_all.answer(source, (fields, by_attribute), None, pace)).await;
                match facts.splits.is_empty() {
                    true => facts,
                    false => Arc::new(self.counted_over(source, &facts, counted, by_attribute, pace).await),
                }
            }
        };
        if let Some(cache) = source.cache() {
            cache.keep_facts(key, &facts);
        }
        facts
    }

    /// The same facts, but splits counted over these documents.
    async fn counted_over(
        &self,
        source: &dyn TermSource,
        facts: &NodeFacts,
        counted: &RoaringBitmap,
        by_attribute: bool,
        pace: &dyn Pace,
    ) -> NodeFacts {
        let mut splits = Vec::with_capacity(facts.splits.len());
        for (cut, _) in &facts.splits {
            let halves = self.text.split_at(usize::from(*cut));
            let docs = pair_docs_paced(source, halves, 1, by_attribute, pace).await;
            let count = docs.intersection_len(counted);
            splits.extend((count > 0).then_some((*cut, count)));
        }
        NodeFacts { splits, ..facts.clone() }
    }

    async fn look_up(
        &self,
        source: &dyn TermSource,
        (fields, by_attribute): (&FieldTable, bool),
        pace: &dyn Pace,
    ) -> NodeFacts {
        let mut facts = NodeFacts::default();
        if self.text.is_empty() || self.text.len() > WORD_BYTES_MAX {
            return facts;
        }
        facts.word =
            if self.joined { source.is_tolerant(&self.text, fields) } else { !source.term_docs(&self.text).is_empty() };
        if self.prefix {
            self.find_prefixed(source, fields, &mut facts);
            rest(pace).await;
        }
        if self.budget > 0 {
            self.find_similar(source, fields, &mut facts);
            rest(pace).await;
        }
        for cut in source.cuts(&self.text) {
            let (left, right) = self.text.split_at(cut);
            let count = pair_docs_paced(source, (left, right), 1, by_attribute, pace).await.len();
            if count > 0 {
                facts.splits.push((cut as u16, count));
            }
        }
        facts
    }

    fn find_prefixed(&self, source: &dyn TermSource, fields: &FieldTable, facts: &mut NodeFacts) {
        // A short prefix is a table when it has many tolerant words; a longer one is a list of all words.
        let short = self.text.len() <= PREFIX_TABLE_BYTES;
        let limit = if short { PREFIX_TABLE_WORDS } else { PREFIX_WORDS_MAX + 1 };
        source.prefixed(&self.text, &mut |word| {
            if !short || source.is_tolerant(word, fields) {
                facts.prefixed.push(word.to_owned());
            } else if facts.prefixed_exact.len() < PREFIX_WORDS_MAX {
                facts.prefixed_exact.push(word.to_owned());
            }
            facts.prefixed.len() < limit
        });
        if short && facts.prefixed.len() == limit {
            (facts.many, facts.prefixed, facts.prefixed_exact) = (true, Vec::new(), Vec::new());
        }
    }

    fn find_similar(&self, source: &dyn TermSource, fields: &FieldTable, facts: &mut NodeFacts) {
        let reach = Reach { distance_max: self.budget, prefix: self.prefix };
        source.similar(&self.text, reach, fields, &mut |word, distance| {
            let (list, limit) = match typo_cost(&self.text, word, distance, self.budget) {
                Some(1) => (&mut facts.one_typo, ONE_TYPO_MAX),
                Some(2) => (&mut facts.two_typos, TWO_TYPOS_MAX),
                _ => return true,
            };
            if list.len() < limit {
                list.push(word.to_owned());
            }
            facts.one_typo.len() < ONE_TYPO_MAX || (self.budget == 2 && facts.two_typos.len() < TWO_TYPOS_MAX)
        });
    }
}

/// Lets others have their turn.
pub async fn rest(pace: &dyn Pace) {
    if pace.due() {
        pace.pause().await;
    }
}

/// Documents whose occurrences are read in one step.
const PAIR_DOCS: usize = 2048;

/// [`pair_docs`], in steps of bounded work.
pub async fn pair_docs_paced(
    source: &dyn TermSource,
    (left, right): (&str, &str),
    distance_max: u64,
    by_attribute: bool,
    pace: &dyn Pace,
) -> RoaringBitmap {
    let mut found = RoaringBitmap::new();
    let both = docs_of_both(source, left, right);
    let mut docs = both.iter();
    loop {
        rest(pace).await;
        let step: Vec<u32> = docs.by_ref().take(PAIR_DOCS).collect();
        if step.is_empty() {
            return found;
        }
        add_pairs(source, (left, right), distance_max, by_attribute, &step, &mut found);
    }
}

fn docs_of_both(source: &dyn TermSource, left: &str, right: &str) -> RoaringBitmap {
    let left = source.term_docs(left);
    if left.is_empty() { RoaringBitmap::new() } else { &*left & &*source.term_docs(right) }
}

/// The documents where `right` follows `left` at a distance of at most `distance_max` within one field; with
/// `by_attribute`, where one field has both.
pub fn pair_docs(
    source: &dyn TermSource,
    (left, right): (&str, &str),
    distance_max: u64,
    by_attribute: bool,
) -> RoaringBitmap {
    let docs: Vec<u32> = docs_of_both(source, left, right).iter().collect();
    let mut found = RoaringBitmap::new();
    if !docs.is_empty() {
        add_pairs(source, (left, right), distance_max, by_attribute, &docs, &mut found);
    }
    found
}

fn add_pairs(
    source: &dyn TermSource,
    (left, right): (&str, &str),
    distance_max: u64,
    by_attribute: bool,
    docs: &[u32],
    found: &mut RoaringBitmap,
) {
    let (mut lefts, mut rights) = (Vec::with_capacity(docs.len()), Vec::with_capacity(docs.len()));
    source.packed(left, docs, &mut lefts);
    source.packed(right, docs, &mut rights);
    let mut from = 0;
    for l in lefts {
        let field = l & !0xffff;
        let (least, most) =
            if by_attribute { (field, field | 0xffff) } else { (l + 1, (l + distance_max).min(field | 0xffff)) };
        while rights.get(from).is_some_and(|r| *r < least) {
            from += 1;
        }
        if rights.get(from).is_some_and(|r| *r <= most) {
            found.insert((l >> 32) as u32);
        }
    }
}

/// The documents that hold a phrase: all its words, each in a searched field, and in each window of three slots the
/// neighbours side by side and the outer two at most two apart. Holes are skipped.
pub fn phrase_docs(source: &dyn TermSource, fields: &FieldTable, phrase: &Phrase, by_attribute: bool) -> RoaringBitmap {
    let mut docs: Option<RoaringBitmap> = None;
    for word in phrase.0.iter().flatten() {
        let with = word_docs(source, fields, word, Occurring::Anyhow);
        docs = Some(docs.map_or_else(|| (*with).clone(), |docs| docs & &*with));
        if docs.as_ref().is_some_and(RoaringBitmap::is_empty) {
            return RoaringBitmap::new();
        }
    }
    let mut docs = docs.unwrap_or_default();
    for apart in [1, 2] {
        for pair in phrase.0.windows(apart + 1) {
            if let (Some(left), Some(right)) = (&pair[0], &pair[apart]) {
                docs &= pair_docs(source, (left, right), apart as u64, by_attribute);
            }
        }
    }
    docs
}

/// [`phrase_docs`], in steps of bounded work.
pub async fn phrase_docs_paced(
    source: &dyn TermSource,
    fields: &FieldTable,
    phrase: &Phrase,
    by_attribute: bool,
    pace: &dyn Pace,
) -> RoaringBitmap {
    let mut docs: Option<RoaringBitmap> = None;
    for word in phrase.0.iter().flatten() {
        rest(pace).await;
        let with = word_docs_paced(source, fields, word, Occurring::Anyhow, pace).await;
        docs = Some(docs.map_or_else(|| (*with).clone(), |docs| docs & &*with));
        if docs.as_ref().is_some_and(RoaringBitmap::is_empty) {
            return RoaringBitmap::new();
        }
    }
    let mut docs = docs.unwrap_or_default();
    for apart in [1, 2] {
        for pair in phrase.0.windows(apart + 1) {
            if let (Some(left), Some(right)) = (&pair[0], &pair[apart]) {
                docs &= pair_docs_paced(source, (left, right), apart as u64, by_attribute, pace).await;
            }
            if docs.is_empty() {
                return docs;
            }
        }
    }
    docs
}

/// Which occurrences of a word count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occurring {
    /// All: the typed word itself, words that begin with it, and words of phrases.
    Anyhow,
    /// Tolerant ones only: words found with typos, joined words.
    Tolerantly,
}

/// The documents that have a word in a searched field.
pub fn word_docs(source: &dyn TermSource, fields: &FieldTable, word: &str, how: Occurring) -> Rc<RoaringBitmap> {
    let all = match all_word_docs(source, fields, word, how) {
        Ok(docs) => return docs,
        Err(all) => all,
    };
    let mut found = RoaringBitmap::new();
    source.for_each_place(word, &all, &mut |doc, field| {
        if counts(fields, field, how) {
            found.insert(doc);
        }
    });
    Rc::new(found)
}

/// [`word_docs`], in steps of bounded work.
pub async fn word_docs_paced(
    source: &dyn TermSource,
    fields: &FieldTable,
    word: &str,
    how: Occurring,
    pace: &dyn Pace,
) -> Rc<RoaringBitmap> {
    let all = match all_word_docs(source, fields, word, how) {
        Ok(docs) => return docs,
        Err(all) => all,
    };
    let mut found = RoaringBitmap::new();
    let (mut docs, mut packed) = (all.iter(), Vec::new());
    loop {
        rest(pace).await;
        let step: Vec<u32> = docs.by_ref().take(PAIR_DOCS).collect();
        if step.is_empty() {
            return Rc::new(found);
        }
        packed.clear();
        source.packed(word, &step, &mut packed);
        let counted = packed.iter().filter(|place| counts(fields, FieldId((**place >> 16) as u16), how));
        found.extend(counted.map(|place| (place >> 32) as u32));
    }
}

/// The documents that have a word in a searched field, where no look at its places is needed; else all that have it.
fn all_word_docs(
    source: &dyn TermSource,
    fields: &FieldTable,
    word: &str,
    how: Occurring,
) -> Result<Rc<RoaringBitmap>, Rc<RoaringBitmap>> {
    let tolerantly = how == Occurring::Tolerantly;
    if tolerantly && fields.is_exact_word(word) {
        return Ok(Rc::new(RoaringBitmap::new()));
    }
    let docs = source.term_docs(word);
    let is_plain = fields.searches_all() && (!tolerantly || fields.tolerates_all());
    if is_plain { Ok(docs) } else { Err(docs) }
}

fn counts(fields: &FieldTable, field: FieldId, how: Occurring) -> bool {
    fields.is_searched(field) && (how == Occurring::Anyhow || fields.is_tolerant(field))
}
