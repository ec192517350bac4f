//! Ranks the documents of one partition, best first and only as many as requested, in steps of bounded work.

mod evaluate_chunk;
mod select;
mod start_bucket;

use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashSet;
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use self::select::SelectWork;
use super::best_scores::BestScores;
use super::bucket::{BucketWork, Found, Order, Taken};
use super::champions::DecidingTerm;
use super::classes::NodeDocs;
use super::coarse::{Coarse, CoarseBucket, candidates};
use super::groups::{Group, Groups};
use super::plan::{Costs, RankPlan, RankedDoc, SortValue, near};
use super::rules::Rule;
use super::score_facts::ScoreFacts;
use super::sort_source::SortSource;
use crate::facets::columns::Cut;
use crate::facets::distinct::GroupValue;
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::query::TermSource;

/// Documents put into order in one step.
const SETTLED_DOCS: usize = if cfg!(test) { 2 } else { 256 };

/// The least number of documents without further order of which the distinct groups are read in one step.
const PLAIN_DOCS_MIN: usize = if cfg!(test) { 2 } else { 8 };

/// Once so many documents are kept out of reading in one step, no more are: large groups take long to put together.
const EXCLUDED_DOCS: u64 = if cfg!(test) { 3 } else { 1 << 16 };

/// What one partition answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankedPart {
    /// The best documents, in order.
    pub docs: Vec<RankedDoc>,
    /// The values of the distinct groups of each of them, where documents are grouped; documents of which it is certain that
    /// another of their group comes before them are not there.
    pub values: Vec<Vec<GroupValue>>,
    /// How many documents the query admits.
    pub candidates: u64,
    /// How many of them come before all of `docs` but are not there (see [`Ranker::pass_over`]).
    pub passed: u64,
    /// How many of them no rule can place (see [`Ranker::lost`]); 0 where no scores were asked for.
    pub lost: u64,
    /// Whether `docs` has all that can be returned.
    pub complete: bool,
    /// Whether some document that was met is in several distinct groups.
    pub several_groups: bool,
    /// Documents that are below the least score, in order.
    pub dropped: Vec<DroppedBucket>,
    /// What scores need, when they were asked for.
    pub facts: ScoreFacts,
}

/// Documents that are not ranked, since all of them score less than the search wants.
#[derive(Clone, Debug, PartialEq)]
pub struct DroppedBucket {
    /// Where they are in the order: what is known of the first of them.
    pub first: RankedDoc,
    /// The rules under which that is known.
    pub rules: usize,
    /// Their numbers in the partition.
    pub docs: RoaringBitmap,
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
    /// Those that come before all that is ranked.
    passed: RoaringBitmap,
    /// Sort rules that come before any graph rule.
    leading_sorts: usize,
    groups: Groups,
    group: Option<GroupWork>,
    bucket: Option<BucketWork>,
    /// What the next bucket waits for.
    list: Option<ListWork>,
    /// A bucket that is cut to what may be returned of it.
    select: Option<SelectWork>,
    /// A group that no graph rule orders any further, and its next document.
    plain: Option<(Group, u32)>,
    out: Order,
    /// Distinct groups of which a document is in `out`.
    taken: Taken,
    /// Where a least score is wanted.
    best_scores: Option<BestScores>,
    dropped: Vec<DroppedBucket>,
    /// All documents of these.
    dropped_docs: RoaringBitmap,
    facts: ScoreFacts,
    profiles: AHashSet<u64>,
    /// Documents that surely are of a taken group, as far as they are kept out of reading.
    excluded: RoaringBitmap,
    /// How many documents of a group without further order are read in the next step, where one of each distinct group is wanted.
    plain_docs: usize,
    /// Whether a document of several groups was met.
    several_groups: bool,
    /// Whether documents that can be returned were left out.
    cut: bool,
    fault: Option<String>,
}

struct GroupWork {
    group: Group,
    coarse: Coarse,
    /// Walks the same documents by dropped terms only, to tell which paths they use.
    words: Option<Coarse>,
    words_next: u32,
    /// How many documents lack as many terms as those that were looked at last.
    words_len: u64,
}

/// A champion list that is made for a bucket.
struct ListWork {
    term: DecidingTerm,
    work: BucketWork,
    listed: Order,
    bucket: CoarseBucket,
}

