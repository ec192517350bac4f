//! Documents at fixed places in searches by meaning, of distinct groups and of several indexes. Expected is what the interface's own
//! server answers.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use super::vectors::fake;
use crate::engine::*;
use crate::facets::parse_sort;
use crate::search::federated::{FederatedFacets, FederatedIndex, FederatedQuery, FederatedRequest};
use crate::search::{PageRequest, Pin, SearchRequest, SemanticQuery};
use crate::settings::Settings;
use crate::timestamp::Timestamp;

/// What is asked of one index.
#[derive(Clone)]
enum Asked {
    Search(Box<SearchRequest>),
    Federated(FederatedRequest),
}

/// The answers to the questions. How the index is spread shows in none.
fn answers(settings: Value, documents: Vec<Value>, asked: Vec<Asked>) -> Vec<Value> {
    let whole = answers_of((1, 1), &settings, &documents, asked.clone());
    assert_eq!(answers_of((2, 3), &settings, &documents, asked), whole);
    whole
}

fn answers_of((cores, partitions): (u16, u16), settings: &Value, documents: &[Value], asked: Vec<Asked>) -> Vec<Value> {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let mut complete = serde_json::to_value(Settings::default()).unwrap();
    let given = settings.as_object().unwrap();
    given.iter().for_each(|(name, value)| complete[name] = value.clone());
    let settings = Arc::new(serde_json::from_value(complete).unwrap());
    let first = Batch { settings: Some(settings), ..batch(vec![add(Method::Replace, &json!(documents))]) };
    run(&disk, 3, cores, config(Some(partitions), 0), move |bench| async move {
        bench.set_embedders(&fake());
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (view, outcomes) = bench.batch(&view, first).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let view = Arc::new(view);
        let mut answers = Vec::new();
        for asked in asked {
            answers.push(match asked {
                Asked::Search(request) => searched(&bench, &view, *request).await,
                Asked::Federated(request) => federated(&bench, &view, &request).await,
            });
        }
        answers
    })
}

async fn searched(bench: &Bench, view: &IndexView, request: SearchRequest) -> Value {
    let answer = bench.engine.search(view, request).await.unwrap();
    let facets = answer.facets.map(|facets| facets.distribution);
    summary(&answer.hits, answer.total, answer.semantic_hits, facets)
}

async fn federated(bench: &Bench, view: &Arc<IndexView>, request: &FederatedRequest) -> Value {
    let answer = bench.engine.federated_search(std::slice::from_ref(view), request).await.unwrap();
    let facets = if let FederatedFacets::ByIndex(facets) = &answer.facets { facets.first() } else { None };
    let facets = facets.map(|(_, distribution)| distribution.distribution_json());
    summary(&answer.hits, answer.total, answer.semantic_hits, facets)
}

/// The ids of the hits, the total, and what else an answer has.
fn summary(hits: &[u8], total: u64, semantic: Option<u64>, facets: Option<Vec<u8>>) -> Value {
    let hits: Vec<Value> = serde_json::from_slice(hits).unwrap();
    let mut summary = json!({"ids": hits.iter().map(|hit| &hit["id"]).collect::<Vec<_>>(), "total": total});
    if let Some(semantic) = semantic {
        summary["semantic"] = semantic.into();
    }
    if let Some(facets) = facets {
        summary["facets"] = serde_json::from_slice(&facets).unwrap();
    }
    let distances: Vec<&Value> = hits.iter().filter_map(|hit| hit.get("_geoDistance")).collect();
    if !distances.is_empty() {
        summary["distances"] = json!(distances);
    }
    summary
}

fn pins(places: &[(u32, u32)]) -> Vec<Pin> {
    let pin = |(priority, (id, position)): (usize, &(u32, u32))| Pin {
        id: id.to_string(),
        position: *position,
        priority: priority as u64,
    };
    places.iter().enumerate().map(pin).collect()
}

fn by_meaning(ratio: f32, vector: [f32; 2]) -> Option<SemanticQuery> {
    Some(SemanticQuery { embedder: "e".into(), ratio, vector: Some(Arc::from(vector)), media: None })
}

fn window(offset: u64, limit: u64) -> PageRequest {
    PageRequest::Window { offset, limit }
}

fn numbered(page: u64, hits_per_page: u64) -> PageRequest {
    PageRequest::Numbered { page, hits_per_page }
}

/// A federation of searches of the one index, on the page of the first.
fn federation(requests: &[&SearchRequest], facets: Option<&str>) -> Asked {
    let query = |(position, request): (usize, &&SearchRequest)| FederatedQuery {
        index: 0,
        request: SearchRequest { facets: None, ..SearchRequest::clone(request) },
        weight: 1.0,
        position: position as u64,
    };
    let index = FederatedIndex { uid: "i".into(), facets: facets.map(|name| vec![name.to_owned()]) };
    Asked::Federated(FederatedRequest {
        queries: requests.iter().enumerate().map(query).collect(),
        indexes: vec![index],
        page: requests[0].page,
        ..FederatedRequest::default()
    })
}

