//! Facets of several indexes: subtracts dropped hits and adds up the counts of all indexes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ahash::AHashMap;
use storage_engine::vector::Pace;

use super::MergeFacets;
use super::search::HITS_PER_LOOK;
use super::values::FieldValue;
use crate::facets::distribution::{Distribution, FacetValues};
use crate::facets::normalise::normalise;
use crate::runtime::pause_at;
use crate::settings::FacetOrder;

/// The facets of a federated search.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FederatedFacets {
    /// None were asked for, or no index of those asked for takes part.
    #[default]
    None,
    /// Those of each index, by its name.
    ByIndex(Vec<(String, Distribution)>),
    /// Those of all indexes together.
    Merged(Distribution),
}

/// The facets of one index.
pub(super) struct IndexFacets {
    /// The index's place in the request.
    pub(super) index: usize,
    /// The counts, in order and cut.
    pub(super) shown: Distribution,
}

/// The values of a hit that was dropped while merging.
pub(super) struct DroppedHit {
    /// The place of its index in the request.
    pub(super) index: usize,
    /// Values by field.
    pub(super) values: Vec<(String, Vec<FieldValue>)>,
}

/// The facets as they are answered.
pub(super) async fn finish(
    uids: &[&str],
    facets: Vec<IndexFacets>,
    dropped: &[DroppedHit],
    merge: Option<&MergeFacets>,
    pace: &dyn Pace,
) -> FederatedFacets {
    if facets.is_empty() {
        return FederatedFacets::None;
    }
    if let Some(merge) = merge {
        let mut merged = merged(&facets);
        take_away(&mut merged, dropped.iter(), pace).await;
        return FederatedFacets::Merged(ordered(merged, merge));
    }
    let mut by_index = Vec::with_capacity(facets.len());
    for mut facets in facets {
        take_away(&mut facets.shown, dropped.iter().filter(|hit| hit.index == facets.index), pace).await;
        by_index.push((uids[facets.index].to_owned(), facets.shown));
    }
    FederatedFacets::ByIndex(by_index)
}

/// Counts one less for each value of hits that are not shown; keys without a count disappear. A key that differs from the
/// value in case or spelling is preferred to the value itself, as the interface has it.
async fn take_away<'d>(
    distribution: &mut Distribution,
    dropped: impl Iterator<Item = &'d DroppedHit>,
    pace: &dyn Pace,
) {
    let mut less: BTreeMap<&str, AHashMap<Box<str>, u64>> = BTreeMap::new();
    for (at, (field, values)) in dropped.flat_map(|hit| &hit.values).enumerate() {
        let counts = less.entry(field).or_default();
        values.iter().for_each(|value| *counts.entry(value.facet_key()).or_default() += 1);
        pause_at(at, HITS_PER_LOOK, pace).await;
    }
    for facet in &mut distribution.facets {
        let Some(counts) = less.get_mut(facet.name.as_str()) else { continue };
        let (respelled, same): (Vec<_>, Vec<_>) =
            facet.values.iter_mut().partition(|(key, _)| *normalise(key) != **key);
        for (key, count) in respelled.into_iter().chain(same) {
            if let Some(less) = counts.remove(&*normalise(key)) {
                *count = count.saturating_sub(less);
            }
        }
        facet.values.retain(|(_, count)| *count > 0);
    }
}

/// The counts of all indexes by the text of the key.
fn merged(facets: &[IndexFacets]) -> Distribution {
    let mut merged = BTreeMap::<&str, FacetValues>::new();
    for facet in facets.iter().flat_map(|index| &index.shown.facets) {
        let together = merged
            .entry(&facet.name)
            .or_insert_with(|| FacetValues { name: facet.name.clone(), ..FacetValues::default() });
        add(together, facet);
    }
    Distribution { facets: merged.into_values().collect() }
}

