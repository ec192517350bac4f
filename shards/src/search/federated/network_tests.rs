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

fn query(text: &str, strategy: MatchingStrategy, share: Option<NetworkShare>) -> FederatedQuery {
    let filter = share.as_ref().map(|share| format!("_shard = {}", share.shard));
    let filter = filter.and_then(|text| crate::facets::parse_filter_text(&text, "invalid_search_filter").unwrap());
    let request = SearchRequest {
        query: Some(text.to_owned()),
        matching_strategy: strategy,
        show_ranking_score: true,
        filter,
        share,
        ..SearchRequest::default()
    };
    FederatedQuery { index: 0, request, weight: 1.0, position: 0 }
}

fn request(queries: Vec<FederatedQuery>) -> FederatedRequest {
    FederatedRequest {
        queries,
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

/// The first share of a query without the words of others.
fn share(shard: &str) -> Option<NetworkShare> {
    Some(NetworkShare { shard: shard.into(), words: None })
}

/// What instances find together, each asked for its network shards, and how many of them had to be asked again.
fn over_network(instances: &[(&MemIndex, &[&str])], text: &str, strategy: MatchingStrategy) -> (Vec<Part>, usize) {
    let ask = |at: usize, words: &[Option<Arc<QueryWords>>]| {
        let (index, shards) = instances[at];
        let share = |(shard, words): (&&str, &Option<Arc<QueryWords>>)| {
            query(text, strategy, Some(NetworkShare { shard: (*shard).into(), words: words.clone() }))
        };
        part(index, &request(shards.iter().zip(words).map(share).collect()))
    };
    let merged = |parts: &[Part]| {
        let known: Vec<&QueryWords> = parts.iter().flat_map(|part| &part.words).flatten().collect();
        QueryWords::merged(&known).expect("they speak of the same query")
    };
    let mut used: Vec<Vec<Option<Arc<QueryWords>>>> =
        instances.iter().map(|(_, shards)| vec![None; shards.len()]).collect();
    let mut parts: Vec<Part> = used.iter().enumerate().map(|(at, words)| ask(at, words)).collect();
    let mut asked_again = 0;
    for _ in 0..2 {
        let all = Arc::new(merged(&parts));
        for (at, used) in used.iter_mut().enumerate() {
            let mut stays = true;
            for (used, known) in used.iter_mut().zip(parts[at].words.iter().flatten()) {
                let stays_so = match used {
                    Some(used) => used.answers_as(&all),
                    None => known.would_answer_by(&all),
                };
                if !stays_so {
                    (stays, *used) = (false, Some(all.clone()));
                }
            }
            if !stays {
                asked_again += 1;
                parts[at] = ask(at, used);
            }
        }
    }
    let (index, pacer) = (instances[0].0.searched(), &instances[0].0.pacer);
    let places =
        instances.iter().enumerate().flat_map(|(at, (_, shards))| (0..shards.len()).map(move |number| (at, number)));
    let query = query(text, strategy, share(SHARDS[0]));
    let shares = Shares { query, is_hybrid: false, words: merged(&parts), places: places.collect() };
    block_on(score_together(&index, &shares, &mut parts, pacer));
    (parts, asked_again)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Documents on two instances, those of one shard on both, are found as those of one index; so are the shards of one
    /// instance.
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
            let wanted = part(&whole, &request(vec![query(text, strategy, None)]));
            let [left, right] = [&SHARDS[..1], &SHARDS[1..]];
            let on_two = |[a, b]: &[MemIndex; 2]| over_network(&[(a, left), (b, right)], text, strategy).0;
            let on_one = over_network(&[(&instances[0], &SHARDS[..])], text, strategy).0;
            for parts in [on_two(&instances), on_two(&apart), on_one] {
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
    let asked_again = |left: &[String], right: &[String]| {
        let (left, right) = (index(left), index(right));
        over_network(&[(&left, &SHARDS[..1]), (&right, &SHARDS[1..])], TYPED, MatchingStrategy::Last).1
    };
    assert_eq!(asked_again(&words[..60], &words[..60]), 0);
    assert_ne!(asked_again(&words[..120], &words[120..]), 0);
}

/// What the scores of a query follow from is told even where those of another, or of another share, follow from the same.
#[test]
fn queries_tell_their_own_score_facts() {
    let documents: Vec<Value> =
        (0..40).map(|id| json!({"id": id, "t": if id % 2 == 0 { "gh" } else { "x" }})).collect();
    let index = MemIndex::new(&settings(), &documents, 2);
    let facts = |queries: Vec<FederatedQuery>| part(&index, &request(queries)).scores;
    let [left, right] = SHARDS.map(|shard| move |text| query(text, MatchingStrategy::Last, share(shard)));
    let queries = [left("gh"), left("x"), right("gh"), right("x"), right("gh x")];
    let alone: Vec<ScoreFacts> = queries.iter().flat_map(|query| facts(vec![query.clone()])).collect();
    assert!(alone.iter().all(|facts| *facts != ScoreFacts::default()) && alone[0] == alone[1]);
    assert_eq!(facts(queries.into()), alone);
}
