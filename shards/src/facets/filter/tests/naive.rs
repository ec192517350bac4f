//! Filters and documents at random, and the slow twin that judges each document alone.

use proptest::prelude::*;
use roaring::RoaringBitmap;
use serde_json::{Value, json};

use super::super::tree::{Comparison, Node, Operator, Test};
use crate::facets::normalise::{cut, normalise, number_bits, parse_number};
use crate::facets::test_support::Facets;

/// Collected from a document's JSON by the definition, without any column.
#[derive(Default)]
struct NaiveFacts {
    exists: bool,
    null: bool,
    empty: bool,
    numbers: Vec<u64>,
    strings: Vec<String>,
}

impl NaiveFacts {
    fn of(document: &Value, path: &str) -> Self {
        let mut facts = Self::default();
        facts.enter(document, "", path, true);
        facts
    }

    fn enter(&mut self, value: &Value, at: &str, wanted: &str, direct: bool) {
        if at == wanted {
            self.exists = true;
            self.null |= direct && value.is_null();
            match value {
                Value::Number(number) => self.numbers.push(number_bits(number.as_f64().expect("a float"))),
                Value::Bool(value) => self.strings.push(value.to_string()),
                Value::String(text) if text.is_empty() => self.empty |= direct,
                Value::String(text) => self.strings.push(cut(&normalise(text)).to_owned()),
                Value::Array(elements) => self.empty |= direct && elements.is_empty(),
                Value::Object(members) => self.empty |= direct && members.is_empty(),
                Value::Null => {}
            }
        }
        match value {
            Value::Array(elements) => elements.iter().for_each(|element| self.enter(element, at, wanted, false)),
            Value::Object(members) => {
                for (name, member) in members {
                    let below = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                    self.enter(member, &below, wanted, true);
                }
            }
            _ => {}
        }
    }

    fn satisfies(&self, operator: &Operator) -> bool {
        let equal = |operand: &str| {
            self.strings.iter().any(|value| *value == normalise(operand))
                || parse_number(operand).is_some_and(|number| self.numbers.contains(&number_bits(number)))
        };
        let any = |operand: &str, number_fits: fn(u64, u64) -> bool, string_fits: fn(&str, &str) -> bool| {
            let number = parse_number(operand).map(number_bits);
            number.is_some_and(|operand| self.numbers.iter().any(|number| number_fits(*number, operand)))
                || self.strings.iter().any(|value| string_fits(value, operand))
        };
        match operator {
            Operator::Compare(Comparison::Equal, operand) => equal(operand),
            Operator::Compare(Comparison::NotEqual, operand) => !equal(operand),
            Operator::Compare(Comparison::Less, operand) => any(operand, |a, b| a < b, |a, b| a < b),
            Operator::Compare(Comparison::LessOrEqual, operand) => any(operand, |a, b| a <= b, |a, b| a <= b),
            Operator::Compare(Comparison::Greater, operand) => any(operand, |a, b| a > b, |a, b| a > b),
            Operator::Compare(Comparison::GreaterOrEqual, operand) => any(operand, |a, b| a >= b, |a, b| a >= b),
            Operator::In(operands) => operands.iter().any(|operand| equal(operand)),
            Operator::Between(from, to) => {
                let numbers = parse_number(from).map(number_bits).zip(parse_number(to).map(number_bits));
                numbers.is_some_and(|(from, to)| self.numbers.iter().any(|number| from <= *number && *number <= to))
                    || self.strings.iter().any(|value| from <= value && value <= to)
            }
            Operator::Exists => self.exists,
            Operator::IsNull => self.null,
            Operator::IsEmpty => self.empty,
            Operator::Contains(part) => self.strings.iter().any(|value| value.contains(&*normalise(part))),
            Operator::StartsWith(prefix) if normalise(prefix).is_empty() => self.exists,
            Operator::StartsWith(prefix) => self.strings.iter().any(|value| value.starts_with(&*normalise(prefix))),
        }
    }
}

/// The slow twin: each document judged alone.
pub(super) fn naive(facets: &Facets, node: &Node) -> RoaringBitmap {
    let holds = |document: &Value, node: &Node| naive_document(facets, document, node);
    facets.json.iter().filter(|(_, document)| holds(document, node)).map(|(number, _)| *number).collect()
}

fn naive_document(facets: &Facets, document: &Value, node: &Node) -> bool {
    match node {
        Node::And(members) => members.iter().all(|member| naive_document(facets, document, member)),
        Node::Or(members) => members.iter().any(|member| naive_document(facets, document, member)),
        Node::Not(inner) => !naive_document(facets, document, inner),
        Node::Test(Test { attribute, operator }) => {
            facets.fields.id(attribute).is_some() && NaiveFacts::of(document, attribute).satisfies(operator)
        }
        Node::Geo(_) | Node::Vectors(_) => unreachable!("not generated"),
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!("")),
        any::<bool>().prop_map(Value::from),
        (-3..4i32).prop_map(Value::from),
        Just(json!(-0.0)),
        Just(json!(2.5)),
        "[aAbé01\0 ]{1,3}".prop_map(Value::from),
        Just(json!("a".repeat(470))),
    ]
}

pub(in crate::facets) fn document() -> impl Strategy<Value = Value> {
    let value = scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec(("[xy]", inner), 0..2)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    proptest::collection::vec(("x|y|y\\.x|w", value), 0..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

pub(super) fn operand() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-3]",
        Just("-0".into()),
        "[aAbé01\0 ]{0,3}",
        Just("a".repeat(468)),
        Just("a".repeat(470)),
        Just("true".into())
    ]
}

pub(super) fn operator() -> impl Strategy<Value = Operator> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let comparison = proptest::sample::select(vec![Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual]);
    prop_oneof![
        3 => (comparison, operand()).prop_map(|(comparison, operand)| Operator::Compare(comparison, operand)),
        1 => proptest::collection::vec(operand(), 0..3).prop_map(Operator::In),
        1 => (operand(), operand()).prop_map(|(from, to)| Operator::Between(from, to)),
        1 => proptest::sample::select(vec![Operator::Exists, Operator::IsNull, Operator::IsEmpty]),
        1 => operand().prop_map(Operator::Contains),
        1 => operand().prop_map(Operator::StartsWith),
    ]
}

pub(super) fn node() -> impl Strategy<Value = Node> {
    let attribute = proptest::sample::select(vec!["x", "y", "y.x", "x.y", "w", "none"]);
    let test = (attribute, operator())
        .prop_map(|(attribute, operator)| Node::Test(Test { attribute: attribute.to_owned(), operator }));
    test.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Node::And),
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Node::Or),
            inner.prop_map(Node::not),
        ]
    })
}
