//! The part of a federated search that runs on the core that received it.

use std::sync::Arc;

use ahash::AHashSet;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::facets::{DroppedHit, IndexFacets, finish};
use super::merge::{Entry, Origin, merge, score_values};
use super::ranked::{RankedQuery, join_score_facts, scorers, take_score_facts};
use super::together::words_share;
use super::values::FieldValue;
use super::{FederatedAnswer, FederatedError, FederatedQuery, FederatedRequest, FederatedRole, HitRank, PartHit};
use crate::facets::distribution::FacetPlan;
use crate::ids::DocId;
use crate::rank::plan::Costs;
use crate::runtime::{pause, pause_at};
use crate::search::answer::SearchError;
use crate::search::ask::{Ask, by_owner};
use crate::search::gather::{Gather, Resolved, SearchedIndex};
use crate::search::hybrid::{FoundHit, Whole, find};
use crate::search::json_array::json_array_in_steps;
use crate::search::messages::{PartQuestion, PartReply};
use crate::search::narrow::{Lists, Losses, narrow};
use crate::search::part::{Pacer, free_in_steps};
use crate::search::pins::{PinnedDoc, first_places, placed};
use crate::search::request::{PageRequest, SearchRequest};

/// Searches of one request that run side by side: enough to keep the other cores busy, few enough that a long request leaves
/// room for others.
const SEARCHES_AT_ONCE: usize = 4;
/// Hits that are moved or made between two looks at whether others wait.
pub(super) const HITS_PER_LOOK: usize = 64;

/// One index of a federated search and the way to its partitions.
pub struct FederatedAccess<'i> {
    /// The index at one epoch.
    pub index: SearchedIndex<'i>,
    /// The way.
    pub ask: &'i dyn Ask,
}

/// Answers a federated search; `access` is in the order of the request's indexes.
///
/// # Errors
/// That of the first query, in the order of the request, that fails.
pub async fn federated_search(
    access: &[FederatedAccess<'_>],
    request: &FederatedRequest,
    pacer: &dyn Pacer,
) -> Result<FederatedAnswer, FederatedError> {
    let requests: Vec<SearchRequest> = request.queries.iter().map(|query| planned(query, request)).collect();
    let federation = Federation { access, request, requests: &requests, pacer };
    let mut ranked = federation.ranked().await?;
    let (kept, pins, dropped) = federation.merged(&mut ranked).await?;
    let (total, facets) = federation.totals(&ranked).await?;
    let (page, values) = federation.page(kept, pins).await;
    let hits = federation.fetch(&ranked, &page).await?;
    let uids: Vec<&str> = request.indexes.iter().map(|index| &*index.uid).collect();
    let merge_facets = request.merge_facets.as_ref().filter(|_| request.role == FederatedRole::Whole);
    let mut answer = FederatedAnswer {
        hit_count: hits.len(),
        total: total.saturating_sub(dropped.len() as u64),
        facets: finish(&uids, facets, &dropped, merge_facets, pacer).await,
        degraded: ranked.iter().any(|query| query.lists.iter().any(|list| list.expired)),
        semantic_hits: federation.semantic_hits(&ranked, &page),
        query_vectors: federation.query_vectors(&ranked),
        scores: take_score_facts(&mut ranked, pacer).await,
        words: ranked.iter_mut().map(|query| query.known.take()).collect(),
        ..FederatedAnswer::default()
    };
    if request.role == FederatedRole::Part {
        answer.part = federation.part_hits(&ranked, page, values, hits).await;
    } else {
        answer.hits = json_array_in_steps(&hits, pacer).await;
        free_in_steps(hits, pacer).await;
        free_in_steps(page.into_iter().zip(values), pacer).await;
    }
    free_in_steps(dropped, pacer).await;
    for list in ranked.into_iter().flat_map(|query| query.lists) {
        list.free(pacer).await;
    }
    Ok(answer)
}

/// Values of a hit by field.
type FieldValues = Vec<(String, Vec<FieldValue>)>;

/// A hit that is left once those that share a distinct value with an earlier one are gone.
struct KeptHit {
    entry: Entry,
    /// Its values of the distinct field and of facets, when anything is to be distinct.
    values: FieldValues,
}

/// Hits at fixed places.
type Pins = Vec<(PinnedDoc, Entry)>;

/// Puts them in the order of their places; where all else is equal, that of an earlier query comes first.
fn in_order(pins: &mut Pins) {
    pins.sort_by_key(|(pin, entry)| (pin.order(), entry.position));
}

/// The search of a query as its index is asked: the beginning of its list, up to the end of the page, with scores.
fn planned(query: &FederatedQuery, federated: &FederatedRequest) -> SearchRequest {
    let limit = federated.page.first().saturating_add(federated.page.count()) as u64;
    let page = match federated.page {
        PageRequest::Window { .. } => PageRequest::Window { offset: 0, limit },
        PageRequest::Numbered { .. } => PageRequest::Numbered { page: 1, hits_per_page: limit },
    };
    SearchRequest {
        page,
        distinct: federated.distinct.clone().or_else(|| query.request.distinct.clone()),
        facets: None,
        show_ranking_score: true,
        ..query.request.clone()
    }
}

pub(super) struct Federation<'f> {
    access: &'f [FederatedAccess<'f>],
    pub(super) request: &'f FederatedRequest,
    /// What is asked for each query.
    requests: &'f [SearchRequest],
    pub(super) pacer: &'f dyn Pacer,
}

