//! The face of the indexes that the server sees: one engine a core, asking the others through messages.

pub mod types;

pub use crate::document::{PayloadFormat, RawDocument};
pub use types::*;
