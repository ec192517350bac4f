//! Searches with a least score, against the same searches without one.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use crate::engine::*;
use crate::facets::parse_sort;
use crate::search::{MatchingStrategy, PageRequest, SearchRequest};
use crate::settings::{FilterableRule, Settings};
use crate::timestamp::Timestamp;

/// Texts that stand near the query `sunny flower field` in many ways: with fewer words, with typos, far apart, in turned order.
fn documents() -> Vec<Value> {
    const TEXTS: [&str; 11] = [
        "sunny flower field",
        "sunny flowers field",
        "sunny flawer field",
        "sunny flower and other field",
        "field flower sunny",
        "sunny flower",
        "sunny flawer",
        "sunny",
        "sonny",
        "sonny flower field",
        "sunnyflower field",
    ];
    let text = |id: usize| TEXTS[id * id % 7 + id % 5];
    (0..400).map(|id| json!({"id": id, "n": id * 7 % 90, "g": id % 13, "text": text(id)})).collect()
}

fn request(query: &str, sort: &[&str], strategy: MatchingStrategy) -> SearchRequest {
    SearchRequest {
        query: Some(query.into()),
        page: PageRequest::Window { offset: 0, limit: 1000 },
        sort: parse_sort(&json!(sort), "invalid_search_sort").unwrap(),
        matching_strategy: strategy,
        show_ranking_score: true,
        ..SearchRequest::default()
    }
}

/// What is found above a threshold is what is found without one and scores no less, in the same order and with the same scores. The
/// total is without those below it in front of the last hit, and facets count what the total does.
#[test]
fn a_threshold_only_leaves_out_what_scores_less() {
    let orders: [&[&str]; 5] = [
        &["words", "typo", "proximity", "attribute", "sort", "exactness"],
        &["sort", "words", "typo", "exactness"],
        &["words", "sort", "typo"],
        &["words", "exactness", "sort"],
        &["typo", "sort", "words"],
    ];
    for (partitions, rules) in [1, 2, 5].into_iter().flat_map(|count| orders.map(|rules| (count, rules))) {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        run(&disk, 3, 1, config(Some(partitions), 0), move |bench| async move {
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let settings = Settings {
                ranking_rules: rules.iter().map(|rule| (*rule).into()).collect(),
                sortable_attributes: ["n".to_owned()].into(),
                filterable_attributes: ["g", "id"].map(|name| FilterableRule::Name(name.into())).to_vec(),
                ..Settings::default()
            };
            let batch = batch(vec![add(Method::Replace, &json!(documents()))]);
            let (view, _) = bench.batch(&view, Batch { settings: Some(Arc::new(settings)), ..batch }).await;
            let ask = async |request| {
                let answer = bench.engine.search(&view, request).await.unwrap();
                let hits: Vec<Value> = serde_json::from_slice(&answer.hits).unwrap();
                (hits, answer.total, answer.facets.map(|facets| facets.distribution))
            };
            let score = |hit: &Value| hit["_rankingScore"].as_f64().unwrap();
            // Where terms are dropped, but not by the first rule, some documents count that no search returns.
            let strategies = match rules[0] {
                "typo" => &[MatchingStrategy::All][..],
                _ => &[MatchingStrategy::Last, MatchingStrategy::All],
            };
            for (query, strategy, sort) in ["sunny flower field", "suny flower", "sonny"]
                .into_iter()
                .flat_map(|query| strategies.iter().map(move |strategy| (query, *strategy)))
                .flat_map(|(query, strategy)| [&[][..], &["n:desc"]].map(|sort| (query, strategy, sort)))
            {
                let (all, total, _) = ask(request(query, sort, strategy)).await;
                assert_eq!(all.len() as u64, total);
                let mut scores: Vec<f64> = all.iter().map(score).collect();
                scores.sort_by(f64::total_cmp);
                scores.dedup();
                let between = scores.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
                for least in scores.iter().copied().chain(between).chain([1.0]).step_by(3) {
                    // In front of a page, documents may count by fewer rules. None is dropped unranked where each is a group of its own.
                    for (offset, limit) in [(1, 5), (30, 7), (90, 20), (399, 1)] {
                        let with = SearchRequest {
                            page: PageRequest::Window { offset, limit },
                            ranking_score_threshold: Some(least),
                            ..request(query, sort, strategy)
                        };
                        let told = format!("{partitions} {rules:?} {query} {strategy:?} {sort:?} {least} {offset}");
                        let alone = SearchRequest { distinct: Some("id".into()), ..with.clone() };
                        assert_eq!(ask(with).await, ask(alone).await, "{told}");
                    }
                    let wanted: Vec<&Value> = all.iter().filter(|hit| score(hit) >= least).collect();
                    for limit in [1, 7, 60, 1000] {
                        let with = SearchRequest {
                            page: PageRequest::Window { offset: 0, limit },
                            ranking_score_threshold: Some(least),
                            facets: (limit == 7).then(|| vec!["g".into()]),
                            ..request(query, sort, strategy)
                        };
                        let told = format!("{partitions} {rules:?} {query} {strategy:?} {sort:?} {least} {limit}");
                        let (hits, total, facets) = ask(with).await;
                        let found = &wanted[..wanted.len().min(limit as usize)];
                        assert!(hits.iter().eq(found.iter().copied()), "{told}");
                        let met = match found.last().filter(|_| found.len() as u64 == limit) {
                            Some(last) => all.iter().position(|hit| hit == *last).unwrap(),
                            None => all.len(),
                        };
                        let below = all[..met].iter().filter(|hit| score(hit) < least).count();
                        assert_eq!(total, (all.len() - below) as u64, "{told}");
                        if let Some(facets) = facets {
                            let facets: Value = serde_json::from_slice(&facets).unwrap();
                            let counted = facets["g"].as_object().unwrap().values();
                            assert_eq!(counted.map(|count| count.as_u64().unwrap()).sum::<u64>(), total, "{told}");
                        }
                    }
                }
            }
        });
    }
}

/// Without words nothing is below a threshold. With an exact total it has the order walked to its end all the same, which shows in
/// the facets: of each distinct group they count the document that comes first in the order, not by its number.
#[test]
fn a_threshold_has_the_order_walked_to_its_end() {
    for partitions in [1, 3] {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        run(&disk, 3, 1, config(Some(partitions), 0), move |bench| async move {
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let settings = Settings {
                sortable_attributes: ["n".to_owned()].into(),
                filterable_attributes: ["g", "id"].map(|name| FilterableRule::Name(name.into())).to_vec(),
                ..Settings::default()
            };
            let batch = batch(vec![add(Method::Replace, &json!(documents()))]);
            let (view, _) = bench.batch(&view, Batch { settings: Some(Arc::new(settings)), ..batch }).await;
            let facets = async |hits_per_page, threshold| {
                let request = SearchRequest {
                    page: PageRequest::Numbered { page: 1, hits_per_page },
                    distinct: Some("g".into()),
                    facets: Some(vec!["id".into()]),
                    ranking_score_threshold: threshold,
                    ..request("", &["n:desc"], MatchingStrategy::Last)
                };
                let answer = bench.engine.search(&view, request).await.unwrap();
                (answer.total, String::from_utf8(answer.facets.unwrap().distribution).unwrap())
            };
            let (in_order, by_number) = (facets(1000, None).await, facets(1, None).await);
            assert_eq!(facets(1, Some(0.5)).await, in_order);
            assert_eq!(in_order.0, by_number.0);
            assert_ne!(in_order, by_number);
        });
    }
}
