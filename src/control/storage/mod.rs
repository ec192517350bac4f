//! The control plane on disk: accepted tasks ([`tasklog`]) and finished ones ([`store`]), encoded as in [`record`].

mod entry;
pub mod record;
pub mod recovered;
pub mod refill;
pub mod store;
pub mod tasklog;
