//! Embedders: turning documents and queries into vectors.
//!
//! [`host`] is the interface to the engine. It renders templates ([`template`], [`render`]) on side threads and sends the texts
//! to a service or to a model in this process. For services, [`source`] says which one and how, [`exchange`] builds requests and
//! parses responses, [`transport`] sends, retries and bounds the memory of responses, and [`tally`] counts requests.

mod cache;
pub mod exchange;
pub mod host;
#[cfg(feature = "local-models")]
mod local;
mod render;
mod source;
mod tally;
pub mod template;
mod tokens;
mod transport;
mod view;

#[cfg(test)]
mod tests;

pub use host::Embedders;
pub use render::render_documents;
pub use source::EmbedderOptions;
pub use tally::Tally;
