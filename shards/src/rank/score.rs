//! Scores of ranked documents.
//!
//! The best and worst cost possible under a rule, hence the scale of its score, depends on the paths that are still in the
//! graph there: those that some document of the same bucket uses. Each document uses the first path, in visit order, on
//! which it has the bucket's cost. Partitions therefore report the distinct profiles of the documents they ranked, and
//! the scale is computed from the union.

use std::cell::RefCell;
use std::rc::Rc;

use ahash::AHashMap;
use serde_json::{Map, Value, json};
use storage_engine::vector::Pace;

use super::evaluate::{NodeSet, is_next};
use super::kinds::{Key, Kinds, Place, UsedByWords};
use super::paths::{Path, Step, term_after, without_classes};
use super::plan::{RankPlan, RankedDoc, SortBy, SortValue};
use super::rules::Rule;
use super::score_facts::{Profile, ScoreFacts};
use crate::runtime::pause_at;

/// The score of a document, rule by rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// For each rule of the plan, in order: rank and maximum; (0, 0) for sort rules. Rank / maximum is the rule's score.
    pub ranks: Vec<(u32, u32)>,
    /// Time ran out before it was ranked.
    pub skipped: bool,
    /// Of a search by meaning: the similarity, 0.0 for a document without a vector.
    pub similarity: Option<f32>,
}

/// Stands in a path for the class of a node that is there as typed.
const EXACT_CLASS: u8 = super::classes::ANY_CLASS + 1;

/// What the rules so far have told about the nodes of paths.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Their typo classes.
    classes: bool,
    /// Which are there as typed.
    exact: bool,
}

impl Known {
    /// A path as it is in the graph that is left.
    fn of(self, path: &Path, exact: NodeSet) -> Path {
        let mut seen = if self.classes { path.clone() } else { without_classes(path) };
        if self.exact {
            let classes = seen.iter_mut().filter_map(|step| match step {
                Step::Node { class, .. } => Some(class),
                Step::Drop(_) => None,
            });
            classes.enumerate().filter(|(at, _)| exact >> at & 1 == 1).for_each(|(_, class)| *class = EXACT_CLASS);
        }
        seen
    }
}

/// Computes the scores of one search.
pub struct Scorer<'a> {
    plan: &'a RankPlan,
    facts: &'a ScoreFacts,
    whole: Vec<Path>,
    /// The documents of one bucket share their ranks.
    known: RefCell<AHashMap<Vec<u32>, Vec<Score>>>,
    trail: RefCell<Trail<'a>>,
}

/// The buckets of the document that was scored last: the next one, in rank order, is in most of them.
#[derive(Default)]
struct Trail<'a> {
    /// All kinds of documents.
    all: Kinds<'a>,
    used: UsedByWords<'a>,
    /// Rule by rule.
    buckets: Vec<Bucket<'a>>,
}

/// What a rule leaves of the bucket before it: the documents that have a document's cost or value under it.
struct Bucket<'a> {
    place: Place,
    rank: (u32, u32),
    /// The paths in use, sorted; `None` while all of the graph is.
    graph: Option<Rc<Vec<Path>>>,
    kinds: Kinds<'a>,
    known: Known,
}

impl Score {
    /// The score of all rules together, 0.0 to 1.0.
    pub fn global(&self) -> f64 {
        if self.skipped {
            return 0.0;
        }
        if let Some(similarity) = self.similarity {
            return f64::from(similarity);
        }
        self.of_ranks(self.ranks.len())
    }

    /// The score by the first `count` rules alone, of a document that was ranked by rules; by all where none is given.
    pub fn of_first(&self, count: Option<usize>) -> f64 {
        match count {
            Some(count) => self.of_ranks(count),
            None => self.global(),
        }
    }

    fn of_ranks(&self, count: usize) -> f64 {
        fold(self.ranks[..count].iter().copied().filter(|(_, max)| *max > 0))
    }
}

/// Folds ranks of nested buckets into one score.
pub(super) fn fold(ranks: impl Iterator<Item = (u32, u32)>) -> f64 {
    let (rank, max) = ranks.fold((1u128, 1u128), |(rank, max), (inner, inner_max)| {
        let (inner, inner_max) = (u128::from(inner), u128::from(inner_max));
        ((rank - 1).saturating_mul(inner_max).saturating_add(inner), max.saturating_mul(inner_max))
    });
    rank as f64 / max as f64
}

