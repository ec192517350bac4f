//! Free pages: what commits do about them.

use std::path::Path;
use std::rc::Rc;

use futures_lite::future::{block_on, poll_once};

use crate::io::mem::MemDisk;
use crate::page::alloc::Allocator;
use crate::page::node::{KIND_LEAF, checksum};
use crate::page::*;

const TREE: TreeId = TreeId(3);
const PATH: &str = "/a.store";

async fn open(disk: &Rc<MemDisk>) -> PageStore {
    let options = StoreOptions { create: true, at_most_epoch: None };
    PageStore::open(disk.clone(), Path::new(PATH), options).await.expect("it opens")
}

async fn put(store: &PageStore, value: u8) -> Snapshot {
    let mut txn = store.begin_write().expect("no other transaction is open");
    for key in 0..300_u32 {
        txn.put(TREE, &key.to_be_bytes(), &[value; 100]).expect("it is put");
    }
    txn.commit(store.epoch() + 1).await.expect("it commits")
}

/// A commit of one entry once went through all free pages at one go, several times.
#[test]
fn a_commit_over_a_long_free_list_gives_way() {
    const PAGES: u64 = 20_000;
    block_on(async {
        let disk = Rc::new(MemDisk::default());
        let store = open(&disk).await;
        let mut alloc = Allocator::new(PAGES);
        (1..PAGES / 2).for_each(|page| alloc.release(PageNo(page * 2), 1));
        store.0.current.borrow_mut().alloc = alloc;
        let mut txn = store.begin_write().expect("no other transaction is open");
        txn.put(TREE, b"key", b"value").expect("it is put");
        let (mut commit, mut turns) = (Box::pin(txn.commit(1)), 0);
        while poll_once(&mut commit).await.is_none() {
            turns += 1;
        }
        assert!(turns >= 3, "others had {turns} turns");
        let free = |store: &PageStore| store.0.current.borrow().alloc.all();
        let again = open(&disk).await;
        assert_eq!(free(&again).len(), PAGES / 2 - 2, "one page has the entry");
        assert_eq!(free(&again).run_count(), free(&store).run_count());
        assert_eq!(again.snapshot().get(TREE, b"key"), Ok(Some(&b"value"[..])));
    });
}

/// What each commit gave up was once kept apart for as long as some older snapshot lived, and copied by each transaction.
#[test]
fn an_old_snapshot_does_not_lengthen_what_transactions_copy() {
    block_on(async {
        let store = open(&Rc::new(MemDisk::default())).await;
        let mut snapshots = vec![put(&store, 1).await];
        for value in 2..20 {
            let snapshot = put(&store, value).await;
            if value == 10 {
                snapshots.push(snapshot);
            }
        }
        let sets = |store: &PageStore| store.0.current.borrow().alloc.held_sets();
        assert!(sets(&store) <= 3, "{} sets", sets(&store));
        for (snapshot, value) in snapshots.iter().zip([1, 10]) {
            assert_eq!(snapshot.get(TREE, &7_u32.to_be_bytes()), Ok(Some(&[value; 100][..])));
        }
        drop(snapshots);
        let bytes = store.file_bytes();
        for value in 20..60 {
            put(&store, value).await;
        }
        assert_eq!((sets(&store), store.file_bytes()), (1, bytes), "what snapshots held back is used again");
    });
}

/// Pages that a damaged leaf names, and the file does not have, once got into the free list: the store did not open again.
#[test]
fn pages_behind_the_end_are_not_given_up() {
    const LONG: u32 = 9000;
    block_on(async {
        let disk = Rc::new(MemDisk::default());
        let store = open(&disk).await;
        let mut txn = store.begin_write().expect("no other transaction is open");
        txn.put(TREE, b"key", &[7; LONG as usize]).expect("it is put");
        txn.commit(1).await.expect("it commits");
        let used = store.used_bytes();
        drop(store);
        let mut bytes = disk.bytes(Path::new(PATH)).expect("the file is there");
        let pages = bytes.chunks_exact_mut(PAGE_BYTES).enumerate().skip(2);
        let (number, leaf) = pages.into_iter().find(|(_, page)| page[8] == KIND_LEAF).expect("there is one");
        // The length of the only entry's value is the last of the page that is not zero; its place is in front of it.
        let len = leaf.windows(4).rposition(|window| window == LONG.to_le_bytes()).expect("it is there");
        leaf[len - 8..len].copy_from_slice(&(1_u64 << 50).to_le_bytes());
        let sum = checksum(leaf, PageNo(number as u64)).to_le_bytes();
        leaf[..8].copy_from_slice(&sum);
        disk.put(Path::new(PATH), bytes);
        let store = open(&disk).await;
        assert!(store.snapshot().get(TREE, b"key").is_err());
        let mut txn = store.begin_write().expect("no other transaction is open");
        txn.put(TREE, b"key", b"short").expect("it is put");
        txn.commit(2).await.expect("it commits");
        let again = open(&disk).await;
        assert_eq!(again.snapshot().get(TREE, b"key"), Ok(Some(&b"short"[..])));
        assert!(again.used_bytes() <= used, "all but the lost value is as it was");
    });
}
