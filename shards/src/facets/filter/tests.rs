//! The language by table, and evaluation against a naive twin over the documents' JSON.

use std::cell::Cell;
use std::pin::Pin;

use futures_lite::future::block_on;
use proptest::prelude::*;
use serde_json::{Value, json};
use storage_engine::vector::{Pace, Unpaced};

pub(in crate::facets) use self::naive::document;
use self::naive::{naive, node};
use super::{FilterFeatureSet, parse_filter, parse_filter_parameter, parse_filter_text};
use crate::facets::source::FacetError;
use crate::facets::test_support::{Facets, filterable};
use crate::settings::{FilterableFeatures, FilterableRule};

mod naive;
mod ranges;

const CODE: &str = "invalid_search_filter";

fn parses(text: &str) -> bool {
    parse_filter_text(text, CODE).is_ok()
}

#[test]
fn what_parses() {
    for text in [
        "a=u",
        "a= u",
        "a  =  u",
        "a='u'",
        "a!=u",
        "n>1",
        "x = -10",
        "x = .5",
        "x = 1e3",
        "x = and",
        "to 1 TO 4",
        "x = ANDROID OR NULLABLE = 1",
        "a = _geoPolygon",
        "_geo.lat > 60",
        "g EXISTSAND z = 0",
        "g IS NULLOR z = 0",
        "g STARTS WITHa",
        "g STARTS WITH'a'",
        "'g'EXISTS",
        "'g'='a'",
        "g='a'AND z=0",
        "NOT(a = 1)",
        "a = 1 AND(b = 0)",
        "x IN[a]AND y = 1",
        "g IN [a] ",
        "g IN [a, b,]",
        "g IN []",
        "g IN [ ]",
        "g NOT IN [a]",
        "g NOT  EXISTS",
        "g IS \n NOT \t NULL",
        "(g EXISTS )",
        "(_geoRadius(1,1,1) )",
        "  _geoRadius(1,1,1)",
        "_geoRadius( 1 , -1.5 , 1e2 , 5 )",
        "_geoRadius(1,2,1e999)",
        "_geoBoundingBox([ 2,2 ] , [0,0])",
        "_geoPolygon([0,0],[0,1],[1,1])",
        "_geoPolygon([0,0],[0,1],[1,1],)",
        "\u{a0}g = a",
        "g = ٣",
        "x = ''",
        "'' = 1",
        r#"x = "it's" AND y = 'say \'hi\''"#,
        "_vectors EXISTS",
        "_vectors.a NOT EXISTS",
        r#"_vectors."o.p" EXISTS"#,
        "_vectors.a.userProvided EXISTS",
        "_vectors.a.fragments.f EXISTS",
        "_vectors = 1",
        "_vectors IS NULL",
        "_vectors.a = 1",
        "_vectors.a.userProvided!=true",
        "_vectors. IN[1]",
        "_vectors.a NOT IN [1]",
        "_vectors.a.nope IS NOT EMPTY",
        "_vectorsX = 1",
        "_shard IN [a]",
        "NOT NOT a = 1",
    ] {
        assert!(parses(text), "{text}");
    }
}

