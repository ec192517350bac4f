//! Decides which kind of semantic search a request is, and runs it.

use std::ops::Range;
use std::sync::Arc;

use ahash::AHashSet;

use super::embed::{check, query_vector, vector_query};
use super::merge::{compare, values};
use crate::facets::distinct::GroupValue;
use crate::facets::distribution::FacetPlan;
use crate::format::{FormatPlan, HitExtras, MatchWords};
use crate::ids::DocId;
use crate::query::{QueryGraph, QueryWords};
use crate::rank::score::Scorer;
use crate::runtime::pause;
use crate::search::answer::{FacetAnswer, SearchAnswer, SearchError};
use crate::search::ask::{Ask, by_owner, unexpected};
use crate::search::federated::FieldValue;
use crate::search::gather::{Gather, Resolved, SearchedIndex, facet_answer};
use crate::search::json_array::json_array_in_steps;
use crate::search::merge::Ranked;
use crate::search::messages::{PartQuestion, PartReply};
use crate::search::narrow::{Losses, narrow};
use crate::search::part::Pacer;
use crate::search::pins::{PinnedDoc, first_places, placed};
use crate::search::plan;
use crate::search::request::{PageRequest, SearchRequest, SemanticQuery};

/// Words alone answer where each hit's weighted score reaches this.
pub const GOOD_ENOUGH: f64 = 0.45;

/// Where a hit of a search by meaning stands in the lists that it was found in.
#[derive(Clone, Copy, Debug)]
pub(in crate::search) struct FoundHit {
    /// Whether in the list by meaning, else in that by words.
    pub semantic: bool,
    /// Its place there.
    pub at: usize,
}

/// What was found by meaning, or by words and meaning.
pub(in crate::search) struct Found {
    /// By words; `None` for a search by meaning alone.
    pub keyword: Option<Ranked>,
    /// By meaning; `None` where words alone answer.
    pub semantic: Option<Ranked>,
    /// The merged list.
    pub hits: Vec<FoundHit>,
    /// What hits are to mark.
    pub words: MatchWords,
    /// What this instance knows of the words, where others ask for that.
    pub known: Option<QueryWords>,
    /// The vector that was searched with.
    pub vector: Option<Arc<[f32]>>,
    /// What counts as found.
    pub total: u64,
    /// The counts of facets.
    pub facets: Option<FacetAnswer>,
    /// What the two lists lost when they became one.
    pub losses: Losses,
    /// The requests of the two lists.
    pub requests: [SearchRequest; 2],
}

impl Found {
    /// Nothing yet, of a search up to the place `end`.
    fn nothing(request: &SearchRequest, end: u64) -> Self {
        let page = match request.page {
            PageRequest::Window { .. } => PageRequest::Window { offset: 0, limit: end },
            PageRequest::Numbered { .. } => PageRequest::Numbered { page: 1, hits_per_page: end },
        };
        let keyword_request = SearchRequest { page, semantic: None, show_ranking_score: true, ..request.clone() };
        let semantic_request = SearchRequest { query: None, ..keyword_request.clone() };
        Self {
            keyword: None,
            semantic: None,
            hits: Vec::new(),
            words: MatchWords::default(),
            known: request.share.as_ref().map(|_| QueryWords::default()),
            vector: None,
            total: 0,
            facets: None,
            losses: Losses::default(),
            requests: [keyword_request, semantic_request],
        }
    }

    /// Takes the first `count` documents of one list as all that is found.
    fn take_list(&mut self, ranked: Ranked, semantic: bool, count: usize) {
        (self.total, self.facets) = (ranked.total, ranked.facets.clone());
        self.hits = (0..ranked.docs.len().min(count)).map(|at| FoundHit { semantic, at }).collect();
        *if semantic { &mut self.semantic } else { &mut self.keyword } = Some(ranked);
    }

    /// The list that a hit is in.
    pub fn list(&self, semantic: bool) -> Result<&Ranked, SearchError> {
        let list = if semantic { &self.semantic } else { &self.keyword };
        list.as_ref().ok_or_else(unexpected)
    }

    /// The documents at fixed places.
    pub fn pins(&self) -> &[PinnedDoc] {
        self.keyword.as_ref().or(self.semantic.as_ref()).map_or(&[], |ranked| &ranked.pins)
    }

