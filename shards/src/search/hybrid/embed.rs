//! The vector of a query: given in the request, or embedded from its text.

use std::sync::Arc;
use std::time::Duration;

use crate::error::UserError;
use crate::rank::VectorQuery;
use crate::search::answer::SearchError;
use crate::search::gather::SearchedIndex;
use crate::search::request::SemanticQuery;
use crate::settings::Settings;
use crate::settings::embedder::{Distribution, EmbedderConfig};
use crate::vectors::{EmbedderStates, QueryRequest};

/// How long failed attempts are repeated where the words can answer alone.
const RETRY_HYBRID: Duration = Duration::from_secs(3);
/// And where they cannot.
const RETRY_SEMANTIC: Duration = Duration::from_secs(10);

/// Checks what can be told of a search by meaning without a vector of its text: the embedder, the length of a vector that is
/// given, and that there is one where nobody makes any.
///
/// # Errors
/// `invalid_search_embedder`, `invalid_vector_dimensions`, `invalid_search_vector`, `vector_embedding_error`.
pub fn check(settings: &Settings, embedders: &EmbedderStates, query: &SemanticQuery) -> Result<(), UserError> {
    let name = &query.embedder;
    let Some(embedder) = settings.embedders.get(name) else {
        let message = format!("Cannot find embedder with name `{name}`.");
        return Err(UserError::new("invalid_search_embedder", message));
    };
    match &query.vector {
        Some(vector) => check_length(dimensions(embedders, name), vector),
        // Words do not answer in its place.
        None if query.ratio >= 1.0 && !EmbedderConfig::of(embedder).generates() => {
            Err(embedding_error(&format!("the vectors of embedder `{name}` are given by the user, so give `vector`.")))
        }
        None => Ok(()),
    }
}

fn check_length(dimensions: u32, vector: &[f32]) -> Result<(), UserError> {
    if vector.len() != dimensions as usize {
        let message = format!("Invalid vector dimensions: expected: `{dimensions}`, found: `{}`.", vector.len());
        return Err(UserError::new("invalid_vector_dimensions", message));
    }
    if vector.iter().any(|number| !number.is_finite()) {
        let message = "The vector of the query holds a number that is too large.";
        return Err(UserError::new("invalid_search_vector", message));
    }
    Ok(())
}

fn embedding_error(why: &str) -> UserError {
    UserError::new("vector_embedding_error", format!("Error while generating embeddings: {why}"))
}

fn dimensions(embedders: &EmbedderStates, name: &str) -> u32 {
    embedders.get(name).map_or(0, |state| state.facts.dimensions)
}

/// The vector of a query.
///
/// # Errors
/// `vector_embedding_error`.
pub async fn query_vector(
    index: &SearchedIndex<'_>,
    query: &SemanticQuery,
    text: Option<&str>,
) -> Result<Arc<[f32]>, SearchError> {
    if let Some(vector) = &query.vector {
        return Ok(vector.clone());
    }
    let name = &query.embedder;
    let host = index.host.as_ref().ok_or_else(|| embedding_error("this server embeds no texts."))?;
    let embedder = index.settings.embedders.get(name).cloned().unwrap_or_default();
    let request = QueryRequest {
        name: name.as_str().into(),
        embedder: Arc::new(embedder),
        text: text.filter(|text| !text.trim().is_empty()).map(str::to_owned),
        media: query.media.clone(),
        retry_for: if query.ratio < 1.0 { RETRY_HYBRID } else { RETRY_SEMANTIC },
        dimensions: dimensions(index.embedders, name),
    };
    let vector = host.embed_query(request).await?;
    if vector.len() != dimensions(index.embedders, name) as usize || vector.iter().any(|number| !number.is_finite()) {
        return Err(embedding_error("the vector of the query does not fit those of the documents.").into());
    }
    Ok(vector.into())
}

/// What partitions are to measure.
pub fn vector_query(index: &SearchedIndex<'_>, embedder: &str, vector: Arc<[f32]>) -> VectorQuery {
    VectorQuery { embedder: embedder.into(), vector, shift: shift(index, embedder) }
}

/// How an embedder's scores are shifted.
pub fn shift(index: &SearchedIndex<'_>, embedder: &str) -> Option<Distribution> {
    EmbedderConfig::of(index.settings.embedders.get(embedder)?).distribution
}
