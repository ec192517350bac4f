//! Outgoing requests: to webhooks, other instances, embedders and models.
//!
//! Every core has one [`Client`]: HTTP/1.1 over the core's own sockets, TLS by rustls on the core's executor, a bounded pool of
//! idle connections, a deadline for each phase, and streamed response bodies. Names are resolved on dedicated threads. The
//! [`AddressPolicy`] is applied to each resolved address immediately before connecting, also after a redirect, so that neither a
//! name nor a remote response can lead the server into its own network.
//!
//! Only `sockets` names the executor and only `names` the system's resolver; everything above runs over [`Sockets`] and
//! [`shards::runtime::Runtime`], so tests and simulations bring their own network.

mod address;
mod answer;
mod client;
mod clock;
mod connection;
mod error;
mod names;
mod payload;
mod pool;
mod request;
mod room;
mod sockets;
mod tls;

#[cfg(test)]
mod tests;

pub use address::AddressPolicy;
pub use answer::{Body, Response, WholeResponse};
pub use client::Client;
pub use error::{Phase, SendError};
pub use names::Names;
pub use payload::{GzipPayload, StreamedBody};
pub use request::{Deadlines, Request, is_header_name, is_header_value};
pub use room::{Room, Share};
pub use sockets::{Socket, Sockets, SystemSockets};
pub use url::Url;
