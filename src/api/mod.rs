//! The interface: what each route reads from a request, checks, and answers. Handlers hold no index logic: they decode, ask
//! the engine or the control plane, and encode.

pub mod batches;
mod codes;
pub mod decode;
pub mod documents;
pub mod error;
pub mod features;
pub mod fields;
pub mod indexes;
pub mod router;
pub mod search;
pub mod settings;
pub mod stats;
pub mod tasks;
