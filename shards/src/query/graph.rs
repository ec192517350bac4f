//! The query graph: terms, joined words, what each may stand for, and which may be dropped.

use std::sync::Arc;

use super::budget::{
    ONE_TYPO_MAX, PREFIX_TABLE_BYTES, PREFIX_TABLE_WORDS, PREFIX_WORDS_MAX, TWO_TYPOS_MAX, WORD_BYTES_MAX, typo_budget,
};
use super::context::QueryContext;
use super::parse::{ParsedQuery, Term, TermKind};
use super::prefix::PrefixRange;
use super::resolve::{NodeFacts, NodeQuestion};
use crate::search::MatchingStrategy;
use crate::settings::Settings;

/// Most neighbouring words that are joined into one.
const JOIN_WORDS_MAX: usize = 3;

/// Words in a row; `None` is a hole that any word fills. At least one is a word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Phrase(pub Vec<Option<String>>);

/// Everything that may match a query: plain data, the same for all partitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryGraph {
    /// Sorted by first term, shorter ones before longer ones: the order in which paths are visited.
    pub nodes: Vec<Node>,
    /// How many terms the query has; none for a placeholder.
    pub term_count: u8,
    /// No document of the result holds one of these.
    pub negatives: Vec<Phrase>,
    /// For each term, the turn at which it may be dropped, from 1; `None`: never.
    pub drop_ranks: Vec<Option<u8>>,
    /// Whether it was completed with what other instances know: then what a word stands for does not follow from the epoch.
    pub is_shared: bool,
}

/// A term, or two or three neighbouring terms written as one word.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The first term it covers.
    pub first: u8,
    /// How many terms it covers: 1 to 3.
    pub len: u8,
    /// The query position of its first word.
    pub position: u16,
    /// The query position of its last word.
    pub last_position: u16,
    /// What it stands for.
    pub derivations: Derivations,
}

/// What a node may stand for, by typo class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Derivations {
    /// The typed or joined word; empty for a phrase.
    pub text: String,
    /// The phrase of a phrase term; nothing else is set then.
    pub phrase: Option<Phrase>,
    /// Edits allowed.
    pub budget: u8,
    /// Whether some document of the index has the word (class 0).
    pub word: bool,
    /// How words that begin with it are found (class 0); `None` when the node is no prefix.
    pub prefix: Option<PrefixMode>,
    /// Words that begin with it, sorted, in list mode: what a text that is shown is searched for.
    pub prefixed: Vec<String>,
    /// Class 0 too.
    pub synonyms: Vec<Phrase>,
    /// Class 1, sorted.
    pub one_typo: Vec<String>,
    /// Class 1.
    pub split: Option<(String, String)>,
    /// Class 2, sorted.
    pub two_typos: Vec<String>,
}

/// How the words that begin with a node's text are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixMode {
    /// Word by word, up to and including this one (`None`: all).
    List(Option<String>),
    /// As one: many words begin with a short text.
    Table,
}

impl Derivations {
    /// The words that begin with the text, if such count.
    pub fn prefix_range(&self) -> Option<PrefixRange> {
        let last = match self.prefix.as_ref()? {
            PrefixMode::List(last) => last.clone(),
            PrefixMode::Table => None,
        };
        (!self.text.is_empty()).then(|| PrefixRange { prefix: self.text.clone(), last })
    }
}

impl Node {
    /// The terms it covers.
    pub fn terms(&self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first + self.len)
    }

    /// Words of its phrase, holes not counted; 0 for words.
    pub fn phrase_words(&self) -> u32 {
        self.derivations.phrase.as_ref().map_or(0, |phrase| phrase.0.iter().flatten().count() as u32)
    }

    /// The query position of its first word that is no hole.
    pub fn word_position(&self) -> u16 {
        let holes = |phrase: &Phrase| phrase.0.iter().take_while(|word| word.is_none()).count() as u16;
        self.position.saturating_add(self.derivations.phrase.as_ref().map_or(0, holes))
    }

    /// The largest typo class it can have.
    pub fn class_max(&self) -> u32 {
        match (&self.derivations.phrase, self.derivations.budget) {
            (Some(_), _) => 0,
            (None, 2) => 2,
            (None, _) => 1,
        }
    }

    /// What the typo rule counts for joining words.
    pub fn join_cost(&self) -> u32 {
        if self.len == 1 { 0 } else { u32::from(self.len) }
    }
}

