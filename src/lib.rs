//! The server: protocol in, protocol out.
//!
//! The way of a request: [`net`] (connections of a core) and [`http`] (bytes to requests) to [`api`] (routes, decoding, errors),
//! from there a search to `shards::engine`, and a change to [`control`] (keys, tasks, settings of the instance, on one core) and
//! [`tasks`] (batches of the queue, done one after another). [`network`] talks with other instances, by [`outgoing`]. Each core
//! has an [`app::App`] of its own; states that all read are published to them, never shared.

pub mod api;
pub mod app;
pub mod archive;
pub mod auth;
pub mod chats;
pub mod control;
pub mod dumps;
pub mod embedders;
pub mod export;
pub mod functions;
pub mod http;
pub mod imports;
pub mod logging;
pub mod metrics;
pub mod net;
pub mod network;
#[cfg(test)]
mod on_core;
pub mod options;
pub mod outgoing;
pub mod personalization;
pub mod preflight;
pub mod search_rules;
pub mod server;
pub mod snapshots;
pub mod tasks;
pub mod webhooks;