#[test]
fn what_does_not_parse() {
    for text in [
        "a",
        "a =",
        "= 1",
        "a == 1",
        "a <> 1",
        "a => 1",
        "a < = 1",
        "a ! = u",
        "a = 1 && b = 2",
        "a = 1 and b = 1",
        "x NOT = 1",
        "x NOT 1 TO 2",
        "a = u ANDb = 1",
        "a = uAND b = w",
        "g='a'ANDz=0",
        "gEXISTS",
        "g EXISTS ",
        "g IS NULL ",
        "g IS NOT EMPTY ",
        "_geoRadius(1,1,1) ",
        "_geoBoundingBox([2,2],[0,0]) ",
        "g STARTS  WITH a",
        "x = +10",
        "x = a b",
        "x = a,b",
        "x = AND",
        "NULL = 1",
        "_geo = 1",
        "x = _geoPointless",
        "x = _geoDistance",
        "_geoPoint(1,2)",
        "_geoRadius",
        "_geoRadius()",
        "_geoRadius(1,2)",
        "_geoRadius(1,2,3,4,5)",
        "_geoRadius (1,2,3)",
        "_geoRadius('1',2,3)",
        "_geoRadius(nan,2,1)",
        "_geoRadius(1,2,3",
        "_geoBoundingBox([1,2,3],[0,0,0])",
        "_geoBoundingBox([1,2])",
        "_geoPolygon([0,0],[0,1])",
        "_georadius(1,2,3)",
        "g IN a",
        "g IN [a b]",
        "g IN [a",
        "g IN [,]",
        "(a = 1",
        "a = 1)",
        "()",
        "a = 1 AND",
        "a = 1 OR OR b = 1",
        "x = 'open",
        "x = 'a\\q'",
        "x = '\\ud800'",
        "x = '\\u12'",
        "g = a\u{a0}",
        "g\u{3000}= a",
        "_vectors.",
        "_vectors. EXISTS",
        "_vectors.a",
        "_vectors.a CONTAINS b",
        "_vectors NOT CONTAINS b",
        "_vectors 1 TO 2",
        "_vectors.'a' = 1",
        "_vectors.a IS",
        "_vectors.a.nope EXISTS",
        "_vectors.a.userProvided.regenerate EXISTS",
        "_vectors.a.'userProvided' EXISTS",
        "_vectors.'a'EXISTS",
        "_vectors.a.fragments EXISTS",
        "_foreign(a = 1)",
    ] {
        let error = parse_filter_text(text, CODE).expect_err(text);
        assert_eq!(error.code, CODE);
    }
}

/// Clients show the last line of the message: columns count characters, from 1.
#[test]
fn errors_name_the_position() {
    let error = parse_filter_text("é = 1 AND (b = 2", CODE).expect_err("unclosed");
    assert_eq!(error.message.lines().last(), Some("17:17 é = 1 AND (b = 2"));
    let error = parse_filter_text("a = NULL", CODE).expect_err("reserved");
    assert_eq!(error.message.lines().last(), Some("5:9 a = NULL"));
}

/// The limits are exact, so that the stack is bounded and clients get the same answer everywhere.
#[test]
fn nesting_ends_at_the_documented_depth() {
    let parentheses = |count: usize| "(".repeat(count) + "n = 1" + &")".repeat(count);
    assert!(parses(&parentheses(49)) && !parses(&parentheses(50)) && !parses(&parentheses(100_000)));
    let nots = |count: usize| "NOT ".repeat(count) + "n = 1";
    assert!(parses(&nots(197)) && !parses(&nots(198)) && !parses(&nots(100_000)));
    let flat = vec!["n = 1"; 5000].join(" OR ");
    assert!(parses(&flat) && parses(&format!("n IN [{}]", vec!["1"; 5000].join(","))));
}

#[test]
fn array_forms_join_with_and_then_or() {
    let parse = |value: Value| parse_filter(&value, CODE);
    let same = |value: Value, text: &str| {
        assert_eq!(parse(value), parse_filter_text(text, CODE), "{text}");
    };
    same(json!(["a = 1", ["b = 2", "c = 3 OR d = 4"]]), "a = 1 AND (b = 2 OR (c = 3 OR d = 4))");
    same(json!([[], "a = 1", "", [""]]), "a = 1");
    for empty in [json!(null), json!(""), json!(" "), json!([]), json!([[]]), json!(["", []])] {
        assert_eq!(parse(empty.clone()), Ok(None), "{empty}");
    }
    for bad in
        [json!(1), json!({}), json!(true), json!([1]), json!([null]), json!([[["a = 1"]]]), json!(["(a = 1", "b = 1)"])]
    {
        assert_eq!(parse(bad.clone()).map_err(|error| error.code), Err(CODE), "{bad}");
    }
}

