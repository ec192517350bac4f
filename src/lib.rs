//! The server: HTTP interface, tasks, control plane, networking.
//!
//! The path of a request: [`net`] (the connections of a core), [`http`] (bytes to requests), [`api`] (routes, decoding, errors).
//! From there a search goes to `shards::engine`; a change goes to [`control`] (API keys, tasks and settings of the instance, on
//! one core) and [`tasks`] (the queue's batches, processed one after another). [`network`] talks to other instances, through
//! [`outgoing`]. Each core has its own [`app::App`]; state that all cores read is published to them, never shared.

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
