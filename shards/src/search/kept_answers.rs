//! Caches a partition's answers to questions about words for one epoch.
//!
//! Most keystrokes of search-as-you-type ask for what many people type, and pages are requested again when somebody returns to
//! them. Finding and ranking the documents anew each time would be most of the work. Questions that share only a word are helped
//! by the [champion lists](crate::rank::champions).

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use super::messages::RankQuestion;
use crate::facets::Filter;
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::query::{Derivations, QueryGraph};
use crate::rank::by_term::ByTerm;
use crate::rank::{RankPlan, RankedPart};

/// Longer answers are not kept.
const DOCS_MAX: usize = 200;
/// What all answers of a partition may weigh: see [`List::weight`]. About 20 MB.
const WEIGHT_MAX: usize = 200_000;
/// Bytes of a document in an answer, about.
const DOC_BYTES: usize = 100;
/// The most that one may weigh of that.
const LIST_WEIGHT_MAX: usize = 5_000;
/// Answers to filters of more tests are not kept.
const FILTER_SIZE_MAX: usize = 32;
/// Nor those to questions of more terms and joined words: few people ask the same at such length.
const NODES_MAX: usize = 16;

/// The answers of a partition at one epoch.
#[derive(Default)]
pub struct KeptAnswers(RefCell<ByTerm<List>>);

/// The answer to one question.
struct List {
    plan: Arc<RankPlan>,
    filter: Option<Arc<Filter>>,
    facets: Option<Arc<FacetPlan>>,
    part: RankedPart,
    counts: Arc<FacetCounts>,
}

impl List {
    fn answers(&self, question: &RankQuestion) -> bool {
        self.filter == question.filter && self.facets == question.facets && self.plan == question.plan
    }

    /// In documents of the answer, some hundred bytes each: what scores need of a kind of documents weighs as much as three, a
    /// facet as one, and so do two values with their counts, and two words that the terms may stand for.
    fn weight(&self) -> usize {
        let facts = &self.part.facts;
        let filter = self.filter.as_ref().map_or(0, |filter| filter.size() + filter.bytes() / DOC_BYTES);
        let facets = self.facets.as_ref().map_or(0, |plan| plan.facets.len() + self.counts.values() / 2);
        let words = words(&self.plan.graph) / 2;
        let dropped =
            self.part.dropped.iter().map(|bucket| 1 + bucket.docs.serialized_size() / DOC_BYTES).sum::<usize>();
        self.part.docs.len() + 3 * facts.profiles.len() + facts.used.len() + facets + filter + words + dropped + 10
    }
}

/// Words that a graph holds.
fn words(graph: &QueryGraph) -> usize {
    let listed = |d: &Derivations| d.prefixed.len() + d.synonyms.len() + d.one_typo.len() + d.two_typos.len();
    graph.nodes.iter().map(|node| listed(&node.derivations) + 2).sum::<usize>() + graph.negatives.len()
}

/// The text of a question that is about nothing but the order and the values of the documents that match its words.
fn text(question: &RankQuestion) -> Option<Cow<'_, str>> {
    let plan = &*question.plan;
    let is_plain = question.filter.as_ref().is_none_or(|filter| filter.size() <= FILTER_SIZE_MAX)
        && question.distinct.is_none()
        && question.pinned.is_empty()
        && plan.rules.sorts.is_empty()
        && plan.wanted <= DOCS_MAX;
    match plan.graph.nodes.as_slice() {
        [] => None,
        _ if !is_plain => None,
        [node] if node.derivations.phrase.is_none() => Some(Cow::Borrowed(&node.derivations.text)),
        nodes if nodes.len() > NODES_MAX => None,
        nodes => {
            // Joined words follow from the terms.
            let terms = nodes.iter().filter(|node| node.len == 1).map(|node| &node.derivations);
            let words = terms.flat_map(|term| {
                let phrase = term.phrase.iter().flat_map(|phrase| phrase.0.iter().flatten());
                phrase.chain(std::iter::once(&term.text)).map(String::as_str)
            });
            Some(Cow::Owned(words.collect::<Vec<_>>().join(" ")))
        }
    }
}

impl KeptAnswers {
    /// The answer to an equal question.
    pub fn get(&self, question: &RankQuestion) -> Option<(RankedPart, Arc<FacetCounts>)> {
        let text = text(question)?;
        let kept = self.0.borrow();
        let list = kept.find(&text, |list| list.answers(question))?;
        Some((list.part.clone(), list.counts.clone()))
    }

    /// Bytes that they take, about.
    pub fn bytes(&self) -> usize {
        self.0.borrow().docs() * DOC_BYTES
    }

    /// Forgets a bounded part of them; false when there is nothing.
    pub fn forget_some(&self) -> bool {
        self.0.borrow_mut().forget_some()
    }

