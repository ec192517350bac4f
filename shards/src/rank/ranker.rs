//! Ranks the documents of one partition, best first and no more than are wanted, in steps of bounded work.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashSet;
use roaring::RoaringBitmap;

use super::classes::NodeDocs;
use super::coarse::{Coarse, CoarseBucket, candidates};
use super::evaluate::Evaluator;
use super::paths::{Path, Walk, visit};
use super::plan::{Costs, RankPlan, RankedDoc, SortBy, SortValue, near};
use super::rules::Rule;
use super::score::{Profile, ScoreFacts};
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::query::TermSource;
use crate::query::resolve::{Occurring, phrase_docs, word_docs};

/// Documents evaluated in a bucket's first step: the best of them let most of the others be passed over.
const FIRST_CHUNK_DOCS: usize = if cfg!(test) { 2 } else { 64 };
/// Documents evaluated in one step, at most.
const CHUNK_DOCS: usize = 2048;
/// Ranked documents are sorted out when there are this many more than wanted, at least.
const SURPLUS_MIN: usize = if cfg!(test) { 2 } else { 64 };
/// Paths of one bucket that are told apart; a query of ten words can have thousands, of which documents use a few.
const PATHS_MAX: usize = 512;

/// The values that documents of a partition are sorted by.
pub trait SortSource {
    /// For each of `docs` (local numbers, rising) its value under the criterion. Fails when the partition cannot be read.
    fn sort_values(&self, by: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String>;
}

/// What one partition answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankedPart {
    /// The best documents, in order.
    pub docs: Vec<RankedDoc>,
    /// How many documents the query admits.
    pub candidates: u64,
    /// How many of them no rule can place (see [`Ranker::lost`]); 0 where no scores were asked for.
    pub lost: u64,
    /// Whether `docs` has all that can be returned.
    pub complete: bool,
    /// What scores need, when they were asked for.
    pub facts: ScoreFacts,
}

/// The work of ranking one search on one partition.
pub struct Ranker {
    plan: Arc<RankPlan>,
    source: Rc<dyn TermSource>,
    sorter: Rc<dyn SortSource>,
    partition: PartitionNo,
    partition_count: u16,
    node_docs: Rc<NodeDocs>,
    candidates: Rc<RoaringBitmap>,
    /// Sort rules that come before any graph rule.
    leading_sorts: usize,
    groups: Option<VecDeque<Group>>,
    group: Option<GroupWork>,
    bucket: Option<BucketWork>,
    out: Vec<RankedDoc>,
    facts: ScoreFacts,
    profiles: AHashSet<u64>,
    /// Whether documents that can be returned were left out.
    cut: bool,
    fault: Option<String>,
}

struct Group {
    docs: Rc<RoaringBitmap>,
    sorts: Vec<SortValue>,
}

struct GroupWork {
    group: Group,
    coarse: Coarse,
    /// Walks the same documents by dropped terms only, to tell which paths they use.
    words: Option<Coarse>,
    words_next: u32,
}

struct BucketWork {
    docs: Vec<u32>,
    done: usize,
    evaluator: Evaluator,
    ranked: Vec<RankedDoc>,
    /// How many of its documents are of use.
    wanted: usize,
    /// Whether some were left out because better ones are enough.
    cut: bool,
}

impl Ranker {
    /// Starts: finds the candidates among `within`, the documents that pass the filter.
    pub fn new(
        plan: Arc<RankPlan>,
        source: Rc<dyn TermSource>,
        node_docs: Rc<NodeDocs>,
        sorter: Rc<dyn SortSource>,
        within: &RoaringBitmap,
        (partition, partition_count): (PartitionNo, u16),
    ) -> Self {
        let mut docs =
            if plan.graph.term_count == 0 { within.clone() } else { candidates(&plan.graph, &node_docs, within) };
        for negative in &plan.graph.negatives {
            match negative.0.as_slice() {
                [Some(word)] => docs -= &*word_docs(&*source, &plan.fields, word, Occurring::Anyhow),
                _ => docs -= phrase_docs(&*source, &plan.fields, negative, plan.by_attribute),
            }
        }
        let leading_sorts = plan.rules.rules.iter().take_while(|rule| !rule.is_graph()).count();
        Self {
            plan,
            source,
            sorter,
            partition,
            partition_count,
            node_docs,
            candidates: Rc::new(docs),
            leading_sorts,
            groups: None,
            group: None,
            bucket: None,
            out: Vec::new(),
            facts: ScoreFacts::default(),
            profiles: AHashSet::new(),
            cut: false,
            fault: None,
        }
    }

