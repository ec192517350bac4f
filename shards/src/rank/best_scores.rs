//! How high the documents of a coarse bucket can score at best, so that those which stay below a least score need not be ranked.
//!
//! Rules fold into a score from the first on, and a later one can only lower it: a bucket whose documents are perfect under all
//! rules to come has the score of the rules that made it. The scale of `typo` depends on the paths that documents use; over all
//! paths it is the largest, which makes the score no lower.

use super::coarse::CoarseBucket;
use super::paths::term_after;
use super::plan::RankPlan;
use super::rules::Rule;
use super::score::{Scorer, fold};
use super::score_facts::ScoreFacts;
use crate::query::QueryGraph;

/// Scores so near are not told apart.
const TOLERANCE: f64 = 1e-12;

/// The best scores of coarse buckets, and the least one that counts.
pub struct BestScores {
    least: f64,
    words_scale: u32,
    /// The scale of `typo`, by dropped terms.
    typo_scales: Vec<u32>,
}

impl BestScores {
    /// For the least score of a plan, if it has one.
    pub fn of(plan: &RankPlan) -> Option<Self> {
        let least = plan.least_score?.score;
        let words_scale = Scorer::new(plan, &ScoreFacts::default()).first_scale(Rule::Words);
        let typo_scales = most_typos(&plan.graph).into_iter().map(|most| 1 + most).collect();
        Some(Self { least, words_scale, typo_scales })
    }

    /// Whether all documents of a bucket score less.
    pub fn is_below(&self, bucket: &CoarseBucket) -> bool {
        let dropped = bucket.words.unwrap_or(0);
        let rank = |scale: u32, cost: u32| (scale.saturating_sub(cost).max(1), scale);
        let words = bucket.words.map(|words| rank(self.words_scale, words));
        let typo_scale = self.typo_scales.get(dropped as usize).copied().unwrap_or(1);
        let typos = bucket.typos.map(|typos| rank(typo_scale, typos));
        fold(words.into_iter().chain(typos)) < self.least - TOLERANCE
    }
}

/// The most typos that a path can cost, by how many terms it drops.
fn most_typos(graph: &QueryGraph) -> Vec<u32> {
    let terms = usize::from(graph.term_count);
    let mut from: Vec<Vec<Option<u32>>> = vec![vec![None; terms + 1]; terms + 1];
    from[terms][0] = Some(0);
    for term in (0..terms).rev() {
        for dropped in 0..=terms {
            let without = graph.drop_ranks[term].filter(|_| dropped > 0).and_then(|_| from[term + 1][dropped - 1]);
            let nodes = graph.nodes.iter().filter(|node| usize::from(node.first) == term);
            let with = nodes.filter_map(|node| {
                from[term_after(node)][dropped].map(|rest| rest + node.class_max() + node.join_cost())
            });
            from[term][dropped] = with.chain(without).max();
        }
    }
    from[0].iter().map(|most| most.unwrap_or(0)).collect()
}