impl Ranker {
    /// Starts: finds the candidates among `within`, the documents that pass the filter. In a box, since it has some kilobytes and is
    /// passed on.
    pub fn new(
        plan: Arc<RankPlan>,
        source: Rc<dyn TermSource>,
        node_docs: Rc<NodeDocs>,
        sorter: Rc<dyn SortSource>,
        within: Rc<RoaringBitmap>,
        (partition, partition_count): (PartitionNo, u16),
    ) -> Box<Self> {
        let terms = (plan.graph.term_count > 0).then(|| Rc::new(candidates(&plan.graph, &node_docs, &within)));
        let mut candidates = terms.unwrap_or(within);
        if !plan.graph.negatives.is_empty() {
            *Rc::make_mut(&mut candidates) -= node_docs.negatives();
        }
        let leading_sorts = plan.rules.rules.iter().take_while(|rule| !rule.is_graph()).count();
        // Of a distance sort the buckets depend on all documents.
        let drops = plan.geo_rule().is_none_or(|rule| rule > leading_sorts);
        let best_scores = if drops { BestScores::of(&plan) } else { None };
        Box::new(Self {
            plan,
            source,
            sorter,
            partition,
            partition_count,
            node_docs,
            groups: Groups::new(candidates.clone()),
            candidates,
            passed: RoaringBitmap::new(),
            leading_sorts,
            group: None,
            bucket: None,
            list: None,
            select: None,
            plain: None,
            out: Order::default(),
            taken: Taken::default(),
            best_scores,
            dropped: Vec::new(),
            dropped_docs: RoaringBitmap::new(),
            facts: ScoreFacts::default(),
            profiles: AHashSet::new(),
            excluded: RoaringBitmap::new(),
            plain_docs: PLAIN_DOCS_MIN,
            several_groups: false,
            cut: false,
            fault: None,
        })
    }

    /// The documents that the query admits.
    pub fn candidates(&self) -> &Rc<RoaringBitmap> {
        &self.candidates
    }

    /// The candidates that no rule can place: where terms are dropped but not by the first rule that reads the graph, only
    /// documents with all terms are ranked. The others are not returned, though they count among the candidates.
    pub fn lost(&self) -> RoaringBitmap {
        if !self.plan.rules.may_leave_unplaced(&self.plan.graph) {
            return RoaringBitmap::new();
        }
        let mut whole = Coarse::new(self.plan.clone(), self.node_docs.clone(), self.candidates.clone(), false, false);
        &*self.candidates - whole.next_bucket().map(|bucket| bucket.docs).unwrap_or_default()
    }

