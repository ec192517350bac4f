//! Groups candidates by the sort rules that precede any graph rule: groups of equal values, best first, one after the other.
//!
//! Where many candidates meet a rule, its field's values are walked from the best one on, until as many groups were taken as are
//! needed. What makes a walk long (a field of many values of which the candidates have few) is not known before, so a walk has a
//! budget; after it the values of the candidates that were not met yet are read and sorted. The candidates of one value are
//! grouped by the next rule in the same way. Where the rule is about distances, growing rings take the place of values.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;

use roaring::RoaringBitmap;

use self::by_pieces::{ByPieces, Found};
use super::plan::{RankPlan, SortBy, SortValue};
use super::runs::Runs;
use super::sort_source::SortSource;
use crate::facets::columns::{Cut, RingStep, RingWalk, ValueWalk, take_common};

/// Documents whose values are read and sorted in one step.
pub const RUN_DOCS: usize = if cfg!(test) { 3 } else { 256 };
/// Of up to so many candidates the values are read in any case.
const READ_DOCS: u64 = if cfg!(test) { 4 } else { 1000 };
/// Entries that are walked over in one step, about.
const WALKED_ENTRIES: usize = if cfg!(test) { 3 } else { 64 };
/// And in the first one: where values have many documents, few make a page. Each further step goes over twice as many.
const FIRST_ENTRIES: usize = if cfg!(test) { 2 } else { 8 };
/// A walk goes over one entry for so many candidates at most: even when it was for nothing, little is lost.
const CANDIDATES_PER_ENTRY: u64 = 4;
/// What it may take before pieces of the field are asked for, which tell where the candidates are.
const UNGUIDED_ENTRIES: usize = if cfg!(test) { 4 } else { 512 };
/// What rings may take in any case: to look through empty ones, however many candidates there are.
const RINGS_ENTRIES: usize = if cfg!(test) { 300 } else { 1000 };
/// Pieces of a group that are put together in one step.
const MERGED_PIECES: usize = if cfg!(test) { 2 } else { 64 };

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

/// Groups, made in steps.
pub struct Groups {
    /// What is not grouped yet at all, and the values under rules that come before and by which all of it is equal.
    candidates: Option<(Vec<SortValue>, Rc<RoaringBitmap>)>,
    /// Where the values of the first rule are walked from, if not from the best on.
    from: Option<Cut>,
    /// Documents of groups that were not taken yet.
    left: u64,
    /// Documents that are equal under as many rules as are below them.
    levels: Vec<Level>,
    /// The next group.
    ready: Option<Group>,
}

/// Documents that are equal under some first rules and are grouped by further ones.
struct Level {
    /// Their values under the first ones.
    sorts: Vec<SortValue>,
    /// The documents that are in no group yet.
    docs: RoaringBitmap,
    way: Way,
}

enum Way {
    /// The values of the next rule are walked.
    Walk(Walk),
    /// The pieces of the next rule's field are gone through.
    Pieces(ByPieces),
    /// The next rule is about distances, and rings are looked through.
    Rings(Rings),
    /// The values of all rules that are left are read.
    Read(Read),
}

struct Walk {
    /// `None` at the end.
    walk: Option<ValueWalk>,
    /// What it may still take.
    budget: usize,
    /// And after that, where there are no pieces.
    rest: usize,
    /// What the next step takes.
    effort: usize,
    /// Values that were met, with the documents of which they are the best.
    met: VecDeque<(SortValue, RoaringBitmap)>,
}

struct Rings {
    walk: RingWalk,
    /// What it may still take.
    budget: usize,
    ring: Option<OpenRing>,
}

/// A ring of which the documents are read.
struct OpenRing {
    docs: RoaringBitmap,
    /// Farther documents may come after some of the next ring; or nearer ones, where the farthest come first.
    bound: SortValue,
    read: Read,
    /// Whether all within the bound were taken.
    is_over: bool,
}

struct Read {
    /// Documents below it are in the runs; `None` once all are.
    next: Option<u32>,
    runs: Runs<Piece>,
    /// A group that is being put together.
    group: Option<(Vec<SortValue>, RoaringBitmap)>,
}

