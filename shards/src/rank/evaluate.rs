//! The cost tuples of the documents of a bucket, chunk by chunk.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;
use roaring::RoaringBitmap;

use super::classes::{ANY_CLASS, NodeDocs};
use super::cost::{FAR, Occurrence, SEARCHED, TYPED, attribute_cost, position_cost, proximity_cost, rounded};
use super::paths::{Path, Step};
use super::plan::{Costs, RankPlan};
use super::rules::Rule;
use super::slots::{Chunk, Side, Slot, common_fields, gather, gather_word};
use crate::query::{Node, TermSource};

/// The match types of the exact-attribute rule, as costs.
const EXACT_MATCH: u32 = 0;
const MATCHES_START: u32 = 1;
const NO_EXACT_MATCH: u32 = 2;

/// Nodes of a path, by their place on it from the lowest bit up.
pub type NodeSet = u16;

/// A bucket's paths, prepared.
pub struct Evaluator {
    plan: Arc<RankPlan>,
    source: Rc<dyn TermSource>,
    node_docs: Rc<NodeDocs>,
    rules: Vec<Rule>,
    paths: Vec<PathPlan>,
}

struct PathPlan {
    path: Path,
    docs: RoaringBitmap,
    words: u32,
    typos: u32,
    /// The nodes of the path with their classes.
    nodes: Vec<(usize, u8)>,
    exact: Option<ExactTerms>,
}

/// What the exact-attribute rule looks for; `None` in its place when nothing can match.
struct ExactTerms {
    /// For each word: the node, its place in that node's phrase (`None`: the typed word), its place in the query.
    words: Vec<(usize, Option<usize>, u16)>,
    /// Positions of the query that they cover, holes of phrases included.
    covered: u32,
}

/// The least costs of one document, and (on request) those of all its paths.
pub struct Evaluated {
    /// Its place in the chunk.
    pub index: usize,
    /// The least.
    pub costs: Costs,
    /// In visit order: number of the path, costs on it, which of its nodes are there as typed. Empty unless asked for.
    pub paths: Vec<(usize, Costs, NodeSet)>,
}

impl Evaluator {
    /// Prepares the paths of a bucket, in visit order, each with the documents that satisfy it.
    pub fn new(
        plan: Arc<RankPlan>,
        source: Rc<dyn TermSource>,
        node_docs: Rc<NodeDocs>,
        paths: Vec<(Path, RoaringBitmap)>,
    ) -> Self {
        let rules: Vec<Rule> = plan.rules.rules.iter().copied().filter(|rule| rule.is_graph()).collect();
        let wants_exact = rules.contains(&Rule::ExactAttribute);
        let paths = paths.into_iter().map(|(path, docs)| PathPlan::new(&plan, path, docs, wants_exact)).collect();
        Self { plan, source, node_docs, rules, paths }
    }

    /// The path of a number that [`Evaluated`] names.
    pub fn path(&self, number: usize) -> &Path {
        &self.paths[number].path
    }

    /// Evaluates the documents of a chunk, all of which satisfy some path, in their order.
    pub fn chunk(&self, docs: &[u32], all_paths: bool) -> Vec<Evaluated> {
        let set = RoaringBitmap::from_sorted_iter(docs.iter().copied()).unwrap_or_default();
        let chunk = Chunk { docs, set: &set };
        let facts = self.gather(&chunk);
        let mut found: Vec<Evaluated> = Vec::with_capacity(docs.len());
        let single = self.paths.len() == 1;
        for (index, doc) in docs.iter().enumerate() {
            let mut best: Option<Costs> = None;
            let mut paths = Vec::new();
            for (number, path) in self.paths.iter().enumerate() {
                if single || path.docs.contains(*doc) {
                    let (costs, exact) = self.costs(path, &facts, index, *doc);
                    if all_paths {
                        paths.push((number, costs.clone(), exact));
                    }
                    if best.as_ref().is_none_or(|best| costs < *best) {
                        best = Some(costs);
                    }
                }
            }
            if let Some(costs) = best {
                found.push(Evaluated { index, costs, paths });
            }
        }
        found
    }

