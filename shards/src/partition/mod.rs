//! One partition: the documents, inverted index and columns that one core owns of one index.

pub mod error;
pub mod memory;
pub mod posting_changes;
pub mod reader;
pub mod reindex;
pub mod terms;
pub mod trees;
pub mod words;
pub mod writer;

pub use error::PartitionError;
pub use reader::{EpochFacts, PartitionReader};
