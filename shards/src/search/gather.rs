//! The part of a search that happens on the core that was asked.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use futures_util::future::try_join_all;

use super::answer::{FacetAnswer, SearchAnswer, SearchError};
use super::hybrid;
use super::json_array::json_array_in_steps;
use super::known::{KnownFacts, SharedFacts};
use super::merge::{MergeLimits, Ranked, merge};
use super::messages::{PartQuestion, PartReply, RankQuestion, WrittenHits};
use super::narrow::narrow;
use super::part::{Pacer, free_in_steps, pause};
use super::pins::{PinnedDoc, find_pins, placed};
use super::plan::{self, Planner};
use super::request::{PageRequest, SearchRequest};
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::facets::sort::SortBy as CriterionBy;
use crate::fields::FieldsMap;
use crate::format::{FormatPlan, HitExtras, MatchWords};
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::query::{FieldTable, NodeFacts, QueryGraph, QueryWords};
use crate::rank::score::Scorer;
use crate::rank::{RankPlan, RankedDoc, RuleList, SortBy, SortValue, VectorQuery};
use crate::runtime::steps::doing;
use crate::settings::Settings;
use crate::vectors::{EmbedderHost, EmbedderStates};

/// Milliseconds of a search when the settings do not say.
const CUTOFF_MS: u64 = 1500;
/// More documents than the page are ranked when some of them may turn out to belong to one group.
const DISTINCT_SURPLUS: usize = 4;
/// Pages that end behind this document are fetched when it is known what is on them.
const HITS_AHEAD_MAX: u64 = 60;

/// Asks partitions of the index, wherever they are.
pub trait Ask {
    /// Sends a question to one partition and waits for its reply.
    fn ask<'a>(
        &'a self,
        partition: PartitionNo,
        question: PartQuestion,
    ) -> Pin<Box<dyn Future<Output = Result<PartReply, SearchError>> + 'a>>;

    /// The numbers of documents by external id, in the order given.
    fn find<'a>(&'a self, ids: Vec<String>) -> Pin<Box<dyn Future<Output = Result<Numbers, SearchError>> + 'a>>;
}

/// For each id that was asked for its document's number, when the index has it.
pub type Numbers = Vec<Option<DocId>>;

/// An index at one epoch, as the core that was asked sees it.
pub struct SearchedIndex<'i> {
    /// Complete settings.
    pub settings: &'i Settings,
    /// All names met so far.
    pub fields: &'i FieldsMap,
    /// How many partitions there are, at least 1.
    pub partitions: u16,
    /// Made from the settings.
    pub planner: &'i Planner,
    /// What the partitions' dictionaries said at this epoch.
    pub known: &'i KnownFacts,
    /// What is known of the embedders of the settings.
    pub embedders: &'i EmbedderStates,
    /// Who embeds queries.
    pub host: Option<Rc<dyn EmbedderHost>>,
}

/// Answers a search.
pub async fn search(
    index: &SearchedIndex<'_>,
    request: &SearchRequest,
    ask: &dyn Ask,
    pacer: &dyn Pacer,
) -> Result<SearchAnswer, SearchError> {
    if let Some(semantic) = &request.semantic {
        return hybrid::search(index, request, semantic, ask, pacer).await;
    }
    let gather = Gather::new(index, request, ask, pacer);
    gather.check().await?;
    let graph = gather.resolved_graph().await?.graph;
    let words = gather.match_words(&graph);
    let format = Arc::new(FormatPlan::new(request, index.settings, index.fields, words));
    let total_max = index.settings.pagination.max_total_hits;
    let (offset, limit) = request.page.window(total_max);
    let mut ranked = gather.ranked(graph, Some(&format), offset, limit).await?;
    let written = std::mem::take(&mut ranked.shown);
    let shown: AHashMap<DocId, &[u8]> = written.iter().flat_map(WrittenHits::iter).collect();
    let mut missing: Vec<(DocId, HitExtras)> = Vec::new();
    {
        let scorer = Scorer::new(&ranked.question.plan, &ranked.facts);
        for place in page(&ranked, offset, limit).filter(|place| !shown.contains_key(&place.doc())) {
            missing.push(match place {
                Place::Ranked(hit) => (hit.doc, gather.extras(hit, &ranked, &scorer, &format).await),
                Place::Pinned(pin) => (pin.doc, gather.pin_extras(pin)),
            });
            pause(pacer).await;
        }
    }
    let fetched = if missing.is_empty() { Vec::new() } else { gather.fetch(missing, format).await? };
    let mut rest = fetched.iter().map(Vec::as_slice);
    let hits = page(&ranked, offset, limit).map(|place| shown.get(&place.doc()).copied().or_else(|| rest.next()));
    let hits = hits.collect::<Option<Vec<&[u8]>>>().ok_or_else(unexpected)?;
    let answer = SearchAnswer {
        hit_count: hits.len(),
        hits: json_array_in_steps(&hits, pacer).await,
        total: ranked.total.min(total_max),
        offset: match request.page {
            PageRequest::Window { .. } => offset,
            PageRequest::Numbered { .. } => 0,
        },
        facets: ranked.facets.take(),
        degraded: ranked.expired,
        semantic_hits: None,
        query_vector: None,
    };
    free_in_steps(fetched, pacer).await;
    ranked.free(pacer).await;
    Ok(answer)
}