    /// Whether time ran out.
    pub fn is_expired(&self) -> bool {
        [&self.keyword, &self.semantic].into_iter().flatten().any(|ranked| ranked.expired)
    }
}

/// Answers a search by meaning, or by words and meaning.
pub async fn search(
    index: &SearchedIndex<'_>,
    request: &SearchRequest,
    semantic: &SemanticQuery,
    ask: &dyn Ask,
    pacer: &dyn Pacer,
) -> Result<SearchAnswer, SearchError> {
    check(index.settings, index.embedders, semantic)?;
    Gather::new(index, request, ask, pacer).check().await?;
    let total_max = index.settings.pagination.max_total_hits;
    let (offset, limit) = request.page.window(total_max);
    let found = find(index, request, semantic, (ask, pacer), (offset..offset + limit, Whole::All)).await?;
    let pins = found.pins().iter().map(|pin| (pin.position, Place::Pinned(*pin)));
    let mut places: Vec<Place> = placed(found.hits.iter().map(|hit| Place::Found(*hit)), pins).collect();
    let first = usize::try_from(offset).unwrap_or(usize::MAX).min(places.len());
    if found.semantic.is_none() && first < places.len() {
        // Where words alone answer, the interface fills the last page up with the first hits.
        places.rotate_left(first);
    } else {
        places.drain(..first);
    }
    places.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    // Where words take no part, the interface counts whatever is on the page.
    let by_meaning = |place: &&Place| match place {
        Place::Found(hit) => hit.semantic,
        Place::Pinned(_) => found.keyword.is_none(),
    };
    let semantic_hits = places.iter().filter(by_meaning).count();
    let hits = write(index, request, (ask, pacer), &found, &places).await?;
    Ok(SearchAnswer {
        hit_count: hits.len(),
        hits: json_array_in_steps(&hits, pacer).await,
        total: found.total.min(total_max),
        offset: if request.page.is_exact() { 0 } else { offset },
        degraded: found.is_expired(),
        semantic_hits: Some(semantic_hits as u64),
        query_vector: found.vector.as_ref().filter(|_| request.retrieve_vectors).map(|vector| vector.to_vec()),
        facets: found.facets,
        steps: Vec::new(),
    })
}

/// What stands at one place of a page.
enum Place {
    Found(FoundHit),
    Pinned(PinnedDoc),
}

/// The bytes of the hits of a page.
async fn write(
    index: &SearchedIndex<'_>,
    request: &SearchRequest,
    (ask, pacer): (&dyn Ask, &dyn Pacer),
    found: &Found,
    places: &[Place],
) -> Result<Vec<Vec<u8>>, SearchError> {
    let format = Arc::new(FormatPlan::new(request, index.settings, index.fields, found.words.clone()));
    let gather = Gather::new(index, request, ask, pacer);
    let hits = {
        let scorers = [&found.keyword, &found.semantic]
            .map(|ranked| ranked.as_ref().map(|ranked| Scorer::new(&ranked.question.plan, &ranked.facts)));
        let mut hits: Vec<(DocId, HitExtras)> = Vec::with_capacity(places.len());
        for place in places {
            hits.push(match place {
                Place::Pinned(pin) => (pin.doc, gather.pin_extras(*pin, &format)),
                Place::Found(hit) => {
                    let ranked = found.list(hit.semantic)?;
                    let scorer = scorers[usize::from(hit.semantic)].as_ref().ok_or_else(unexpected)?;
                    let doc = &ranked.docs[hit.at];
                    (doc.doc, gather.extras(doc, ranked, scorer, &format).await)
                }
            });
            pause(pacer).await;
        }
        hits
    };
    gather.fetch(hits, format).await
}

/// Whether a search has all that there is to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::search) enum Whole {
    /// It does, and may answer by words alone where these find well.
    All,
    /// It is the share of a larger one, of which this was decided.
    Share,
}