    /// Positions are read only when a rule looks at them.
    fn gather(&self, chunk: &Chunk<'_>) -> Facts {
        let mut facts = Facts::default();
        let typo_at = self.rules.iter().position(|rule| *rule == Rule::Typo).unwrap_or(0);
        for (at, class) in self.paths.iter().flat_map(|path| &path.nodes) {
            for (number, rule) in self.rules.iter().enumerate() {
                let reads = match rule {
                    Rule::AttributeRank => self.plan.weights > 1,
                    Rule::Proximity => self.plan.graph.term_count > 1,
                    Rule::WordPosition | Rule::ExactAttribute | Rule::ExactWords => true,
                    _ => false,
                };
                if reads {
                    let class = if number < typo_at { ANY_CLASS } else { *class };
                    facts
                        .slots
                        .entry((*at, class))
                        .or_insert_with(|| gather(&self.plan, &*self.source, &self.node_docs, *at, class, chunk));
                }
            }
        }
        for (node, place, _) in self.paths.iter().flat_map(|path| &path.exact).flat_map(|exact| &exact.words) {
            let Some(place) = *place else { continue };
            let phrase = self.plan.graph.nodes[*node].derivations.phrase.as_ref();
            if let Some(word) = phrase.and_then(|phrase| phrase.0[place].as_ref()) {
                let words = &mut facts.words;
                words.entry((*node, place)).or_insert_with(|| gather_word(&self.plan, &*self.source, word, chunk));
            }
        }
        facts
    }

    /// The costs on a path, and which of its nodes the rule of exact words found as typed: after it these stand for the typed
    /// word only.
    fn costs(&self, path: &PathPlan, facts: &Facts, index: usize, doc: u32) -> (Costs, NodeSet) {
        let mut classed = self.rules.contains(&Rule::Typo);
        let mut costs = Costs::new();
        let mut exact: NodeSet = 0;
        for rule in &self.rules {
            // Before the typo rule a path has no classes yet.
            let slot = |(at, class): &(usize, u8)| facts.slots.get(&(*at, if classed { ANY_CLASS } else { *class }));
            let cost = match rule {
                Rule::Words => path.words,
                Rule::Typo => {
                    classed = false;
                    path.typos
                }
                Rule::Proximity => self.proximity(path, slot, index, exact),
                Rule::AttributeRank => self.sum(path, |number, node, at| {
                    let heads = seen(slot(at).map_or(&[], |slot| slot.heads(index)), node, exact >> number);
                    attribute_cost(&heads, &self.plan.fields, node.len, self.plan.weights)
                }),
                Rule::WordPosition => self.sum(path, |number, node, at| {
                    let heads = seen(slot(at).map_or(&[], |slot| slot.heads(index)), node, exact >> number);
                    position_cost(&heads, node.word_position(), node.len)
                }),
                Rule::ExactAttribute => self.exact_attribute(path, facts, slot, index, doc),
                Rule::ExactWords => {
                    let mut cost = 0;
                    for (number, at) in path.nodes.iter().enumerate() {
                        let node = &self.plan.graph.nodes[at.0];
                        let typed = |slot: &Slot| slot.heads(index).iter().any(|o| o.has(TYPED) && o.has(SEARCHED));
                        if node.derivations.phrase.is_some() || slot(at).is_some_and(typed) {
                            exact |= 1 << number;
                        } else {
                            cost += u32::from(node.len);
                        }
                    }
                    cost
                }
                Rule::Sort(_) => continue,
            };
            costs.push(cost);
        }
        (costs, exact)
    }

    fn sum(&self, path: &PathPlan, cost: impl Fn(usize, &Node, &(usize, u8)) -> u32) -> u32 {
        path.nodes.iter().enumerate().map(|(number, at)| cost(number, &self.plan.graph.nodes[at.0], at)).sum()
    }