/// What stands at one place of a result.
enum Place<'r> {
    Ranked(&'r RankedDoc),
    Pinned(PinnedDoc),
}

impl Place<'_> {
    fn doc(&self) -> DocId {
        match self {
            Self::Ranked(hit) => hit.doc,
            Self::Pinned(pin) => pin.doc,
        }
    }
}

/// What stands on a page.
fn page(ranked: &Ranked, offset: u64, limit: u64) -> impl Iterator<Item = Place<'_>> {
    let pins = ranked.pins.iter().map(|pin| (pin.position, Place::Pinned(*pin)));
    placed(ranked.docs.iter().map(Place::Ranked), pins).skip(offset as usize).take(limit as usize)
}

/// A query that was looked up in the dictionaries.
pub(super) struct Resolved {
    /// All that may match.
    pub(super) graph: QueryGraph,
    /// What this instance knows of its words, where others ask for that.
    pub(super) words: Option<QueryWords>,
}

/// One search on its way.
pub(super) struct Gather<'g> {
    pub(super) index: &'g SearchedIndex<'g>,
    pub(super) request: &'g SearchRequest,
    ask: &'g dyn Ask,
    pacer: &'g dyn Pacer,
    /// When ranking must stop.
    deadline: Duration,
    /// What is searched by, in place of the words.
    vector: Option<VectorQuery>,
}

impl<'g> Gather<'g> {
    /// A search that begins now.
    pub(super) fn new(
        index: &'g SearchedIndex<'g>,
        request: &'g SearchRequest,
        ask: &'g dyn Ask,
        pacer: &'g dyn Pacer,
    ) -> Self {
        let cutoff = Duration::from_millis(index.settings.search_cutoff_ms.unwrap_or(CUTOFF_MS));
        Self { index, request, ask, pacer, deadline: pacer.now() + cutoff, vector: None }
    }

    /// The same search by a vector in place of the words.
    pub(super) fn by_vector(self, query: VectorQuery) -> Self {
        Self { vector: Some(query), ..self }
    }

    /// Checks what only the index can tell, in the order in which mistakes are reported. The filter is evaluated for it only
    /// where something that is checked later is wrong.
    pub(super) async fn check(&self) -> Result<(), SearchError> {
        let (request, settings) = (self.request, self.index.settings);
        plan::check_documents(request, settings, self.index.fields)?;
        let Err(error) = plan::check_order(request, settings) else { return Ok(()) };
        if request.filter.is_some() {
            let question = RankQuestion {
                plan: Arc::default(),
                filter: request.filter.clone().map(Arc::new),
                pinned: Arc::default(),
                distinct: None,
                facets: None,
                show: None,
                time_left: self.time_left(),
            };
            self.ask_all(|| PartQuestion::Rank(question.clone())).await?;
        }
        Err(error)
    }

    /// What is left of the time.
    pub(super) fn time_left(&self) -> Duration {
        self.deadline.saturating_sub(self.pacer.now())
    }

    /// What hits are to mark, if they mark anything.
    pub(super) fn match_words(&self, graph: &QueryGraph) -> MatchWords {
        if self.request.format.shows_matches() { MatchWords::of(graph) } else { MatchWords::default() }
    }

    async fn ask_all(&self, question: impl Fn() -> PartQuestion) -> Result<Vec<PartReply>, SearchError> {
        if self.index.partitions == 1 {
            return Ok(vec![self.ask.ask(PartitionNo(0), question()).await?]);
        }
        try_join_all((0..self.index.partitions).map(|number| self.ask.ask(PartitionNo(number), question()))).await
    }

    fn field_table(&self) -> FieldTable {
        FieldTable::new(self.index.fields, self.index.settings, self.request.attributes_to_search_on.as_deref())
    }

