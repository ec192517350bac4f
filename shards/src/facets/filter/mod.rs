//! Filters, which select the documents of a request, a deletion or a tenant token.
//!
//! The language is the interface's, oddities included: see [`parse_filter`] for the forms of a filter and [`Filter::evaluate`]
//! for what the operators select. A filter is parsed once, checked against features and settings once, and evaluated on every
//! partition.

mod check;
mod evaluate;
mod grammar;
mod lexer;
mod ranges;
#[cfg(test)]
pub(in crate::facets) mod tests;
mod tree;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::Value;
use storage_engine::vector::{Pace, Unpaced};

use crate::error::UserError;
use crate::runtime::pause_at;
use tree::Node;
pub use tree::{VectorsPart, VectorsTest};

/// Tests and operands that are freed between two looks at whether others wait.
const FREED_PER_LOOK: usize = 64;

/// A filter that has parsed. Plain data: it is sent to the partitions as it is. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Filter {
    root: Arc<Node>,
    /// The error code of the request it came with.
    code: &'static str,
}

/// The experimental features that a filter can need; see [`Filter::check_features`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterFeatureSet {
    /// `containsFilter`: `CONTAINS`.
    pub contains: bool,
    /// `network`: tests of `_shard`.
    pub network: bool,
    /// `multimodal`: tests of `_vectors`.
    pub multimodal: bool,
}

/// Parses a filter as a request's body holds it: null, an expression, or an array of expressions joined with AND, of which
/// each may be an array of expressions joined with OR. `None` when it is empty. Fails with `code`.
pub fn parse_filter(value: &Value, code: &'static str) -> Result<Option<Filter>, UserError> {
    at_once(parse_filter_in_steps(value, code, &Unpaced))
}

/// As [`parse_filter`], letting others have their turn in between: a filter of ten thousand tests takes milliseconds.
pub async fn parse_filter_in_steps(
    value: &Value,
    code: &'static str,
    pace: &dyn Pace,
) -> Result<Option<Filter>, UserError> {
    let root = match value {
        Value::Null => None,
        Value::String(text) => parse_text(text, code, pace).await?,
        Value::Array(members) => {
            let mut nodes = Vec::new();
            for member in members {
                nodes.extend(parse_member(member, code, pace).await?);
            }
            join(nodes, Node::and)
        }
        other => return Err(type_error(other, "a string, an array or null", code)),
    };
    Ok(root.map(|root| Filter { root: Arc::new(root), code }))
}

/// Parses one expression; `None` when it is only white space. Fails with `code`.
pub fn parse_filter_text(text: &str, code: &'static str) -> Result<Option<Filter>, UserError> {
    Ok(at_once(parse_text(text, code, &Unpaced))?.map(|root| Filter { root: Arc::new(root), code }))
}

/// Parses a filter of a query string: its JSON form if it is JSON, else the expression itself. An empty text is no filter;
/// the text `null` is refused. Fails with `code`.
pub fn parse_filter_parameter(text: &str, code: &'static str) -> Result<Option<Filter>, UserError> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Null) => Err(type_error(&Value::Null, "a string or an array", code)),
        Ok(value) => parse_filter(&value, code),
        Err(_) => parse_filter_text(text, code),
    }
}

impl Filter {
    /// How many tests it has, and operands in their lists.
    pub fn size(&self) -> usize {
        self.root.size()
    }

    /// Bytes of its texts, and of its points.
    pub fn bytes(&self) -> usize {
        self.root.bytes()
    }

    /// Both filters at once, as a tenant's filter is added to a query's own. Errors keep the code of `self`.
    pub fn and(self, other: Self) -> Self {
        let root = Node::and(vec![Arc::unwrap_or_clone(self.root), Arc::unwrap_or_clone(other.root)]);
        Self { root: Arc::new(root), code: self.code }
    }

    /// Frees it in steps, if nobody else holds it: ten thousand tests are so many small things.
    pub async fn free(self, pace: &dyn Pace) {
        let mut nodes: Vec<Node> = Arc::into_inner(self.root).into_iter().collect();
        let mut freed = 0;
        while let Some(node) = nodes.pop() {
            for text in node.into_parts(&mut nodes) {
                drop(text);
                freed += 1;
                pause_at(freed, FREED_PER_LOOK, pace).await;
            }
            freed += 1;
            pause_at(freed, FREED_PER_LOOK, pace).await;
        }
    }
}

/// What something comes to that waits for nobody, as nothing does at [`Unpaced`].
fn at_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("nothing pauses while a filter is parsed at once"),
    }
}

async fn parse_text(text: &str, code: &'static str, pace: &dyn Pace) -> Result<Option<Node>, UserError> {
    grammar::parse(text, pace).await.map_err(|error| UserError::new(code, error.message))
}

/// An element of an array: an expression, or expressions joined with OR.
async fn parse_member(member: &Value, code: &'static str, pace: &dyn Pace) -> Result<Option<Node>, UserError> {
    match member {
        Value::String(text) => parse_text(text, code, pace).await,
        Value::Array(alternatives) => {
            let mut nodes = Vec::new();
            for alternative in alternatives {
                match alternative {
                    Value::String(text) => nodes.extend(parse_text(text, code, pace).await?),
                    other => return Err(type_error(other, "a string", code)),
                }
            }
            Ok(join(nodes, Node::or))
        }
        other => Err(type_error(other, "a string or an array", code)),
    }
}

/// Joins what is not empty; `None` if nothing is left.
fn join(nodes: Vec<Node>, with: impl FnOnce(Vec<Node>) -> Node) -> Option<Node> {
    if nodes.is_empty() { None } else { Some(with(nodes)) }
}

fn type_error(found: &Value, expected: &str, code: &'static str) -> UserError {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    UserError::new(code, format!("invalid syntax for the filter parameter: expected {expected}, found {kind}"))
}