impl Groups {
    /// Nothing is read yet.
    pub fn new(candidates: Rc<RoaringBitmap>) -> Self {
        Self::under(Vec::new(), candidates)
    }

    /// The same for documents that are equal under the first rules, with their values under these.
    pub fn under(sorts: Vec<SortValue>, docs: Rc<RoaringBitmap>) -> Self {
        Self { left: docs.len(), candidates: Some((sorts, docs)), from: None, levels: Vec::new(), ready: None }
    }

    /// The same for documents of which none has a value before the cut under the first rule.
    pub fn behind(cut: Cut, docs: Rc<RoaringBitmap>) -> Self {
        Self { from: Some(cut), ..Self::new(docs) }
    }

    /// Does a piece of the work for the next group; false when it is ready, or when there is none. Fails when a value cannot be
    /// read.
    pub fn step(&mut self, plan: &RankPlan, sorter: &dyn SortSource, leading_sorts: usize) -> Result<bool, String> {
        if self.ready.is_some() {
            return Ok(false);
        }
        if let Some((sorts, candidates)) = self.candidates.take() {
            self.add(sorts, candidates, (plan, sorter, leading_sorts));
            return Ok(self.ready.is_none());
        }
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        let sorts = &plan.rules.sorts[level.sorts.len()..leading_sorts];
        match &mut level.way {
            Way::Walk(walk) => {
                if let Some((value, docs)) = walk.met.pop_front() {
                    let sorts = level.sorts.iter().cloned().chain([value]).collect();
                    self.add(sorts, Rc::new(docs), (plan, sorter, leading_sorts));
                } else if level.docs.is_empty() {
                    self.levels.pop();
                } else if walk.budget > 0 {
                    walk.go_on(&mut level.docs, sorter)?;
                } else if let Some(pieces) = sorter.pieces(&sorts[0]) {
                    level.way = Way::Pieces(ByPieces::new(pieces));
                } else if !sorter.want_pieces(&sorts[0], level.docs.len()) {
                    level.way.go_on_without_pieces();
                }
            }
            Way::Pieces(by) => match by.step(&mut level.docs, sorts, sorter)? {
                Found::Nothing => {}
                Found::OfValue(value, docs) => {
                    let sorts = level.sorts.iter().cloned().chain([value]).collect();
                    self.add(sorts, Rc::new(docs), (plan, sorter, leading_sorts));
                }
                Found::OfValues(values, docs) => {
                    let sorts = level.sorts.iter().cloned().chain(values).collect();
                    self.ready = Some(Group { docs: Rc::new(docs), sorts });
                }
                Found::End => drop(self.levels.pop()),
            },
            Way::Rings(rings) if rings.ring.is_some() => {
                if let Some((values, docs)) = rings.go_on(sorts, sorter)? {
                    level.docs -= &docs;
                    let sorts = level.sorts.iter().cloned().chain(values).collect();
                    self.ready = Some(Group { docs: Rc::new(docs), sorts });
                }
            }
            Way::Rings(_) if level.docs.is_empty() => drop(self.levels.pop()),
            Way::Rings(rings) => {
                if rings.budget == 0 || !rings.widen(&level.docs, plan.wanted, sorter)? {
                    level.way = Way::Read(Read::default());
                }
            }
            Way::Read(read) => {
                if read.next.is_some() {
                    read.go_on(&level.docs, sorts, sorter)?;
                } else if let Some((mut values, docs)) = read.merge(sorts) {
                    values.splice(0..0, level.sorts.iter().cloned());
                    self.ready = Some(Group { docs: Rc::new(docs), sorts: values });
                } else if read.group.is_none() {
                    self.levels.pop();
                }
            }
        }
        Ok(self.ready.is_none() && !self.levels.is_empty())
    }