    /// The documents that the query admits.
    pub fn candidates(&self) -> &Rc<RoaringBitmap> {
        &self.candidates
    }

    /// The candidates that no rule can place: where terms are dropped but not by the first rule that reads the graph, only
    /// documents with all terms are ranked. The others are not returned, though they count among the candidates.
    pub fn lost(&self) -> RoaringBitmap {
        let first = self.plan.rules.rules.get(self.leading_sorts);
        if matches!(first, None | Some(Rule::Words)) {
            return RoaringBitmap::new();
        }
        let mut whole = Coarse::new(self.plan.clone(), self.node_docs.clone(), self.candidates.clone(), false, false);
        &*self.candidates - whole.next_bucket().map(|bucket| bucket.docs).unwrap_or_default()
    }

    /// Whether there is anything to order by.
    pub fn has_rules(&self) -> bool {
        !self.plan.rules.rules.is_empty()
    }

    /// Does a bounded piece of work; false when there is no more to do.
    pub fn step(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        if let Some(bucket) = &mut self.bucket {
            if bucket.done < bucket.docs.len() {
                self.evaluate_chunk();
            } else {
                self.finish_bucket();
            }
            return true;
        }
        if self.out.len() >= self.plan.wanted && !self.next_may_share_bucket() {
            return false;
        }
        if let Some(group) = &mut self.group {
            match group.coarse.next_bucket() {
                Some(bucket) => self.start_bucket(bucket),
                None => self.group = None,
            }
            return true;
        }
        if self.groups.is_none() {
            self.groups = Some(self.make_groups());
        }
        match self.groups.as_mut().and_then(VecDeque::pop_front) {
            Some(group) => {
                self.start_group(group);
                true
            }
            None => false,
        }
    }

    /// The answer. `expired` says that time ran out: what was not ranked follows by document number. Fails when something
    /// could not be read.
    pub fn finish(mut self, expired: bool) -> Result<RankedPart, String> {
        if let Some(fault) = self.fault.take().or_else(|| self.source.take_fault()) {
            return Err(fault);
        }
        let wanted = self.wanted();
        let complete = !expired
            && self.bucket.is_none()
            && self.group.is_none()
            && self.out.len() <= wanted
            && !self.cut
            && self.groups.as_ref().is_some_and(VecDeque::is_empty);
        if expired && self.out.len() < wanted {
            let ranked: RoaringBitmap =
                self.out.iter().map(|ranked| ranked.doc.local(self.partition_count).0).collect();
            let rest = &*self.candidates - &ranked;
            let costs: Costs = self.plan.rules.rules.iter().filter(|rule| rule.is_graph()).map(|_| 0).collect();
            let sorts = vec![SortValue::Missing; self.plan.rules.sorts.len()];
            for doc in rest.iter().take(wanted - self.out.len()) {
                let doc = self.global(doc);
                self.out.push(RankedDoc { doc, costs: costs.clone(), sorts: sorts.clone(), skipped: true });
            }
        }
        let lost = if self.plan.scores { self.lost().len() } else { 0 };
        let complete = complete || (expired && self.out.len() as u64 == self.candidates.len());
        self.out.truncate(wanted);
        Ok(RankedPart { docs: self.out, candidates: self.candidates.len(), lost, complete, facts: self.facts })
    }

    /// How many of the documents found are answered.
    fn wanted(&self) -> usize {
        let mut wanted = self.plan.wanted;
        if let Some(last) = wanted.checked_sub(1).and_then(|last| self.out.get(last)) {
            wanted += self.out[wanted..].iter().take_while(|doc| self.plan.may_share_bucket(last, doc)).count();
        }
        if self.plan.whole_buckets && wanted > 0 {
            let count = self.plan.rules.rules.len();
            let same = |pair: &[RankedDoc]| self.plan.compare_rules(&pair[0], &pair[1], count).is_eq();
            wanted += self.out.windows(2).skip(wanted - 1).take_while(|pair| same(pair)).count();
        }
        wanted
    }

    /// Whether the next group may share a bucket of a distance sort with the last document wanted.
    fn next_may_share_bucket(&self) -> bool {
        let last = self.plan.wanted.checked_sub(1).and_then(|last| self.out.get(last));
        let next = self.groups.as_ref().and_then(VecDeque::front).filter(|_| self.group.is_none());
        let (Some(last), Some(next)) = (last, next) else { return false };
        let Some(geo) = self.plan.geo_rule().filter(|rule| *rule < next.sorts.len()) else { return false };
        let same = |at: usize| last.sorts[at].compare(&next.sorts[at], false).is_eq();
        (0..geo).all(same) && near(&last.sorts[geo], &next.sorts[geo])
    }

