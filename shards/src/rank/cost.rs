//! Cost functions of the ranking rules, computed from the occurrences of words in one document.
//!
//! An [`Occurrence`] is packed so that sorting a list sorts it by document, field and position.

use std::cmp::Ordering;

use crate::ids::FieldId;
use crate::query::FieldTable;

/// A word at a place: index of the document within its chunk (24 bits), field (16), position (16), flags (8), from the high
/// bits down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence(u64);

/// It lies in a searched field, and a derived word may be found there.
pub const SEARCHED: u8 = 1;
/// It counts as a neighbour in the other order too.
pub const REVERSIBLE: u8 = 2;
/// It is the word as typed.
pub const TYPED: u8 = 4;
/// It has no neighbour to be near to: a hole of a phrase lies between.
pub const ALONE: u8 = 8;

/// It counts even where the term was met as typed: of a prefix's table or a synonym, which stand for the typed word.
pub const STANDING: u8 = 16;

/// What two neighbouring terms cost that are not near.
pub const FAR: u32 = 3;

impl Occurrence {
    /// Packs its parts; `index` must be below 2^24.
    pub fn new(index: usize, field: FieldId, position: u16, flags: u8) -> Self {
        debug_assert!(index < 1 << 24);
        Self((index as u64) << 40 | u64::from(field.0) << 24 | u64::from(position) << 8 | u64::from(flags))
    }

    /// The same in the document at another index; see [`Self::new`].
    pub fn moved_to(self, index: usize) -> Self {
        Self((index as u64) << 40 | self.0 & ((1 << 40) - 1))
    }

    /// The document, as an index into the chunk.
    pub fn index(self) -> usize {
        (self.0 >> 40) as usize
    }

    /// The field.
    pub fn field(self) -> FieldId {
        FieldId((self.0 >> 24) as u16)
    }

    /// The position in the field.
    pub fn position(self) -> u16 {
        (self.0 >> 8) as u16
    }

    /// Whether it has a flag.
    pub fn has(self, flag: u8) -> bool {
        self.0 as u8 & flag != 0
    }

    /// Document, field and position as one number.
    fn place(self) -> u64 {
        self.0 >> 8
    }
}

/// A position as the ranking sees it: exact below 16, then coarser.
pub fn rounded(position: u16) -> u32 {
    match u32::from(position) {
        exact @ 0..16 => exact,
        16..24 => 24,
        p => p.next_power_of_two(),
    }
}

/// What a word costs that is `distance` away from its place in the query.
fn distance_cost(distance: u32) -> u32 {
    match distance {
        0 => 0,
        1 => 1,
        2..=4 => 2,
        5..=7 => 3,
        8..=11 => 4,
        12..=16 => 5,
        17..=24 => 6,
        25..=64 => 7,
        65..=256 => 8,
        257..=1024 => 9,
        _ => 10,
    }
}

/// What a node of `terms` terms costs at `query_position` for one of its occurrences.
fn place_cost(occurrence: Occurrence, query_position: u16, terms: u8) -> u32 {
    let distance = rounded(occurrence.position()).abs_diff(u32::from(query_position));
    (0..u32::from(terms)).map(|more| distance_cost(distance + more)).sum()
}

/// The word-position cost of a node of `terms` terms at `query_position`: of its best occurrence.
pub fn position_cost(heads: &[Occurrence], query_position: u16, terms: u8) -> u32 {
    heads.iter().map(|head| place_cost(*head, query_position, terms)).min().unwrap_or(u32::from(terms) * 10)
}

/// The attribute-rank and word-position costs of a node of `terms` terms in each of `docs` documents, from occurrences in any
/// order.
pub fn place_costs(
    heads: &[Occurrence],
    docs: usize,
    (query_position, terms): (u16, u8),
    fields: &FieldTable,
    weights: u32,
) -> Vec<(u32, u32)> {
    let worst = (weights.saturating_sub(1) * u32::from(terms), u32::from(terms) * 10);
    let mut costs = vec![worst; docs];
    for head in heads {
        let (rank, place) = &mut costs[head.index()];
        *place = (*place).min(place_cost(*head, query_position, terms));
        if head.has(SEARCHED) && weights > 1 {
            *rank = (*rank).min(u32::from(fields.weight(head.field())) * u32::from(terms));
        }
    }
    costs
}

