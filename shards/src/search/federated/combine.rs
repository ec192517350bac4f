//! Merges the results of several instances into one list.
//!
//! Every instance ranks, merges and applies distinct to its own documents ([`super::FederatedRole::Part`]). Here the lists are
//! merged by the same comparison, distinct values found by several instances are deduplicated again, and counts are added.

use std::collections::BTreeMap;
use std::sync::Arc;

use ahash::AHashSet;
use serde::{Deserialize, Serialize};
use storage_engine::vector::Pace;

use super::facets::{DroppedHit, IndexFacets, add, finish};
use super::merge::{Entry, Origin, ScoreValue, merge};
use super::search::HITS_PER_LOOK;
use super::together::HitRank;
use super::values::FieldValue;
use super::{FederatedAnswer, FederatedFacets, MergeFacets};
use crate::facets::distribution::{Distribution, FacetValues};
use crate::ids::DocId;
use crate::query::QueryWords;
use crate::rank::score_facts::ScoreFacts;
use crate::runtime::pause_at;
use crate::search::hybrid::GOOD_ENOUGH;
use crate::search::json_array::json_array_in_steps;
use crate::search::part::free_in_steps;
use crate::search::pins::{first_places, placed};
use crate::search::request::PageRequest;
use crate::settings::FacetOrder;

/// What one instance has found. Written by serde it lacks the [`PartHit::json`] of its hits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its first hits in order, up to the end of the page.
    pub hits: Vec<PartHit>,
    /// How many documents it found.
    pub total: u64,
    /// Its facets by index.
    pub facets: Vec<(String, Distribution)>,
    /// Whether a search stopped at its time budget.
    pub degraded: bool,
    /// The vectors that were searched with, by query, where vectors are asked for.
    pub query_vectors: Vec<(u64, Vec<f32>)>,
    /// What the instance knows of the words of each query, in the order of the request; empty for one that does not say.
    #[serde(default)]
    pub words: Vec<Option<QueryWords>>,
    /// What the scores of each query follow from, in the same order.
    #[serde(default)]
    pub scores: Vec<ScoreFacts>,
}

impl Part {
    /// The same for a request whose queries were in another order: `places` gives for each query its place there.
    #[must_use]
    pub fn in_order(mut self, places: &[usize]) -> Self {
        let (mut words, mut scores) = (vec![None; places.len()], vec![ScoreFacts::default(); places.len()]);
        for (place, (known, facts)) in places.iter().zip(self.words.into_iter().zip(self.scores)) {
            (words[*place], scores[*place]) = (known, facts);
        }
        for rank in self.hits.iter_mut().filter_map(|hit| hit.rank.as_mut()) {
            rank.query = places.get(rank.query).copied().unwrap_or(usize::MAX);
        }
        Self { words, scores, ..self }
    }

    /// Frees all of it in steps.
    pub async fn free(self, pace: &dyn Pace) {
        free_in_steps(self.hits, pace).await;
        for facts in self.scores {
            facts.free(pace).await;
        }
    }
}

/// A hit with what it is merged by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartHit {
    /// As it is shown.
    #[serde(skip)]
    pub json: Vec<u8>,
    /// The index it is of.
    pub index_uid: Arc<str>,
    /// The number that its query shows.
    pub position: u64,
    /// Its score times the weight of the query.
    pub score: f64,
    /// The steps of its order.
    pub values: Vec<ScoreValue>,
    /// Its place, when it has one of its own.
    pub pinned: Option<u32>,
    /// Its values of the distinct field, then of facets; empty when nothing is to be distinct.
    pub fields: Vec<(String, Vec<FieldValue>)>,
    /// By what it was ranked, where it can be scored anew.
    #[serde(default)]
    pub rank: Option<HitRank>,
    /// Its cost by meaning: what has the same similarity may yet have another distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearness: Option<u32>,
}

