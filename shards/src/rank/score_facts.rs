//! The facts that scores are computed from ([`super::score`]), as partitions and instances report them.

use serde::{Deserialize, Serialize};
use storage_engine::vector::Pace;

use super::evaluate::NodeSet;
use super::paths::{Path, Step};
use super::plan::{Costs, RankPlan, SortValue};
use crate::runtime::pause_at;

/// Items that are checked, moved or freed between two looks at whether others wait.
const ITEMS_PER_LOOK: usize = 128;

/// What scores need to know of the documents of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScoreFacts {
    /// For buckets of the rule `words` (values of the sort rules before it, dropped terms): the paths used, without classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<UsedPath>,
    /// Each different kind of document that was ranked, once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
}

/// A path that documents of a bucket of the rule `words` use: the bucket's values of sort rules, its dropped terms, the path.
pub type UsedPath = (Vec<SortValue>, u32, Path);

/// All that the ranking knows of a document but its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its values under the sort criteria.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sorts: Vec<SortValue>,
    /// Its costs.
    pub costs: Costs,
    /// The paths that it satisfies at the costs of its bucket, in visit order, with its costs on each and the nodes that are
    /// there as typed.
    pub paths: Vec<(Path, Costs, NodeSet)>,
}

impl ScoreFacts {
    /// Whether a search of this plan can have found them: others may come from an instance with other settings.
    pub async fn fits(&self, plan: &RankPlan, pace: &dyn Pace) -> bool {
        let costs = plan.rules.rules.iter().filter(|rule| rule.is_graph()).count();
        let sorts = plan.rules.sorts.len();
        let is_step = |step: &Step| match step {
            Step::Drop(_) => true,
            Step::Node { at, .. } => usize::from(*at) < plan.graph.nodes.len(),
        };
        let is_path = |path: &Path| path.len() <= usize::from(plan.graph.term_count) && path.iter().all(is_step);
        // Only the values of sort rules before the first other one are told with the paths of a bucket.
        let is_used = |(values, _, path): &UsedPath| values.len() <= sorts && is_path(path);
        let is_profile = |profile: &Profile| {
            profile.costs.len() == costs
                && profile.sorts.len() == sorts
                && profile.paths.iter().all(|(path, on, _)| on.len() == costs && is_path(path))
        };
        all(&self.used, is_used, pace).await && all(&self.profiles, is_profile, pace).await
    }

    /// How many there are of each kind.
    pub fn counts(&self) -> (usize, usize) {
        (self.used.len(), self.profiles.len())
    }

    /// Adds those of others at the end.
    pub async fn add(&mut self, others: Self, pace: &dyn Pace) {
        append(&mut self.used, others.used, pace).await;
        append(&mut self.profiles, others.profiles, pace).await;
    }

    /// Takes so many of each kind off the end, as they were added.
    pub async fn take_last(&mut self, (used, profiles): (usize, usize), pace: &dyn Pace) -> Self {
        Self { used: last(&mut self.used, used, pace).await, profiles: last(&mut self.profiles, profiles, pace).await }
    }

    /// Frees them in steps.
    pub async fn free(self, pace: &dyn Pace) {
        for (at, used) in self.used.into_iter().enumerate() {
            drop(used);
            pause_at(at, ITEMS_PER_LOOK, pace).await;
        }
        for (at, profile) in self.profiles.into_iter().enumerate() {
            drop(profile);
            pause_at(at, ITEMS_PER_LOOK, pace).await;
        }
    }
}

impl Profile {
    /// A number that is the same for equal profiles and, for different ones, different but for one chance in 2^64.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{BuildHasher, Hash, Hasher};
        let mut hasher = ahash::RandomState::with_seeds(1, 2, 3, 4).build_hasher();
        (&self.costs, &self.paths).hash(&mut hasher);
        for value in &self.sorts {
            // The kind first: the bits of a number may be those of any other value.
            match value {
                SortValue::Number(number) => (0u8, number.to_bits()).hash(&mut hasher),
                SortValue::Text(text) => (1u8, text).hash(&mut hasher),
                SortValue::Point { distance, .. } => (2u8, distance.to_bits()).hash(&mut hasher),
                SortValue::Missing => 3u8.hash(&mut hasher),
            }
        }
        hasher.finish()
    }
}

/// Whether all items are as they should be.
async fn all<T>(items: &[T], is_right: impl Fn(&T) -> bool, pace: &dyn Pace) -> bool {
    for (at, item) in items.iter().enumerate() {
        if !is_right(item) {
            return false;
        }
        pause_at(at, ITEMS_PER_LOOK, pace).await;
    }
    true
}

/// Adds items to others. The first ones are taken as they are.
async fn append<T>(all: &mut Vec<T>, items: Vec<T>, pace: &dyn Pace) {
    if all.is_empty() {
        *all = items;
        return;
    }
    all.reserve(items.len());
    for (at, item) in items.into_iter().enumerate() {
        all.push(item);
        pause_at(at, ITEMS_PER_LOOK, pace).await;
    }
}

/// Takes so many items off the end.
async fn last<T>(all: &mut Vec<T>, count: usize, pace: &dyn Pace) -> Vec<T> {
    if count >= all.len() {
        return std::mem::take(all);
    }
    let mut taken = Vec::with_capacity(count);
    for (at, item) in all.drain(all.len() - count..).enumerate() {
        taken.push(item);
        pause_at(at, ITEMS_PER_LOOK, pace).await;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_with_other_values_have_other_fingerprints() {
        let of = |value| Profile { sorts: vec![value], costs: Costs::default(), paths: Vec::new() }.fingerprint();
        let numbers = [0.0, f64::from_bits(1), f64::from_bits(3), 1.0].map(|number| of(SortValue::Number(number)));
        let others = [SortValue::Missing, SortValue::Text(String::new()), SortValue::Text("1".into())].map(of);
        let mut all = [&numbers[..], &others].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 7);
    }
}
