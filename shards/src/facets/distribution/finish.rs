//! Ordering and limiting of facet values, and their JSON.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::{AHashMap, RandomState};
use hashbrown::HashTable;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use storage_engine::vector::Pace;

use super::counts::{FacetCounts, FieldCounts, StringCount, VALUES_PER_LOOK, ValueLists};
use super::{EXACT_DOCUMENTS_MAX, FacetPlan};
use crate::facets::normalise::{number_of_bits, number_text};
use crate::rank::runs::sorted;
use crate::runtime::pause_at;
use crate::search::part::free_in_steps;
use crate::settings::FacetOrder;

/// Facets as they are answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// For each facet, in alphabetical order.
    pub facets: Vec<FacetValues>,
}

/// One facet as it is answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FacetValues {
    /// The field's path.
    pub name: String,
    /// Keys with their counts, in order; no key twice.
    pub values: Vec<(String, u64)>,
    /// The least and greatest number, when there is any.
    pub stats: Option<(f64, f64)>,
}

impl FacetCounts {
    /// Orders and cuts the counts of all partitions together.
    pub async fn finish(&self, plan: &FacetPlan, pace: &dyn Pace) -> Distribution {
        let mut facets = Vec::with_capacity(plan.facets.len());
        for (facet, counts) in plan.facets.iter().zip(&self.facets) {
            facets.push(FacetValues {
                name: facet.name.clone(),
                values: shown(counts, facet.order, (plan.values_max, self.documents), pace).await,
                stats: counts.range.map(|(least, greatest)| (number_of_bits(least), number_of_bits(greatest))),
            });
        }
        Distribution { facets }
    }
}

/// Keys in the order they were added; adding one again replaces its count in place.
struct Shown {
    values: Vec<(String, u64)>,
    /// Where each key stands.
    places: HashTable<usize>,
    hasher: RandomState,
}

impl Shown {
    /// Has room for so many keys: both lists would be moved at once when they grow.
    fn with_room(count: usize) -> Self {
        let (values, places) = (Vec::with_capacity(count), HashTable::with_capacity(count));
        Self { values, places, hasher: RandomState::new() }
    }

    fn add(&mut self, key: String, count: u64) {
        let Self { values, places, hasher } = self;
        let hash = hasher.hash_one(&key);
        match places.find(hash, |place| values[*place].0 == key) {
            Some(place) => values[*place].1 = count,
            None => {
                places.insert_unique(hash, values.len(), |place| hasher.hash_one(&values[*place].0));
                values.push((key, count));
            }
        }
    }
}

async fn shown(
    counts: &FieldCounts,
    order: FacetOrder,
    (values_max, documents): (u64, u64),
    pace: &dyn Pace,
) -> Vec<(String, u64)> {
    let of_number = |(bits, count): (u64, u64)| (number_text(number_of_bits(bits)), count);
    let of_string = |counted: StringCount<'_>| (counted.spelling.to_owned(), counted.count);
    if order == FacetOrder::Count {
        // Partitions of fewer documents each may know more, which must not show.
        let lists = counts.lists.as_ref().filter(|_| documents <= EXACT_DOCUMENTS_MAX);
        let (numbers, strings) = by_count(counts, lists, pace).await;
        let room = walked_room(numbers.len(), strings.len(), values_max);
        let (mut numbers, mut strings) = (numbers.into_iter().map(of_number), strings.into_iter().map(of_string));
        return walked([&mut numbers, &mut strings], (values_max, room), pace).await;
    }
    if documents > EXACT_DOCUMENTS_MAX {
        let room = walked_room(counts.numbers.len(), counts.strings.len(), values_max);
        let mut numbers = counts.numbers.iter().copied().map(of_number);
        return walked([&mut numbers, &mut counts.strings.iter().map(of_string)], (values_max, room), pace).await;
    }
    let numbers = counts.numbers.iter().copied().map(of_number);
    let mut numbers = sorted(numbers, |left, right| left.0.cmp(&right.0), pace).await.into_iter();
    let limit = usize::try_from(values_max).unwrap_or(usize::MAX);
    let mut shown = Shown::with_room(limit.min(numbers.len() + counts.strings.len()));
    let strings = counts.strings.iter().map(of_string);
    for (at, (key, count)) in numbers.by_ref().chain(strings).take(limit).enumerate() {
        shown.add(key, count);
        pause_at(at + 1, VALUES_PER_LOOK, pace).await;
    }
    free_in_steps(numbers, pace).await;
    shown.values
}