fn search(request: &SearchRequest) -> Asked {
    Asked::Search(Box::new(request.clone()))
}

fn embedder() -> Value {
    json!({"e": {"source": "userProvided", "dimensions": 2}})
}

fn apples() -> Vec<Value> {
    let text = |id| if id < 2 { "red apple" } else { "red" };
    (0..6).map(|id| json!({"id": id, "t": text(id), "_vectors": {"e": [1, id]}})).collect()
}

/// Words alone answer a page that they and what is pinned there fill well. What a pin displaced from it was looked at all the same.
#[test]
fn words_are_enough_for_the_places_that_pins_leave() {
    let request = |position, limit| SearchRequest {
        query: Some("red apple".into()),
        semantic: by_meaning(0.5, [1.0, 4.0]),
        page: window(0, limit),
        pins: pins(&[(5, position)]),
        ..SearchRequest::default()
    };
    let (first, behind) = (request(0, 3), request(9, 3));
    let asked = vec![search(&first), federation(&[&first], None), search(&behind), search(&request(0, 4))];
    let found = answers(json!({"embedders": embedder()}), apples(), asked);
    let by_words = json!({"ids": [5, 0, 1], "total": 6, "semantic": 0});
    assert_eq!(found[..2], [by_words.clone(), by_words]);
    assert_eq!(found[2], json!({"ids": [4, 0, 1], "total": 6, "semantic": 1}));
    assert_eq!(found[3]["ids"], json!([5, 4, 0, 1]));
}

/// Where words take no part, all hits of a page are counted as found by meaning.
#[test]
fn pins_count_as_found_by_meaning_where_words_take_no_part() {
    let request = |query: Option<&str>, ratio| SearchRequest {
        query: query.map(str::to_owned),
        semantic: by_meaning(ratio, [1.0, 1.0]),
        page: window(0, 3),
        pins: pins(&[(5, 0), (2, 1)]),
        ..SearchRequest::default()
    };
    let asked = [(None, 0.5), (Some("red"), 1.0)].map(|(query, ratio)| search(&request(query, ratio)));
    let found = answers(json!({"embedders": embedder()}), apples(), asked.to_vec());
    let all = json!({"ids": [5, 2, 1], "total": 6, "semantic": 3});
    assert_eq!(found, [all.clone(), all]);
}

/// When a federation counted what is left of its queries, it had forgotten what the two lists of a hybrid one lost when they became
/// one.
#[test]
fn federations_count_what_is_left_of_hybrid_queries() {
    let documents = (0..12).map(|id| {
        let text = if id % 2 == 0 { "red" } else { "blue" };
        json!({"id": id, "t": text, "n": id % 3, "_vectors": {"e": [1, id + 1]}})
    });
    let request = |query: &str| SearchRequest {
        query: Some(query.into()),
        distinct: Some("n".into()),
        semantic: by_meaning(0.5, [1.0, 1.0]),
        ..SearchRequest::default()
    };
    let (red, blue) = (request("red"), request("blue"));
    let asked =
        vec![federation(&[&red], Some("n")), federation(&[&red, &blue], None), federation(&[&red, &blue], Some("n"))];
    let settings = json!({"embedders": embedder(), "filterableAttributes": ["n"]});
    let found = answers(settings, documents.collect(), asked);
    assert_eq!(
        found,
        [
            json!({"ids": [0, 2, 4], "total": 3, "semantic": 1, "facets": {"n": {"0": 1, "1": 1, "2": 1}}}),
            json!({"ids": [0, 2, 4, 1, 5], "total": 5, "semantic": 1}),
            json!({"ids": [0, 2, 4, 1, 5], "total": 5, "semantic": 1, "facets": {"n": {"0": 1, "1": 2, "2": 2}}}),
        ]
    );
}

