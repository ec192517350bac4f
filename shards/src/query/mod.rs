//! From the text of a query to the graph of what may match it.
//!
//! [`parse`] splits the text into terms, [`graph`] adds joined words and says what may be dropped, [`resolve`] looks up the nodes
//! in one partition's dictionary, and [`graph::QueryGraph::complete`] merges what all partitions found. Limits in byte order
//! apply to the union of the dictionaries, so the number of partitions does not change the result.

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
pub use source::{Faults, FieldTable, Reach, TermSource, WordCounts};
