//! The documents that partitions did not rank because they are below the least score, in their places between those that they did.

use std::vec::IntoIter;

use super::messages::RankedReply;
use super::part::{Pacer, pause};
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::rank::{DroppedBucket, RankPlan, RankedDoc};

/// Documents that are taken between two looks at whether others wait.
const DOCS_PER_LOOK: usize = 1024;

/// Those of all partitions.
pub(super) struct Below {
    /// In order, each with its partition.
    buckets: IntoIter<(PartitionNo, DroppedBucket)>,
    partition_count: u16,
}

impl Below {
    /// Takes them out of the replies, which are those of all partitions.
    pub fn new(plan: &RankPlan, replies: &mut [RankedReply]) -> Self {
        let partition_count = replies.len() as u16;
        let of = |(number, reply): (usize, &mut RankedReply)| {
            let number = PartitionNo(number as u16);
            std::mem::take(&mut reply.part.dropped).into_iter().map(move |bucket| (number, bucket))
        };
        let mut buckets: Vec<_> = replies.iter_mut().enumerate().flat_map(of).collect();
        // All were made by as many rules. Those of a partition are in order, so that few comparisons are made.
        buckets.sort_by(|(_, a), (_, b)| plan.compare_rules(&a.first, &b.first, a.rules));
        Self { buckets: buckets.into_iter(), partition_count }
    }

    /// Whether any are left of the bucket of the first `count` rules that a document is in.
    pub fn has_some_of(&self, plan: &RankPlan, doc: &RankedDoc, count: usize) -> bool {
        let left = self.buckets.as_slice();
        let at =
            left.partition_point(|(_, bucket)| plan.compare_rules(&bucket.first, doc, count.min(bucket.rules)).is_lt());
        let next = left.get(at).filter(|(_, bucket)| count < bucket.rules);
        next.is_some_and(|(_, bucket)| plan.compare_rules(&bucket.first, doc, count).is_eq())
    }

    /// Adds to `dropped` all that come before a document, or all that are left. Returns whether there were any.
    pub async fn take_before(
        &mut self,
        plan: &RankPlan,
        doc: Option<&RankedDoc>,
        dropped: &mut Vec<DocId>,
        pacer: &dyn Pacer,
    ) -> bool {
        let before = dropped.len();
        while let Some((_, next)) = self.buckets.as_slice().first() {
            if doc.is_some_and(|doc| !doc.skipped && plan.compare_rules(&next.first, doc, next.rules).is_gt()) {
                break;
            }
            let Some((partition, bucket)) = self.buckets.next() else { break };
            for (at, doc) in bucket.docs.into_iter().enumerate() {
                dropped.push(LocalDocId(doc).global(partition, self.partition_count));
                if at % DOCS_PER_LOOK == 0 {
                    pause(pacer).await;
                }
            }
        }
        dropped.len() > before
    }
}
