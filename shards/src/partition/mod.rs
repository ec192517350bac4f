//! One partition: the documents, inverted index and columns that one core owns of one index.

pub mod trees;