/// How parts become one list.
#[derive(Clone, Debug, Default)]
pub struct Combination {
    /// Which part of the list is asked for.
    pub page: PageRequest,
    /// Whether hits that share a value of their distinct field are dropped but for the first.
    pub is_distinct: bool,
    /// Counts the facets of all indexes together.
    pub merge_facets: Option<MergeFacets>,
    /// How the values of an index's facets are shown; the usual way for an index that is missing.
    pub limits: BTreeMap<String, FacetLimits>,
    /// Whether hits that were found by meaning are counted.
    pub counts_semantic: bool,
}

/// How the values of the facets of an index are shown.
#[derive(Clone, Debug)]
pub struct FacetLimits {
    /// Orders other than the alphabetical one.
    pub orders: BTreeMap<String, FacetOrder>,
    /// The order of facets that are not named.
    pub usual: FacetOrder,
    /// Values shown of each facet.
    pub values_max: u64,
}

impl Default for FacetLimits {
    fn default() -> Self {
        Self { orders: BTreeMap::new(), usual: FacetOrder::Alpha, values_max: u64::MAX }
    }
}

/// The answer to a search that several instances took part in.
pub async fn combine(mut parts: Vec<Part>, combination: &Combination, pace: &dyn Pace) -> FederatedAnswer {
    let total: u64 = parts.iter().map(|part| part.total).fold(0, u64::saturating_add);
    let degraded = parts.iter().any(|part| part.degraded);
    let facets = added(&mut parts);
    let mut pins: Vec<(u32, u64, PartHit)> = Vec::new();
    let mut lists: Vec<Vec<PartHit>> = Vec::new();
    let mut query_vectors: BTreeMap<u64, Vec<f32>> = BTreeMap::new();
    for mut part in parts {
        query_vectors.extend(std::mem::take(&mut part.query_vectors));
        // Hits of different queries may have changed places when they were scored anew.
        let mut of_queries: BTreeMap<Option<usize>, Vec<PartHit>> = BTreeMap::new();
        for (at, hit) in std::mem::take(&mut part.hits).into_iter().enumerate() {
            match hit.pinned {
                Some(place) => pins.push((place, hit.position, hit)),
                None => of_queries.entry(hit.rank.as_ref().map(|rank| rank.query)).or_default().push(hit),
            }
            pause_at(at, HITS_PER_LOOK, pace).await;
        }
        lists.extend(of_queries.into_values());
        part.free(pace).await;
    }
    pins.sort_by_key(|(place, position, _)| (*place, *position));
    let (kept, dropped) = merged(lists, combination, &facets, pace).await;
    let mut list = placed(kept, pins.into_iter().map(|(place, _, hit)| (place, hit)));
    let (mut page, mut semantic): (Vec<Vec<u8>>, u64) = (Vec::new(), 0);
    for (at, hit) in list.by_ref().take(combination.end()).enumerate() {
        if at >= combination.page.first() {
            semantic += u64::from(hit.is_semantic());
            page.push(hit.json);
        }
        pause_at(at, HITS_PER_LOOK, pace).await;
    }
    free_in_steps(list, pace).await;
    let facets = shown(facets, &dropped, combination, pace).await;
    let answer = FederatedAnswer {
        hits: json_array_in_steps(&page, pace).await,
        hit_count: page.len(),
        total: total.saturating_sub(dropped.len() as u64),
        facets,
        degraded,
        semantic_hits: combination.counts_semantic.then_some(semantic),
        query_vectors: query_vectors.into_iter().collect(),
        ..FederatedAnswer::default()
    };
    free_in_steps(page, pace).await;
    free_in_steps(dropped, pace).await;
    answer
}

impl Combination {
    /// How many hits the list has up to the end of the page, at most.
    fn end(&self) -> usize {
        self.page.first().saturating_add(self.page.count())
    }
}

impl PartHit {
    /// Whether it was found by meaning.
    fn is_semantic(&self) -> bool {
        self.values.iter().any(|value| matches!(value, ScoreValue::Similarity(_)))
    }
}

