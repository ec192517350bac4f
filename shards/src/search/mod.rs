//! A search of one index: from the decoded request to the bytes of its hits.
//!
//! The core that was asked ([`gather`]) cuts the query and asks every partition in turns: first what its dictionary knows
//! ([`messages::PartQuestion::Resolve`]), which makes one query graph for all; then for its best documents by cost, which
//! are merged; then for the bytes of those that are on the page.

pub mod answer;
pub mod facet_values;
pub mod federated;
pub mod gather;
mod merge;
pub mod messages;
mod narrow;
pub mod part;
mod pins;
pub mod plan;
mod reader;
#[cfg(test)]
mod replay;
pub mod request;

pub use answer::{FacetAnswer, SearchAnswer, SearchError};
pub use facet_values::{FacetSearchRequest, search_facet_values};
pub use gather::{Ask, SearchedIndex, search};
pub use messages::{PartQuestion, PartReply};
pub use part::{Pacer, SearchPartition, answer_part};
pub use pins::Pin;
pub use plan::{Planner, check};
pub use request::{FormatRequest, MatchingStrategy, PageRequest, SearchRequest};
