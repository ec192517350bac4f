//! Sorts the documents of a large bucket into classes of equal costs, of which those behind the wanted documents are left out.
//!
//! A bucket of which very many documents are wanted is in order then: each class has its documents by number. Where a sort rule
//! follows on rules about words, groups of equal values are taken, from the best on, of the class in which the wanted documents
//! end: mostly by walking the field's values, which meets few documents. Only the documents of these groups are then evaluated
//! and ordered as in any bucket, so that nothing else is read of the others. Where one document of each distinct group is wanted,
//! groups are taken until their documents surely are of so many.

use std::collections::BTreeMap;
use std::rc::Rc;

use roaring::RoaringBitmap;

use super::{Ranker, SETTLED_DOCS};
use crate::facets::distinct::GroupValue;
use crate::rank::bucket::{BucketWork, Found, Taken};
use crate::rank::evaluate::Evaluator;
use crate::rank::groups::Groups;
use crate::rank::plan::{Costs, RankedDoc, SortValue};

/// Buckets of fewer documents are evaluated as they are.
const DOCS_MIN: usize = if cfg!(test) { 3 } else { 256 };
/// So is a bucket of fewer documents for each one wanted.
const DOCS_PER_WANTED: usize = 2;
/// Where nothing but costs orders a bucket, it is sorted into classes if so many of its documents are wanted.
const ORDERED_MIN: usize = if cfg!(test) { 2 } else { 256 };
/// Documents that are moved into the order in one step.
const ORDERED_DOCS: usize = if cfg!(test) { 2 } else { 1024 };
/// Documents of which the first costs are found in one step, where there is one path; fewer where there are more.
const CHUNK_DOCS: usize = if cfg!(test) { 3 } else { 2048 };
/// Selecting by distinct groups is given up once one in so many documents was selected without being of enough groups: then there
/// may be fewer than are wanted, and what was read so far is read again.
const DOCS_PER_SELECTED: usize = if cfg!(test) { 2 } else { 8 };
/// Selected documents of which the distinct groups are read in one step.
const READ_DOCS: usize = if cfg!(test) { 2 } else { 512 };

/// How documents are selected.
pub(super) struct Selection {
    /// Rules about words that come before any later sort rule.
    costs: usize,
    /// Sort rules up to the last that follows on these, the leading ones included.
    sorts: usize,
    /// Whether nothing but costs orders documents.
    is_ordered: bool,
}

/// A bucket of which documents are selected.
pub(super) struct SelectWork {
    docs: Vec<u32>,
    /// How many of them are in a class, or are not wanted.
    done: usize,
    evaluator: Evaluator,
    wanted: usize,
    costs: usize,
    sorts: usize,
    /// Documents by their costs.
    classes: BTreeMap<Costs, Vec<u32>>,
    /// The groups of the class in which the wanted documents end.
    groups: Option<Groups>,
    selected: Vec<u32>,
    /// Where one document of each distinct group is wanted, those of the selected documents.
    distinct: Option<DistinctMet>,
    /// Where nothing but costs orders documents, how many of the best class are in the order.
    ordered: Option<usize>,
}

/// The distinct groups of selected documents.
#[derive(Default)]
struct DistinctMet {
    /// Of how many documents they were read.
    read: usize,
    /// Those of which no document was taken before.
    groups: Taken,
    /// How many documents stay, at least.
    count: usize,
}

impl DistinctMet {
    fn add(&mut self, values: &[GroupValue], taken: &Taken) {
        // One of several groups may give way to another document of any of them.
        let is_sure = values.len() <= 1 && !taken.has(values);
        self.count += usize::from(is_sure && self.groups.admit(values));
    }
}

impl SelectWork {
    /// Nothing is selected yet. With `by_groups`, one document of each distinct group is wanted.
    pub fn new(selection: Selection, docs: Vec<u32>, evaluator: Evaluator, wanted: usize, by_groups: bool) -> Self {
        let Selection { costs, sorts, is_ordered } = selection;
        Self {
            docs,
            done: 0,
            evaluator,
            wanted,
            costs,
            sorts,
            classes: BTreeMap::new(),
            groups: None,
            selected: Vec::new(),
            distinct: by_groups.then(DistinctMet::default),
            ordered: is_ordered.then_some(0),
        }
    }

