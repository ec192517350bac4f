//! Federated searches against a naive twin: every query searched alone, all hits in one sort.

use std::cmp::Ordering;

use futures_lite::future::block_on;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::facets::SortCriterion;
use crate::facets::distribution::Distribution;
use crate::facets::test_support::filterable;
use crate::search::replay::MemIndex;
use crate::settings::Settings;

const WORDS: [&str; 6] = ["sun", "sunn", "flower", "moon", "sunflower", "night"];

fn settings() -> Settings {
    filterable(&["g", "n"])
}

prop_compose! {
    fn document()(words in proptest::collection::vec(0..WORDS.len(), 0..4), g in 0..4usize, n in 0..6u32) -> Value {
        let text: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
        let n = match n {
            0 => Value::Null,
            1 => json!("text"),
            n => json!(n),
        };
        json!({"t": text.join(" "), "g": (["Red", "red", "Blue", ""][g]), "n": n})
    }
}

/// An index's documents with their numbers.
fn documents() -> impl Strategy<Value = Vec<Value>> {
    proptest::collection::vec(document(), 0..12).prop_map(|mut documents| {
        documents.iter_mut().enumerate().for_each(|(id, document)| document["id"] = json!(id));
        documents
    })
}

/// What a query is: its index, its text, and its weight in eighths.
type Asked = (usize, usize, u32);

fn queries(asked: &[Asked], sorted: Option<bool>) -> Vec<FederatedQuery> {
    let mut queries: Vec<FederatedQuery> = asked
        .iter()
        .enumerate()
        .map(|(position, (index, text, weight))| {
            let query = sorted.is_none().then(|| ["sun", "flower", "sun flower", "moon night"][*text].to_owned());
            let sort = sorted.map(|descending| SortCriterion::field("n", descending));
            let request = SearchRequest {
                query,
                sort: sort.into_iter().collect(),
                show_ranking_score: true,
                ..SearchRequest::default()
            };
            FederatedQuery { index: *index, request, weight: f64::from(*weight) / 8.0, position: position as u64 }
        })
        .collect();
    queries.sort_by_key(|query| query.index);
    queries
}

fn federated(indexes: &[MemIndex], request: &FederatedRequest) -> FederatedAnswer {
    let searched: Vec<FederatedAccess<'_>> =
        indexes.iter().map(|index| FederatedAccess { index: index.searched(), ask: index }).collect();
    block_on(federated_search(&searched, request, &indexes[0].pacer)).expect("memory does not fail")
}

fn array(json: &[u8]) -> Vec<Value> {
    serde_json::from_slice(json).expect("hits are JSON")
}

/// A hit of the naive twin.
struct NaiveHit {
    index: usize,
    id: u64,
    position: u64,
    place: usize,
    score: f64,
    n: Value,
}

fn naive_hits(indexes: &[MemIndex], request: &FederatedRequest) -> Vec<NaiveHit> {
    let mut hits = Vec::new();
    for query in &request.queries {
        let limit = (request.page.first() + request.page.count()) as u64;
        let alone = SearchRequest { page: PageRequest::Window { offset: 0, limit }, ..query.request.clone() };
        let answer = indexes[query.index].search(&alone).expect("memory does not fail");
        hits.extend(array(&answer.hits).into_iter().enumerate().map(|(place, hit)| NaiveHit {
            index: query.index,
            id: hit["id"].as_u64().expect("every document has one"),
            position: query.position,
            place,
            score: hit["_rankingScore"].as_f64().expect("it was asked for") * query.weight,
            n: hit["n"].clone(),
        }));
    }
    hits
}

fn naive_order(left: &NaiveHit, right: &NaiveHit, sorted: Option<bool>) -> Ordering {
    let kind = |n: &Value| {
        if n.is_number() {
            0
        } else if n.is_string() {
            1
        } else {
            2
        }
    };
    let by_value = match sorted {
        None if (left.score - right.score).abs() <= f64::EPSILON => Ordering::Equal,
        None => right.score.total_cmp(&left.score),
        Some(descending) => kind(&left.n).cmp(&kind(&right.n)).then_with(|| {
            let order = left.n.as_u64().cmp(&right.n.as_u64());
            if descending { order.reverse() } else { order }
        }),
    };
    by_value.then(left.position.cmp(&right.position)).then(left.place.cmp(&right.place))
}

/// The page of the naive twin: (index, document, query).
fn naive(indexes: &[MemIndex], request: &FederatedRequest, sorted: Option<bool>) -> Vec<(usize, u64, u64)> {
    let mut hits = naive_hits(indexes, request);
    hits.sort_by(|left, right| naive_order(left, right, sorted));
    let mut shown: Vec<(usize, u64, u64)> = Vec::new();
    for hit in hits {
        if !shown.iter().any(|(index, id, _)| (*index, *id) == (hit.index, hit.id)) {
            shown.push((hit.index, hit.id, hit.position));
        }
    }
    shown.into_iter().skip(request.page.first()).take(request.page.count()).collect()
}

