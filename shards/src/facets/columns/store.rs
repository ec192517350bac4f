//! The part of a page store that columns use.

use std::ops::ControlFlow;

use storage_engine::TreeId;

/// A column could not be read or written: the partition's store failed or its bytes are not what was written.
#[derive(Debug, thiserror::Error)]
pub enum ColumnError {
    /// The store's own error.
    #[error("the columns' store failed: {0}")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An entry that no writer makes.
    #[error("a corrupt entry in tree {0:?} of the columns")]
    Corrupt(TreeId),
}

/// Called with each entry of a scan; `Break` ends it.
pub type Entry<'c> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, ColumnError> + 'c;

/// Ordered trees to read: a snapshot, or the state within a write.
pub trait ColumnRead {
    /// The value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError>;

    /// Visits the entries from the first key that is at least `from`, upwards.
    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError>;

    /// Visits the entries from the last key that is below `before`, downwards.
    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError>;
}

/// Ordered trees to write. Puts are fastest in ascending order of keys.
pub trait ColumnWrite: ColumnRead {
    /// Sets the value of a key.
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), ColumnError>;

    /// Removes a key, if it is there.
    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), ColumnError>;
}
