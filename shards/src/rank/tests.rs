//! Ranking over the naive index: the documented example, rules one by one, and any number of partitions.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use charabia::{Tokenizer, TokenizerBuilder};
use futures_lite::future::block_on;
use roaring::RoaringBitmap;
use serde_json::{Value, json};
use storage_engine::vector::Unpaced;

use super::classes::NodeDocs;
use super::plan::{RankPlan, SortBy, SortValue};
use super::ranker::{RankedPart, Ranker};
use super::rules::RuleList;
use super::score::Scorer;
use super::score_facts::ScoreFacts;
use super::sort_source::SortSource;
use crate::facets::distinct::GroupValue;
use crate::fields::FieldsMap;
use crate::ids::{DocId, PartitionNo};
use crate::query::context::normalise_synonyms;
use crate::query::naive::NaiveSource;
use crate::query::{FieldTable, NodeQuestion, QueryContext, QueryGraph, TermSource};
use crate::search::MatchingStrategy;
use crate::settings::Settings;

/// Sorts by top-level numbers and strings of the documents themselves; the numbers of their field `group` are their groups.
#[derive(Default)]
struct NaiveSorter(Vec<(u32, Value)>);

impl SortSource for NaiveSorter {
    fn sort_values(&self, by: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String> {
        let SortBy::Field { name, .. } = by else { return Ok(vec![SortValue::Missing; docs.len()]) };
        let of = |doc: &u32| self.0.iter().find(|(number, _)| number == doc).map(|(_, value)| &value[name.as_str()]);
        let value = |doc| match of(doc) {
            Some(Value::Number(number)) => SortValue::Number(number.as_f64().unwrap_or(0.0)),
            Some(Value::String(text)) => SortValue::Text(text.clone()),
            _ => SortValue::Missing,
        };
        Ok(docs.iter().map(value).collect())
    }

    fn group_values(&self, docs: &[u32]) -> Result<Option<Vec<Vec<GroupValue>>>, String> {
        let of = |doc: &u32| self.0.iter().find(|(number, _)| number == doc).map(|(_, value)| groups_of(value));
        Ok(Some(docs.iter().map(|doc| of(doc).unwrap_or_default()).collect()))
    }
}

/// The groups of a document.
fn groups_of(doc: &Value) -> Vec<GroupValue> {
    let groups = doc["group"].as_array().map_or(&[][..], Vec::as_slice);
    groups.iter().filter_map(Value::as_u64).map(GroupValue::Number).collect()
}

struct Search<'a> {
    settings: Settings,
    docs: &'a [Value],
    partitions: u16,
    strategy: MatchingStrategy,
    search_on: Option<Vec<String>>,
    sort: Vec<SortBy>,
    wanted: usize,
    whole_buckets: bool,
    one_per_group: bool,
    scores: bool,
}

impl<'a> Search<'a> {
    fn over(docs: &'a [Value]) -> Self {
        let (strategy, sort) = (MatchingStrategy::Last, Vec::new());
        Self {
            settings: Settings::default(),
            docs,
            partitions: 1,
            strategy,
            search_on: None,
            sort,
            wanted: 1000,
            whole_buckets: false,
            one_per_group: false,
            scores: true,
        }
    }

    /// The ids and global scores of the hits in order, and the number of candidates.
    fn run(&self, query: &str) -> (Vec<(i64, f64)>, u64) {
        let (plan, parts) = self.parts(query);
        let mut all = RankedPart::default();
        for part in parts {
            all.docs.extend(part.docs);
            all.candidates += part.candidates;
            all.facts.used.extend(part.facts.used);
            all.facts.profiles.extend(part.facts.profiles);
        }
        all.docs.sort_by(|a, b| plan.compare(a, b));
        all.docs.truncate(self.wanted);
        let facts: ScoreFacts = all.facts;
        let scorer = Scorer::new(&plan, &facts);
        let score = |hit| block_on(scorer.score(hit, &Unpaced)).global();
        (all.docs.iter().map(|hit| (self.id(hit.doc), score(hit))).collect(), all.candidates)
    }

    fn id(&self, doc: DocId) -> i64 {
        self.docs[doc.0 as usize]["id"].as_i64().unwrap_or(0)
    }

