//! Searches of one index.

pub mod params;