impl<'a> Scorer<'a> {
    /// Scores for documents ranked under `plan`; `facts` are those of all partitions together.
    pub fn new(plan: &'a RankPlan, facts: &'a ScoreFacts) -> Self {
        let mut whole = Vec::new();
        whole_paths(plan, 0, &mut Path::new(), &mut whole);
        let trail = Trail { all: Kinds::new(facts.profiles.iter().collect()), ..Trail::default() };
        Self { plan, facts, whole, known: RefCell::default(), trail: RefCell::new(trail) }
    }

    /// The score that documents go by which no rule can place: the worst that the first rule over the graph can give.
    pub fn lost(&self) -> f64 {
        let first = self.plan.rules.rules.iter().find(|rule| rule.is_graph());
        1.0 / f64::from(first.map_or(1, |rule| self.first_scale(*rule)))
    }

    /// The scale of the first rule over the graph.
    pub fn first_scale(&self, rule: Rule) -> u32 {
        self.scale(rule, &self.whole)
    }

    fn scale(&self, rule: Rule, paths: &[Path]) -> u32 {
        1 + paths.iter().map(|path| self.cost_max(rule, path)).max().unwrap_or(0)
    }

    /// The score of a ranked document. Gives way to others: the first document of a bucket takes long where those that were
    /// ranked are of many kinds.
    pub async fn score(&self, hit: &RankedDoc, pace: &dyn Pace) -> Score {
        if hit.skipped {
            return Score { ranks: vec![(0, 0); self.plan.rules.rules.len()], skipped: true, similarity: None };
        }
        if self.plan.vector.is_some() {
            let similarity = hit.costs.first().map(|_| self.similarity(hit).unwrap_or(0.0));
            return Score { ranks: vec![(0, 0); self.plan.rules.rules.len()], skipped: false, similarity };
        }
        let cacheable = self.plan.rules.sorts.is_empty();
        let key: Vec<u32> = hit.costs.to_vec();
        if cacheable && let Some(known) = self.known.borrow().get(&key).and_then(|known| known.first()) {
            return known.clone();
        }
        let score = self.compute(hit, pace).await;
        if cacheable {
            self.known.borrow_mut().entry(key).or_default().push(score.clone());
        }
        score
    }

    /// How near a document is to the query's vector.
    fn similarity(&self, hit: &RankedDoc) -> Option<f32> {
        self.plan.vector.as_ref()?.similarity(*hit.costs.first()?)
    }

    async fn compute(&self, hit: &RankedDoc, pace: &dyn Pace) -> Score {
        let mut trail = self.trail.take();
        let (mut cost_at, mut shared) = (0, 0);
        for (rule, bucket) in self.plan.rules.rules.iter().zip(&trail.buckets) {
            if !bucket.place.is_of(Key::under(*rule, cost_at, &hit.costs, &hit.sorts)) {
                break;
            }
            cost_at += usize::from(rule.is_graph());
            shared += 1;
        }
        trail.buckets.truncate(shared);
        for rule in &self.plan.rules.rules[shared..] {
            let bucket = self.next_bucket(&mut trail, *rule, (hit, cost_at), pace).await;
            cost_at += usize::from(rule.is_graph());
            trail.buckets.push(bucket);
        }
        let ranks = trail.buckets.iter().map(|bucket| bucket.rank).collect();
        self.trail.replace(trail);
        Score { ranks, skipped: false, similarity: None }
    }

