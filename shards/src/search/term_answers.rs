//! Answers to questions about a single term, kept while the epoch lasts.
//!
//! Most keystrokes of a search as you type ask for one short prefix, which many documents match and many people type. To find
//! them and to rank them anew each time would be the bulk of all work. Of terms that are part of a question the
//! [champion lists](crate::rank::champions) take care.

use std::cell::RefCell;
use std::sync::Arc;

use ahash::AHashMap;

use super::messages::RankQuestion;
use crate::rank::{RankPlan, RankedPart};

/// Longer answers are not kept.
const DOCS_MAX: usize = 200;
/// Documents in all answers of a partition; starting over when there are more is rare, and what is in use comes back at once.
const ALL_DOCS_MAX: usize = 100_000;

/// The answers of a partition at one epoch, by the term's text.
#[derive(Default)]
pub struct TermAnswers(RefCell<Kept>);

#[derive(Default)]
struct Kept {
    lists: AHashMap<String, Vec<(Arc<RankPlan>, RankedPart)>>,
    docs: usize,
}

/// The text of a question that is about one term, in all documents, and about nothing but the order.
fn term(question: &RankQuestion) -> Option<&str> {
    let plan = &*question.plan;
    let plain = question.filter.is_none()
        && question.distinct.is_none()
        && question.pinned.is_empty()
        && question.facets.is_none()
        && !plan.scores
        && plan.rules.sorts.is_empty();
    match plan.graph.nodes.as_slice() {
        [node] if plain && plan.graph.negatives.is_empty() && plan.wanted <= DOCS_MAX => Some(&node.derivations.text),
        _ => None,
    }
}

impl TermAnswers {
    /// The answer to an equal question.
    pub fn get(&self, question: &RankQuestion) -> Option<RankedPart> {
        let kept = self.0.borrow();
        let known = kept.lists.get(term(question)?)?;
        known.iter().find(|(plan, _)| **plan == *question.plan).map(|(_, part)| part.clone())
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.0.borrow_mut() = Kept::default();
    }

    /// Keeps an answer, if its question is of the kind.
    pub fn keep(&self, question: &RankQuestion, part: &RankedPart) {
        let Some(term) = term(question) else { return };
        let mut kept = self.0.borrow_mut();
        // The words that a term may stand for weigh as much as some documents.
        let cost = part.docs.len() + 10;
        if kept.docs + cost > ALL_DOCS_MAX {
            *kept = Kept::default();
        }
        kept.docs += cost;
        kept.lists.entry(term.to_owned()).or_default().push((question.plan.clone(), part.clone()));
    }
}
