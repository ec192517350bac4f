use futures_lite::future::block_on;
use proptest::prelude::*;
use serde_json::json;
use storage_engine::vector::Unpaced;

use super::*;
use crate::facets::test_support::{Facets, Part, filterable};

fn found(facets: &Facets, query: Option<&str>) -> Vec<String> {
    let folding = Folding::of_query("city", &facets.settings, None);
    let query = query.map(|query| folding.fold(query));
    let found = answer(&[(facets, &facets.documents)], &facets.settings, query.as_deref());
    found.into_iter().map(|(value, _)| value).collect()
}

/// What several partitions answer together.
fn answer(
    parts: &[(&dyn FacetSource, &RoaringBitmap)],
    settings: &Settings,
    query: Option<&str>,
) -> Vec<(String, u64)> {
    let mut all = FacetHits::default();
    for (part, documents) in parts {
        let hits = block_on(search_facet(*part, "city", query, documents, &Unpaced)).expect("memory does not fail");
        all = block_on(all.merged(hits, &Unpaced));
    }
    let all = block_on(all.to_spell("city", query, settings, &Unpaced));
    let mut spelled = Vec::new();
    for values in all.values(2) {
        let mut of_values = vec![None; values.len()];
        for (part, _) in parts {
            let of_part = block_on(spellings(*part, "city", &values, &Unpaced)).expect("memory does not fail");
            join_spellings(&mut of_values, of_part);
        }
        spelled.extend(of_values);
    }
    block_on(all.finish(spelled, ("city", query), settings, &Unpaced))
}

fn cities() -> Facets {
    let names = [
        "Berlin",
        "Bern",
        "Bergen",
        "Barcelona",
        "Bordeaux",
        "Brussels",
        "Bremen",
        "Brest",
        "Brno",
        "Basel",
        "Baku",
        "Saint-Étienne",
        "San Francisco",
        "Amsterdam",
        "Amsteldam",
        "Bratislava",
        "Élan",
        "Elan",
        "Straße",
    ];
    let documents = names.into_iter().map(|name| json!({ "city": name })).chain([json!({"city": 42})]);
    Facets::with(filterable(&["city"]), documents)
}

#[test]
fn typos_grow_with_the_bytes_of_the_query() {
    let mut facets = cities();
    for (query, expected) in [
        ("berln", vec!["Berlin", "Bern"]),
        ("brlin", vec!["Berlin"]),
        ("bxrl", vec![]),
        ("berlinn", vec!["Berlin"]),
        ("berlinnn", vec![]),
        ("amstredam", vec!["Amsteldam", "Amsterdam"]),
        ("xmsterdam", vec!["Amsteldam", "Amsterdam"]),
        ("amxtxrdxm", vec![]),
        ("bernx", vec!["Bern"]),
        ("sain etienne", vec!["Saint-Étienne"]),
        ("san fr", vec!["San Francisco"]),
        ("Élan", vec!["Elan", "Élan"]),
        ("elan", vec!["Elan", "Élan"]),
        ("ss", vec![]),
        ("straße", vec!["Straße"]),
        ("trasse", vec![]),
        ("   ", vec![]),
        ("4", vec![]),
    ] {
        assert_eq!(found(&facets, Some(query)), expected, "{query}");
    }
    assert_eq!(found(&facets, None).len(), 19);
    assert_eq!(found(&facets, Some("")).len(), 19);
    facets.settings.typo_tolerance.min_word_size_for_typos.one_typo = 3;
    assert_eq!(found(&facets, Some("brs")), ["Basel", "Bratislava", "Bremen", "Brest", "Brno", "Brussels"]);
    facets.settings.typo_tolerance.disable_on_words.insert("basel".into());
    facets.settings.typo_tolerance.disable_on_words.insert("base".into());
    assert_eq!((found(&facets, Some("Basel")), found(&facets, Some("base"))), (vec!["Basel".to_owned()], vec![]));
    facets.settings.typo_tolerance.disable_on_attributes.insert("city".into());
    assert_eq!((found(&facets, Some("brs")), found(&facets, Some("BARC"))), (vec![], vec!["Barcelona".to_owned()]));
}

