//! Search of one index: from the decoded request to the bytes of its hits.
//!
//! The core that received the request ([`gather`]) tokenizes the query and sends every partition a sequence of questions: first
//! what its dictionary knows ([`messages::PartQuestion::Resolve`], unless this core has it cached), from which one query graph
//! for all is built; then its best documents by cost, which are merged, with the likeliest hits already written; then the hits of
//! the page that are still missing.

pub mod answer;
pub mod ask;
mod below;
pub(crate) mod column_sorter;
pub mod facet_values;
pub mod federated;
pub mod gather;
pub mod hybrid;
mod json_array;
pub mod kept_answers;
pub mod kept_searches;
pub mod known;
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
mod rivals;
pub mod similar;
mod steps;
mod walk;
mod written;

pub use answer::{FacetAnswer, SearchAnswer, SearchError};
pub use ask::Ask;
pub use facet_values::{FacetSearchRequest, search_facet_values};
pub use gather::{SearchedIndex, search};
pub use hybrid::check as check_semantic;
pub use hybrid::similar::similar as search_similar;
pub use kept_answers::KeptAnswers;
pub use kept_searches::{Asked, KeptSearches};
pub use known::KnownFacts;
pub use messages::{PartQuestion, PartReply};
pub use part::{Pacer, SearchPartition, answer_part};
pub use pins::Pin;
pub use plan::{Planner, check};
pub use request::{FormatRequest, MatchingStrategy, NetworkShare, PageRequest, SearchRequest, SemanticQuery};
pub use similar::{SimilarAnswer, SimilarRequest};
pub use steps::Step;
