//! Pinned documents: fixed positions in a result, whatever the query finds.

use std::iter::Peekable;
use std::rc::Rc;

use ahash::AHashSet;
use roaring::RoaringBitmap;
use serde_json::{Map, Value, json};

use super::answer::SearchError;
use super::ask::Ask;
use super::column_sorter::ColumnSorter;
use super::messages::{PinFacts, RankQuestion};
use super::part::SearchPartition;
use crate::ids::{DocId, LocalDocId};
use crate::rank::sort_source::SortSource;

/// A document that is to stand at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its external id.
    pub id: String,
    /// Its place, from 0.
    pub position: u32,
    /// Of those at one place the one with the smallest number comes first.
    pub priority: u64,
}

/// A pin whose document the index has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PinnedDoc {
    pub doc: DocId,
    pub position: u32,
    pub priority: u64,
    /// How far it is from the point that is sorted by, where hits may show that.
    pub geo_distance: Option<f64>,
}

impl PinnedDoc {
    /// What comes first of pins: places, then priorities.
    pub fn order(&self) -> (u32, u64) {
        (self.position, self.priority)
    }

    /// The details of its score.
    pub fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("pin".into(), json!({"order": 0, "position": self.position}));
        details
    }
}

/// The pins whose documents the index has, in the order of their places. Of several for one document the first holds.
pub(super) async fn find_pins(ask: &dyn Ask, pins: &[Pin]) -> Result<Vec<PinnedDoc>, SearchError> {
    if pins.is_empty() {
        return Ok(Vec::new());
    }
    let numbers = ask.find(pins.iter().map(|pin| pin.id.clone()).collect()).await?;
    let (mut found, mut known) = (Vec::with_capacity(pins.len()), AHashSet::new());
    for (pin, doc) in pins.iter().zip(numbers) {
        let Some(doc) = doc.filter(|doc| known.insert(*doc)) else { continue };
        found.push(PinnedDoc { doc, position: pin.position, priority: pin.priority, geo_distance: None });
    }
    found.sort_by_key(PinnedDoc::order);
    Ok(found)
}

/// What a partition tells of those of its documents that are pinned.
pub(super) fn facts_of(
    partition: &Rc<dyn SearchPartition>,
    question: &RankQuestion,
    pinned: &RoaringBitmap,
) -> Result<Vec<PinFacts>, String> {
    if pinned.is_empty() {
        return Ok(Vec::new());
    }
    let (number, count) = partition.place();
    let docs: Vec<u32> = pinned.iter().collect();
    let fact = |doc: &u32| {
        let doc = LocalDocId(*doc).global(number, count);
        PinFacts { doc, groups: Vec::new(), sorts: Vec::new() }
    };
    let mut facts: Vec<PinFacts> = docs.iter().map(fact).collect();
    let sorter = ColumnSorter::new(partition.clone(), question.distinct.clone());
    for by in &question.plan.rules.sorts {
        let values = sorter.sort_values(by, &docs)?;
        facts.iter_mut().zip(values).for_each(|(facts, value)| facts.sorts.push(value));
    }
    for (facts, groups) in facts.iter_mut().zip(sorter.group_values(&docs)?.into_iter().flatten()) {
        facts.groups = groups;
    }
    Ok(facts)
}

/// Puts pinned items among ranked ones. `pins` are in the order of their places: one whose place has come goes first, and
/// those that are left when nothing else is follow at once, so that a result has no gaps.
pub(super) fn placed<T>(
    ranked: impl IntoIterator<Item = T>,
    pins: impl IntoIterator<Item = (u32, T)>,
) -> impl Iterator<Item = T> {
    Placed { ranked: ranked.into_iter(), pins: pins.into_iter().peekable(), place: 0 }
}

/// How many ranked items and how many pinned ones stand on the first `end` places, where so many are ranked. `pins` are places in
/// order.
pub(super) fn first_places(pins: impl IntoIterator<Item = u32>, ranked: usize, end: usize) -> (usize, usize) {
    let (mut before, mut pinned) = (0_usize, 0);
    for position in pins {
        before = before.max((position as usize).saturating_sub(pinned)).min(ranked);
        if before + pinned >= end {
            break;
        }
        pinned += 1;
    }
    (ranked.min(end.saturating_sub(pinned)), pinned)
}

struct Placed<R, P: Iterator> {
    ranked: R,
    pins: Peekable<P>,
    place: u64,
}

impl<T, R: Iterator<Item = T>, P: Iterator<Item = (u32, T)>> Iterator for Placed<R, P> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let place = self.place;
        self.place += 1;
        let due = self.pins.next_if(|(position, _)| u64::from(*position) <= place);
        let item = due.map(|(_, item)| item).or_else(|| self.ranked.next());
        item.or_else(|| self.pins.next().map(|(_, item)| item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranked: &[u32], pins: &[(u32, u32)]) -> Vec<u32> {
        placed(ranked.iter().copied(), pins.iter().copied()).collect()
    }

    #[test]
    fn pins_stand_at_their_places() {
        assert_eq!(list(&[1, 2, 3, 4], &[(0, 12), (2, 9), (4, 5)]), [12, 1, 9, 2, 5, 3, 4]);
        assert_eq!(list(&[1, 2, 3], &[(1, 9), (1, 8), (1, 7)]), [1, 9, 8, 7, 2, 3]);
    }

    #[test]
    fn first_places_are_counted_without_a_list() {
        let positions = [&[][..], &[0], &[1, 1], &[2, 2], &[0, 3, 3], &[9], &[1, 50]];
        for (pins, ranked, end) in
            positions.into_iter().flat_map(|pins| (0..8).flat_map(move |n| (0..9).map(move |end| (pins, n, end))))
        {
            let all = placed(vec![true; ranked], pins.iter().map(|position| (*position, false)));
            let (found, pinned): (Vec<bool>, Vec<bool>) = all.take(end).partition(|is_ranked| *is_ranked);
            let counted = first_places(pins.iter().copied(), ranked, end);
            assert_eq!(counted, (found.len(), pinned.len()), "{pins:?} {ranked} {end}");
        }
    }

    #[test]
    fn a_short_result_has_no_gaps() {
        assert_eq!(list(&[1], &[(50, 9), (60, 8)]), [1, 9, 8]);
        assert_eq!(list(&[], &[(3, 9)]), [9]);
        assert!(list(&[], &[]).is_empty());
    }
}