    /// The same of a document at `at` of the columns of the leading sort rules and a group before it.
    fn may_share(&self, before: &[SortValue], columns: &[Vec<SortValue>], at: u32) -> bool {
        let value = |rule: usize| &columns[rule][at as usize];
        let Some(geo) = self.plan.geo_rule().filter(|rule| *rule < columns.len()) else { return false };
        (0..geo).all(|rule| before[rule].compare(value(rule), false).is_eq()) && near(&before[geo], value(geo))
    }

    fn global(&self, doc: u32) -> DocId {
        LocalDocId(doc).global(self.partition, self.partition_count)
    }

    fn has_graph_rules(&self) -> bool {
        self.leading_sorts < self.plan.rules.rules.len()
    }

    /// Splits the candidates by the sort rules that come first.
    fn make_groups(&mut self) -> VecDeque<Group> {
        if self.leading_sorts == 0 {
            return VecDeque::from([Group { docs: self.candidates.clone(), sorts: Vec::new() }]);
        }
        let docs: Vec<u32> = self.candidates.iter().collect();
        let sorts = &self.plan.rules.sorts[..self.leading_sorts];
        let columns: Result<Vec<Vec<SortValue>>, String> =
            sorts.iter().map(|by| self.sorter.sort_values(by, &docs)).collect();
        let columns = match columns {
            Ok(columns) => columns,
            Err(fault) => {
                self.fault = Some(fault);
                return VecDeque::new();
            }
        };
        let mut order: Vec<u32> = (0..docs.len() as u32).collect();
        let compare = |a: u32, b: u32| {
            columns
                .iter()
                .zip(sorts)
                .map(|(column, by)| column[a as usize].compare(&column[b as usize], by.is_descending()))
                .find(|order| order.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal)
        };
        order.sort_unstable_by(|a, b| compare(*a, *b).then(a.cmp(b)));
        let mut groups = VecDeque::new();
        let mut documents = 0;
        for run in order.chunk_by(|a, b| compare(*a, *b).is_eq()) {
            let near_last = || groups.back().is_some_and(|last: &Group| self.may_share(&last.sorts, &columns, run[0]));
            if documents >= self.plan.wanted && !self.has_graph_rules() && !near_last() {
                // More than wanted already: one more group says that the answer is not complete.
                groups.push_back(Group { docs: Rc::default(), sorts: Vec::new() });
                break;
            }
            documents += run.len();
            groups.push_back(Group {
                docs: Rc::new(run.iter().map(|at| docs[*at as usize]).collect()),
                sorts: columns.iter().map(|column| column[run[0] as usize].clone()).collect(),
            });
        }
        groups
    }

    fn start_group(&mut self, group: Group) {
        if !self.has_graph_rules() {
            let wanted = match self.plan.whole_buckets {
                true => usize::MAX,
                false => (self.plan.wanted - self.out.len()).saturating_add(1),
            };
            for doc in group.docs.iter().take(wanted) {
                let doc = self.global(doc);
                self.out.push(RankedDoc { doc, costs: Costs::new(), sorts: group.sorts.clone(), skipped: false });
            }
            return;
        }
        let rules = &self.plan.rules.rules[self.leading_sorts..];
        let by_words = rules.first() == Some(&Rule::Words);
        let by_typos = rules.get(usize::from(by_words)) == Some(&Rule::Typo);
        let coarse =
            |typos| Coarse::new(self.plan.clone(), self.node_docs.clone(), group.docs.clone(), by_words, typos);
        let words = (self.plan.scores && by_words).then(|| coarse(false));
        self.group = Some(GroupWork { coarse: coarse(by_typos), words, words_next: 0, group });
    }

    fn start_bucket(&mut self, bucket: CoarseBucket) {
        self.note_used_paths(&bucket);
        let classes = self.plan.rules.rules.contains(&Rule::Typo);
        let paths = self.visit(bucket.words.unwrap_or(0), classes, bucket.typos, &bucket.docs);
        let evaluator = Evaluator::new(self.plan.clone(), self.source.clone(), self.node_docs.clone(), paths);
        // Of the bucket in which the wanted ones end, all may be asked for.
        let wanted = if self.plan.whole_buckets { usize::MAX } else { self.plan.wanted.saturating_sub(self.out.len()) };
        let docs = bucket.docs.iter().collect();
        self.bucket = Some(BucketWork { docs, done: 0, evaluator, ranked: Vec::new(), wanted, cut: false });
    }

