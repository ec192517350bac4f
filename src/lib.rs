//! The server: protocol in, protocol out.

pub mod api;
pub mod auth;
pub mod functions;
pub mod http;
pub mod net;
pub mod options;
pub mod tasks;
