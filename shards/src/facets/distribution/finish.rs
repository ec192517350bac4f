//! The order and limit of facet values, and their JSON.

use std::cmp::Reverse;

use ahash::AHashMap;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::count::{FacetCounts, FieldCounts};
use super::{EXACT_DOCUMENTS_MAX, FacetPlan};
use crate::facets::normalise::{number_of_bits, number_text};
use crate::settings::FacetOrder;

/// Facets as they are answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// For each facet, in alphabetical order.
    pub facets: Vec<FacetValues>,
}

/// One facet as it is answered.
#[derive(Clone, Debug, Default, PartialEq)]
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
    pub fn finish(&self, plan: &FacetPlan) -> Distribution {
        let facets = plan.facets.iter().zip(&self.facets).map(|(facet, counts)| FacetValues {
            name: facet.name.clone(),
            values: shown(counts, facet.order, plan.values_max, self.documents),
            stats: counts.range.map(|(least, greatest)| (number_of_bits(least), number_of_bits(greatest))),
        });
        Distribution { facets: facets.collect() }
    }
}

/// Keys in the order they were added; adding one again replaces its count in place.
#[derive(Default)]
struct Shown {
    values: Vec<(String, u64)>,
    places: AHashMap<String, usize>,
}

impl Shown {
    fn add(&mut self, key: String, count: u64) {
        match self.places.get(&key) {
            Some(place) => self.values[*place].1 = count,
            None => {
                self.places.insert(key.clone(), self.values.len());
                self.values.push((key, count));
            }
        }
    }
}

fn shown(counts: &FieldCounts, order: FacetOrder, values_max: u64, documents: u64) -> Vec<(String, u64)> {
    let mut numbers: Vec<(u64, u64)> = counts.numbers.iter().map(|(bits, count)| (*bits, *count)).collect();
    let mut strings: Vec<_> = counts.strings.iter().collect();
    if order == FacetOrder::Count {
        numbers.sort_by_key(|(bits, count)| Reverse((*count, *bits)));
        strings.sort_by(|left, right| (right.1.count, right.0).cmp(&(left.1.count, left.0)));
    }
    let mut numbers: Vec<(String, u64)> =
        numbers.into_iter().map(|(bits, count)| (number_text(number_of_bits(bits)), count)).collect();
    let by_document = order == FacetOrder::Alpha && documents <= EXACT_DOCUMENTS_MAX;
    if by_document {
        numbers.sort_by(|left, right| left.0.cmp(&right.0));
    }
    let strings = strings.into_iter().map(|(_, count)| (count.spelling.to_string(), count.count));
    let mut shown = Shown::default();
    if by_document {
        let limit = usize::try_from(values_max).unwrap_or(usize::MAX);
        numbers.into_iter().chain(strings).take(limit).for_each(|(key, count)| shown.add(key, count));
    } else {
        // The interface's limit stops a walk only when the size equals it directly after an addition: numbers that fill it
        // leave all strings in, and a limit of 0 is none.
        for walk in [&mut numbers.into_iter() as &mut dyn Iterator<Item = (String, u64)>, &mut strings.into_iter()] {
            for (key, count) in walk {
                shown.add(key, count);
                if shown.values.len() as u64 == values_max {
                    break;
                }
            }
        }
    }
    shown.values
}

impl Distribution {
    /// The member `facetDistribution`.
    pub fn distribution_json(&self) -> Vec<u8> {
        json(&Map(|| self.facets.iter().map(|facet| (&facet.name, Map(|| facet.values.iter().map(|(k, v)| (k, *v)))))))
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
    serde_json::to_vec(value).expect("string keys and finite numbers always serialize")
}
