//! One partition: the documents, inverted index and columns that one core owns of one index.

pub mod columns;
pub mod error;
pub mod memory;
pub mod reader;
pub mod trees;

pub use error::PartitionError;
pub use reader::{EpochFacts, PartitionReader};
