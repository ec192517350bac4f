//! The engine's interface to the server's embedders, which turn texts into vectors.
//!
//! The engine knows documents, settings and stored vectors. The host knows sources, templates and how to reach services. The
//! engine calls it in three situations:
//!
//! 1. An embedder is new or was changed ([`EmbedderHost::prepare`]): the host checks that it works, and reports its dimensions.
//! 2. Documents were added or changed, or settings that their texts depend on ([`EmbedderHost::embed`]): the host renders the
//!    texts, skips those that did not change, and returns vectors for the rest.
//! 3. A search has a text and no vector ([`EmbedderHost::embed_query`]).
//!
//! Embedders with the source `userProvided` take part only in the first and the third (the third fails). Documents that came with
//! their own vectors and are not to be regenerated are never passed to the host.
//!
//! A host lives on one core, like the engine it serves; each core has its own. Batches are embedded on the core of an index's
//! partition 0, whatever the number of partitions, in the order of document numbers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use crate::document::RawDocument;
use crate::error::UserError;
use crate::fields::FieldsMap;
use crate::settings::{Settings, covers_subtree};

/// Documents in one [`EmbedRequest`] at most: one round of the interface's 40 requests of 10 texts.
pub const DOCUMENTS_PER_REQUEST: usize = 400;

/// Turns texts into vectors.
pub trait EmbedderHost {
    /// Checks that an embedder works, as far as that is checked before it is used, and finds its facts. Called with every batch
    /// that creates an embedder or changes it, before any document of that batch is embedded, and on no other occasion: the
    /// facts are stored with the index. `embedder` is the complete object of the settings; `name` is for messages.
    ///
    /// # Errors
    /// `vector_embedding_error` or `invalid_settings_embedders`: the whole batch is refused.
    fn prepare(&self, name: &str, embedder: &Arc<Value>) -> LocalBoxFuture<'static, Result<EmbedderFacts, UserError>>;

    /// Gives the vectors of documents: exactly one [`DocumentEmbedding`] for each of [`EmbedRequest::documents`], in their order.
    ///
    /// # Errors
    /// `invalid_document_fields` where a template cannot be rendered, `vector_embedding_error` where the source fails for good: the
    /// whole batch is refused. Failure modes that leave such documents without vectors answer with
    /// [`DocumentEmbedding::Replace`] of nothing.
    fn embed(&self, request: EmbedRequest) -> LocalBoxFuture<'static, Result<Vec<DocumentEmbedding>, UserError>>;

    /// Gives the vector of a query. Asked for only once it is known that the search needs it.
    ///
    /// # Errors
    /// `vector_embedding_error`. In a hybrid search the words alone then decide; a purely semantic one fails with this.
    fn embed_query(&self, request: QueryRequest) -> LocalBoxFuture<'static, Result<Vec<f32>, UserError>>;
}

/// What is kept of an embedder besides its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbedderFacts {
    /// Numbers in each of its vectors: those of the settings, the model's, or as found by asking; at least 1.
    pub dimensions: u32,
}

/// What texts depend on besides the document.
#[derive(Clone, Debug)]
pub struct EmbedContext {
    /// The embedder's complete object of the settings.
    pub embedder: Arc<Value>,
    /// What a template sees as `fields`, in the order in which the index first met the names; `_vectors` is never there. Names of
    /// nested fields are, but no document has a value under them at top level.
    pub fields: Arc<Vec<TemplateField>>,
}

/// An entry of `fields` in a template, but for its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateField {
    /// Its number, as [`RawDocument::get`] takes it.
    pub id: crate::ids::FieldId,
    /// `field.name`
    pub name: Arc<str>,
    /// `field.is_searchable`
    pub is_searchable: bool,
}

/// Documents to be embedded by one embedder.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// The embedder's name, for messages.
    pub name: Arc<str>,
    /// What is in force now.
    pub context: EmbedContext,
    /// What was in force when the stored vectors were made; [`EmbedDocument::before`] is rendered with this.
    pub before: EmbedContext,
    /// Where the vector of each indexing fragment belongs; empty for an embedder without fragments, whose one text belongs in
    /// slot 0. Sorted by name.
    pub slots: Arc<Vec<(String, u16)>>,
    /// By rising number, at most [`DOCUMENTS_PER_REQUEST`].
    pub documents: Vec<EmbedDocument>,
}

/// A document to be embedded.
#[derive(Clone, Debug)]
pub struct EmbedDocument {
    /// Its external id, for messages.
    pub id: String,
    /// The document, without what is not shown to templates: skip [`crate::document::names::VECTORS`].
    pub document: RawDocument,
    /// The document that the stored vectors were made of. What renders as it did is not embedded again. `None`: everything is
    /// embedded, whatever there was.
    pub before: Option<RawDocument>,
}

/// What becomes of a document's vectors.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentEmbedding {
    /// They stay as they are.
    Unchanged,
    /// These take the place of all there were, each with its slot, rising.
    Replace(Vec<(u16, Vec<f32>)>),
    /// Those of the slots named are replaced, or removed by `None`; others stay. Rising by slot. For fragments of which only some
    /// have changed.
    Patch(Vec<(u16, Option<Vec<f32>>)>),
}

/// A query to be embedded.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    /// The embedder's name, for messages.
    pub name: Arc<str>,
    /// The embedder's complete object of the settings.
    pub embedder: Arc<Value>,
    /// The text; `None` when the search has only media.
    pub text: Option<String>,
    /// The request's `media`.
    pub media: Option<Arc<Value>>,
    /// After so long no failed attempt is repeated.
    pub retry_for: Duration,
    /// Numbers that the vector must have.
    pub dimensions: u32,
}

/// The fields that templates see under these settings.
pub fn template_fields(settings: &Settings, fields: &FieldsMap) -> Arc<Vec<TemplateField>> {
    let searchable = |name: &str| {
        settings.searchable_attributes.iter().any(|attribute| attribute == "*" || covers_subtree(attribute, name))
    };
    let seen = fields.iter().filter(|(_, name)| !covers_subtree(crate::document::names::VECTORS, name));
    let seen = seen.map(|(id, name)| TemplateField { id, name: name.into(), is_searchable: searchable(name) });
    Arc::new(seen.collect())
}