    /// The plan, and what each partition answers.
    fn parts(&self, query: &str) -> (Arc<RankPlan>, Vec<RankedPart>) {
        let settings = &self.settings;
        let stop_words = fst::Set::from_iter(settings.stop_words.iter()).unwrap();
        let mut builder = TokenizerBuilder::new();
        builder.stop_words(&stop_words);
        let tokenizer = builder.build();
        let (sources, sorters, names) = self.sources(&tokenizer);
        let synonyms = normalise_synonyms(settings, &tokenizer);
        let context = QueryContext::new(&tokenizer, &synonyms, settings);
        let mut graph = QueryGraph::sketch(&context.parse(query, None), &context, settings, self.strategy);
        let fields = FieldTable::new(&names, settings, self.search_on.as_deref());
        let by_attribute = settings.proximity_precision == crate::settings::ProximityPrecision::ByAttribute;
        let questions = graph.questions(None);
        let facts: Vec<Vec<_>> = sources
            .iter()
            .map(|source| {
                let answer = |question: &NodeQuestion| {
                    block_on(question.answer(source, (&fields, by_attribute), None, &Unpaced))
                };
                questions.iter().map(answer).collect()
            })
            .collect();
        graph.complete(&facts, false);
        let plan = Arc::new(self.plan(graph, fields, by_attribute));
        let parts = rank_all(&plan, sources, sorters);
        (plan, parts)
    }

    /// The documents spread over the partitions, what they are sorted by, and the names of their fields.
    fn sources(&self, tokenizer: &Tokenizer<'_>) -> (Vec<NaiveSource>, Vec<NaiveSorter>, FieldsMap) {
        let (settings, count) = (&self.settings, self.partitions);
        let mut sources: Vec<NaiveSource> = (0..count).map(|_| NaiveSource::default()).collect();
        let mut names = FieldsMap::default();
        let mut sorters: Vec<NaiveSorter> = (0..count).map(|_| NaiveSorter::default()).collect();
        for (number, doc) in self.docs.iter().enumerate() {
            for key in doc.as_object().unwrap().keys() {
                names.insert(key);
            }
            let (at, local) = (number % usize::from(count), number as u32 / u32::from(count));
            sources[at].fields = names.clone();
            sources[at].add(local, doc, settings, tokenizer);
            sorters[at].0.push((local, doc.clone()));
        }
        (sources, sorters, names)
    }

    fn plan(&self, graph: QueryGraph, fields: FieldTable, by_attribute: bool) -> RankPlan {
        let settings = &self.settings;
        let rules = RuleList::new(settings, &self.sort, self.strategy, graph.term_count == 0);
        let weights =
            if settings.searchable_attributes == ["*"] { 1 } else { settings.searchable_attributes.len() as u32 };
        RankPlan {
            graph,
            rules,
            fields,
            by_attribute,
            weights,
            wanted: self.wanted,
            whole_buckets: self.whole_buckets,
            one_per_group: self.one_per_group,
            scores: self.scores,
            least_score: None,
            vector: None,
        }
    }

    fn ids(&self, query: &str) -> Vec<i64> {
        self.run(query).0.into_iter().map(|(id, _)| id).collect()
    }
}

/// The answers of all partitions.
fn rank_all(plan: &Arc<RankPlan>, sources: Vec<NaiveSource>, sorters: Vec<NaiveSorter>) -> Vec<RankedPart> {
    let count = sources.len() as u16;
    let partitions = (0..).map(PartitionNo).zip(sources.into_iter().zip(sorters));
    let rank = |(number, (source, sorter)): (PartitionNo, (NaiveSource, NaiveSorter))| {
        let within = source.documents().clone();
        let source: Rc<dyn TermSource> = Rc::new(source);
        let node_docs = Rc::new(NodeDocs::new(plan.clone(), source.clone()));
        let mut ranker = Ranker::new(plan.clone(), source, node_docs, Rc::new(sorter), within, (number, count));
        while ranker.step() {}
        ranker.finish(false).unwrap()
    };
    partitions.map(rank).collect()
}

fn texts(texts: &[&str]) -> Vec<Value> {
    texts.iter().enumerate().map(|(at, text)| json!({"id": at as i64 + 100, "t": text})).collect()
}

/// The worked example of the specification, orders and scores, on every number of partitions.
#[test]
fn the_worked_example_comes_out() {
    let docs: Vec<Value> = [
        (1, "sun flower field"),
        (2, "sunflower field"),
        (3, "field of sun and flower"),
        (4, "flower sun"),
        (7, "sun. flower"),
        (8, "sun-flower"),
    ]
    .iter()
    .map(|(id, t)| json!({"id": id, "t": t}))
    .collect();
    for partitions in [1, 2, 5] {
        let (hits, candidates) = Search { partitions, ..Search::over(&docs) }.run("sun flower");
        let shown: Vec<(i64, f64)> =
            hits.iter().map(|(id, score)| (*id, (score * 10_000.0).round() / 10_000.0)).collect();
        let want = [(8, 1.0), (1, 0.9995), (4, 0.9648), (3, 0.9618), (7, 0.9008), (2, 0.6819)];
        assert_eq!((shown.as_slice(), candidates), (&want[..], 6), "{partitions} partitions");
    }
}

