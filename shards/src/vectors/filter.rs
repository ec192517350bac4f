//! Filters on `_vectors`: which documents they admit.

use roaring::RoaringBitmap;

use super::EmbedderStates;
use super::change::fragments;
use super::stored::{EmbedderVectors, PartitionVectors};
use crate::error::UserError;
use crate::facets::FacetError;
use crate::facets::filter::{VectorsPart, VectorsTest};
use crate::settings::Settings;

/// The documents of a partition whose vectors satisfy a test.
///
/// # Errors
/// `invalid_search_filter` for an embedder or a fragment that the index does not have.
pub fn documents_with_vectors(
    vectors: &PartitionVectors,
    (settings, states): (&Settings, &EmbedderStates),
    test: &VectorsTest,
) -> Result<RoaringBitmap, FacetError> {
    let unknown = |what: String| UserError::new("invalid_search_filter", what);
    let mut found = RoaringBitmap::new();
    let Some(name) = &test.embedder else {
        for name in settings.embedders.keys() {
            found |= vectors.get(name).map(any).unwrap_or_default();
        }
        return Ok(found);
    };
    let embedder = settings.embedders.get(name);
    let embedder = embedder.ok_or_else(|| unknown(format!("the embedder `{name}` does not exist")))?;
    let known = fragments(embedder);
    if let VectorsPart::Fragment(fragment) = &test.part
        && !known.contains(fragment)
    {
        return Err(unknown(format!("the fragment `{fragment}` does not exist in the embedder `{name}`")).into());
    }
    let Some(of) = vectors.get(name) else { return Ok(found) };
    Ok(match &test.part {
        VectorsPart::Any => any(of),
        VectorsPart::UserProvided => (*of.user).clone(),
        VectorsPart::DocumentTemplate if !known.is_empty() => found,
        VectorsPart::DocumentTemplate => any(of) - &*of.user,
        VectorsPart::Regenerate => any(of) - &*of.fixed,
        VectorsPart::Fragment(fragment) => {
            let slot = states
                .get(name)
                .into_iter()
                .flat_map(|state| &state.slots)
                .find(|(name, _)| name == fragment)
                .map(|(_, slot)| *slot);
            let with = |slot| of.graphs.iter().map(move |graph| graph.snapshot.documents_with(slot));
            let with = slot.into_iter().flat_map(with).fold(RoaringBitmap::new(), |all, with| all | with);
            with - &*of.user
        }
    })
}

fn any(vectors: &EmbedderVectors) -> RoaringBitmap {
    vectors.documents()
}
