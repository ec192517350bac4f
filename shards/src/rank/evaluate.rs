//! The cost tuples of the documents of a bucket, chunk by chunk.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use roaring::RoaringBitmap;

use super::classes::{ANY_CLASS, NodeDocs};
use super::cost::{
    Occurrence, SEARCHED, STANDING, TYPED, attribute_cost, place_costs, position_cost, proximity_cost, rounded,
};
use super::paths::{Path, Step};
use super::plan::{Costs, RankPlan};
use super::rules::Rule;
use super::slots::{Chunk, Gathered, Side, Slot, common_fields, gather, gather_word};
use crate::query::{Node, TermSource, WordCounts};

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
    /// The nodes in the classes whose occurrences some rule looks at.
    wanted_slots: Vec<(usize, u8)>,
    /// Words of phrases that the exact-attribute rule looks at: node and place.
    wanted_words: Vec<(usize, usize)>,
}

struct PathPlan {
    path: Path,
    docs: RoaringBitmap,
    words: u32,
    typos: u32,
    nodes: Vec<PathNode>,
    exact: Option<ExactTerms>,
}

/// A node of a path, with the numbers of its slots among those wanted.
#[derive(Clone, Copy)]
struct PathNode {
    at: usize,
    /// In the class that the path gives it.
    classed: Option<usize>,
    /// In any class: before the typo rule a path has no classes yet.
    any: Option<usize>,
}

/// What the exact-attribute rule looks for; `None` in its place when nothing can match.
struct ExactTerms {
    /// For each word: where to find it, its place in the query.
    words: Vec<(ExactWord, u16)>,
    /// Positions of the query that they cover, holes of phrases included but for the first ones.
    covered: u32,
}

#[derive(Clone, Copy)]
enum ExactWord {
    /// The typed word of the path's node of this number.
    Typed(usize),
    /// A word of a phrase, by its number among the wanted words.
    OfPhrase(usize),
}

/// The least costs of one document, and (on request) those of all its paths.
pub struct Evaluated {
    /// Its place in the chunk.
    pub index: usize,
    /// The least.
    pub costs: Costs,
    /// The paths that it satisfies; empty unless asked for.
    pub paths: OnPaths,
}

/// Paths that a document satisfies, in visit order: number of the path, costs on it, which of its nodes are there as typed.
pub type OnPaths = Vec<(usize, Costs, NodeSet)>;

impl Evaluator {
    /// Prepares the paths of a bucket, in visit order, each with the documents that satisfy it.
    pub fn new(
        plan: Arc<RankPlan>,
        source: Rc<dyn TermSource>,
        node_docs: Rc<NodeDocs>,
        paths: Vec<(Path, RoaringBitmap)>,
    ) -> Self {
        let rules: Vec<Rule> = plan.rules.rules.iter().copied().filter(|rule| rule.is_graph()).collect();
        let mut new = Self {
            plan,
            source,
            node_docs,
            rules,
            paths: Vec::with_capacity(paths.len()),
            wanted_slots: Vec::new(),
            wanted_words: Vec::new(),
        };
        for (path, docs) in paths {
            let path = new.path_plan(path, docs);
            new.paths.push(path);
        }
        new
    }

    /// How many paths there are.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// The least costs that a document may have here.
    pub fn least(&self) -> Option<Costs> {
        let of = |path: &PathPlan| {
            let costs = self.rules.iter().map(|rule| match rule {
                Rule::Words => path.words,
                Rule::Typo => path.typos,
                _ => 0,
            });
            costs.collect::<Costs>()
        };
        self.paths.iter().map(of).min()
    }

    /// The path of a number that [`Evaluated`] names.
    pub fn path(&self, number: usize) -> &Path {
        &self.paths[number].path
    }

