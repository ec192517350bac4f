//! The store against an ordered map.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use futures_lite::future::block_on;
use proptest::prelude::*;

use crate::io::Disk;
use crate::io::mem::MemDisk;
use crate::page::*;

const FILE: &str = "store";
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &MemDisk) -> PageStore {
    let disk: Rc<dyn Disk> = Rc::new(disk.clone());
    block_on(PageStore::open(disk, Path::new(FILE), StoreOptions { create: true, at_most_epoch: None }))
        .expect("it opens")
}

fn contents(state: &dyn ReadTree, tree: TreeId) -> Model {
    let mut cursor = state.cursor(tree);
    let mut out = Model::new();
    while let Some((key, value)) = cursor.next().expect("nothing is damaged") {
        assert!(out.last_key_value().is_none_or(|(last, _)| last.as_slice() < key), "keys ascend");
        out.insert(key.to_vec(), value.to_vec());
    }
    assert_eq!(state.entry_count(tree), out.len() as u64);
    out
}

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, usize, u8),
    Delete(Vec<u8>),
    /// Of these keys, those whose value begins with less than this.
    DeleteRun(std::collections::BTreeSet<Vec<u8>>, u8),
    Commit,
    Reopen,
    Abort,
    Clear,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0u32..400).prop_map(|n| format!("shared prefix {n:05}").into_bytes()),
        1 => proptest::collection::vec(0u8..4, 1..6),
        1 => (1usize..1024).prop_map(|n| vec![7; n]),
    ]
}