    fn visit(&self, words: u32, classes: bool, typos: Option<u32>, docs: &RoaringBitmap) -> Vec<(Path, RoaringBitmap)> {
        let walk = Walk { classes, words: Some(words), typos };
        visit(&self.plan.graph, &self.node_docs, walk, docs, PATHS_MAX)
    }

    /// Tells which paths the documents use that lack as many terms as those of `bucket`: each the first it satisfies.
    fn note_used_paths(&mut self, bucket: &CoarseBucket) {
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
        work.words_next = words + 1;
        for (path, with) in self.visit(words, false, None, &docs) {
            if !docs.is_disjoint(&with) {
                docs -= with;
                self.facts.used.push((sorts.clone(), words, path));
            }
        }
    }

    fn evaluate_chunk(&mut self) {
        let Some(bucket) = &mut self.bucket else { return };
        let chunk = (bucket.done * 3).clamp(FIRST_CHUNK_DOCS.max(bucket.wanted.min(CHUNK_DOCS)), CHUNK_DOCS);
        let until = (bucket.done + chunk).min(bucket.docs.len());
        let bar = bucket.bar(&self.plan, self.leading_sorts);
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
        let sorts = &self.plan.rules.sorts[self.leading_sorts..];
        let later: Result<Vec<Vec<SortValue>>, String> =
            sorts.iter().map(|by| self.sorter.sort_values(by, &numbers)).collect();
        let later = match later {
            Ok(later) => later,
            Err(fault) => {
                self.fault = Some(fault);
                return;
            }
        };
        let leading = self.group.as_ref().map_or(&[][..], |work| &work.group.sorts);
        for (number, found) in found.into_iter().enumerate() {
            let mut sorts = Vec::new();
            if !self.plan.rules.sorts.is_empty() {
                sorts.extend(leading.iter().cloned());
                sorts.extend(later.iter().map(|column| column[number].clone()));
            }
            if self.plan.scores {
                let paths = found
                    .paths
                    .into_iter()
                    .map(|(number, costs, exact)| (bucket.evaluator.path(number).clone(), costs, exact))
                    .collect();
                let profile = Profile { sorts: sorts.clone(), costs: found.costs.clone(), paths };
                if self.profiles.insert(profile.fingerprint()) {
                    self.facts.profiles.push(profile);
                }
            }
            let doc = LocalDocId(numbers[number]).global(self.partition, self.partition_count);
            bucket.ranked.push(RankedDoc { doc, costs: found.costs, sorts, skipped: false });
        }
        if bucket.ranked.len() >= bucket.wanted.saturating_mul(2).max(SURPLUS_MIN) {
            bucket.keep_wanted(&self.plan);
        }
    }

    fn finish_bucket(&mut self) {
        let Some(mut bucket) = self.bucket.take() else { return };
        bucket.keep_wanted(&self.plan);
        let plan = &self.plan;
        bucket.ranked.sort_unstable_by(|a, b| plan.compare(a, b));
        self.cut |= bucket.cut;
        self.out.append(&mut bucket.ranked);
    }
}

impl BucketWork {
    /// Leaves out what cannot be returned.
    fn keep_wanted(&mut self, plan: &RankPlan) {
        if self.ranked.len() > self.wanted && self.wanted > 0 {
            self.ranked.select_nth_unstable_by(self.wanted - 1, |a, b| plan.compare(a, b));
            self.ranked.truncate(self.wanted);
            self.cut = true;
        }
    }

    /// Costs that a document must undercut to be of use, when there are enough others: those of the worst that was kept, as
    /// far as no sort rule comes between. Documents come by rising number, so that an equal one comes too late.
    fn bar(&mut self, plan: &RankPlan, leading_sorts: usize) -> Option<Costs> {
        if self.ranked.len() < self.wanted || self.wanted == 0 {
            return None;
        }
        self.keep_wanted(plan);
        let worst = self.ranked.iter().max_by(|a, b| plan.compare(a, b))?;
        let rules = &plan.rules.rules[leading_sorts..];
        let comparable = rules.iter().take_while(|rule| rule.is_graph()).count();
        Some(worst.costs.iter().take(comparable).copied().collect())
    }
}
