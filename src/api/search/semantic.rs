//! Decides which kind of search a request is, and handles its semantic part.

use std::sync::Arc;

use shards::engine::IndexView;
use shards::search::{SemanticQuery, check_semantic};

use super::params::SearchParams;
use crate::api::error::{ApiError, ErrorCode};
use crate::control::Features;

/// The part of a search that goes by meaning; `None` when words alone decide. An embedder that is not needed is not looked at.
///
/// # Errors
/// `invalid_search_embedder` for an embedder that the index does not have, `feature_not_enabled` for media,
/// `invalid_vector_dimensions` and `vector_embedding_error` for a vector that does not fit or is missing.
pub(super) fn query(
    params: &SearchParams,
    view: &IndexView,
    features: Features,
) -> Result<Option<SemanticQuery>, ApiError> {
    let check_media = || match params.media.is_some() && !features.multimodal {
        true => Err(ApiError::feature_not_enabled("Passing `media`", "multimodal")),
        false => Ok(()),
    };
    let Some(hybrid) = &params.hybrid else { return Ok(None) };
    if !is_semantic(params) {
        return check_media().map(|()| None);
    }
    if !view.settings.embedders.contains_key(&hybrid.embedder) {
        let message = format!("The index has no embedder `{}`.", hybrid.embedder);
        return Err(ApiError::new(ErrorCode::InvalidSearchEmbedder, message));
    }
    check_media()?;
    let query = SemanticQuery {
        embedder: hybrid.embedder.clone(),
        ratio: if is_blank(params) { 1.0 } else { hybrid.semantic_ratio as f32 },
        vector: params.vector.as_deref().map(Arc::from),
        media: params.media.clone().map(Arc::new),
    };
    // The interface looks at the vector before the filter and the order.
    check_semantic(&view.settings, &view.embedders, &query)?;
    Ok(Some(query))
}

fn is_blank(params: &SearchParams) -> bool {
    params.request.query.as_deref().is_none_or(|query| query.trim().is_empty())
}

/// Whether a search goes by meaning, alone or not.
pub(super) fn is_semantic(params: &SearchParams) -> bool {
    let has_other_query = params.vector.is_some() || params.media.is_some();
    let is_asked = params.hybrid.as_ref().is_some_and(|hybrid| hybrid.semantic_ratio != 0.0);
    is_asked && (has_other_query || !is_blank(params))
}

/// The weight of words in a search by words and meaning; `None` for any other.
pub(super) fn words_weight(params: &SearchParams) -> Option<f64> {
    let ratio = params.hybrid.as_ref().map(|hybrid| hybrid.semantic_ratio as f32)?;
    (is_semantic(params) && !is_blank(params) && ratio < 1.0).then(|| f64::from(1.0 - ratio))
}
