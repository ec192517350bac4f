//! Groups candidates by the sort rules that precede any graph rule: groups of equal values, best first.

use std::cmp::Ordering;
use std::rc::Rc;

use roaring::RoaringBitmap;

use super::plan::{RankPlan, SortBy, SortValue};
use super::runs::Runs;
use super::sort_source::SortSource;

/// Documents whose values are read and sorted in one step.
pub const RUN_DOCS: usize = if cfg!(test) { 3 } else { 256 };

/// Documents that are equal under the leading sort rules.
pub struct Group {
    /// The documents.
    pub docs: Rc<RoaringBitmap>,
    /// Their values.
    pub sorts: Vec<SortValue>,
}

/// The documents of one value within one run.
struct Piece {
    sorts: Vec<SortValue>,
    docs: Vec<u32>,
}

/// Groups, made in steps: the values of all candidates are read and sorted run by run, then groups are merged when asked for.
pub struct Groups {
    candidates: Rc<RoaringBitmap>,
    /// Candidates below it are in the runs.
    next: Option<u32>,
    runs: Runs<Piece>,
}

impl Groups {
    /// Nothing is read yet.
    pub fn new(candidates: Rc<RoaringBitmap>) -> Self {
        Self { candidates, next: Some(0), runs: Runs::default() }
    }

    /// Reads some candidates; false when all were read. Fails when a value cannot be read.
    pub fn step(&mut self, plan: &RankPlan, sorter: &dyn SortSource, leading_sorts: usize) -> Result<bool, String> {
        let Some(from) = self.next else { return Ok(false) };
        if leading_sorts == 0 {
            // All are equal, and nothing has to be read.
            self.next = None;
            return Ok(false);
        }
        let docs: Vec<u32> = self.candidates.range(from..).take(RUN_DOCS).collect();
        self.next = docs.last().filter(|_| docs.len() == RUN_DOCS).and_then(|last| last.checked_add(1));
        let sorts = &plan.rules.sorts[..leading_sorts];
        let columns: Vec<Vec<SortValue>> =
            sorts.iter().map(|by| sorter.sort_values(by, &docs)).collect::<Result<_, _>>()?;
        let values = |at: usize| columns.iter().map(move |column| &column[at]);
        let mut order: Vec<usize> = (0..docs.len()).collect();
        order.sort_unstable_by(|a, b| by_values(sorts, values(*a), values(*b)).then(a.cmp(b)));
        let pieces = order.chunk_by(|a, b| by_values(sorts, values(*a), values(*b)).is_eq()).map(|piece| Piece {
            sorts: values(piece[0]).cloned().collect(),
            docs: piece.iter().map(|at| docs[*at]).collect(),
        });
        self.runs.push(pieces.collect(), |a, b| by_pieces(sorts, a, b));
        Ok(self.next.is_some())
    }

    /// The values of the next group, once everything was read.
    pub fn peek(&self) -> Option<&[SortValue]> {
        self.runs.peek().map(|piece| piece.sorts.as_slice())
    }

    /// Takes the next group out, once everything was read.
    pub fn pop(&mut self, plan: &RankPlan, leading_sorts: usize) -> Option<Group> {
        if leading_sorts == 0 {
            let docs = std::mem::take(&mut self.candidates);
            return Some(docs).filter(|docs| !docs.is_empty()).map(|docs| Group { docs, sorts: Vec::new() });
        }
        let sorts = &plan.rules.sorts[..leading_sorts];
        let first = self.runs.pop(|a, b| by_pieces(sorts, a, b))?;
        let mut docs: RoaringBitmap = first.docs.iter().copied().collect();
        while self.runs.peek().is_some_and(|next| by_values(sorts, next.sorts.iter(), first.sorts.iter()).is_eq()) {
            docs.extend(self.runs.pop(|a, b| by_pieces(sorts, a, b)).into_iter().flat_map(|piece| piece.docs));
        }
        Some(Group { docs: Rc::new(docs), sorts: first.sorts })
    }

    /// Frees the documents of up to `count` values that were read; false when none is left. Nothing but whether documents are left
    /// may be asked any more.
    pub fn discard(&mut self, count: usize) -> bool {
        self.runs.discard(count)
    }

    /// Whether no group is left.
    pub fn is_empty(&self, leading_sorts: usize) -> bool {
        if leading_sorts == 0 { self.candidates.is_empty() } else { self.next.is_none() && self.peek().is_none() }
    }
}

fn by_values<'v>(
    sorts: &[SortBy],
    a: impl Iterator<Item = &'v SortValue>,
    b: impl Iterator<Item = &'v SortValue>,
) -> Ordering {
    let mut orders = sorts.iter().zip(a.zip(b)).map(|(by, (a, b))| a.compare(b, by.is_descending()));
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Pieces of one value come in the order of their documents.
fn by_pieces(sorts: &[SortBy], a: &Piece, b: &Piece) -> Ordering {
    by_values(sorts, a.sorts.iter(), b.sorts.iter()).then_with(|| a.docs.cmp(&b.docs))
}
