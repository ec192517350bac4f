//! The control plane on disk: what was accepted ([`tasklog`]) and what has ended ([`store`]), in the form of [`record`].

mod entry;
pub mod record;
pub mod recovered;
pub mod refill;
pub mod store;
pub mod tasklog;