    /// Keeps an answer, if its question is of the kind.
    pub fn keep(&self, question: &RankQuestion, part: &RankedPart, counts: &Arc<FacetCounts>) {
        let Some(text) = text(question) else { return };
        let list = List {
            plan: question.plan.clone(),
            filter: question.filter.clone(),
            facets: question.facets.clone(),
            part: part.clone(),
            counts: counts.clone(),
        };
        let weight = list.weight();
        if weight <= LIST_WEIGHT_MAX {
            self.0.borrow_mut().keep(&text, (list, weight), WEIGHT_MAX, |other| other.answers(question));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facets::distribution::PlannedFacet;
    use crate::facets::parse_filter;
    use crate::ids::FieldId;
    use crate::query::{Node, Phrase};
    use crate::rank::by_term::OF_TERM_MAX;
    use crate::settings::FacetOrder;

    fn keep(lists: &KeptAnswers, question: &RankQuestion, part: &RankedPart) {
        lists.keep(question, part, &Arc::default());
    }

    fn node(first: u8, len: u8, text: &str) -> Node {
        let derivations = Derivations { text: text.to_owned(), ..Derivations::default() };
        Node { first, len, position: 0, last_position: 0, derivations }
    }

    fn question(wanted: usize, scores: bool, filter: Option<&str>) -> RankQuestion {
        question_of(vec![node(0, 1, "a")], wanted, scores, filter)
    }

    fn question_of(nodes: Vec<Node>, wanted: usize, scores: bool, filter: Option<&str>) -> RankQuestion {
        let filter = filter.map(|text| parse_filter(&text.into(), "invalid_search_filter").unwrap().unwrap());
        let graph = QueryGraph { nodes, term_count: 1, ..QueryGraph::default() };
        let plan = Arc::new(RankPlan { wanted, scores, graph, ..RankPlan::default() });
        RankQuestion::new(plan, filter.map(Arc::new), std::time::Duration::MAX)
    }

    fn facets(names: &[&str]) -> Arc<FacetPlan> {
        let facet = |name: &&str| PlannedFacet { field: FieldId(0), name: (*name).into(), order: FacetOrder::Alpha };
        Arc::new(FacetPlan { facets: names.iter().map(facet).collect(), values_max: 100, all_strings: false })
    }

    /// A list that was made for other documents or values, or without what scores need, is no answer.
    #[test]
    fn only_an_equal_question_is_answered() {
        let (lists, part) = (KeptAnswers::default(), |candidates| RankedPart { candidates, ..RankedPart::default() });
        let asked = [
            question(20, false, None),
            question(20, true, None),
            question(20, true, Some("a = 1")),
            question(20, true, Some("a = 2")),
            question(21, true, Some("a = 2")),
            RankQuestion { facets: Some(facets(&["a"])), ..question(20, false, None) },
            RankQuestion { facets: Some(facets(&["a", "b"])), ..question(20, false, None) },
        ];
        for (at, question) in asked.iter().enumerate() {
            assert!(lists.get(question).is_none(), "{at}");
            keep(&lists, question, &part(at as u64));
        }
        for (at, question) in asked.iter().enumerate() {
            assert_eq!(lists.get(question).map(|(part, _)| part), Some(part(at as u64)));
        }
        let in_order = question_of(vec![node(0, 1, "a"), node(0, 2, "ab"), node(1, 1, "b")], 20, false, None);
        let turned = question_of(vec![node(0, 1, "b"), node(0, 2, "ba"), node(1, 1, "a")], 20, false, None);
        // The same text, but one of the words may stand for another, too.
        let mut wider = in_order.clone();
        let mut plan = RankPlan::clone(&wider.plan);
        plan.graph.nodes[0].derivations.one_typo.push("o".into());
        wider.plan = Arc::new(plan);
        let mut without = in_order.clone();
        let mut plan = RankPlan::clone(&without.plan);
        plan.graph.negatives.push(Phrase(vec![Some("c".into())]));
        without.plan = Arc::new(plan);
        let asked = [in_order, turned, wider, without];
        for (at, question) in asked.iter().enumerate() {
            assert!(lists.get(question).is_none(), "{at}");
            keep(&lists, question, &part(at as u64));
        }
        for (at, question) in asked.iter().enumerate() {
            assert_eq!(lists.get(question).map(|(part, _)| part), Some(part(at as u64)));
        }
        let many = (0..NODES_MAX as u8 + 1).map(|at| node(at, 1, "a")).collect();
        let many = question_of(many, 20, false, None);
        keep(&lists, &many, &part(9));
        assert!(lists.get(&many).is_none());
        let long = format!("a IN [{}]", (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
        keep(&lists, &question(20, true, Some(&long)), &part(9));
        assert!(lists.get(&question(20, true, Some(&long))).is_none());
    }

    #[test]
    fn what_is_kept_of_a_term_is_bounded() {
        let lists = KeptAnswers::default();
        let asked = |at: usize| question(20, true, Some(&format!("a = {at}")));
        (0..2 * OF_TERM_MAX).for_each(|at| keep(&lists, &asked(at), &RankedPart::default()));
        let kept = (0..2 * OF_TERM_MAX).filter(|at| lists.get(&asked(*at)).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), (OF_TERM_MAX..2 * OF_TERM_MAX).collect::<Vec<_>>());
        let kept = lists.0.borrow();
        assert_eq!(kept.docs(), kept.all().map(List::weight).sum::<usize>());
    }
}