/// Whether words alone answer a search by words and meaning: by words a whole page was found, up to `page`'s end, and each hit
/// so well that `weight`, the share of words, leaves enough of its score. Those at fixed places are good enough.
pub fn is_enough_by_words(parts: &[Part], page: PageRequest, weight: f64) -> bool {
    let end = page.first().saturating_add(page.count());
    let hits = || parts.iter().flat_map(|part| &part.hits);
    let mut pins: Vec<u32> = hits().filter_map(|hit| hit.pinned).collect();
    pins.sort_unstable();
    let scores = || hits().filter(|hit| hit.pinned.is_none()).map(|hit| hit.score);
    let (count, pinned) = first_places(pins, scores().count(), end);
    // The best ones, up to the end of the page, are good enough if so many are.
    let good = scores().filter(|score| score * weight >= GOOD_ENOUGH).count();
    count + pinned >= end && good >= count
}

/// All ranked hits in one list without repeats, as far as anyone looks at it, and those that were dropped. `facets` gives
/// indexes their numbers.
async fn merged(
    mut lists: Vec<Vec<PartHit>>,
    combination: &Combination,
    facets: &BTreeMap<String, Distribution>,
    pace: &dyn Pace,
) -> (Vec<PartHit>, Vec<DroppedHit>) {
    let mut entries: Vec<Vec<Entry>> = Vec::with_capacity(lists.len());
    for (list, hits) in lists.iter_mut().enumerate() {
        let mut own = Vec::with_capacity(hits.len());
        for (at, hit) in hits.iter_mut().enumerate() {
            own.push(Entry {
                query: list,
                position: hit.position,
                doc: DocId(0),
                origin: Origin::Part,
                score: hit.score,
                values: std::mem::take(&mut hit.values),
                nearness: hit.nearness,
            });
            pause_at(at, HITS_PER_LOOK, pace).await;
        }
        entries.push(own);
    }
    // What is dropped counts wherever it is.
    let wanted = if combination.is_distinct { usize::MAX } else { combination.end() };
    let mut merging = merge(entries);
    // The hits of a list leave in its order.
    let mut lists: Vec<std::vec::IntoIter<PartHit>> = lists.into_iter().map(Vec::into_iter).collect();
    let (mut kept, mut dropped, mut taken) = (Vec::new(), Vec::new(), AHashSet::<FieldValue>::new());
    for (at, entry) in merging.by_ref().take(wanted).enumerate() {
        pause_at(at, HITS_PER_LOOK, pace).await;
        let Some(mut hit) = lists[entry.query].next() else { continue };
        hit.values = entry.values;
        let own = hit.fields.first().map_or(&[][..], |(_, values)| values);
        if combination.is_distinct && own.iter().any(|value| taken.contains(value)) {
            let index = facets.keys().position(|uid| **uid == *hit.index_uid).unwrap_or(usize::MAX);
            dropped.push(DroppedHit { index, values: hit.fields });
            continue;
        }
        taken.extend(own.iter().cloned());
        kept.push(hit);
    }
    free_in_steps(merging.into_rest(), pace).await;
    free_in_steps(lists.into_iter().flatten(), pace).await;
    free_in_steps(taken, pace).await;
    (kept, dropped)
}

/// The facets of all parts together, by index.
fn added(parts: &mut [Part]) -> BTreeMap<String, Distribution> {
    let mut together: BTreeMap<String, BTreeMap<String, FacetValues>> = BTreeMap::new();
    for (uid, distribution) in parts.iter_mut().flat_map(|part| std::mem::take(&mut part.facets)) {
        let index = together.entry(uid).or_default();
        for facet in distribution.facets {
            let empty = || FacetValues { name: facet.name.clone(), ..FacetValues::default() };
            add(index.entry(facet.name.clone()).or_insert_with(empty), &facet);
        }
    }
    let distribution = |facets: BTreeMap<String, FacetValues>| Distribution { facets: facets.into_values().collect() };
    together.into_iter().map(|(uid, facets)| (uid, distribution(facets))).collect()
}