    /// Evaluates the documents of a chunk, all of which satisfy some path, in their order, with their costs on all paths.
    pub fn all(&self, docs: &[u32]) -> Vec<Evaluated> {
        let facts = self.gather(docs);
        let mut found: Vec<Evaluated> = Vec::with_capacity(docs.len());
        for (index, doc) in docs.iter().enumerate() {
            let mut paths = Vec::new();
            for (number, path) in self.paths_of(*doc) {
                let found = self.costs((path, &self.rules), &facts, index, *doc, [None, None]);
                paths.extend(found.map(|(costs, exact)| (number, costs, exact)));
            }
            if let Some(costs) = paths.iter().map(|(_, costs, _)| costs).min().cloned() {
                found.push(Evaluated { index, costs, paths });
            }
        }
        found
    }

    /// Evaluates the documents of a chunk whose costs may come before `bar`, the first costs that are too high: the rest of a
    /// document's costs is not looked at once it has lost. A bar that is shorter than the costs lets pass what begins as it does.
    pub fn below(&self, docs: &[u32], bar: Option<&[u32]>) -> Vec<Evaluated> {
        let mut found: Vec<Evaluated> = Vec::new();
        let (kept, facts) = match bar.and_then(|bar| self.survivors(docs, bar)) {
            Some((kept, facts)) => (Some(kept), facts),
            None => (None, self.gather(docs)),
        };
        let count = kept.as_ref().map_or(docs.len(), Vec::len);
        for at in 0..count {
            let place = kept.as_ref().map_or(at, |kept| kept[at] as usize);
            let (index, doc) = (at, &docs[place]);
            if let Some(costs) = self.least_of(&self.rules, &facts, (index, *doc), bar) {
                found.push(Evaluated { index: place, costs, paths: Vec::new() });
            }
        }
        found
    }

    /// The costs of the documents of a chunk under the first `count` rules only, for those that may come before `bar`, as in
    /// [`Self::below`]; each with its place in the chunk.
    pub fn first_costs(&self, docs: &[u32], count: usize, bar: Option<&[u32]>) -> Vec<(usize, Costs)> {
        let rules = &self.rules[..count];
        if let Some((path, node)) = self.only_node().filter(|_| rules.iter().copied().all(is_of_places)) {
            let (_, places) = self.places(docs);
            let costs = places.iter().map(|place| {
                let costs = rules.iter().map(|rule| cost_at(*rule, path, node, *place).unwrap_or(0));
                costs.collect::<Costs>()
            });
            let may_tie = |bar: &[u32], costs: &Costs| bar.len() < costs.len() && costs.starts_with(bar);
            let passes = |costs: &Costs| bar.is_none_or(|bar| costs.as_slice() < bar || may_tie(bar, costs));
            return costs.enumerate().filter(|(_, costs)| passes(costs)).collect();
        }
        let facts = self.gather(docs);
        let mut found = Vec::with_capacity(docs.len());
        for (index, doc) in docs.iter().enumerate() {
            found.extend(self.least_of(rules, &facts, (index, *doc), bar).map(|costs| (index, costs)));
        }
        found
    }

    /// The path and the node of a bucket of one path with one node, as for every query of one word, of which nothing but one list
    /// of occurrences is looked at.
    fn only_node(&self) -> Option<(&PathPlan, &Node)> {
        let ([path], [(at, _)], []) = (&*self.paths, &*self.wanted_slots, &*self.wanted_words) else { return None };
        let [_] = &*path.nodes else { return None };
        Some((path, &self.plan.graph.nodes[*at]))
    }

    /// For such a bucket the occurrences in a chunk, in no particular order, and the attribute-rank and word-position costs of its
    /// documents.
    fn places(&self, docs: &[u32]) -> (Gathered, Vec<(u32, u32)>) {
        let (at, class) = self.wanted_slots[0];
        let node = &self.plan.graph.nodes[at];
        let set = RoaringBitmap::from_sorted_iter(docs.iter().copied()).unwrap_or_default();
        let chunk = Chunk { docs, set: &set };
        let gathered = gather(&self.plan, &*self.source, &self.node_docs, at, class, &chunk);
        let place = (node.word_position(), node.len);
        let costs = place_costs(gathered.heads(), docs.len(), place, &self.plan.fields, self.plan.weights);
        (gathered, costs)
    }

