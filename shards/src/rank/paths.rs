//! Paths through the query graph.

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::classes::{ANY_CLASS, NodeDocs};
use crate::query::{Node, QueryGraph};

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u16", into = "u16")]
pub enum Step {
    /// A term that the document need not have.
    Drop(u8),
    /// A node that it satisfies.
    Node {
        /// Its place in the graph.
        at: u8,
        /// Its typo class in this path, or [`ANY_CLASS`].
        class: u8,
    },
}

/// In place of a class: a term that the document need not have.
const DROPPED: u8 = u8::MAX;

/// A step as one number: the class, or [`DROPPED`], above the node or the term.
impl From<Step> for u16 {
    fn from(step: Step) -> Self {
        match step {
            Step::Drop(term) => Self::from_be_bytes([DROPPED, term]),
            Step::Node { at, class } => Self::from_be_bytes([class, at]),
        }
    }
}

impl From<u16> for Step {
    fn from(number: u16) -> Self {
        match number.to_be_bytes() {
            [DROPPED, term] => Self::Drop(term),
            [class, at] => Self::Node { at, class },
        }
    }
}

/// A way from the first to the last term. The derived order is the order in which paths are visited.
pub type Path = SmallVec<[Step; 6]>;

/// Limits of a walk through the graph.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Whether paths tell typo classes apart.
    pub classes: bool,
    /// Exactly this number of dropped terms; `None`: any.
    pub words: Option<u32>,
    /// Exactly this typo cost; `None`: any.
    pub typos: Option<u32>,
}

/// Whether a path may use a node after it dropped terms of turns up to `level`: a term dropped takes with it all terms behind
/// it that go earlier, but none before it.
pub fn usable(graph: &QueryGraph, node: &Node, level: u8) -> bool {
    graph.node_rank(node).is_none_or(|rank| rank >= level)
}

/// Visits, in order, the paths within the limits that some document of `docs` satisfies, with those documents. With classes,
/// a document satisfies each node in its lowest class only. Stops at `paths_max` paths.
pub fn visit(
    graph: &QueryGraph,
    node_docs: &NodeDocs,
    walk: Walk,
    docs: &RoaringBitmap,
    paths_max: usize,
) -> Vec<(Path, RoaringBitmap)> {
    let mut visitor = Visitor { graph, node_docs, walk, path: Path::new(), found: Vec::new(), paths_max };
    visitor.step(0, docs, Costs { words: walk.words.unwrap_or(0), typos: walk.typos.unwrap_or(0), level: 0 });
    visitor.found
}

/// What a path may still cost, and the latest turn of the terms it dropped.
#[derive(Clone, Copy)]
struct Costs {
    words: u32,
    typos: u32,
    level: u8,
}

struct Visitor<'a> {
    graph: &'a QueryGraph,
    node_docs: &'a NodeDocs,
    walk: Walk,
    path: Path,
    found: Vec<(Path, RoaringBitmap)>,
    paths_max: usize,
}

impl Visitor<'_> {
    fn step(&mut self, term: usize, docs: &RoaringBitmap, left: Costs) {
        if docs.is_empty() || self.found.len() >= self.paths_max {
            return;
        }
        if term == usize::from(self.graph.term_count) {
            let exact = |limit: Option<u32>, left: u32| limit.is_none() || left == 0;
            if exact(self.walk.words, left.words) && exact(self.walk.typos, left.typos) {
                self.found.push((self.path.clone(), docs.clone()));
            }
            return;
        }
        if let Some(turn) = self.graph.drop_ranks[term].filter(|_| self.walk.words.is_none() || left.words > 0) {
            self.path.push(Step::Drop(term as u8));
            let left = Costs { words: left.words.saturating_sub(1), level: left.level.max(turn), ..left };
            self.step(term + 1, docs, left);
            self.path.pop();
        }
        for (at, node) in self.graph.nodes.iter().enumerate() {
            if usize::from(node.first) == term && usable(self.graph, node, left.level) {
                self.node(at, node, docs, left);
            }
        }
    }

    fn node(&mut self, at: usize, node: &Node, docs: &RoaringBitmap, left: Costs) {
        let next = term_after(node);
        if !self.walk.classes {
            let with = docs & &**self.node_docs.class(at, ANY_CLASS);
            self.path.push(Step::Node { at: at as u8, class: ANY_CLASS });
            self.step(next, &with, left);
            self.path.pop();
            return;
        }
        let mut rest = docs.clone();
        for class in 0..=node.class_max() {
            let cost = class + node.join_cost();
            if self.walk.typos.is_some() && cost > left.typos {
                return;
            }
            let with = &rest & &**self.node_docs.class(at, class as u8);
            if with.is_empty() {
                continue;
            }
            rest -= &with;
            self.path.push(Step::Node { at: at as u8, class: class as u8 });
            self.step(next, &with, Costs { typos: left.typos.saturating_sub(cost), ..left });
            self.path.pop();
            if rest.is_empty() {
                return;
            }
        }
    }
}

/// The first term behind a node.
pub fn term_after(node: &Node) -> usize {
    usize::from(node.first + node.len)
}

/// A path without its typo classes.
pub fn without_classes(path: &Path) -> Path {
    path.iter()
        .map(|step| match step {
            Step::Node { at, .. } => Step::Node { at: *at, class: ANY_CLASS },
            drop => *drop,
        })
        .collect()
}
