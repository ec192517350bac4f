//! The part of a search that runs on the core that received it.

mod hits;
mod ranking;
mod resolve;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use futures_util::future::try_join_all;

use self::hits::page;
pub(super) use self::ranking::facet_answer;
pub(super) use self::resolve::Resolved;
use super::answer::{SearchAnswer, SearchError};
use super::ask::{Ask, unexpected};
use super::hybrid;
use super::json_array::json_array_in_steps;
use super::known::KnownFacts;
use super::messages::{PartQuestion, PartReply, RankQuestion, WrittenHits};
use super::part::{Pacer, free_in_steps};
use super::plan::{self, Planner};
use super::request::{PageRequest, SearchRequest};
use super::steps::{Step, Steps};
use crate::fields::FieldsMap;
use crate::format::{FormatPlan, MatchWords};
use crate::ids::{DocId, PartitionNo};
use crate::query::{FieldTable, QueryGraph};
use crate::rank::VectorQuery;
use crate::runtime::pause_at;
use crate::settings::Settings;
use crate::vectors::{EmbedderHost, EmbedderStates};

/// Milliseconds of a search when the settings do not say.
const CUTOFF_MS: u64 = 1500;
/// Hits that are put in order between two looks at whether others wait.
const HITS_PER_LOOK: usize = 256;

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
        return Box::pin(hybrid::search(index, request, semantic, ask, pacer)).await;
    }
    let gather = Gather::new(index, request, ask, pacer);
    gather.check().await?;
    let graph = gather.resolved_graph().await?.graph;
    let ranking = if graph.term_count == 0 { Step::Placeholder } else { Step::Keyword };
    let words = gather.match_words(&graph);
    let format = Arc::new(FormatPlan::new(request, index.settings, index.fields, words));
    let total_max = index.settings.pagination.max_total_hits;
    let (offset, limit) = request.page.window(total_max);
    let mut ranked = gather.ranked_page(graph, &format, (offset, limit)).await?;
    gather.end_step(ranking);
    let written = std::mem::take(&mut ranked.shown);
    let shown: AHashMap<DocId, &[u8]> = written.iter().flat_map(WrittenHits::iter).collect();
    let missing = gather.missing(&ranked, &shown, (offset, limit), &format).await;
    let fetched = if missing.is_empty() { Vec::new() } else { gather.fetch(missing, format).await? };
    let mut rest = fetched.iter().map(Vec::as_slice);
    let mut hits = Vec::with_capacity(shown.len() + fetched.len());
    for place in page(&ranked, offset, limit) {
        hits.push(shown.get(&place.doc()).copied().or_else(|| rest.next()).ok_or_else(unexpected)?);
        pause_at(hits.len(), HITS_PER_LOOK, pacer).await;
    }
    let (hit_count, hits) = (hits.len(), json_array_in_steps(&hits, pacer).await);
    gather.end_step(Step::Format);
    let answer = SearchAnswer {
        hit_count,
        hits,
        total: ranked.total.min(total_max),
        offset: match request.page {
            PageRequest::Window { .. } => offset,
            PageRequest::Numbered { .. } => 0,
        },
        facets: ranked.facets.take(),
        degraded: ranked.expired,
        semantic_hits: None,
        query_vector: None,
        steps: gather.steps.as_ref().map(Steps::take).unwrap_or_default(),
    };
    free_in_steps(fetched, pacer).await;
    ranked.free(pacer).await;
    Ok(answer)
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
    /// Whether it shows which documents of distinct groups stay, and not only how many: facets are counted of these, or they are
    /// joined with those of another search.
    shows_kept: bool,
    /// Where the request asks how long they take.
    steps: Option<Steps>,
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
        let (shows_kept, now) = (request.facets.is_some(), pacer.now());
        let steps = request.shows_steps.then(|| Steps::new(now));
        Self { index, request, ask, pacer, deadline: now + cutoff, vector: None, shows_kept, steps }
    }

    fn end_step(&self, step: Step) {
        if let Some(steps) = &self.steps {
            steps.end(step, self.pacer.now());
        }
    }

    /// The same search, for one who shows which documents of distinct groups stay.
    pub(super) fn showing_kept(self, shows_kept: bool) -> Self {
        Self { shows_kept: self.shows_kept || shows_kept, ..self }
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
            let filter = request.filter.clone().map(Arc::new);
            let question = RankQuestion::new(Arc::default(), filter, self.time_left());
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
}