/// The facets in the order of each index and cut to its limit.
async fn shown(
    facets: BTreeMap<String, Distribution>,
    dropped: &[DroppedHit],
    combination: &Combination,
    pace: &dyn Pace,
) -> FederatedFacets {
    let uids: Vec<String> = facets.keys().cloned().collect();
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    let usual = FacetLimits::default();
    let of_index = |(index, (uid, mut shown)): (usize, (String, Distribution))| {
        let limits = combination.limits.get(&uid).unwrap_or(&usual);
        for facet in &mut shown.facets {
            match limits.orders.get(&facet.name).copied().unwrap_or(limits.usual) {
                FacetOrder::Count => facet.values.sort_by_key(|(_, count)| std::cmp::Reverse(*count)),
                FacetOrder::Alpha => facet.values.sort(),
            }
            facet.values.truncate(usize::try_from(limits.values_max).unwrap_or(usize::MAX));
        }
        IndexFacets { index, shown }
    };
    let facets = facets.into_iter().enumerate().map(of_index).collect();
    finish(&uids, facets, dropped, combination.merge_facets.as_ref(), pace).await
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use storage_engine::vector::Unpaced;

    use super::*;

    fn combine(parts: Vec<Part>, combination: &Combination) -> FederatedAnswer {
        block_on(super::combine(parts, combination, &Unpaced))
    }

    fn hit(id: u32, position: u64, score: f64, group: &str) -> PartHit {
        let values = vec![FieldValue::Text(group.into())];
        PartHit {
            json: id.to_string().into_bytes(),
            index_uid: "x".into(),
            position,
            score,
            values: vec![ScoreValue::Relevancy(score)],
            pinned: None,
            fields: vec![("g".into(), values)],
            rank: None,
            nearness: None,
        }
    }

    fn part(hits: Vec<PartHit>, counts: &[(&str, u64)]) -> Part {
        let values = counts.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect();
        let facets = Distribution { facets: vec![FacetValues { name: "g".into(), values, stats: None }] };
        Part { total: hits.len() as u64, hits, facets: vec![("x".into(), facets)], ..Part::default() }
    }

    fn parts() -> Vec<Part> {
        let left = part(vec![hit(1, 0, 0.9, "a"), hit(2, 0, 0.5, "b")], &[("a", 1), ("b", 1)]);
        let right = part(vec![hit(3, 1, 0.9, "b"), hit(4, 1, 0.7, "c")], &[("c", 1), ("b", 1)]);
        vec![left, right]
    }

    #[test]
    fn lists_merge_by_score_and_counts_add() {
        let window = |offset, limit| PageRequest::Window { offset, limit };
        let all = combine(parts(), &Combination { page: window(0, 9), ..Combination::default() });
        assert_eq!((all.hits.as_slice(), all.total), (&b"[1,3,4,2]"[..], 4));
        let FederatedFacets::ByIndex(facets) = all.facets else { panic!("not by index") };
        let counts = [("a".to_owned(), 1), ("b".to_owned(), 2), ("c".to_owned(), 1)];
        assert_eq!(facets[0].1.facets[0].values, counts);
        let page = combine(parts(), &Combination { page: window(1, 2), ..Combination::default() });
        assert_eq!(page.hits, b"[3,4]");
    }

    /// A part keeps the order of one query's hits, not that between two, whose scores may have changed since.
    #[test]
    fn hits_of_shares_that_were_scored_anew_change_places() {
        let rank = |query| Some(HitRank { query, costs: Default::default(), sorts: Vec::new(), skipped: false });
        let mut parts = parts();
        let moved = PartHit { rank: rank(0), ..hit(1, 0, 0.2, "a") };
        parts[0].hits = vec![moved, PartHit { rank: rank(1), ..hit(2, 0, 0.8, "b") }];
        assert_eq!(combine(parts, &Combination::default()).hits, b"[3,2,4,1]");
    }

    #[test]
    fn a_value_that_two_instances_have_counts_once() {
        let combination = Combination { is_distinct: true, ..Combination::default() };
        let answer = combine(parts(), &combination);
        assert_eq!((answer.hits.as_slice(), answer.total), (&b"[1,3,4]"[..], 3));
        let FederatedFacets::ByIndex(facets) = answer.facets else { panic!("not by index") };
        assert_eq!(facets[0].1.facets[0].values[1], ("b".to_owned(), 1));
    }

    #[test]
    fn hits_by_meaning_compete_and_are_counted() {
        let mut parts = parts();
        parts[0].hits[0].values = vec![ScoreValue::Similarity(0.6)];
        let combination = Combination { counts_semantic: true, ..Combination::default() };
        let answer = combine(parts.clone(), &combination);
        assert_eq!((answer.hits.as_slice(), answer.semantic_hits), (&b"[3,4,1,2]"[..], Some(1)));
        let first = Combination { page: PageRequest::Window { offset: 0, limit: 2 }, ..combination };
        assert_eq!(combine(parts, &first).semantic_hits, Some(0));
    }

    /// Two distances may be so near that their similarities are the same number.
    #[test]
    fn the_nearer_of_equally_similar_hits_comes_first() {
        let mut parts = parts();
        for (part, nearness) in parts.iter_mut().zip([7, 6]) {
            part.hits.truncate(1);
            part.hits[0].values = vec![ScoreValue::Similarity(0.5), ScoreValue::Relevancy(f64::from(nearness))];
            part.hits[0].nearness = Some(nearness);
        }
        assert_eq!(combine(parts.clone(), &Combination::default()).hits, b"[3,1]");
        parts[1].hits[0].nearness = None;
        assert_eq!(combine(parts, &Combination::default()).hits, b"[1,3]");
    }

    #[test]
    fn words_are_enough_where_a_page_is_full_of_good_hits() {
        let enough = |limit, weight| is_enough_by_words(&parts(), PageRequest::Window { offset: 0, limit }, weight);
        assert!(enough(2, 0.5) && !enough(3, 0.5) && enough(3, 0.7) && !enough(5, 1.0));
        assert!(enough(4, 0.9) && !enough(4, 0.89));
    }

    /// Pins once filled the page up, but the hits that they left no room for were still looked at; those behind it counted, too.
    #[test]
    fn words_are_enough_where_pins_fill_the_page_up() {
        let enough = |pins: &[u32], limit, weight| {
            let mut parts = parts();
            parts[1].hits.extend(pins.iter().map(|place| PartHit { pinned: Some(*place), ..hit(9, 1, 1.0, "z") }));
            is_enough_by_words(&parts, PageRequest::Window { offset: 0, limit }, weight)
        };
        assert!(enough(&[0], 3, 0.5) && !enough(&[3], 3, 0.5) && !enough(&[0], 4, 0.5));
        assert!(enough(&[0, 2], 4, 0.5) && enough(&[9], 5, 0.9) && !enough(&[9], 6, 0.9));
    }

    #[test]
    fn pins_of_all_instances_keep_their_places() {
        let mut parts = parts();
        parts[1].hits.push(PartHit { pinned: Some(1), ..hit(9, 1, 1.0, "z") });
        let answer = combine(parts, &Combination::default());
        assert_eq!(answer.hits, b"[1,9,3,4,2]");
    }

    #[test]
    fn values_survive_the_way_between_instances() {
        let values = [
            ScoreValue::Relevancy(0.924_242_424_242_424_2),
            ScoreValue::Similarity(0.25),
            ScoreValue::Sort { value: crate::rank::SortValue::Text("a\"".into()), descending: true },
            ScoreValue::Sort { value: crate::rank::SortValue::Missing, descending: false },
            ScoreValue::Geo { distance: Some(1.5), descending: false },
        ];
        for value in values {
            let text = value.to_json().to_string();
            assert_eq!(ScoreValue::from_json(&serde_json::from_str(&text).unwrap()), Some(value));
        }
    }
}