    /// Adds documents that are equal under the rules that `sorts` has values for.
    fn add(
        &mut self,
        sorts: Vec<SortValue>,
        docs: Rc<RoaringBitmap>,
        (plan, sorter, leading_sorts): (&RankPlan, &dyn SortSource, usize),
    ) {
        if docs.is_empty() {
            return;
        }
        let Some(by) = plan.rules.sorts[..leading_sorts].get(sorts.len()) else {
            self.ready = Some(Group { docs, sorts });
            return;
        };
        let budget = usize::try_from(docs.len() / CANDIDATES_PER_ENTRY).unwrap_or(usize::MAX);
        let way = if docs.len() <= READ_DOCS {
            Way::Read(Read::default())
        } else if let Some(pieces) = sorter.pieces(by) {
            Way::Pieces(ByPieces::new(pieces))
        } else if let Some(walk) = sorter.walk(by, self.from.as_ref().filter(|_| sorts.is_empty())) {
            let unguided = budget.min(UNGUIDED_ENTRIES);
            Way::Walk(Walk { rest: budget - unguided, ..Walk::new(walk, unguided) })
        } else if let Some(walk) = sorter.rings(by) {
            Way::Rings(Rings { walk, budget: budget.max(RINGS_ENTRIES), ring: None })
        } else {
            Way::Read(Read::default())
        };
        self.levels.push(Level { sorts, docs: Rc::unwrap_or_clone(docs), way });
    }

    /// Ends all reading. Groups are made of what was read; what no walk has met follows as if it had no values.
    pub fn end_reading(&mut self) {
        for level in &mut self.levels {
            match &mut level.way {
                Way::Walk(walk) if !level.docs.is_empty() => walk.end(&mut level.docs),
                Way::Walk(_) => {}
                Way::Pieces(by) => level.way = Way::Walk(by.end(&mut level.docs)),
                Way::Rings(_) => {
                    let mut walk = Walk::ended();
                    walk.end(&mut level.docs);
                    level.way = Way::Walk(walk);
                }
                Way::Read(read) => read.next = None,
            }
        }
    }

    /// The values of the next group, once it is ready.
    pub fn peek(&self) -> Option<&[SortValue]> {
        self.ready.as_ref().map(|group| group.sorts.as_slice())
    }

    /// Takes the next group out, once it is ready.
    pub fn pop(&mut self) -> Option<Group> {
        let group = self.ready.take()?;
        self.left -= group.docs.len();
        Some(group)
    }

    /// Frees some of what was read, about `count` values; false when none is left. Nothing but whether documents are left may be
    /// asked any more.
    pub fn discard(&mut self, count: usize) -> bool {
        let Some(level) = self.levels.last_mut() else { return false };
        let some_left = match &mut level.way {
            Way::Walk(walk) => walk.discard(count),
            Way::Pieces(by) => by.discard(count),
            Way::Rings(rings) => rings.ring.as_mut().is_some_and(|ring| ring.read.runs.discard(count)),
            Way::Read(read) => read.runs.discard(count),
        };
        if !some_left {
            self.levels.pop();
        }
        true
    }

    /// Whether no group is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Way {
    /// Walks on for as long as is worth it, then reads.
    fn go_on_without_pieces(&mut self) {
        match self {
            Self::Walk(walk) if walk.rest > 0 => walk.budget = std::mem::take(&mut walk.rest),
            _ => *self = Self::Read(Read::default()),
        }
    }
}

impl Walk {
    fn new(walk: ValueWalk, budget: usize) -> Self {
        Self { walk: Some(walk), budget, rest: 0, effort: FIRST_ENTRIES, met: VecDeque::new() }
    }

    /// One that meets nothing more.
    fn ended() -> Self {
        Self { walk: None, budget: 0, rest: 0, effort: 0, met: VecDeque::new() }
    }

    fn discard(&mut self, count: usize) -> bool {
        self.met.truncate(self.met.len().saturating_sub(count));
        !self.met.is_empty()
    }

