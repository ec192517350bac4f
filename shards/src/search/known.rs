//! What the dictionaries of an index's partitions said, kept on the core that asks, so that a word met before is not asked
//! about again while the index stays as it is.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;

use crate::query::{NodeFacts, NodeQuestion};

/// The facts of one node, by partition.
pub type SharedFacts = Rc<[Arc<NodeFacts>]>;

/// Nodes kept; starting over when there are more is rare, and what is in use comes back at once.
const NODES_MAX: usize = 8192;
/// Words of all facts kept.
const WORDS_MAX: usize = 200_000;

/// The facts of an index at one epoch.
#[derive(Default)]
pub struct KnownFacts(RefCell<Kept>);

#[derive(Default)]
struct Kept {
    /// By whether nearness means "in the same field".
    nodes: [AHashMap<NodeQuestion, SharedFacts>; 2],
    words: usize,
}

impl KnownFacts {
    /// The facts of a node, if they were kept.
    pub fn get(&self, question: &NodeQuestion, by_attribute: bool) -> Option<SharedFacts> {
        self.0.borrow().nodes[usize::from(by_attribute)].get(question).cloned()
    }

    /// Keeps the facts of a node.
    pub fn keep(&self, question: NodeQuestion, by_attribute: bool, facts: &SharedFacts) {
        let words: usize = facts.iter().map(|f| f.prefixed.len() + f.one_typo.len() + f.two_typos.len()).sum();
        let mut kept = self.0.borrow_mut();
        if kept.nodes.iter().map(|nodes| nodes.len()).sum::<usize>() >= NODES_MAX || kept.words + words > WORDS_MAX {
            *kept = Kept::default();
        }
        kept.words += words;
        kept.nodes[usize::from(by_attribute)].insert(question, facts.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let known = KnownFacts::default();
        let question = |at: usize| NodeQuestion { text: at.to_string(), ..NodeQuestion::default() };
        let facts = |words: usize| -> SharedFacts {
            Rc::new([Arc::new(NodeFacts { prefixed: vec![String::new(); words], ..NodeFacts::default() })])
        };
        for at in 0..NODES_MAX {
            known.keep(question(at), false, &facts(1));
        }
        assert!(known.get(&question(0), false).is_some_and(|facts| facts.len() == 1));
        assert!(known.get(&question(0), true).is_none());
        known.keep(question(NODES_MAX), false, &facts(1));
        assert!(known.get(&question(0), false).is_none());
        known.keep(question(0), false, &facts(WORDS_MAX));
        assert!(known.get(&question(NODES_MAX), false).is_none());
    }
}