/// How many keys [`walked`] takes at most.
fn walked_room(numbers: usize, strings: usize, values_max: u64) -> usize {
    match usize::try_from(values_max).unwrap_or(usize::MAX) {
        0 => numbers + strings,
        limit if limit <= numbers => limit + strings,
        limit => limit.min(numbers + strings),
    }
}

/// Takes numbers, then strings. The interface's limit stops a walk only when the size equals it directly after an addition:
/// numbers that fill it leave all strings in, and a limit of 0 is none.
async fn walked(
    walks: [&mut dyn Iterator<Item = (String, u64)>; 2],
    (values_max, room): (u64, usize),
    pace: &dyn Pace,
) -> Vec<(String, u64)> {
    let mut shown = Shown::with_room(room);
    for walk in walks {
        for (at, (key, count)) in walk.enumerate() {
            shown.add(key, count);
            if shown.values.len() as u64 == values_max {
                break;
            }
            pause_at(at, VALUES_PER_LOOK, pace).await;
        }
    }
    shown.values
}

/// The values by falling count.
async fn by_count<'c>(
    counts: &'c FieldCounts,
    lists: Option<&ValueLists>,
    pace: &dyn Pace,
) -> (Vec<(u64, u64)>, Vec<StringCount<'c>>) {
    let numbers = counts.numbers.iter().copied();
    let numbers = sorted(numbers, |left, right| (right.1, right.0).cmp(&(left.1, left.0)), pace).await;
    let falling =
        |left: &StringCount<'_>, right: &StringCount<'_>| (right.count, right.value).cmp(&(left.count, left.value));
    let strings = sorted(counts.strings.iter(), falling, pace).await;
    let Some(all) = &counts.all else { return (numbers, strings) };
    let rank = |bits: u64| all.numbers.binary_search(&bits).unwrap_or_default();
    let of_numbers = lists.into_iter().flat_map(|lists| &lists.numbers);
    let of_numbers = of_numbers.map(|(list, count)| (list.iter().map(|bits| rank(*bits)).collect(), *count));
    let numbers = (numbers, all.numbers.len());
    let numbers = found_by_count(numbers, |(bits, count)| (rank(*bits), *count), of_numbers, pace).await;
    let rank = |value: &str| all.strings.binary_search_by(|other| (**other).cmp(value)).unwrap_or_default();
    let of_strings = lists.into_iter().flat_map(|lists| &lists.strings);
    let of_strings = of_strings.map(|(list, count)| (list.iter().map(|value| rank(value)).collect(), *count));
    let strings = (strings, all.strings.len());
    let strings = found_by_count(strings, |counted| (rank(counted.value), counted.count), of_strings, pace).await;
    (numbers, strings)
}

/// Values that stand together under one node of the tree in which the interface keeps a field's values.
const NODE_VALUES: usize = 4;
/// Nodes that a level of that tree has at least.
const LEVEL_NODES_MIN: usize = 5;
/// Up to so many values that are added at once are put into the tree one by one, after which it gets one level more at most;
/// how many it has then follows from the tasks that made it. Here all of these are taken to have come at once.
const ADDED_VALUES_MAX: usize = 1000;

/// The levels of the tree of so many values, besides that of the values themselves.
fn levels(values: usize) -> u32 {
    if values <= ADDED_VALUES_MAX {
        return u32::from(values >= NODE_VALUES * LEVEL_NODES_MIN);
    }
    let mut levels = 0;
    while values.div_ceil(NODE_VALUES.pow(levels + 1)) >= LEVEL_NODES_MIN {
        levels += 1;
    }
    levels
}