    /// For such a bucket the documents that hold their own against the bar under the first rules that look at places, found in
    /// one pass over unsorted occurrences.
    fn survivors(&self, docs: &[u32], bar: &[u32]) -> Option<(Vec<u32>, Facts<'_>)> {
        let (path, node) = self.only_node()?;
        let (mut gathered, costs) = self.places(docs);
        let least_from = least_from(bar, self.rules.len());
        let loses = |place: (u32, u32)| {
            for (at, (rule, limit)) in self.rules.iter().zip(bar).enumerate() {
                let Some(cost) = cost_at(*rule, path, node, place) else { return at >= least_from };
                if cost != *limit {
                    return cost > *limit;
                }
            }
            false
        };
        let kept: Vec<u32> = (0..docs.len() as u32).filter(|index| !loses(costs[*index as usize])).collect();
        gathered.keep(&kept, docs.len());
        let slot = gathered.into_slot(kept.len());
        Some((kept, self.facts(vec![slot], Vec::new())))
    }

    /// The costs of a document of a chunk on the path where they are least, if they come before the bar.
    fn least_of(
        &self,
        rules: &[Rule],
        facts: &Facts<'_>,
        (index, doc): (usize, u32),
        bar: Option<&[u32]>,
    ) -> Option<Costs> {
        let mut least: Option<Costs> = None;
        for (_, path) in self.paths_of(doc) {
            if let Some((costs, _)) = self.costs((path, rules), facts, index, doc, [bar, least.as_deref()]) {
                least = Some(costs);
            }
        }
        least
    }

    fn paths_of(&self, doc: u32) -> impl Iterator<Item = (usize, &PathPlan)> {
        let single = self.paths.len() == 1;
        self.paths.iter().enumerate().filter(move |(_, path)| single || path.docs.contains(doc))
    }