#[test]
fn words_are_dropped_from_the_end() {
    let docs = texts(&["red", "red fox", "fox", "red fox runs", "fox runs"]);
    assert_eq!(Search::over(&docs).ids("red fox runs"), [103, 101, 100]);
    let all = Search { strategy: MatchingStrategy::All, ..Search::over(&docs) };
    assert_eq!(all.ids("red fox runs"), [103]);
}

#[test]
fn typos_splits_joins_and_prefixes_are_found() {
    let docs = texts(&["winter", "wintr", "win ter", "winterly", "vinter", "splinter"]);
    assert_eq!(Search::over(&docs).ids("winter"), [100, 103, 101, 102]);
    assert_eq!(Search::over(&docs).ids("winter "), [100, 101, 102]);
    assert_eq!(Search::over(&docs).ids("win ter "), [102, 100]);
}

#[test]
fn phrases_and_negatives_hold_exactly() {
    let docs = texts(&["the quick brown fox", "quick fox", "brown quick fox", "quick brown dog"]);
    assert_eq!(Search::over(&docs).ids("\"quick brown\""), [103, 100]);
    assert_eq!(Search::over(&docs).ids("quick -brown"), [101]);
    assert_eq!(Search::over(&docs).ids("quick -\"quick brown\""), [101, 102]);
    assert_eq!(Search::over(&docs).ids("-quick"), [0i64; 0]);
}

#[test]
fn synonyms_match_as_if_typed_but_after_the_word() {
    let mut search = Search::over(&[]);
    search.settings.synonyms =
        [("car".to_owned(), vec!["automobile".to_owned(), "motor coach".to_owned()])].into_iter().collect();
    let docs = texts(&["automobile", "car", "a motor coach", "motor of a coach"]);
    let search = Search { docs: &docs, ..search };
    assert_eq!(search.ids("car "), [101, 100, 102]);
}

#[test]
fn weights_restrictions_and_sorts_apply() {
    let docs = vec![
        json!({"id": 1, "b": "tree", "a": "x", "n": 3}),
        json!({"id": 2, "a": "tree", "b": "x", "n": 1}),
        json!({"id": 3, "a": "tree tree", "b": "x"}),
    ];
    let mut search = Search::over(&docs);
    search.settings.searchable_attributes = vec!["a".into(), "b".into()];
    assert_eq!(search.ids("tree"), [2, 3, 1]);
    search.search_on = Some(vec!["b".into()]);
    assert_eq!(search.ids("tree"), [1]);
    search.search_on = None;
    search.sort = vec![SortBy::Field { name: "n".into(), descending: true }];
    search.settings.ranking_rules = vec!["sort".into(), "words".into()];
    assert_eq!(search.ids("tree"), [1, 2, 3]);
    assert_eq!(search.ids(""), [1, 2, 3]);
}

/// Of documents that are equal but for the last rule, a later one is not passed over for those that were met before.
#[test]
fn a_sort_rule_at_the_end_orders_all() {
    let docs: Vec<Value> = (0..300).map(|id| json!({"id": id, "t": "tree", "n": 1000 - id})).collect();
    let sort = vec![SortBy::Field { name: "n".into(), descending: false }];
    let mut search = Search { sort, wanted: 3, scores: false, ..Search::over(&docs) };
    search.settings.ranking_rules = vec!["words".into(), "typo".into(), "sort".into()];
    assert_eq!(search.ids("tree"), [299, 298, 297]);
}

/// A document without a value to sort by is another kind than one that has a value of which all bits are zero.
#[test]
fn scores_tell_zero_from_no_value() {
    let docs = vec![json!({"a": "field", "n": 0}), json!({"b": "field"})];
    let mut search = Search::over(&docs);
    search.sort = vec![SortBy::Field { name: "n".into(), descending: false }];
    search.settings.ranking_rules.insert(0, "sort".into());
    let (hits, _) = search.run("fie ld");
    assert_eq!(hits[0].1, hits[1].1);
}