    fn proximity<'f>(
        &self,
        path: &PathPlan,
        slot: impl Fn(&(usize, u8)) -> Option<&'f Slot>,
        index: usize,
        exact: NodeSet,
    ) -> u32 {
        let mut cost = 0;
        let mut before: Option<(&Node, &(usize, u8))> = None;
        for (number, at) in path.nodes.iter().enumerate() {
            let node = &self.plan.graph.nodes[at.0];
            cost += u32::from(node.len) - 1;
            if let Some((left, left_at)) = before.filter(|(left, _)| is_next(left, node)) {
                cost += match (slot(left_at), slot(at)) {
                    (Some(left_slot), Some(right)) => {
                        let tails = seen(left_slot.tails(index), left, exact >> (number - 1));
                        let heads = seen(right.heads(index), node, exact >> number);
                        proximity_cost(&tails, &heads, self.plan.by_attribute)
                    }
                    _ => FAR,
                };
            }
            before = Some((node, at));
        }
        cost
    }

    fn exact_attribute<'f>(
        &self,
        path: &PathPlan,
        facts: &'f Facts,
        slot: impl Fn(&(usize, u8)) -> Option<&'f Slot>,
        index: usize,
        doc: u32,
    ) -> u32 {
        let Some(exact) = &path.exact else { return NO_EXACT_MATCH };
        let mut lists = smallvec::SmallVec::<[_; 10]>::new();
        for (node, place, position) in &exact.words {
            let list = match place {
                Some(place) => facts.words.get(&(*node, *place)).map(|side| side.of(index)),
                None => path.nodes.iter().find(|at| at.0 == *node).and_then(&slot).map(|slot| slot.heads(index)),
            };
            let Some(list) = list else { return NO_EXACT_MATCH };
            let wanted = rounded(*position);
            if !list.iter().any(|o| o.has(TYPED) && rounded(o.position()) == wanted) {
                return NO_EXACT_MATCH;
            }
            lists.push(list);
        }
        let fields = common_fields(&lists);
        let covers = |field| self.source.word_count(doc, field).is_some_and(|count| u32::from(count) == exact.covered);
        match fields.is_empty() {
            true => NO_EXACT_MATCH,
            false if fields.into_iter().any(covers) => EXACT_MATCH,
            false => MATCHES_START,
        }
    }
}

/// What was read for one chunk.
#[derive(Default)]
struct Facts {
    slots: AHashMap<(usize, u8), Slot>,
    words: AHashMap<(usize, usize), Side>,
}

/// The occurrences of a node that count: of a node that is there as typed (lowest bit of `exact`) those of the typed word.
fn seen<'o>(occurrences: &'o [Occurrence], node: &Node, exact: NodeSet) -> Cow<'o, [Occurrence]> {
    if exact & 1 == 0 || node.derivations.phrase.is_some() {
        return Cow::Borrowed(occurrences);
    }
    Cow::Owned(occurrences.iter().copied().filter(|occurrence| occurrence.has(TYPED)).collect())
}

/// Whether `right` begins right where `left` ends, so that their nearness counts.
pub fn is_next(left: &Node, right: &Node) -> bool {
    right.position == left.last_position.saturating_add(1)
}

impl PathPlan {
    fn new(plan: &RankPlan, path: Path, docs: RoaringBitmap, wants_exact: bool) -> Self {
        let nodes: Vec<(usize, u8)> = path
            .iter()
            .filter_map(|step| match step {
                Step::Node { at, class } => Some((usize::from(*at), *class)),
                Step::Drop(_) => None,
            })
            .collect();
        let words = (path.len() - nodes.len()) as u32;
        let typos = nodes
            .iter()
            .map(|(at, class)| {
                plan.graph.nodes[*at].join_cost() + if *class == ANY_CLASS { 0 } else { u32::from(*class) }
            })
            .sum();
        // Before the typo rule a node still stands for all its classes.
        let place = |rule: Rule| plan.rules.rules.iter().position(|other| *other == rule);
        let classed = place(Rule::Typo) < place(Rule::ExactAttribute);
        let class = |class: u8| if classed { class } else { ANY_CLASS };
        let wanted: Vec<_> = nodes.iter().map(|(at, of)| (*at, class(*of))).collect();
        let exact = if wants_exact { ExactTerms::of(plan, &wanted) } else { None };
        Self { path, docs, words, typos, nodes, exact }
    }
}

impl ExactTerms {
    fn of(plan: &RankPlan, nodes: &[(usize, u8)]) -> Option<Self> {
        let mut exact = Self { words: Vec::new(), covered: 0 };
        let mut next_term = 0;
        for (at, class) in nodes {
            let node = &plan.graph.nodes[*at];
            let d = &node.derivations;
            let counts = node.len == 1 && (d.phrase.is_some() || (d.word && matches!(*class, 0 | ANY_CLASS)));
            if !counts {
                continue;
            }
            if node.first != next_term {
                return None;
            }
            next_term += 1;
            exact.covered += u32::from(node.last_position - node.position) + 1;
            match &d.phrase {
                Some(phrase) => {
                    let words = phrase.0.iter().enumerate().filter(|(_, word)| word.is_some());
                    exact.words.extend(
                        words.map(|(place, _)| (*at, Some(place), node.word_position().saturating_add(place as u16))),
                    );
                }
                None => exact.words.push((*at, None, node.position)),
            }
        }
        (!exact.words.is_empty()).then_some(exact)
    }
}
