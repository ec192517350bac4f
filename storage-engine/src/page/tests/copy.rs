//! Copies of a store.

use std::path::Path;
use std::rc::Rc;

use futures_lite::future::{block_on, poll_once};

use crate::io::mem::MemDisk;
use crate::page::*;

const TREE: TreeId = TreeId(3);

async fn put(store: &PageStore, keys: std::ops::Range<u32>) {
    let mut txn = store.begin_write().expect("no other transaction is open");
    for key in keys {
        txn.put(TREE, &key.to_be_bytes(), &[7; 200]).expect("it is put");
    }
    txn.commit(store.epoch() + 1).await.expect("it commits");
}

/// A copy that took in what was committed after it began would not be of one state.
#[test]
fn a_copy_is_of_the_state_at_the_call() {
    block_on(async {
        let disk = Rc::new(MemDisk::default());
        let options = StoreOptions { create: true, at_most_epoch: None };
        let store = PageStore::open(disk.clone(), Path::new("/a.store"), options).await.expect("it opens");
        put(&store, 0..2000).await;
        put(&store, 500..1000).await;
        let path = Path::new("/copy.store");
        let mut copying = Box::pin(store.copy_to(path));
        assert!(poll_once(&mut copying).await.is_none(), "it gives way to others");
        put(&store, 2000..3000).await;
        copying.await.expect("it copies");
        let copy = PageStore::open(disk, path, StoreOptions::default()).await.expect("it opens");
        assert_eq!((copy.epoch(), copy.snapshot().entry_count(TREE)), (2, 2000));
        assert_eq!((store.epoch(), store.snapshot().entry_count(TREE)), (3, 3000));
        assert!(copy.used_bytes() < store.used_bytes());
    });
}