    /// Drops the classes behind the one in which the wanted documents end. Gives the first costs that are too high. Nothing where
    /// it is not known yet how many distinct groups the classes are of.
    fn cut(&mut self) -> Option<Costs> {
        if self.distinct.is_some() {
            return None;
        }
        let mut met = 0;
        let ends = |(_, docs): &(&Costs, &Vec<u32>)| {
            met += docs.len();
            met >= self.wanted
        };
        let mut bar = self.classes.iter().find(ends)?.0.clone();
        while let Some(last) = self.classes.last_entry()
            && *last.key() > bar
        {
            last.remove();
        }
        if self.ordered.is_none() {
            // Equal ones are still to be told apart; otherwise they come too late.
            *bar.last_mut()? += 1;
        }
        Some(bar)
    }

    /// How many of the selected documents are of use, as far as is known.
    fn selected_count(&self) -> usize {
        self.distinct.as_ref().map_or(self.selected.len(), |met| met.count)
    }

    /// Whether distinct groups of selected documents are to be read: those that were not yet may make up what is missing, and are
    /// not few beside what was read.
    fn is_to_read(&self) -> bool {
        self.distinct.as_ref().is_some_and(|met| {
            let missing = self.wanted.saturating_sub(met.count);
            missing > 0 && self.selected.len() - met.read >= missing.max(met.read / 2)
        })
    }

    /// Whether so much is selected that there may be too few distinct groups.
    fn is_given_up(&self) -> bool {
        self.distinct.is_some() && self.selected.len().saturating_mul(DOCS_PER_SELECTED) > self.docs.len()
    }

    /// Frees some of what was read; false when none is left.
    pub fn discard(&mut self, count: usize) -> bool {
        self.groups.as_mut().is_some_and(|groups| groups.discard(count))
            || self.distinct.as_mut().is_some_and(|met| met.groups.discard(count))
    }
}

impl Ranker {
    /// How the documents of a bucket of `count`, which use so many paths, are sorted into classes; `None` where they are evaluated
    /// as they are.
    pub(super) fn selection(&self, count: usize, wanted: usize, paths: usize) -> Option<Selection> {
        let plan = &self.plan;
        let rules = &plan.rules.rules[self.leading_sorts..];
        let costs = rules.iter().take_while(|rule| rule.is_graph()).count();
        let later = rules[costs..].iter().take_while(|rule| !rule.is_graph()).count();
        let is_plain = count >= DOCS_MIN && (!plan.scores || self.scores_alone(paths));
        // Of whole buckets all documents are wanted, unless one of each group is.
        let is_plain = is_plain && (!plan.whole_buckets || plan.one_per_group);
        let is_ordered = plan.rules.sorts.is_empty() && wanted >= ORDERED_MIN && !(plan.scores || plan.one_per_group);
        // With more wanted, selecting would be given up in any case.
        let docs_per_wanted = if plan.one_per_group { DOCS_PER_SELECTED } else { DOCS_PER_WANTED };
        let is_selected =
            later > 0 && wanted > 0 && count >= wanted.saturating_mul(docs_per_wanted) && plan.geo_rule().is_none();
        let fits = is_plain && (is_ordered || is_selected);
        fits.then_some(Selection { costs, sorts: self.leading_sorts + later, is_ordered })
    }

