use std::cell::Cell;

use futures_lite::future::block_on;
use proptest::prelude::*;
use roaring::RoaringBitmap;
use serde_json::{Value, json};
use storage_engine::TreeId;
use storage_engine::vector::Unpaced;

use super::count::{Counter, Cut};
use super::*;
use crate::facets::columns::{ColumnError, ColumnRead, Columns, CountedSet, Entry};
use crate::facets::filter::tests::document;
use crate::facets::source::FacetSource;
use crate::facets::test_support::{Facets, Part, Pauses, filterable};

fn answer(facets: &Facets, names: &[&str]) -> Distribution {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let plan = FacetPlan::new(&names, &facets.fields, &facets.settings);
    let counts = block_on(count_facets(facets, &plan, &facets.documents, &Unpaced)).expect("memory does not fail");
    block_on(counts.finish(&plan, &Unpaced))
}

fn texts(facets: &Facets, names: &[&str]) -> (String, String) {
    let answer = answer(facets, names);
    assert_eq!(block_on(answer.distribution_json_in_steps(&Unpaced)), answer.distribution_json());
    let text = |json| String::from_utf8(json).expect("JSON is UTF-8");
    (text(answer.distribution_json()), text(answer.stats_json()))
}

#[test]
fn keys_are_spelled_as_in_the_first_document() {
    let documents = [
        json!({"g": ["Action", "Comedy"], "p": 9.5}),
        json!({"g": ["action", "Drama", "drama"], "p": "9.5"}),
        json!({"g": ["Élan", " spaced "], "p": [100, 1e-7, "x", -3]}),
        json!({"g": null, "o": {"a": true}}),
    ];
    let mut facets = Facets::with(filterable(&["g", "p", "o"]), documents);
    let (distribution, stats) = texts(&facets, &["g", "p"]);
    assert_eq!(
        distribution,
        r#"{"g":{"Action":2,"Comedy":1,"drama":1,"Élan":1," spaced ":1},"p":{"-3":1,"0.0000001":1,"100":1,"9.5":1,"x":1}}"#
    );
    assert_eq!(stats, r#"{"p":{"min":-3.0,"max":100.0}}"#);
    assert_eq!(texts(&facets, &["o"]).0, r#"{"o":{},"o.a":{"true":1}}"#);
    assert_eq!(texts(&facets, &["o.none"]), ("{}".into(), "{}".into()));
    assert_eq!(answer(&facets, &["*"]).facets.len(), 4);
    facets.put([(0, None)]);
    assert!(texts(&facets, &["g"]).0.contains(r#""action":1"#), "the first spelling went with its document");
}

/// Numbers that fill the limit in `count` order leave all strings in; a limit of 0 is then none.
#[test]
fn limits_and_orders() {
    let documents =
        (0..30).map(|at| if at % 2 == 0 { json!({"m": at % 10}) } else { json!({"m": format!("s{}", at % 7)}) });
    let mut facets = Facets::with(filterable(&["m", "n"]), documents);
    let keys = |facets: &Facets, names: &[&str]| {
        answer(facets, names).facets.remove(0).values.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    facets.settings.faceting.max_values_per_facet = 3;
    assert_eq!(keys(&facets, &["m"]), ["0", "2", "4"]);
    facets.settings.faceting.sort_facet_values_by.insert("m".into(), FacetOrder::Count);
    assert_eq!(keys(&facets, &["m"]), ["8", "6", "4", "s1", "s6", "s5", "s4", "s3", "s2", "s0"]);
    assert_eq!(keys(&facets, &["*"]), ["0", "2", "4"], "with a star only its own order counts");
    facets.settings.faceting.max_values_per_facet = 7;
    assert_eq!(keys(&facets, &["m"]), ["8", "6", "4", "2", "0", "s1", "s6"]);
    facets.settings.faceting.max_values_per_facet = 0;
    assert_eq!(keys(&facets, &["m"]).len(), 12);
    facets.settings.faceting.sort_facet_values_by.clear();
    assert!(keys(&facets, &["m"]).is_empty());
}

#[test]
fn only_filterable_names_are_facets() {
    let settings = filterable(&["a"]);
    let check = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        check_facets(&names, &settings, "invalid_search_facets").is_ok()
    };
    assert!(check(&["a", "a.b"]) && check(&["*", "nope"]) && check(&[]));
    assert!(!check(&["a", "nope"]) && !check(&["a "]));
}

/// Documents that are more than those of which numbers are ordered as text.
const MANY: u64 = EXACT_DOCUMENTS_MAX + 1;

/// What partitions count together, and whether that lacks strings.
fn counted(parts: &[(Facets, RoaringBitmap)], plan: &FacetPlan, cut: Option<Cut>) -> (FacetCounts, bool) {
    let mut counts = Vec::new();
    for (number, (facets, documents)) in parts.iter().enumerate() {
        let source = Part { facets, number: number as u32, count: parts.len() as u32 };
        let counter = Counter { source: &source, columns: facets.columns(), documents, pace: &Unpaced };
        let set = block_on(CountedSet::new(documents, &facets.documents, &Unpaced));
        let of_facet = |facet: &PlannedFacet| match cut {
            Some(_) => block_on(counter.by_cost(facet.field, &set, cut)).expect("memory does not fail"),
            None => block_on(counter.by_document(facet.field, false)).expect("memory does not fail"),
        };
        counts.push(FacetCounts { facets: plan.facets.iter().map(of_facet).collect(), documents: MANY });
    }
    let parts: Vec<&FacetCounts> = counts.iter().collect();
    (block_on(FacetCounts::merged(&parts, &Unpaced)), FacetCounts::lack_strings(&parts, plan))
}

/// Reads of a tree, counted.
struct Reads<'f>(&'f Facets, Cell<usize>);

impl ColumnRead for Reads<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError> {
        self.1.set(self.1.get() + 1);
        self.0.columns.get(tree, key)
    }

    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        let mut counted = |key: &[u8], value: &[u8]| {
            self.1.set(self.1.get() + 1);
            entry(key, value)
        };
        self.0.columns.scan(tree, from, &mut counted)
    }

    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        let mut counted = |key: &[u8], value: &[u8]| {
            self.1.set(self.1.get() + 1);
            entry(key, value)
        };
        self.0.columns.scan_back(tree, before, &mut counted)
    }
}

