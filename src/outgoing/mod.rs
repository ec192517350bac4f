//! Requests that the server itself makes: to webhooks, to other instances, to embedders and models.
//!
//! Every core has one [`Client`]: HTTP/1.1 over the core's own sockets, TLS by rustls on the core's executor, a bounded
//! pool of idle connections, a deadline for each phase, and bodies of answers that stream. Names are looked up on threads
//! that nobody else waits for. The [`AddressPolicy`] is applied to each resolved address right before it is connected to, also after a
//! redirect, so that no name and no answer of somebody else leads the server into its own network.
//!
//! Only `sockets` names the executor and only `names` the system's resolver; everything above runs over [`Sockets`] and
//! [`shards::runtime::Runtime`], so that tests and simulations bring a network of their own.

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
pub use sockets::{Socket, Sockets, SystemSockets};
pub use url::Url;
