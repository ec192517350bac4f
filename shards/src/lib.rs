//! Executors, cross-core messages, partitions, indexing and search.
//!
//! From below: [`runtime`] (executors, clock, side threads), [`mesh`] (messages between cores), [`placement`] (which core has
//! what); [`index`] and [`partition`] (what is stored, and changing it), of [`text`], [`facets`] and [`vectors`]; [`query`] (what
//! a search asks), [`rank`] (in which order), [`search`] (from all partitions to one answer), [`format`](mod@format) (hits as
//! text); [`engine`] (the door). A partition is touched by its own core alone, others send it messages, and a search reads one
//! epoch of all partitions.

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
pub mod text;
pub mod timestamp;
pub mod vectors;
