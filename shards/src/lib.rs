//! Executors, cross-core messages, partitions, indexing and search.
//!
//! From the bottom up: [`runtime`] (executors, clock, side threads), [`mesh`] (messages between cores) and [`placement`] (which
//! core owns what); [`index`] and [`partition`] (stored data and its changes), built from [`text`], [`facets`] and [`vectors`];
//! [`query`] (what a search asks for), [`rank`] (ordering), [`search`] (from all partitions to one response) and
//! [`format`](mod@format) (hits as text); [`engine`] (the public interface). A partition is accessed only by its own core, others
//! send it messages; a search reads one epoch of all partitions.

pub mod document;
pub mod engine;
pub mod error;
pub mod facets;
pub mod fields;
pub mod format;
pub mod ids;
pub mod index;
mod kept;
pub mod mesh;
pub mod network_shards;
pub mod partition;
pub mod placement;
pub mod query;
pub mod rank;
pub mod runtime;
pub mod search;
pub mod segments;
pub mod settings;
pub(crate) mod sorted_lists;
pub mod stages;
pub mod text;
pub mod timestamp;
pub mod vectors;