/// Few keys here and there, or all between two of them.
fn keys() -> impl Strategy<Value = std::collections::BTreeSet<Vec<u8>>> {
    let numbered = |n: u32| format!("shared prefix {n:05}").into_bytes();
    prop_oneof![
        proptest::collection::btree_set(key(), 0..40),
        (0u32..400, 0u32..400).prop_map(move |(from, len)| (from..from + len).map(numbered).collect()),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        30 => (key(), prop_oneof![0usize..40, 900usize..1500, 3000usize..20000], any::<u8>()).prop_map(|(k, n, b)| Change::Put(k, n, b)),
        15 => key().prop_map(Change::Delete),
        3 => (keys(), any::<u8>()).prop_map(|(keys, below)| Change::DeleteRun(keys, below)),
        3 => Just(Change::Commit),
        1 => Just(Change::Reopen),
        1 => Just(Change::Abort),
        1 => Just(Change::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever is written, a state holds what a plain map would, and older states stay as they were.
    #[test]
    fn a_store_is_a_map(changes in proptest::collection::vec(change(), 1..400)) {
        let (disk, tree) = (MemDisk::new(), TreeId(3));
        let mut store = open(&disk);
        let (mut durable, mut working) = (Model::new(), Model::new());
        let mut txn = Some(store.begin_write().expect("the first"));
        let mut kept: Vec<(Snapshot, Model)> = Vec::new();
        for change in changes {
            let writing = txn.as_mut().expect("one is open");
            match change {
                Change::Put(key, len, byte) => {
                    let value = vec![byte; len];
                    writing.put(tree, &key, &value).expect("it is put");
                    working.insert(key, value);
                }
                Change::Delete(key) => {
                    let was = writing.delete(tree, &key).expect("it is deleted");
                    prop_assert_eq!(was, working.remove(&key).is_some());
                }
                Change::DeleteRun(keys, below) => {
                    let keys: Vec<&Vec<u8>> = keys.iter().collect();
                    let is_doomed = |value: &[u8]| value.first().is_some_and(|byte| *byte < below);
                    let mut met = Vec::new();
                    let removed = writing.delete_run(tree, &keys, &mut |at, value| {
                        met.push((keys[at].clone(), value.to_vec()));
                        is_doomed(value)
                    });
                    met.sort();
                    let there = keys.iter().filter_map(|key| Some((key.to_vec(), working.get(*key)?.clone())));
                    prop_assert_eq!(&met, &there.collect::<Vec<_>>());
                    met.retain(|(_, value)| is_doomed(value));
                    prop_assert_eq!(removed, Ok(met.len()));
                    met.iter().for_each(|(key, _)| drop(working.remove(key)));
                    prop_assert_eq!(writing.entry_count(tree), working.len() as u64);
                }
                Change::Clear => {
                    block_on(writing.clear(tree)).expect("it is cleared");
                    working.clear();
                }
                Change::Commit => {
                    prop_assert_eq!(&contents(writing, tree), &working);
                    let epoch = store.epoch() + 1;
                    let snapshot = block_on(txn.take().expect("one is open").commit(epoch)).expect("it commits");
                    durable = working.clone();
                    kept.push((snapshot, durable.clone()));
                    if kept.len() > 3 {
                        kept.remove(0);
                    }
                    txn = Some(store.begin_write().expect("the last one ended"));
                }
                Change::Abort | Change::Reopen => {
                    drop(txn.take());
                    if matches!(change, Change::Reopen) {
                        kept.clear();
                        store = open(&disk);
                    }
                    working = durable.clone();
                    txn = Some(store.begin_write().expect("the last one ended"));
                }
            }
            for (snapshot, model) in &kept {
                prop_assert_eq!(snapshot.entry_count(tree), model.len() as u64);
            }
            let writing = txn.as_ref().expect("one is open");
            prop_assert_eq!(writing.dirty_bytes(), writing.nodes.len() * PAGE_BYTES + writing.values.counted_bytes());
        }
        for (snapshot, model) in &kept {
            prop_assert_eq!(&contents(snapshot, tree), model);
        }
        prop_assert_eq!(&contents(&store.snapshot(), tree), &durable);
        drop(txn);
        block_on(store.compact()).expect("it compacts");
        prop_assert_eq!(&contents(&store.snapshot(), tree), &durable);
        prop_assert_eq!(&contents(&open(&disk).snapshot(), tree), &durable);
    }

    #[test]
    fn a_cursor_finds_its_place_both_ways(
        keys in proptest::collection::btree_set(key(), 0..300), probe in key(), others in proptest::collection::vec(key(), 0..20)
    ) {
        let (disk, tree) = (MemDisk::new(), TreeId(0));
        let store = open(&disk);
        let mut txn = store.begin_write().expect("the first");
        for key in &keys {
            txn.put(tree, key, &[1; 30]).expect("it is put");
        }
        let snapshot = block_on(txn.commit(1)).expect("it commits");
        let mut cursor = snapshot.cursor(tree);
        cursor.seek(&probe).expect("nothing is damaged");
        let found = cursor.next().expect("nothing is damaged").map(|(key, _)| key.to_vec());
        prop_assert_eq!(found.as_ref(), keys.range(probe.clone()..).next());
        cursor.seek(&probe).expect("nothing is damaged");
        let found = cursor.prev().expect("nothing is damaged").map(|(key, _)| key.to_vec());
        prop_assert_eq!(found.as_ref(), keys.range(..probe).next_back());
        for other in others {
            cursor.seek_near(&other).expect("nothing is damaged");
            let found = cursor.next().expect("nothing is damaged").map(|(key, _)| key.to_vec());
            prop_assert_eq!(found.as_ref(), keys.range(other..).next());
        }
        cursor.seek_to_end().expect("nothing is damaged");
        let mut back = Vec::new();
        while let Some((key, _)) = cursor.prev().expect("nothing is damaged") {
            back.push(key.to_vec());
        }
        prop_assert_eq!(back, keys.into_iter().rev().collect::<Vec<_>>());
    }
}

/// Rewriting the same keys for ever must not grow the file: pages given up are used again.
#[test]
fn space_given_up_is_used_again() {
    let disk = MemDisk::new();
    let store = open(&disk);
    let mut sizes = Vec::new();
    for epoch in 1..200u64 {
        let mut txn = store.begin_write().expect("the last one ended");
        for number in 0..50u32 {
            txn.put(TreeId(1), &number.to_be_bytes(), &vec![epoch as u8; 200 + (number as usize * 37) % 6000])
                .expect("it is put");
        }
        block_on(txn.commit(epoch)).expect("it commits");
        sizes.push(store.file_bytes());
    }
    assert!(sizes[198] <= sizes[20], "{} grew to {}", sizes[20], sizes[198]);
}

/// A prepared state that its index never committed is dropped at the opening, and its place is used for the next.
#[test]
fn a_prepared_state_is_dropped() {
    let disk = MemDisk::new();
    let (store, tree) = (open(&disk), TreeId(2));
    for epoch in 1..=2 {
        let mut txn = store.begin_write().expect("the last one ended");
        txn.put(tree, b"epoch", &[epoch]).expect("it is put");
        block_on(txn.commit(u64::from(epoch))).expect("it commits");
    }
    for round in 0..3u8 {
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let options = StoreOptions { create: false, at_most_epoch: Some(1) };
        let store = block_on(PageStore::open(shared, Path::new(FILE), options)).expect("it opens");
        assert_eq!((store.epoch(), store.snapshot().get(tree, b"epoch").expect("whole")), (1, Some(&[1u8][..])));
        let mut txn = store.begin_write().expect("the first");
        txn.put(tree, b"epoch", &[9, round]).expect("it is put");
        block_on(txn.commit(2)).expect("it commits");
        assert_eq!(open(&disk).snapshot().get(tree, b"epoch").expect("whole"), Some(&[9, round][..]));
    }
    let shared: Rc<dyn Disk> = Rc::new(disk);
    let options = StoreOptions { create: false, at_most_epoch: Some(0) };
    assert!(matches!(block_on(PageStore::open(shared, Path::new(FILE), options)), Err(OpenError::TooNew { .. })));
}

/// Every flipped bit is either harmless (an unused byte, the other meta page) or named; wrong bytes are never served.
#[test]
fn flipped_bits_are_found() {
    let disk = MemDisk::new();
    let (store, tree) = (open(&disk), TreeId(0));
    let mut txn = store.begin_write().expect("the first");
    for number in 0..300u32 {
        txn.put(tree, &number.to_be_bytes(), &vec![number as u8; if number % 50 == 0 { 9000 } else { 50 }])
            .expect("it is put");
    }
    block_on(txn.commit(1)).expect("it commits");
    let whole = contents(&store.snapshot(), tree);
    let bytes = disk.bytes(Path::new(FILE)).expect("the file is there");
    let mut named = 0;
    for at in (0..bytes.len()).step_by(97) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        disk.put(Path::new(FILE), damaged);
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let Ok(store) = block_on(PageStore::open(shared, Path::new(FILE), StoreOptions::default())) else {
            named += 1;
            continue;
        };
        let snapshot = store.snapshot();
        let mut cursor = snapshot.cursor(tree);
        let mut found = Model::new();
        loop {
            match cursor.next() {
                Ok(Some((key, value))) => drop(found.insert(key.to_vec(), value.to_vec())),
                Ok(None) => break assert!(snapshot.epoch() == 0 || found == whole, "a flip at {at} was served"),
                Err(_) => break named += 1,
            }
        }
        assert!(found.iter().all(|(key, value)| whole.get(key) == Some(value)), "a flip at {at} was served");
    }
    assert!(named > 100, "only {named} flips were named");
}

/// Keys that come between others leave leaves half full; a large commit fills them up again, and loses none.
#[test]
fn a_large_commit_leaves_full_pages() {
    const KEYS: u32 = 30_000;
    let store = block_on(PageStore::open(
        Rc::new(MemDisk::new()),
        Path::new("packed"),
        StoreOptions { create: true, at_most_epoch: None },
    ))
    .expect("it opens");
    let key = |number: u32| format!("{:05}/{}", number, "k".repeat((number % 37) as usize)).into_bytes();
    let value = |number: u32| vec![number as u8; (number % 91) as usize];
    for round in 0..3u32 {
        let mut txn = store.begin_write().expect("no other writer");
        for number in (0..KEYS).filter(|number| (number * 7919) % 3 == round) {
            txn.put(TreeId(3), &key(number), &value(number)).expect("it is put");
        }
        let snapshot = block_on(txn.commit(u64::from(round) + 1)).expect("it commits");
        let usage = snapshot.usage(TreeId(3)).expect("nothing is damaged");
        let fill = usage.leaf_bytes as f64 / (usage.leaf_pages * PAGE_BYTES as u64) as f64;
        assert!(fill > 0.85, "round {round}: leaves are {fill:.2} full");
        assert_eq!(usage.entries, snapshot.entry_count(TreeId(3)));
    }
    let snapshot = store.snapshot();
    let mut cursor = snapshot.cursor(TreeId(3));
    for number in 0..KEYS {
        assert_eq!(snapshot.get(TreeId(3), &key(number)), Ok(Some(value(number).as_slice())));
        let entry = cursor.next().expect("nothing is damaged").map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert_eq!(entry, Some((key(number), value(number))));
    }
}

proptest! {
    /// A finder finds what a look-up of its own finds, in whatever order it is asked.
    #[test]
    fn a_finder_finds_as_single_look_ups_do(
        held in proptest::collection::btree_set(0u32..3000, 0..1500),
        mut asked in proptest::collection::vec(0u32..3001, 0..300),
        rising: bool,
    ) {
        let store = open(&MemDisk::new());
        let tree = TreeId(3);
        let mut txn = store.begin_write().expect("no other writer");
        for number in &held {
            txn.put(tree, &number.to_be_bytes(), &number.to_le_bytes()).expect("room");
        }
        if rising {
            asked.sort_unstable();
        }
        let check = |state: &dyn ReadTree| {
            let mut finder = state.finder(tree);
            for number in &asked {
                let key = number.to_be_bytes();
                assert_eq!(finder.get(&key).expect("whole"), state.get(tree, &key).expect("whole"), "{number}");
            }
        };
        check(&txn);
        check(&block_on(txn.commit(1)).expect("memory does not fail"));
    }
}
