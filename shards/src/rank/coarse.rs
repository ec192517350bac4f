//! Buckets that need no positions: by dropped terms and typos, best first, each computed on demand.

use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;
use roaring::RoaringBitmap;

use super::classes::{ANY_CLASS, NodeDocs};
use super::paths::{term_after, usable};
use super::plan::RankPlan;
use crate::query::QueryGraph;

/// A walk over the buckets of one universe.
pub struct Coarse {
    plan: Arc<RankPlan>,
    node_docs: Rc<NodeDocs>,
    universe: Rc<RoaringBitmap>,
    by_words: bool,
    by_typos: bool,
    taken: RoaringBitmap,
    next: Option<(u32, u32)>,
    words_max: u32,
    typos_max: u32,
    memo: AHashMap<(u8, u8, u32, u32), Rc<RoaringBitmap>>,
}

/// Documents of equal cost under the rules `words` and `typo`, as far as these come first.
pub struct CoarseBucket {
    /// Dropped terms, when buckets are made by them.
    pub words: Option<u32>,
    /// Typo cost, when buckets are made by it.
    pub typos: Option<u32>,
    /// Never empty.
    pub docs: RoaringBitmap,
}

impl Coarse {
    /// Buckets of `universe`. Without `by_words` nothing is dropped and documents that lack a term are in no bucket.
    pub fn new(
        plan: Arc<RankPlan>,
        node_docs: Rc<NodeDocs>,
        universe: Rc<RoaringBitmap>,
        by_words: bool,
        by_typos: bool,
    ) -> Self {
        let (words_max, typos_max) = limits(&plan.graph);
        Self {
            plan,
            node_docs,
            universe,
            by_words,
            by_typos,
            taken: RoaringBitmap::new(),
            next: Some((0, 0)),
            words_max: if by_words { words_max } else { 0 },
            typos_max: if by_typos { typos_max } else { 0 },
            memo: AHashMap::new(),
        }
    }

    /// The next bucket that is not empty.
    pub fn next_bucket(&mut self) -> Option<CoarseBucket> {
        while let Some((words, typos)) = self.next {
            if self.taken.len() == self.universe.len() {
                self.next = None;
                return None;
            }
            self.next = match (words, typos) {
                (words, typos) if typos < self.typos_max => Some((words, typos + 1)),
                (words, _) if words < self.words_max => Some((words + 1, 0)),
                _ => None,
            };
            let mut docs = self.docs(words, typos);
            docs -= &self.taken;
            if !docs.is_empty() {
                self.taken |= &docs;
                let (words, typos) = (self.by_words.then_some(words), self.by_typos.then_some(typos));
                return Some(CoarseBucket { words, typos, docs });
            }
        }
        None
    }

    /// What is in no bucket so far; there are no more buckets then.
    pub fn take_rest(&mut self) -> RoaringBitmap {
        self.next = None;
        &*self.universe - &self.taken
    }

    fn docs(&mut self, words: u32, typos: u32) -> RoaringBitmap {
        let docs = self.suffix(0, 0, words, typos);
        // Each is asked for once: what only this one refers to need not be copied.
        self.memo.remove(&(0, 0, words, typos));
        Rc::unwrap_or_clone(docs)
    }

    /// The documents that satisfy the terms from `term` on at exactly these costs (or perhaps less), when terms up to the turn
    /// `level` were dropped before.
    fn suffix(&mut self, level: u8, term: usize, words: u32, typos: u32) -> Rc<RoaringBitmap> {
        let plan = self.plan.clone();
        let graph = &plan.graph;
        if term == usize::from(graph.term_count) {
            let reached = words == 0 && typos == 0;
            return if reached { self.universe.clone() } else { Rc::default() };
        }
        let key = (level, term as u8, words, typos);
        if let Some(docs) = self.memo.get(&key) {
            return docs.clone();
        }
        let mut docs = RoaringBitmap::new();
        if let Some(turn) = graph.drop_ranks[term].filter(|_| words > 0) {
            docs |= &*self.suffix(level.max(turn), term + 1, words - 1, typos);
        }
        for (at, node) in graph.nodes.iter().enumerate() {
            if usize::from(node.first) != term || !usable(graph, node, level) {
                continue;
            }
            if !self.by_typos {
                let rest = self.suffix(level, term_after(node), words, typos);
                if !rest.is_empty() {
                    docs |= &**self.node_docs.class(at, ANY_CLASS) & &*rest;
                }
                continue;
            }
            for class in 0..=node.class_max() {
                let Some(left) = typos.checked_sub(class + node.join_cost()) else { break };
                let rest = self.suffix(level, term_after(node), words, left);
                if !rest.is_empty() {
                    docs |= &**self.node_docs.class(at, class as u8) & &*rest;
                }
            }
        }
        let docs = Rc::new(docs);
        self.memo.insert(key, docs.clone());
        docs
    }
}

/// The documents of `within` that the query admits: those that satisfy a path in which everything droppable is dropped.
pub fn candidates(graph: &QueryGraph, node_docs: &NodeDocs, within: &RoaringBitmap) -> RoaringBitmap {
    let terms = usize::from(graph.term_count);
    let mut from: Vec<RoaringBitmap> = vec![RoaringBitmap::new(); terms + 1];
    from[terms] = within.clone();
    for term in (0..terms).rev() {
        let mut docs = if graph.drop_ranks[term].is_some() { from[term + 1].clone() } else { RoaringBitmap::new() };
        for (at, node) in graph.nodes.iter().enumerate() {
            if usize::from(node.first) == term && graph.node_rank(node).is_none() {
                let rest = &from[term_after(node)];
                if !rest.is_empty() {
                    docs |= &**node_docs.class(at, ANY_CLASS) & rest;
                }
            }
        }
        from[term] = docs;
    }
    from.swap_remove(0)
}

/// The most terms that a path can drop and the most typos it can cost.
pub fn limits(graph: &QueryGraph) -> (u32, u32) {
    let words = graph.drop_ranks.iter().flatten().count() as u32;
    let mut typos = vec![0u32; usize::from(graph.term_count) + 1];
    for term in (0..usize::from(graph.term_count)).rev() {
        typos[term] = graph
            .nodes
            .iter()
            .filter(|node| usize::from(node.first) == term)
            .map(|node| node.class_max() + node.join_cost() + typos[term_after(node)])
            .max()
            .unwrap_or(0);
    }
    (words, typos[0])
}
