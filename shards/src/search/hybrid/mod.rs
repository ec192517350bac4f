//! Searches by meaning: by vectors alone, by words and vectors together, and for documents similar to one.
//!
//! * [`nearest`]: the order of one partition's documents by their distance from the query's vector.
//! * [`search`]: what kind of search a request is, and its run.
//! * [`merge`]: one list out of that by words and that by meaning.
//! * [`similar`]: documents near another one.
//!
//! A search by meaning is a search like any other whose ranking has the rule `Vector`, with distances for costs: partitions merge
//! by those, then by document number, so that an answer does not depend on how many there are.

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
