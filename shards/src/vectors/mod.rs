//! Vectors of documents: where they come from and how they are stored.
//!
//! * [`host`]: the engine's interface to embedders.
//! * [`sent`]: `_vectors` in documents as sent; [`numbers`]: a fast parser for their components.
//! * [`change`]: what a change of an embedder's settings requires.
//! * [`stored`]: what a partition stores, committed with its documents.
//! * [`writer`]: a partition's next state; [`resettle`]: the part of it that follows settings.
//! * [`filter`]: filters on `_vectors`.
//! * [`show`]: `_vectors` as readers see it.

pub mod change;
pub mod filter;
pub mod host;
pub mod numbers;
pub mod resettle;
pub mod sent;
pub mod show;
pub mod stored;
mod work;
pub mod writer;

pub use change::{EmbedderState, EmbedderStates};
pub use host::{
    DocumentEmbedding, EmbedContext, EmbedDocument, EmbedRequest, EmbedderFacts, EmbedderHost, QueryRequest,
    TemplateField, template_fields,
};
pub use stored::{PartitionVectors, VectorSums};
pub use work::missing;