    /// Draws the graph and completes it from the dictionaries of all partitions, or from those of all instances of a network.
    pub(super) async fn resolved_graph(&self) -> Result<Resolved, SearchError> {
        let settings = self.index.settings;
        doing("query");
        let mut graph = self.index.planner.sketch_aside(self.request, settings, self.index.fields, self.pacer).await;
        if graph.term_count == 0 {
            return Ok(Resolved { words: self.request.share.as_ref().map(|_| QueryWords::default()), graph });
        }
        let fields = Arc::new(self.field_table());
        let facts = self.facts(&graph, &fields).await?;
        let given = self.request.share.as_ref().and_then(|share| share.words.as_deref());
        let shows_matches = self.request.format.shows_matches();
        match given.and_then(|words| words.facts(&graph)) {
            Some(of_network) => {
                graph.complete(&[of_network], shows_matches);
                graph.is_shared = true;
            }
            None => graph.complete(&facts, shows_matches),
        }
        let mut counts = Vec::new();
        if plan::needs_counts(self.request, &graph) {
            counts = self.count_terms(&graph, &fields).await?;
            graph.rank_by_frequency(given.and_then(|words| words.counts(graph.term_count)).unwrap_or(&counts));
        }
        let words = self.request.share.as_ref().map(|_| QueryWords::new(&graph, &facts, counts));
        Ok(Resolved { graph, words })
    }

    /// What the partitions know of each node of the graph; those are asked about nodes that no search of this core has asked
    /// about before.
    async fn facts(
        &self,
        graph: &QueryGraph,
        fields: &Arc<FieldTable>,
    ) -> Result<Vec<Vec<Arc<NodeFacts>>>, SearchError> {
        let by_attribute = plan::by_attribute(self.index.settings);
        let questions = graph.questions(self.request.share.as_ref().map(|share| &share.shard));
        let mut found: Vec<Option<SharedFacts>> =
            questions.iter().map(|question| self.index.known.get(question, by_attribute)).collect();
        let missing: Vec<usize> = (0..questions.len()).filter(|at| found[*at].is_none()).collect();
        if !missing.is_empty() {
            let nodes = Arc::new(missing.iter().map(|at| questions[*at].clone()).collect::<Vec<_>>());
            let question = || PartQuestion::Resolve { nodes: nodes.clone(), fields: fields.clone(), by_attribute };
            let mut replies = Vec::with_capacity(usize::from(self.index.partitions));
            for reply in self.ask_all(question).await? {
                let PartReply::Facts(found) = reply else { return Err(unexpected()) };
                replies.push(found);
            }
            for (number, at) in missing.into_iter().enumerate() {
                let facts: SharedFacts = replies.iter().filter_map(|found| found.get(number).cloned()).collect();
                self.index.known.keep(questions[at].clone(), by_attribute, &facts);
                found[at] = Some(facts);
            }
        }
        let of = |partition: usize| found.iter().flatten().map(|facts| facts.get(partition).cloned()).collect();
        let facts: Option<Vec<Vec<_>>> = (0..usize::from(self.index.partitions)).map(of).collect();
        facts.ok_or_else(unexpected)
    }

    /// How many documents match each term.
    async fn count_terms(&self, graph: &QueryGraph, fields: &FieldTable) -> Result<Vec<u64>, SearchError> {
        let shard = self.request.share.as_ref().map(|share| share.shard.clone());
        let plan = Arc::new(plan::rank_plan(self.request, self.index.settings, graph.clone(), fields.clone(), 0));
        let mut counts = vec![0; usize::from(graph.term_count)];
        for reply in self.ask_all(|| PartQuestion::CountTerms { plan: plan.clone(), shard: shard.clone() }).await? {
            let PartReply::Counts(found) = reply else { return Err(unexpected()) };
            counts.iter_mut().zip(found).for_each(|(sum, count)| *sum += count);
        }
        Ok(counts)
    }

