use std::cmp::Ordering;

use futures_lite::future::block_on;
use proptest::prelude::*;
use roaring::RoaringBitmap;
use serde_json::{Value, json};
use storage_engine::vector::Unpaced;

use super::*;
use crate::facets::columns::{FieldOrder, Mark};
use crate::facets::test_support::{Facets, Pauses, filterable};
use crate::facets::{FacetSource, extract::FieldFacts};
use crate::fields::FieldsMap;
use crate::ids::LocalDocId;
use crate::settings::Settings;

const CODE: &str = "invalid_search_sort";

#[test]
fn what_parses() {
    let parsed =
        parse_sort(&json!(["price:asc", "a:b:desc", "_geoPoint( 1.5,-2 ):desc", "_geoPoint(1e1,2):asc"]), CODE);
    let point = |lat, lng, is_plain| SortBy::Point { point: GeoPoint { lat, lng }, is_plain };
    let expected = vec![
        SortCriterion::field("price", false),
        SortCriterion::field("a:b", true),
        SortCriterion { by: point(1.5, -2.0, true), descending: true },
        SortCriterion { by: point(10.0, 2.0, false), descending: false },
    ];
    assert_eq!(parsed, Ok(expected));
    assert_eq!(parse_sort(&json!(null), CODE), Ok(vec![]));
    assert_eq!(parse_sort(&json!([]), CODE), Ok(vec![]));
    let listed = parse_sort_parameter("_geoPoint(1,2):asc, price:desc", CODE).expect("both are fine");
    assert_eq!(listed.len(), 2);
}

#[test]
fn what_does_not_parse() {
    for bad in [
        "price",
        "price:ASC",
        "price:up",
        "",
        "_geoPoint(1,2)",
        "_geoPoint(1):asc",
        "_geoPoint(1,2,3):asc",
        "_geoPoint(a,b):asc",
        "_geoPoint(91,0):asc",
        "_geoPoint(0,181):desc",
        "_geoPoint:asc",
        "_geo:asc",
        "_geoDistance:asc",
        "_geoDistance(1,2):asc",
        "_geoRadius(1,2,3):asc",
        "_geoBoundingBox([1,2],[3,4]):asc",
    ] {
        assert_eq!(parse_sort(&json!([bad]), CODE).map_err(|error| error.code), Err(CODE), "{bad}");
        assert_eq!(parse_sort_parameter(bad, CODE).map_err(|error| error.code), Err(CODE), "{bad}");
    }
    for bad in [json!("price:asc"), json!({"price": "asc"}), json!(5), json!(["price:asc", 3])] {
        assert!(parse_sort(&bad, CODE).is_err(), "{bad}");
    }
}

#[test]
fn settings_say_what_is_sortable() {
    let settings = Settings { sortable_attributes: ["price".into()].into(), ..Settings::default() };
    let check = |text: &str, settings: &Settings| {
        check_sort(&parse_sort_parameter(text, CODE).expect(text), settings, CODE).is_ok()
    };
    assert!(check("price:asc,price.deep:desc", &settings));
    assert!(!check("price :asc", &settings) || !check("_geoPoint(1,2):asc", &settings));
    assert!(!check("other:asc", &settings) && !check(":asc", &settings) && !check("price:asc:desc", &settings));
    let price = [SortCriterion::field("price", false)];
    assert!(check_sort_rule(&price, &settings, CODE).is_ok());
    let without = Settings { ranking_rules: vec!["words".into()], ..settings };
    assert!(check_sort_rule(&price, &without, CODE).is_err() && check_sort_rule(&[], &without, CODE).is_ok());
    let place = parse_sort_parameter("_geoPoint(1,2):asc", CODE).expect("a place");
    let mut fields = FieldsMap::default();
    assert!(check_sort_points(&place, &fields, CODE).is_err() && check_sort_points(&price, &fields, CODE).is_ok());
    fields.insert("_geo.lat").expect("room");
    assert!(check_sort_points(&place, &fields, CODE).is_ok());
}

fn page(facets: &Facets, sort: &[&str], mode: SortMode) -> Vec<u32> {
    let criteria = parse_sort(&json!(sort), CODE).expect("valid");
    let page = block_on(sorted_page(facets, &criteria, &facets.documents, usize::MAX, mode, &Unpaced))
        .expect("memory does not fail");
    page.into_iter().map(|(_, document)| document.0).collect()
}

