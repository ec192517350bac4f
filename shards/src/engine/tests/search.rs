//! Searches through engines.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;
use uuid::Uuid;

use super::harness::*;
use crate::engine::messages::Place;
use crate::engine::*;
use crate::facets::parse_sort;
use crate::ids::PartitionNo;
use crate::search::{MatchingStrategy, PageRequest, SearchRequest, Step};
use crate::settings::{FilterableRule, Settings};
use crate::timestamp::Timestamp;

async fn hits(bench: &Bench, view: &IndexView, query: &str) -> (u64, Value) {
    let request = SearchRequest { query: Some(query.to_owned()), show_ranking_score: true, ..SearchRequest::default() };
    let answer = bench.engine.search(view, request).await.unwrap();
    (answer.total, serde_json::from_slice(&answer.hits).unwrap())
}

fn searched(cores: u16, partitions: u16) -> Vec<(u64, Value)> {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 5, cores, config(Some(partitions), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let texts = ["sun flower field", "sunflower field", "field of sun and flower", "flower sun", "sun. flower"];
        let documents: Vec<Value> = (0..40).map(|id| json!({"id": id, "text": texts[id % 5], "n": id / 7})).collect();
        let settings = Settings { sortable_attributes: ["n".to_owned()].into(), ..Settings::default() };
        let whole =
            Batch { settings: Some(Arc::new(settings)), ..batch(vec![add(Method::Replace, &json!(documents))]) };
        let (view, _) = bench.batch(&view, whole).await;
        let mut found = Vec::new();
        for query in ["sun flower", "sunflwer", "fi", "\"sun flower\"", "field -sunflower", ""] {
            found.push(hits(&bench, &view, query).await);
        }
        found
    })
}

/// Each search is timed anew, also one whose answer could be kept.
#[test]
fn searches_tell_how_long_their_steps_take() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &json!([{"id": 1, "t": "red"}]))])).await;
        for _ in 0..3 {
            for (query, shows_steps, wanted) in [
                ("red", true, vec![Step::Tokenize, Step::Resolve, Step::Keyword, Step::Format]),
                ("", true, vec![Step::Tokenize, Step::Placeholder, Step::Format]),
                ("red", false, Vec::new()),
            ] {
                let request = SearchRequest { query: Some(query.into()), shows_steps, ..SearchRequest::default() };
                let answer = bench.engine.search(&view, request).await.unwrap();
                let steps: Vec<Step> = answer.steps.iter().map(|(step, _)| *step).collect();
                assert_eq!((answer.total, steps), (1, wanted), "{query}");
            }
        }
    });
}

/// What is kept of one index makes room for that of another, and changes no answer.
#[test]
fn indexes_share_the_memory_for_what_is_kept() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let small = EngineConfig { core_memory_bytes: 0, ..config(Some(1), 0) };
    run(&disk, 5, 1, small, |bench| async move {
        const BOUND: usize = 64 << 10;
        let documents: Vec<Value> =
            (0..500).map(|id| json!({"id": id, "text": format!("word{} light{} harbour", id % 97, id % 89)})).collect();
        let mut views = Vec::new();
        for index in [INDEX, Uuid::from_u128(6)] {
            let view = bench.engine.create_index(index, Timestamp(0)).await.unwrap();
            views.push(bench.batch(&view, batch(vec![add(Method::Replace, &json!(documents))])).await.0);
        }
        let place = |at: usize| Place { index: views[at].id, layout: views[at].layout, partition: PartitionNo(0) };
        let kept = || [0, 1].map(|at| bench.engine.kept_bytes(place(at)));
        let queries: Vec<String> = (0..89).map(|at| format!("light{at} word{} har", at % 97)).collect();
        let mut found: [Vec<(u64, Value)>; 2] = Default::default();
        for (view, found) in views.iter().zip(&mut found) {
            for query in &queries {
                found.push(hits(&bench, view, query).await);
                assert!(kept().iter().sum::<usize>() <= BOUND, "{:?}", kept());
            }
        }
        assert_eq!(found[0], found[1]);
        // The one that was searched last has the room.
        assert!(kept()[0] < kept()[1], "{:?}", kept());
        for (query, found) in queries.iter().zip(&found[0]) {
            assert_eq!(hits(&bench, &views[0], query).await, *found);
        }
        assert!(kept()[0] > kept()[1], "{:?}", kept());
    });
}

