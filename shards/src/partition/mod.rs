//! One partition: the documents, inverted index and columns that one core owns of one index.

pub mod error;
pub mod memory;
pub mod reader;
pub mod terms;
pub mod trees;
pub mod words;

pub use error::PartitionError;
pub use reader::{EpochFacts, PartitionReader};
