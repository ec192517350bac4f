//! Narrows search results: removes further members of distinct groups, as far as these were encountered, and documents below the
//! score threshold.

use std::sync::Arc;

use futures_util::future::try_join_all;
use roaring::RoaringBitmap;

use super::answer::SearchError;
use super::ask::{Ask, unexpected};
use super::merge::Ranked;
use super::messages::{MergeLosses, NarrowLists, NarrowQuestion, PartQuestion, PartReply};
use super::part::Pacer;
use crate::facets::distinct::GroupValue;
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::ids::{DocId, PartitionNo};
use crate::runtime::pause;

/// Documents that are told apart by partition between two looks at whether others wait.
const DOCS_PER_LOOK: usize = 256;

/// What the lists of a search lost when they became one, for all partitions.
#[derive(Default)]
pub(super) struct Losses {
    /// Documents that are not counted.
    pub dropped: Vec<DocId>,
    /// The distinct field and those of its values whose documents are not counted either.
    pub groups: Option<Arc<(Arc<str>, Vec<GroupValue>)>>,
    /// The documents that stay, whatever the lists have left of these groups.
    pub kept: Vec<DocId>,
}

/// The lists of a search, and what they lost when they became one.
pub(super) type Lists<'r> = (Vec<&'r Ranked>, &'r Losses);

/// Counts the documents that are left of several searches of one index together, each document once, and their facets.
pub(super) async fn narrow(
    (partitions, ask): (u16, &dyn Ask),
    searches: &[Lists<'_>],
    facets: Option<Arc<FacetPlan>>,
    pacer: &dyn Pacer,
) -> Result<(u64, FacetCounts), SearchError> {
    let mut asked: Vec<Vec<NarrowLists>> = vec![Vec::with_capacity(searches.len()); usize::from(partitions)];
    for (lists, losses) in searches {
        let dropped = split(losses.dropped.iter().copied(), partitions, pacer).await;
        let kept = split(losses.kept.iter().copied(), partitions, pacer).await;
        for (searches, (dropped, kept)) in asked.iter_mut().zip(dropped.into_iter().zip(kept)) {
            let merged = MergeLosses { dropped, groups: losses.groups.clone(), kept };
            searches.push(NarrowLists { lists: Vec::with_capacity(lists.len()), merged });
        }
        for ranked in lists {
            let told = questions(ranked, partitions, pacer).await;
            let last = asked.iter_mut().filter_map(|searches| searches.last_mut());
            last.zip(told).for_each(|(search, question)| search.lists.push(question));
        }
    }
    let (total, mut counts) = ask_to_narrow(ask, &asked, facets.clone()).await?;
    if let Some(plan) = facets.filter(|plan| FacetCounts::lack_strings(&parts_of(&counts), plan)) {
        let plan = FacetPlan { all_strings: true, ..FacetPlan::clone(&plan) };
        (_, counts) = ask_to_narrow(ask, &asked, Some(Arc::new(plan))).await?;
    }
    Ok((total, FacetCounts::merged(&parts_of(&counts), pacer).await))
}

fn parts_of(counts: &[Box<FacetCounts>]) -> Vec<&FacetCounts> {
    counts.iter().map(|counts| &**counts).collect()
}

async fn ask_to_narrow(
    ask: &dyn Ask,
    asked: &[Vec<NarrowLists>],
    facets: Option<Arc<FacetPlan>>,
) -> Result<(u64, Vec<Box<FacetCounts>>), SearchError> {
    let asked = asked.iter().cloned().enumerate().map(|(number, searches)| {
        ask.ask(PartitionNo(number as u16), PartQuestion::Narrow { searches, facets: facets.clone() })
    });
    let (mut total, mut counts) = (0, Vec::with_capacity(asked.len()));
    for reply in try_join_all(asked).await? {
        let PartReply::Narrowed(left, facets) = reply else { return Err(unexpected()) };
        total += left;
        counts.push(facets);
    }
    Ok((total, counts))
}

/// What each partition is told of a search.
pub(super) async fn questions(ranked: &Ranked, partitions: u16, pacer: &dyn Pacer) -> Vec<NarrowQuestion> {
    let staying = ranked.docs.iter().map(|hit| hit.doc).chain(ranked.removed.unplaced.iter().copied());
    let kept = split(staying, partitions, pacer).await;
    let dropped = split(ranked.removed.dropped.iter().copied(), partitions, pacer).await;
    let question = |(kept, dropped)| NarrowQuestion {
        ranked: ranked.question.clone(),
        values: ranked.removed.values.clone(),
        kept,
        dropped,
        only_kept: ranked.removed.only_kept,
        without_lost: ranked.removed.lost,
    };
    kept.into_iter().zip(dropped).map(question).collect()
}

/// Documents by the partition that owns them.
async fn split(docs: impl Iterator<Item = DocId>, partitions: u16, pacer: &dyn Pacer) -> Vec<RoaringBitmap> {
    let mut parts = vec![RoaringBitmap::new(); usize::from(partitions)];
    for (at, doc) in docs.enumerate() {
        parts[usize::from(doc.partition(partitions).0)].insert(doc.local(partitions).0);
        if at % DOCS_PER_LOOK == 0 {
            pause(pacer).await;
        }
    }
    parts
}
