//! What the instances of a network exchange about the words of a query.
//!
//! The limits on what a word may stand for apply to the words of all documents. An instance with only some of them can therefore
//! choose other words than an instance with all: when a limit is reached, when a word exists only elsewhere, or when words are
//! split more often elsewhere. Asking every instance before each search would be expensive. Instead each instance sends with its
//! results what its dictionary knows. Whoever merges the results combines this, and repeats the query, with the combined
//! knowledge, to those instances that would have answered differently ([`QueryWords::would_answer_by`]). These are few.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::budget::{ONE_TYPO_MAX, PREFIX_TABLE_BYTES, PREFIX_TABLE_WORDS, PREFIX_WORDS_MAX, TWO_TYPOS_MAX};
use super::graph::{PrefixMode, QueryGraph, best_split, prefix_mode, split_counts, union};
use super::parse::TERMS_MAX;
use super::resolve::NodeFacts;

/// What an instance, or several together, know of the words of a query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryWords {
    /// For each node of the graph.
    nodes: Vec<NodeWords>,
    /// For each term how many documents match it; nothing where words are not dropped by their frequency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counts: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct NodeWords {
    /// Empty for a phrase.
    text: String,
    is_prefix: bool,
    facts: Arc<NodeFacts>,
}

impl NodeFacts {
    /// What several dictionaries together have.
    fn merged(text: &str, found: &[&Self]) -> Self {
        let mut all = Self {
            word: found.iter().any(|facts| facts.word),
            many: found.iter().any(|facts| facts.many),
            prefixed: union(found.iter().map(|facts| &facts.prefixed), PREFIX_WORDS_MAX + 1),
            prefixed_exact: union(found.iter().map(|facts| &facts.prefixed_exact), PREFIX_WORDS_MAX),
            one_typo: union(found.iter().map(|facts| &facts.one_typo), ONE_TYPO_MAX),
            two_typos: union(found.iter().map(|facts| &facts.two_typos), TWO_TYPOS_MAX),
            splits: split_counts(found),
        };
        all.splits.sort_unstable();
        all.many |= text.len() <= PREFIX_TABLE_BYTES && all.prefixed.len() >= PREFIX_TABLE_WORDS;
        if all.many {
            all.prefixed.clear();
            all.prefixed_exact.clear();
        }
        all
    }
}

impl NodeWords {
    /// Whether an instance that knows only this finds the same in its documents as one that knows `all`. A word that no
    /// document of the instance has makes no difference, unless it was typed: then it says what is exact.
    fn would_answer_by(&self, all: &Self) -> bool {
        let (own, whole) = (&*self.facts, &*all.facts);
        let are_among = |words: &[String], all: &[String]| words.iter().all(|word| all.binary_search(word).is_ok());
        let own_split = best_split(&self.text, &[own]);
        own.word == whole.word
            && are_among(&own.one_typo, &whole.one_typo)
            && are_among(&own.two_typos, &whole.two_typos)
            && (own_split.is_none() || own_split == best_split(&self.text, &[whole]))
            && (!self.is_prefix || self.has_same_prefixed(whole))
    }

    fn has_same_prefixed(&self, whole: &NodeFacts) -> bool {
        match (prefix_mode(&self.text, &[&self.facts]), prefix_mode(&self.text, &[whole])) {
            (PrefixMode::Table, PrefixMode::Table) | (_, PrefixMode::List(None)) => true,
            (PrefixMode::List(_), PrefixMode::List(Some(last))) => {
                self.facts.prefixed.iter().take(PREFIX_WORDS_MAX).all(|word| *word <= last)
            }
            _ => false,
        }
    }
}

impl QueryWords {
    /// What the partitions of an instance know: for each of them the facts of all nodes of `graph`. `counts` says for each term
    /// how many documents match it, where words are dropped by that.
    pub fn new(graph: &QueryGraph, facts: &[Vec<Arc<NodeFacts>>], counts: Vec<u64>) -> Self {
        let node = |(at, node): (usize, &super::graph::Node)| {
            let d = &node.derivations;
            let facts = match facts {
                [only] => only[at].clone(),
                _ => {
                    let found: Vec<&NodeFacts> = facts.iter().map(|partition| &*partition[at]).collect();
                    Arc::new(NodeFacts::merged(&d.text, &found))
                }
            };
            NodeWords { text: d.text.clone(), is_prefix: d.prefix.is_some(), facts }
        };
        Self { nodes: graph.nodes.iter().enumerate().map(node).collect(), counts }
    }

