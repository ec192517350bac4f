//! Questions about vectors, apart from ranking, that the owner of a partition answers.

use std::collections::BTreeMap;

use storage_engine::vector::SearchOptions;

use super::nearest::SearchPace;
use crate::document::names::VECTORS;
use crate::ids::{DocId, LocalDocId};
use crate::search::answer::SearchError;
use crate::search::messages::{NearQuestion, PartReply};
use crate::search::part::{Pacer, SearchPartition, selected};
use crate::vectors::show;
use crate::vectors::stored::EmbedderVectors;

fn failed(error: impl ToString) -> SearchError {
    SearchError::Partition(error.to_string())
}

fn vectors<'p>(partition: &'p dyn SearchPartition, embedder: &str) -> Option<&'p EmbedderVectors> {
    partition.vectors()?.get(embedder)
}

/// A document's vectors.
pub async fn vectors_of(
    partition: &dyn SearchPartition,
    doc: LocalDocId,
    embedder: &str,
) -> Result<PartReply, SearchError> {
    let found = match vectors(partition, embedder) {
        Some(vectors) => vectors.numbered(doc.0).await.map_err(failed)?,
        None => Vec::new(),
    };
    Ok(PartReply::Vectors(found))
}

/// The documents nearest to the vectors of one.
pub async fn near(
    partition: &dyn SearchPartition,
    question: &NearQuestion,
    pacer: &dyn Pacer,
) -> Result<PartReply, SearchError> {
    let mut docs = match &question.filter {
        Some(filter) => (*selected(partition, filter, pacer).await?).clone(),
        None => crate::facets::FacetSource::documents(partition).clone(),
    };
    let (number, count) = partition.place();
    if question.except.partition(count) == number {
        docs.remove(question.except.local(count).0);
    }
    let pace = SearchPace::new(pacer, pacer.now() + question.time_left);
    let mut nearest: BTreeMap<u32, f32> = BTreeMap::new();
    if let Some(vectors) = vectors(partition, &question.embedder) {
        for (slot, vector) in question.vectors.iter() {
            let Some(graph) = vectors.graph_of(vector.len()) else { continue };
            let options = SearchOptions {
                limit: question.limit,
                allowed: Some(&docs),
                filtered: question.filter.is_some(),
                ordinal: Some(*slot),
                partitions: count,
                ..SearchOptions::default()
            };
            for near in graph.snapshot.search(vector, &options, &pace).await.map_err(failed)? {
                let best = nearest.entry(near.doc).or_insert(near.distance);
                *best = best.min(near.distance);
            }
        }
    }
    let global = |(doc, distance): (u32, f32)| (distance, LocalDocId(doc).global(number, count));
    let mut found: Vec<(f32, DocId)> = nearest.into_iter().map(global).collect();
    found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    found.truncate(question.limit);
    Ok(PartReply::Near(found, docs.len()))
}

/// What stands under `_vectors` of a hit.
pub async fn shown(partition: &dyn SearchPartition, doc: LocalDocId) -> Result<Option<Vec<u8>>, String> {
    let Some(vectors) = partition.vectors() else { return Ok(None) };
    let mut stored = None;
    if let Some(field) = partition.fields().id(VECTORS) {
        partition.with_record(doc, &mut |fields| {
            stored = fields.iter().find(|(id, _)| *id == field).map(|(_, value)| value.to_vec());
        })?;
    }
    let names = partition.settings().embedders.keys();
    let shown = show::shown(vectors, names, doc, stored.as_deref()).await;
    shown.map(Some).map_err(|error| error.to_string())
}