/// Finds what a search by meaning, or by words and meaning, has up to the end of `window`. Where documents are distinct, those
/// before it do not count as found, as the interface has it.
pub(in crate::search) async fn find(
    index: &SearchedIndex<'_>,
    request: &SearchRequest,
    semantic: &SemanticQuery,
    (ask, pacer): (&dyn Ask, &dyn Pacer),
    (window, whole): (Range<u64>, Whole),
) -> Result<Found, SearchError> {
    check(index.settings, index.embedders, semantic)?;
    let end = window.end;
    let mut found = Found::nothing(request, end);
    if request.ranking_score_threshold.is_none() && plan::distinct_field(request, index.settings).is_some() {
        // Groups that no page has reached are not told apart by meaning, however the page was asked for.
        found.requests[1].page = PageRequest::Window { offset: 0, limit: end };
    }
    let [start, count] = [window.start, end].map(|place| usize::try_from(place).unwrap_or(usize::MAX));
    let text = request.query.as_deref().filter(|text| !text.trim().is_empty());
    let by_words = text.is_some() && semantic.ratio < 1.0;
    if by_words {
        let gather = Gather::new(index, &found.requests[0], ask, pacer);
        let Resolved { graph, words } = gather.resolved_graph().await?;
        (found.words, found.known) = (gather.match_words(&graph), words);
        let ranked = gather.ranked(graph, None, 0, end).await?;
        let enough = whole == Whole::All && is_enough(&ranked, semantic.ratio, count, pacer).await;
        found.take_list(ranked, false, count);
        if enough {
            return Ok(found);
        }
    }
    let vector = match query_vector(index, semantic, text).await {
        Ok(vector) => vector,
        // The words answer alone.
        Err(SearchError::User(_)) if by_words => return Ok(found),
        Err(error) => return Err(error),
    };
    let gather = Gather::new(index, &found.requests[1], ask, pacer);
    let gather = gather.by_vector(vector_query(index, &semantic.embedder, vector.clone()));
    // The merged list of both has a page of its own.
    let (offset, limit) = if by_words { (0, end) } else { (window.start, end - window.start) };
    let ranked = gather.ranked(QueryGraph::default(), None, offset, limit).await?;
    found.vector = Some(vector);
    match found.keyword.take() {
        Some(keyword) => {
            join(&mut found, index, request, (ask, pacer), (keyword, ranked), (semantic.ratio, start..count)).await?;
        }
        None => found.take_list(ranked, true, count),
    }
    Ok(found)
}

/// Makes one list of the two. What they find together is counted anew where documents of either are left out.
async fn join(
    found: &mut Found,
    index: &SearchedIndex<'_>,
    request: &SearchRequest,
    (ask, pacer): (&dyn Ask, &dyn Pacer),
    (keyword, semantic): (Ranked, Ranked),
    (ratio, window): (f32, Range<usize>),
) -> Result<(), SearchError> {
    let positions = || keyword.pins.iter().map(|pin| pin.position);
    let (count, _) = first_places(positions(), usize::MAX, window.end);
    let merged = merged(index, request, (ask, pacer), (&keyword, &semantic), (ratio, count)).await?;
    found.hits = merged.hits;
    (found.total, found.facets) = (semantic.total, semantic.facets.clone());
    let distinct = plan::distinct_field(request, index.settings);
    if distinct.is_some() || request.ranking_score_threshold.is_some() {
        found.losses.dropped = merged.dropped;
        if let Some(field) = distinct {
            // Of the groups that were met only those count that are on the page, by the document that is.
            let doc = |hit: &FoundHit| if hit.semantic { semantic.docs[hit.at].doc } else { keyword.docs[hit.at].doc };
            let pins = positions().zip(keyword.pins.iter().map(|pin| pin.doc));
            let mut places = placed(found.hits.iter().map(doc), pins).take(window.end);
            found.losses.dropped.extend(places.by_ref().take(window.start));
            found.losses.kept = places.collect();
            found.losses.groups = Some(Arc::new((field, merged.taken)));
        }
        let names = request.facets.as_deref();
        let counted = names.map(|names| Arc::new(FacetPlan::new(names, index.fields, index.settings)));
        let lists = (vec![&keyword, &semantic], &found.losses);
        let (total, counts) = narrow((index.partitions, ask), &[lists], counted.clone(), pacer).await?;
        found.total = total;
        found.facets = match &counted {
            Some(plan) => Some(facet_answer(plan, &[&counts], pacer).await),
            None => None,
        };
    }
    (found.keyword, found.semantic) = (Some(keyword), Some(semantic));
    Ok(())
}

