//! Entries of the control store's trees: JSON records and a few values with a fixed layout.

use storage_engine::{ReadTree, TreeId, WriteTxn};

use crate::control::message::ControlError;

/// The record of this key.
pub(super) fn read<T: serde::de::DeserializeOwned>(
    tree: &impl ReadTree,
    number: TreeId,
    key: &[u8],
) -> Result<Option<T>, ControlError> {
    let value = tree.get(number, key).map_err(|error| failed("reading the control store", error))?;
    value.map(|bytes| decode(bytes, "a record")).transpose()
}

/// The record of these bytes; `what` names it where they are none.
pub(super) fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, ControlError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(&format!("{what} ({error})")))
}

/// Writes a record.
pub(super) fn put<T: serde::Serialize>(
    txn: &mut WriteTxn,
    tree: TreeId,
    key: &[u8],
    value: &T,
) -> Result<(), ControlError> {
    let bytes = serde_json::to_vec(value).map_err(|error| failed("encoding a record", error))?;
    put_bytes(txn, tree, key, &bytes)
}

/// Writes a record, or removes it where there is none any more.
pub(super) fn put_or_delete<T: serde::Serialize>(
    txn: &mut WriteTxn,
    tree: TreeId,
    key: &[u8],
    value: Option<&T>,
) -> Result<(), ControlError> {
    match value {
        Some(value) => put(txn, tree, key, value),
        None => delete(txn, tree, key),
    }
}

/// Writes a value of fixed form.
pub(super) fn put_bytes(txn: &mut WriteTxn, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), ControlError> {
    txn.put(tree, key, value).map_err(|error| failed("writing the control store", error))
}

/// Removes an entry, if it is there.
pub(super) fn delete(txn: &mut WriteTxn, tree: TreeId, key: &[u8]) -> Result<(), ControlError> {
    txn.delete(tree, key).map(|_| ()).map_err(|error| failed("writing the control store", error))
}

/// Visits all entries of a tree, in the order of keys.
pub(super) fn for_each(
    tree: &impl ReadTree,
    number: TreeId,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), ControlError>,
) -> Result<(), ControlError> {
    let unreadable = |error| failed("reading the control store", error);
    let mut cursor = tree.cursor(number);
    while let Some((key, value)) = cursor.next().map_err(unreadable)? {
        visit(key, value)?;
    }
    Ok(())
}

/// The store's disk failed.
pub(super) fn failed(what: &str, error: impl std::fmt::Display) -> ControlError {
    ControlError::Storage(format!("{what}: {error}"))
}

/// The store holds what is no record.
pub(super) fn damaged(what: &str) -> ControlError {
    ControlError::Storage(format!(
        "the control store is damaged ({what} cannot be read); restore the whole database from a snapshot, a dump or a replica"
    ))
}