impl QueryGraph {
    /// The graph of a parsed query before any dictionary was looked at. Under [`MatchingStrategy::Frequency`] nothing may
    /// be dropped until [`Self::rank_by_frequency`] was called.
    pub fn sketch(
        parsed: &ParsedQuery,
        context: &QueryContext<'_>,
        settings: &Settings,
        strategy: MatchingStrategy,
    ) -> Self {
        let mut nodes = Vec::new();
        for first in 0..parsed.terms.len() {
            for len in 1..=JOIN_WORDS_MAX.min(parsed.terms.len() - first) {
                nodes.extend(sketch_node(&parsed.terms[first..first + len], first, context, settings));
            }
        }
        let term_count = parsed.terms.len() as u8;
        let negatives = parsed.negatives.iter().cloned().map(Phrase).collect();
        let drop_ranks = vec![None; parsed.terms.len()];
        let mut graph = Self { nodes, term_count, negatives, drop_ranks, is_shared: false };
        if strategy == MatchingStrategy::Last {
            graph.rank_last_first();
        }
        graph
    }

    fn is_phrase(&self, term: usize) -> bool {
        self.nodes
            .iter()
            .any(|node| node.len == 1 && usize::from(node.first) == term && node.derivations.phrase.is_some())
    }

    fn rank_last_first(&mut self) {
        let keep = usize::from(!(0..self.drop_ranks.len()).any(|term| self.is_phrase(term)));
        let mut rank = 0;
        for term in (keep..self.drop_ranks.len()).rev().filter(|term| !self.is_phrase(*term)).collect::<Vec<_>>() {
            rank += 1;
            self.drop_ranks[term] = Some(rank);
        }
    }

    /// Lets the most frequent terms go first. `counts` says for each term how many documents of the whole index match it.
    pub fn rank_by_frequency(&mut self, counts: &[u64]) {
        let has_phrase = (0..self.drop_ranks.len()).any(|term| self.is_phrase(term));
        let frequency = |term: usize| if counts[term] == 0 { u64::MAX } else { counts[term] };
        let words: Vec<usize> = (0..self.drop_ranks.len()).filter(|term| !self.is_phrase(*term)).collect();
        let mut levels: Vec<u64> = words.iter().map(|term| frequency(*term)).collect();
        levels.sort_unstable_by(|a, b| b.cmp(a));
        levels.dedup();
        if !has_phrase {
            levels.pop();
        }
        for term in words {
            self.drop_ranks[term] = levels.iter().position(|level| *level == frequency(term)).map(|at| at as u8 + 1);
        }
    }

    /// The turn at which a node may be dropped: that of its member that goes last; `None`: never.
    pub fn node_rank(&self, node: &Node) -> Option<u8> {
        node.terms().map(|term| self.drop_ranks[term]).try_fold(0, |rank, term| term.map(|term| rank.max(term)))
    }

    /// What to look up in each partition, for the nodes in their order; documents of the network shard `shard` are counted, if
    /// one is given.
    pub fn questions(&self, shard: Option<&Arc<str>>) -> Vec<NodeQuestion> {
        self.nodes.iter().map(|node| NodeQuestion { shard: shard.cloned(), ..NodeQuestion::of(node) }).collect()
    }

