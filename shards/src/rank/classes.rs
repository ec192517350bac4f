//! The documents that satisfy each node of the graph, by typo class.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;
use roaring::{MultiOps, RoaringBitmap};
use storage_engine::vector::Pace;

use super::plan::RankPlan;
use crate::query::resolve::{
    Occurring, pair_docs, pair_docs_paced, phrase_docs, phrase_docs_paced, rest, word_docs, word_docs_paced,
};
use crate::query::{FieldTable, Node, NodeQuestion, Phrase, PrefixRange, PrefixTable, PrefixTableBuilder, TermSource};

/// Classes of a node; [`ANY_CLASS`] stands for all of them.
pub const CLASSES: usize = 3;
/// The class of a path's node when the order knows no typos.
pub const ANY_CLASS: u8 = 3;

/// Lazily computed sets of one search on one partition.
pub struct NodeDocs {
    plan: Arc<RankPlan>,
    source: Rc<dyn TermSource>,
    /// The fields in which joined words are looked for, where these are not all that are searched.
    tolerant_fields: Option<FieldTable>,
    classes: Vec<[OnceCell<Rc<RoaringBitmap>>; CLASSES + 1]>,
    tables: Vec<OnceCell<Rc<PrefixTable>>>,
    /// The documents of the tables, when not all fields are searched.
    prefixed: Vec<OnceCell<Rc<RoaringBitmap>>>,
    negatives: OnceCell<RoaringBitmap>,
    phrases: RefCell<AHashMap<Phrase, Rc<RoaringBitmap>>>,
    splits: RefCell<AHashMap<Phrase, Rc<RoaringBitmap>>>,
    /// Words in searched fields, when not all fields are searched.
    words: RefCell<AHashMap<(String, Occurring), Rc<RoaringBitmap>>>,
}

impl NodeDocs {
    /// Nothing is computed yet.
    pub fn new(plan: Arc<RankPlan>, source: Rc<dyn TermSource>) -> Self {
        let classes = plan.graph.nodes.iter().map(|_| Default::default()).collect();
        let tables = plan.graph.nodes.iter().map(|_| OnceCell::new()).collect();
        let prefixed = plan.graph.nodes.iter().map(|_| OnceCell::new()).collect();
        Self {
            tolerant_fields: plan.fields.tolerant(),
            plan,
            source,
            classes,
            tables,
            prefixed,
            negatives: OnceCell::new(),
            phrases: RefCell::default(),
            splits: RefCell::default(),
            words: RefCell::default(),
        }
    }

    /// Takes the tables of all prefixes from the epoch, and builds in steps those that it does not have, which is long work.
    /// Otherwise a table is built at once when it is needed.
    pub async fn build_tables(&self, pace: &dyn Pace) {
        for (at, node) in self.plan.graph.nodes.iter().enumerate() {
            let Some(range) = node.derivations.prefix_range() else { continue };
            let table = self.shared_table(range, pace).await;
            let _ = self.tables[at].set(table);
        }
    }

