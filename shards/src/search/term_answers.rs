//! Answers to questions about a single term, kept while the epoch lasts.
//!
//! Most keystrokes of a search as you type ask for one short prefix, which many documents match and many people type. To find
//! them and to rank them anew each time would be the bulk of all work. Of terms that are part of a question the
//! [champion lists](crate::rank::champions) take care.

use std::cell::RefCell;
use std::sync::Arc;

use super::messages::RankQuestion;
use crate::facets::Filter;
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::rank::by_term::ByTerm;
use crate::rank::{RankPlan, RankedPart};

/// Longer answers are not kept.
const DOCS_MAX: usize = 200;
/// Documents in all answers of a partition.
const ALL_DOCS_MAX: usize = 100_000;
/// The most that one list may weigh of that.
const LIST_DOCS_MAX: usize = 5_000;
/// Lists of larger filters are not kept.
const FILTER_SIZE_MAX: usize = 32;

/// The answers of a partition at one epoch.
#[derive(Default)]
pub struct TermAnswers(RefCell<ByTerm<List>>);

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

    /// In documents: what scores need of a kind of documents weighs as much as some, and so do the words that a term may stand
    /// for; a facet weighs as much as one, and so do two values with their counts.
    fn cost(&self) -> usize {
        let facts = &self.part.facts;
        let filter = self.filter.as_ref().map_or(0, |filter| filter.size());
        let facets = self.facets.as_ref().map_or(0, |plan| plan.facets.len() + self.counts.values() / 2);
        self.part.docs.len() + 3 * facts.profiles.len() + facts.used.len() + facets + filter + 10
    }
}

/// The text of a question that is about one term, and about nothing but the order and the values of the documents that match.
fn term(question: &RankQuestion) -> Option<&str> {
    let plan = &*question.plan;
    let plain = question.filter.as_ref().is_none_or(|filter| filter.size() <= FILTER_SIZE_MAX)
        && question.distinct.is_none()
        && question.pinned.is_empty()
        && plan.rules.sorts.is_empty();
    match plan.graph.nodes.as_slice() {
        [node] if plain && plan.graph.negatives.is_empty() && plan.wanted <= DOCS_MAX => Some(&node.derivations.text),
        _ => None,
    }
}

impl TermAnswers {
    /// The answer to an equal question.
    pub fn get(&self, question: &RankQuestion) -> Option<(RankedPart, Arc<FacetCounts>)> {
        let kept = self.0.borrow();
        let list = kept.find(term(question)?, |list| list.answers(question))?;
        Some((list.part.clone(), list.counts.clone()))
    }

    /// Forgets a bounded part of them; false when there is nothing.
    pub fn forget_some(&self) -> bool {
        self.0.borrow_mut().forget_some()
    }

    /// Keeps an answer, if its question is of the kind.
    pub fn keep(&self, question: &RankQuestion, part: &RankedPart, counts: &Arc<FacetCounts>) {
        let Some(term) = term(question) else { return };
        let list = List {
            plan: question.plan.clone(),
            filter: question.filter.clone(),
            facets: question.facets.clone(),
            part: part.clone(),
            counts: counts.clone(),
        };
        let cost = list.cost();
        if cost <= LIST_DOCS_MAX {
            self.0.borrow_mut().keep(term, (list, cost), ALL_DOCS_MAX, |other| other.answers(question));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facets::distribution::PlannedFacet;
    use crate::facets::parse_filter;
    use crate::ids::FieldId;
    use crate::query::{Derivations, Node, QueryGraph};
    use crate::rank::by_term::OF_TERM_MAX;
    use crate::settings::FacetOrder;

    fn keep(lists: &TermAnswers, question: &RankQuestion, part: &RankedPart) {
        lists.keep(question, part, &Arc::default());
    }

    fn question(wanted: usize, scores: bool, filter: Option<&str>) -> RankQuestion {
        let filter = filter.map(|text| parse_filter(&text.into(), "invalid_search_filter").unwrap().unwrap());
        let node = Node { first: 0, len: 1, position: 0, last_position: 0, derivations: Derivations::default() };
        let graph = QueryGraph { nodes: vec![node], term_count: 1, ..QueryGraph::default() };
        RankQuestion {
            plan: Arc::new(RankPlan { wanted, scores, graph, ..RankPlan::default() }),
            filter: filter.map(Arc::new),
            pinned: Arc::default(),
            distinct: None,
            facets: None,
            show: None,
            time_left: std::time::Duration::MAX,
        }
    }

    fn facets(names: &[&str]) -> Arc<FacetPlan> {
        let facet = |name: &&str| PlannedFacet { field: FieldId(0), name: (*name).into(), order: FacetOrder::Alpha };
        Arc::new(FacetPlan { facets: names.iter().map(facet).collect(), values_max: 100 })
    }

    /// A list that was made for other documents or values, or without what scores need, is no answer.
    #[test]
    fn only_an_equal_question_is_answered() {
        let (lists, part) = (TermAnswers::default(), |candidates| RankedPart { candidates, ..RankedPart::default() });
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
        let long = format!("a IN [{}]", (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
        keep(&lists, &question(20, true, Some(&long)), &part(9));
        assert!(lists.get(&question(20, true, Some(&long))).is_none());
    }

    #[test]
    fn what_is_kept_of_a_term_is_bounded() {
        let lists = TermAnswers::default();
        let asked = |at: usize| question(20, true, Some(&format!("a = {at}")));
        (0..2 * OF_TERM_MAX).for_each(|at| keep(&lists, &asked(at), &RankedPart::default()));
        let kept = (0..2 * OF_TERM_MAX).filter(|at| lists.get(&asked(*at)).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), (OF_TERM_MAX..2 * OF_TERM_MAX).collect::<Vec<_>>());
        let kept = lists.0.borrow();
        assert_eq!(kept.docs(), kept.all().map(List::cost).sum::<usize>());
    }
}
