//! Documents in front of the page. Buckets that end before it are not ordered further: their documents come by number, and count by
//! the score of the rules that made the bucket. That shows in totals under a threshold, and in which document of a distinct group
//! is taken.

use ahash::AHashSet;

use super::merge::{DOCS_PER_LOOK, Grouped, MergeLimits};
use super::part::{Pacer, pause};
use crate::facets::distinct::GroupValue;
use crate::rank::{RankPlan, RankedDoc};

/// Which of the documents that are merged are in such a bucket.
pub(super) struct PassedOver<'p> {
    plan: &'p RankPlan,
    /// Documents in front of the page.
    offset: usize,
    /// Documents that are left of the bucket, and the rules that made it.
    bucket: Option<(usize, usize)>,
    /// The document before the next one.
    last: Option<RankedDoc>,
}

impl<'p> PassedOver<'p> {
    /// For an order by `plan`, where the limits ask for it.
    pub fn new(plan: &'p RankPlan, limits: MergeLimits) -> Self {
        let offset = if limits.passes_over { usize::try_from(limits.page.0).unwrap_or(usize::MAX) } else { 0 };
        Self { plan, offset, bucket: None, last: None }
    }

    /// Looks at what comes next, in order, after so many documents that stay. Where that begins with a bucket that ends before the
    /// page, puts it in the order of its documents' numbers.
    pub async fn look_ahead(
        &mut self,
        next: &mut [Grouped],
        kept: usize,
        taken: &AHashSet<GroupValue>,
        pacer: &dyn Pacer,
    ) {
        let Some((first, _)) = next.first().filter(|_| self.bucket.is_none() && kept < self.offset) else { return };
        if first.skipped {
            return;
        }
        let (rules, room) = (self.plan.rules.rules.len(), self.offset - kept);
        // Buckets that the document before is in, too, were found to reach into the page.
        let in_bucket = |count: &usize| match &self.last {
            Some(last) => self.plan.compare_rules(last, first, *count).is_eq(),
            None => false,
        };
        for count in (1..rules).skip_while(in_bucket) {
            if let Some(len) = self.bucket_len(next, count, room, taken, pacer).await {
                next[..len].sort_unstable_by_key(|(doc, _)| doc.doc);
                self.bucket = Some((len, count));
                return;
            }
        }
    }

    /// Documents of the bucket of the first `count` rules that `next` begins with, if fewer than `room` of them may stay.
    async fn bucket_len(
        &self,
        next: &[Grouped],
        count: usize,
        room: usize,
        taken: &AHashSet<GroupValue>,
        pacer: &dyn Pacer,
    ) -> Option<usize> {
        let (first, mut staying) = (&next[0].0, 0);
        for (at, (doc, groups)) in next.iter().enumerate() {
            if at % DOCS_PER_LOOK == 0 {
                pause(pacer).await;
            }
            if doc.skipped || self.plan.compare_rules(doc, first, count).is_ne() {
                return Some(at);
            }
            staying += usize::from(!groups.iter().any(|group| taken.contains(group)));
            if staying >= room {
                return None;
            }
        }
        Some(next.len())
    }

    /// Takes the next document: by how many rules it counts, if not by all.
    pub fn take(&mut self, doc: &RankedDoc) -> Option<usize> {
        if self.offset == 0 {
            return None;
        }
        self.last = Some(doc.clone());
        let (left, rules) = self.bucket?;
        self.bucket = (left > 1).then_some((left - 1, rules));
        Some(rules)
    }
}