    /// The table of a range. Many searches may ask for a short prefix at once, and its table is large: one of them builds it,
    /// the others wait for that. When the one is dropped, one of the others builds in its place.
    async fn shared_table(&self, range: PrefixRange, pace: &dyn Pace) -> Rc<PrefixTable> {
        let mut building = None;
        // A source that is found damaged remembers nothing any more, what others build included.
        while let Some(cache) = self.source.cache() {
            if let Some(table) = cache.known_table(&range) {
                return table;
            }
            building = cache.start_table(&range);
            if building.is_some() {
                break;
            }
            pace.pause().await;
        }
        let mut builder = PrefixTableBuilder::new(range.clone());
        while builder.step(&*self.source) {
            rest(pace).await;
        }
        let table = Rc::new(builder.finish());
        if let Some(cache) = self.source.cache() {
            cache.keep_table(range, &table);
        }
        drop(building);
        table
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

    /// The documents that hold what none of the result may hold.
    pub fn negatives(&self) -> &RoaringBitmap {
        let all = || self.plan.graph.negatives.iter().map(|negative| self.negative(negative)).collect::<Vec<_>>();
        self.negatives.get_or_init(|| all().iter().map(|docs| &**docs).union())
    }

    fn negative(&self, negative: &Phrase) -> Rc<RoaringBitmap> {
        match negative.0.as_slice() {
            [Some(word)] => self.word(word, Occurring::Anyhow),
            _ => self.phrase(negative),
        }
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
        self.warm_negatives(pace).await;
        for (at, node) in plan.graph.nodes.iter().enumerate() {
            let d = &node.derivations;
            for phrase in d.phrase.iter().chain(&d.synonyms) {
                self.warm_phrase(phrase, pace).await;
            }
            let narrowed = d.prefix.is_some() && !self.prefix_fields(node).searches_all();
            if plan.fields.searches_all() && !narrowed && plan.graph.node_rank(node).is_some() {
                continue;
            }
            if let Some((left, right)) = &d.split {
                self.warm_split(left, right, pace).await;
            }
            for word in d.one_typo.iter().chain(&d.two_typos) {
                self.warm_word(word, Occurring::Tolerantly, pace).await;
            }
            if d.word {
                self.warm_word(&d.text, occurring(node), pace).await;
            }
            if d.prefix.is_some() {
                let docs = self.table(at).docs_paced(self.prefix_fields(node), pace).await;
                let _ = self.prefixed[at].set(docs);
            }
            for class in [0, 1, 2, ANY_CLASS] {
                self.class(at, class);
                rest(pace).await;
            }
        }
    }

    async fn warm_negatives(&self, pace: &dyn Pace) {
        let mut all = RoaringBitmap::new();
        for negative in &self.plan.graph.negatives {
            match negative.0.as_slice() {
                [Some(word)] => self.warm_word(word, Occurring::Anyhow, pace).await,
                _ => self.warm_phrase(negative, pace).await,
            }
            all |= &*self.negative(negative);
        }
        let _ = self.negatives.set(all);
    }

    async fn warm_word(&self, word: &str, how: Occurring, pace: &dyn Pace) {
        let docs = word_docs_paced(&*self.source, &self.plan.fields, word, how, pace).await;
        if !self.plan.fields.searches_all() {
            self.words.borrow_mut().insert((word.to_owned(), how), docs);
        }
        rest(pace).await;
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
        let key = (word.to_owned(), how);
        if let Some(known) = self.words.borrow().get(&key) {
            return known.clone();
        }
        let docs = word_docs(&*self.source, &self.plan.fields, word, how);
        self.words.borrow_mut().insert(key, docs.clone());
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
            parts.push(self.word(&d.text, occurring(node)));
        }
        if d.prefix.is_some() {
            let docs = || self.table(at).docs(self.prefix_fields(node));
            parts.push(self.prefixed[at].get_or_init(docs).clone());
        }
        parts.extend(d.synonyms.iter().map(|synonym| self.phrase(synonym)));
        match parts.as_slice() {
            [only] => only.clone(),
            _ => Rc::new(parts.iter().map(|docs| &**docs).union()),
        }
    }

