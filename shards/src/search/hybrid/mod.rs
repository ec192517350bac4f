//! Vector search: semantic, hybrid, and documents similar to another one.
//!
//! * [`nearest`]: orders one partition's documents by their distance from the query vector.
//! * [`mod@search`]: decides which kind of search a request is, and runs it.
//! * [`merge`]: merges the keyword and the semantic results into one list.
//! * [`similar`]: documents near another one.
//!
//! A semantic search is an ordinary search whose ranking has the rule `Vector`, with distances as costs: partitions are merged by
//! distance, then by document number, so the result does not depend on the number of partitions.

mod embed;
mod merge;
pub mod nearest;
pub(in crate::search) mod part;
mod search;
pub mod similar;

pub use embed::check;
pub(in crate::search) use embed::query_vector;
pub use search::search;
pub(in crate::search) use search::{FoundHit, GOOD_ENOUGH, Whole, find};