/// No more is read of a field of many values than what is shown of it.
#[test]
fn large_fields_are_not_read_to_their_end() {
    let documents = (0..4000).map(|at| json!({"u": format!("user {at}"), "n": f64::from(at) / 7.0}));
    let mut settings = filterable(&["u", "n"]);
    settings.faceting.max_values_per_facet = 10;
    let facets = Facets::with(settings, documents);
    let matching: RoaringBitmap = facets.documents.iter().filter(|document| document % 7 != 0).collect();
    let plan = FacetPlan::new(&["*".to_owned()], &facets.fields, &facets.settings);
    let reads = Reads(&facets, Cell::new(0));
    for (at, facet) in plan.facets.iter().enumerate() {
        let counter = Counter { source: &facets, columns: Columns::new(&reads), documents: &matching, pace: &Unpaced };
        let set = block_on(CountedSet::new(&matching, &facets.documents, &Unpaced));
        let cut = Some(Cut { limit: 10, all_strings: false });
        let counts = block_on(counter.by_cost(facet.field, &set, cut)).expect("memory does not fail");
        let whole =
            block_on(counter_of(&facets, &matching).by_document(facet.field, false)).expect("memory does not fail");
        assert_eq!(counts.range, whole.range, "{at}");
    }
    assert!(reads.1.get() < 100, "{} reads", reads.1.get());
    let counts = block_on(count_facets(&facets, &plan, &matching, &Unpaced)).expect("memory does not fail");
    let keys = |at: usize, counts: &FacetCounts| block_on(counts.finish(&plan, &Unpaced)).facets[at].values.clone();
    assert_eq!(keys(1, &counts)[..2], [("user 1".to_owned(), 1), ("user 10".to_owned(), 1)]);
    assert_eq!((keys(0, &counts).len(), keys(1, &counts).len(), counts.values()), (10, 10, 20));
}

/// Facets of hundreds of thousands of values, which few documents may have, were once ordered and written in one step each.
#[test]
fn many_values_give_way() {
    let numbers: Vec<f64> = (0..3000).map(|at| f64::from(at) / 7.0).collect();
    let strings: Vec<String> = (0..3000).map(|at| format!("\"{at}")).collect();
    let mut settings = filterable(&["n", "s"]);
    for (order, limit) in [(FacetOrder::Alpha, 6000), (FacetOrder::Alpha, 10), (FacetOrder::Count, 6000)] {
        settings.faceting.sort_facet_values_by.insert("*".into(), order);
        settings.faceting.max_values_per_facet = limit;
        let facets = Facets::with(settings.clone(), [json!({"n": numbers, "s": strings}), json!({"n": 1, "s": "a"})]);
        let plan = FacetPlan::new(&["n".to_owned(), "s".to_owned()], &facets.fields, &facets.settings);
        let counts = block_on(count_facets(&facets, &plan, &facets.documents, &Unpaced)).expect("memory does not fail");
        let paused = Pauses::default();
        let shown = block_on(counts.finish(&plan, &paused));
        assert_eq!(shown, block_on(counts.finish(&plan, &Unpaced)));
        // The numbers are sorted whatever the limit is.
        assert!(paused.0.get() >= 3000 / 256, "{}", paused.0.get());
        let values: usize = shown.facets.iter().map(|facet| facet.values.len()).sum();
        if limit == 6000 {
            assert!(values >= 6000 && paused.0.get() >= 4 * (3000 / 256), "{}", paused.0.get());
        }
        let paused = Pauses::default();
        assert_eq!(block_on(shown.distribution_json_in_steps(&paused)), shown.distribution_json());
        block_on(shown.free(&paused));
        assert!(paused.0.get() >= 2 * (values / 256), "{}", paused.0.get());
    }
}

