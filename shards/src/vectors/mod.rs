//! Vectors of documents: where they come from and how they are kept.
//!
//! * [`host`]: what the engine asks of whoever can turn texts into vectors.
//! * [`sent`]: `_vectors` as documents bring it; [`numbers`]: its numbers, read fast.
//! * [`change`]: what a change of an embedder's settings asks for.
//! * [`stored`]: what a partition keeps, committed with its documents.
//! * [`writer`]: a partition's next state; [`resettle`]: the part of it that follows settings.
//! * [`filter`]: which documents a filter by vectors admits.
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