    fn facts(&self, slots: Vec<Slot>, words: Vec<Option<Side>>) -> Facts<'_> {
        Facts { slots, words, counts: RefCell::new(self.source.word_counts()) }
    }

    fn gather(&self, docs: &[u32]) -> Facts<'_> {
        let set = RoaringBitmap::from_sorted_iter(docs.iter().copied()).unwrap_or_default();
        let chunk = Chunk { docs, set: &set };
        let (plan, source) = (&self.plan, &*self.source);
        let slots = self
            .wanted_slots
            .iter()
            .map(|(at, class)| gather(plan, source, &self.node_docs, *at, *class, &chunk).into_slot(docs.len()));
        let word = |(node, place): &(usize, usize)| {
            let phrase = plan.graph.nodes[*node].derivations.phrase.as_ref()?;
            Some(gather_word(plan, source, phrase.0.get(*place)?.as_ref()?, &chunk))
        };
        self.facts(slots.collect(), self.wanted_words.iter().map(word).collect())
    }

    /// The costs of a document on a path, and which of its nodes the rule of exact words found as typed: after it these stand
    /// for the typed word only. `None` when the costs do not come before each of the bars.
    fn costs(
        &self,
        (path, rules): (&PathPlan, &[Rule]),
        facts: &Facts<'_>,
        index: usize,
        doc: u32,
        bars: [Option<&[u32]>; 2],
    ) -> Option<(Costs, NodeSet)> {
        // Those that were met exactly so far, each with the number of costs behind which no document can come before it.
        let mut bars = bars.map(|bar| bar.map(|bar| (bar, least_from(bar, rules.len()))));
        let mut reading = Reading { facts, path, classed: !self.rules.contains(&Rule::Typo), exact: 0, index };
        let mut costs = Costs::new();
        for rule in rules {
            let cost = match rule {
                Rule::Words => path.words,
                Rule::Typo => {
                    reading.classed = true;
                    path.typos
                }
                Rule::Proximity => self.proximity(&reading),
                Rule::AttributeRank => self
                    .sum(&reading, |node, heads| attribute_cost(heads, &self.plan.fields, node.len, self.plan.weights)),
                Rule::WordPosition => {
                    self.sum(&reading, |node, heads| position_cost(heads, node.word_position(), node.len))
                }
                Rule::ExactAttribute => self.exact_attribute(&reading, doc),
                Rule::ExactWords => {
                    reading.exact = self.exact_nodes(&reading);
                    let nodes = path.nodes.iter().enumerate().filter(|(number, _)| reading.exact >> number & 1 == 0);
                    nodes.map(|(_, node)| u32::from(self.plan.graph.nodes[node.at].len)).sum()
                }
                Rule::Vector | Rule::Sort(_) => continue,
            };
            for bar in &mut bars {
                match bar.and_then(|(bar, _)| bar.get(costs.len())) {
                    Some(limit) if cost > *limit => return None,
                    Some(limit) if cost == *limit => {}
                    _ => *bar = None,
                }
            }
            costs.push(cost);
            if bars.iter().flatten().any(|(_, from)| costs.len() >= *from) {
                return None;
            }
        }
        bars.iter().all(Option::is_none).then_some((costs, reading.exact))
    }

    /// The nodes that are in the document as typed.
    fn exact_nodes(&self, reading: &Reading<'_, '_>) -> NodeSet {
        let is_exact = |node: &PathNode| {
            let heads = reading.slot(node).map_or(&[][..], |slot| slot.heads(reading.index));
            self.plan.graph.nodes[node.at].derivations.phrase.is_some()
                || heads.iter().any(|o| o.has(TYPED) && o.has(SEARCHED))
        };
        let nodes = reading.path.nodes.iter().enumerate();
        nodes.filter(|(_, node)| is_exact(node)).fold(0, |set, (number, _)| set | 1 << number)
    }

    fn sum(&self, reading: &Reading<'_, '_>, cost: impl Fn(&Node, &[Occurrence]) -> u32) -> u32 {
        let numbers = 0..reading.path.nodes.len();
        numbers
            .map(|number| {
                let node = &self.plan.graph.nodes[reading.path.nodes[number].at];
                cost(node, &reading.heads(number, node))
            })
            .sum()
    }

    fn proximity(&self, reading: &Reading<'_, '_>) -> u32 {
        let mut cost = 0;
        let mut before: Option<&Node> = None;
        for (number, at) in reading.path.nodes.iter().enumerate() {
            let node = &self.plan.graph.nodes[at.at];
            cost += u32::from(node.len) - 1;
            if let Some(left) = before.filter(|left| is_next(left, node)) {
                let (tails, heads) = (reading.tails(number - 1, left), reading.heads(number, node));
                cost += proximity_cost(&tails, &heads, self.plan.by_attribute);
            }
            before = Some(node);
        }
        cost
    }

    fn exact_attribute(&self, reading: &Reading<'_, '_>, doc: u32) -> u32 {
        let Some(exact) = &reading.path.exact else { return NO_EXACT_MATCH };
        let mut counts = reading.facts.counts.borrow_mut();
        let mut covers = |field| counts(doc, field).is_some_and(|count| u32::from(count) == exact.covered);
        if let [(ExactWord::Typed(number), position)] = &*exact.words {
            // Most queries have one word, and this is asked of more documents than anything else.
            let list = reading.slot(&reading.path.nodes[*number]).map_or(&[][..], |slot| slot.heads(reading.index));
            let typed = || list.iter().filter(|o| o.has(TYPED));
            let mut fields = typed().filter(|o| o.has(SEARCHED)).map(|o| o.field()).peekable();
            if fields.peek().is_none() || !typed().any(|o| rounded(o.position()) == rounded(*position)) {
                return NO_EXACT_MATCH;
            }
            let mut last = None;
            let is_covered = fields.any(|field| last.replace(field) != Some(field) && covers(field));
            return if is_covered { EXACT_MATCH } else { MATCHES_START };
        }
        let mut lists = smallvec::SmallVec::<[_; 10]>::new();
        for (word, position) in &exact.words {
            let list = match word {
                ExactWord::Typed(number) => {
                    reading.slot(&reading.path.nodes[*number]).map_or(&[][..], |slot| slot.heads(reading.index))
                }
                ExactWord::OfPhrase(number) => match &reading.facts.words[*number] {
                    Some(side) => side.of(reading.index),
                    None => return NO_EXACT_MATCH,
                },
            };
            let wanted = rounded(*position);
            if !list.iter().any(|o| o.has(TYPED) && rounded(o.position()) == wanted) {
                return NO_EXACT_MATCH;
            }
            lists.push(list);
        }
        let fields = common_fields(&lists);
        match fields.is_empty() {
            true => NO_EXACT_MATCH,
            false if fields.into_iter().any(&mut covers) => EXACT_MATCH,
            false => MATCHES_START,
        }
    }

    fn path_plan(&mut self, path: Path, docs: RoaringBitmap) -> PathPlan {
        let plan = self.plan.clone();
        let steps: Vec<(usize, u8)> = path
            .iter()
            .filter_map(|step| match step {
                Step::Node { at, class } => Some((usize::from(*at), *class)),
                Step::Drop(_) => None,
            })
            .collect();
        let words = (path.len() - steps.len()) as u32;
        let typos = steps
            .iter()
            .map(|(at, class)| {
                plan.graph.nodes[*at].join_cost() + if *class == ANY_CLASS { 0 } else { u32::from(*class) }
            })
            .sum();
        let nodes = steps.iter().map(|(at, class)| self.path_node(*at, *class)).collect();
        let wants_exact = self.rules.contains(&Rule::ExactAttribute);
        // Before the typo rule a node still stands for all its classes.
        let place = |rule: Rule| plan.rules.rules.iter().position(|other| *other == rule);
        let classed = place(Rule::Typo) < place(Rule::ExactAttribute);
        let class = |class: u8| if classed { class } else { ANY_CLASS };
        let wanted: Vec<_> = steps.iter().map(|(at, of)| (*at, class(*of))).collect();
        let exact = if wants_exact { self.exact_terms(&wanted) } else { None };
        PathPlan { path, docs, words, typos, nodes, exact }
    }

    /// Positions are read only when a rule looks at them.
    fn path_node(&mut self, at: usize, class: u8) -> PathNode {
        let reads = |rule: &Rule| match rule {
            Rule::AttributeRank => self.plan.weights > 1,
            Rule::Proximity => self.plan.graph.term_count > 1,
            Rule::WordPosition | Rule::ExactAttribute | Rule::ExactWords => true,
            _ => false,
        };
        let (before, after) = match self.rules.iter().position(|rule| *rule == Rule::Typo) {
            Some(typo) => self.rules.split_at(typo),
            None => (&[][..], &self.rules[..]),
        };
        let (wants_any, wants_class) = (before.iter().any(reads), after.iter().any(reads));
        let classed = wants_class.then(|| number_of(&mut self.wanted_slots, (at, class)));
        PathNode { at, classed, any: wants_any.then(|| number_of(&mut self.wanted_slots, (at, ANY_CLASS))) }
    }

    fn exact_terms(&mut self, steps: &[(usize, u8)]) -> Option<ExactTerms> {
        let plan = self.plan.clone();
        let mut exact = ExactTerms { words: Vec::new(), covered: 0 };
        let mut next_term = 0;
        for (number, (at, class)) in steps.iter().enumerate() {
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
            // Holes at the beginning of a phrase are not covered, those at its end are.
            exact.covered += u32::from(node.last_position.saturating_sub(node.word_position())) + 1;
            match &d.phrase {
                Some(phrase) => {
                    for place in (0..phrase.0.len()).filter(|place| phrase.0[*place].is_some()) {
                        let word = ExactWord::OfPhrase(number_of(&mut self.wanted_words, (*at, place)));
                        exact.words.push((word, node.word_position().saturating_add(place as u16)));
                    }
                }
                None => exact.words.push((ExactWord::Typed(number), node.position)),
            }
        }
        (!exact.words.is_empty()).then_some(exact)
    }
}

