//! The partition's store as the columns see it.

use std::ops::ControlFlow;

use storage_engine::{ReadError, ReadTree, Snapshot, TreeId, WriteError, WriteTxn};

use crate::facets::columns::{ColumnError, ColumnRead, ColumnWrite, Entry};

/// A snapshot that columns are read from.
pub struct SnapshotColumns(pub Snapshot);

impl ColumnRead for SnapshotColumns {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError> {
        self.0.get(tree, key).map_err(read_error)
    }

    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan(&self.0, tree, from, entry)
    }

    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan_back(&self.0, tree, before, entry)
    }
}

/// A transaction that columns are written to.
pub struct TxnColumns<'t>(pub &'t mut WriteTxn);

impl ColumnRead for TxnColumns<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError> {
        self.0.get(tree, key).map_err(read_error)
    }

    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan(self.0, tree, from, entry)
    }

    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan_back(self.0, tree, before, entry)
    }
}

impl ColumnWrite for TxnColumns<'_> {
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), ColumnError> {
        self.0.put(tree, key, value).map_err(write_error)
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), ColumnError> {
        self.0.delete(tree, key).map(drop).map_err(write_error)
    }
}

fn scan(store: &dyn ReadTree, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
    let mut cursor = store.cursor(tree);
    cursor.seek(from).map_err(read_error)?;
    while let Some((key, value)) = cursor.next().map_err(read_error)? {
        if entry(key, value)? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

fn scan_back(store: &dyn ReadTree, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
    let mut cursor = store.cursor(tree);
    cursor.seek(before).map_err(read_error)?;
    while let Some((key, value)) = cursor.prev().map_err(read_error)? {
        if entry(key, value)? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

fn read_error(error: ReadError) -> ColumnError {
    ColumnError::Store(Box::new(error))
}

fn write_error(error: WriteError) -> ColumnError {
    ColumnError::Store(Box::new(error))
}