/// A word that was met as typed stands for itself alone from then on, and for its synonyms, where these come first in the text.
#[test]
fn synonyms_count_after_exactness() {
    let docs = texts(&["x car", "motor coach car", "automobile x car", "cars x car"]);
    let mut search = Search::over(&docs);
    search.settings.ranking_rules = vec!["words".into(), "exactness".into(), "wordPosition".into()];
    assert_eq!(search.ids("car"), [100, 101, 102, 103]);
    search.settings.synonyms =
        [("car".to_owned(), vec!["automobile".to_owned(), "motor coach".to_owned()])].into_iter().collect();
    assert_eq!(search.ids("car"), [101, 102, 100, 103]);
}

/// Rules that come before `words` only bring up documents that hold every word; the others are counted all the same.
#[test]
fn documents_without_a_path_are_lost_but_counted() {
    let docs = texts(&["red fox", "red"]);
    let mut search = Search::over(&docs);
    search.settings.ranking_rules = vec!["attributeRank".into()];
    assert_eq!(search.run("red fox"), (vec![(100, 1.0)], 2));
    search.settings.ranking_rules = vec![];
    assert_eq!(search.ids("red fox"), [100, 101]);
}

/// Documents in five distinct groups; counts how many are asked for theirs.
#[derive(Default)]
struct Grouped(Cell<usize>);