/// Puts values in the order in which a walk down that tree finds them by falling count. Of equal counts single values come
/// before nodes, so a value that has the count of a node to itself comes after its equals; else the greater value is first.
/// `place` gives a value's place among all values of the field, and its count; `lists` the places of values that stand together
/// in documents, and how many these are: a node counts each document once. Gives way to others.
async fn found_by_count<T>(
    (values, all): (Vec<T>, usize),
    place: impl Fn(&T) -> (usize, u64),
    lists: impl Iterator<Item = (Vec<usize>, u64)>,
    pace: &dyn Pace,
) -> Vec<T> {
    let levels = levels(all);
    let mut heap: BinaryHeap<(u64, Reverse<u32>, usize)> = BinaryHeap::new();
    let mut nodes: Vec<AHashMap<usize, u64>> = vec![AHashMap::new(); levels as usize + 1];
    let mut by_place: AHashMap<usize, T> = AHashMap::with_capacity(values.len());
    for (number, value) in values.into_iter().enumerate() {
        let (at, count) = place(&value);
        for (level, nodes) in nodes.iter_mut().enumerate() {
            *nodes.entry(at / NODE_VALUES.pow(level as u32)).or_default() += count;
        }
        by_place.insert(at, value);
        pause_at(number + 1, VALUES_PER_LOOK, pace).await;
    }
    let mut met = 0;
    for (mut places, count) in lists {
        places.sort_unstable();
        for (level, nodes) in nodes.iter_mut().enumerate().skip(1) {
            let node = |place: usize| place / NODE_VALUES.pow(level as u32);
            for pair in places.windows(2).filter(|pair| node(pair[0]) == node(pair[1])) {
                nodes.entry(node(pair[0])).and_modify(|known| *known = known.saturating_sub(count));
            }
        }
        met += places.len();
        if met >= VALUES_PER_LOOK {
            met = 0;
            pause_at(0, VALUES_PER_LOOK, pace).await;
        }
    }
    heap.extend(nodes[levels as usize].iter().map(|(at, count)| (*count, Reverse(levels), *at)));
    let (mut found, mut popped) = (Vec::with_capacity(by_place.len()), 0);
    while let Some((_, Reverse(level), at)) = heap.pop() {
        popped += 1;
        pause_at(popped, VALUES_PER_LOOK, pace).await;
        let Some(below) = level.checked_sub(1) else {
            found.extend(by_place.remove(&at));
            continue;
        };
        let children = at * NODE_VALUES..(at + 1) * NODE_VALUES;
        let counts = children.filter_map(|child| Some((*nodes[below as usize].get(&child)?, Reverse(below), child)));
        heap.extend(counts);
    }
    found
}

impl Distribution {
    /// The member `facetDistribution`, written in one go: what is written in steps must be equal.
    #[cfg(test)]
    pub fn distribution_json(&self) -> Vec<u8> {
        json(&Map(|| self.facets.iter().map(|facet| (&facet.name, Map(|| facet.values.iter().map(|(k, v)| (k, *v)))))))
    }

    /// The member `facetDistribution`, in steps: of many values it would hold the core.
    pub async fn distribution_json_in_steps(&self, pace: &dyn Pace) -> Vec<u8> {
        let mut room = 2;
        for facet in &self.facets {
            room += facet.name.len() + 6;
            for (at, (key, count)) in facet.values.iter().enumerate() {
                // Quotes, a colon and a comma, unless the key holds what must be escaped.
                room += key.len() + 4 + count.checked_ilog10().unwrap_or_default() as usize + 1;
                pause_at(at + 1, VALUES_PER_LOOK, pace).await;
            }
        }
        let mut out = Vec::with_capacity(room);
        for (at, facet) in self.facets.iter().enumerate() {
            out.push(if at == 0 { b'{' } else { b',' });
            write_json(&mut out, &facet.name);
            out.extend_from_slice(b":{");
            for (at, (key, count)) in facet.values.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json(&mut out, key);
                out.push(b':');
                write_json(&mut out, count);
                pause_at(at + 1, VALUES_PER_LOOK, pace).await;
            }
            out.push(b'}');
        }
        if self.facets.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
        out
    }

    /// Frees it in steps.
    pub async fn free(self, pace: &dyn Pace) {
        free_in_steps(self.facets.into_iter().flat_map(|facet| facet.values), pace).await;
    }

    /// The member `facetStats`: only the facets with numbers.
    pub fn stats_json(&self) -> Vec<u8> {
        let stats = |(min, max): (f64, f64)| Map(move || [("min", min), ("max", max)].into_iter());
        json(&Map(|| self.facets.iter().filter_map(|facet| Some((&facet.name, stats(facet.stats?))))))
    }
}

/// A JSON object of the pairs that the function gives.
struct Map<F>(F);

impl<F, I, K, V> Serialize for Map<F>
where
    F: Fn() -> I,
    I: Iterator<Item = (K, V)>,
    K: Serialize,
    V: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in (self.0)() {
            map.serialize_entry(&key, &value)?;
        }
        map.end()
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    write_json(&mut out, value);
    out
}

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("string keys and finite numbers always serialize");
}