/// Answers of an epoch that is over, or of an index that is gone, take no memory.
#[test]
fn kept_answers_go_with_their_epoch() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 5, 1, config(Some(1), 0), |bench| async move {
        let documents: Vec<Value> = (0..50).map(|id| json!({"id": id, "text": format!("word{id}")})).collect();
        let mut views = Vec::new();
        for index in [INDEX, Uuid::from_u128(6)] {
            let view = bench.engine.create_index(index, Timestamp(0)).await.unwrap();
            views.push(bench.batch(&view, batch(vec![add(Method::Replace, &json!(documents))])).await.0);
        }
        let kept = || bench.engine.searches.bytes();
        let search_all = async |view: &IndexView| {
            for at in 0..100 {
                hits(&bench, view, &format!("word{}", at % 50)).await;
            }
            bench.engine.runtime.sleep(Duration::from_millis(10)).await;
            kept()
        };
        let one = search_all(&views[0]).await;
        let both = search_all(&views[1]).await;
        assert!(one > 0 && both == 2 * one, "{one} {both}");
        let (moved, _) = bench.batch(&views[0], batch(vec![add(Method::Replace, &json!([{"id": 99}]))])).await;
        hits(&bench, &moved, "another").await;
        bench.engine.runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(kept(), one);
        assert_eq!(search_all(&moved).await, both);
        bench.engine.drop_index(views[1].id).await.unwrap();
        bench.engine.runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(kept(), one);
    });
}

