//! The part of a search that runs on the core that owns a partition.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::answer::SearchError;
use super::column_sorter::ColumnSorter;
use super::federated;
use super::hybrid;
use super::hybrid::nearest::{SearchPace, VectorRanking};
use super::kept_answers::KeptAnswers;
use super::messages::{NarrowLists, NarrowQuestion, PartQuestion, PartReply, RankQuestion, RankedReply, WrittenHits};
use super::pins::facts_of;
use super::written::write_hit;
use crate::facets::columns::{BlockUnion, ColumnError, FieldOrder};
use crate::facets::distinct::{GroupValue, add_members, count_groups};
use crate::facets::distribution::{FacetCounts, FacetPlan, count_facets};
use crate::facets::facet_search::{search_facet, spellings};
use crate::facets::{FacetError, FacetSource, Filter, in_network_shard};
use crate::format::HitExtras;
use crate::ids::{FieldId, LocalDocId, PartitionNo};
use crate::query::{Cutter, TermSource};
use crate::rank::classes::{ANY_CLASS, NodeDocs};
use crate::rank::{RankPlan, RankedPart, Ranker, SortBy};
use crate::runtime::pause;
use crate::runtime::steps::doing;
use crate::vectors::PartitionVectors;

/// Distinct groups whose members are looked up between two looks at whether others wait.
const VALUES_PER_LOOK: usize = 32;
/// Filters of more tests and operands are not kept: to write them out, as their key, is long work.
const KEPT_FILTER_SIZE_MAX: usize = 1000;