    /// Fills in the derivations from what the partitions found: for each partition the facts of all nodes.
    /// `wants_words` also notes which words begin with a prefix, for showing matches.
    pub fn complete(&mut self, facts: &[Vec<Arc<NodeFacts>>], wants_words: bool) {
        let typed: Vec<String> = (0..usize::from(self.term_count))
            .map(|term| self.nodes.iter().find(|node| node.len == 1 && usize::from(node.first) == term))
            .map(|node| node.map_or(String::new(), |node| node.derivations.text.clone()))
            .collect();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if node.derivations.phrase.is_some() {
                continue;
            }
            let found: Vec<&NodeFacts> = facts.iter().map(|partition| &*partition[at]).collect();
            complete_node(node, &found, wants_words);
            let typed = &typed[node.terms()];
            if let (Some((left, right)), [first, second]) = (&node.derivations.split, typed)
                && left == first
                && right == second
            {
                node.derivations.split = None;
            }
        }
    }
}

fn sketch_node(terms: &[Term], first: usize, context: &QueryContext<'_>, settings: &Settings) -> Option<Node> {
    let (start, end) = (terms.first()?, terms.last()?);
    let mut derivations = Derivations::default();
    if let ([_], TermKind::Phrase(words)) = (terms, &start.kind) {
        derivations.phrase = Some(Phrase(words.clone()));
    } else {
        let mut words = Vec::with_capacity(terms.len());
        for (at, term) in terms.iter().enumerate() {
            let TermKind::Word { text, prefix } = &term.kind else { return None };
            if term.position != start.position.saturating_add(at as u16) {
                return None;
            }
            words.push(text.clone());
            derivations.prefix = prefix.then_some(PrefixMode::List(None));
        }
        derivations.text = words.concat();
        if terms.len() > 1 && derivations.text.len() > WORD_BYTES_MAX {
            return None;
        }
        let budget = typo_budget(&derivations.text, &settings.typo_tolerance);
        derivations.budget = budget.saturating_sub(terms.len() as u8 - 1);
        // A joined word has its own synonyms beside those of the words that it is made of.
        let joined = (words.len() > 1).then(|| context.synonyms(std::slice::from_ref(&derivations.text)));
        let synonyms = context.synonyms(&words).iter().chain(joined.into_iter().flatten());
        derivations.synonyms = synonyms.map(|value| Phrase(value.iter().cloned().map(Some).collect())).collect();
    }
    let (position, last_position) = (start.position, end.last_position);
    Some(Node { first: first as u8, len: terms.len() as u8, position, last_position, derivations })
}

fn complete_node(node: &mut Node, found: &[&NodeFacts], wants_words: bool) {
    let derivations = &mut node.derivations;
    derivations.word = found.iter().any(|facts| facts.word);
    derivations.one_typo = union(found.iter().map(|facts| &facts.one_typo), ONE_TYPO_MAX);
    derivations.two_typos = union(found.iter().map(|facts| &facts.two_typos), TWO_TYPOS_MAX);
    derivations.split = best_split(&derivations.text, found);
    if derivations.prefix.is_some() {
        derivations.prefix = Some(prefix_mode(&derivations.text, found));
        if wants_words && matches!(derivations.prefix, Some(PrefixMode::List(_))) {
            let lists = found.iter().flat_map(|facts| [&facts.prefixed, &facts.prefixed_exact]);
            derivations.prefixed = union(lists, PREFIX_WORDS_MAX);
        }
    }
}

/// How words that begin with `text` are looked up, by how many there are; mostly told without merging the lists.
pub(super) fn prefix_mode(text: &str, found: &[&NodeFacts]) -> PrefixMode {
    let lists = || found.iter().map(|facts| &facts.prefixed);
    let all: usize = lists().map(Vec::len).sum();
    if text.len() <= PREFIX_TABLE_BYTES {
        let many = found.iter().any(|facts| facts.many)
            || all >= PREFIX_TABLE_WORDS && union(lists(), PREFIX_TABLE_WORDS).len() >= PREFIX_TABLE_WORDS;
        return if many { PrefixMode::Table } else { PrefixMode::List(None) };
    }
    if all <= PREFIX_WORDS_MAX {
        return PrefixMode::List(None);
    }
    let words = union(lists(), PREFIX_WORDS_MAX + 1);
    PrefixMode::List((words.len() > PREFIX_WORDS_MAX).then(|| words[PREFIX_WORDS_MAX - 1].clone()))
}

