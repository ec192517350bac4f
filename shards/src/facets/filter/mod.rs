//! Filters: which documents a request, a deletion or a tenant's token is about.
//!
//! The language is that of the interface, with its oddities: see [`parse_filter`] for the forms a filter may have,
//! [`Filter::evaluate`] for what the operators select. A filter is parsed once, checked against features and settings
//! once, and evaluated on every partition.

mod check;
mod evaluate;
mod grammar;
mod lexer;
#[cfg(test)]
pub(in crate::facets) mod tests;
mod tree;

use serde_json::Value;

use crate::error::UserError;
use tree::Node;
pub use tree::{VectorsPart, VectorsTest};

/// A filter that has parsed. Plain data: it is sent to the partitions as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    root: Node,
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
    let root = match value {
        Value::Null => None,
        Value::String(text) => parse_text(text, code)?,
        Value::Array(members) => {
            let members = members.iter().map(|member| parse_member(member, code));
            join(members, Node::and)?
        }
        other => return Err(type_error(other, "a string, an array or null", code)),
    };
    Ok(root.map(|root| Filter { root, code }))
}

/// Parses one expression; `None` when it is only white space. Fails with `code`.
pub fn parse_filter_text(text: &str, code: &'static str) -> Result<Option<Filter>, UserError> {
    Ok(parse_text(text, code)?.map(|root| Filter { root, code }))
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

    /// Both filters at once, as a tenant's filter is added to a query's own. Errors keep the code of `self`.
    pub fn and(self, other: Self) -> Self {
        Self { root: Node::and(vec![self.root, other.root]), code: self.code }
    }
}

fn parse_text(text: &str, code: &'static str) -> Result<Option<Node>, UserError> {
    grammar::parse(text).map_err(|error| UserError::new(code, error.message))
}

/// An element of an array: an expression, or expressions joined with OR.
fn parse_member(member: &Value, code: &'static str) -> Result<Option<Node>, UserError> {
    match member {
        Value::String(text) => parse_text(text, code),
        Value::Array(alternatives) => {
            let alternatives = alternatives.iter().map(|alternative| match alternative {
                Value::String(text) => parse_text(text, code),
                other => Err(type_error(other, "a string", code)),
            });
            join(alternatives, Node::or)
        }
        other => Err(type_error(other, "a string or an array", code)),
    }
}

/// Joins what is not empty; `None` if nothing is left.
fn join(
    nodes: impl Iterator<Item = Result<Option<Node>, UserError>>,
    with: impl FnOnce(Vec<Node>) -> Node,
) -> Result<Option<Node>, UserError> {
    let nodes = nodes.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
    Ok(if nodes.is_empty() { None } else { Some(with(nodes)) })
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
