//! The server: protocol in, protocol out.

pub mod api;
