//! Caches, on the core that asks, what the dictionaries of an index's partitions know of a word, so that a word is not looked up
//! again while the index does not change.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::kept::Kept;
use crate::query::{NodeFacts, NodeQuestion};

/// The facts of one node, by partition.
pub type SharedFacts = Rc<[Arc<NodeFacts>]>;

/// What all facts kept weigh: a word weighs one.
const WEIGHT_MAX: usize = 200_000;
/// What a node weighs besides its words.
const NODE_WEIGHT: usize = 24;

/// The facts of an index at one epoch, by whether nearness means "in the same field": that is a setting, so one of both is empty.
#[derive(Default)]
pub struct KnownFacts(RefCell<[Kept<NodeQuestion, SharedFacts>; 2]>);

impl KnownFacts {
    /// The facts of a node, if they were kept.
    pub fn get(&self, question: &NodeQuestion, by_attribute: bool) -> Option<SharedFacts> {
        self.0.borrow()[usize::from(by_attribute)].get(question).cloned()
    }

    /// Keeps the facts of a node.
    pub fn keep(&self, question: NodeQuestion, by_attribute: bool, facts: &SharedFacts) {
        let words: usize = facts
            .iter()
            .map(|f| f.prefixed.len() + f.prefixed_exact.len() + f.one_typo.len() + f.two_typos.len())
            .sum();
        let kept = &mut self.0.borrow_mut()[usize::from(by_attribute)];
        kept.keep(question, facts.clone(), words + NODE_WEIGHT, WEIGHT_MAX);
    }

    /// Forgets a bounded part of them; false when there is nothing.
    pub fn forget_some(&self) -> bool {
        self.0.borrow_mut().iter_mut().any(Kept::forget_some)
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
        known.keep(question(0), false, &facts(1));
        assert!(known.get(&question(0), false).is_some_and(|facts| facts.len() == 1));
        assert!(known.get(&question(0), true).is_none());
        for at in 1..WEIGHT_MAX / NODE_WEIGHT {
            known.keep(question(at), false, &facts(1));
        }
        let count = (0..WEIGHT_MAX / NODE_WEIGHT).filter(|at| known.get(&question(*at), false).is_some()).count();
        assert!((1..=WEIGHT_MAX / (NODE_WEIGHT + 1)).contains(&count));
        known.keep(question(0), false, &facts(WEIGHT_MAX));
        assert!(known.get(&question(0), false).is_none_or(|facts| facts[0].prefixed.len() == 1));
        while known.forget_some() {}
        assert!((0..WEIGHT_MAX / NODE_WEIGHT).all(|at| known.get(&question(at), false).is_none()));
    }
}
