//! An index apart from its partitions: its catalog, the numbers and IDs of its documents, and the effect of a batch on them.
//!
//! The catalog is stored in the file of partition 0, whose commit is the commit of the whole index.

pub mod catalog;
pub mod draft;
pub mod numbers;
pub mod plan;
mod versions;

pub use catalog::Catalog;
pub use draft::Draft;
pub use plan::Plan;
