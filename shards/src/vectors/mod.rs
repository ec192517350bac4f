//! Vectors of documents: where they come from, how they are kept and how they are searched.
//!
//! * [`host`]: what the engine asks of whoever can turn texts into vectors.

pub mod host;

pub use host::{
    DocumentEmbedding, EmbedContext, EmbedDocument, EmbedRequest, EmbedderFacts, EmbedderHost, QueryRequest,
    TemplateField,
};