/// The place of `wanted` in the list, appended if it is new.
fn number_of<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    list.iter().position(|known| *known == wanted).unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}

/// What was read for one chunk, by the numbers of what was wanted.
struct Facts<'s> {
    slots: Vec<Slot>,
    words: Vec<Option<Side>>,
    /// Looked at where a rule needs it.
    counts: RefCell<Box<WordCounts<'s>>>,
}

/// One document on one path, as a rule sees it.
struct Reading<'f, 's> {
    facts: &'f Facts<'s>,
    path: &'f PathPlan,
    classed: bool,
    /// Nodes that were found as typed.
    exact: NodeSet,
    index: usize,
}

impl<'f> Reading<'f, '_> {
    fn slot(&self, node: &PathNode) -> Option<&'f Slot> {
        let number = if self.classed { node.classed } else { node.any };
        number.map(|number| &self.facts.slots[number])
    }

    /// The occurrences of the node of this number that count: of one that is there as typed those of the typed word, of its
    /// synonyms, and of the table that comes with a short prefix.
    fn seen(&self, occurrences: &'f [Occurrence], number: usize, node: &Node) -> Cow<'f, [Occurrence]> {
        if self.exact >> number & 1 == 0 || node.derivations.phrase.is_some() {
            return Cow::Borrowed(occurrences);
        }
        Cow::Owned(occurrences.iter().copied().filter(|o| o.has(TYPED | STANDING)).collect())
    }

    fn heads(&self, number: usize, node: &Node) -> Cow<'f, [Occurrence]> {
        let slot = self.slot(&self.path.nodes[number]);
        self.seen(slot.map_or(&[], |slot| slot.heads(self.index)), number, node)
    }

    fn tails(&self, number: usize, node: &Node) -> Cow<'f, [Occurrence]> {
        let slot = self.slot(&self.path.nodes[number]);
        self.seen(slot.map_or(&[], |slot| slot.tails(self.index)), number, node)
    }
}

