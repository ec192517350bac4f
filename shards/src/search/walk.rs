//! The order in which a search visits ranked documents. Buckets that end before the page are not sorted further: their documents
//! come in the order of their numbers and have the score of the rules that made the bucket. This affects totals with a threshold,
//! and which document of a distinct group is taken.

use std::cmp::Ordering;
use std::vec::IntoIter;

use ahash::AHashSet;

use super::below::Below;
use super::merge::{DOCS_PER_LOOK, Grouped, MergeLimits};
use super::part::Pacer;
use crate::facets::distinct::GroupValue;
use crate::rank::runs::Runs;
use crate::rank::{RankPlan, RankedDoc};
use crate::runtime::pause;

/// Documents as they are met.
pub(super) struct Walk<'p> {
    plan: &'p RankPlan,
    ranked: IntoIter<Grouped>,
    /// Documents in front of the page.
    offset: usize,
    /// What is left of a bucket in front of the page, and the rules that made it.
    bucket: Option<(Runs<Grouped>, usize)>,
    /// The document met last, in front of the page.
    last: Option<RankedDoc>,
}

impl<'p> Walk<'p> {
    /// Over documents that are in order by `plan`. All are met in that order where the limits do not ask for another.
    pub fn new(plan: &'p RankPlan, limits: MergeLimits, ranked: Vec<Grouped>) -> Self {
        let offset = if limits.passes_over { usize::try_from(limits.page.0).unwrap_or(usize::MAX) } else { 0 };
        Self { plan, ranked: ranked.into_iter(), offset, bucket: None, last: None }
    }

    /// The next document, after so many that stay and have taken these groups, and by how many rules it counts, if not by all.
    pub async fn next(
        &mut self,
        kept: usize,
        (taken, below): (&AHashSet<GroupValue>, &Below),
        pacer: &dyn Pacer,
    ) -> Option<(Grouped, Option<usize>)> {
        if kept >= self.offset && self.bucket.is_none() {
            return self.ranked.next().map(|doc| (doc, None));
        }
        if self.bucket.is_none() {
            self.begin_bucket(self.offset - kept, (taken, below), pacer).await;
        }
        let next = match &mut self.bucket {
            Some((documents, rules)) => (documents.pop(by_number)?, Some(*rules)),
            None => (self.ranked.next()?, None),
        };
        self.bucket.take_if(|(documents, _)| documents.peek().is_none());
        self.last = Some(next.0.0.clone());
        Some(next)
    }

    /// Takes the bucket that comes next, if fewer than `room` of its documents may stay.
    async fn begin_bucket(&mut self, room: usize, (taken, below): (&AHashSet<GroupValue>, &Below), pacer: &dyn Pacer) {
        let Some((first, _)) = self.ranked.as_slice().first().filter(|(first, _)| !first.skipped) else { return };
        // Buckets that the document before is in, too, were found to reach into the page.
        let is_begun = |count: &usize| match &self.last {
            Some(last) => self.plan.compare_rules(last, first, *count).is_eq(),
            None => false,
        };
        // So do those of which a partition has dropped some.
        let is_known = |count: &usize| is_begun(count) || below.has_some_of(self.plan, first, *count);
        for count in (1..self.plan.rules.rules.len()).skip_while(is_known) {
            let Some(mut left) = self.bucket_len(count, room, taken, pacer).await else { continue };
            let mut documents = Runs::default();
            while left > 0 {
                let mut run: Vec<Grouped> = self.ranked.by_ref().take(left.min(DOCS_PER_LOOK)).collect();
                left -= run.len();
                run.sort_unstable_by(by_number);
                documents.push(run, by_number);
                pause(pacer).await;
            }
            self.bucket = Some((documents, count));
            return;
        }
    }

    /// Documents of the bucket of the first `count` rules that comes next, if fewer than `room` of them may stay.
    async fn bucket_len(
        &self,
        count: usize,
        room: usize,
        taken: &AHashSet<GroupValue>,
        pacer: &dyn Pacer,
    ) -> Option<usize> {
        let next = self.ranked.as_slice();
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
}

fn by_number(a: &Grouped, b: &Grouped) -> Ordering {
    a.0.doc.cmp(&b.0.doc)
}
