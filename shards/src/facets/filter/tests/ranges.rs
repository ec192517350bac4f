//! Many ranges of an attribute at once, against the naive twin and by what they look at.

use futures_lite::future::block_on;
use proptest::prelude::*;
use serde_json::{Value, json};
use storage_engine::vector::Unpaced;

use super::super::Filter;
use super::super::tree::{Comparison, Node, Operator, Test};
use super::naive::{naive, operand};
use super::{CODE, Looks, document, parse_filter};
use crate::facets::test_support::{Facets, filterable};

fn range() -> impl Strategy<Value = Operator> {
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
    let comparison = proptest::sample::select(vec![Greater, GreaterOrEqual, Less, LessOrEqual]);
    let operand = || prop_oneof![3 => "-?[0-9]", 1 => operand()];
    prop_oneof![
        1 => (comparison, operand()).prop_map(|(comparison, operand)| Operator::Compare(comparison, operand)),
        2 => (operand(), operand()).prop_map(|(from, to)| Operator::Between(from, to)),
    ]
}

/// A list of ranges, some of them negated, and now and then another test between them.
fn list() -> impl Strategy<Value = Node> {
    let test = |attribute: &'static str| {
        range().prop_map(move |operator| Node::Test(Test { attribute: attribute.to_owned(), operator }))
    };
    let other = Node::Test(Test { attribute: "x".to_owned(), operator: Operator::Exists });
    let member = prop_oneof![
        8 => test("x"),
        2 => test("x").prop_map(Node::not),
        2 => test("y"),
        1 => test("y").prop_map(Node::not),
        1 => Just(other.clone()),
        1 => Just(Node::not(other)),
    ];
    (proptest::collection::vec(member, 2..14), any::<bool>(), any::<bool>()).prop_map(|(members, is_and, is_not)| {
        let list = if is_and { Node::And(members) } else { Node::Or(members) };
        if is_not { Node::not(list) } else { list }
    })
}

/// Values that ranges are likely to meet, several to a document, numbers and strings.
fn with_many_values() -> impl Strategy<Value = Value> {
    let value = prop_oneof![4 => (-9..10i32).prop_map(Value::from), 1 => "[0-9]{1,2}".prop_map(Value::from)];
    let values = || proptest::collection::vec(value.clone(), 0..9);
    let of_both = (values(), values()).prop_map(|(x, y)| json!({ "x": x, "y": y }));
    prop_oneof![3 => of_both, 1 => document()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn lists_of_ranges_agree_with_the_naive_twin(
        documents in proptest::collection::vec(with_many_values(), 0..20),
        node in list(),
    ) {
        let facets = Facets::with(filterable(&["x", "y"]), documents);
        let filter = Filter { root: std::sync::Arc::new(node), code: CODE };
        let selected = block_on(filter.evaluate(&facets, &Unpaced)).expect("every operator is allowed");
        prop_assert_eq!(selected, naive(&facets, &filter.root));
    }
}

/// A filter of a hundred thousand different ranges once took minutes: each of them was read for itself, and most of these meet a
/// great part of all values.
#[test]
fn different_ranges_are_read_together() {
    let documents = (0..600).map(|number| json!({ "x": [number, number + 300, format!("{number:03}")], "y": number }));
    let facets = Facets::with(filterable(&["x", "y"]), documents);
    let with_looks = |filter: Value| {
        let filter = parse_filter(&filter, CODE).unwrap().unwrap();
        let looks = Looks::default();
        let found = block_on(filter.evaluate(&facets, &looks)).unwrap();
        (found.iter().collect::<Vec<u32>>(), looks.0.get())
    };
    let range = |number: usize| format!("x {} TO {}", number % 300, number % 300 + 1 + number / 300);
    let ranges = |count: usize| (0..count).map(range).collect::<Vec<_>>();
    let negated = |count: usize| ranges(count).iter().map(|range| format!("NOT {range}")).collect::<Vec<_>>();
    let one_sided: Vec<_> = (0..2000).map(|number| format!("y > {}", f64::from(number) / 10.0)).collect();
    for (filter, found, looks_max) in [
        (json!([ranges(2000)]), 0..600, 1000),
        (json!([negated(2000)]), 0..600, 1000),
        (json!(negated(2000)), 0..0, 1000),
        (json!(ranges(2000)), 0..0, 1000),
        (json!(one_sided), 200..600, 1000),
        (json!([one_sided]), 1..600, 1000),
    ] {
        let found: Vec<u32> = found.collect();
        let kind = filter.to_string().chars().take(40).collect::<String>();
        let (selected, looks) = with_looks(filter);
        assert_eq!(selected, found, "{kind}");
        assert!(looks < looks_max, "{kind}: {looks}");
    }
}

/// An AND stops where nothing is left, so that mistakes to its right go unnoticed, and others are told.
#[test]
fn mistakes_are_told_as_far_as_something_is_left() {
    let facets = Facets::with(filterable(&["x"]), (0..9).map(|number| json!({ "x": number, "z": 1 })));
    let failed = |filter: Value| {
        let filter = parse_filter(&filter, CODE).unwrap().unwrap();
        block_on(filter.evaluate(&facets, &Unpaced)).is_err()
    };
    for (filter, fails) in [
        (json!(["x > 3", "x < 9", "z > 1"]), true),
        (json!(["x > 3", "x < 2", "z > 1"]), false),
        (json!(["x > 3", "x = 2", "z > 1"]), false),
        (json!(["x > 3", "z > 1", "x < 2"]), true),
        (json!(["x > 3", ["z > 1", "x < 2"], "x < 2"]), true),
        (json!(["x > 3", "x < 2", ["z > 1", "x < 2"]]), false),
        (json!([["x > 3", "x < 2", "z > 1"]]), true),
        (json!([["x > 3", "NOT z > 1"]]), true),
    ] {
        assert_eq!(failed(filter.clone()), fails, "{filter}");
    }
}