/// The totals of searches under settings, with 1, 2 and 5 partitions, which must agree.
fn totals(settings: Settings, documents: Vec<Value>, requests: Vec<SearchRequest>) -> Vec<u64> {
    let mut found = Vec::new();
    for partitions in [1, 2, 5] {
        let (settings, documents, requests) = (settings.clone(), documents.clone(), requests.clone());
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        found.push(run(&disk, 5, 1, config(Some(partitions), 0), |bench| async move {
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let batch = batch(vec![add(Method::Replace, &json!(documents))]);
            let (view, _) = bench.batch(&view, Batch { settings: Some(Arc::new(settings)), ..batch }).await;
            let mut totals = Vec::new();
            for request in requests {
                totals.push(bench.engine.search(&view, request).await.unwrap().total);
            }
            totals
        }));
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
    found.swap_remove(0)
}

/// Documents that no rule can place (`words` does not come first) go by the worst score of the first rule.
#[test]
fn lost_documents_go_below_the_worst_score() {
    let texts = [["part", "tight"], ["part tight", "x"], ["part", "x"], ["x", "part"]];
    let documents = texts.iter().enumerate().map(|(id, [a, b])| json!({"id": id, "a": a, "b": b})).collect();
    let settings = Settings {
        searchable_attributes: vec!["a".into(), "b".into()],
        ranking_rules: vec!["attributeRank".into(), "words".into()],
        ..Settings::default()
    };
    let request = |threshold| SearchRequest {
        query: Some("part tight".into()),
        ranking_score_threshold: Some(threshold),
        ..SearchRequest::default()
    };
    // Two fields and two terms: costs of 0 to 2, of which the worst scores a third. Two documents hold both terms.
    let requests = [0.1, 0.3, 0.34, 0.7, 1.0].map(request).to_vec();
    assert_eq!(totals(settings, documents, requests), [4, 4, 2, 1, 1]);
}

/// In an exact total, documents that no rule can place count once for each distinct group, told apart by number behind those that are
/// placed.
#[test]
fn lost_documents_count_by_group() {
    let documents = [
        ("part", json!("a"), json!(["a"])),
        ("part", json!("a"), json!(["a", "b"])),
        ("part tight", json!("c"), json!(["c"])),
        ("part", json!("b"), json!(["b"])),
        ("part", json!("c"), json!(["c", "d"])),
        ("part", json!("d"), json!(["d"])),
        ("part", json!(null), json!([])),
    ];
    let documents = documents.into_iter().enumerate();
    let documents = documents.map(|(id, (text, one, many))| json!({"id": id, "text": text, "one": one, "many": many}));
    let settings = Settings {
        ranking_rules: vec!["attributeRank".into(), "words".into()],
        filterable_attributes: ["one", "many"].map(|name| FilterableRule::Name(name.into())).to_vec(),
        ..Settings::default()
    };
    let request = |field: &str, page, hits_per_page| SearchRequest {
        query: Some("part tight".into()),
        page: PageRequest::Numbered { page, hits_per_page },
        distinct: Some(field.to_owned()),
        ..SearchRequest::default()
    };
    let pages = [(1, 20), (2, 3), (1, 0), (1, 1)];
    let requests = ["one", "many"].into_iter().flat_map(|field| pages.map(|(page, size)| request(field, page, size)));
    assert_eq!(totals(settings, documents.collect(), requests.collect()), [5; 8]);
}

/// Which term goes first follows from how often terms occur where the search looks.
#[test]
fn terms_are_as_frequent_as_in_the_fields_searched() {
    let texts = [["alpha", "beta"], ["alpha", "beta"], ["alpha", "x"], ["x", "beta"], ["x", "alpha"]];
    let documents = texts.iter().enumerate().map(|(id, [a, b])| json!({"id": id, "a": a, "b": b})).collect();
    let request = |fields: &[&str]| SearchRequest {
        query: Some("alpha beta".into()),
        matching_strategy: MatchingStrategy::Frequency,
        attributes_to_search_on: Some(fields.iter().map(|field| (*field).to_owned()).collect()),
        ..SearchRequest::default()
    };
    // Where only "a" is searched nothing holds "beta", which goes first; in "b" it is the more frequent one.
    assert_eq!(totals(Settings::default(), documents, vec![request(&["a"]), request(&["b"])]), [3, 1]);
}

/// With several values in the field of `distinct`, the documents returned are those that a walk down the whole order finds:
/// each that shares no value with one found before.
#[test]
fn groups_of_several_values_are_told_apart_along_the_order() {
    let tags = ["a", "b", "c", "d", "e", "f"];
    let word = |id: usize| ["sun", "sun flower", "flower of the sun", "sunny", "x sun"][id * 7 % 5];
    // Many documents have two values, few have one: those that come late must not be lost with the others.
    let tags = |id: usize| match id * 31 % 17 {
        0 => vec![tags[id % 6]],
        1 => vec![],
        _ => vec![tags[id * 5 % 6], tags[id * 11 % 5]],
    };
    let documents: Vec<Value> = (0..300).map(|id| json!({"id": id, "text": word(id), "tags": tags(id)})).collect();
    for partitions in [1, 3] {
        let documents = documents.clone();
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        run(&disk, 5, 1, config(Some(partitions), 0), move |bench| async move {
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &json!(documents))])).await;
            let settings = FilterableRule::Name("tags".into());
            let settings = Settings { filterable_attributes: vec![settings], ..Settings::default() };
            let (view, _) = bench.batch(&view, Batch { settings: Some(Arc::new(settings)), ..batch(vec![]) }).await;
            for query in ["sun flower", "sun", ""] {
                let request = |distinct: Option<&str>, limit| SearchRequest {
                    query: Some(query.into()),
                    page: PageRequest::Window { offset: 0, limit },
                    distinct: distinct.map(str::to_owned),
                    ..SearchRequest::default()
                };
                let all = bench.engine.search(&view, request(None, 1000)).await.unwrap();
                let all: Vec<Value> = serde_json::from_slice(&all.hits).unwrap();
                let (mut taken, mut wanted) = (Vec::new(), Vec::new());
                for hit in all {
                    let tags = hit["tags"].as_array().unwrap();
                    if !tags.iter().any(|tag| taken.contains(tag)) {
                        taken.extend(tags.iter().cloned());
                        wanted.push(hit);
                    }
                }
                for limit in [1, 2, 3, 20] {
                    let found = bench.engine.search(&view, request(Some("tags"), limit)).await.unwrap();
                    let found: Vec<Value> = serde_json::from_slice(&found.hits).unwrap();
                    let wanted = &wanted[..wanted.len().min(limit as usize)];
                    assert_eq!(found, wanted, "{query:?}, {limit}, {partitions} partitions");
                }
            }
        });
    }
}