    /// Walks over some values, which leave their documents out of `docs`. Behind the last value are those that have none.
    fn go_on(&mut self, docs: &mut RoaringBitmap, sorter: &dyn SortSource) -> Result<(), String> {
        let met = &mut self.met;
        let mut value = |value: SortValue, with: RoaringBitmap| {
            let group = take_common(docs, with);
            if !group.is_empty() {
                met.push_back((value, group));
            }
        };
        let spent = match &mut self.walk {
            Some(walk) => sorter.walk_on(walk, self.effort, &mut value)?,
            None => None,
        };
        match spent {
            Some(spent) => {
                self.budget = self.budget.saturating_sub(spent);
                self.effort = (self.effort * 2).min(WALKED_ENTRIES);
            }
            None => self.end(docs),
        }
        Ok(())
    }

    /// What was not met comes last.
    fn end(&mut self, docs: &mut RoaringBitmap) {
        self.walk = None;
        self.met.push_back((SortValue::Missing, std::mem::take(docs)));
    }
}

impl Rings {
    /// Looks for a ring with enough documents to be worth reading; false when there is none.
    fn widen(&mut self, docs: &RoaringBitmap, wanted: usize, sorter: &dyn SortSource) -> Result<bool, String> {
        match sorter.rings_on(&mut self.walk, WALKED_ENTRIES)? {
            RingStep::Spent(spent) => self.budget = self.budget.saturating_sub(spent),
            RingStep::Ring(ring) => {
                self.budget = self.budget.saturating_sub(1);
                let docs = ring.docs & docs;
                if docs.len() >= wanted.max(1) as u64 {
                    let distance = ring.bound_m;
                    let bound = SortValue::Point { distance, lat: 0.0, lng: 0.0, own: distance };
                    self.ring = Some(OpenRing { docs, bound, read: Read::default(), is_over: false });
                }
            }
            RingStep::End => return Ok(false),
        }
        Ok(true)
    }

    /// Goes on with the ring; gives the next group once it is ready.
    fn go_on(
        &mut self,
        sorts: &[SortBy],
        sorter: &dyn SortSource,
    ) -> Result<Option<(Vec<SortValue>, RoaringBitmap)>, String> {
        let Some(ring) = &mut self.ring else { return Ok(None) };
        if ring.is_over {
            if !ring.read.runs.discard(RUN_DOCS) {
                self.ring = None;
            }
        } else if ring.read.next.is_some() {
            ring.read.go_on(&ring.docs, sorts, sorter)?;
        } else if let Some((values, docs)) = ring.read.merge(sorts) {
            let descending = sorts.first().is_some_and(SortBy::is_descending);
            if values.first().is_some_and(|value| value.compare(&ring.bound, descending).is_le()) {
                return Ok(Some((values, docs)));
            }
            ring.is_over = true;
        } else {
            ring.is_over = ring.read.group.is_none();
        }
        Ok(None)
    }
}

impl Default for Read {
    fn default() -> Self {
        Self { next: Some(0), runs: Runs::default(), group: None }
    }
}

impl Read {
    /// Reads and sorts the values of some documents.
    fn go_on(&mut self, docs: &RoaringBitmap, sorts: &[SortBy], sorter: &dyn SortSource) -> Result<(), String> {
        let docs: Vec<u32> = docs.range(self.next.unwrap_or(u32::MAX)..).take(RUN_DOCS).collect();
        self.next = docs.last().filter(|_| docs.len() == RUN_DOCS).and_then(|last| last.checked_add(1));
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
        Ok(())
    }

    /// Puts some pieces of the next group together; gives it once it is whole.
    fn merge(&mut self, sorts: &[SortBy]) -> Option<(Vec<SortValue>, RoaringBitmap)> {
        for _ in 0..MERGED_PIECES {
            let next = self.runs.peek();
            match (&mut self.group, next) {
                (None, None) => return None,
                (None, Some(next)) => self.group = Some((next.sorts.clone(), RoaringBitmap::new())),
                (Some((values, docs)), Some(next)) if by_values(sorts, next.sorts.iter(), values.iter()).is_eq() => {
                    docs.extend(self.runs.pop(|a, b| by_pieces(sorts, a, b)).into_iter().flat_map(|piece| piece.docs));
                }
                (Some(_), _) => return self.group.take(),
            }
        }
        None
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

mod by_pieces;
#[cfg(test)]
mod tests;