    /// The bucket of a document under a rule, within the last one of the trail; `cost_at` rules with a cost are before it.
    async fn next_bucket(
        &self,
        trail: &mut Trail<'a>,
        rule: Rule,
        (hit, cost_at): (&RankedDoc, usize),
        pace: &dyn Pace,
    ) -> Bucket<'a> {
        let last = trail.buckets.last_mut();
        let graph = last.as_ref().and_then(|last| last.graph.clone());
        let before = last.as_ref().map_or_else(Known::default, |last| last.known);
        let kinds = last.map_or(&mut trail.all, |last| &mut last.kinds);
        let key = Key::under(rule, cost_at, &hit.costs, &hit.sorts);
        let (place, kinds) = (key.place(), kinds.of(rule, cost_at, key, pace).await);
        if !rule.is_graph() {
            return Bucket { place, rank: (0, 0), graph, kinds, known: before };
        }
        let max = self.scale(rule, graph.as_ref().map_or(&self.whole, |graph| &**graph));
        let cost = hit.costs[cost_at];
        let known =
            Known { classes: before.classes || rule == Rule::Typo, exact: before.exact || rule == Rule::ExactWords };
        let used = match rule {
            Rule::Words if cost_at == 0 => trail.used.of(self.facts, hit, pace).await,
            Rule::ExactAttribute => Vec::new(),
            _ => {
                let graph = graph.as_ref().map(|graph| &graph[..]);
                used(kinds.profiles(), graph, &hit.costs[..=cost_at], (before, known), pace).await
            }
        };
        let graph = if used.is_empty() { graph } else { Some(Rc::new(used)) };
        Bucket { place, rank: (max.saturating_sub(cost).max(1), max), graph, kinds, known }
    }

    /// The largest cost that a path can have under a rule.
    fn cost_max(&self, rule: Rule, path: &Path) -> u32 {
        let graph = &self.plan.graph;
        let classed = path.iter().filter_map(|step| match step {
            Step::Node { at, class } => Some((&graph.nodes[usize::from(*at)], *class)),
            Step::Drop(_) => None,
        });
        let nodes = classed.clone().map(|(node, _)| node);
        let terms = || nodes.clone().map(|node| u32::from(node.len)).sum::<u32>();
        match rule {
            Rule::Words => {
                // Of what is left in the graph: a join that nothing else stands beside is as droppable as its members.
                let droppable = nodes.clone().filter(|node| graph.node_rank(node).is_some());
                let phrases: u32 = graph.nodes.iter().map(|node| node.phrase_words()).sum();
                droppable.map(|node| u32::from(node.len)).sum::<u32>() + phrases.saturating_sub(1)
            }
            Rule::Typo => classed
                .map(|(node, class)| match class {
                    // A word that may have typos stands for itself alone once it was met as typed; one that may have none
                    // still counts the typo of its split.
                    EXACT_CLASS if node.derivations.budget > 0 => 0,
                    _ => node.class_max() + node.join_cost(),
                })
                .sum(),
            Rule::Proximity => {
                let mut before = None;
                nodes
                    .map(|node| {
                        let near = before.replace(node).is_some_and(|left| is_next(left, node));
                        u32::from(node.len) - 1 + if near { super::cost::FAR } else { 0 }
                    })
                    .sum()
            }
            Rule::AttributeRank => self.plan.weights.saturating_sub(1) * terms(),
            Rule::WordPosition => 10 * terms(),
            Rule::ExactAttribute => 2,
            Rule::ExactWords => terms(),
            Rule::Vector | Rule::Sort(_) => 0,
        }
    }

    /// The members of `_rankingScoreDetails`. `hidden` tells fields whose values may not be shown.
    pub async fn details(&self, hit: &RankedDoc, hidden: &dyn Fn(&str) -> bool, pace: &dyn Pace) -> Map<String, Value> {
        let score = self.score(hit, pace).await;
        let mut details = Map::new();
        if hit.skipped {
            details.insert("skipped".into(), json!({ "order": 0 }));
            return details;
        }
        let mut cost_at = 0;
        for (at, rule) in self.plan.rules.rules.iter().enumerate() {
            let order = details.len();
            let (rank, max) = score.ranks[at];
            let value = f64::from(rank) / f64::from(max.max(1));
            let cost = if rule.is_graph() { hit.costs[cost_at] } else { 0 };
            cost_at += usize::from(rule.is_graph());
            let (key, shown) = match rule {
                Rule::Words => {
                    ("words", json!({"order": order, "matchingWords": rank, "maxMatchingWords": max, "score": value}))
                }
                Rule::Typo => {
                    ("typo", json!({"order": order, "typoCount": cost, "maxTypoCount": max - 1, "score": value}))
                }
                Rule::Proximity => ("proximity", json!({"order": order, "score": value})),
                Rule::AttributeRank if self.plan.rules.joined_attribute => {
                    let other = score.ranks.get(at + 1).copied().unwrap_or((1, 1));
                    let position = f64::from(other.0) / f64::from(other.1.max(1));
                    let both = fold([(rank, max), other].into_iter());
                    let shown = json!({"order": order, "attributeRankingOrderScore": value,
                        "queryWordDistanceScore": position, "score": both});
                    ("attribute", shown)
                }
                Rule::AttributeRank => ("attributeRank", json!({"order": order, "score": value})),
                Rule::WordPosition if self.plan.rules.joined_attribute => continue,
                Rule::WordPosition => ("wordPosition", json!({"order": order, "score": value})),
                Rule::ExactAttribute => {
                    ("exactness", exactness(order, cost, score.ranks.get(at + 1).copied().unwrap_or((1, 1))))
                }
                Rule::ExactWords => continue,
                Rule::Vector => ("vectorSort", json!({"order": order, "similarity": self.similarity(hit)})),
                Rule::Sort(number) => {
                    let number = usize::from(*number);
                    let (key, shown) = sort_detail(order, &self.plan.rules.sorts[number], &hit.sorts[number], hidden);
                    details.insert(key, shown);
                    continue;
                }
            };
            details.insert(key.into(), shown);
        }
        details
    }
}