    /// Where words that begin with the text of a node are looked for.
    fn prefix_fields(&self, node: &Node) -> &FieldTable {
        match (&self.tolerant_fields, occurring(node)) {
            (Some(fields), Occurring::Tolerantly) => fields,
            _ => &self.plan.fields,
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

/// Which occurrences of a node's own word count.
fn occurring(node: &Node) -> Occurring {
    if node.len > 1 { Occurring::Tolerantly } else { Occurring::Anyhow }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;

    use charabia::TokenizerBuilder;
    use futures_lite::future::{block_on, poll_once, zip};
    use serde_json::json;

    use super::*;
    use crate::ids::FieldId;
    use crate::query::naive::NaiveSource;
    use crate::query::{Derivations, FieldTable, PrefixMode, QueryCache, QueryGraph, Reach};
    use crate::settings::Settings;

    /// What was read since somebody last looked at the pace, and the most that ever was.
    #[derive(Default)]
    struct Work {
        now: Cell<usize>,
        most: Cell<usize>,
        tables: Cell<usize>,
    }

    struct Watched {
        source: Rc<NaiveSource>,
        work: Rc<Work>,
        cache: Option<QueryCache>,
    }

    impl Work {
        fn count(&self) {
            self.now.set(self.now.get() + 1);
            self.most.set(self.most.get().max(self.now.get()));
        }
    }

    impl Pace for Work {
        fn due(&self) -> bool {
            self.now.set(0);
            true
        }

        fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
            Box::pin(futures_lite::future::yield_now())
        }
    }

    impl TermSource for Watched {
        fn documents(&self) -> &Rc<RoaringBitmap> {
            self.source.documents()
        }
        fn term_docs(&self, term: &str) -> Rc<RoaringBitmap> {
            self.work.count();
            self.source.term_docs(term)
        }
        fn packed(&self, term: &str, docs: &[u32], out: &mut Vec<u64>) {
            self.work.count();
            self.source.packed(term, docs, out);
        }
        fn prefixed(&self, prefix: &str, each: &mut dyn FnMut(&str) -> bool) {
            self.work.tables.set(self.work.tables.get() + 1);
            self.source.prefixed(prefix, each);
        }
        fn similar(&self, word: &str, reach: Reach, fields: &FieldTable, each: &mut dyn FnMut(&str, u8) -> bool) {
            self.source.similar(word, reach, fields, each);
        }
        fn word_count(&self, doc: u32, field: FieldId) -> Option<u8> {
            self.source.word_count(doc, field)
        }
        fn cache(&self) -> Option<&QueryCache> {
            self.cache.as_ref()
        }
    }

    /// Searches that asked for the same prefix at once built its table each. Now one does, and another one when that is dropped.
    #[test]
    fn a_table_is_built_by_one_of_the_searches_that_need_it() {
        let (settings, mut builder) = (Settings::default(), TokenizerBuilder::<Vec<u8>>::new());
        let tokenizer = builder.build();
        let (mut source, work) = (NaiveSource::default(), Rc::new(Work::default()));
        (0..9).for_each(|doc| source.add(doc, &json!({"a": format!("word{doc}")}), &settings, &tokenizer));
        let fields = FieldTable::new(&source.fields, &settings, None);
        let derivations = Derivations { text: "wo".into(), prefix: Some(PrefixMode::Table), ..Derivations::default() };
        let node = Node { first: 0, len: 1, position: 0, last_position: 0, derivations };
        // A prefix may come twice in a query.
        let graph = QueryGraph { nodes: vec![node.clone(), node], ..QueryGraph::default() };
        let plan = Arc::new(RankPlan { graph, fields, ..RankPlan::default() });
        let source = Rc::new(source);
        let source = |cache| Watched { source: source.clone(), work: work.clone(), cache };
        let expected = PrefixTable::build(&source(None), PrefixRange { prefix: "wo".into(), last: None });
        assert_eq!(expected.docs(&plan.fields).len(), 9);
        let shared: Rc<dyn TermSource> = Rc::new(source(Some(QueryCache::default())));
        let searches = [(); 3].map(|()| NodeDocs::new(plan.clone(), shared.clone()));
        work.tables.set(0);
        let [mut dropped, mut first, mut second] =
            searches.each_ref().map(|search| Box::pin(search.build_tables(&*work)));
        assert!(block_on(poll_once(&mut dropped)).is_none(), "it takes more than one step");
        for _ in 0..5 {
            assert!(block_on(poll_once(&mut first)).is_none() && block_on(poll_once(&mut second)).is_none());
        }
        assert_eq!(work.tables.get(), 1, "they wait");
        drop(dropped);
        block_on(zip(second, first));
        assert_eq!(work.tables.get(), 2, "one went on in the place of the one dropped");
        for search in &searches[1..] {
            assert!(
                (0..2).all(|at| **search.table(at) == expected && Rc::ptr_eq(search.table(at), searches[1].table(0)))
            );
        }
        // Another epoch has nothing to wait for, and neither does a source that remembers nothing.
        let held = shared.cache().and_then(|cache| cache.start_table(&PrefixRange { prefix: "wo".into(), last: None }));
        for cache in [None, Some(QueryCache::default())] {
            let search = NodeDocs::new(plan.clone(), Rc::new(source(cache)));
            block_on(search.build_tables(&*work));
            assert_eq!(**search.table(0), expected);
        }
        drop(held);
    }

    /// However many words a query rules out, others have their turn between any two of them; and the ranking finds all of them
    /// read, in all fields and in some.
    #[test]
    fn many_negatives_give_way() {
        let (settings, mut builder) = (Settings::default(), TokenizerBuilder::<Vec<u8>>::new());
        let tokenizer = builder.build();
        let words: Vec<String> = (0..300).map(|at| format!("word{at}")).collect();
        for search_on in [None, Some(vec!["a".to_owned()])] {
            let (mut source, work) = (NaiveSource::default(), Rc::new(Work::default()));
            for (doc, word) in words.iter().enumerate() {
                let field = ["a", "b"][doc % 2];
                source.add(
                    doc as u32,
                    &json!({field: format!("{word} {} other", words[(doc + 1) % 300])}),
                    &settings,
                    &tokenizer,
                );
            }
            let fields = FieldTable::new(&source.fields, &settings, search_on.as_deref());
            let phrase = |words: &[&String]| Phrase(words.iter().map(|word| Some((*word).clone())).collect());
            let negatives = words[..200].iter().map(|word| phrase(&[word]));
            let graph = QueryGraph {
                negatives: negatives.chain([phrase(&[&words[250], &words[251]])]).collect(),
                ..QueryGraph::default()
            };
            let plan = Arc::new(RankPlan { graph, fields, ..RankPlan::default() });
            let source: Rc<dyn TermSource> =
                Rc::new(Watched { source: source.into(), work: work.clone(), cache: None });
            let at_once = NodeDocs::new(plan.clone(), source.clone()).negatives().clone();
            assert!(at_once.contains(100) && at_once.contains(250) && !at_once.contains(260));
            let node_docs = NodeDocs::new(plan, source);
            work.now.set(0);
            work.most.set(0);
            block_on(node_docs.warm(&*work));
            assert!(work.most.get() <= 4, "{} words were read without a look", work.most.get());
            work.now.set(0);
            assert_eq!(*node_docs.negatives(), at_once);
            assert_eq!(work.now.get(), 0);
        }
    }
}
