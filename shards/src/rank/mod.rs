//! Ranking: nested buckets by the *costs* of ranking rules.
//!
//! A document's cost under a rule is a pure function of the document, the query graph and facts about the whole index. So
//! partitions rank independently and are merged by cost tuples, then document number. Scores, whose scale depends on which paths
//! other documents use, are computed afterwards from what the partitions report about those paths (see [`score`]).
//!
//! A path is a way through the query graph. For each document only the paths of least cost under the rules so far matter; costs
//! add up along a path, so the tuple of a document is the lexicographic minimum over its paths.

mod best_scores;
mod bucket;
pub(crate) mod by_term;
pub mod champions;
pub mod classes;
pub mod coarse;
pub mod cost;
pub mod evaluate;
pub mod groups;
mod kinds;
pub mod paths;
pub mod plan;
pub mod ranker;
pub mod rules;
pub mod runs;
pub mod score;
pub mod score_facts;
pub mod slots;
pub mod sort_source;
#[cfg(test)]
mod tests;

pub use plan::{LeastScore, NO_VECTOR, RankPlan, RankedDoc, SortBy, SortValue, VectorQuery};
pub use ranker::{DroppedBucket, RankedPart, Ranker};
pub use rules::{Rule, RuleList};