/// Kinds of documents that are looked at between two looks at whether others wait.
const PROFILES_PER_LOOK: usize = 256;

/// The paths that the documents of a bucket use, of those still in the graph.
async fn used(
    bucket: &[&Profile],
    graph: Option<&[Path]>,
    costs: &[u32],
    (before, known): (Known, Known),
    pace: &dyn Pace,
) -> Vec<Path> {
    let kept = |path: &Path, exact| graph.is_none_or(|graph| graph.binary_search(&before.of(path, exact)).is_ok());
    let first = |profile: &&Profile| {
        let mut paths = profile.paths.iter();
        let found = paths.find(|(path, on, exact)| on[..costs.len()] == *costs && kept(path, *exact));
        found.map(|(path, _, exact)| known.of(path, *exact))
    };
    sorted(bucket.iter().map(first), pace).await
}

/// Each path once, in their order.
async fn sorted(found: impl Iterator<Item = Option<Path>>, pace: &dyn Pace) -> Vec<Path> {
    let (mut paths, mut distinct) = (Vec::new(), 0);
    for (at, path) in found.enumerate() {
        paths.extend(path);
        // Many documents use few paths, so there are never many to sort.
        if paths.len() >= 2 * distinct + PROFILES_PER_LOOK {
            paths.sort_unstable();
            paths.dedup();
            distinct = paths.len();
        }
        pause_at(at, PROFILES_PER_LOOK, pace).await;
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn exactness(order: usize, cost: u32, (rank, max): (u32, u32)) -> Value {
    match cost {
        0 => json!({"order": order, "matchType": "exactMatch", "score": 1.0}),
        1 => json!({"order": order, "matchType": "matchesStart", "score": 2.0 / 3.0}),
        _ => json!({"order": order, "matchType": "noExactMatch", "matchingWords": rank - 1,
            "maxMatchingWords": max - 1, "score": f64::from(rank) / f64::from(3 * max)}),
    }
}

fn sort_detail(order: usize, by: &SortBy, value: &SortValue, hidden: &dyn Fn(&str) -> bool) -> (String, Value) {
    let direction = if by.is_descending() { "desc" } else { "asc" };
    match by {
        SortBy::Field { name, .. } if hidden(name) => {
            (format!("<hidden-rule-{order}>"), json!({"order": order, "value": "<hidden>"}))
        }
        SortBy::Field { name, .. } => {
            let value = match value {
                SortValue::Number(number) => json!(number),
                SortValue::Text(text) => json!(text),
                _ => Value::Null,
            };
            (format!("{name}:{direction}"), json!({"order": order, "value": value}))
        }
        SortBy::Geo { shown, .. } => {
            let (point, distance) = match value {
                SortValue::Point { distance, lat, lng, .. } => {
                    (json!({"lat": lat, "lng": lng}), json!((distance * 1000.0).round() / 1000.0))
                }
                _ => (Value::Null, Value::Null),
            };
            (format!("{shown}:{direction}"), json!({"order": order, "value": point, "distance": distance}))
        }
    }
}

fn whole_paths(plan: &RankPlan, term: usize, path: &mut Path, found: &mut Vec<Path>) {
    if term == usize::from(plan.graph.term_count) {
        found.push(path.clone());
        return;
    }
    for (at, node) in plan.graph.nodes.iter().enumerate().filter(|(_, node)| usize::from(node.first) == term) {
        path.push(Step::Node { at: at as u8, class: super::classes::ANY_CLASS });
        whole_paths(plan, term_after(node), path, found);
        path.pop();
    }
}
