//! Rolls back to a state before the newest while snapshots may be reading.

use super::alloc::Allocator;
use super::store::{Current, InFlight, PageStore, Shared, StoreOptions};
use super::{OpenError, PageNo};

impl PageStore {
    /// Opens the file anew at its newest state up to `at_most_epoch`, and drops a newer one. That is also how a store goes on after
    /// a write that failed. Snapshots go on: no page that one can see is written again while it lives. A write transaction must
    /// not be open.
    ///
    /// # Errors
    /// [`OpenError`]; the store cannot be written then until another attempt succeeds.
    pub async fn roll_back(&self, at_most_epoch: u64) -> Result<(), OpenError> {
        let shared = &self.0;
        let in_flight = InFlight::new(shared.clone());
        let options = StoreOptions { create: false, at_most_epoch: Some(at_most_epoch) };
        let opened = Self::open(shared.disk.clone(), &shared.path, options).await?;
        let (meta, file) = {
            let current = opened.0.current.borrow();
            (current.meta.clone(), current.file.clone())
        };
        // What a write that failed made the file longer by, perhaps up to the end of the disk, would stay. A failure only costs that.
        if shared.newest_read() <= meta.epoch {
            let _ = file.file.set_len(PageNo(meta.page_count).offset()).await;
        }
        let opened = opened.0.current.borrow();
        let (slot, view, alloc) = (opened.slot, opened.view.clone(), shared.alloc_of(&opened));
        shared.current.replace(Current { meta, slot, view, file, alloc });
        shared.before.take();
        in_flight.end();
        shared.poisoned.set(false);
        Ok(())
    }
}

impl Shared {
    /// The free pages of a state that was opened again. The file does not tell which of them older snapshots still read.
    fn alloc_of(&self, opened: &Current) -> Allocator {
        let (epoch, newest_read) = (opened.meta.epoch, self.newest_read());
        let (current, before) = (self.current.borrow(), self.before.borrow());
        let before = before.iter().map(|(meta, alloc)| (meta, alloc));
        let mut known = std::iter::once((&current.meta, &current.alloc)).chain(before);
        if newest_read <= epoch
            && let Some((_, alloc)) = known.find(|(meta, _)| **meta == opened.meta)
        {
            return alloc.clone();
        }
        let mut alloc = opened.alloc.clone();
        // A snapshot of a state that is dropped reads pages that were free before it.
        alloc.hold_all(if newest_read > epoch { newest_read + 1 } else { epoch });
        alloc
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use futures_lite::future::block_on;

    use crate::io::mem::MemDisk;
    use crate::io::sim::{Faults, SimDisk};
    use crate::page::*;

    const TREE: TreeId = TreeId(3);
    const PATH: &str = "/a.store";

    async fn open(disk: &Rc<MemDisk>) -> PageStore {
        let options = StoreOptions { create: true, at_most_epoch: None };
        PageStore::open(disk.clone(), Path::new(PATH), options).await.expect("it opens")
    }

    /// Every state gives all keys its own value, so that no page stays what it was.
    async fn commit(store: &PageStore, value: u8) -> Snapshot {
        let mut txn = store.begin_write().expect("no other transaction is open");
        for key in 0..500_u32 {
            txn.put(TREE, &key.to_be_bytes(), &[value; 100]).expect("it is put");
        }
        txn.commit(store.epoch() + 1).await.expect("it commits")
    }

    fn check(snapshot: &Snapshot, value: u8) {
        for key in 0..500_u32 {
            assert_eq!(snapshot.get(TREE, &key.to_be_bytes()).expect("it is whole"), Some(&[value; 100][..]));
        }
    }

    /// The state that was gone back to was once opened by a store that knew of no snapshots, and the next commits wrote over
    /// pages under their readers.
    #[test]
    fn snapshots_outlive_a_state_that_is_taken_back() {
        for reads_dropped in [false, true] {
            block_on(async {
                let disk = Rc::new(MemDisk::default());
                let store = open(&disk).await;
                let mut held: Vec<(Snapshot, u8)> = Vec::new();
                for value in 1..=4 {
                    held.push((commit(&store, value).await, value));
                }
                let dropped = (commit(&store, 5).await, 5);
                held.extend(reads_dropped.then_some(dropped));
                store.roll_back(4).await.expect("it opens");
                assert_eq!(store.epoch(), 4);
                check(&store.snapshot(), 4);
                for value in 6..=9 {
                    held.push((commit(&store, value).await, value));
                    held.iter().for_each(|(snapshot, value)| check(snapshot, *value));
                }
                drop(held);
                let bytes = (commit(&store, 10).await, commit(&store, 11).await, store.file_bytes()).2;
                for value in 12..=20 {
                    commit(&store, value).await;
                }
                assert_eq!(store.file_bytes(), bytes, "what snapshots held back is used again");
                check(&open(&disk).await.snapshot(), 20);
            });
        }
    }

    /// A batch that found the disk full once left it full: nothing could be written any more, not even a compaction.
    #[test]
    fn space_of_a_failed_commit_is_given_back() {
        block_on(async {
            let disk = SimDisk::new();
            let options = StoreOptions { create: true, at_most_epoch: None };
            let store = PageStore::open(Rc::new(disk.clone()), Path::new(PATH), options).await.expect("it opens");
            commit(&store, 1).await;
            let held = store.snapshot();
            let bytes = store.file_bytes();
            for sync in 0..2 {
                let mut txn = store.begin_write().expect("nothing failed yet");
                txn.put(TREE, b"large", &vec![7; 4 << 20]).expect("it has room");
                disk.set_faults(Faults { failing_sync: Some(sync), ..Faults::default() });
                assert!(txn.commit(2).await.is_err());
                disk.set_faults(Faults::default());
                assert!(store.is_poisoned());
                store.roll_back(1).await.expect("it opens");
                assert!(store.file_bytes() <= bytes, "{} {bytes}", store.file_bytes());
                check(&held, 1);
            }
            check(&commit(&store, 2).await, 2);
            check(&held, 1);
        });
    }

    /// Where the file has the state before no more, as after the store was opened, all that is free waits for the snapshots.
    #[test]
    fn snapshots_of_a_store_just_opened_outlive_it_too() {
        block_on(async {
            let disk = Rc::new(MemDisk::default());
            let store = open(&disk).await;
            commit(&store, 1).await;
            commit(&store, 2).await;
            let store = open(&disk).await;
            let held = store.snapshot();
            store.roll_back(1).await.expect("it opens");
            for value in 3..=6 {
                commit(&store, value).await;
                check(&held, 2);
            }
        });
    }

    /// A copy has one state, and none that never was.
    #[test]
    fn a_compacted_store_does_not_go_back_behind_its_state() {
        block_on(async {
            let disk = Rc::new(MemDisk::default());
            let store = open(&disk).await;
            commit(&store, 1).await;
            commit(&store, 2).await;
            store.compact().await.expect("it compacts");
            let refused = store.roll_back(1).await;
            assert!(matches!(refused, Err(OpenError::TooNew { oldest: 2, wanted: 1, .. })));
            assert!(store.is_poisoned(), "until it is opened again");
            store.roll_back(2).await.expect("it opens");
            check(&store.snapshot(), 2);
            check(&commit(&store, 3).await, 3);
        });
    }
}