pub(super) fn union<'a>(lists: impl Iterator<Item = &'a Vec<String>>, limit: usize) -> Vec<String> {
    let mut all: Vec<String> = lists.flatten().cloned().collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(limit);
    all
}

/// How often each split was counted in all.
pub(super) fn split_counts(found: &[&NodeFacts]) -> Vec<(u16, u64)> {
    let mut counts: Vec<(u16, u64)> = Vec::new();
    for (cut, count) in found.iter().flat_map(|facts| &facts.splits) {
        match counts.iter_mut().find(|(known, _)| known == cut) {
            Some((_, sum)) => *sum = sum.saturating_add(*count),
            None => counts.push((*cut, *count)),
        }
    }
    counts
}

pub(super) fn best_split(text: &str, found: &[&NodeFacts]) -> Option<(String, String)> {
    let (cut, _) = split_counts(found).into_iter().max_by_key(|(cut, count)| (*count, std::cmp::Reverse(*cut)))?;
    let (left, right) = text.split_at_checked(usize::from(cut))?;
    Some((left.to_owned(), right.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(ranks: &[Option<u8>]) -> QueryGraph {
        let node = |first: usize, len: usize| Node {
            first: first as u8,
            len: len as u8,
            position: first as u16,
            last_position: (first + len - 1) as u16,
            derivations: Derivations { text: format!("t{first}"), ..Derivations::default() },
        };
        let count = ranks.len();
        let nodes = (0..count).map(|at| node(at, 1)).chain((1..count).map(|at| node(at - 1, 2))).collect();
        QueryGraph {
            nodes,
            term_count: count as u8,
            negatives: Vec::new(),
            drop_ranks: ranks.to_vec(),
            is_shared: false,
        }
    }

    #[test]
    fn equal_frequencies_share_a_turn_and_the_rarest_stays() {
        let mut graph = graph(&[None, None, None, None]);
        graph.rank_by_frequency(&[5, 9, 9, 2]);
        assert_eq!(graph.drop_ranks, [Some(2), Some(1), Some(1), None]);
        graph.rank_by_frequency(&[0, 4, 4, 2]);
        assert_eq!(graph.drop_ranks, [Some(1), Some(2), Some(2), None]);
        graph.rank_by_frequency(&[3, 3, 3, 3]);
        assert_eq!(graph.drop_ranks, [None, None, None, None]);
    }

    #[test]
    fn a_joined_word_is_dropped_with_its_last_member() {
        let graph = graph(&[None, Some(2), Some(1)]);
        let rank =
            |first, len| graph.nodes.iter().find(|n| (n.first, n.len) == (first, len)).map(|n| graph.node_rank(n));
        assert_eq!(rank(0, 2), Some(None));
        assert_eq!(rank(1, 2), Some(Some(2)));
    }

    /// The first cut wins among equals, over the sums of all partitions.
    #[test]
    fn split_counts_are_summed() {
        let facts = |splits: &[(u16, u64)]| NodeFacts { splits: splits.to_vec(), ..NodeFacts::default() };
        let (a, b) = (facts(&[(2, 1), (3, 3)]), facts(&[(2, 3), (4, 1)]));
        assert_eq!(best_split("bedroom", &[&a, &b]), Some(("be".into(), "droom".into())));
        assert_eq!(best_split("bedroom", &[&a]), Some(("bed".into(), "room".into())));
        assert_eq!(best_split("bedroom", &[]), None);
    }
}
