//! Starts a coarse bucket: records what scores need, and takes its documents from a champion list if one applies.

use std::rc::Rc;

use roaring::RoaringBitmap;

use super::select::SelectWork;
use super::{DroppedBucket, ListWork, Ranker, SETTLED_DOCS};
use crate::rank::bucket::{BucketWork, Found, Order};
use crate::rank::champions::{Champions, DecidingTerm, deciding_term, docs_of, list_len};
use crate::rank::coarse::CoarseBucket;
use crate::rank::evaluate::Evaluator;
use crate::rank::paths::{Path, Walk, visit};
use crate::rank::plan::{Costs, RankedDoc};
use crate::rank::rules::Rule;

/// Paths of one bucket that are told apart; a query of ten words can have thousands, of which documents use a few.
const PATHS_MAX: usize = 512;

impl Ranker {
    /// Makes the bucket the one that is worked on, unless a champion list has its best documents already, or is made first.
    pub(super) fn start_bucket(&mut self, bucket: CoarseBucket) {
        let classes = self.plan.rules.rules.contains(&Rule::Typo);
        let paths = self.visit(bucket.words.unwrap_or(0), classes, bucket.typos, &bucket.docs);
        let term = deciding_term(&self.plan, &paths);
        let list = term.and_then(|term| self.source.champions()?.get(&self.plan, term));
        if list.as_ref().is_some_and(|list| self.take_champions(list, &bucket)) {
            return;
        }
        let evaluator = Evaluator::new(self.plan.clone(), self.source.clone(), self.node_docs.clone(), paths);
        if let Some(term) = term.filter(|term| list.is_none() && self.should_list(*term, &bucket)) {
            let docs = docs_of(term, &self.node_docs).iter().collect();
            let work = BucketWork::new(docs, evaluator, list_len(self.plan.wanted), false, self.leading_sorts);
            self.list = Some(ListWork { term, work, listed: Order::default(), bucket });
            return;
        }
        // Of the bucket in which the wanted ones end, all may be asked for.
        let wanted = self.plan.wanted.saturating_sub(self.out.len());
        let docs: Vec<u32> = bucket.docs.iter().collect();
        if let Some(selection) = self.selection(docs.len(), wanted, evaluator.path_count()) {
            self.select = Some(SelectWork::new(selection, docs, evaluator, wanted, self.plan.one_per_group));
            return;
        }
        let wanted = if self.plan.whole_buckets && !self.plan.one_per_group { usize::MAX } else { wanted };
        self.bucket = Some(BucketWork::new(docs, evaluator, wanted, self.plan.one_per_group, self.leading_sorts));
    }

    /// Whether a bucket is below the least score, so that it need not be ranked. Those around it, of fewer rules, must then reach into the
    /// page, if only by the documents of this partition.
    pub(super) fn drops(&self, bucket: &CoarseBucket) -> bool {
        let (Some(best), Some(least), Some(work)) = (&self.best_scores, &self.plan.least_score, &self.group) else {
            return false;
        };
        let by_words = bucket.words.is_some() && bucket.typos.is_some();
        let reaches = |is_around: bool, len: u64| !is_around || len >= least.in_front;
        best.is_below(bucket)
            && reaches(self.leading_sorts > 0, work.group.docs.len())
            && reaches(by_words, work.words_len)
    }

    /// Leaves out such a bucket, and with it all that come behind it in its group: these are below by their dropped terms or typos alone.
    pub(super) fn drop_rest(&mut self, bucket: CoarseBucket) {
        let Some(work) = &mut self.group else { return };
        let costs: Costs = bucket.words.into_iter().chain(bucket.typos).collect();
        let rules = self.leading_sorts + costs.len();
        let (doc, sorts) = (bucket.docs.min().unwrap_or_default(), work.group.sorts.clone());
        let mut docs = bucket.docs;
        // What is in no bucket otherwise is not ranked at all.
        if bucket.words.is_some() {
            docs |= work.coarse.take_rest();
        }
        self.dropped_docs |= &docs;
        let first = RankedDoc { doc: self.global(doc), costs, sorts, skipped: false };
        self.dropped.push(DroppedBucket { first, rules, docs });
    }

    /// Takes a bucket's best documents from the champion list of the term that decides their order; false when it is too short.
    fn take_champions(&mut self, list: &Champions, bucket: &CoarseBucket) -> bool {
        let room = self.plan.wanted.saturating_sub(self.out.len());
        let Some(found) = list.of_bucket(&bucket.docs, room) else { return false };
        self.cut |= (found.len() as u64) < bucket.docs.len();
        let words = self.plan.cost_index(Rule::Words);
        for (doc, costs) in found {
            let mut costs = costs.clone();
            if let Some(words) = words {
                costs[words] = bucket.words.unwrap_or(0);
            }
            let doc = RankedDoc { doc: self.global(*doc), costs, sorts: Vec::new(), skipped: false };
            self.out.push(Found { doc, values: Vec::new() });
        }
        true
    }

    fn should_list(&self, term: DecidingTerm, bucket: &CoarseBucket) -> bool {
        let Some(lists) = self.source.champions() else { return false };
        lists.should_make(&self.plan, term, bucket.docs.len(), self.node_docs.class(term.at, term.class).len())
    }

    /// Goes on with a champion list, and with the bucket that waits for it once it is done.
    pub(super) fn list_chunk(&mut self, mut list: ListWork) {
        if list.work.done < list.work.docs.len() {
            self.evaluate_chunk(&mut list.work);
            self.list = Some(list);
        } else if list.work.settle(SETTLED_DOCS, &self.plan, &mut self.taken, &mut list.listed) {
            self.list = Some(list);
        } else {
            let local = |ranked: RankedDoc| (ranked.doc.local(self.partition_count).0, ranked.costs);
            let docs = list.listed.docs.into_iter().map(local).collect();
            let champions = Champions { docs, whole: !list.work.cut };
            if let Some(lists) = self.source.champions() {
                lists.keep(&self.plan, list.term, Rc::new(champions));
            }
            self.start_bucket(list.bucket);
        }
    }

    fn visit(&self, words: u32, classes: bool, typos: Option<u32>, docs: &RoaringBitmap) -> Vec<(Path, RoaringBitmap)> {
        let walk = Walk { classes, words: Some(words), typos };
        visit(&self.plan.graph, &self.node_docs, walk, docs, PATHS_MAX)
    }

    /// Tells which paths the documents use that lack as many terms as those of `bucket`: each the first it satisfies.
    pub(super) fn note_used_paths(&mut self, bucket: &CoarseBucket) {
        let Some(work) = &mut self.group else { return };
        let (Some(words), Some(walker)) = (bucket.words, &mut work.words) else { return };
        if words < work.words_next {
            return;
        }
        let sorts = work.group.sorts.clone();
        let mut docs = RoaringBitmap::new();
        while let Some(found) = walker.next_bucket() {
            if found.words == Some(words) {
                docs = found.docs;
                break;
            }
        }
        (work.words_next, work.words_len) = (words + 1, docs.len());
        for (path, with) in self.visit(words, false, None, &docs) {
            if !docs.is_disjoint(&with) {
                docs -= with;
                self.facts.used.push((sorts.clone(), words, path));
            }
        }
    }
}
