//! The tree of a parsed filter.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use crate::facets::geo::{GeoBox, GeoPoint};

/// An expression. Chains of AND and OR are flat; the grammar's depth limit bounds the height.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
    Geo(GeoTest),
    Vectors(VectorsTest),
}

/// A test of one attribute.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct Test {
    /// The dotted path, unescaped.
    pub attribute: String,
    pub operator: Operator,
}

/// What is tested, with unescaped operands.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) enum Operator {
    Compare(Comparison, String),
    In(Vec<String>),
    Between(String, String),
    Exists,
    IsNull,
    IsEmpty,
    Contains(String),
    StartsWith(String),
}

impl Operator {
    /// Bytes of its operands.
    fn bytes(&self) -> usize {
        match self {
            Self::Compare(_, operand) | Self::Contains(operand) | Self::StartsWith(operand) => operand.len(),
            Self::In(operands) => operands.iter().map(String::len).sum(),
            Self::Between(from, to) => from.len() + to.len(),
            Self::Exists | Self::IsNull | Self::IsEmpty => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A geo function. Ranges are checked when it is evaluated.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GeoTest {
    Radius { centre: GeoPoint, radius_m: f64, resolution: Option<f64> },
    Box(GeoBox),
    Polygon(Vec<GeoPoint>),
}

impl Hash for GeoTest {
    /// By its points: two tests seldom differ in the rest alone.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Radius { centre, .. } => centre.hash(state),
            Self::Box(corners) => corners.hash(state),
            Self::Polygon(points) => points.hash(state),
        }
    }
}

/// A test of which vectors a document has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VectorsTest {
    /// `None` for any embedder.
    pub embedder: Option<String>,
    /// Which of its vectors.
    pub part: VectorsPart,
}

/// Which vectors of an embedder are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VectorsPart {
    /// Any.
    Any,
    /// Those given by the user.
    UserProvided,
    /// Those generated from a document template.
    DocumentTemplate,
    /// Those generated again on updates.
    Regenerate,
    /// Those generated for one fragment.
    Fragment(String),
}

/// Longest part of a filter that a message repeats, in characters.
const EXCERPT_CHARS_MAX: usize = 500;

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// A sentence, then the position and the filter on a line of their own.
    pub message: String,
}

impl SyntaxError {
    /// An error about the bytes `at` of `text`; the last line is `COLUMN:END TEXT`, counted in characters from 1.
    pub fn new(what: &str, text: &str, at: Range<usize>) -> Self {
        let start = text[..at.start].chars().count();
        let end = start + text[at].chars().count();
        let excerpt: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
        Self { message: format!("{what}.\n{}:{} {excerpt}", start + 1, end + 1) }
    }
}

impl Node {
    pub fn and(members: Vec<Node>) -> Self {
        Self::flat(members, Self::And)
    }

    pub fn or(members: Vec<Node>) -> Self {
        Self::flat(members, Self::Or)
    }

    fn flat(mut members: Vec<Node>, join: impl FnOnce(Vec<Node>) -> Self) -> Self {
        match members.pop() {
            Some(only) if members.is_empty() => only,
            Some(last) => {
                members.push(last);
                join(members)
            }
            None => join(members),
        }
    }

    /// The complement; two of them cancel.
    pub fn not(node: Node) -> Self {
        match node {
            Self::Not(inner) => *inner,
            node => Self::Not(Box::new(node)),
        }
    }

    /// How many tests it has, and operands in their lists.
    pub fn size(&self) -> usize {
        match self {
            Self::And(members) | Self::Or(members) => members.iter().map(Self::size).sum(),
            Self::Not(inner) => inner.size(),
            Self::Test(Test { operator: Operator::In(operands), .. }) => 1 + operands.len(),
            Self::Geo(GeoTest::Polygon(points)) => 1 + points.len(),
            Self::Test(_) | Self::Geo(_) | Self::Vectors(_) => 1,
        }
    }

    /// Bytes of its texts, and of its points.
    pub fn bytes(&self) -> usize {
        match self {
            Self::And(members) | Self::Or(members) => members.iter().map(Self::bytes).sum(),
            Self::Not(inner) => inner.bytes(),
            Self::Test(Test { attribute, operator }) => attribute.len() + operator.bytes(),
            Self::Geo(GeoTest::Polygon(points)) => size_of_val(points.as_slice()),
            Self::Vectors(VectorsTest { embedder, part }) => {
                let fragment = if let VectorsPart::Fragment(name) = part { name.len() } else { 0 };
                embedder.as_ref().map_or(0, String::len) + fragment
            }
            Self::Geo(_) => 0,
        }
    }

    /// Takes it apart: its members go to `nodes`, the operands of a list are given back.
    pub fn into_parts(self, nodes: &mut Vec<Node>) -> Vec<String> {
        match self {
            Self::And(members) | Self::Or(members) => nodes.extend(members),
            Self::Not(inner) => nodes.push(*inner),
            Self::Test(Test { operator: Operator::In(operands), .. }) => return operands,
            Self::Test(_) | Self::Geo(_) | Self::Vectors(_) => {}
        }
        Vec::new()
    }

    /// Calls `visit` on every test, from left to right, until it fails.
    pub fn try_visit<'n, E>(&'n self, visit: &mut impl FnMut(&'n Node) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::And(members) | Self::Or(members) => members.iter().try_for_each(|member| member.try_visit(visit)),
            Self::Not(inner) => inner.try_visit(visit),
            Self::Test(_) | Self::Geo(_) | Self::Vectors(_) => visit(self),
        }
    }
}