    /// What all know together; `None` where they do not speak of the same query, since their settings differ, or of none that
    /// there can be.
    pub fn merged(all: &[&Self]) -> Option<Self> {
        let first = *all.first()?;
        let alike = |other: &&Self| {
            let same = |(a, b): (&NodeWords, &NodeWords)| a.text == b.text && a.is_prefix == b.is_prefix;
            other.counts.len() == first.counts.len()
                && other.nodes.len() == first.nodes.len()
                && other.nodes.iter().zip(&first.nodes).all(same)
        };
        if first.counts.len() > TERMS_MAX || !all.iter().all(alike) {
            return None;
        }
        let node = |(at, node): (usize, &NodeWords)| {
            let found: Vec<&NodeFacts> = all.iter().map(|words| &*words.nodes[at].facts).collect();
            NodeWords { facts: Arc::new(NodeFacts::merged(&node.text, &found)), ..node.clone() }
        };
        let count = |term| all.iter().map(|words| words.counts[term]).fold(0, u64::saturating_add);
        Some(Self {
            nodes: first.nodes.iter().enumerate().map(node).collect(),
            counts: (0..first.counts.len()).map(count).collect(),
        })
    }

    /// Whether an instance that answered by this alone would have given the same answer by `all`.
    pub fn would_answer_by(&self, all: &Self) -> bool {
        self.nodes.iter().zip(&all.nodes).all(|(own, whole)| own.would_answer_by(whole)) && self.drops_alike(all)
    }

    /// Whether an instance that answered by this would give the same answer by `other`.
    pub fn answers_as(&self, other: &Self) -> bool {
        self.nodes == other.nodes && self.drops_alike(other)
    }

