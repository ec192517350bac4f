//! Decides whether instances that searched by their own words would have found something else by the words of all instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use shards::query::QueryWords;
use shards::search::federated::Part;

use super::route::Routed;

/// Times that instances are asked for one search at most: once by their own words, once by those of all, and once more where the
/// order in which words are dropped was counted by other words. What changes oftener changes while it is searched.
pub(super) const ROUNDS_MAX: usize = 3;

/// What an instance has found for some queries.
pub(super) struct Answered {
    /// Those that it was asked.
    pub(super) queries: Vec<Routed>,
    /// What it said.
    pub(super) part: Part,
}

/// A query of the client that all instances asked have said what they know of: the places of its shares, each given by its
/// answer and its place there, and what the instances know together.
pub(super) type KnownQuery = (Vec<(usize, usize)>, QueryWords);

/// The queries that all instances have said what they know of.
pub(super) fn known_queries(answered: &[Answered]) -> Vec<KnownQuery> {
    let mut by_query: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, answer) in answered.iter().enumerate() {
        for (number, query) in answer.queries.iter().enumerate() {
            by_query.entry(query.given).or_default().push((at, number));
        }
    }
    let known = |places: Vec<(usize, usize)>| {
        let known = places.iter().map(|(at, number)| answered[*at].part.words.get(*number)?.as_ref());
        let all = QueryWords::merged(&known.collect::<Option<Vec<&QueryWords>>>()?)?;
        Some((places, all))
    };
    by_query.into_values().filter_map(known).collect()
}

/// Takes out the answers that would have been others by the words of all instances together. Their queries have those words
/// from then on. Instances that do not say what they know, since they are of another make, are left as they are.
pub(super) fn take_unsettled(answered: &mut Vec<Answered>, known: &[KnownQuery]) -> Vec<Answered> {
    let mut is_unsettled = vec![false; answered.len()];
    for (places, all) in known {
        let mut shared: Option<Arc<QueryWords>> = None;
        for (at, number) in places {
            let answer = &mut answered[*at];
            let stays = match (&answer.queries[*number].words, &answer.part.words[*number]) {
                (Some(used), _) => used.answers_as(all),
                (None, Some(own)) => own.would_answer_by(all),
                (None, None) => true,
            };
            if !stays {
                let words = shared.get_or_insert_with(|| Arc::new(all.clone()));
                answer.queries[*number].words = Some(words.clone());
                is_unsettled[*at] = true;
            }
        }
    }
    let mut unsettled = is_unsettled.iter();
    let (again, settled) = std::mem::take(answered).into_iter().partition(|_| unsettled.next() == Some(&true));
    *answered = settled;
    again
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::search::params::many::QueryParams;

    fn answered(own_words: &[Option<bool>], given: usize) -> Vec<Answered> {
        let one = |word: &Option<bool>| {
            let words = word.map(|word| {
                let node = json!({"text": "w", "is_prefix": false, "facts": {"word": word, "many": false}});
                serde_json::from_value(json!({"nodes": [node]})).unwrap()
            });
            let query =
                Routed { query: QueryParams::default(), given, candidates: vec![None], shard: None, words: None };
            Answered { queries: vec![query], part: Part { words: vec![words], ..Part::default() } }
        };
        own_words.iter().map(one).collect()
    }

    fn unsettled(all: &mut Vec<Answered>) -> Vec<Answered> {
        let known = known_queries(all);
        take_unsettled(all, &known)
    }

    /// Who lacks a word that others have is asked again, by the words of all, and only once.
    #[test]
    fn who_would_have_answered_otherwise_is_asked_again() {
        let mut all = answered(&[Some(true), Some(false)], 0);
        let again = unsettled(&mut all);
        assert_eq!((all.len(), again.len()), (1, 1));
        let words = again[0].queries[0].words.as_ref().unwrap();
        assert!(all[0].part.words[0].as_ref().is_some_and(|own| own.answers_as(words)));
        all.extend(again);
        assert!(unsettled(&mut all).is_empty());
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn queries_have_words_of_their_own_and_who_knows_none_is_left_alone() {
        let mut all = answered(&[Some(true)], 0);
        all.extend(answered(&[Some(false)], 1));
        assert!(unsettled(&mut all).is_empty());
        let mut all = answered(&[Some(true), None, Some(false)], 0);
        assert!(unsettled(&mut all).is_empty());
        assert_eq!(all.len(), 3);
    }
}
