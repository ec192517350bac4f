//! Which kind of search a request is, and the part of it that goes by meaning.

use std::sync::Arc;

use shards::engine::IndexView;
use shards::search::SemanticQuery;

use super::params::SearchParams;
use crate::api::error::{ApiError, ErrorCode};
use crate::control::Features;

/// The part of a search that goes by meaning; `None` when words alone decide. An embedder that is not needed is not looked at.
///
/// # Errors
/// `invalid_search_embedder` for an embedder that the index does not have, `feature_not_enabled` for media.
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
    let is_blank = params.request.query.as_deref().is_none_or(|query| query.trim().is_empty());
    let has_other_query = params.vector.is_some() || params.media.is_some();
    if hybrid.semantic_ratio == 0.0 || (is_blank && !has_other_query) {
        return check_media().map(|()| None);
    }
    if !view.settings.embedders.contains_key(&hybrid.embedder) {
        let message = format!("The index has no embedder `{}`.", hybrid.embedder);
        return Err(ApiError::new(ErrorCode::InvalidSearchEmbedder, message));
    }
    check_media()?;
    Ok(Some(SemanticQuery {
        embedder: hybrid.embedder.clone(),
        ratio: if is_blank { 1.0 } else { hybrid.semantic_ratio as f32 },
        vector: params.vector.as_ref().map(|numbers| numbers.iter().map(|number| *number as f32).collect()),
        media: params.media.clone().map(Arc::new),
    }))
}
