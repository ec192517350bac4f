//! Page store, log and the file seam below them.

/// A named tree of a page store, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u8);
