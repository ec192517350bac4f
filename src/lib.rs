//! The server: protocol in, protocol out.

pub mod api;
pub mod app;
pub mod auth;
pub mod control;
pub mod functions;
pub mod http;
pub mod logging;
pub mod net;
pub mod options;
pub mod outgoing;
pub mod preflight;
pub mod server;
pub mod tasks;
