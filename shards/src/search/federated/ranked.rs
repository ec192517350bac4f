//! The queries of a federated search after ranking, with what their documents are scored by.

use std::sync::Arc;

use super::FederatedQuery;
use super::merge::Entry;
use crate::format::MatchWords;
use crate::query::QueryWords;
use crate::rank::score::Scorer;
use crate::rank::score_facts::ScoreFacts;
use crate::search::merge::Ranked;
use crate::search::narrow::Losses;
use crate::search::part::Pacer;

/// A query whose documents are in order.
pub(super) struct RankedQuery {
    pub(super) words: MatchWords,
    /// What this instance knows of the words, where others ask for that.
    pub(super) known: Option<QueryWords>,
    /// One, or two where words and meaning were searched for.
    pub(super) lists: Vec<Ranked>,
    /// What the two lost when they became one.
    pub(super) losses: Losses,
    pub(super) total: u64,
    /// The vector that was searched with.
    pub(super) vector: Option<Arc<[f32]>>,
    /// The hits in order, each by its list and its place there.
    pub(super) places: Vec<(usize, usize)>,
    pub(super) entries: Vec<Entry>,
    /// Whose score facts those of this query were added to, and how many these are.
    pub(super) joined: Option<(usize, (usize, usize))>,
}

impl RankedQuery {
    /// The list of the documents that were found by words.
    fn by_words(&self) -> Option<&Ranked> {
        self.lists.iter().find(|list| list.question.plan.vector.is_none())
    }

    fn by_words_mut(&mut self) -> Option<&mut Ranked> {
        self.lists.iter_mut().find(|list| list.question.plan.vector.is_none())
    }
}

/// Lets the shares of one search, if this instance has several, score by the documents of all of them: what scores follow from
/// is added to that of the first share.
pub(super) async fn join_score_facts(ranked: &mut [RankedQuery], queries: &[FederatedQuery], pacer: &dyn Pacer) {
    for (number, query) in queries.iter().enumerate().filter(|(_, query)| query.request.share.is_some()) {
        let Some(plan) = ranked[number].by_words().map(|list| list.question.plan.clone()) else { continue };
        let is_first = |(other, first): &(&FederatedQuery, &RankedQuery)| {
            let is_share = other.request.share.is_some() && other.index == query.index && first.joined.is_none();
            is_share && first.by_words().is_some_and(|list| list.question.plan == plan)
        };
        let Some(first) = queries.iter().zip(&*ranked).take(number).position(|share| is_first(&share)) else {
            continue;
        };
        let Some(list) = ranked[number].by_words_mut() else { continue };
        let facts = std::mem::take(&mut list.facts);
        ranked[number].joined = Some((first, facts.counts()));
        if let Some(list) = ranked[first].by_words_mut() {
            list.facts.add(facts, pacer).await;
        }
    }
}

/// What the documents of each list of a query are scored by.
pub(super) fn scorers(ranked: &[RankedQuery], number: usize) -> Vec<Scorer<'_>> {
    let query = &ranked[number];
    let joined = query.joined.and_then(|(first, _)| ranked[first].by_words());
    let other = |list: &Ranked| if list.question.plan.vector.is_none() { joined } else { None };
    query.lists.iter().map(|list| Scorer::new(&list.question.plan, &other(list).unwrap_or(list).facts)).collect()
}

/// What the scores of each query follow from, where others ask for that: of a share what its own documents say.
pub(super) async fn take_score_facts(ranked: &mut [RankedQuery], pacer: &dyn Pacer) -> Vec<ScoreFacts> {
    let mut told = vec![ScoreFacts::default(); ranked.len()];
    // What was added last is at the end.
    for number in (0..ranked.len()).rev() {
        if ranked[number].known.is_none() {
            continue;
        }
        let (first, counts) = ranked[number].joined.unwrap_or((number, (usize::MAX, usize::MAX)));
        if let Some(list) = ranked[first].by_words_mut() {
            told[number] = list.facts.take_last(counts, pacer).await;
        }
    }
    told
}