    /// Does not rank those candidates that come before a cut of the first rule, which sorts by a field.
    pub fn pass_over(&mut self, before: RoaringBitmap, cut: Cut) {
        self.groups = Groups::behind(cut, Rc::new(&*self.candidates - &before));
        self.passed = before;
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
        if let Some(list) = self.list.take() {
            self.list_chunk(list);
            return true;
        }
        if let Some(work) = self.select.take() {
            self.select_some(work);
            return true;
        }
        if let Some(mut bucket) = self.bucket.take() {
            if bucket.done < bucket.docs.len() {
                self.evaluate_chunk(&mut bucket);
                self.bucket = Some(bucket);
            } else if bucket.settle(SETTLED_DOCS, &self.plan, &mut self.taken, &mut self.out) {
                self.bucket = Some(bucket);
            } else {
                self.cut |= bucket.cut;
            }
            return true;
        }
        if let Some((group, from)) = self.plain.take() {
            self.take_plain(group, from);
            return true;
        }
        // Documents of several groups can give way to one that is met later, when others were left out for them: what comes next is
        // not known then.
        if self.cut && self.out.len() < self.plan.wanted {
            return false;
        }
        // Only of a distance sort the next group may be needed still, which its values tell.
        let tells = self.group.is_none() && self.plan.geo_rule().is_some_and(|rule| rule < self.leading_sorts);
        if self.out.len() >= self.plan.wanted && !tells {
            return false;
        }
        if let Some(group) = &mut self.group {
            match group.coarse.next_bucket() {
                Some(bucket) => {
                    self.note_used_paths(&bucket);
                    if self.drops(&bucket) {
                        self.drop_rest(bucket);
                    } else {
                        self.start_bucket(bucket);
                    }
                }
                None => self.group = None,
            }
            return true;
        }
        match self.groups.step(&self.plan, &*self.sorter, self.leading_sorts) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(fault) => {
                self.fault = Some(fault);
                return false;
            }
        }
        if self.out.len() >= self.plan.wanted && !self.next_may_share_bucket() {
            return false;
        }
        match self.groups.pop() {
            Some(group) => {
                self.start_group(group);
                true
            }
            None => false,
        }
    }

    /// Makes what the next step is better done with, if there is such, which takes longer than a step.
    pub async fn prepare(&self, pace: &dyn Pace) -> Result<(), String> {
        match self.sorter.prepare(pace) {
            Some(making) => making.await,
            None => Ok(()),
        }
    }

    /// Takes out what no answer needs, once the last step was made: much of it, to be freed in steps.
    pub fn take_spent(&mut self) -> impl Iterator<Item = GroupValue> + use<> {
        std::mem::take(&mut self.taken).into_values()
    }

    /// Frees some of what was read but not ranked, once the last step was made; false when none is left. Texts to sort by are many
    /// small things.
    pub fn discard(&mut self) -> bool {
        self.cut |= !self.groups.is_empty();
        self.groups.discard(SETTLED_DOCS)
            || self.select.as_mut().is_some_and(|work| work.discard(SETTLED_DOCS))
            || self.bucket.as_mut().is_some_and(|bucket| bucket.discard(SETTLED_DOCS))
    }

    /// The answer. `expired` says that time ran out: what was not ranked follows by document number. Fails when something
    /// could not be read.
    pub fn finish(mut self: Box<Self>, expired: bool) -> Result<RankedPart, String> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let wanted = self.wanted();
        let complete = !expired
            && self.bucket.is_none()
            && self.list.is_none()
            && self.select.is_none()
            && self.group.is_none()
            && self.plain.is_none()
            && self.out.len() <= wanted
            && !self.cut
            && self.groups.is_empty();
        if expired && self.out.len() < wanted {
            let ranked: RoaringBitmap =
                self.out.docs.iter().map(|ranked| ranked.doc.local(self.partition_count).0).collect();
            let rest = &*self.candidates - ranked - &self.passed - &self.dropped_docs;
            let costs: Costs = self.plan.rules.rules.iter().filter(|rule| rule.is_graph()).map(|_| 0).collect();
            let sorts = vec![SortValue::Missing; self.plan.rules.sorts.len()];
            let rest: Vec<u32> = rest.iter().take(wanted - self.out.len()).collect();
            let values = self.sorter.group_values(&rest)?.unwrap_or_default();
            self.note_groups(&values);
            let mut values = values.into_iter();
            for doc in rest {
                let (doc, values) = (self.global(doc), values.next().unwrap_or_default());
                let doc = RankedDoc { doc, costs: costs.clone(), sorts: sorts.clone(), skipped: true };
                self.out.push(Found { doc, values });
            }
        }
        let lost = if self.plan.scores { self.lost().len() } else { 0 };
        let met = self.out.len() as u64 + self.dropped_docs.len();
        let complete = complete || (expired && met == self.candidates.len());
        let Order { mut docs, mut values } = self.out;
        docs.truncate(wanted);
        values.truncate(wanted);
        let (candidates, passed) = (self.candidates.len(), self.passed.len());
        let (several_groups, dropped) = (self.several_groups, self.dropped);
        Ok(RankedPart { docs, values, candidates, passed, lost, complete, several_groups, dropped, facts: self.facts })
    }

    /// How many of the documents found are answered.
    fn wanted(&self) -> usize {
        let mut wanted = self.plan.wanted;
        let docs = &self.out.docs;
        if let Some(last) = wanted.checked_sub(1).and_then(|last| docs.get(last)) {
            let near = |found: &&RankedDoc| self.plan.may_share_bucket(last, found);
            wanted += docs[wanted..].iter().take_while(near).count();
        }
        if self.plan.whole_buckets && wanted > 0 {
            let count = self.plan.rules.rules.len();
            let same = |pair: &[RankedDoc]| self.plan.compare_rules(&pair[0], &pair[1], count).is_eq();
            wanted += docs.windows(2).skip(wanted - 1).take_while(|pair| same(pair)).count();
        }
        wanted
    }

    /// Whether the next group may share a bucket of a distance sort with the last document wanted.
    fn next_may_share_bucket(&self) -> bool {
        let last = self.plan.wanted.checked_sub(1).and_then(|last| self.out.docs.get(last));
        let next = self.groups.peek().filter(|_| self.group.is_none());
        let (Some(last), Some(next)) = (last, next) else { return false };
        let Some(geo) = self.plan.geo_rule().filter(|rule| *rule < next.len()) else { return false };
        let same = |at: usize| last.sorts[at].compare(&next[at], false).is_eq();
        (0..geo).all(same) && near(&last.sorts[geo], &next[geo])
    }

    fn global(&self, doc: u32) -> DocId {
        LocalDocId(doc).global(self.partition, self.partition_count)
    }

    fn has_graph_rules(&self) -> bool {
        self.leading_sorts < self.plan.rules.rules.len()
    }

    /// Whether the scores of a document follow from it alone, as far as its bucket goes: they depend on the paths in use, and on
    /// which of their words are there as typed once a rule has told. Where its documents use one path, all have the same.
    fn scores_alone(&self, paths: usize) -> bool {
        let mut told = self.plan.rules.rules.iter().skip_while(|rule| **rule != Rule::ExactWords).skip(1);
        paths <= 1 && !told.any(|rule| rule.is_graph())
    }

    fn start_group(&mut self, mut group: Group) {
        if !self.has_graph_rules() {
            if !self.excluded.is_empty() {
                group.docs = Rc::new(&*group.docs - &self.excluded);
            }
            self.plain = Some((group, 0));
            return;
        }
        let rules = &self.plan.rules.rules[self.leading_sorts..];
        let by_words = rules.first() == Some(&Rule::Words);
        let by_typos = rules.get(usize::from(by_words)) == Some(&Rule::Typo);
        let coarse =
            |typos| Coarse::new(self.plan.clone(), self.node_docs.clone(), group.docs.clone(), by_words, typos);
        let words = (self.plan.scores && by_words).then(|| coarse(false));
        self.group = Some(GroupWork { coarse: coarse(by_typos), words, words_next: 0, words_len: 0, group });
    }

    /// The values of the distinct groups of each document; nothing where documents are not grouped. `None` when they cannot be
    /// read, which is kept as the search's fault.
    fn read_groups(&mut self, docs: &[u32]) -> Option<Vec<Vec<GroupValue>>> {
        let groups = self.sorter.group_values(docs).map_err(|fault| self.fault = Some(fault)).ok()?.unwrap_or_default();
        self.note_groups(&groups);
        Some(groups)
    }

    /// Notes whether any of these documents is in several groups.
    fn note_groups(&mut self, values: &[Vec<GroupValue>]) {
        self.several_groups |= values.iter().any(|values| values.len() > 1);
    }

    /// Takes some documents of a group that is in order as it is.
    fn take_plain(&mut self, mut group: Group, from: u32) {
        let (whole, by_groups) = (self.plan.whole_buckets, self.plan.one_per_group);
        let room = self.plan.wanted.saturating_sub(self.out.len()).saturating_add(1);
        let count = match (by_groups, whole) {
            (true, _) => self.plain_docs,
            (false, true) => SETTLED_DOCS,
            (false, false) => room.min(SETTLED_DOCS),
        };
        let docs: Vec<u32> = group.docs.range(from..).take(count).collect();
        let Some(values) = self.read_groups(&docs) else { return };
        let mut values = values.into_iter();
        let next = docs.last().filter(|_| docs.len() == count).and_then(|last| last.checked_add(1));
        let (met, before) = (docs.len(), self.out.len());
        let mut groups: Vec<GroupValue> = Vec::new();
        for doc in docs {
            let values = values.next().unwrap_or_default();
            if by_groups {
                groups.extend_from_slice(&values);
            }
            if !by_groups || self.taken.admit(&values) {
                let (doc, sorts) = (self.global(doc), group.sorts.clone());
                self.out.push(Found { doc: RankedDoc { doc, costs: Costs::new(), sorts, skipped: false }, values });
            }
        }
        if by_groups && (self.out.len() - before) * 2 < met {
            self.exclude(groups, &mut group);
            self.plain_docs = PLAIN_DOCS_MIN;
        } else if by_groups {
            self.plain_docs = (self.plain_docs * 2).min(SETTLED_DOCS);
        }
        if let Some(next) = next {
            // One document more than wanted says that the answer is not complete.
            if whole || self.out.len() <= self.plan.wanted {
                self.plain = Some((group, next));
            } else {
                self.cut = true;
            }
        }
    }

    /// Keeps the documents of those of the distinct groups that are surely taken out of what is still read: most of what was read
    /// last were such.
    fn exclude(&mut self, mut groups: Vec<GroupValue>, from: &mut Group) {
        groups.sort_unstable();
        groups.dedup();
        groups.retain(|value| self.taken.has(std::slice::from_ref(value)));
        // Documents of the others are met again.
        let members = self.sorter.group_members(&groups, EXCLUDED_DOCS).unwrap_or_else(|fault| {
            self.fault = Some(fault);
            RoaringBitmap::new()
        });
        from.docs = Rc::new(&*from.docs - &members);
        self.excluded |= members;
    }
}