/// A sort that goes before the words puts many documents below the threshold in front of those above it: these are found, though a page
/// needs few documents. Without words no document is below any threshold.
#[test]
fn a_threshold_leaves_out_what_a_sort_puts_first() {
    let text = |id: usize| if id % 50 < 45 { "sun x" } else { "sun flower" };
    let documents: Vec<Value> = (0..300).map(|id| json!({"id": id, "n": id / 2, "text": text(id)})).collect();
    for partitions in [1, 2, 5] {
        let (documents, disk): (_, Rc<dyn Disk>) = (documents.clone(), Rc::new(MemDisk::new()));
        run(&disk, 3, 1, config(Some(partitions), 0), move |bench| async move {
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let settings = Settings {
                ranking_rules: vec!["sort".into(), "words".into()],
                sortable_attributes: ["n".to_owned()].into(),
                ..Settings::default()
            };
            let batch = batch(vec![add(Method::Replace, &json!(documents))]);
            let (view, _) = bench.batch(&view, Batch { settings: Some(Arc::new(settings)), ..batch }).await;
            let request = |query: &str, limit, threshold| SearchRequest {
                query: Some(query.into()),
                page: PageRequest::Window { offset: 0, limit },
                sort: parse_sort(&json!(["n:desc"]), "invalid_search_sort").unwrap(),
                ranking_score_threshold: threshold,
                show_ranking_score: true,
                ..SearchRequest::default()
            };
            let hits = async |request| {
                let answer = bench.engine.search(&view, request).await.unwrap();
                (serde_json::from_slice::<Vec<Value>>(&answer.hits).unwrap(), answer.total)
            };
            let (all, total) = hits(request("sun flower", 1000, None)).await;
            assert_eq!(total, 300);
            let above = |hit: &&Value| hit["_rankingScore"].as_f64().unwrap() >= 0.9;
            let wanted: Vec<Value> = all.iter().filter(above).cloned().collect();
            assert_eq!(wanted.len(), 30);
            for limit in [1, 5, 6, 20] {
                let (found, total) = hits(request("sun flower", limit, Some(0.9))).await;
                assert_eq!(found, wanted[..limit as usize], "{partitions} partitions");
                let last = all.iter().position(|hit| *hit == found[limit as usize - 1]).unwrap();
                let met = all[..=last].iter().filter(|hit| !above(hit)).count() as u64;
                assert_eq!(total, 300 - met, "{limit}, {partitions} partitions");
            }
            for limit in [1, 10, 20, 40] {
                assert_eq!(hits(request("sun moon", limit, Some(0.9))).await, (vec![], 0), "{limit}");
            }
            assert_eq!(hits(request("", 20, Some(1.0))).await, hits(request("", 20, None)).await);
        });
    }
}

/// Where no document is wanted none is looked at, so that none is left out.
#[test]
fn pages_behind_the_end_leave_nothing_out() {
    let documents = (0..10).map(|id| json!({"id": id, "text": "sun flower", "n": id % 2})).collect();
    let settings = Settings { filterable_attributes: vec![FilterableRule::Name("n".into())], ..Settings::default() };
    let request = |page, threshold, distinct: Option<&str>| SearchRequest {
        query: Some("sun field".into()),
        page,
        ranking_score_threshold: threshold,
        distinct: distinct.map(str::to_owned),
        ..SearchRequest::default()
    };
    let window = |offset, limit| PageRequest::Window { offset, limit };
    let numbered = |page| PageRequest::Numbered { page, hits_per_page: 1 };
    let requests = vec![
        request(window(10, 1), Some(0.9), None),
        request(window(11, 1), Some(0.9), None),
        request(window(10, 1), None, Some("n")),
        request(window(11, 1), None, Some("n")),
        request(window(1, 0), None, Some("n")),
        request(numbered(11), Some(0.9), Some("n")),
        request(numbered(12), Some(0.9), Some("n")),
        request(numbered(12), Some(0.9), None),
    ];
    assert_eq!(totals(settings, documents, requests), [0, 10, 2, 10, 10, 0, 2, 10]);
}

/// Hits, their order and their scores must not show how an index is spread.
#[test]
fn searches_answer_the_same_with_any_number_of_partitions() {
    let whole = searched(1, 1);
    assert_eq!(whole[0].0, 40);
    assert_eq!(whole[0].1[0]["text"], "sun flower field");
    assert!(whole.iter().all(|(total, hits)| *total > 0 && hits[0]["_rankingScore"].is_number()));
    for (cores, partitions) in [(2, 2), (3, 5)] {
        assert_eq!(searched(cores, partitions), whole);
    }
}
