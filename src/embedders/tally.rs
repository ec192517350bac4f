//! Counts embedding requests made for batches.

use futures_util::future::LocalBoxFuture;
use shards::runtime::Nanos;

use crate::tasks::batch::EmbedderRequests;

/// Counts requests for the batch in progress.
pub trait Tally {
    /// Adds requests. They are counted once the future has ended: work that waits for it is never ahead of its count.
    fn tell(&self, requests: EmbedderRequests) -> LocalBoxFuture<'static, ()>;
}

/// For whom vectors are made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'a> {
    /// A batch: its requests are counted, under this name of the embedder.
    Batch(&'a str),
    /// A search: no failed request is repeated after this moment.
    Search(Nanos),
}

impl Purpose<'_> {
    /// When it is too late to try again.
    pub(super) fn give_up(self) -> Option<Nanos> {
        match self {
            Self::Batch(_) => None,
            Self::Search(moment) => Some(moment),
        }
    }
}
