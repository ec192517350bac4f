//! Finds documents similar to one in the index.

use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::{Map, json};

use super::embed::vector_query;
use crate::error::UserError;
use crate::facets::Filter;
use crate::format::{FormatPlan, HitExtras, MatchWords};
use crate::ids::{DocId, PartitionNo};
use crate::rank::VectorQuery;
use crate::search::answer::SearchError;
use crate::search::ask::{Ask, unexpected};
use crate::search::gather::{Gather, SearchedIndex};
use crate::search::json_array::json_array_in_steps;
use crate::search::messages::{NearQuestion, PartQuestion, PartReply};
use crate::search::part::Pacer;
use crate::search::request::{FormatRequest, PageRequest, SearchRequest};
use crate::search::similar::{SimilarAnswer, SimilarRequest};

/// The documents nearest to one; the answer's total is the number of documents that the filter admits, without it.
///
/// # Errors
/// `invalid_similar_embedder`, `not_found_similar_id`, and the filter's own.
pub async fn similar(
    index: &SearchedIndex<'_>,
    request: &SimilarRequest,
    ask: &dyn Ask,
    pacer: &dyn Pacer,
) -> Result<SimilarAnswer, SearchError> {
    let name = &request.embedder;
    if !index.settings.embedders.contains_key(name) {
        let message = format!("Cannot find embedder with name `{name}`.");
        return Err(UserError::new("invalid_similar_embedder", message).into());
    }
    if let Some(filter) = &request.filter {
        filter.check_attributes(index.settings)?;
    }
    let number = ask.find(vec![request.id.clone()]).await?.into_iter().next().flatten();
    let unknown = || UserError::new("not_found_similar_id", format!("Document `{}` not found.", request.id));
    let doc = number.ok_or_else(unknown)?;
    let format =
        FormatRequest { attributes_to_retrieve: request.attributes_to_retrieve.clone(), ..FormatRequest::default() };
    let search = SearchRequest {
        page: PageRequest::Window { offset: 0, limit: request.limit },
        format,
        retrieve_vectors: request.retrieve_vectors,
        ..SearchRequest::default()
    };
    let gather = Gather::new(index, &search, ask, pacer);
    let (near, total) = near(index, request, doc, &gather, ask).await?;
    let query = vector_query(index, name, Arc::from([]));
    let score = |cost: u32| query.similarity(cost).unwrap_or(0.0);
    let mut total = total;
    let mut shown = near;
    let offset = usize::try_from(request.offset).unwrap_or(usize::MAX).min(shown.len());
    if let Some(least) = request.ranking_score_threshold {
        // Documents before the page are counted as they are, as the interface has it.
        let enough = shown[offset..].iter().take_while(|(cost, _)| f64::from(score(*cost)) >= least).count();
        if offset + enough < shown.len() {
            total = (offset + enough) as u64;
            shown.truncate(offset + enough);
        }
    }
    let hits = shown.into_iter().skip(offset).map(|(cost, doc)| (doc, extras(request, score(cost)))).collect();
    let format = FormatPlan::new(&search, index.settings, index.fields, MatchWords::default());
    let hits = gather.fetch(hits, Arc::new(format)).await?;
    let total = total.min(index.settings.pagination.max_total_hits);
    Ok(SimilarAnswer { hits: json_array_in_steps(&hits, pacer).await, total })
}

fn extras(request: &SimilarRequest, score: f32) -> HitExtras {
    let details = || {
        let mut details = Map::new();
        details.insert("vectorSort".into(), json!({"order": 0, "similarity": score}));
        details
    };
    HitExtras {
        score: request.show_ranking_score.then_some(f64::from(score)),
        score_details: request.show_ranking_score_details.then(details),
        ..HitExtras::default()
    }
}

/// The nearest documents of all partitions with their costs, and how many documents there are to choose from.
async fn near(
    index: &SearchedIndex<'_>,
    request: &SimilarRequest,
    doc: DocId,
    gather: &Gather<'_>,
    ask: &dyn Ask,
) -> Result<(Vec<(u32, DocId)>, u64), SearchError> {
    let (count, embedder) = (index.partitions, Arc::<str>::from(request.embedder.as_str()));
    let own = PartQuestion::VectorsOf { doc: doc.local(count), embedder: embedder.clone() };
    let PartReply::Vectors(vectors) = ask.ask(doc.partition(count), own).await? else { return Err(unexpected()) };
    let limit = usize::try_from(request.offset.saturating_add(request.limit)).unwrap_or(usize::MAX);
    let filter: Option<Arc<Filter>> = request.filter.clone().map(Arc::new);
    let question = NearQuestion {
        embedder,
        vectors: Arc::new(vectors),
        filter,
        except: doc,
        limit,
        time_left: gather.time_left(),
    };
    let asked = (0..count).map(|number| ask.ask(PartitionNo(number), PartQuestion::Near(question.clone())));
    let (mut near, mut total) = (Vec::new(), 0);
    for reply in try_join_all(asked).await? {
        let PartReply::Near(found, candidates) = reply else { return Err(unexpected()) };
        total += candidates;
        near.extend(found.into_iter().map(|(distance, doc)| (VectorQuery::cost(distance), doc)));
    }
    near.sort_unstable();
    near.truncate(limit);
    Ok((near, total))
}
