//! Documents: reading, adding, deleting, editing.

pub mod read_query;
pub mod selection;
pub mod vectors;
