//! Facet search among the documents that a search finds.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::answer::SearchError;
use super::ask::{Ask, unexpected};
use super::gather::{Gather, SearchedIndex};
use super::hybrid::{check, query_vector};
use super::messages::{PartQuestion, PartReply};
use super::narrow::questions;
use super::part::Pacer;
use super::plan;
use super::request::{PageRequest, SearchRequest};
use crate::facets::facet_search::{FacetHits, check_facet_name, check_facet_search_enabled, join_spellings};
use crate::facets::folding::Folding;
use crate::ids::PartitionNo;
use crate::runtime::pause;

/// Hits for which a search is run when it is not exhaustive.
const SEARCHED_HITS: u64 = 20;

/// Values whose spellings are asked for together.
const VALUES_TOGETHER: usize = 4096;

/// A search for values of one facet.
#[derive(Clone, Debug, Default)]
pub struct FacetSearchRequest {
    /// Whose documents count. Its page, order and format have no meaning.
    pub search: SearchRequest,
    /// The facet's dotted path.
    pub name: String,
    /// What the values begin with, with some typos; `None`: all.
    pub query: Option<String>,
    /// Whether thresholds and distinct groups are followed to the last document.
    pub exhaustive: bool,
}

/// The values found, each with the number of documents that have it, in the facet's order and cut to its limit.
///
/// # Errors
/// `facet_search_disabled`, `invalid_facet_search_facet_name`, those of [`plan::check`], and of searches by meaning
/// `invalid_search_embedder`, `invalid_vector_dimensions`, `invalid_search_vector` and `vector_embedding_error`.
pub async fn search_facet_values(
    index: &SearchedIndex<'_>,
    request: &FacetSearchRequest,
    ask: &dyn Ask,
    pacer: &dyn Pacer,
) -> Result<Vec<(String, u64)>, SearchError> {
    check_facet_search_enabled(index.settings)?;
    let mut search = request.search.clone();
    if let Some(semantic) = search.semantic.take() {
        check(index.settings, index.embedders, &semantic)?;
        // Every document that the filter admits is found by meaning, some nearer than others. What the query's vector is does
        // not matter then, but where nothing else is asked for there has to be one.
        let text = search.query.take();
        if semantic.ratio >= 1.0 {
            query_vector(index, &semantic, text.as_deref()).await?;
        }
    }
    search.page = match request.exhaustive {
        true => PageRequest::Numbered { page: 1, hits_per_page: SEARCHED_HITS },
        false => PageRequest::Window { offset: 0, limit: SEARCHED_HITS },
    };
    let narrows = search.ranking_score_threshold.is_some() || plan::distinct_field(&search, index.settings).is_some();
    check_facet_name(&request.name, index.settings)?;
    let gather = Gather::new(index, &search, ask, pacer).showing_kept(true);
    gather.check().await?;
    let graph = gather.resolved_graph().await?.graph;
    let (_, limit) = search.page.window(index.settings.pagination.max_total_hits);
    let ranked = gather.ranked(graph, None, 0, if narrows { limit } else { 0 }).await?;
    let field: Arc<str> = request.name.as_str().into();
    let named = plan::named_languages(&request.search);
    let folding = Folding::of_query(&request.name, index.settings, named.as_deref());
    let query: Option<Arc<str>> = request.query.as_deref().map(|query| folding.fold(query).into());
    let questions = questions(&ranked, index.partitions, pacer).await;
    let asked = questions.into_iter().enumerate().map(|(number, search)| {
        let (field, query) = (field.clone(), query.clone());
        let question = PartQuestion::FacetSearch { search: Box::new(search), field, query };
        ask.ask(PartitionNo(number as u16), question)
    });
    let mut all = FacetHits::default();
    for reply in try_join_all(asked).await? {
        let PartReply::FacetHits(hits) = reply else { return Err(unexpected()) };
        all = all.merged(*hits, pacer).await;
    }
    ranked.free(pacer).await;
    let query = request.query.as_deref();
    let all = all.to_spell(&request.name, query, index.settings, pacer).await;
    let mut spelled = Vec::new();
    for values in all.values(VALUES_TOGETHER) {
        let mut of_values = vec![None; values.len()];
        let asked = (0..index.partitions).map(|number| {
            ask.ask(PartitionNo(number), PartQuestion::FacetSpellings { field: field.clone(), values: values.clone() })
        });
        for reply in try_join_all(asked).await? {
            let PartReply::FacetSpellings(of_part) = reply else { return Err(unexpected()) };
            join_spellings(&mut of_values, of_part);
        }
        spelled.extend(of_values);
        pause(pacer).await;
    }
    Ok(all.finish(spelled, (&request.name, query), index.settings, pacer).await)
}
