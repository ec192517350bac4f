//! Ways through the query graph.

use roaring::RoaringBitmap;
use smallvec::SmallVec;

use super::classes::{ANY_CLASS, NodeDocs};
use crate::query::{Node, QueryGraph};

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// A way from the first to the last term. The derived order is the order in which paths are visited.
pub type Path = SmallVec<[Step; 6]>;

/// Limits of a walk through the graph.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Terms of this turn and before may be dropped; nodes of earlier turns may not be used.
    pub level: u8,
    /// Whether paths tell typo classes apart.
    pub classes: bool,
    /// Exactly this number of dropped terms; `None`: any.
    pub words: Option<u32>,
    /// Exactly this typo cost; `None`: any.
    pub typos: Option<u32>,
}

/// Whether a node may be used at a level.
pub fn usable(graph: &QueryGraph, node: &Node, level: u8) -> bool {
    graph.node_rank(node).is_none_or(|rank| rank >= level)
}

/// Whether a term may be dropped at a level.
pub fn droppable(graph: &QueryGraph, term: usize, level: u8) -> bool {
    graph.drop_ranks[term].is_some_and(|rank| rank <= level)
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
    visitor.step(0, docs, walk.words.unwrap_or(0), walk.typos.unwrap_or(0));
    visitor.found
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
    fn step(&mut self, term: usize, docs: &RoaringBitmap, words_left: u32, typos_left: u32) {
        if docs.is_empty() || self.found.len() >= self.paths_max {
            return;
        }
        if term == usize::from(self.graph.term_count) {
            let exact = |limit: Option<u32>, left: u32| limit.is_none() || left == 0;
            if exact(self.walk.words, words_left) && exact(self.walk.typos, typos_left) {
                self.found.push((self.path.clone(), docs.clone()));
            }
            return;
        }
        if droppable(self.graph, term, self.walk.level) && (self.walk.words.is_none() || words_left > 0) {
            self.path.push(Step::Drop(term as u8));
            self.step(term + 1, docs, words_left.saturating_sub(1), typos_left);
            self.path.pop();
        }
        for (at, node) in self.graph.nodes.iter().enumerate() {
            if usize::from(node.first) == term && usable(self.graph, node, self.walk.level) {
                self.node(at, node, docs, words_left, typos_left);
            }
        }
    }

    fn node(&mut self, at: usize, node: &Node, docs: &RoaringBitmap, words_left: u32, typos_left: u32) {
        let next = term_after(node);
        if !self.walk.classes {
            let with = docs & &**self.node_docs.class(at, ANY_CLASS);
            self.path.push(Step::Node { at: at as u8, class: ANY_CLASS });
            self.step(next, &with, words_left, typos_left);
            self.path.pop();
            return;
        }
        let mut rest = docs.clone();
        for class in 0..=node.class_max() {
            let cost = class + node.join_cost();
            if self.walk.typos.is_some() && cost > typos_left {
                return;
            }
            let with = &rest & &**self.node_docs.class(at, class as u8);
            if with.is_empty() {
                continue;
            }
            rest -= &with;
            self.path.push(Step::Node { at: at as u8, class: class as u8 });
            self.step(next, &with, words_left, typos_left.saturating_sub(cost));
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