/// The fields of a stored document, each with its JSON text.
pub type StoredFields<'d> = &'d [(FieldId, &'d [u8])];

/// One partition of an index at one epoch, as a search sees it.
pub trait SearchPartition: TermSource + FacetSource {
    /// Its number, and how many partitions the index has.
    fn place(&self) -> (PartitionNo, u16);

    /// Calls `each` with the stored fields of a document, in order, each with its JSON text; fails for one that is not there.
    fn with_record(&self, doc: LocalDocId, each: &mut dyn FnMut(StoredFields<'_>)) -> Result<(), String>;

    /// Cuts texts as the index does.
    fn cutter(&self) -> &dyn Cutter;

    /// The same, for another thread.
    fn cutter_aside(&self) -> Arc<dyn Cutter>;

    /// The answers to questions about words that were given at this epoch; `None` for a partition that forgets.
    fn kept_answers(&self) -> Option<&KeptAnswers> {
        None
    }

    /// The vectors of its documents.
    fn vectors(&self) -> Option<&PartitionVectors> {
        None
    }
}

/// Keeps a search from holding its core for long, and from running longer than it may.
pub trait Pacer: Pace {
    /// The time since some fixed moment.
    fn now(&self) -> Duration;
    /// Does long work that cannot be cut into pieces on another thread. Fails when no thread takes it.
    fn aside(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), String>>;
}

/// Answers a question to a partition.
///
/// What few questions need is awaited in a box of its own here and below: the state of this function is allocated for every question,
/// as large as that of the largest part that is awaited in place.
pub async fn answer_part(
    partition: Rc<dyn SearchPartition>,
    question: PartQuestion,
    pacer: &dyn Pacer,
) -> Result<PartReply, SearchError> {
    let faults = partition.fault_count();
    let reply = answer(partition.clone(), question, pacer).await?;
    partition.fault_since(faults).map_or(Ok(reply), |fault| Err(SearchError::Partition(fault)))
}

async fn answer(
    partition: Rc<dyn SearchPartition>,
    question: PartQuestion,
    pacer: &dyn Pacer,
) -> Result<PartReply, SearchError> {
    match question {
        PartQuestion::Resolve { nodes, fields, by_attribute } => {
            doing("resolve");
            let mut facts = Vec::with_capacity(nodes.len());
            let counted = shard_docs(&*partition, nodes.first().and_then(|node| node.shard.as_deref()))?;
            for node in nodes.iter() {
                facts.push(node.answer(&*partition, (&fields, by_attribute), counted.as_deref(), pacer).await);
            }
            Ok(PartReply::Facts(facts))
        }
        PartQuestion::CountTerms { plan, shard } => {
            let node_docs = prepare(&partition, &plan, pacer).await;
            let counted = shard_docs(&*partition, shard.as_deref())?;
            let counts = count_terms(&plan, &node_docs, counted.as_deref(), pacer).await;
            Ok(PartReply::Counts(counts))
        }
        PartQuestion::Rank(question) => rank(partition, question, pacer).await,
        PartQuestion::Marks { search, page } => Box::pin(marks(&partition, &search, page, pacer)).await,
        PartQuestion::Narrow { searches, facets } => {
            Box::pin(narrow(&partition, &searches, facets.as_deref(), pacer)).await
        }
        PartQuestion::FacetSearch { search, field, query } => {
            let left = Box::pin(left_of(&partition, &search, pacer)).await?;
            pause(pacer).await;
            doing("facet search");
            let found = Box::pin(search_facet(&*partition, &field, query.as_deref(), &left, pacer)).await;
            let hits = found.map_err(column_error)?;
            Ok(PartReply::FacetHits(Box::new(hits)))
        }
        PartQuestion::FacetSpellings { field, values } => {
            doing("facet spellings");
            let spelled = Box::pin(spellings(&*partition, &field, &values, pacer)).await.map_err(column_error)?;
            Ok(PartReply::FacetSpellings(spelled))
        }
        PartQuestion::Values { paths, docs } => {
            Box::pin(federated::part::values(&*partition, &paths, &docs, pacer)).await
        }
        PartQuestion::VectorsOf { doc, embedder } => {
            Box::pin(hybrid::part::vectors_of(&*partition, doc, &embedder)).await
        }
        PartQuestion::Near(question) => Box::pin(hybrid::part::near(&*partition, &question, pacer)).await,
        PartQuestion::Fetch { plan, hits } => {
            doing("fetch");
            let mut written = Vec::with_capacity(hits.len());
            for (doc, extras) in hits {
                let mut hit = Vec::with_capacity(512);
                let out = &mut hit;
                let long = write_hit(&*partition, (&plan, pacer), doc, extras, out).await;
                written.push(long.map_err(SearchError::Partition)?.unwrap_or(hit));
                pause(pacer).await;
            }
            Ok(PartReply::Hits(written))
        }
    }
}

/// Items that are freed between two looks at whether others wait.
const FREED_PER_LOOK: usize = 128;

/// Frees items in steps: many texts take longer to free than others should wait.
pub(crate) async fn free_in_steps<T>(items: impl IntoIterator<Item = T>, pacer: &dyn Pace) {
    for (at, item) in items.into_iter().enumerate() {
        drop(item);
        if at % FREED_PER_LOOK == FREED_PER_LOOK - 1 {
            pause(pacer).await;
        }
    }
}

/// The sets of a search's nodes, the tables of its prefixes made: that is the long part of the work.
async fn prepare(partition: &Rc<dyn SearchPartition>, plan: &Arc<RankPlan>, pacer: &dyn Pacer) -> Rc<NodeDocs> {
    let source: Rc<dyn TermSource> = partition.clone();
    doing("sets of words");
    let node_docs = Rc::new(NodeDocs::new(plan.clone(), source));
    node_docs.build_tables(pacer).await;
    node_docs.warm(pacer).await;
    node_docs
}

/// A joined word counts for each of its terms.
async fn count_terms(
    plan: &RankPlan,
    node_docs: &NodeDocs,
    counted: Option<&RoaringBitmap>,
    pacer: &dyn Pacer,
) -> Vec<u64> {
    let mut counts = Vec::with_capacity(usize::from(plan.graph.term_count));
    for term in 0..usize::from(plan.graph.term_count) {
        let nodes = plan.graph.nodes.iter().enumerate().filter(|(_, node)| node.terms().contains(&term));
        let mut docs = RoaringBitmap::new();
        nodes.for_each(|(at, _)| docs |= &**node_docs.class(at, ANY_CLASS));
        counts.push(counted.map_or_else(|| docs.len(), |counted| docs.intersection_len(counted)));
        pause(pacer).await;
    }
    counts
}

/// The documents of a network shard, if one is given.
fn shard_docs(partition: &dyn SearchPartition, name: Option<&str>) -> Result<Option<Rc<RoaringBitmap>>, SearchError> {
    let Some(name) = name else { return Ok(None) };
    // Not what a filter looks like when it is written out.
    let key = format!("network shard {name}");
    let cache = partition.cache();
    if let Some(known) = cache.and_then(|cache| cache.known_filter(&key)) {
        return Ok(Some(known));
    }
    let docs = Rc::new(in_network_shard(partition, name).map_err(column_error)?);
    if let Some(cache) = cache {
        cache.keep_filter(key, &docs);
    }
    Ok(Some(docs))
}

async fn rank(
    partition: Rc<dyn SearchPartition>,
    question: RankQuestion,
    pacer: &dyn Pacer,
) -> Result<PartReply, SearchError> {
    let by_words = question.plan.vector.is_none();
    if by_words
        && !question.time_left.is_zero()
        && let Some((part, facets)) = partition.kept_answers().and_then(|answers| answers.get(&question))
    {
        return Ok(PartReply::Ranked(Box::new(ranked_reply(&partition, part, &question, facets, pacer).await?)));
    }
    let deadline = pacer.now() + question.time_left;
    let (mut ranker, pinned) = ranker(&partition, &question, pacer).await?;
    let counted: Cow<'_, RoaringBitmap> = match pinned.is_empty() {
        true => Cow::Borrowed(ranker.candidates()),
        false => Cow::Owned(&**ranker.candidates() | &pinned),
    };
    doing("facet counts");
    let facets = Arc::new(match &question.facets {
        Some(plan) => Box::pin(count_facets(&*partition, plan, &counted, pacer)).await.map_err(column_error)?,
        None => FacetCounts::default(),
    });
    doing("group counts");
    let groups = match question.distinct.as_deref().filter(|_| question.count_groups) {
        // Where there is one partition nobody asks which groups these are.
        Some(field) => {
            let notes = partition.place().1 > 1;
            let counting = count_groups(&*partition, field, &counted, notes, pacer);
            Box::pin(counting).await.map_err(column_error)?
        }
        None => None,
    };
    drop(counted);
    doing("rank");
    let mut expired = by_words && question.time_left.is_zero() && ranker.has_rules();
    let part = if let Some(query) = &question.plan.vector {
        let sorter = ColumnSorter::new(partition.clone(), question.distinct.clone());
        let pace = SearchPace::new(pacer, deadline);
        let (plan, filtered) = (&question.plan, question.filter.is_some());
        let ranking = VectorRanking { partition: &partition, sorter: &sorter, plan, query, filtered, pace: &pace };
        let part = Box::pin(ranking.rank(ranker.candidates())).await?;
        expired = pacer.now() > deadline;
        part
    } else {
        // Without rules there is nothing to leave out.
        let ranks = ranker.has_rules();
        while !expired && ranker.step() {
            ranker.prepare(pacer).await.map_err(SearchError::Partition)?;
            pause(pacer).await;
            expired = ranks && pacer.now() > deadline;
        }
        doing("rank end");
        free_in_steps(ranker.take_spent(), pacer).await;
        while ranker.discard() {
            pause(pacer).await;
        }
        ranker.finish(expired).map_err(SearchError::Partition)?
    };
    if let Some(answers) = partition.kept_answers().filter(|_| by_words && !expired) {
        answers.keep(&question, &part, &facets);
    }
    let mut reply = ranked_reply(&partition, part, &question, facets, pacer).await?;
    reply.pinned = facts_of(&partition, &question, &pinned).map_err(SearchError::Partition)?;
    (reply.expired, reply.groups) = (expired, groups);
    Ok(PartReply::Ranked(Box::new(reply)))
}

/// Marks along the first rule of a search, as far as its page.
async fn marks(
    partition: &Rc<dyn SearchPartition>,
    search: &RankQuestion,
    (_, page_end): (u64, u64),
    pacer: &dyn Pacer,
) -> Result<PartReply, SearchError> {
    let (ranker, _) = ranker(partition, search, pacer).await?;
    doing("marks");
    let Some(order) = first_order(&**partition, &search.plan) else { return Ok(PartReply::Marks(None)) };
    let columns = partition.columns().held_by(partition.resident_fields());
    let marks = columns.marks(order, ranker.candidates(), (page_end, page_end), pacer).await.map_err(column_error)?;
    Ok(PartReply::Marks(marks))
}

/// The field that a search sorts by first.
fn first_order(partition: &dyn SearchPartition, plan: &RankPlan) -> Option<FieldOrder> {
    let SortBy::Field { name, descending } = plan.rules.sorts.first()? else { return None };
    let field = FacetSource::fields(partition).id(name)?;
    Some(FieldOrder { field, descending: *descending, twice: false })
}

/// Adds to the best documents what the question asks about them.
async fn ranked_reply(
    partition: &Rc<dyn SearchPartition>,
    part: RankedPart,
    question: &RankQuestion,
    facets: Arc<FacetCounts>,
    pacer: &dyn Pacer,
) -> Result<RankedReply, SearchError> {
    doing("show");
    let (_, count) = partition.place();
    let mut shown = WrittenHits::default();
    if let Some((plan, range)) = &question.show {
        let docs = part.docs.get(range.start..).unwrap_or_default();
        let docs = docs.get(..range.len()).unwrap_or(docs);
        shown = WrittenHits::with_room(docs.len());
        for ranked in docs {
            let (doc, extras) = (ranked.doc.local(count), HitExtras::default());
            let written = write_hit(&**partition, (plan, pacer), doc, extras, shown.place()).await;
            match written.map_err(SearchError::Partition)? {
                Some(long) => shown.add(ranked.doc, long),
                None => shown.end(ranked.doc),
            }
            pause(pacer).await;
        }
    }
    Ok(RankedReply { part, pinned: Vec::new(), facets, groups: None, shown, expired: false })
}

/// Counts what is left of several searches together.
async fn narrow(
    partition: &Rc<dyn SearchPartition>,
    searches: &[NarrowLists],
    facets: Option<&FacetPlan>,
    pacer: &dyn Pacer,
) -> Result<PartReply, SearchError> {
    let mut left = RoaringBitmap::new();
    for NarrowLists { lists, merged } in searches {
        let mut own = RoaringBitmap::new();
        for list in lists {
            own |= left_of(partition, list, pacer).await?;
            pause(pacer).await;
        }
        own -= &merged.dropped;
        if let Some((field, values)) = merged.groups.as_deref() {
            own -= members(partition, field, values.iter(), pacer).await?;
        }
        left |= own | &merged.kept;
    }
    let counts = match facets {
        Some(plan) => count_facets(&**partition, plan, &left, pacer).await.map_err(column_error)?,
        None => FacetCounts::default(),
    };
    Ok(PartReply::Narrowed(left.len(), Box::new(counts)))
}

/// Takes away what does not count.
async fn left_of(
    partition: &Rc<dyn SearchPartition>,
    question: &NarrowQuestion,
    pacer: &dyn Pacer,
) -> Result<RoaringBitmap, SearchError> {
    let (ranker, pinned) = ranker(partition, &question.ranked, pacer).await?;
    let mut left = RoaringBitmap::clone(ranker.candidates());
    if question.only_kept {
        left &= match question.without_lost {
            true => question.kept.clone(),
            false => &question.kept | ranker.lost(),
        };
    } else if question.without_lost {
        left -= ranker.lost() - &question.kept;
    }
    if let Some(field) = question.ranked.distinct.as_deref().filter(|_| !question.values.is_empty()) {
        left -= members(partition, field, question.values.iter(), pacer).await? - &question.kept;
    }
    Ok((left | pinned) - &question.dropped)
}

/// The documents that have any of the values.
async fn members(
    partition: &Rc<dyn SearchPartition>,
    field: &str,
    values: impl Iterator<Item = &GroupValue>,
    pacer: &dyn Pacer,
) -> Result<RoaringBitmap, SearchError> {
    doing("group members");
    let mut members = BlockUnion::default();
    for (at, value) in values.enumerate() {
        add_members(&**partition, field, value, &mut members).map_err(column_error)?;
        if at % VALUES_PER_LOOK == VALUES_PER_LOOK - 1 {
            pause(pacer).await;
        }
    }
    Ok(members.finish())
}

/// The ranking of a question, its candidates found; and the pinned documents that its filter admits.
async fn ranker(
    partition: &Rc<dyn SearchPartition>,
    question: &RankQuestion,
    pacer: &dyn Pacer,
) -> Result<(Box<Ranker>, RoaringBitmap), SearchError> {
    doing("filter");
    let filtered = match &question.filter {
        Some(filter) => Some(selected(&**partition, filter, pacer).await?),
        None => None,
    };
    let within = filtered.unwrap_or_else(|| TermSource::documents(&**partition).clone());
    let sorter = Rc::new(ColumnSorter::new(partition.clone(), question.distinct.clone()));
    let (number, count) = partition.place();
    let own = question.pinned.iter().filter(|doc| doc.partition(count) == number);
    let pinned = &own.map(|doc| doc.local(count).0).collect::<RoaringBitmap>() & &*within;
    let within = if pinned.is_empty() { within } else { Rc::new(&*within - &pinned) };
    let node_docs = prepare(partition, &question.plan, pacer).await;
    doing("candidates");
    let mut ranker =
        Ranker::new(question.plan.clone(), partition.clone(), node_docs, sorter, within, partition.place());
    if let Some(cut) = &question.behind
        && let Some(order) = first_order(&**partition, &question.plan)
    {
        let columns = partition.columns().held_by(partition.resident_fields());
        let before = columns.before(order, cut, ranker.candidates(), pacer);
        let before = Box::pin(before).await.map_err(column_error)?;
        ranker.pass_over(before.documents, cut.clone());
    }
    Ok((ranker, pinned))
}

/// The documents that a filter selects. Filters come again and again, with every keystroke and every page.
pub(super) async fn selected(
    partition: &dyn SearchPartition,
    filter: &Filter,
    pacer: &dyn Pacer,
) -> Result<Rc<RoaringBitmap>, SearchError> {
    let Some(cache) = partition.cache().filter(|_| filter.size() <= KEPT_FILTER_SIZE_MAX) else {
        return Box::pin(filter.evaluate(partition, pacer)).await.map(Rc::new).map_err(facet_error);
    };
    let written = format!("{filter:?}");
    if let Some(known) = cache.known_filter(&written) {
        return Ok(known);
    }
    let docs = Rc::new(Box::pin(filter.evaluate(partition, pacer)).await.map_err(facet_error)?);
    cache.keep_filter(written, &docs);
    Ok(docs)
}

fn column_error(error: ColumnError) -> SearchError {
    SearchError::Partition(error.to_string())
}

fn facet_error(error: FacetError) -> SearchError {
    match error {
        FacetError::User(error) => SearchError::User(error),
        FacetError::Column(error) => column_error(error),
    }
}