fn request(queries: Vec<FederatedQuery>, page: PageRequest, count: usize) -> FederatedRequest {
    let index = |number: usize| FederatedIndex { uid: number.to_string().into(), facets: Some(vec!["g".into()]) };
    FederatedRequest { queries, indexes: (0..count).map(index).collect(), page, ..FederatedRequest::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Merging the heads of lists gives what one sort of all hits gives, and the number of partitions changes nothing.
    #[test]
    fn merging_is_sorting(
        documents in proptest::collection::vec(documents(), 2),
        asked in proptest::collection::vec((0..2usize, 0..4usize, 0..4u32), 0..5),
        sorted: Option<bool>,
        (offset, limit) in (0..4u64, 0..9u64),
    ) {
        let of_partitions = |count| -> Vec<MemIndex> {
            documents.iter().map(|documents| MemIndex::new(&settings(), documents, count)).collect()
        };
        let request = request(queries(&asked, sorted), PageRequest::Window { offset, limit }, 2);
        let indexes = of_partitions(1);
        let answer = federated(&indexes, &request);
        let shown: Vec<(usize, u64, u64)> = array(&answer.hits).iter().map(|hit| {
            let mark = &hit["_federation"];
            let index = mark["indexUid"].as_str().unwrap().parse().unwrap();
            (index, hit["id"].as_u64().unwrap(), mark["queriesPosition"].as_u64().unwrap())
        }).collect();
        prop_assert_eq!(shown, naive(&indexes, &request, sorted));
        prop_assert_eq!(federated(&of_partitions(3), &request), answer);
    }

    /// Totals and facets count each document once for its index, whatever the page.
    #[test]
    fn totals_count_each_document_once(
        documents in documents(),
        asked in proptest::collection::vec((0..1usize, 0..4usize, 1..2u32), 1..4),
        limit in 0..3u64,
    ) {
        let indexes = [MemIndex::new(&settings(), &documents, 2)];
        let page = |limit| PageRequest::Window { offset: 0, limit };
        let all = request(queries(&asked, None), page(100), 1);
        let mut found: Vec<u64> = naive_hits(&indexes, &all).iter().map(|hit| hit.id).collect();
        found.sort_unstable();
        found.dedup();
        let answer = federated(&indexes, &request(queries(&asked, None), page(limit), 1));
        prop_assert_eq!(answer.total, found.len() as u64);
        let reds = found.iter().filter(|id| documents[**id as usize]["g"].as_str().unwrap().eq_ignore_ascii_case("red"));
        let counted = |distribution: &Distribution| {
            let values = distribution.facets.iter().flat_map(|facet| &facet.values);
            values.filter(|(key, _)| key.eq_ignore_ascii_case("red")).map(|(_, count)| count).sum::<u64>()
        };
        let FederatedFacets::ByIndex(facets) = &answer.facets else { panic!("facets were asked for") };
        prop_assert_eq!(counted(&facets[0].1), reds.count() as u64);
    }

    /// At most one hit of all indexes has a value, and what was dropped is not counted.
    #[test]
    fn distinct_values_are_shown_once(documents in proptest::collection::vec(documents(), 2)) {
        let indexes: Vec<MemIndex> =
            documents.iter().map(|documents| MemIndex::new(&settings(), documents, 2)).collect();
        let asked = [(0, 0, 8), (1, 0, 8)];
        let page = PageRequest::Numbered { page: 1, hits_per_page: 100 };
        let request = FederatedRequest { distinct: Some("g".into()), ..request(queries(&asked, None), page, 2) };
        let answer = federated(&indexes, &request);
        let hits = array(&answer.hits);
        prop_assert_eq!(answer.total, hits.len() as u64);
        let mut values: Vec<String> = hits.iter().map(|hit| hit["g"].as_str().unwrap().to_lowercase()).collect();
        values.retain(|value| !value.is_empty());
        let count = values.len();
        values.sort_unstable();
        values.dedup();
        prop_assert_eq!(values.len(), count);
    }

    /// Of a query's distinct groups that are met behind the page, facets count the documents that they count of the query alone.
    #[test]
    fn facets_are_those_of_the_query_alone(
        documents in documents(), text in 0..4usize, sorted: Option<bool>, hits_per_page in 1..4u64, partitions in 1..4u16,
    ) {
        let indexes = [MemIndex::new(&settings(), &documents, partitions)];
        let page = PageRequest::Numbered { page: 1, hits_per_page };
        let mut query = queries(&[(0, text, 8)], sorted).remove(0);
        query.request.distinct = Some("g".into());
        let alone = SearchRequest { page, facets: Some(vec!["n".into()]), ..query.request.clone() };
        let alone = indexes[0].search(&alone).expect("memory does not fail");
        let mut federation = request(vec![query], page, 1);
        federation.indexes[0].facets = Some(vec!["n".into()]);
        let answer = federated(&indexes, &federation);
        let FederatedFacets::ByIndex(facets) = &answer.facets else { panic!("facets were asked for") };
        prop_assert_eq!(facets[0].1.distribution_json(), alone.facets.expect("as before").distribution);
    }

    /// Hits that are dropped make room for others: a page is the beginning of a longer one, and what was dropped behind it still counts.
    #[test]
    fn dropped_hits_make_room(documents in documents(), texts in (0..4usize, 0..4usize), limit in 0..7u64) {
        let indexes = [MemIndex::new(&settings(), &documents, 2)];
        let asked = [(0, texts.0, 8), (0, texts.1, 8)];
        let found = |limit| {
            let page = PageRequest::Window { offset: 0, limit };
            let request = FederatedRequest { distinct: Some("g".into()), ..request(queries(&asked, None), page, 1) };
            let answer = federated(&indexes, &request);
            (array(&answer.hits), answer.total)
        };
        let ((some, total), (all, total_of_all)) = (found(limit), found(100));
        prop_assert_eq!(&some[..], &all[..all.len().min(limit as usize)]);
        prop_assert!(total >= total_of_all);
    }
}