/// Pins were left out of what counts of the distinct groups that words and meaning find together, and the lists were merged for
/// places that they take.
#[test]
fn pins_count_beside_the_groups_that_words_and_meaning_find() {
    let text = |id: u32| ["sky", "sky blue", "cloud"][id as usize % 3];
    let documents =
        (0..40).map(|id| json!({"id": id, "t": text(id), "n": id % 4, "_vectors": {"e": [1, (id * 7) % 11]}}));
    let request = |query: &str, ratio, page| SearchRequest {
        query: Some(query.into()),
        distinct: Some("n".into()),
        semantic: by_meaning(ratio, [0.3, 0.6]),
        facets: Some(vec!["n".into()]),
        page,
        pins: pins(&[(3, 0), (5, 2)]),
        ..SearchRequest::default()
    };
    let first = request("sky", 0.5, numbered(1, 20));
    let asked = vec![
        search(&first),
        federation(&[&first], Some("n")),
        federation(&[&first], None),
        search(&request("cloud", 0.8, window(2, 20))),
        search(&request("cloud", 0.8, window(0, 5))),
    ];
    let settings = json!({"embedders": embedder(), "filterableAttributes": ["n"]});
    let found = answers(settings, documents.collect(), asked);
    let ids = [3, 16, 5, 27, 38, 9];
    let first = json!({"ids": ids, "total": 6, "semantic": 3, "facets": {"n": {"0": 1, "1": 2, "2": 1, "3": 2}}});
    assert_eq!(found[..2], [first.clone(), first]);
    assert_eq!(found[2], json!({"ids": ids, "total": 6, "semantic": 3}));
    assert_eq!(found[3]["facets"], json!({"n": {"1": 2, "2": 1, "3": 1}}));
    assert_eq!((&found[3]["ids"], &found[3]["total"]), (&json!([5, 27, 38, 13]), &json!(4)));
    assert_eq!(found[4]["facets"], json!({"n": {"0": 1, "1": 3, "2": 1, "3": 2}}));
    assert_eq!((&found[4]["ids"], &found[4]["total"]), (&json!([3, 16, 5, 27, 38]), &json!(7)));
}

/// One that the page does not reach counts as any other document of its group.
#[test]
fn pins_behind_the_page_do_not_count_beside_their_groups() {
    let text = |id: u32| ["sky", "sky blue", "cloud"][id as usize % 3];
    let documents =
        (0..40).map(|id| json!({"id": id, "t": text(id), "n": id % 4, "_vectors": {"e": [1, (id * 7) % 41]}}));
    let request = SearchRequest {
        query: Some("cloud".into()),
        distinct: Some("n".into()),
        semantic: by_meaning(0.8, [0.3, 0.6]),
        facets: Some(vec!["n".into()]),
        page: window(0, 3),
        pins: pins(&[(4, 9)]),
        ..SearchRequest::default()
    };
    let settings = json!({"embedders": embedder(), "filterableAttributes": ["n"]});
    let found = answers(settings, documents.collect(), vec![search(&request)]);
    let counts = json!({"n": {"0": 1, "1": 1, "2": 1, "3": 10}});
    assert_eq!(found, [json!({"ids": [12, 18, 1], "total": 13, "semantic": 3, "facets": counts})]);
}

/// Pins lacked the distance that all other hits showed.
#[test]
fn pins_show_their_distance() {
    let documents = (1..5).map(|id| json!({"id": id, "_geo": {"lat": id, "lng": 0}})).chain([json!({"id": 8})]);
    let request = |names: Option<Vec<String>>| {
        let mut request = SearchRequest {
            sort: parse_sort(&json!(["_geoPoint(0,0):asc"]), "invalid_search_sort").unwrap(),
            pins: pins(&[(4, 0), (8, 1)]),
            ..SearchRequest::default()
        };
        request.format.attributes_to_retrieve = names;
        request
    };
    let (all, ids) = (request(None), request(Some(vec!["id".into()])));
    let asked = vec![search(&all), federation(&[&all], None), search(&ids)];
    let found = answers(json!({"sortableAttributes": ["_geo"]}), documents.collect(), asked);
    let shown = json!({"ids": [4, 8, 1, 2, 3], "total": 5, "distances": [444780, 111195, 222390, 333585]});
    assert_eq!(found, [shown.clone(), shown, json!({"ids": [4, 8, 1, 2, 3], "total": 5})]);
}

