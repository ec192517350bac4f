//! What every partition needs for ranking, and its result: plain data sent between cores.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::rules::{Rule, RuleList};
use crate::facets::normalise::number_bits;
use crate::ids::DocId;
use crate::query::{FieldTable, QueryGraph};
use crate::settings::embedder::Distribution;

/// Costs by rule, in the order of the plan's graph rules.
pub type Costs = SmallVec<[u32; 8]>;

/// How to rank one search on any partition of its index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankPlan {
    /// What matches.
    pub graph: QueryGraph,
    /// What orders.
    pub rules: RuleList,
    /// Weights and restrictions of fields.
    pub fields: FieldTable,
    /// Whether nearness means "in the same field".
    pub by_attribute: bool,
    /// How many attributes have weights of their own; 1 when all weigh the same.
    pub weights: u32,
    /// Documents wanted at least, best first (fewer when there are no more).
    pub wanted: usize,
    /// Whether the last bucket of equal documents is wanted whole, however many those are.
    pub whole_buckets: bool,
    /// Whether of each distinct group only the first document is wanted.
    pub one_per_group: bool,
    /// Whether scores will be computed, which needs more facts than the order.
    pub scores: bool,
    /// Documents that surely score less need not be ranked: they are told as [`super::DroppedBucket`]s.
    pub least_score: Option<LeastScore>,
    /// What [`Rule::Vector`] measures. There for a search by meaning, whose graph is empty.
    pub vector: Option<VectorQuery>,
}

/// A score that documents must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastScore {
    /// From 0.0 to 1.0.
    pub score: f64,
    /// Documents in front of the page. Those of a bucket that ends there count by the rules that made it: if these give it the score, they
    /// are not left out.
    pub in_front: u64,
}

/// What is near.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorQuery {
    /// The embedder.
    pub embedder: Arc<str>,
    /// The vector.
    pub vector: Arc<[f32]>,
    /// How similarities are shifted.
    pub shift: Option<Distribution>,
}

/// The cost of a document without a vector.
pub const NO_VECTOR: u32 = u32::MAX;

impl VectorQuery {
    /// The cost of a distance, which is no less than 0: such numbers are in the order of their bits.
    pub fn cost(distance: f32) -> u32 {
        distance.max(0.0).to_bits()
    }

    /// The similarity that a cost stands for; `None` for a document without a vector.
    pub fn similarity(&self, cost: u32) -> Option<f32> {
        let similarity = 1.0 - f32::from_bits(cost);
        (cost != NO_VECTOR).then(|| self.shift.map_or(similarity, |shift| shift.shift(similarity)))
    }
}

/// A criterion that orders documents by their values.
#[derive(Clone, Debug, PartialEq)]
pub enum SortBy {
    /// The values of a field.
    Field {
        /// The flattened name.
        name: String,
        /// Largest first; documents without a value are last either way.
        descending: bool,
    },
    /// The distance of the document's point.
    Geo {
        /// Degrees.
        lat: f64,
        /// Degrees.
        lng: f64,
        /// As written in the request, for the score details.
        shown: String,
        /// Farthest first; documents without a point are last either way.
        descending: bool,
    },
}

/// What a document is sorted by under one criterion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SortValue {
    /// A number of the document, or metres.
    Number(f64),
    /// A normalised string.
    Text(String),
    /// Metres to a point, and the point.
    Point {
        /// Metres; of documents that share a bucket those of its first one, once partitions are merged.
        distance: f64,
        /// Degrees.
        lat: f64,
        /// Degrees.
        lng: f64,
        /// Metres to the document's own point.
        own: f64,
    },
    /// Nothing to sort by.
    Missing,
}

/// A document with its place in the order.
#[derive(Debug, PartialEq)]
pub struct RankedDoc {
    /// Its number in the index.
    pub doc: DocId,
    /// Its costs.
    pub costs: Costs,
    /// Its values under the sort criteria.
    pub sorts: Vec<SortValue>,
    /// Whether time ran out before it was ranked: then its costs are those known so far.
    pub skipped: bool,
}

impl Clone for RankedDoc {
    fn clone(&self) -> Self {
        // Copying the costs whole is many times quicker than their own clone, which goes number by number.
        let costs = Costs::from_slice(&self.costs);
        Self { doc: self.doc, costs, sorts: self.sorts.clone(), skipped: self.skipped }
    }
}