impl SortSource for Grouped {
    fn sort_values(&self, _: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String> {
        Ok(vec![SortValue::Missing; docs.len()])
    }

    fn group_values(&self, docs: &[u32]) -> Result<Option<Vec<Vec<GroupValue>>>, String> {
        self.0.set(self.0.get() + docs.len());
        Ok(Some(docs.iter().map(|doc| vec![GroupValue::Number(u64::from(doc % 5))]).collect()))
    }

    fn group_members(&self, values: &[GroupValue], _: u64) -> Result<RoaringBitmap, String> {
        let is_member = |doc: &u32| values.contains(&GroupValue::Number(u64::from(doc % 5)));
        Ok((0..1000).filter(is_member).collect())
    }
}

/// All documents of a group were once read to be left out, one by one.
#[test]
fn documents_of_taken_groups_are_not_read() {
    let plan = Arc::new(RankPlan { wanted: 10, one_per_group: true, ..RankPlan::default() });
    let source: Rc<dyn TermSource> = Rc::new(NaiveSource::default());
    let (node_docs, sorter) = (Rc::new(NodeDocs::new(plan.clone(), source.clone())), Rc::new(Grouped::default()));
    let within = Rc::new((0..1000).collect());
    let mut ranker = Ranker::new(plan, source, node_docs, sorter.clone(), within, (PartitionNo(0), 1));
    while ranker.step() {}
    let part = ranker.finish(false).unwrap();
    assert_eq!(part.docs.iter().map(|ranked| ranked.doc.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(part.complete && sorter.0.get() < 30, "{}", sorter.0.get());
}

/// Two documents of several groups each were enough to leave the fourth out, and gave way to the third: then the fifth, which has
/// fewer words, was taken for the next one.
#[test]
fn nothing_comes_behind_what_was_left_out() {
    let texts = [
        ("sun over field", json!([1, 2])),
        ("sun over field", json!([1, 3])),
        ("sun field", json!([1])),
        ("sun over the field", json!([])),
        ("sun", json!([])),
    ];
    let docs = texts.into_iter().enumerate();
    let docs: Vec<Value> = docs.map(|(id, (text, group))| json!({"id": id, "t": text, "group": group})).collect();
    let mut search = Search::over(&docs);
    search.settings.searchable_attributes = vec!["t".into()];
    (search.whole_buckets, search.one_per_group, search.scores, search.wanted) = (true, true, false, 2);
    let (_, parts) = search.parts("sun field");
    let ids: Vec<i64> = parts[0].docs.iter().map(|ranked| search.id(ranked.doc)).collect();
    assert!([2, 3].starts_with(&ids) && !parts[0].complete, "{ids:?}");
}

mod partitions {
    use proptest::prelude::*;

    use super::*;

    fn word() -> impl Strategy<Value = String> {
        let words =
            ["sun", "flower", "sunflower", "flowers", "flover", "field", "of", "fie", "ld", "sunny", "summer", "7"];
        proptest::sample::select(words.to_vec()).prop_map(str::to_owned)
    }

    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec((word(), proptest::sample::select(vec![" ", " ", ". ", "-"])), 0..7)
            .prop_map(|words| words.into_iter().map(|(word, gap)| word + gap).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

        /// Hits, their order, their scores and the total are the same on one partition and on several, whole or cut short, and
        /// wherever a sort rule stands.
        #[test]
        fn the_number_of_partitions_changes_nothing(
            docs in proptest::collection::vec((text(), text(), proptest::option::of(0..6u8)), 0..25),
            (sorts, descending, place) in (any::<bool>(), any::<bool>(), 0usize..7),
            query in proptest::collection::vec(word(), 1..5),
            last in proptest::bool::ANY,
            weighted in proptest::bool::ANY,
            wanted in 1usize..30,
        ) {
            let docs: Vec<Value> =
                docs.into_iter().enumerate().map(|(id, (a, b, n))| json!({"id": id, "a": a, "b": b, "n": n})).collect();
            let strategy = if last { MatchingStrategy::Last } else { MatchingStrategy::All };
            let mut search = Search { strategy, ..Search::over(&docs) };
            if weighted {
                search.settings.searchable_attributes = vec!["b".into(), "a".into()];
            }
            if sorts {
                search.sort = vec![SortBy::Field { name: "n".into(), descending }];
                search.settings.ranking_rules.retain(|rule| rule != "sort");
                search.settings.ranking_rules.insert(place.min(search.settings.ranking_rules.len()), "sort".into());
            }
            let query = query.join(" ");
            let (whole, total) = search.run(&query);
            for partitions in [1, 2, 5] {
                search.partitions = partitions;
                search.wanted = 1000;
                prop_assert_eq!(&search.run(&query), &(whole.clone(), total));
                search.wanted = wanted;
                let (page, page_total) = search.run(&query);
                let ids = |hits: &[(i64, f64)]| hits.iter().map(|hit| hit.0).collect::<Vec<_>>();
                prop_assert_eq!((&page[..], page_total), (&whole[..wanted.min(whole.len())], total));
                // What comes behind the bucket in which the page ends is left out.
                search.whole_buckets = true;
                prop_assert_eq!(&search.run(&query), &(page.clone(), page_total));
                search.whole_buckets = false;
                // Without scores most documents are not looked at in full.
                search.scores = false;
                let (quick, quick_total) = search.run(&query);
                search.scores = true;
                prop_assert_eq!((ids(&quick), quick_total), (ids(&page), total));
            }
        }

        /// Where one document of each group is wanted, a partition answers the first of those that stay in the whole order, and as
        /// many as are wanted, wherever a sort rule stands.
        #[test]
        fn groups_are_of_the_first_documents(
            docs in proptest::collection::vec(
                (text(), proptest::option::of(0..6u8), proptest::collection::vec(0..7u8, 0..3)),
                0..40,
            ),
            (descending, place) in (any::<bool>(), 0usize..7),
            query in proptest::collection::vec(word(), 1..3),
            wanted in 1usize..8,
        ) {
            let docs: Vec<Value> = docs
                .into_iter()
                .enumerate()
                .map(|(id, (a, n, group))| json!({"id": id, "a": a, "n": n, "group": group}))
                .collect();
            let mut search = Search::over(&docs);
            search.settings.searchable_attributes = vec!["a".into()];
            search.sort = vec![SortBy::Field { name: "n".into(), descending }];
            search.settings.ranking_rules.retain(|rule| rule != "sort");
            search.settings.ranking_rules.insert(place.min(search.settings.ranking_rules.len()), "sort".into());
            let query = query.join(" ");
            let whole = search.ids(&query);
            (search.whole_buckets, search.one_per_group, search.wanted) = (true, true, wanted);
            for (partitions, scores) in [(1, false), (1, true), (3, false)] {
                (search.partitions, search.scores) = (partitions, scores);
                for (number, part) in search.parts(&query).1.into_iter().enumerate() {
                    let is_here = |id: &i64| *id as usize % usize::from(partitions) == number;
                    let all = staying(&docs, whole.iter().copied().filter(is_here));
                    let found = staying(&docs, part.docs.iter().map(|ranked| search.id(ranked.doc)));
                    prop_assert_eq!(&found[..], &all[..found.len().min(all.len())]);
                    prop_assert!(part.several_groups || part.docs.len() >= wanted.min(all.len()));
                    prop_assert!(!part.complete || found.len() == all.len());
                }
            }
        }
    }

    /// Those of the documents, in this order, of whose groups none has a document before that stays.
    fn staying(docs: &[Value], order: impl Iterator<Item = i64>) -> Vec<i64> {
        let mut taken: Vec<GroupValue> = Vec::new();
        let mut stays = |id: &i64| {
            let groups = groups_of(&docs[*id as usize]);
            let stays = !groups.iter().any(|group| taken.contains(group));
            taken.extend(groups.into_iter().filter(|_| stays));
            stays
        };
        order.filter(|id| stays(id)).collect()
    }
}
