//! What is left of searches once further members of distinct groups, as far as these were met, and documents below the score
//! threshold are taken away.

use std::sync::Arc;

use futures_util::future::try_join_all;
use roaring::RoaringBitmap;

use super::answer::SearchError;
use super::gather::{Ask, unexpected};
use super::merge::Ranked;
use super::messages::{NarrowQuestion, PartQuestion, PartReply};
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::ids::{DocId, PartitionNo};

/// Counts the documents that are left of several searches of one index together, each document once, and their facets.
pub(super) async fn narrow(
    partitions: u16,
    ask: &dyn Ask,
    searches: &[&Ranked],
    facets: Option<Arc<FacetPlan>>,
) -> Result<(u64, FacetCounts), SearchError> {
    let mut asked: Vec<Vec<NarrowQuestion>> = vec![Vec::with_capacity(searches.len()); usize::from(partitions)];
    for ranked in searches {
        asked.iter_mut().zip(questions(ranked, partitions)).for_each(|(questions, question)| questions.push(question));
    }
    let asked = asked.into_iter().enumerate().map(|(number, searches)| {
        ask.ask(PartitionNo(number as u16), PartQuestion::Narrow { searches, facets: facets.clone() })
    });
    let (mut total, mut counts) = (0, FacetCounts::default());
    for reply in try_join_all(asked).await? {
        let PartReply::Narrowed(left, facets) = reply else { return Err(unexpected()) };
        total += left;
        counts.merge(&facets);
    }
    Ok((total, counts))
}

/// What each partition is told of a search.
pub(super) fn questions(ranked: &Ranked, partitions: u16) -> impl Iterator<Item = NarrowQuestion> {
    let kept = split(ranked.docs.iter().map(|hit| hit.doc), partitions);
    let dropped = split(ranked.removed.dropped.iter().copied(), partitions);
    let values = Arc::new(ranked.removed.values.clone());
    kept.into_iter().zip(dropped).map(move |(kept, dropped)| NarrowQuestion {
        ranked: ranked.question.clone(),
        values: values.clone(),
        kept,
        dropped,
        only_kept: ranked.removed.only_kept,
        without_lost: ranked.removed.lost,
    })
}

/// Documents by the partition that owns them.
fn split(docs: impl Iterator<Item = DocId>, partitions: u16) -> Vec<RoaringBitmap> {
    let mut parts = vec![RoaringBitmap::new(); usize::from(partitions)];
    for doc in docs {
        parts[usize::from(doc.partition(partitions).0)].insert(doc.local(partitions).0);
    }
    parts
}