fn counter_of<'f>(facets: &'f Facets, documents: &'f RoaringBitmap) -> Counter<'f> {
    Counter { source: facets, columns: facets.columns(), documents, pace: &Unpaced }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Both ways of counting agree, and two partitions answer like one.
    #[test]
    fn counts_do_not_depend_on_the_way(documents in proptest::collection::vec(document(), 0..16), is_count: bool, limit in 0..6u64) {
        let mut settings = filterable(&["x", "y", "w"]);
        let order = if is_count { FacetOrder::Count } else { FacetOrder::Alpha };
        settings.faceting.sort_facet_values_by.insert("*".into(), order);
        settings.faceting.max_values_per_facet = limit;
        let facets = Facets::with(settings, documents);
        let plan = FacetPlan::new(&["*".to_owned()], &facets.fields, &facets.settings);
        let matching: RoaringBitmap = facets.documents.iter().filter(|document| document % 5 != 1).collect();
        let counter = counter_of(&facets, &matching);
        let set = block_on(CountedSet::new(&matching, &facets.documents, &Unpaced));
        for facet in &plan.facets {
            let by_value = block_on(counter.by_value(facet.field, (&set, u64::MAX), None)).expect("memory does not fail");
            let by_document = block_on(counter.by_document(facet.field, false)).expect("memory does not fail");
            prop_assert_eq!(by_value, Some(by_document));
        }
        let whole = block_on(count_facets(&facets, &plan, &matching, &Unpaced)).expect("memory does not fail");
        let halves = [1, 0].map(|number| {
            let (half, matching) = facets.part(number, 2, &matching);
            let half = Part { facets: &half, number, count: 2 };
            block_on(count_facets(&half, &plan, &matching, &Unpaced)).expect("memory does not fail")
        });
        let merged = block_on(FacetCounts::merged(&halves.each_ref(), &Unpaced));
        prop_assert_eq!(&merged, &whole);
        prop_assert_eq!(block_on(merged.finish(&plan, &Unpaced)), block_on(whole.finish(&plan, &Unpaced)));
    }
    /// Partitions that send only their first values answer together like those that send all, whatever their number.
    #[test]
    fn the_first_of_each_partition_are_enough(
        lists in proptest::collection::vec(proptest::collection::vec(value(), 0..4), 0..40),
        limit in 0..40u64,
        every in 1..9u32
    ) {
        let mut settings = filterable(&["v"]);
        settings.faceting.max_values_per_facet = limit;
        let facets = Facets::with(settings, lists.iter().map(|list| json!({ "v": list })));
        let matching: RoaringBitmap = facets.documents.iter().filter(|document| document % every == 0).collect();
        let plan = FacetPlan::new(&["*".to_owned()], &facets.fields, &facets.settings);
        let (whole, _) = counted(&[(facets.clone(), matching.clone())], &plan, None);
        let expected = block_on(whole.finish(&plan, &Unpaced));
        for count in [1, 3, 7] {
            let parts: Vec<_> = (0..count).map(|number| facets.part(number, count, &matching)).collect();
            let cut = |all_strings| (limit > 0).then_some(Cut { limit: limit as usize, all_strings });
            let (mut found, lacks_strings) = counted(&parts, &plan, cut(false));
            if lacks_strings {
                let plan = FacetPlan { all_strings: true, ..plan.clone() };
                let again = counted(&parts, &plan, cut(true));
                prop_assert!(!again.1);
                found = again.0;
            }
            prop_assert_eq!(block_on(found.finish(&plan, &Unpaced)), expected.clone(), "{} partitions", count);
        }
    }
}

/// Numbers, strings, and strings that are spelled like those numbers.
fn value() -> impl Strategy<Value = Value> {
    let number = (-9..9i32).prop_map(|number| json!(f64::from(number) / 2.0));
    let like_number = (-3..9i32).prop_map(|number| json!(format!("{}", f64::from(number) / 2.0)));
    prop_oneof![number, like_number, "[abAB]{1,2}".prop_map(Value::from)]
}
