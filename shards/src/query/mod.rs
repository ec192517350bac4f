//! From the text of a query to the graph of what may match it.
//!
//! [`parse`] cuts the text into terms, [`graph`] adds the joined words and says what may be dropped, [`resolve`] looks the
//! nodes up in one partition's dictionary, and [`graph::QueryGraph::complete`] merges what all partitions found: limits in
//! byte order hold over the union of the dictionaries, so that the number of partitions changes nothing.

pub mod budget;
pub mod cache;
pub mod context;
pub mod graph;
#[cfg(test)]
pub(crate) mod naive;
pub mod parse;
pub mod prefix;
pub mod resolve;
pub mod shared;
pub mod source;

pub use cache::QueryCache;
pub use context::{Cutter, QueryContext};
pub use graph::{Derivations, Node, Phrase, PrefixMode, QueryGraph};
pub use parse::{ParsedQuery, Term, TermKind};
pub use prefix::{PrefixRange, PrefixTable, PrefixTableBuilder};
pub use resolve::{NodeFacts, NodeQuestion};
pub use shared::QueryWords;
pub use source::{Faults, FieldTable, Reach, TermSource};
