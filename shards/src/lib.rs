//! Executors, cross-core messages, partitions, indexing and search.

pub mod document;
pub mod engine;
pub mod error;
pub mod facets;
pub mod fields;
pub mod format;
pub mod ids;
pub mod index;
mod kept;
pub mod mesh;
pub mod network_shards;
pub mod partition;
pub mod placement;
pub mod query;
pub mod rank;
pub mod runtime;
pub mod search;
pub mod segments;
pub mod settings;
pub mod text;
pub mod timestamp;
pub mod vectors;
