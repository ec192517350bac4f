//! The server: protocol in, protocol out.

pub mod api;
pub mod app;
pub mod archive;
pub mod auth;
pub mod chats;
pub mod control;
pub mod dumps;
pub mod embedders;
pub mod export;
pub mod folders;
pub mod functions;
pub mod http;
pub mod imports;
pub mod logging;
pub mod metrics;
pub mod net;
pub mod network;
pub mod options;
pub mod outgoing;
pub mod preflight;
pub mod search_rules;
pub mod server;
pub mod snapshots;
pub mod tasks;
pub mod webhooks;
