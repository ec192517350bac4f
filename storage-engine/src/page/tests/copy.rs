//! Copies of a store.

use std::path::Path;
use std::rc::Rc;

use futures_lite::future::{block_on, poll_once};

use crate::io::mem::MemDisk;
use crate::io::sim::{Faults, SimDisk};
use crate::io::{Disk, OpenMode};
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

/// Two trees of short and long entries, committed as one state.
async fn put_at_once(disk: Rc<dyn Disk>, path: &Path, short: u32, (long, long_bytes): (u32, usize)) -> PageStore {
    let options = StoreOptions { create: true, at_most_epoch: None };
    let store = PageStore::open(disk, path, options).await.expect("it opens");
    let mut txn = store.begin_write().expect("no other transaction is open");
    for key in 0..short {
        txn.put(TREE, &key.to_be_bytes(), &[key as u8; 200]).expect("it is put");
    }
    for key in 0..long {
        txn.put(TreeId(TREE.0 + 1), &key.to_be_bytes(), &vec![key as u8; long_bytes]).expect("it is put");
    }
    txn.commit(1).await.expect("it commits");
    store
}

/// All entries, the trees' one after the other.
fn entries(store: &PageStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (snapshot, mut found) = (store.snapshot(), Vec::new());
    for tree in [TREE, TreeId(TREE.0 + 1)] {
        let mut cursor = snapshot.cursor(tree);
        while let Some((key, value)) = cursor.next().expect("it is whole") {
            found.push((key.to_vec(), value.to_vec()));
        }
    }
    found
}

/// A store of few states was once gathered in memory whole, and then encoded there.
#[test]
fn a_copy_of_a_single_state_is_written_bit_by_bit() {
    block_on(async {
        let disk = Rc::new(MemDisk::default());
        let store = put_at_once(disk.clone(), Path::new("/a.store"), 60_000, (2000, 9000)).await;
        let path = Path::new("/copy.store");
        let file = disk.open(path, OpenMode::CreateNew).await.expect("it is made");
        let (mut copying, mut len, mut most) = (Box::pin(store.copy_to(path)), 0, 0);
        while poll_once(&mut copying).await.is_none() {
            (len, most) = (file.len(), most.max(file.len() - len));
        }
        assert!(most < 8 << 20, "{most} bytes of {len} came at once");
        let copy = PageStore::open(disk, path, StoreOptions::default()).await.expect("it opens");
        assert!(copy.file_bytes() > 30 << 20 && copy.file_bytes() < copy.used_bytes() + (512 << 10));
        assert!(entries(&copy) == entries(&store));
        assert_eq!(copy.epoch(), 1);
        put(&copy, 500..1000).await;
        assert_eq!(copy.snapshot().entry_count(TREE), 60_000);
    });
}

/// A copy that was cut off is the empty state, however much of it was written; a compaction that was leaves the old file.
#[test]
fn a_copy_that_is_cut_off_is_no_state() {
    let (path, copy) = (Path::new("/a.store"), Path::new("/b.store"));
    let whole = SimDisk::new();
    let wanted = block_on(async { entries(&put_at_once(Rc::new(whole.clone()), path, 500, (36, 150_000)).await) });
    for cut in 0.. {
        let disk = whole.after_power_cut(1);
        let is_done = block_on(async {
            let opened = PageStore::open(Rc::new(disk.clone()), path, StoreOptions::default()).await;
            let store = opened.expect("it opens");
            disk.set_faults(Faults { cut_before: Some(cut), ..Faults::default() });
            let copied = store.copy_to(copy).await.is_ok();
            disk.set_faults(Faults { cut_before: Some(cut), ..Faults::default() });
            let compacted = store.compact().await.is_ok();
            disk.set_faults(Faults::default());
            for seed in 0..3 {
                let after = disk.after_power_cut(seed);
                let opened = PageStore::open(Rc::new(after.clone()), path, StoreOptions::default()).await;
                assert!(entries(&opened.expect("it opens")) == wanted, "cut {cut}, seed {seed}");
                match PageStore::open(Rc::new(after), copy, StoreOptions::default()).await {
                    Ok(copy) if copy.epoch() == 1 => assert!(entries(&copy) == wanted, "cut {cut}, seed {seed}"),
                    Ok(copy) => assert_eq!((copy.epoch(), entries(&copy).len(), copied), (0, 0, false)),
                    Err(_) => assert!(!copied || seed == 0, "its name may be lost"),
                }
            }
            copied && compacted
        });
        if is_done {
            assert!(cut > 20, "it was written in {cut} operations");
            break;
        }
    }
}

/// What a file held already would become part of the copy.
#[test]
fn a_copy_does_not_go_into_another_store() {
    block_on(async {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::default());
        let options = StoreOptions { create: true, at_most_epoch: None };
        let stores = [Path::new("/a.store"), Path::new("/b.store")];
        let other = PageStore::open(disk.clone(), stores[1], options).await.expect("it opens");
        put(&other, 0..10).await;
        let store = PageStore::open(disk, stores[0], options).await.expect("it opens");
        put(&store, 20..30).await;
        put(&store, 20..30).await;
        let refused = store.copy_to(stores[1]).await;
        assert!(matches!(refused, Err(CompactError::Disk(crate::DiskError::Exists { .. }))));
    });
}