/// The spelling is that of the first document of all, whichever partition it is in and whether it matches or not.
#[test]
fn partitions_find_together_what_one_finds() {
    let part = |names: &[&str]| Facets::with(filterable(&["city"]), names.iter().map(|name| json!({ "city": name })));
    let (left, right) = (part(&["PARIS", "Rome"]), part(&["paris", "Paris"]));
    let right = Part { facets: &right, number: 1, count: 2 };
    let left = Part { facets: &left, number: 0, count: 2 };
    let none = RoaringBitmap::new();
    let parts: [(&dyn FacetSource, _); 2] = [(&right, &right.facets.documents), (&left, &none)];
    assert_eq!(answer(&parts, left.settings(), Some("par")), [("PARIS".to_owned(), 2)]);
    assert_eq!(answer(&parts, left.settings(), Some("rome")), []);
}

/// What is asked for, the slow way: every value of every document is looked at.
fn slowly(facets: &Facets, documents: &RoaringBitmap, query: Option<&str>) -> Vec<(String, u64)> {
    let settings = &facets.settings;
    let wanted = Wanted::new(query, "city", settings);
    let (matcher, field) = (Matcher::new(&wanted, "city", settings), facets.fields.id("city"));
    let mut values: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for document in field.into_iter().flat_map(|_| &facets.documents) {
        let of_document = facets.columns().values(field.unwrap(), LocalDocId(document)).unwrap();
        for (value, spelling) in of_document.into_iter().flat_map(DocValues::strings) {
            let known = values.entry(value.to_owned()).or_insert((spelling.to_owned(), 0));
            known.1 += u64::from(documents.contains(document));
        }
    }
    let mut found: Vec<_> =
        values.into_iter().filter(|(value, (_, count))| *count > 0 && matcher.takes(value)).collect();
    match (settings.faceting.order("city"), query) {
        (FacetOrder::Alpha, None) => {}
        (FacetOrder::Alpha, Some(_)) => found.sort_by_key(|(value, _)| matcher.folding.fold(value).into_owned()),
        (FacetOrder::Count, _) => found.sort_by(|(_, left), (_, right)| (right.1, &right.0).cmp(&(left.1, &left.0))),
    }
    found.truncate(limit(settings));
    found.into_iter().map(|(_, spelled)| spelled).collect()
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[abABéÉ]{0,2}", "[abcAÀ]{3,6}", "ab[cdeé]{2,3}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Partitions that stop at the limit answer together what a look at all values gives, whatever their number.
    #[test]
    fn answers_are_those_of_the_slow_way(
        lists in proptest::collection::vec(proptest::collection::vec(name(), 0..5), 0..40),
        query in proptest::option::of("[ab]{0,2}|abc[cd]{0,3}"),
        by_count: bool,
        limit in 0..5u64,
        every in 1..9u32
    ) {
        let mut settings = filterable(&["city"]);
        let order = if by_count { FacetOrder::Count } else { FacetOrder::Alpha };
        settings.faceting.sort_facet_values_by.insert("*".into(), order);
        settings.faceting.max_values_per_facet = limit;
        let facets = Facets::with(settings, lists.iter().map(|list| json!({ "city": list })));
        let documents: RoaringBitmap = facets.documents.iter().filter(|document| document % every == 0).collect();
        let expected = slowly(&facets, &documents, query.as_deref());
        for count in [1, 3, 7] {
            let parts: Vec<_> = (0..count).map(|number| facets.part(number, count, &documents)).collect();
            let sources: Vec<_> =
                parts.iter().enumerate().map(|(number, (facets, documents))| {
                    (Part { facets, number: number as u32, count }, documents)
                }).collect();
            let sources: Vec<(&dyn FacetSource, _)> =
                sources.iter().map(|(part, documents)| (part as &dyn FacetSource, *documents)).collect();
            prop_assert_eq!(answer(&sources, &facets.settings, query.as_deref()), &*expected, "{} partitions", count);
        }
    }
}

#[test]
fn the_count_order_breaks_ties_by_falling_spelling() {
    let names = ["b", "a", "b", "c"];
    let mut facets = Facets::with(filterable(&["city"]), names.map(|name| json!({ "city": name })));
    facets.settings.faceting.sort_facet_values_by.insert("city".into(), FacetOrder::Count);
    assert_eq!(found(&facets, None), ["b", "c", "a"]);
    facets.settings.faceting.max_values_per_facet = 0;
    assert!(found(&facets, None).is_empty());
    assert!(check_facet_name("city.x", &facets.settings).is_ok() && check_facet_name("x", &facets.settings).is_err());
    facets.settings.facet_search = false;
    assert!(check_facet_search_enabled(&facets.settings).is_err());
}