/// Whether the words have found so well that meaning is not asked.
///
/// What stands at a fixed place of the page is good enough, and what the page has no room for then is not looked at.
async fn is_enough(ranked: &Ranked, ratio: f32, end: usize, pacer: &dyn Pacer) -> bool {
    let scorer = Scorer::new(&ranked.question.plan, &ranked.facts);
    let weight = f64::from(1.0 - ratio);
    let (count, pinned) = first_places(ranked.pins.iter().map(|pin| pin.position), ranked.docs.len(), end);
    if count + pinned < end {
        return false;
    }
    for hit in &ranked.docs[..count] {
        if scorer.score(hit, pacer).await.global() * weight < GOOD_ENOUGH {
            return false;
        }
        pause(pacer).await;
    }
    true
}

/// One list of two.
struct Merged {
    hits: Vec<FoundHit>,
    /// Documents that were passed over because an equal one by the distinct attribute came before.
    dropped: Vec<DocId>,
    /// The values of that attribute that the hits have.
    taken: Vec<GroupValue>,
}

/// Merges the two lists.
async fn merged(
    index: &SearchedIndex<'_>,
    request: &SearchRequest,
    (ask, pacer): (&dyn Ask, &dyn Pacer),
    (keyword, semantic): (&Ranked, &Ranked),
    (ratio, count): (f32, usize),
) -> Result<Merged, SearchError> {
    let by_words = values(keyword, count, f64::from(1.0 - ratio), pacer).await;
    let by_meaning = values(semantic, count, f64::from(ratio), pacer).await;
    let field = plan::distinct_field(request, index.settings);
    let groups = [
        groups(index, ask, field.as_deref(), keyword, by_words.len()).await?,
        groups(index, ask, field.as_deref(), semantic, by_meaning.len()).await?,
    ];
    let (mut hits, mut dropped) = (Vec::new(), Vec::new());
    let (mut taken, mut seen): (AHashSet<&FieldValue>, AHashSet<DocId>) = Default::default();
    let (mut word, mut meaning) = (0, 0);
    while hits.len() < count {
        let first = match (by_words.get(word), by_meaning.get(meaning)) {
            (None, None) => break,
            (Some(word), Some(meaning)) => compare(meaning, word).is_ge(),
            (_, meaning) => meaning.is_some(),
        };
        let hit = FoundHit { semantic: first, at: if first { meaning } else { word } };
        if first {
            meaning += 1
        } else {
            word += 1
        }
        let doc = if first { semantic.docs[hit.at].doc } else { keyword.docs[hit.at].doc };
        if !seen.insert(doc) {
            continue;
        }
        let own = groups[usize::from(first)].get(hit.at).map_or(&[][..], Vec::as_slice);
        if own.iter().any(|value| taken.contains(value)) {
            dropped.push(doc);
            continue;
        }
        taken.extend(own);
        hits.push(hit);
    }
    let taken = taken.into_iter().map(FieldValue::group).collect();
    Ok(Merged { hits, dropped, taken })
}

/// For each of the first documents of a list its values of the distinct attribute.
async fn groups(
    index: &SearchedIndex<'_>,
    ask: &dyn Ask,
    field: Option<&str>,
    ranked: &Ranked,
    count: usize,
) -> Result<Vec<Vec<FieldValue>>, SearchError> {
    let Some(field) = field else { return Ok(Vec::new()) };
    let docs: Vec<(DocId, ())> = ranked.docs.iter().take(count).map(|hit| (hit.doc, ())).collect();
    let paths = Arc::new(vec![field.to_owned()]);
    let question = |docs: Vec<(_, ())>| {
        let docs = docs.into_iter().map(|(doc, ())| doc).collect();
        PartQuestion::Values { paths: paths.clone(), docs }
    };
    let values = |reply| if let PartReply::Values(values) = reply { Some(values) } else { None };
    let found = by_owner(index.partitions, ask, docs, question, values).await?;
    Ok(found.into_iter().map(|mut values| if values.is_empty() { Vec::new() } else { values.swap_remove(0) }).collect())
}
