//! The interface: what each route reads from a request, checks, and answers. Handlers hold no index logic: they decode, ask
//! the engine or the control plane, and encode.

mod codes;
pub mod decode;
pub mod documents;
pub mod error;
pub mod fields;
pub mod router;
pub mod search;
pub mod settings;