/// The attribute-rank cost of a node of `terms` terms: of its weightiest searched occurrence.
pub fn attribute_cost(heads: &[Occurrence], fields: &FieldTable, terms: u8, weights: u32) -> u32 {
    if weights <= 1 {
        return 0;
    }
    let searched = heads.iter().filter(|occurrence| occurrence.has(SEARCHED));
    let best = searched.map(|occurrence| u32::from(fields.weight(occurrence.field()))).min();
    best.unwrap_or(weights - 1) * u32::from(terms)
}

/// The proximity cost between two neighbouring nodes: 0 for the nearest, [`FAR`] when they are not near.
pub fn proximity_cost(tails: &[Occurrence], heads: &[Occurrence], by_attribute: bool) -> u32 {
    let mut best = FAR;
    let mut from = 0;
    for tail in tails.iter().filter(|tail| !tail.has(ALONE)) {
        let field = tail.place() & !0xffff;
        let (least, most) = if by_attribute {
            (field, field | 0xffff)
        } else {
            (tail.place().saturating_sub(2).max(field), (tail.place() + 3).min(field | 0xffff))
        };
        while heads.get(from).is_some_and(|head| head.place() < least) {
            from += 1;
        }
        for head in heads[from..].iter().take_while(|head| head.place() <= most).filter(|head| !head.has(ALONE)) {
            let reversible = head.has(REVERSIBLE) && tail.has(REVERSIBLE);
            let cost = match head.place().cmp(&tail.place()) {
                _ if by_attribute => 0,
                Ordering::Greater => (head.place() - tail.place()) as u32 - 1,
                Ordering::Less if reversible => (tail.place() - head.place()) as u32,
                _ => FAR,
            };
            best = best.min(cost);
        }
        if best == 0 {
            return 0;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(positions: &[u16]) -> Vec<Occurrence> {
        positions.iter().map(|p| Occurrence::new(0, FieldId(3), *p, SEARCHED | REVERSIBLE)).collect()
    }

    #[test]
    fn nearness_costs_as_documented() {
        for (left, right, want) in [
            (&[0][..], &[1][..], 0),
            (&[0], &[2], 1),
            (&[0], &[3], 2),
            (&[0], &[4], 3),
            (&[1], &[0], 1),
            (&[2], &[0], 2),
            (&[3], &[0], 3),
            (&[5], &[5], 3),
            (&[0, 20, 40], &[10, 38, 43], 2),
            (&[], &[1], 3),
        ] {
            assert_eq!(proximity_cost(&at(left), &at(right), false), want, "{left:?} {right:?}");
        }
        assert_eq!(proximity_cost(&at(&[900]), &at(&[2]), true), 0);
    }

    #[test]
    fn fields_and_documents_are_never_near() {
        let (a, b) =
            (Occurrence::new(0, FieldId(1), 0xffff, REVERSIBLE), Occurrence::new(0, FieldId(2), 0, REVERSIBLE));
        assert_eq!(proximity_cost(&[a], &[b], false), FAR);
        assert_eq!(proximity_cost(&[b], &[a], false), FAR);
        assert_eq!(proximity_cost(&[a], &[b], true), FAR);
    }

    /// Words that came from a phrase, a synonym or a split have no reversed pair.
    #[test]
    fn only_reversible_words_count_in_the_other_order() {
        let (right, left) = (Occurrence::new(0, FieldId(1), 0, 0), Occurrence::new(0, FieldId(1), 1, REVERSIBLE));
        assert_eq!(proximity_cost(&[left], &[right], false), FAR);
        assert_eq!(proximity_cost(&[right], &[left], false), 0);
    }

    #[test]
    fn positions_are_rounded_before_they_are_compared() {
        assert_eq!([0, 15, 16, 23, 24, 32, 33, 64, 65_535].map(rounded), [0, 15, 24, 24, 32, 32, 64, 64, 65_536]);
        assert_eq!(position_cost(&at(&[1]), 0, 1), 1);
        assert_eq!(position_cost(&at(&[8]), 1, 1), 3);
        assert_eq!(position_cost(&at(&[0]), 0, 2), 1);
        assert_eq!(position_cost(&at(&[16, 3]), 3, 1), 0);
        assert_eq!(position_cost(&at(&[5000]), 0, 1), 10);
    }
}
