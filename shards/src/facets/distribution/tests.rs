use futures_lite::future::block_on;
use proptest::prelude::*;
use roaring::RoaringBitmap;
use serde_json::{Value, json};
use storage_engine::vector::Unpaced;

use super::count::Counter;
use super::*;
use crate::facets::filter::tests::document;
use crate::facets::source::FacetSource;
use crate::facets::test_support::{Facets, filterable};
use crate::facets::{columns::Columns, distribution::counts::FieldCounts};
use crate::ids::{DocId, LocalDocId};

fn answer(facets: &Facets, names: &[&str]) -> Distribution {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let plan = FacetPlan::new(&names, &facets.fields, &facets.settings);
    let counts = block_on(count_facets(facets, &plan, &facets.documents, &Unpaced)).expect("memory does not fail");
    block_on(counts.finish(&plan, &Unpaced))
}

fn texts(facets: &Facets, names: &[&str]) -> (String, String) {
    let answer = answer(facets, names);
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

/// Every second document, as a partition of two would hold it.
struct Half<'f> {
    whole: &'f Facets,
    half: Facets,
    partition: u32,
}

impl FacetSource for Half<'_> {
    fn columns(&self) -> Columns<'_> {
        self.half.columns()
    }

    fn fields(&self) -> &FieldsMap {
        &self.whole.fields
    }

    fn settings(&self) -> &Settings {
        &self.whole.settings
    }

    fn documents(&self) -> &RoaringBitmap {
        &self.half.documents
    }

    fn global(&self, document: LocalDocId) -> DocId {
        DocId(document.0 * 2 + self.partition)
    }
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
        let counter = Counter { source: &facets, columns: facets.columns(), documents: &matching, pace: &Unpaced };
        for facet in &plan.facets {
            let by_value: FieldCounts = block_on(counter.by_value(facet.field)).expect("memory does not fail");
            prop_assert_eq!(by_value, block_on(counter.by_document(facet.field, false)).expect("memory does not fail"));
        }
        let whole = block_on(count_facets(&facets, &plan, &matching, &Unpaced)).expect("memory does not fail");
        let halves = [1, 0].map(|partition| {
            let mut half = Facets { fields: facets.fields.clone(), ..Facets::new(facets.settings.clone()) };
            let own = facets.json.iter().filter(|(number, _)| **number % 2 == partition);
            half.put(own.map(|(number, json)| (number / 2, Some(Value::clone(json)))));
            let matching = matching.iter().filter(|number| number % 2 == partition).map(|number| number / 2).collect();
            let half = Half { whole: &facets, half, partition };
            block_on(count_facets(&half, &plan, &matching, &Unpaced)).expect("memory does not fail")
        });
        let merged = block_on(FacetCounts::merged(&halves.each_ref(), &Unpaced));
        prop_assert_eq!(&merged, &whole);
        prop_assert_eq!(block_on(merged.finish(&plan, &Unpaced)), block_on(whole.finish(&plan, &Unpaced)));
    }
}
