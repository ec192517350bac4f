//! What an index is besides its partitions: its catalog, the numbers and ids of its documents, and what a batch makes of them.
//!
//! The catalog lies in the file of partition 0, whose commit is the commit of the whole index.

pub mod catalog;
pub mod draft;
pub mod numbers;
pub mod plan;
mod versions;

pub use catalog::Catalog;
pub use draft::Draft;
pub use plan::Plan;