    /// Ranks as many documents as the page needs, at least. With a format the likeliest hits are written out as well.
    pub(super) async fn ranked(
        &self,
        graph: QueryGraph,
        format: Option<&Arc<FormatPlan>>,
        offset: u64,
        limit: u64,
    ) -> Result<Ranked, SearchError> {
        let page_end = usize::try_from(offset + limit).unwrap_or(usize::MAX);
        let pins = find_pins(self.ask, &self.request.pins).await?;
        let pinned = Arc::new(pins.iter().map(|pin| pin.doc).collect());
        let distinct = plan::distinct_field(self.request, self.index.settings);
        let threshold = self.request.ranking_score_threshold;
        let mut plan = self.plan_to(page_end, graph, distinct.is_some());
        let narrows = distinct.is_some() || threshold.is_some();
        let filter = self.request.filter.clone().map(Arc::new);
        let facets = self.request.facets.as_deref();
        let facets = facets.map(|names| Arc::new(FacetPlan::new(names, self.index.fields, self.index.settings)));
        let limits = MergeLimits {
            by_groups: distinct.is_some(),
            threshold,
            counted: if self.request.page.is_exact() { usize::MAX } else { page_end },
            sorted: !plan.rules.sorts.is_empty(),
            page: (offset, limit),
            exact: self.request.page.is_exact(),
        };
        loop {
            let wanted = plan.wanted;
            let time_left = self.time_left();
            let question = RankQuestion {
                plan: Arc::new(plan),
                filter: filter.clone(),
                pinned: Arc::clone(&pinned),
                distinct: distinct.clone(),
                facets: facets.clone().filter(|_| !narrows),
                show: format.cloned().zip(self.hits_ahead(offset, limit)),
                time_left,
            };
            let mut replies = Vec::with_capacity(usize::from(self.index.partitions));
            for reply in self.ask_all(|| PartQuestion::Rank(question.clone())).await? {
                let PartReply::Ranked(reply) = reply else { return Err(unexpected()) };
                replies.push(*reply);
            }
            let complete = replies.iter().all(|reply| reply.part.complete || reply.expired);
            let counts = match facets.as_ref().filter(|_| !narrows) {
                Some(plan) => {
                    let counts: Vec<&FacetCounts> = replies.iter().map(|reply| &*reply.facets).collect();
                    Some(facet_answer(plan, &counts, self.pacer).await)
                }
                None => None,
            };
            let mut ranked = merge(question, replies, limits, &pins, self.pacer).await;
            ranked.facets = counts;
            if self.request.page.is_exact() && !ranked.question.plan.one_per_group {
                // All documents were met, so those dropped say it all.
                let values = std::mem::take(&mut ranked.removed.values);
                free_in_steps(Arc::into_inner(values).into_iter().flatten(), self.pacer).await;
            }
            if ranked.docs.len() >= page_end || ranked.unwanted || complete || distinct.is_none() {
                if narrows && (facets.is_some() || !ranked.removed.values.is_empty()) {
                    let (total, counts) =
                        narrow(self.index.partitions, self.ask, &[&ranked], facets.clone(), self.pacer).await?;
                    ranked.total = total;
                    if let Some(plan) = &facets {
                        ranked.facets = Some(facet_answer(plan, &[&counts], self.pacer).await);
                    }
                }
                return Ok(ranked);
            }
            plan = (*ranked.question.plan).clone();
            ranked.free(self.pacer).await;
            plan.wanted = wanted.saturating_mul(DISTINCT_SURPLUS);
        }
    }

    /// How the partitions rank at first, for a page that ends at `page_end`.
    fn plan_to(&self, page_end: usize, graph: QueryGraph, is_distinct: bool) -> RankPlan {
        let mut plan = plan::rank_plan(self.request, self.index.settings, graph, self.field_table(), page_end);
        if let Some(query) = &self.vector {
            plan.rules = RuleList::by_vector(self.index.settings, &plan::sort_by(self.request));
            plan.vector = Some(query.clone());
        }
        let has_threshold = self.request.ranking_score_threshold.is_some();
        let narrows = is_distinct || has_threshold;
        if narrows && (self.request.page.is_exact() || (has_threshold && !plan.rules.sorts.is_empty())) {
            plan.wanted = usize::MAX;
        } else if is_distinct && (has_threshold || self.vector.is_some()) {
            plan.wanted = page_end.saturating_mul(DISTINCT_SURPLUS);
        }
        // A document below the threshold takes no group.
        plan.one_per_group = is_distinct && !has_threshold && self.vector.is_none();
        plan.whole_buckets = is_distinct && !plan.rules.rules.is_empty();
        plan
    }

    /// Which of its best documents each partition should write out at once, since they are likely to be on the page: that
    /// saves a question. `None` where a hit shows what only the merged order tells, and for large pages.
    fn hits_ahead(&self, offset: u64, limit: u64) -> Option<Range<usize>> {
        let request = self.request;
        let by_distance = request.sort.iter().any(|criterion| matches!(criterion.by, CriterionBy::Point { .. }));
        let plain = !request.show_ranking_score && !request.show_ranking_score_details && !by_distance;
        if !plain || limit == 0 || offset + limit > HITS_AHEAD_MAX {
            return None;
        }
        let (offset, end) = (offset as usize, (offset + limit) as usize);
        match usize::from(self.index.partitions) {
            1 => Some(offset..end),
            // Documents are spread evenly; a few more than their share covers most pages.
            count => Some(0..end.min(end.div_ceil(count) + 4)),
        }
    }

