//! The documents that satisfy each node of the graph, by typo class.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;
use roaring::{MultiOps, RoaringBitmap};
use storage_engine::vector::Pace;

use super::plan::RankPlan;
use crate::query::resolve::{Occurring, pair_docs, pair_docs_paced, phrase_docs, phrase_docs_paced, rest, word_docs};
use crate::query::{NodeQuestion, Phrase, PrefixRange, PrefixTable, TermSource};

/// Classes of a node; [`ANY_CLASS`] stands for all of them.
pub const CLASSES: usize = 3;
/// The class of a path's node when the order knows no typos.
pub const ANY_CLASS: u8 = 3;

/// Lazily computed sets of one search on one partition.
pub struct NodeDocs {
    plan: Arc<RankPlan>,
    source: Rc<dyn TermSource>,
    classes: Vec<[OnceCell<Rc<RoaringBitmap>>; CLASSES + 1]>,
    tables: Vec<OnceCell<Rc<PrefixTable>>>,
    phrases: RefCell<AHashMap<Phrase, Rc<RoaringBitmap>>>,
    splits: RefCell<AHashMap<Phrase, Rc<RoaringBitmap>>>,
    /// Words in searched fields where they may be found through typos, when not all fields are searched.
    words: RefCell<AHashMap<String, Rc<RoaringBitmap>>>,
}

impl NodeDocs {
    /// Nothing is computed yet.
    pub fn new(plan: Arc<RankPlan>, source: Rc<dyn TermSource>) -> Self {
        let classes = plan.graph.nodes.iter().map(|_| Default::default()).collect();
        let tables = plan.graph.nodes.iter().map(|_| OnceCell::new()).collect();
        Self {
            plan,
            source,
            classes,
            tables,
            phrases: RefCell::default(),
            splits: RefCell::default(),
            words: RefCell::default(),
        }
    }

    /// The prefixes whose tables neither this search nor the epoch has: building them is long work that should be done in
    /// steps, and [`Self::give_table`] takes the result. Otherwise it is done at once when needed.
    pub fn missing_tables(&self) -> Vec<(usize, PrefixRange)> {
        let nodes = self.plan.graph.nodes.iter().enumerate();
        nodes
            .filter_map(|(at, node)| {
                let range = node.derivations.prefix_range()?;
                match self.source.cache().and_then(|cache| cache.known_table(&range)) {
                    Some(table) => {
                        let _ = self.tables[at].set(table);
                        None
                    }
                    None => Some((at, range)),
                }
            })
            .collect()
    }

    /// Takes the table of node `at`.
    pub fn give_table(&self, at: usize, range: PrefixRange, table: PrefixTable) {
        let table = Rc::new(table);
        if let Some(cache) = self.source.cache() {
            cache.keep_table(range, &table);
        }
        let _ = self.tables[at].set(table);
    }

    /// The documents that satisfy node `at` in `class` (0 to 2, or [`ANY_CLASS`]); a document may be in several classes.
    pub fn class(&self, at: usize, class: u8) -> &Rc<RoaringBitmap> {
        self.classes[at][usize::from(class)].get_or_init(|| {
            let node = &self.plan.graph.nodes[at];
            // What a single word may stand for follows from the epoch, unless other instances have a say; joined words also
            // from the words beside them.
            let is_word = node.len == 1 && node.derivations.phrase.is_none() && !self.plan.graph.is_shared;
            match self.source.cache().filter(|_| is_word && self.plan.fields.searches_all()) {
                Some(cache) => {
                    let cut = node.derivations.split.as_ref().map_or(0, |(left, _)| left.len() as u16);
                    cache.class((NodeQuestion::of(node), class, cut), || self.make_class(at, class))
                }
                None => self.make_class(at, class),
            }
        })
    }

    fn make_class(&self, at: usize, class: u8) -> Rc<RoaringBitmap> {
        match class {
            0 => self.class_zero(at),
            1 => self.class_one(at),
            2 => self.words(&self.plan.graph.nodes[at].derivations.two_typos, Occurring::Tolerantly),
            _ => Rc::new([0, 1, 2].map(|class| &**self.class(at, class)).union()),
        }
    }

    /// The words that begin with the text of node `at`; empty unless it is a prefix.
    pub fn table(&self, at: usize) -> &Rc<PrefixTable> {
        self.tables[at].get_or_init(|| {
            let Some(range) = self.plan.graph.nodes[at].derivations.prefix_range() else { return Rc::default() };
            Rc::new(PrefixTable::build(&*self.source, range))
        })
    }

    /// The documents that hold a phrase.
    pub fn phrase(&self, phrase: &Phrase) -> Rc<RoaringBitmap> {
        if let Some(docs) = self.phrases.borrow().get(phrase) {
            return docs.clone();
        }
        let docs = Rc::new(phrase_docs(&*self.source, &self.plan.fields, phrase, self.plan.by_attribute));
        self.phrases.borrow_mut().insert(phrase.clone(), docs.clone());
        docs
    }

