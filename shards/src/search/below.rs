//! The documents that partitions did not rank because they are below the least score, in their places between those that they did.

use std::vec::IntoIter;

use super::messages::RankedReply;
use super::part::{Pacer, free_in_steps};
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::rank::{DroppedBucket, RankPlan, RankedDoc};
use crate::runtime::pause;

/// Documents that are taken between two looks at whether others wait.
const DOCS_PER_LOOK: usize = 1024;

/// Those of all partitions.
pub(super) struct Below {
    /// Of each partition, in order. There can be one for every value of a sort rule.
    buckets: Vec<IntoIter<DroppedBucket>>,
}

impl Below {
    /// Takes them out of the replies, which are those of all partitions.
    pub fn new(replies: &mut [RankedReply]) -> Self {
        let of = |reply: &mut RankedReply| std::mem::take(&mut reply.part.dropped).into_iter();
        Self { buckets: replies.iter_mut().map(of).collect() }
    }

    /// Whether any are left of the bucket of the first `count` rules that a document is in.
    pub fn has_some_of(&self, plan: &RankPlan, doc: &RankedDoc, count: usize) -> bool {
        self.buckets.iter().any(|of_partition| {
            let left = of_partition.as_slice();
            let order = |bucket: &DroppedBucket| plan.compare_rules(&bucket.first, doc, count.min(bucket.rules));
            let next = left.get(left.partition_point(|bucket| order(bucket).is_lt()));
            next.is_some_and(|bucket| count < bucket.rules && order(bucket).is_eq())
        })
    }

    /// Adds to `dropped` all that come before a document, or all that are left. Returns whether there were any.
    pub async fn take_before(
        &mut self,
        plan: &RankPlan,
        doc: Option<&RankedDoc>,
        dropped: &mut Vec<DocId>,
        pacer: &dyn Pacer,
    ) -> bool {
        let (before, count) = (dropped.len(), self.buckets.len() as u16);
        let is_behind = |bucket: &DroppedBucket| {
            doc.is_some_and(|doc| !doc.skipped && plan.compare_rules(&bucket.first, doc, bucket.rules).is_gt())
        };
        for (number, of_partition) in (0..).map(PartitionNo).zip(&mut self.buckets) {
            while of_partition.as_slice().first().is_some_and(|bucket| !is_behind(bucket))
                && let Some(bucket) = of_partition.next()
            {
                for (at, doc) in bucket.docs.into_iter().enumerate() {
                    dropped.push(LocalDocId(doc).global(number, count));
                    if at % DOCS_PER_LOOK == 0 {
                        pause(pacer).await;
                    }
                }
            }
        }
        dropped.len() > before
    }

    /// Frees those that are left, in steps.
    pub async fn free(self, pacer: &dyn Pacer) {
        free_in_steps(self.buckets.into_iter().flatten(), pacer).await;
    }
}