    /// Fetches hits from their owners, in the order given.
    pub(super) async fn fetch(
        &self,
        page: Vec<(DocId, HitExtras)>,
        format: Arc<FormatPlan>,
    ) -> Result<Vec<Vec<u8>>, SearchError> {
        let question = |hits| PartQuestion::Fetch { plan: format.clone(), hits };
        let hits = |reply| if let PartReply::Hits(hits) = reply { Some(hits) } else { None };
        by_owner(self.index.partitions, self.ask, page, question, hits).await
    }

    /// What a document at a fixed place shows besides itself.
    pub(super) fn pin_extras(&self, pin: PinnedDoc) -> HitExtras {
        HitExtras {
            score: self.request.show_ranking_score.then_some(1.0),
            score_details: self.request.show_ranking_score_details.then(|| pin.details()),
            ..HitExtras::default()
        }
    }

    /// What a hit shows besides its document.
    pub(super) async fn extras(
        &self,
        hit: &RankedDoc,
        ranked: &Ranked,
        scorer: &Scorer<'_>,
        format: &FormatPlan,
    ) -> HitExtras {
        let mut extras = HitExtras::default();
        if self.request.show_ranking_score {
            extras.score = Some(scorer.score(hit, self.pacer).await.global());
        }
        if self.request.show_ranking_score_details {
            let hidden = |field: &str| !self.index.settings.displayed(field);
            extras.score_details = Some(scorer.details(hit, &hidden, self.pacer).await);
        }
        let plain = self.request.sort.iter().find_map(|criterion| match &criterion.by {
            CriterionBy::Point { point, is_plain: true } => Some(*point),
            _ => None,
        });
        if let Some(point) = plain.filter(|_| format.retrieve.covers("_geo")) {
            let same =
                |by: &SortBy| matches!(by, SortBy::Geo { lat, lng, .. } if *lat == point.lat && *lng == point.lng);
            let at = ranked.question.plan.rules.sorts.iter().position(same);
            if let Some(SortValue::Point { own, .. }) = at.and_then(|at| hit.sorts.get(at)) {
                extras.geo_distance = Some(*own);
            }
        }
        extras
    }
}

/// Asks each partition about those of the documents that it owns, and gives the replies in the order of the documents.
pub(super) async fn by_owner<I: Clone, R>(
    partitions: u16,
    ask: &dyn Ask,
    docs: Vec<(DocId, I)>,
    question: impl Fn(Vec<(LocalDocId, I)>) -> PartQuestion,
    replies: impl Fn(PartReply) -> Option<Vec<R>>,
) -> Result<Vec<R>, SearchError> {
    let owners: Vec<usize> = docs.iter().map(|(doc, _)| usize::from(doc.partition(partitions).0)).collect();
    let mut owned: Vec<Vec<(LocalDocId, I)>> = vec![Vec::new(); usize::from(partitions)];
    for (owner, (doc, item)) in owners.iter().zip(docs) {
        owned[*owner].push((doc.local(partitions), item));
    }
    let asked = owned.into_iter().enumerate().filter(|(_, docs)| !docs.is_empty());
    let asked = asked.map(|(number, docs)| {
        let reply = ask.ask(PartitionNo(number as u16), question(docs));
        async move { reply.await.map(|reply| (number, reply)) }
    });
    let mut found: Vec<_> = (0..partitions).map(|_| Vec::new().into_iter()).collect();
    for (number, reply) in try_join_all(asked).await? {
        found[number] = replies(reply).ok_or_else(unexpected)?.into_iter();
    }
    owners.iter().map(|owner| found[*owner].next()).collect::<Option<Vec<_>>>().ok_or_else(unexpected)
}

/// The counts of all partitions together.
pub(super) async fn facet_answer(plan: &FacetPlan, counts: &[&FacetCounts], pacer: &dyn Pacer) -> FacetAnswer {
    doing("facet answer");
    let shown = match counts {
        [only] => only.finish(plan, pacer).await,
        several => FacetCounts::merged(several, pacer).await.finish(plan, pacer).await,
    };
    FacetAnswer { distribution: shown.distribution_json(), stats: shown.stats_json() }
}

/// The error for a reply of another kind than its question.
pub(super) fn unexpected() -> SearchError {
    SearchError::Partition("a partition's reply does not fit its question".into())
}
