//! The interface of a page store that columns use.

use std::ops::ControlFlow;

use storage_engine::{Doomed, ReadTree, Snapshot, TreeId, WriteTxn};

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

/// Gives the values of keys, fastest where these rise.
pub type LookUp<'r> = dyn FnMut(&[u8]) -> Result<Option<&'r [u8]>, ColumnError> + 'r;

/// Where a scan goes on behind an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// At the next one.
    Next,
    /// At a later key, which the entry's visitor has told.
    Key,
    /// Nowhere.
    End,
}

/// Called with each entry of a scan; where that is to go on at a later key, puts that into the buffer.
pub type LeapingEntry<'c> = dyn FnMut(&[u8], &[u8], &mut Vec<u8>) -> Result<Onward, ColumnError> + 'c;

/// Ordered trees to read: a snapshot, or the state within a write.
pub trait ColumnRead {
    /// The value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError>;

    /// Looks up many keys of one tree.
    fn look_up(&self, tree: TreeId) -> Box<LookUp<'_>> {
        Box::new(move |key| self.get(tree, key))
    }

    /// Visits the entries from the first key that is at least `from`, upwards.
    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError>;

    /// Visits the entries from the last key that is below `before`, downwards.
    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError>;

    /// Visits entries from the first key that is at least `from`, upwards, and passes over others as `entry` says.
    fn leap(&self, tree: TreeId, from: &[u8], entry: &mut LeapingEntry<'_>) -> Result<(), ColumnError> {
        let (mut from, mut onward) = (from.to_vec(), Onward::Key);
        while onward == Onward::Key {
            let mut next = Vec::new();
            onward = Onward::End;
            self.scan(tree, &from, &mut |key, value| {
                onward = entry(key, value, &mut next)?;
                Ok(if onward == Onward::Next { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            from = next;
        }
        Ok(())
    }
}

/// Ordered trees to write. Puts are fastest in ascending order of keys.
pub trait ColumnWrite: ColumnRead {
    /// Sets the value of a key.
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), ColumnError>;

    /// Removes those of some keys, which rise, that are there and that `doomed` names by their place and value.
    fn delete_run(&mut self, tree: TreeId, keys: &[&[u8]], doomed: &mut Doomed<'_>) -> Result<(), ColumnError>;

    /// Removes a key, if it is there.
    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), ColumnError> {
        self.delete_run(tree, &[key], &mut |_, _| true)
    }
}

impl ColumnRead for Snapshot {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError> {
        ReadTree::get(self, tree, key).map_err(store_error)
    }

    fn look_up(&self, tree: TreeId) -> Box<LookUp<'_>> {
        let mut finder = ReadTree::finder(self, tree);
        Box::new(move |key| finder.get(key).map_err(store_error))
    }

    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan(self, tree, from, entry)
    }

    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan_back(self, tree, before, entry)
    }

    fn leap(&self, tree: TreeId, from: &[u8], entry: &mut LeapingEntry<'_>) -> Result<(), ColumnError> {
        leap(self, tree, from, entry)
    }
}

impl ColumnRead for WriteTxn {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ColumnError> {
        ReadTree::get(self, tree, key).map_err(store_error)
    }

    fn look_up(&self, tree: TreeId) -> Box<LookUp<'_>> {
        let mut finder = ReadTree::finder(self, tree);
        Box::new(move |key| finder.get(key).map_err(store_error))
    }

    fn scan(&self, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan(self, tree, from, entry)
    }

    fn scan_back(&self, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
        scan_back(self, tree, before, entry)
    }

    fn leap(&self, tree: TreeId, from: &[u8], entry: &mut LeapingEntry<'_>) -> Result<(), ColumnError> {
        leap(self, tree, from, entry)
    }
}

impl ColumnWrite for WriteTxn {
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), ColumnError> {
        WriteTxn::put(self, tree, key, value).map_err(store_error)
    }

    fn delete_run(&mut self, tree: TreeId, keys: &[&[u8]], doomed: &mut Doomed<'_>) -> Result<(), ColumnError> {
        WriteTxn::delete_run(self, tree, keys, doomed).map(|_| ()).map_err(store_error)
    }
}

fn scan(state: &dyn ReadTree, tree: TreeId, from: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
    let mut cursor = state.cursor(tree);
    cursor.seek(from).map_err(store_error)?;
    while let Some((key, value)) = cursor.next().map_err(store_error)? {
        if entry(key, value)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn scan_back(state: &dyn ReadTree, tree: TreeId, before: &[u8], entry: &mut Entry<'_>) -> Result<(), ColumnError> {
    let mut cursor = state.cursor(tree);
    cursor.seek(before).map_err(store_error)?;
    while let Some((key, value)) = cursor.prev().map_err(store_error)? {
        if entry(key, value)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn leap(state: &dyn ReadTree, tree: TreeId, from: &[u8], entry: &mut LeapingEntry<'_>) -> Result<(), ColumnError> {
    let (mut cursor, mut next) = (state.cursor(tree), Vec::new());
    cursor.seek(from).map_err(store_error)?;
    while let Some((key, value)) = cursor.next().map_err(store_error)? {
        match entry(key, value, &mut next)? {
            Onward::Next => {}
            Onward::Key => {
                cursor.seek_near(&next).map_err(store_error)?;
                next.clear();
            }
            Onward::End => break,
        }
    }
    Ok(())
}

fn store_error(error: impl std::error::Error + Send + Sync + 'static) -> ColumnError {
    ColumnError::Store(Box::new(error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use futures_lite::future::block_on;
    use storage_engine::io::mem::MemDisk;
    use storage_engine::{PageStore, StoreOptions};

    use super::*;

    /// The page store must answer scans like the ordered map that the other tests use, within a write and after it.
    #[test]
    fn the_page_store_scans_in_both_directions() {
        let options = StoreOptions { create: true, at_most_epoch: None };
        let store =
            block_on(PageStore::open(Rc::new(MemDisk::new()), Path::new("columns"), options)).expect("it opens");
        let tree = TreeId(5);
        let mut txn = store.begin_write().expect("no other writer");
        let keys: Vec<Vec<u8>> = (0..1000u32).map(|number| number.to_be_bytes().to_vec()).collect();
        for key in &keys {
            ColumnWrite::put(&mut txn, tree, key, b"v").expect("room");
        }
        ColumnWrite::delete(&mut txn, tree, &keys[500]).expect("it is there");
        let check = |state: &dyn ColumnRead| {
            let mut met = Vec::new();
            let mut entry = |key: &[u8], _: &[u8]| {
                met.push(key.to_vec());
                Ok(if met.len() % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            state.scan(tree, &keys[499], &mut entry).expect("intact");
            state.scan_back(tree, &keys[501], &mut entry).expect("intact");
            assert_eq!(met, [499, 501, 502, 499, 498, 497].map(|at: usize| keys[at].clone()));
            assert_eq!(state.get(tree, &keys[500]).expect("intact"), None);
            assert_eq!(state.get(tree, &keys[501]).expect("intact"), Some(b"v".as_slice()));
            let mut look_up = state.look_up(tree);
            for at in [3, 4, 499, 500, 501, 501, 999, 0] {
                let value = (at != 500).then_some(b"v".as_slice());
                assert_eq!(look_up(&keys[at]).expect("intact"), value, "{at}");
            }
        };
        check(&txn);
        check(&block_on(txn.commit(1)).expect("memory does not fail"));
    }
}
