//! Champion lists: the best documents of a term, cached for one epoch.
//!
//! For most queries few documents contain all words, and the page is filled with those that contain only the first ones. Most of
//! the work would be to rank the documents of one term, which many searches share. Their order depends on the term alone, so it
//! is computed once, and a bucket takes from the list what belongs to it: documents that pass the filter and were in no bucket
//! before. (Manning, Raghavan, Schuetze: Introduction to Information Retrieval, 2008, section 7.1.3, where lists are built at
//! indexing time; here they are built when first needed.)

use std::cell::RefCell;
use std::rc::Rc;

use roaring::RoaringBitmap;

use super::by_term::ByTerm;
use super::classes::{ANY_CLASS, NodeDocs};
use super::paths::{Path, Step};
use super::plan::{Costs, RankPlan};
use super::rules::Rule;
use crate::query::{FieldTable, Node};

/// More documents than this in a list are of no use.
const DOCS_MAX: usize = if cfg!(test) { 6 } else { 256 };
/// Documents in a list for each one wanted: some of them are not in the bucket.
const DOCS_PER_WANTED: usize = if cfg!(test) { 2 } else { 4 };
/// Fewer documents than this are ranked as quickly as they are looked up.
const BUCKET_DOCS_MIN: u64 = if cfg!(test) { 2 } else { 24 };
/// A list of so many times the documents of a bucket is made when it is asked for again.
const READY_SHARE: u64 = 2;
/// Documents in all lists of a partition.
const ALL_DOCS_MAX: usize = 150_000;
/// The words that a term may stand for weigh as much as some documents.
const TERM_DOCS: usize = 16;

/// The lists of a partition at one epoch.
#[derive(Default)]
pub struct ChampionLists(RefCell<ByTerm<Entry>>);

/// A term that was met.
struct Entry {
    order: TermOrder,
    /// Made when it is worth it.
    list: Option<Rc<Champions>>,
}

/// The best documents of a term in one typo class.
pub struct Champions {
    /// In order, with their costs; that of [`Rule::Words`] depends on the query.
    pub docs: Vec<(u32, Costs)>,
    /// Whether there are no others.
    pub whole: bool,
}

/// A term that decides the order of a bucket: its place in the graph, and its typo class.
#[derive(Clone, Copy, Debug)]
pub struct DecidingTerm {
    /// The node.
    pub at: usize,
    /// From 0, or [`ANY_CLASS`].
    pub class: u8,
    /// Whether the query has others, which were dropped.
    pub among_others: bool,
}

/// All that the order of a term's documents follows from.
struct TermOrder {
    node: Node,
    class: u8,
    rules: Vec<Rule>,
    fields: FieldTable,
    by_attribute: bool,
    weights: u32,
}

impl TermOrder {
    fn new(plan: &RankPlan, term: DecidingTerm) -> Self {
        Self {
            node: plan.graph.nodes[term.at].clone(),
            class: term.class,
            rules: plan.rules.rules.clone(),
            fields: plan.fields.clone(),
            by_attribute: plan.by_attribute,
            weights: plan.weights,
        }
    }

    fn fits(&self, plan: &RankPlan, term: DecidingTerm) -> bool {
        self.class == term.class
            && self.weights == plan.weights
            && self.by_attribute == plan.by_attribute
            && self.rules == plan.rules.rules
            && self.fields == plan.fields
            && self.node == plan.graph.nodes[term.at]
    }
}

/// The term that alone decides the order of a bucket with these paths; `None` where there are several, or where more than
/// the order of a few documents is asked for.
pub fn deciding_term(plan: &RankPlan, paths: &[(Path, RoaringBitmap)]) -> Option<DecidingTerm> {
    let plain = !plan.scores
        && !plan.whole_buckets
        && !plan.one_per_group
        && plan.rules.sorts.is_empty()
        && plan.wanted.saturating_mul(2) <= DOCS_MAX;
    let [(path, _)] = paths else { return None };
    let mut steps = path.iter().filter_map(|step| match step {
        Step::Node { at, class } => Some((usize::from(*at), *class)),
        Step::Drop(_) => None,
    });
    let (at, class) = steps.next().filter(|_| plain && steps.next().is_none())?;
    Some(DecidingTerm { at, class, among_others: path.len() > 1 })
}