    /// Goes on with a selection, and with its bucket once it is done.
    pub(super) fn select_some(&mut self, mut work: SelectWork) {
        if work.done < work.docs.len() {
            self.classify_chunk(&mut work);
            self.select = Some(work);
        } else if work.ordered.is_some() {
            if self.order_some(&mut work) {
                self.select = Some(work);
            }
        } else if work.is_to_read() {
            self.read_selected(&mut work);
            self.select = Some(work);
        } else if work.selected_count() < work.wanted
            && !work.is_given_up()
            && (work.groups.is_some() || !work.classes.is_empty())
        {
            match self.take_group(&mut work) {
                Ok(()) => self.select = Some(work),
                Err(fault) => self.fault = Some(fault),
            }
        } else if work.discard(SETTLED_DOCS) {
            self.select = Some(work);
        } else {
            let (is_enough, count) = (work.selected_count() >= work.wanted, work.docs.len());
            let SelectWork { mut docs, evaluator, wanted, mut selected, .. } = work;
            if is_enough {
                selected.sort_unstable();
                docs = selected;
            }
            let cut = docs.len() < count;
            let mut bucket = BucketWork::new(docs, evaluator, wanted, self.plan.one_per_group, self.leading_sorts);
            bucket.cut = cut;
            self.bucket = Some(bucket);
        }
    }

    /// Moves some documents of classes into the order; false when there is none, or when enough are there.
    fn order_some(&mut self, work: &mut SelectWork) -> bool {
        let Some(from) = work.ordered else { return false };
        let Some(class) = work.classes.first_entry().filter(|_| self.out.len() < self.plan.wanted) else {
            self.cut |= self.out.len() >= self.plan.wanted;
            return false;
        };
        let (costs, docs) = (class.key(), class.get());
        let until = docs.len().min(from + ORDERED_DOCS);
        for doc in &docs[from..until] {
            let doc = RankedDoc { doc: self.global(*doc), costs: costs.clone(), sorts: Vec::new(), skipped: false };
            self.out.push(Found { doc, values: Vec::new() });
        }
        work.ordered = Some(until);
        if until == docs.len() {
            class.remove();
            work.ordered = Some(0);
        }
        true
    }

    /// Reads the distinct groups of some of the selected documents.
    fn read_selected(&mut self, work: &mut SelectWork) {
        let Some(met) = &mut work.distinct else { return };
        let until = work.selected.len().min(met.read + READ_DOCS);
        let mut docs = work.selected[met.read..until].to_vec();
        docs.sort_unstable();
        let Some(groups) = self.read_groups(&docs) else { return };
        met.read = until;
        groups.iter().for_each(|values| met.add(values, &self.taken));
    }

    fn classify_chunk(&self, work: &mut SelectWork) {
        let count = (CHUNK_DOCS / work.evaluator.path_count().max(1)).max(DOCS_MIN);
        let from = work.done;
        work.done = (from + count).min(work.docs.len());
        let bar = work.cut();
        let least = bar.as_ref().and_then(|_| work.evaluator.least());
        if least.zip(bar.as_ref()).is_some_and(|(least, bar)| *bar.as_slice() <= least[..work.costs]) {
            work.done = work.docs.len();
            return;
        }
        let found = work.evaluator.first_costs(&work.docs[from..work.done], work.costs, bar.as_deref());
        for (at, costs) in found {
            work.classes.entry(costs).or_default().push(work.docs[from + at]);
        }
    }

    /// Takes the best class whole, or goes on with its groups where it has more documents than are wanted.
    fn take_group(&self, work: &mut SelectWork) -> Result<(), String> {
        let Some(groups) = &mut work.groups else {
            let docs = work.classes.pop_first().map(|(_, docs)| docs).unwrap_or_default();
            if work.selected_count() + docs.len() <= work.wanted {
                work.selected.extend(docs);
            } else {
                let docs = RoaringBitmap::from_sorted_iter(docs).unwrap_or_default();
                let leading: &[SortValue] = self.group.as_ref().map_or(&[], |work| &work.group.sorts);
                work.groups = Some(Groups::under(leading.to_vec(), Rc::new(docs)));
            }
            return Ok(());
        };
        if groups.step(&self.plan, &*self.sorter, work.sorts)? {
            return Ok(());
        }
        match groups.pop() {
            Some(group) => work.selected.extend(&*group.docs),
            // All were taken.
            None => work.groups = None,
        }
        Ok(())
    }
}