pub(super) fn add(together: &mut FacetValues, facet: &FacetValues) {
    let mut places: AHashMap<String, usize> =
        together.values.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
    for (key, count) in &facet.values {
        match places.get(key) {
            Some(at) => together.values[*at].1 += count,
            None => {
                places.insert(key.clone(), together.values.len());
                together.values.push((key.clone(), *count));
            }
        }
    }
    together.stats = match (together.stats, facet.stats) {
        (Some(ours), Some(theirs)) => Some((ours.0.min(theirs.0), ours.1.max(theirs.1))),
        (ours, theirs) => ours.or(theirs),
    };
}

fn ordered(mut merged: Distribution, merge: &MergeFacets) -> Distribution {
    let values_max = merge.values_max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    for facet in &mut merged.facets {
        match merge.orders.get(&facet.name) {
            Some(FacetOrder::Count) => facet.values.sort_by_key(|(_, count)| Reverse(*count)),
            _ => facet.values.sort(),
        }
        facet.values.truncate(values_max);
    }
    merged
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use storage_engine::vector::Unpaced;

    use super::*;

    fn finish(
        uids: &[&str],
        facets: Vec<IndexFacets>,
        dropped: &[DroppedHit],
        merge: Option<MergeFacets>,
    ) -> FederatedFacets {
        block_on(super::finish(uids, facets, dropped, merge.as_ref(), &Unpaced))
    }

    fn of_index(index: usize, values: &[(&str, u64)], stats: Option<(f64, f64)>) -> IndexFacets {
        let values = values.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect();
        let shown = Distribution { facets: vec![FacetValues { name: "g".into(), values, stats }] };
        IndexFacets { index, shown }
    }

    fn keys(distribution: &Distribution) -> Vec<(&str, u64)> {
        distribution.facets[0].values.iter().map(|(key, count)| (key.as_str(), *count)).collect()
    }

    fn dropped(index: usize, values: &[&str]) -> DroppedHit {
        let values = values.iter().map(|text| FieldValue::Text((*text).into())).collect();
        DroppedHit { index, values: vec![("g".into(), values)] }
    }

    #[test]
    fn keys_are_added_by_their_text() {
        let of_indexes = || {
            vec![
                of_index(0, &[("b", 1), ("A", 3)], Some((1.0, 2.0))),
                of_index(1, &[("a", 3), ("b", 1), ("c", 9)], Some((0.0, 1.5))),
            ]
        };
        let merge = |order, values_max| {
            let orders = BTreeMap::from([("g".into(), order)]);
            match finish(&["x", "y"], of_indexes(), &[], Some(MergeFacets { values_max, orders })) {
                FederatedFacets::Merged(distribution) => distribution,
                other => panic!("{other:?}"),
            }
        };
        let alpha = merge(FacetOrder::Alpha, None);
        assert_eq!(keys(&alpha), [("A", 3), ("a", 3), ("b", 2), ("c", 9)]);
        assert_eq!(alpha.facets[0].stats, Some((0.0, 2.0)));
        let by_count = merge(FacetOrder::Count, Some(3));
        assert_eq!(keys(&by_count), [("c", 9), ("A", 3), ("a", 3)]);
    }

    #[test]
    fn dropped_hits_take_their_values_away() {
        let facets = || vec![of_index(0, &[("Action", 2), ("action", 1), ("crime", 2)], None)];
        let hits = [dropped(0, &["action", "crime"]), dropped(0, &["action"]), dropped(0, &["action"])];
        let FederatedFacets::ByIndex(shown) = finish(&["x"], facets(), &hits, None) else { panic!("not by index") };
        assert_eq!((shown[0].0.as_str(), keys(&shown[0].1)), ("x", vec![("action", 1), ("crime", 1)]));
        // An index of its own is not touched by hits of others, all together are.
        let hits = [dropped(1, &["crime"])];
        let FederatedFacets::ByIndex(shown) = finish(&["x"], facets(), &hits, None) else { panic!("not by index") };
        assert_eq!(keys(&shown[0].1)[2], ("crime", 2));
        let together = finish(&["x"], facets(), &hits, Some(MergeFacets::default()));
        let FederatedFacets::Merged(shown) = together else { panic!("not merged") };
        assert_eq!(keys(&shown)[2], ("crime", 1));
    }
}
