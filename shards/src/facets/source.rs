//! The interface of a partition that facets use.

use roaring::RoaringBitmap;

use crate::error::UserError;
use crate::facets::columns::{ColumnError, Columns, ResidentFields};
use crate::facets::filter::{VectorsPart, VectorsTest};
use crate::facets::normalise::number_bits;
use crate::fields::FieldsMap;
use crate::ids::{DocId, LocalDocId};
use crate::network_shards::SHARD_FIELD;
use crate::settings::Settings;

/// One partition at one epoch.
pub trait FacetSource {
    /// The partition's columns in its snapshot.
    fn columns(&self) -> Columns<'_>;

    /// The fields it holds in memory; `None` for a partition that holds none.
    fn resident_fields(&self) -> Option<&ResidentFields> {
        None
    }

    /// Every path the index has met, of this epoch.
    fn fields(&self) -> &FieldsMap;

    /// The index's settings, of this epoch.
    fn settings(&self) -> &Settings;

    /// The local numbers of all documents of the partition.
    fn documents(&self) -> &RoaringBitmap;

    /// The number within the index of a document of this partition.
    fn global(&self, document: LocalDocId) -> DocId;

    /// The documents that satisfy a test of their vectors; fails for an embedder or fragment that the index does not have
    /// (the caller puts the code of its route). The default is right for a partition without vectors.
    fn documents_with_vectors(&self, test: &VectorsTest) -> Result<RoaringBitmap, FacetError> {
        let Some(name) = &test.embedder else { return Ok(RoaringBitmap::new()) };
        let unknown = |what: String| Err(UserError::new("invalid_search_filter", what).into());
        let Some(embedder) = self.settings().embedders.get(name) else {
            return unknown(format!("the embedder `{name}` does not exist"));
        };
        if let VectorsPart::Fragment(fragment) = &test.part
            && embedder.get("indexingFragments").and_then(|fragments| fragments.get(fragment)).is_none()
        {
            return unknown(format!("the fragment `{fragment}` does not exist in the embedder `{name}`"));
        }
        Ok(RoaringBitmap::new())
    }
}

/// The documents of a network shard; none for a name that the index does not know.
///
/// # Errors
/// Those of the columns.
pub fn in_network_shard(source: &dyn FacetSource, name: &str) -> Result<RoaringBitmap, ColumnError> {
    match source.settings().network_shards.iter().position(|other| other == name) {
        Some(place) => source.columns().with_number(SHARD_FIELD, number_bits(place as f64)),
        None => Ok(RoaringBitmap::new()),
    }
}

/// Why facets could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FacetError {
    /// The request is at fault.
    #[error(transparent)]
    User(#[from] UserError),
    /// The partition's file is.
    #[error(transparent)]
    Column(#[from] ColumnError),
}
