//! Sends questions to the partitions of an index, from the core that received the request.

use std::future::Future;
use std::pin::Pin;

use futures_util::future::try_join_all;

use super::answer::SearchError;
use super::messages::{PartQuestion, PartReply};
use crate::ids::{DocId, LocalDocId, PartitionNo};

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
}

/// For each id that was asked for its document's number, when the index has it.
pub type Numbers = Vec<Option<DocId>>;

/// Asks each partition about those of the documents that it owns, and gives the replies in the order of the documents.
pub(super) async fn by_owner<I: Clone, R>(
    partitions: u16,
    ask: &dyn Ask,
    docs: Vec<(DocId, I)>,
    question: impl Fn(Vec<(LocalDocId, I)>) -> PartQuestion,
    replies: impl Fn(PartReply) -> Option<Vec<R>>,
) -> Result<Vec<R>, SearchError> {
    let owners: Vec<usize> = docs.iter().map(|(doc, _)| usize::from(doc.partition(partitions).0)).collect();
    let mut owned: Vec<Vec<(LocalDocId, I)>> = vec![Vec::new(); usize::from(partitions)];
    for (owner, (doc, item)) in owners.iter().zip(docs) {
        owned[*owner].push((doc.local(partitions), item));
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
    owners.iter().map(|owner| found[*owner].next()).collect::<Option<Vec<_>>>().ok_or_else(unexpected)
}

/// The error for a reply of another kind than its question.
pub(super) fn unexpected() -> SearchError {
    SearchError::Partition("a partition's reply does not fit its question".into())
}