/// From which of the costs on nothing comes before `bar` that is equal to it so far, since the rest of it is the least there is;
/// `usize::MAX` where that is no cost, or where the bar is shorter than the costs so that equal ones pass.
fn least_from(bar: &[u32], costs: usize) -> usize {
    match bar.len() == costs {
        true => bar.iter().rposition(|cost| *cost > 0).map_or(0, |last| last + 1),
        false => usize::MAX,
    }
}

/// Whether the cost under a rule follows from the places of a path's only node, or from the path.
fn is_of_places(rule: Rule) -> bool {
    matches!(rule, Rule::Words | Rule::Typo | Rule::Proximity | Rule::AttributeRank | Rule::WordPosition)
}

/// The cost under such a rule, given those under the two rules that look at places; `None` under another.
fn cost_at(rule: Rule, path: &PathPlan, node: &Node, (rank, position): (u32, u32)) -> Option<u32> {
    match rule {
        Rule::Words => Some(path.words),
        Rule::Typo => Some(path.typos),
        Rule::Proximity => Some(u32::from(node.len) - 1),
        Rule::AttributeRank => Some(rank),
        Rule::WordPosition => Some(position),
        _ => None,
    }
}

/// Whether `right` begins right where `left` ends, so that their nearness counts.
pub fn is_next(left: &Node, right: &Node) -> bool {
    right.position == left.last_position.saturating_add(1)
}
