//! Evaluates a chunk of a bucket's documents, including the values that order them.

use super::Ranker;
use crate::rank::bucket::{BucketWork, Found};
use crate::rank::evaluate::{Evaluator, OnPaths};
use crate::rank::plan::{RankedDoc, SortValue};
use crate::rank::score_facts::Profile;

/// Documents evaluated in a bucket's first step: the best of them let most of the others be passed over.
const FIRST_CHUNK_DOCS: usize = if cfg!(test) { 2 } else { 32 };
/// Documents evaluated in one step, at most, where there is one path; fewer where there are more.
const CHUNK_DOCS: usize = 1024;
/// The same where more is read of each than its places: values to sort by, values of groups, what scores need.
const READ_CHUNK_DOCS: usize = 512;

impl Ranker {
    /// Evaluates the next documents of a bucket. What cannot be read is kept as the search's fault.
    pub(super) fn evaluate_chunk(&mut self, bucket: &mut BucketWork) {
        let until = (bucket.done + self.chunk_docs(bucket)).min(bucket.docs.len());
        let bar = bucket.bar(&self.plan, &self.taken);
        let least = bar.as_ref().filter(|_| !self.plan.scores).and_then(|_| bucket.evaluator.least());
        if least.zip(bar.as_ref()).is_some_and(|(least, bar)| bar.len() == least.len() && *bar <= least) {
            // What was not evaluated yet comes behind what was.
            (bucket.cut, bucket.done) = (bucket.cut || bucket.done < bucket.docs.len(), bucket.docs.len());
            return;
        }
        let docs = &bucket.docs[bucket.done..until];
        bucket.done = until;
        let found = match self.plan.scores {
            true => bucket.evaluator.all(docs),
            false => {
                let found = bucket.evaluator.below(docs, bar.as_deref());
                bucket.cut |= found.len() < docs.len();
                found
            }
        };
        let numbers: Vec<u32> = found.iter().map(|found| docs[found.index]).collect();
        let Some(sorts) = self.read_sorts(&numbers) else { return };
        let alone = self.scores_alone(bucket.evaluator.path_count());
        let mut ranked = Vec::with_capacity(found.len());
        let mut met = Vec::with_capacity(found.len());
        for (at, mut found) in found.into_iter().enumerate() {
            let (sorts, paths) = (self.sorts_of(at, &sorts), std::mem::take(&mut found.paths));
            let doc = RankedDoc { doc: self.global(numbers[at]), costs: found.costs, sorts, skipped: false };
            let is_of_use = !bucket.is_behind_horizon(&doc, &self.plan);
            if self.plan.scores && (is_of_use || !alone) {
                self.note_profile(&doc, paths, &bucket.evaluator);
            }
            // The groups of others need not be read.
            if is_of_use {
                met.push(numbers[at]);
                ranked.push(doc);
            }
        }
        let Some(groups) = self.read_groups(&met) else { return };
        let mut groups = groups.into_iter();
        let found = ranked.into_iter().map(|doc| Found { doc, values: groups.next().unwrap_or_default() });
        bucket.add(found.collect(), &self.plan, &self.taken);
    }

    /// How many documents of the bucket the next step evaluates: more each time, since the first ones let others be passed over.
    fn chunk_docs(&self, bucket: &BucketWork) -> usize {
        let plan = &self.plan;
        let reads = plan.scores || plan.whole_buckets || plan.one_per_group || !plan.rules.sorts.is_empty();
        let most = if reads { READ_CHUNK_DOCS } else { CHUNK_DOCS };
        let most = (most / bucket.evaluator.path_count().max(1)).max(FIRST_CHUNK_DOCS);
        (bucket.done * 3).clamp(FIRST_CHUNK_DOCS.max(bucket.wanted().min(most)), most)
    }

    /// For each sort rule behind the leading ones the values, document by document. `None` when they cannot be read, which is kept
    /// as the search's fault.
    fn read_sorts(&mut self, docs: &[u32]) -> Option<Vec<Vec<SortValue>>> {
        let later = &self.plan.rules.sorts[self.leading_sorts..];
        let read = later.iter().map(|by| self.sorter.sort_values(by, docs)).collect::<Result<_, _>>();
        read.map_err(|fault| self.fault = Some(fault)).ok()
    }

    /// The values of one document under all sort rules: those of its group, then those read for it.
    fn sorts_of(&self, at: usize, later: &[Vec<SortValue>]) -> Vec<SortValue> {
        let mut sorts = Vec::new();
        if !self.plan.rules.sorts.is_empty() {
            let leading = self.group.as_ref().map_or(&[][..], |work| &work.group.sorts);
            sorts.extend(leading.iter().cloned());
            sorts.extend(later.iter().map(|column| column[at].clone()));
        }
        sorts
    }

    /// Keeps what the scores of a document that satisfies these paths follow from, once for all documents that are alike in it.
    fn note_profile(&mut self, doc: &RankedDoc, paths: OnPaths, evaluator: &Evaluator) {
        let paths = paths.into_iter();
        let paths = paths.map(|(number, costs, exact)| (evaluator.path(number).clone(), costs, exact)).collect();
        let profile = Profile { sorts: doc.sorts.clone(), costs: doc.costs.clone(), paths };
        if self.profiles.insert(profile.fingerprint()) {
            self.facts.profiles.push(profile);
        }
    }
}