/// For an exact total the groups are those of what is found and of what is pinned: pins once counted beside the groups that they are
/// in. Of a group the document with the smallest number counts.
#[test]
fn exact_totals_count_groups_with_their_pins_once() {
    let group = |id: usize| ["x", "y", "z"][id % 3];
    let mut documents: Vec<Value> = (0..8).map(|id| json!({"id": id, "i": id, "t": "x", "c": group(id)})).collect();
    documents.push(json!({"id": 8, "i": 8, "t": "x", "c": ["x", "y"]}));
    let request = |pinned: &[(u32, u32)], sort: Value, page| SearchRequest {
        query: Some("x".into()),
        sort: parse_sort(&sort, "invalid_search_sort").unwrap(),
        facets: Some(vec!["i".into()]),
        page,
        pins: pins(pinned),
        ..SearchRequest::default()
    };
    let bare = |request: &SearchRequest| Asked::Search(Box::new(SearchRequest { facets: None, ..request.clone() }));
    let behind = request(&[(0, 0)], json!([]), numbered(1, 20));
    let sorted = request(&[(3, 0)], json!(["i:desc"]), numbered(1, 2));
    let far = request(&[(3, 0)], json!(["i:desc"]), numbered(9, 20));
    let several = request(&[(8, 1)], json!([]), numbered(1, 20));
    let estimated = request(&[(0, 0)], json!([]), window(0, 20));
    let asked = vec![
        search(&behind),
        bare(&behind),
        federation(&[&behind], Some("i")),
        federation(&[&behind, &behind], None),
        search(&sorted),
        bare(&sorted),
        search(&far),
        search(&several),
        bare(&several),
        search(&estimated),
    ];
    let settings = json!({
        "distinctAttribute": "c", "filterableAttributes": ["c", "i"], "sortableAttributes": ["i"],
        "rankingRules": ["sort", "words", "typo", "proximity", "attribute", "exactness"],
    });
    let found = answers(settings, documents, asked);
    let facets = |ids: &[u32]| {
        let counts: serde_json::Map<String, Value> = ids.iter().map(|id| (id.to_string(), json!(1))).collect();
        json!({"i": counts})
    };
    let answer = |ids: &[u32], counted: &[u32]| json!({"ids": ids, "total": counted.len(), "facets": facets(counted)});
    let total = |ids: &[u32], total: u64| json!({"ids": ids, "total": total});
    let wanted = [
        answer(&[0, 1, 2, 3], &[0, 1, 2]),
        total(&[0, 1, 2, 3], 3),
        answer(&[0, 1, 2, 3], &[0, 1, 2]),
        total(&[0, 0, 1, 2, 3], 3),
        answer(&[3, 8], &[3, 5]),
        total(&[3, 8], 2),
        answer(&[], &[3, 5]),
        answer(&[0, 8, 1, 2], &[0, 1, 2]),
        total(&[0, 8, 1, 2], 3),
        answer(&[0, 1, 2, 3], &[0, 1, 2, 3]),
    ];
    assert_eq!(found, wanted);
}

/// Of an index as many distinct hits are looked for as it may return, though pins take the places of some: what is dropped on the way
/// does not count.
#[test]
fn hits_that_pins_leave_no_room_for_drop_others() {
    let (texts, groups) = (["red apple", "red", "apple"], ["v", "w", "x", "v", "w", "y", "z"]);
    let document = |id: usize| {
        let (text, group) = (texts[id % 3], groups[id % 7]);
        json!({"id": id, "t": text, "c": group})
    };
    let request = |query: &str, limit| SearchRequest {
        query: Some(query.into()),
        pins: pins(&[(13, 0)]),
        page: window(0, limit),
        ..SearchRequest::default()
    };
    let asked = [3, 20].map(|limit| {
        let asked = federation(&[&request("red", limit), &request("red apple", limit)], None);
        let Asked::Federated(federated) = asked else { unreachable!("as it was made") };
        Asked::Federated(FederatedRequest { distinct: Some("c".into()), ..federated })
    });
    let settings = json!({"filterableAttributes": ["c"], "pagination": {"maxTotalHits": 5}});
    let found = answers(settings, (0..14).map(document).collect(), asked.to_vec());
    let wanted = [json!({"ids": [13, 13, 1], "total": 7}), json!({"ids": [13, 13, 1, 7, 6], "total": 6})];
    assert_eq!(found, wanted);
}

/// A federation once took as many hits from an index as this may return, and its pins besides.
#[test]
fn pins_are_among_the_hits_that_an_index_may_return() {
    let documents: Vec<Value> = (0..30).map(|id| json!({"id": id, "t": "x"})).collect();
    let request = |pinned: &[(u32, u32)], page| SearchRequest { pins: pins(pinned), page, ..SearchRequest::default() };
    let near = |offset| request(&[(2, 2), (9, 3)], window(offset, 20));
    let (all, behind) = (near(0), request(&[(20, 9)], window(0, 20)));
    let asked = vec![
        federation(&[&all], None),
        federation(&[&near(5)], None),
        federation(&[&near(7)], None),
        federation(&[&all, &all], None),
        federation(&[&behind], None),
    ];
    let found = answers(json!({"pagination": {"maxTotalHits": 7}}), documents, asked);
    let ids: Vec<&Value> = found.iter().map(|answer| &answer["ids"]).collect();
    let wanted: [&[u32]; 5] = [&[0, 1, 2, 9, 3, 4, 5], &[4, 5], &[], &[0, 1, 2, 2, 9, 9, 3], &[0, 1, 2, 3, 4, 5, 6]];
    assert_eq!(json!(ids), json!(wanted));
}