impl<'f> Federation<'f> {
    pub(super) fn of(&self, query: usize) -> (&'f FederatedQuery, &'f FederatedAccess<'f>) {
        let query = &self.request.queries[query];
        (query, &self.access[query.index])
    }

    fn gather(&self, query: usize) -> Gather<'f> {
        let (_, access) = self.of(query);
        let queries = &self.request.queries;
        let has_facets = self.request.indexes[queries[query].index].facets.is_some();
        Gather::new(&access.index, &self.requests[query], access.ask, self.pacer)
            .showing_kept(has_facets || queries.len() > 1)
    }

    /// All queries in order, with the hits of each scored.
    async fn ranked(&self) -> Result<Vec<RankedQuery>, FederatedError> {
        let mut ranked: Vec<RankedQuery> = stream::iter(0..self.request.queries.len())
            .map(|query| self.rank(query))
            .buffered(SEARCHES_AT_ONCE)
            .try_collect()
            .await?;
        join_score_facts(&mut ranked, &self.request.queries, self.pacer).await;
        for number in 0..ranked.len() {
            ranked[number].entries = self.entries(number, &ranked).await;
        }
        Ok(ranked)
    }

    async fn rank(&self, query: usize) -> Result<RankedQuery, FederatedError> {
        let failed = |error| FederatedError { query: Some(query), error };
        let gather = self.gather(query);
        let (offset, limit) = gather.request.page.window(gather.index.settings.pagination.max_total_hits);
        if let Some(semantic) = &gather.request.semantic {
            let (_, access) = self.of(query);
            let way = (access.ask, self.pacer);
            let whole = if self.request.is_hybrid_share { Whole::Share } else { Whole::All };
            let found = find(&access.index, gather.request, semantic, way, (0..limit, whole)).await.map_err(failed)?;
            let first_is_semantic = usize::from(found.keyword.is_none());
            let place =
                |hit: &FoundHit| (usize::from(hit.semantic) - usize::from(hit.semantic) * first_is_semantic, hit.at);
            let places: Vec<(usize, usize)> = found.hits.iter().map(place).collect();
            return Ok(RankedQuery {
                words: found.words,
                known: found.known,
                lists: found.keyword.into_iter().chain(found.semantic).collect(),
                losses: found.losses,
                total: found.total,
                vector: found.vector,
                places,
                entries: Vec::new(),
                joined: None,
            });
        }
        let Resolved { graph, words: known } = gather.resolved_graph().await.map_err(failed)?;
        let words = gather.match_words(&graph);
        let lists = vec![gather.ranked(graph, None, offset, limit).await.map_err(failed)?];
        let count = lists[0].docs.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let places = (0..count).map(|at| (0, at)).collect();
        let (losses, total, vector, entries) = (Losses::default(), lists[0].total, None, Vec::new());
        Ok(RankedQuery { words, known, lists, losses, total, vector, places, entries, joined: None })
    }

    /// The hits of a query.
    async fn entries(&self, number: usize, ranked: &[RankedQuery]) -> Vec<Entry> {
        let ((query, _), RankedQuery { lists, places, .. }) = (self.of(number), &ranked[number]);
        let scorers = scorers(ranked, number);
        // The two lists of a hybrid search were merged by their weights, by which those of several instances merge as well.
        let by_words = words_share(&self.requests[number], self.request.is_hybrid_share);
        let by_nearness = query.request.share.is_some();
        let entry = async |(list, at): (usize, usize)| {
            let hit = &lists[list].docs[at];
            let score = scorers[list].score(hit, self.pacer).await;
            let plan = &lists[list].question.plan;
            let share = by_words.map_or(1.0, |share| if plan.vector.is_some() { 1.0 - share } else { share });
            let weight = query.weight * f64::from(share);
            Entry {
                query: number,
                position: query.position,
                doc: hit.doc,
                origin: Origin::Ranked { list, at },
                score: score.global() * query.weight,
                values: score_values(plan, hit, &score, weight),
                nearness: hit.costs.first().copied().filter(|_| by_nearness && plan.vector.is_some()),
            }
        };
        let mut entries = Vec::with_capacity(places.len());
        for place in places {
            entries.push(entry(*place).await);
            pause(self.pacer).await;
        }
        entries
    }

    /// Hits of the page that were found by meaning, where any query asked for that.
    fn semantic_hits(&self, ranked: &[RankedQuery], page: &[Entry]) -> Option<u64> {
        self.requests.iter().find(|request| request.semantic.is_some())?;
        let by_vector = |entry: &&Entry| match entry.origin {
            Origin::Ranked { list, .. } => ranked[entry.query].lists[list].question.plan.vector.is_some(),
            _ => false,
        };
        Some(page.iter().filter(by_vector).count() as u64)
    }

    /// The vectors that were searched with, by the numbers of the queries that ask for vectors.
    fn query_vectors(&self, ranked: &[RankedQuery]) -> Vec<(u64, Vec<f32>)> {
        let asked = ranked.iter().zip(&self.request.queries).filter(|(_, query)| query.request.retrieve_vectors);
        asked.filter_map(|(ranked, query)| Some((query.position, ranked.vector.as_ref()?.to_vec()))).collect()
    }

    /// The hits of all pages up to the one asked for.
    fn page_end(&self) -> usize {
        self.request.page.first().saturating_add(self.request.page.count())
    }

    /// All hits in one list, without those that share a value of the distinct field with one before them. Of each index these are
    /// looked for until enough hits are left for the page, of all indexes together to the end. Gives the hits kept, those at fixed
    /// places, of which an index has no more either than it may return, and those dropped.
    async fn merged(
        &self,
        ranked: &mut [RankedQuery],
    ) -> Result<(Vec<KeptHit>, Pins, Vec<DroppedHit>), FederatedError> {
        let (mut entries, mut values, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        let mut pins = Pins::new();
        for (index, access) in self.access.iter().enumerate() {
            let total_max = usize::try_from(access.index.settings.pagination.max_total_hits).unwrap_or(usize::MAX);
            let limit = self.page_end().min(total_max);
            let mut own_pins = self.pins(index, ranked);
            // Others take the places of those that are dropped.
            let wanted = if self.request.distinct.is_some() { usize::MAX } else { limit };
            let found = self.of_index(index, ranked, wanted).await;
            let fields = match &self.request.distinct {
                Some(distinct) => self.values(index, distinct, &found).await?,
                None => vec![FieldValues::new(); found.len()],
            };
            let hits = found.into_iter().zip(fields).map(|(entry, values)| KeptHit { entry, values });
            let (mut own, mut of_own) = (Vec::new(), Vec::new());
            // Those that pins leave no room for have taken their values all the same.
            let hits = self.without_repeats(hits, limit, &mut dropped).await;
            let positions = own_pins.iter().map(|(pin, _)| pin.position);
            let (count, pinned) = first_places(positions, hits.len(), limit);
            own_pins.truncate(pinned);
            pins.extend(own_pins);
            for (at, hit) in hits.into_iter().take(count).enumerate() {
                own.push(hit.entry);
                of_own.push(hit.values);
                pause_at(at, HITS_PER_LOOK, self.pacer).await;
            }
            entries.push(own);
            values.push(of_own.into_iter());
        }
        // The hits of an index leave in its order.
        let hits = merge(entries).map(|entry| {
            let values = values[self.request.queries[entry.query].index].next().unwrap_or_default();
            KeptHit { entry, values }
        });
        let kept = self.without_repeats(hits, usize::MAX, &mut dropped).await;
        in_order(&mut pins);
        Ok((kept, pins, dropped))
    }

    /// The documents that the queries of one index found, each once, in order.
    async fn of_index(&self, index: usize, ranked: &mut [RankedQuery], limit: usize) -> Vec<Entry> {
        let queries = ranked.iter_mut().zip(&self.request.queries).filter(|(_, query)| query.index == index);
        let lists = queries.map(|(ranked, _)| std::mem::take(&mut ranked.entries)).collect();
        let mut seen: AHashSet<DocId> = AHashSet::new();
        let (mut entries, mut merging) = (Vec::new(), merge(lists));
        for entry in merging.by_ref().filter(|entry| seen.insert(entry.doc)).take(limit) {
            entries.push(entry);
            pause(self.pacer).await;
        }
        free_in_steps(merging.into_rest(), self.pacer).await;
        entries
    }

    /// Drops hits that share a value of the distinct field with one before them, until `limit` hits are kept: these are given.
    async fn without_repeats(
        &self,
        hits: impl Iterator<Item = KeptHit>,
        limit: usize,
        dropped: &mut Vec<DroppedHit>,
    ) -> Vec<KeptHit> {
        let (mut kept, mut taken) = (Vec::new(), AHashSet::<FieldValue>::new());
        let mut hits = hits.enumerate();
        while kept.len() < limit
            && let Some((at, hit)) = hits.next()
        {
            pause_at(at, HITS_PER_LOOK, self.pacer).await;
            // Without a distinct field there are none.
            let own = hit.values.first().map_or(&[][..], |(_, values)| values);
            if own.iter().any(|value| taken.contains(value)) {
                let index = self.request.queries[hit.entry.query].index;
                dropped.push(DroppedHit { index, values: hit.values });
                continue;
            }
            taken.extend(own.iter().cloned());
            kept.push(hit);
        }
        free_in_steps(hits, self.pacer).await;
        free_in_steps(taken, self.pacer).await;
        kept
    }

    /// The hits of one index at fixed places, in the order of these.
    fn pins(&self, index: usize, ranked: &[RankedQuery]) -> Pins {
        let mut pins = Pins::new();
        for (number, query) in ranked.iter().enumerate() {
            let (asked, _) = self.of(number);
            if asked.index != index {
                continue;
            }
            pins.extend(query.lists[0].pins.iter().map(|pin| {
                let (doc, score, origin) = (pin.doc, asked.weight, Origin::Pinned(*pin));
                let (position, values) = (asked.position, Vec::new());
                (*pin, Entry { query: number, position, doc, origin, score, values, nearness: None })
            }));
        }
        in_order(&mut pins);
        pins
    }

    /// What stands on the page, hits at fixed places among the others, each with its values. All pages up to the one asked for
    /// where another instance merges them.
    async fn page(&self, kept: Vec<KeptHit>, pins: Pins) -> (Vec<Entry>, Vec<FieldValues>) {
        let request = self.request;
        let pinned = |(pin, entry): (PinnedDoc, Entry)| (pin.position, KeptHit { entry, values: Vec::new() });
        let mut list = placed(kept, pins.into_iter().map(pinned));
        let end = self.page_end();
        let first = if request.role == FederatedRole::Whole { request.page.first() } else { 0 };
        let (mut page, mut values) = (Vec::new(), Vec::new());
        for (at, kept) in list.by_ref().take(end).enumerate() {
            if at >= first {
                page.push(kept.entry);
                values.push(kept.values);
            }
            pause_at(at, HITS_PER_LOOK, self.pacer).await;
        }
        free_in_steps(list, self.pacer).await;
        (page, values)
    }

    /// The hits of the page, to be merged with those of other instances.
    async fn part_hits(
        &self,
        ranked: &[RankedQuery],
        page: Vec<Entry>,
        values: Vec<FieldValues>,
        hits: Vec<Vec<u8>>,
    ) -> Vec<PartHit> {
        let mut part = Vec::with_capacity(page.len());
        for (at, ((entry, values), json)) in page.into_iter().zip(values).zip(hits).enumerate() {
            part.push(self.part_hit(ranked, entry, values, json));
            pause_at(at, HITS_PER_LOOK, self.pacer).await;
        }
        part
    }

    /// A hit that is merged with those of other instances.
    fn part_hit(&self, ranked: &[RankedQuery], entry: Entry, fields: FieldValues, json: Vec<u8>) -> PartHit {
        let (query, _) = self.of(entry.query);
        let rank = match entry.origin {
            Origin::Ranked { list, at } if query.request.share.is_some() => {
                let list = &ranked[entry.query].lists[list];
                let doc = &list.docs[at];
                let (costs, sorts) = (Costs::from_slice(&doc.costs), doc.sorts.clone());
                let rank = HitRank { query: entry.query, costs, sorts, skipped: doc.skipped };
                list.question.plan.vector.is_none().then_some(rank)
            }
            _ => None,
        };
        let pinned = if let Origin::Pinned(pin) = entry.origin { Some(pin.position) } else { None };
        let index_uid = self.request.indexes[query.index].uid.clone();
        let (position, score, values) = (entry.position, entry.score, entry.values);
        let nearness = entry.nearness;
        PartHit { json, index_uid, position, score, values, pinned, fields, rank, nearness }
    }

    /// For each hit of one index, in order, its values of the distinct field, then of the facets of that index.
    async fn values(&self, index: usize, distinct: &str, hits: &[Entry]) -> Result<Vec<FieldValues>, SearchError> {
        let access = &self.access[index];
        let docs: Vec<(DocId, ())> = hits.iter().map(|entry| (entry.doc, ())).collect();
        let facets = self.facet_plan(index).into_iter().flat_map(|plan| plan.facets).map(|facet| facet.name);
        let mut paths = vec![distinct.to_owned()];
        paths.extend(facets.filter(|name| name != distinct));
        let paths = Arc::new(paths);
        let question = |docs: Vec<(_, ())>| {
            let docs = docs.into_iter().map(|(doc, ())| doc).collect();
            PartQuestion::Values { paths: paths.clone(), docs }
        };
        let values = |reply| if let PartReply::Values(values) = reply { Some(values) } else { None };
        let found = by_owner(access.index.partitions, access.ask, docs, question, values).await?;
        let mut by_path = Vec::with_capacity(found.len());
        for (at, values) in found.into_iter().enumerate() {
            by_path.push(paths.iter().cloned().zip(values).collect());
            pause_at(at, HITS_PER_LOOK, self.pacer).await;
        }
        Ok(by_path)
    }

    pub(super) fn facet_plan(&self, index: usize) -> Option<FacetPlan> {
        let searched = &self.access[index].index;
        let names = self.request.indexes[index].facets.as_ref()?;
        Some(FacetPlan::new(names, searched.fields, searched.settings))
    }

    /// How many documents are found in all indexes, and the facets of those that show theirs.
    async fn totals(&self, ranked: &[RankedQuery]) -> Result<(u64, Vec<IndexFacets>), FederatedError> {
        let (mut total, mut facets) = (0, Vec::new());
        for index in 0..self.access.len() {
            let queries = ranked.iter().zip(&self.request.queries).filter(|(_, query)| query.index == index);
            let queries: Vec<&RankedQuery> = queries.map(|(ranked, _)| ranked).collect();
            let plan = self.facet_plan(index);
            if let ([query], None) = (queries.as_slice(), &plan) {
                total += query.total;
                continue;
            }
            let access = &self.access[index];
            let lists = queries.iter().map(|query| (query.lists.iter().collect(), &query.losses));
            let searches: Vec<Lists<'_>> = lists.collect();
            let counted = plan.clone().map(Arc::new);
            let way = (access.index.partitions, access.ask);
            let (documents, counts) = narrow(way, &searches, counted, self.pacer).await?;
            total += documents;
            if let Some(plan) = plan {
                facets.push(IndexFacets { index, shown: counts.finish(&plan, self.pacer).await });
            }
        }
        Ok((total, facets))
    }
}