#[test]
fn query_strings_are_json_first() {
    let same = |parameter: &str, text: &str| {
        assert_eq!(parse_filter_parameter(parameter, CODE), parse_filter_text(text, CODE), "{parameter}");
    };
    same(r#"["a = 1",["b = 2"]]"#, "a = 1 AND b = 2");
    same(r#""a = 1""#, "a = 1");
    same("a = 1", "a = 1");
    same("", "");
    for bad in ["12", "{}", "null", r#"["a = 1""#] {
        assert!(parse_filter_parameter(bad, CODE).is_err(), "{bad}");
    }
}

#[test]
fn features_are_asked_for_at_any_depth() {
    let check = |text: &str, features| {
        let filter = parse_filter_text(text, CODE).expect(text).expect("not empty");
        filter.check_features(&features).map_err(|error| error.code)
    };
    let all = FilterFeatureSet { contains: true, network: true, multimodal: true };
    for text in ["a = 1 OR (b = 1 AND NOT c CONTAINS x)", "a NOT CONTAINS x", "_shard = a", "_vectors.e EXISTS"] {
        assert_eq!(check(text, FilterFeatureSet::default()), Err("feature_not_enabled"), "{text}");
        assert_eq!(check(text, all), Ok(()), "{text}");
    }
    assert_eq!(check("a STARTS WITH x AND _vectors = 1", FilterFeatureSet::default()), Ok(()));
}

fn selected(facets: &Facets, text: &str) -> Result<Vec<u32>, &'static str> {
    let filter = parse_filter_text(text, "invalid_document_filter").expect(text).expect("not empty");
    filter.check_attributes(&facets.settings).map_err(|error| error.code)?;
    match block_on(filter.evaluate(facets, &Unpaced)) {
        Ok(documents) => Ok(documents.iter().collect()),
        Err(FacetError::User(error)) => Err(error.code),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn unfilterable_attributes_are_refused_before_evaluation() {
    let facets = Facets::with(filterable(&["a"]), [json!({"a": 1, "b": 1})]);
    assert_eq!(selected(&facets, "a = 2 AND b = 1"), Err("invalid_document_filter"));
    assert_eq!(selected(&facets, "a.deep = 1"), Ok(vec![]));
    assert_eq!(selected(&facets, "_vectors = 1"), Ok(vec![]));
}

/// Where `_vectors` is filterable its fields are ones that no document has; comparing them with values was refused.
#[test]
fn fields_of_vectors_are_fields() {
    let document = json!({"a": 1});
    let of = |names: &[&str], text: &str| selected(&Facets::with(filterable(names), [document.clone()]), text);
    for none in ["_vectors.e = 1", "_vectors.e.userProvided > 1", "_vectors.e IN [1]", "_vectors.e IS NULL"] {
        assert_eq!(of(&["_vectors"], none), Ok(vec![]), "{none}");
        assert_eq!(of(&["a"], none), Err("invalid_document_filter"), "{none}");
    }
    for all in ["NOT _vectors.e = 1", "_vectors.e NOT IN [1]", "_vectors.e IS NOT EMPTY"] {
        assert_eq!(of(&["_vectors"], all), Ok(vec![0]), "{all}");
    }
}

/// `!=` on a field that no document ever had finds nothing, while what is written as a complement finds everything.
#[test]
fn unknown_fields_select_nothing() {
    let mut facets = Facets::with(filterable(&["a", "z"]), [json!({"a": 1}), json!({"a": 2})]);
    for nothing in ["z != 1", "z > 1", "z = 1", "z EXISTS"] {
        assert_eq!(selected(&facets, nothing), Ok(vec![]), "{nothing}");
    }
    for all in ["NOT z = 1", "z NOT EXISTS", "z IS NOT NULL", "z NOT IN [1]", "NOT z != 1"] {
        assert_eq!(selected(&facets, all), Ok(vec![0, 1]), "{all}");
    }
    facets.put([(2, Some(json!({"z": 1})))]);
    facets.put([(2, None)]);
    assert_eq!(selected(&facets, "z != 1"), Ok(vec![0, 1]), "the index has met the field");
}

/// Forbidden operators are found while evaluating only, with one code on all routes.
#[test]
fn operators_are_checked_lazily() {
    let rule =
        FilterableRule::Patterns { attribute_patterns: vec!["y".into()], features: FilterableFeatures::default() };
    let mut settings = filterable(&["g"]);
    settings.filterable_attributes.push(rule);
    let facets = Facets::with(settings, [json!({"g": "a", "y": 3})]);
    assert_eq!(selected(&facets, "y > 3"), Err("invalid_search_filter"));
    assert_eq!(selected(&facets, "g = nothing AND y > 3"), Ok(vec![]));
    assert_eq!(selected(&facets, "g = nothing AND _geoRadius(91,0,1)"), Ok(vec![]));
    assert_eq!(selected(&facets, "g = a OR y > 3"), Err("invalid_search_filter"));
    assert_eq!(selected(&facets, "y = 3 AND y STARTS WITH x"), Ok(vec![]));
}

#[test]
fn geo_filters_select_points() {
    let documents = [
        json!({"_geo": {"lat": 50.6299, "lng": 3.0569}}),
        json!({"_geo": {"lat": 48.8566, "lng": 2.3522}}),
        json!({"_geo": null}),
        json!({"_geo": {"lat": "0", "lng": 179.5}}),
    ];
    let facets = Facets::with(filterable(&["_geo"]), documents.clone());
    assert_eq!(selected(&facets, "_geoRadius(50.6299, 3.0569, 0)"), Ok(vec![0]));
    assert_eq!(selected(&facets, "_geoRadius(50.6299, 3.0569, 205000)"), Ok(vec![0, 1]));
    assert_eq!(selected(&facets, "_geoRadius(0, 0, -1)"), Ok(vec![]));
    assert_eq!(selected(&facets, "_geoBoundingBox([60, 10], [40, 0])"), Ok(vec![0, 1]));
    assert_eq!(selected(&facets, "_geoBoundingBox([60, -170], [-40, 170])"), Ok(vec![3]));
    assert_eq!(selected(&facets, "_geo.lat > 49"), Ok(vec![0]));
    assert_eq!(selected(&facets, "'_geo' EXISTS"), Ok(vec![]));
    for bad in [
        "_geoRadius(91, 0, 1)",
        "_geoRadius(0, -181, 1)",
        "_geoRadius(0, 0, 1, 2)",
        "_geoRadius(0, 0, 1, 1001)",
        "_geoRadius(0, 0, 1e999)",
        "_geoRadius(0, 1e999, 1)",
        "_geoRadius(0, 0, 1, 1e999)",
        "_geoBoundingBox([0, 0], [1, 0])",
        "_geoPolygon([0,0],[0,1],[1,1])",
    ] {
        assert_eq!(selected(&facets, bad), Err("invalid_document_filter"), "{bad}");
    }
    let without = Facets::with(filterable(&["a"]), documents);
    assert_eq!(selected(&without, "_geoRadius(0, 0, 1)"), Err("invalid_document_filter"));
}

#[test]
fn an_index_without_shards_or_vectors_knows_no_names() {
    let mut settings = filterable(&[]);
    settings.embedders.insert("e".into(), json!({"indexingFragments": {"f": {}}}));
    let facets = Facets::with(settings, [json!({"a": 1})]);
    assert_eq!(selected(&facets, "_shard IN []"), Ok(vec![]));
    assert_eq!(selected(&facets, "_shard NOT IN []"), Ok(vec![0]));
    assert_eq!(selected(&facets, "_vectors EXISTS"), Ok(vec![]));
    assert_eq!(selected(&facets, "_vectors.e.fragments.f NOT EXISTS"), Ok(vec![0]));
    for bad in ["_shard = s", "_shard EXISTS"] {
        assert_eq!(selected(&facets, bad), Err("invalid_search_filter"), "{bad}");
    }
    for bad in ["_vectors.x EXISTS", "_vectors.e.fragments.x EXISTS"] {
        assert_eq!(selected(&facets, bad), Err("invalid_document_filter"), "{bad}");
    }
}

/// Pauses whenever it is looked at, and counts that.
#[derive(Default)]
struct Looks(Cell<usize>);

impl Pace for Looks {
    fn due(&self) -> bool {
        self.0.set(self.0.get() + 1);
        true
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(futures_lite::future::yield_now())
    }
}

/// However long a filter is, others have their turn after every few tests and values of it, also when it is freed.
#[test]
fn long_filters_give_way() {
    let tests = |glue: &str| Value::from((0..1000).map(|at| format!("NOT x = {at}")).collect::<Vec<_>>().join(glue));
    let values = (0..1000).map(|at| format!("'{at}'")).collect::<Vec<_>>().join(", ");
    let nested = format!("x IN [{values}] OR (y = 1 AND ({}))", tests(" AND ").as_str().unwrap());
    for (filter, size) in [
        (tests(" OR "), 1000),
        (tests(" AND "), 1000),
        (nested.into(), 2001),
        (Value::Array((0..1000).map(|at| json!(format!("x = {at}"))).collect()), 1000),
        (json!([(0..1000).map(|at| format!("x = {at}")).collect::<Vec<_>>()]), 1000),
    ] {
        let looks = Looks::default();
        let parsed = block_on(super::parse_filter_in_steps(&filter, CODE, &looks)).unwrap().unwrap();
        assert!(looks.0.get() >= size, "{}", looks.0.get());
        assert_eq!(parse_filter(&filter, CODE), Ok(Some(parsed.clone())));
        assert!(parsed.size() >= size);
        let looks = Looks::default();
        block_on(parsed.clone().free(&looks));
        assert_eq!(looks.0.get(), 0, "somebody else holds it");
        block_on(parsed.free(&looks));
        assert!(looks.0.get() >= size / super::FREED_PER_LOOK, "{}", looks.0.get());
    }
}

/// A request of a hundred thousand conditions, few of them different, once kept a core busy for a minute.
#[test]
fn equal_conditions_are_evaluated_once_and_parts_together() {
    let document = |number: u32| json!({"x": number, "s": format!("value {number:03}")});
    let facets = Facets::with(filterable(&["x", "s"]), (0..300).map(document));
    let with_looks = |filter: Value| {
        let filter = parse_filter(&filter, CODE).unwrap().unwrap();
        let looks = Looks::default();
        let found = block_on(filter.evaluate(&facets, &looks)).unwrap();
        (found.iter().collect::<Vec<u32>>(), looks.0.get())
    };
    let repeated: Vec<String> = (0..2000).map(|number| format!("x > {}", number % 4)).collect();
    let (found, looks) = with_looks(json!(repeated));
    assert_eq!(found, (4..300).collect::<Vec<_>>());
    assert!(looks < 500, "{looks}");
    let (found, looks) = with_looks(json!([repeated]));
    assert_eq!(found, (1..300).collect::<Vec<_>>());
    assert!(looks < 500, "{looks}");
    let parts = (0..1000).map(|number| format!("s CONTAINS '{:03}'", number + 250));
    let (found, looks) = with_looks(json!([parts.collect::<Vec<_>>()]));
    assert_eq!(found, (250..300).collect::<Vec<_>>());
    assert!(looks < 1500, "{looks}");
    let long = "v".repeat(100_000);
    let (found, _) = with_looks(json!([["s CONTAINS nothing", format!("s CONTAINS {long}"), "s CONTAINS ''"]]));
    assert_eq!(found.len(), 300);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn evaluation_agrees_with_the_naive_twin(documents in proptest::collection::vec(document(), 0..12), node in node()) {
        let facets = Facets::with(filterable(&["x", "y", "w", "none"]), documents);
        let filter = super::Filter { root: std::sync::Arc::new(node), code: CODE };
        let selected = block_on(filter.evaluate(&facets, &Unpaced)).expect("every operator is allowed");
        prop_assert_eq!(selected, naive(&facets, &filter.root));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text: String) {
        let _ = parse_filter_text(&text, CODE);
    }

    /// Random tokens get further into the grammar than random characters.
    #[test]
    fn no_tokens_make_the_parser_panic(tokens in proptest::collection::vec(proptest::sample::select(vec![
        "a", "'b'", "\"", "'", "\\", "\\u12", " ", "\u{a0}", "=", "!=", "<", "AND", "OR", "NOT", "IN", "[", "]", ",", "(", ")", "TO", "EXISTS",
        "IS", "NULL", "EMPTY", "CONTAINS", "STARTS WITH", "_geoRadius(", "_geoBoundingBox([", "_geoPolygon([", "1", "-.5e3", "_vectors",
        ".", "fragments", "userProvided", "_shard", "é",
    ]), 0..30)) {
        let _ = parse_filter_text(&tokens.concat(), CODE);
    }
}

/// One parsed filter is sent to every partition.
#[test]
fn filters_cross_cores() {
    fn crosses<T: Send + Clone + 'static>() {}
    crosses::<super::Filter>();
}