impl SortBy {
    /// Whether larger values come first.
    pub fn is_descending(&self) -> bool {
        match self {
            Self::Field { descending, .. } | Self::Geo { descending, .. } => *descending,
        }
    }
}

/// Whether two distances are so near that a bucket, which is cut at whole metres and reaches one metre, may hold both.
pub fn near(a: &SortValue, b: &SortValue) -> bool {
    const REACH_METRES: f64 = 2.0;
    match (a, b) {
        (SortValue::Point { distance: a, .. }, SortValue::Point { distance: b, .. }) => (a - b).abs() <= REACH_METRES,
        _ => false,
    }
}

impl SortValue {
    /// The order under a criterion: numbers, then strings, then nothing, whatever the direction.
    pub fn compare(&self, other: &Self, descending: bool) -> Ordering {
        let turned = |order: Ordering| if descending { order.reverse() } else { order };
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => turned(number_bits(*a).cmp(&number_bits(*b))),
            (Self::Text(a), Self::Text(b)) => turned(a.cmp(b)),
            (Self::Point { distance: a, .. }, Self::Point { distance: b, .. }) => turned(a.total_cmp(b)),
            _ => self.kind().cmp(&other.kind()),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Number(_) | Self::Point { .. } => 0,
            Self::Text(_) => 1,
            Self::Missing => 2,
        }
    }
}

impl RankPlan {
    /// Whether documents are ordered by ranking rules, and not by their vectors.
    pub fn is_by_rules(&self) -> bool {
        !self.rules.rules.is_empty() && self.vector.is_none()
    }

    /// The order of two documents of the index under this plan; never `Equal` for different documents.
    pub fn compare(&self, a: &RankedDoc, b: &RankedDoc) -> Ordering {
        self.compare_rules(a, b, self.rules.rules.len()).then_with(|| a.doc.cmp(&b.doc))
    }

    /// The order by the first `count` rules only.
    pub fn compare_rules(&self, a: &RankedDoc, b: &RankedDoc, count: usize) -> Ordering {
        if self.rules.sorts.is_empty() {
            // Then every rule has a cost. This is asked for more often than anything else about documents.
            let (a, b) = (a.costs.as_slice(), b.costs.as_slice());
            return a.get(..count).unwrap_or(a).cmp(b.get(..count).unwrap_or(b));
        }
        let mut graph_rule = 0;
        for rule in &self.rules.rules[..count] {
            let order = match rule {
                Rule::Sort(at) => {
                    let at = usize::from(*at);
                    a.sorts[at].compare(&b.sorts[at], self.rules.sorts[at].is_descending())
                }
                _ => {
                    graph_rule += 1;
                    a.costs[graph_rule - 1].cmp(&b.costs[graph_rule - 1])
                }
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
    }

    /// The first rule that sorts by distance.
    pub fn geo_rule(&self) -> Option<usize> {
        let is_geo = |rule: &Rule| match rule {
            Rule::Sort(at) => matches!(self.rules.sorts[usize::from(*at)], SortBy::Geo { .. }),
            _ => false,
        };
        self.rules.rules.iter().position(is_geo)
    }

    /// Whether `b`, which comes later, may yet share a bucket of a distance sort with `a`: documents about a metre apart do.
    pub fn may_share_bucket(&self, a: &RankedDoc, b: &RankedDoc) -> bool {
        let Some(rule) = self.geo_rule() else { return false };
        let Rule::Sort(at) = self.rules.rules[rule] else { return false };
        let at = usize::from(at);
        self.compare_rules(a, b, rule).is_eq() && near(&a.sorts[at], &b.sorts[at])
    }

    /// The place of a rule among the costs.
    pub fn cost_index(&self, rule: Rule) -> Option<usize> {
        self.rules.rules.iter().filter(|other| other.is_graph()).position(|other| *other == rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_before_strings_in_both_directions() {
        let (one, two, text) = (SortValue::Number(1.0), SortValue::Number(2.0), SortValue::Text("a".into()));
        for descending in [false, true] {
            assert_eq!(one.compare(&text, descending), Ordering::Less);
            assert_eq!(text.compare(&SortValue::Missing, descending), Ordering::Less);
        }
        assert_eq!(one.compare(&two, false), Ordering::Less);
        assert_eq!(one.compare(&two, true), Ordering::Greater);
    }
}
