//! Sends questions to the partitions of an index, from the core that received the request.

use std::future::Future;
use std::pin::Pin;

use futures_util::future::try_join_all;
use storage_engine::vector::Pace;

use super::answer::SearchError;
use super::messages::{PartQuestion, PartReply};
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::runtime::pause_at;

/// Documents that are sorted by owner, and back, between two looks at whether others wait.
const DOCS_PER_LOOK: usize = 256;

/// Asks partitions of the index, wherever they are.
pub trait Ask {
    /// Sends a question to one partition and waits for its reply.
    fn ask<'a>(
        &'a self,
        partition: PartitionNo,
        question: PartQuestion,
    ) -> Pin<Box<dyn Future<Output = Result<PartReply, SearchError>> + 'a>>;

    /// The numbers of documents by external id, in the order given.
    fn find<'a>(&'a self, ids: Vec<String>) -> Pin<Box<dyn Future<Output = Result<Numbers, SearchError>> + 'a>>;

    /// How the core that asks gives way.
    fn pace(&self) -> &dyn Pace;
}

/// For each id that was asked for its document's number, when the index has it.
pub type Numbers = Vec<Option<DocId>>;

/// Asks each partition about those of the documents that it owns, and gives the replies in the order of the documents.
/// Gives way to others.
pub(super) async fn by_owner<I, R>(
    partitions: u16,
    ask: &dyn Ask,
    docs: Vec<(DocId, I)>,
    question: impl Fn(Vec<(LocalDocId, I)>) -> PartQuestion,
    replies: impl Fn(PartReply) -> Option<Vec<R>>,
) -> Result<Vec<R>, SearchError> {
    let (mut owners, mut counts) = (Vec::with_capacity(docs.len()), vec![0; usize::from(partitions)]);
    for (at, (doc, _)) in docs.iter().enumerate() {
        let owner = doc.partition(partitions).0;
        counts[usize::from(owner)] += 1;
        owners.push(owner);
        pause_at(at + 1, DOCS_PER_LOOK, ask.pace()).await;
    }
    // A buffer that grows is copied at once.
    let mut owned: Vec<Vec<(LocalDocId, I)>> = counts.into_iter().map(Vec::with_capacity).collect();
    for (at, (owner, (doc, item))) in owners.iter().zip(docs).enumerate() {
        owned[usize::from(*owner)].push((doc.local(partitions), item));
        pause_at(at + 1, DOCS_PER_LOOK, ask.pace()).await;
    }
    let asked = owned.into_iter().enumerate().filter(|(_, docs)| !docs.is_empty());
    let asked = asked.map(|(number, docs)| {
        let reply = ask.ask(PartitionNo(number as u16), question(docs));
        async move { reply.await.map(|reply| (number, reply)) }
    });
    let mut found: Vec<_> = (0..partitions).map(|_| Vec::new().into_iter()).collect();
    for (number, reply) in try_join_all(asked).await? {
        found[number] = replies(reply).ok_or_else(unexpected)?.into_iter();
    }
    let mut all = Vec::with_capacity(owners.len());
    for owner in owners {
        all.push(found[usize::from(owner)].next().ok_or_else(unexpected)?);
        pause_at(all.len(), DOCS_PER_LOOK, ask.pace()).await;
    }
    Ok(all)
}

/// The error for a reply of another kind than its question.
pub(super) fn unexpected() -> SearchError {
    SearchError::Partition("a partition's reply does not fit its question".into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_lite::future::block_on;

    use super::*;
    use crate::facets::test_support::Pauses;

    /// Partitions that answer with the numbers of the documents.
    #[derive(Default)]
    struct Echo(Pauses);

    impl Ask for Echo {
        fn ask<'a>(
            &'a self,
            partition: PartitionNo,
            question: PartQuestion,
        ) -> Pin<Box<dyn Future<Output = Result<PartReply, SearchError>> + 'a>> {
            let PartQuestion::Values { docs, .. } = question else { unreachable!("only values are asked for") };
            let global = |doc: LocalDocId| doc.global(partition, 3).0.to_string().into_bytes();
            let written = docs.into_iter().map(global).collect();
            Box::pin(std::future::ready(Ok(PartReply::Hits(written))))
        }

        fn find<'a>(&'a self, _: Vec<String>) -> Pin<Box<dyn Future<Output = Result<Numbers, SearchError>> + 'a>> {
            unreachable!("no ids are asked for")
        }

        fn pace(&self) -> &dyn Pace {
            &self.0
        }
    }

    /// The hits of a page of hundreds of thousands were once sorted by owner, and back, without a pause.
    #[test]
    fn sorting_by_owner_gives_way() {
        let (echo, numbers) = (Echo::default(), || (0..10_000u32).map(|at| at.wrapping_mul(7919) % 10_000));
        let docs = numbers().map(|number| (DocId(number), ())).collect();
        let question = |docs: Vec<(_, ())>| {
            let docs = docs.into_iter().map(|(doc, ())| doc).collect();
            PartQuestion::Values { paths: Arc::default(), docs }
        };
        let hits = |reply| if let PartReply::Hits(hits) = reply { Some(hits) } else { None };
        let found = block_on(by_owner(3, &echo, docs, question, hits)).unwrap();
        assert!(found.into_iter().eq(numbers().map(|number| number.to_string().into_bytes())));
        assert!(echo.0.0.get() >= 3 * (10_000 / DOCS_PER_LOOK), "{}", echo.0.0.get());
    }
}
