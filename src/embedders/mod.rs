//! Embedders: turning documents and queries into vectors.
//!
//! [`host`] is what the engine asks. It renders templates ([`template`], [`render`]) on side threads, and sends what they give
//! to a service ([`source`] says to which and how, [`exchange`] fills requests and reads answers, [`transport`] asks, and asks
//! again; [`room`] bounds what answers hold, [`tally`] is who counts requests) or to a model that runs in this process.

mod cache;
pub mod exchange;
pub mod host;
#[cfg(feature = "local-models")]
mod local;
mod render;
mod room;
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