    /// Whether words are dropped in the same order by the counts of both.
    fn drops_alike(&self, other: &Self) -> bool {
        // A term that no document matches is dropped first.
        let frequency = |count: u64| if count == 0 { u64::MAX } else { count };
        let order = |counts: &[u64], a: usize, b: usize| frequency(counts[a]).cmp(&frequency(counts[b]));
        let mut pairs = (0..self.counts.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        self.counts.len() == other.counts.len()
            && pairs.all(|(a, b)| order(&self.counts, a, b) == order(&other.counts, a, b))
    }

    /// The facts of all nodes, if these are the nodes of `graph`, and no more than there can be.
    pub fn facts(&self, graph: &QueryGraph) -> Option<Vec<Arc<NodeFacts>>> {
        let fits = |words: &NodeWords| {
            let facts = &*words.facts;
            facts.one_typo.len() <= ONE_TYPO_MAX
                && facts.two_typos.len() <= TWO_TYPOS_MAX
                && facts.prefixed.len() <= PREFIX_WORDS_MAX + 1
                && facts.prefixed_exact.len() <= PREFIX_WORDS_MAX
                && facts.splits.len() <= words.text.len()
        };
        let same = self.nodes.len() == graph.nodes.len()
            && self
                .nodes
                .iter()
                .zip(&graph.nodes)
                .all(|(words, node)| words.text == node.derivations.text && fits(words));
        same.then(|| self.nodes.iter().map(|node| node.facts.clone()).collect())
    }

    /// How many documents of the network match each of `terms` terms, where that was counted.
    pub fn counts(&self, terms: u8) -> Option<&[u64]> {
        (self.counts.len() == usize::from(terms)).then_some(&*self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, is_prefix: bool, facts: NodeFacts) -> QueryWords {
        let node = NodeWords { text: text.into(), is_prefix, facts: Arc::new(facts) };
        QueryWords { nodes: vec![node], counts: Vec::new() }
    }

    fn list(from: usize, to: usize) -> Vec<String> {
        (from..to).map(|number| format!("w{number:04}")).collect()
    }

    /// Whether an instance that has `own`, and another that has `other`, would answer as they did.
    fn stay(text: &str, is_prefix: bool, own: NodeFacts, other: NodeFacts) -> (bool, bool) {
        let (own, other) = (words(text, is_prefix, own), words(text, is_prefix, other));
        let all = QueryWords::merged(&[&own, &other]).unwrap();
        assert_eq!(QueryWords::merged(&[&other, &own]), Some(all.clone()));
        assert!(all.would_answer_by(&all));
        (own.would_answer_by(&all), other.would_answer_by(&all))
    }

    #[test]
    fn a_limit_that_is_reached_together_makes_a_difference_to_those_behind_it() {
        let typos = |one_typo| NodeFacts { one_typo, ..NodeFacts::default() };
        assert_eq!(stay("w", false, typos(list(0, 70)), typos(list(60, 140))), (true, true));
        assert_eq!(stay("w", false, typos(list(0, 70)), typos(list(60, 160))), (true, false));
        let two = |two_typos| NodeFacts { two_typos, ..NodeFacts::default() };
        assert_eq!(stay("w", false, two(list(20, 60)), two(list(0, 30))), (false, true));
        let prefixed = |prefixed| NodeFacts { prefixed, ..NodeFacts::default() };
        let long = |from, to| prefixed(list(from, to));
        assert_eq!(stay("longer", true, long(0, 500), long(400, 1000)), (true, true));
        assert_eq!(stay("longer", true, long(0, 500), long(400, 1001)), (true, false));
        assert_eq!(stay("longer", true, long(0, 1001), long(999, 1002)), (true, false));
        assert_eq!(stay("longer", false, long(0, 500), long(400, 1100)), (true, true));
    }

    /// Whether a short prefix is looked up as a whole is told by all words together.
    #[test]
    fn short_prefixes_are_looked_up_alike() {
        let some = |from, to| NodeFacts { prefixed: list(from, to), ..NodeFacts::default() };
        let many = || NodeFacts { many: true, ..NodeFacts::default() };
        assert_eq!(stay("w", true, some(0, 60), some(50, 99)), (true, true));
        assert_eq!(stay("w", true, some(0, 60), some(50, 100)), (false, false));
        assert_eq!(stay("w", true, some(0, 60), many()), (false, true));
        assert_eq!(stay("w", true, many(), many()), (true, true));
    }

    #[test]
    fn what_is_elsewhere_makes_a_difference_where_it_was_typed() {
        let word = |word| NodeFacts { word, ..NodeFacts::default() };
        assert_eq!(stay("w", false, word(true), word(false)), (true, false));
        let splits = |splits: &[(u16, u64)]| NodeFacts { splits: splits.to_vec(), ..NodeFacts::default() };
        assert_eq!(stay("bedroom", false, splits(&[(3, 5)]), splits(&[])), (true, true));
        assert_eq!(stay("bedroom", false, splits(&[(3, 5)]), splits(&[(2, 3), (3, 1)])), (true, false));
    }

    #[test]
    fn counts_matter_by_their_order() {
        let counted = |counts: &[u64]| QueryWords { nodes: Vec::new(), counts: counts.to_vec() };
        let all = QueryWords::merged(&[&counted(&[1, 5, 5]), &counted(&[2, 9, 0])]).unwrap();
        assert_eq!(all, counted(&[3, 14, 5]));
        assert!(counted(&[1, 7, 2]).would_answer_by(&all));
        assert!(!counted(&[1, 5, 5]).would_answer_by(&all) && !counted(&[2, 9, 0]).would_answer_by(&all));
        assert_eq!(QueryWords::merged(&[&counted(&[1]), &counted(&[])]), None);
    }

    /// Words of other queries are of no use, whoever sends them.
    #[test]
    fn words_fit_their_query() {
        let of_other = words("other", false, NodeFacts::default());
        assert_eq!(QueryWords::merged(&[&words("w", false, NodeFacts::default()), &of_other]), None);
        assert_eq!(of_other.facts(&QueryGraph::default()), None);
        assert_eq!(of_other.counts(3), None);
    }
}
