//! Searches over instances that each have some of the documents, against one index that has all.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_lite::future::block_on;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::network_shards::rendezvous;
use crate::search::MatchingStrategy;
use crate::search::NetworkShare;
use crate::search::replay::MemIndex;
use crate::settings::Settings;

const TYPED: &str = "abcdef";
const SHARDS: [&str; 2] = ["left", "right"];
const QUERIES: [&str; 7] = ["abcdef", "abc", "abcdef gh", "gh abcdef", "gh abc x", "abcdef x gh", "x abcxdef"];

/// The words of documents: more that are one edit from [`TYPED`] than a word may stand for, and parts that it falls into.
fn vocabulary() -> Vec<String> {
    let letters = || (b'a'..=b'z').map(char::from);
    let replaced = |at: usize| letters().map(move |letter| format!("{}{letter}{}", &TYPED[..at], &TYPED[at + 1..]));
    let inserted = |at: usize| letters().map(move |letter| format!("{}{letter}{}", &TYPED[..at], &TYPED[at..]));
    let edited = (1..TYPED.len()).flat_map(|at| replaced(at).chain(inserted(at)));
    let parts = ["abc", "def", "ab", "cdef", "gh", "x", TYPED].iter().cycle().take(140).map(|word| (*word).to_owned());
    edited.chain(parts).collect()
}

prop_compose! {
    fn documents()(picks in proptest::collection::vec(proptest::collection::vec(0..10_000usize, 1..5), 1..160)) -> Vec<Value> {
        let words = vocabulary();
        let text = |picks: &Vec<usize>| picks.iter().map(|at| words[at % words.len()].as_str()).collect::<Vec<_>>().join(" ");
        picks.iter().enumerate().map(|(id, picks)| json!({"id": id, "t": text(picks)})).collect()
    }
}

fn settings() -> Settings {
    Settings { network_shards: SHARDS.iter().map(|name| (*name).into()).collect(), ..Settings::default() }
}

fn request(text: &str, strategy: MatchingStrategy, share: Option<NetworkShare>) -> FederatedRequest {
    let query = share.as_ref().map(|share| format!("_shard = {}", share.shard));
    let filter = query.and_then(|text| crate::facets::parse_filter_text(&text, "invalid_search_filter").unwrap());
    let request = SearchRequest {
        query: Some(text.to_owned()),
        matching_strategy: strategy,
        show_ranking_score: true,
        filter,
        share,
        ..SearchRequest::default()
    };
    FederatedRequest {
        queries: vec![FederatedQuery { index: 0, request, weight: 1.0, position: 0 }],
        indexes: vec![FederatedIndex { uid: "a".into(), facets: None }],
        page: PageRequest::Numbered { page: 1, hits_per_page: 1000 },
        role: FederatedRole::Part,
        ..FederatedRequest::default()
    }
}

fn part(index: &MemIndex, request: &FederatedRequest) -> Part {
    let access = [FederatedAccess { index: index.searched(), ask: index }];
    block_on(federated_search(&access, request, &index.pacer)).expect("memory does not fail").into_part()
}

/// The scores of the hits by the ids of the documents, in millionths.
fn scores(parts: &[Part]) -> BTreeMap<u64, i64> {
    let hits = parts.iter().flat_map(|part| &part.hits);
    hits.map(|hit| {
        let shown: Value = serde_json::from_slice(&hit.json).unwrap();
        (shown["id"].as_u64().unwrap(), (hit.score * 1e6).round() as i64)
    })
    .collect()
}

/// What two instances find together, and how many of them had to be asked again.
fn over_network(instances: &[MemIndex; 2], text: &str, strategy: MatchingStrategy) -> (Vec<Part>, usize) {
    let ask = |at: usize, words: Option<Arc<QueryWords>>| {
        let share = NetworkShare { shard: SHARDS[at].into(), words };
        part(&instances[at], &request(text, strategy, Some(share)))
    };
    let mut parts = [ask(0, None), ask(1, None)];
    let mut used: [Option<Arc<QueryWords>>; 2] = [None, None];
    let mut asked_again = 0;
    for _ in 0..2 {
        let known: Vec<&QueryWords> = parts.iter().map(|part| part.words[0].as_ref().unwrap()).collect();
        let all = QueryWords::merged(&known).expect("they speak of the same query");
        let stays = |at: usize| match &used[at] {
            Some(used) => used.answers_as(&all),
            None => known[at].would_answer_by(&all),
        };
        let again: Vec<usize> = (0..2).filter(|at| !stays(*at)).collect();
        asked_again += again.len();
        let all = Arc::new(all);
        for at in again {
            parts[at] = ask(at, Some(all.clone()));
            used[at] = Some(all.clone());
        }
    }
    let known: Vec<&QueryWords> = parts.iter().map(|part| part.words[0].as_ref().unwrap()).collect();
    let words = QueryWords::merged(&known).unwrap();
    let share = NetworkShare { shard: SHARDS[0].into(), words: None };
    let query = request(text, strategy, Some(share)).queries.remove(0);
    let (index, pacer) = (instances[0].searched(), &instances[0].pacer);
    let shares = Shares { query, is_hybrid: false, words, places: vec![(0, 0), (1, 0)] };
    block_on(score_together(&index, &shares, &mut parts, pacer));
    (parts.into(), asked_again)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Documents on two instances, those of one shard on both, are found as those of one index.
    #[test]
    fn a_network_finds_what_one_instance_finds(documents in documents(), frequency: bool, by_id: bool) {
        let mut settings = settings();
        if by_id {
            settings.ranking_rules.push("id:desc".into());
        }
        let strategy = if frequency { MatchingStrategy::Frequency } else { MatchingStrategy::Last };
        let of_left = |document: &&Value| rendezvous(SHARDS, &document["id"].to_string()) == Some(SHARDS[0]);
        let right: Vec<Value> = documents.iter().filter(|document| !of_left(document)).cloned().collect();
        let instances = [MemIndex::new(&settings, &documents, 2), MemIndex::new(&settings, &right, 1)];
        let left: Vec<Value> = documents.iter().filter(of_left).cloned().collect();
        let apart = [MemIndex::new(&settings, &left, 1), MemIndex::new(&settings, &right, 2)];
        let whole = MemIndex::new(&settings, &documents, 1);
        for text in QUERIES {
            let wanted = part(&whole, &request(text, strategy, None));
            for instances in [&instances, &apart] {
                let (parts, _) = over_network(instances, text, strategy);
                prop_assert_eq!(scores(&parts), scores(std::slice::from_ref(&wanted)), "{}", text);
                prop_assert_eq!(parts.iter().map(|part| part.total).sum::<u64>(), wanted.total, "{}", text);
            }
        }
    }
}

/// Instances with the same words are asked once; limits that only all words reach take a second question.
#[test]
fn instances_are_asked_again_only_where_it_matters() {
    let settings = settings();
    let index = |words: &[String]| {
        let documents = words.iter().enumerate().map(|(id, word)| json!({"id": id, "t": word}));
        MemIndex::new(&settings, &documents.collect::<Vec<_>>(), 1)
    };
    let mut words = vocabulary();
    words.truncate(240);
    let alike = [index(&words[..60]), index(&words[..60])];
    assert_eq!(over_network(&alike, TYPED, MatchingStrategy::Last).1, 0);
    let apart = [index(&words[..120]), index(&words[120..])];
    assert_ne!(over_network(&apart, TYPED, MatchingStrategy::Last).1, 0);
}