    /// The documents that hold the two words of a split side by side.
    pub fn split(&self, left: &str, right: &str) -> Rc<RoaringBitmap> {
        let phrase = Phrase(vec![Some(left.to_owned()), Some(right.to_owned())]);
        if let Some(docs) = self.splits.borrow().get(&phrase) {
            return docs.clone();
        }
        let docs = pair_docs(&*self.source, (left, right), 1, self.plan.by_attribute);
        let docs = Rc::new(self.in_searched_fields(docs, left, right));
        self.splits.borrow_mut().insert(phrase, docs.clone());
        docs
    }

    /// Computes the sets that take long, and those that every search needs, letting others have their turn between any two words:
    /// afterwards they are at hand. The others are made when they are asked for, which is mostly never.
    pub async fn warm(&self, pace: &dyn Pace) {
        let plan = &*self.plan;
        for phrase in plan.graph.negatives.iter().filter(|phrase| phrase.0.len() > 1) {
            self.warm_phrase(phrase, pace).await;
        }
        for (at, node) in plan.graph.nodes.iter().enumerate() {
            let d = &node.derivations;
            for phrase in d.phrase.iter().chain(&d.synonyms) {
                self.warm_phrase(phrase, pace).await;
            }
            if plan.fields.searches_all() && plan.graph.node_rank(node).is_some() {
                continue;
            }
            if let Some((left, right)) = &d.split {
                self.warm_split(left, right, pace).await;
            }
            for word in d.one_typo.iter().chain(&d.two_typos) {
                self.word(word, Occurring::Tolerantly);
                rest(pace).await;
            }
            for class in [0, 1, 2, ANY_CLASS] {
                self.class(at, class);
                rest(pace).await;
            }
        }
    }

    async fn warm_phrase(&self, phrase: &Phrase, pace: &dyn Pace) {
        let docs = phrase_docs_paced(&*self.source, &self.plan.fields, phrase, self.plan.by_attribute, pace).await;
        self.phrases.borrow_mut().insert(phrase.clone(), Rc::new(docs));
    }

    async fn warm_split(&self, left: &str, right: &str, pace: &dyn Pace) {
        let docs = pair_docs_paced(&*self.source, (left, right), 1, self.plan.by_attribute, pace).await;
        let phrase = Phrase(vec![Some(left.to_owned()), Some(right.to_owned())]);
        let docs = Rc::new(self.in_searched_fields(docs, left, right));
        self.splits.borrow_mut().insert(phrase, docs);
    }

    /// Of the documents that hold two words side by side, those that have each in a searched field.
    fn in_searched_fields(&self, mut docs: RoaringBitmap, left: &str, right: &str) -> RoaringBitmap {
        let (source, fields) = (&*self.source, &self.plan.fields);
        if !fields.searches_all() && !docs.is_empty() {
            docs &= &*word_docs(source, fields, left, Occurring::Anyhow);
            docs &= &*word_docs(source, fields, right, Occurring::Anyhow);
        }
        docs
    }

    fn word(&self, word: &str, how: Occurring) -> Rc<RoaringBitmap> {
        if self.plan.fields.searches_all() {
            // Then the source keeps it.
            return word_docs(&*self.source, &self.plan.fields, word, how);
        }
        if let Some(known) = self.words.borrow().get(word).filter(|_| how == Occurring::Tolerantly) {
            return known.clone();
        }
        let docs = word_docs(&*self.source, &self.plan.fields, word, how);
        if how == Occurring::Tolerantly {
            self.words.borrow_mut().insert(word.to_owned(), docs.clone());
        }
        docs
    }

    fn words(&self, words: &[String], how: Occurring) -> Rc<RoaringBitmap> {
        let docs: Vec<_> = words.iter().map(|word| self.word(word, how)).collect();
        Rc::new(docs.iter().map(|docs| &**docs).union())
    }

    fn class_zero(&self, at: usize) -> Rc<RoaringBitmap> {
        let node = &self.plan.graph.nodes[at];
        let d = &node.derivations;
        if let Some(phrase) = &d.phrase {
            return self.phrase(phrase);
        }
        let mut parts = Vec::new();
        if d.word {
            let how = if node.len > 1 { Occurring::Tolerantly } else { Occurring::Anyhow };
            parts.push(word_docs(&*self.source, &self.plan.fields, &d.text, how));
        }
        if d.prefix.is_some() {
            parts.push(self.table(at).docs(&self.plan.fields));
        }
        parts.extend(d.synonyms.iter().map(|synonym| self.phrase(synonym)));
        match parts.as_slice() {
            [only] => only.clone(),
            _ => Rc::new(parts.iter().map(|docs| &**docs).union()),
        }
    }

    fn class_one(&self, at: usize) -> Rc<RoaringBitmap> {
        let d = &self.plan.graph.nodes[at].derivations;
        let words = self.words(&d.one_typo, Occurring::Tolerantly);
        match &d.split {
            Some((left, right)) => Rc::new(&*words | &*self.split(left, right)),
            None => words,
        }
    }
}