/// The documents of a term in its class: a document is in the lowest one only.
pub fn docs_of(term: DecidingTerm, node_docs: &NodeDocs) -> RoaringBitmap {
    let mut docs = RoaringBitmap::clone(node_docs.class(term.at, term.class));
    if term.class != ANY_CLASS {
        (0..term.class).for_each(|lower| docs -= &**node_docs.class(term.at, lower));
    }
    docs
}

/// How many documents the list should have that a search wants so many of.
pub fn list_len(wanted: usize) -> usize {
    wanted.saturating_mul(DOCS_PER_WANTED).clamp(DOCS_MAX / 4, DOCS_MAX)
}

impl Champions {
    /// The best `room` documents of `bucket`, all of which are the term's; `None` when the list does not tell.
    pub fn of_bucket(&self, bucket: &RoaringBitmap, room: usize) -> Option<Vec<&(u32, Costs)>> {
        let found: Vec<_> = self.docs.iter().filter(|(doc, _)| bucket.contains(*doc)).take(room).collect();
        (self.whole || found.len() == room || found.len() as u64 == bucket.len()).then_some(found)
    }
}

impl ChampionLists {
    /// The list of a term, if it was made.
    pub fn get(&self, plan: &RankPlan, term: DecidingTerm) -> Option<Rc<Champions>> {
        self.0.borrow().find(text(plan, term), |entry| entry.order.fits(plan, term))?.list.clone()
    }

    /// Whether a list that is not there should be made for a bucket with `bucket` of the term's `all` documents. It costs more
    /// than the bucket where these are many more, so then only when it is asked for again. Whole answers about one term are
    /// kept as they are, without a list.
    pub fn should_make(&self, plan: &RankPlan, term: DecidingTerm, bucket: u64, all: u64) -> bool {
        if bucket < BUCKET_DOCS_MIN || (!term.among_others && bucket == all) {
            return false;
        }
        let is_met = self.0.borrow().find(text(plan, term), |entry| entry.order.fits(plan, term)).is_some();
        if is_met || all <= bucket.saturating_mul(READY_SHARE) {
            return true;
        }
        self.put(plan, term, None);
        false
    }

    /// Bytes that they take, about.
    pub fn bytes(&self) -> usize {
        self.0.borrow().docs() * size_of::<(u32, Costs)>()
    }

    /// Forgets a bounded part of them; false when there is nothing.
    pub fn forget_some(&self) -> bool {
        self.0.borrow_mut().forget_some()
    }

    /// Keeps a list.
    pub fn keep(&self, plan: &RankPlan, term: DecidingTerm, list: Rc<Champions>) {
        self.put(plan, term, Some(list));
    }

    fn put(&self, plan: &RankPlan, term: DecidingTerm, list: Option<Rc<Champions>>) {
        let docs = list.as_ref().map_or(0, |list| list.docs.len()) + TERM_DOCS;
        let entry = Entry { order: TermOrder::new(plan, term), list };
        let is_older = |other: &Entry| other.order.fits(plan, term);
        self.0.borrow_mut().keep(text(plan, term), (entry, docs), ALL_DOCS_MAX, is_older);
    }
}

fn text(plan: &RankPlan, term: DecidingTerm) -> &str {
    &plan.graph.nodes[term.at].derivations.text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(docs: &[u32], whole: bool) -> Champions {
        Champions { docs: docs.iter().map(|doc| (*doc, Costs::new())).collect(), whole }
    }

    fn of_bucket(list: &Champions, bucket: &[u32], room: usize) -> Option<Vec<u32>> {
        let found = list.of_bucket(&bucket.iter().copied().collect(), room)?;
        Some(found.into_iter().map(|(doc, _)| *doc).collect())
    }

    /// What the list does not name may come anywhere behind it, so a page that needs more is not answered from it.
    #[test]
    fn a_list_tells_what_it_can() {
        let cut = list(&[7, 3, 9], false);
        assert_eq!(of_bucket(&cut, &[3, 7, 9, 11], 2), Some(vec![7, 3]));
        assert_eq!(of_bucket(&cut, &[3, 9, 11], 2), Some(vec![3, 9]));
        assert_eq!(of_bucket(&cut, &[3, 11], 2), None);
        assert_eq!(of_bucket(&cut, &[3, 9], 5), Some(vec![3, 9]));
        assert_eq!(of_bucket(&list(&[7, 3, 9], true), &[3], 2), Some(vec![3]));
    }
}
