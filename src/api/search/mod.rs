//! Searches of one index.

pub mod params;
pub mod room;