/// On the documents routes a list of numbers and strings puts its document in two places.
#[test]
fn mixed_lists_repeat_on_documents_routes() {
    let documents = [json!({"n": 5}), json!({"n": [7, "seven"]}), json!({"n": "nine"}), json!({"n": ["a", 1, "b", 9]})];
    let facets = Facets::with(filterable(&["n"]), documents);
    assert_eq!(page(&facets, &["n:asc"], SortMode::Documents), [3, 0, 1, 3, 2, 1]);
    assert_eq!(page(&facets, &["n:desc"], SortMode::Documents), [3, 1, 0, 1, 2, 3]);
    assert_eq!(page(&facets, &["n:asc"], SortMode::Search), [3, 0, 1, 2]);
}

/// On the documents routes a field that is there without a value drops its document; in searches it comes last.
#[test]
fn valueless_fields_drop_documents_on_documents_routes() {
    let documents = [
        json!({"i": 1, "n": 2}),
        json!({"i": 2, "n": null}),
        json!({"i": 3, "n": []}),
        json!({"i": 4}),
        json!({"i": 5, "n": ""}),
        json!({"i": 6, "n": 1}),
        json!({"i": 7, "n": {}}),
        json!({"i": 8, "n": [null]}),
    ];
    let facets = Facets::with(filterable(&["n", "i"]), documents);
    assert_eq!(page(&facets, &["n:asc"], SortMode::Documents), [5, 0, 3]);
    assert_eq!(page(&facets, &["n:desc"], SortMode::Documents), [0, 5, 3]);
    assert_eq!(page(&facets, &["i:desc", "n:asc"], SortMode::Documents), [5, 3, 0]);
    assert_eq!(page(&facets, &["n:asc"], SortMode::Search), [5, 0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(page(&facets, &["unknown:asc"], SortMode::Documents), [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// With each criterion the places of a document once doubled without end.
#[test]
fn a_document_has_a_bounded_number_of_places() {
    let names: Vec<String> = (0..10).map(|at| format!("n{at}")).collect();
    let mixed = || names.iter().map(|name| (name.clone(), json!([1, "x"]))).collect();
    let settings = filterable(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let facets = Facets::with(settings, [Value::Object(mixed())]);
    let same: Vec<_> = (0..10).map(|_| SortCriterion::field("n0", false)).collect();
    let different: Vec<_> = names.iter().map(|name| SortCriterion::field(name.as_str(), false)).collect();
    let places = |criteria: &[SortCriterion], limit| {
        keys::KeyReader::new(&facets, criteria).places(LocalDocId(0), limit).expect("memory does not fail")
    };
    assert_eq!(places(&same, usize::MAX).len(), 2);
    let all = places(&different, usize::MAX);
    assert_eq!(all.len(), 64);
    assert!(all.is_sorted() && all.iter().all(|keys| keys.len() == 10));
    assert_eq!(places(&different, 5), all[..5]);
    assert_eq!(page(&facets, &["n0:asc", "n1:asc", "n0:desc"], SortMode::Search), [0]);
}

/// The same field counts twice where its directions differ: equal least values, then the greatest.
#[test]
fn both_directions_of_a_field_order() {
    let facets = Facets::with(filterable(&["n"]), [json!({"n": [1, 5]}), json!({"n": [1, 9]}), json!({"n": 0})]);
    assert_eq!(page(&facets, &["n:asc", "n:asc", "n:desc"], SortMode::Search), [2, 1, 0]);
}

/// The second criterion of many documents that are equal in the first one was once read without a pause.
#[test]
fn large_groups_give_way() {
    let documents = (0..3200).map(|at| json!({"same": 1, "own": 10_000 - at}));
    let facets = Facets::with(filterable(&["same", "own"]), documents);
    let criteria = [SortCriterion::field("same", false), SortCriterion::field("own", false)];
    let pauses = Pauses::default();
    let walked = block_on(top::walk(&facets, &criteria, &facets.documents, 3, (SortMode::Documents, &pauses)));
    let numbers: Vec<u32> =
        walked.expect("memory does not fail").expect("a field").iter().map(|(_, document)| document.0).collect();
    assert_eq!(numbers, [3199, 3198, 3197]);
    assert!(pauses.0.get() >= 100, "{}", pauses.0.get());
}

/// The documents of one value, of many, and those that were read one by one were once put on the page in one step.
#[test]
fn long_pages_give_way() {
    let documents = (0..3200).map(|at| json!({"same": 1, "own": at}));
    let facets = Facets::with(filterable(&["same", "own"]), documents);
    for field in ["same", "own"] {
        let criteria = [SortCriterion::field(field, true)];
        let pauses = Pauses::default();
        let walked = block_on(top::walk(&facets, &criteria, &facets.documents, 3200, (SortMode::Documents, &pauses)));
        assert_eq!(walked.expect("memory does not fail").expect("a field").len(), 3200);
        assert!(pauses.0.get() >= 100, "{}", pauses.0.get());
        let (reader, pauses) = (keys::KeyReader::new(&facets, &criteria), Pauses::default());
        let read = block_on(top::read(&reader, &facets.documents, 3200, (SortMode::Documents, &pauses)));
        assert_eq!(read.expect("memory does not fail").len(), 3200);
        assert!(pauses.0.get() > 3200 / 32 + 12, "{}", pauses.0.get());
    }
}

/// Documents that the second criterion drops make room for those of further values of the first one.
#[test]
fn a_page_is_filled_behind_dropped_documents() {
    let document = |at: u32| json!({"n": at, "m": if at < 20 { Value::Null } else { at.into() }});
    let facets = Facets::with(filterable(&["n", "m"]), (0..40).map(document));
    let criteria = [SortCriterion::field("n", false), SortCriterion::field("m", false)];
    let walked = block_on(top::walk(&facets, &criteria, &facets.documents, 3, (SortMode::Documents, &Unpaced)));
    let numbers: Vec<u32> =
        walked.expect("memory does not fail").expect("a field").iter().map(|(_, document)| document.0).collect();
    assert_eq!(numbers, [20, 21, 22]);
}

#[test]
fn distances_order_documents_and_those_without_come_last() {
    let documents = [json!({"_geo": {"lat": 3, "lng": 0}}), json!({"a": 1}), json!({"_geo": {"lat": 1, "lng": 0}})];
    let facets = Facets::with(filterable(&["_geo"]), documents);
    assert_eq!(page(&facets, &["_geoPoint(0,0):asc"], SortMode::Documents), [2, 0, 1]);
    assert_eq!(page(&facets, &["_geoPoint(0,0):desc"], SortMode::Search), [0, 2, 1]);
}

#[test]
fn keys_give_their_values_back() {
    for descending in [false, true] {
        assert_eq!(SortKey::number(-2.5, descending).value(descending), SortValue::Number(-2.5));
        assert_eq!(SortKey::string("x", descending).value(descending), SortValue::String("x"));
        assert!(SortKey::number(1e9, descending) < SortKey::string("", descending));
        assert!(
            SortKey::string("", descending) < SortKey::Missing
                && SortKey::string("\u{10ffff}", descending) < SortKey::Missing
        );
    }
}

/// The values of a document on a field, by the definition.
fn values(facets: &Facets, document: u32, field: &str) -> Option<FieldFacts> {
    let mut twin = facets.clone();
    let facts = twin.facts(&facets.json[&document]);
    facts.fields.get(&facets.fields.id(field)?).cloned()
}

/// The rank of a value's kind, then the value as bits or text.
type NaiveKey = (u8, u64, String);

/// Where the naive twin puts a document for one criterion: the rank of its kind, then the value.
fn naive_places(facets: &Facets, document: u32, field: &str, descending: bool, mode: SortMode) -> Vec<NaiveKey> {
    let facts = values(facets, document, field);
    let exists = facts.is_some();
    let facts = facts.unwrap_or_default();
    let pick = |mut all: Vec<NaiveKey>| {
        all.sort();
        if descending { all.pop() } else { all.into_iter().next() }
    };
    let number = pick(facts.numbers.iter().map(|bits| (0, *bits, String::new())).collect());
    let string = pick(facts.strings.keys().map(|value| (1, 0, value.to_string())).collect());
    let missing = (2, 0, String::new());
    match mode {
        SortMode::Search => vec![number.or(string).unwrap_or(missing)],
        SortMode::Documents if exists => number.into_iter().chain(string).collect(),
        SortMode::Documents => vec![missing],
    }
}

fn naive(facets: &Facets, criteria: &[(&str, bool)], candidates: &RoaringBitmap, mode: SortMode) -> Vec<u32> {
    let mut places: Vec<(Vec<NaiveKey>, u32)> = Vec::new();
    for document in candidates {
        let mut of_document: Vec<Vec<NaiveKey>> = vec![vec![]];
        for (field, descending) in criteria {
            let keys = naive_places(facets, document, field, *descending, mode);
            of_document = of_document
                .iter()
                .flat_map(|place| keys.iter().map(|key| place.iter().cloned().chain([key.clone()]).collect()))
                .collect();
        }
        places.extend(of_document.into_iter().map(|place| (place, document)));
    }
    places.sort_by(|(left, left_document), (right, right_document)| {
        let by_keys = left.iter().zip(right).zip(criteria).map(|((left, right), (_, descending))| {
            let by_value = left.1.cmp(&right.1).then(left.2.cmp(&right.2));
            left.0.cmp(&right.0).then(if *descending { by_value.reverse() } else { by_value })
        });
        by_keys.fold(Ordering::Equal, Ordering::then).then(left_document.cmp(right_document))
    });
    places.into_iter().map(|(_, document)| document).collect()
}

fn sort_value() -> impl Strategy<Value = Value> {
    let scalar = || {
        prop_oneof![
            (-2..3i32).prop_map(Value::from),
            Just(json!(-0.0)),
            "[aA b]{0,2}".prop_map(Value::from),
            Just(json!(null)),
            any::<bool>().prop_map(Value::from)
        ]
    };
    prop_oneof![scalar(), proptest::collection::vec(scalar(), 0..3).prop_map(Value::from)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Reading keys and walking values give the same page, that of the naive twin.
    #[test]
    fn both_ways_agree_with_the_naive_twin(
        documents in proptest::collection::vec(proptest::collection::vec(("[xyz]", sort_value()), 0..3), 0..25),
        fields in proptest::sample::subsequence(vec!["x", "y", "none"], 1..3).prop_shuffle(),
        directions in any::<(bool, bool)>(),
        limit in 0..30usize,
        (skip, first) in (0..4u32, 0..20u32),
        is_search: bool,
    ) {
        let documents = documents.into_iter().map(|members| Value::Object(members.into_iter().collect()));
        let facets = Facets::with(filterable(&["x", "y", "none"]), documents);
        let candidates: RoaringBitmap = facets.documents.iter().filter(|document| document % 4 != skip && *document >= first).collect();
        let mode = if is_search { SortMode::Search } else { SortMode::Documents };
        let chosen: Vec<_> = fields.iter().copied().zip([directions.0, directions.1]).collect();
        let criteria: Vec<_> = chosen.iter().map(|(field, descending)| SortCriterion::field(*field, *descending)).collect();
        let mut expected = naive(&facets, &chosen, &candidates, mode);
        if let ([(name, descending)], SortMode::Documents) = (&*chosen, mode)
            && let Some(field) = facets.fields.id(name)
        {
            let order = FieldOrder { field, descending: *descending, twice: true };
            let held = facets.columns().held_by(facets.resident_fields());
            let marks = block_on(held.marks(order, &candidates, (1000, u64::MAX), &Unpaced)).expect("memory does not fail");
            for Mark { cut, before } in marks.expect("enough was read") {
                let page = sorted_page_behind(&facets, &criteria, &cut, (&candidates, limit), &Unpaced);
                let (page, passed) = block_on(page).expect("memory does not fail").expect("one field decides");
                prop_assert_eq!(passed, before);
                let behind: Vec<u32> = expected.iter().copied().skip(before as usize).take(limit).collect();
                prop_assert_eq!(page.iter().map(|(_, document)| document.0).collect::<Vec<_>>(), behind);
            }
        }
        expected.truncate(limit);
        let read = block_on(top::read(&keys::KeyReader::new(&facets, &criteria), &candidates, limit, (mode, &Unpaced))).expect("memory does not fail");
        let numbers = |page: &[(SortKeys, LocalDocId)]| page.iter().map(|(_, document)| document.0).collect::<Vec<_>>();
        prop_assert_eq!(numbers(&read), expected);
        // Without pieces of the field, and with them.
        for unread in [0, 1000] {
            if let Some(field) = facets.fields.id(chosen[0].0) {
                let held = facets.columns().held_by(facets.resident_fields());
                block_on(held.piece_walk(field, chosen[0].1, unread, &Unpaced)).expect("memory does not fail");
            }
            let walked = block_on(top::walk(&facets, &criteria, &candidates, limit, (mode, &Unpaced)));
            if let Some(walked) = walked.expect("memory does not fail") {
                prop_assert_eq!(&walked, &read);
            }
        }
        if mode == SortMode::Search {
            let keys = sort_keys(&facets, &criteria, candidates.iter().map(LocalDocId)).expect("memory does not fail");
            prop_assert!(block_on(sorted_page(&facets, &criteria, &candidates, usize::MAX, mode, &Unpaced)).expect("memory does not fail")
                .iter().all(|(key, document)| keys[candidates.rank(document.0) as usize - 1] == *key));
        }
        prop_assert_eq!(facets.documents().len() as usize, facets.json.len());
    }
}
