//! Power cuts and failing devices: after each, the store opens at its last commit, or at the one under way.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use futures_lite::future::block_on;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::io::sim::{Faults, SimDisk};
use crate::io::{Disk, DiskError};
use crate::page::*;

const FILE: &str = "folder/store";
const TREE: TreeId = TreeId(5);
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &SimDisk) -> Result<PageStore, OpenError> {
    let disk: Rc<dyn Disk> = Rc::new(disk.clone());
    block_on(PageStore::open(disk, Path::new(FILE), StoreOptions { create: true, at_most_epoch: None }))
}

fn contents(store: &PageStore) -> Model {
    let snapshot = store.snapshot();
    let mut cursor = snapshot.cursor(TREE);
    let mut out = Model::new();
    while let Some((key, value)) = cursor.next().expect("nothing is damaged") {
        out.insert(key.to_vec(), value.to_vec());
    }
    out
}

/// What one run left: the states that were committed, by epoch, and the epoch of a commit that did not return.
struct Run {
    committed: BTreeMap<u64, Model>,
    under_way: Option<(u64, Model)>,
}

/// Commits batches until one fails or all are done; what they hold depends on the seed alone.
fn run(disk: &SimDisk, seed: u64, batches: u64, per_batch: u32) -> Run {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut run = Run { committed: BTreeMap::from([(0, Model::new())]), under_way: None };
    let Ok(store) = open(disk) else { return run };
    let mut model = Model::new();
    for epoch in 1..=batches {
        let mut txn = store.begin_write().expect("the last one ended");
        for _ in 0..rng.random_range(1..=per_batch) {
            let key = format!("key {:04}", rng.random_range(0..per_batch * 3)).into_bytes();
            if rng.random_bool(0.25) {
                txn.delete(TREE, &key).expect("it is deleted");
                model.remove(&key);
            } else {
                let len = if rng.random_bool(0.1) { rng.random_range(1500..9000) } else { rng.random_range(0..300) };
                let value = vec![rng.random(); len];
                txn.put(TREE, &key, &value).expect("it is put");
                model.insert(key, value);
            }
        }
        if block_on(txn.commit(epoch)).is_err() {
            run.under_way = Some((epoch, model));
            return run;
        }
        run.committed.insert(epoch, model.clone());
    }
    run
}

/// Opens what a cut left and checks that it is the last committed state or the one under way, and that it can go on.
fn check(run: &Run, disk: &SimDisk, what: &str) {
    let store = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (last, model) = run.committed.last_key_value().expect("there is always the empty state");
    let found = contents(&store);
    match &run.under_way {
        Some((epoch, model)) if store.epoch() == *epoch => assert_eq!(&found, model, "{what}"),
        _ => assert_eq!((store.epoch(), &found), (*last, model), "{what}"),
    }
    let next = store.epoch() + 1;
    let mut txn = store.begin_write().expect("the first");
    txn.put(TREE, b"afterwards", b"1").expect("it is put");
    block_on(txn.commit(next)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut wanted = found;
    wanted.insert(b"afterwards".to_vec(), b"1".to_vec());
    assert_eq!(contents(&open(disk).expect("it opens again")), wanted, "{what}");
}

/// A small history, cut before each of its operations, with a dozen choices of what the cut keeps.
#[test]
fn a_cut_before_any_operation_leaves_a_committed_state() {
    let disk = SimDisk::new();
    let whole = run(&disk, 7, 6, 12);
    assert_eq!(whole.committed.len(), 7);
    for cut in 0..disk.operations() {
        let disk = SimDisk::new();
        disk.set_faults(Faults { cut_before: Some(cut), ..Faults::default() });
        let run = run(&disk, 7, 6, 12);
        for seed in 0..12 {
            check(&run, &disk.after_power_cut(seed), &format!("cut before operation {cut}, seed {seed}"));
        }
    }
}

/// Large histories, cut at random.
#[test]
fn random_cuts_of_large_histories_leave_a_committed_state() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new();
        disk.set_faults(Faults { cut_before: Some(rng.random_range(0..200)), ..Faults::default() });
        let run = run(&disk, seed, 12, 200);
        for _ in 0..8 {
            let kept = rng.random();
            check(&run, &disk.after_power_cut(kept), &format!("history {seed}, cut {kept}"));
        }
    }
}

/// A full device fails the commit and nothing else: the state stays, and once there is room the store goes on.
#[test]
fn a_full_device_loses_nothing() {
    let disk = SimDisk::new();
    let store = open(&disk).expect("it opens");
    let mut txn = store.begin_write().expect("the first");
    txn.put(TREE, b"kept", &[1; 5000]).expect("it is put");
    block_on(txn.commit(1)).expect("it commits");
    disk.set_faults(Faults { capacity: Some(store.file_bytes()), ..Faults::default() });
    let mut txn = store.begin_write().expect("the last one ended");
    txn.put(TREE, b"large", &vec![2; 4 << 20]).expect("it is put");
    let error = block_on(txn.commit(2)).map(|_| ()).expect_err("the device is full");
    assert!(matches!(error, CommitError::Disk(DiskError::NoSpace { .. })), "{error}");
    assert_eq!(contents(&store).len(), 1);
    disk.set_faults(Faults::default());
    let mut txn = store.begin_write().expect("there is room again");
    txn.put(TREE, b"large", &vec![2; 4 << 20]).expect("it is put");
    block_on(txn.commit(2)).expect("it commits");
    assert_eq!(contents(&open(&disk).expect("it opens")).len(), 2);
}

/// After a failed sync the kernel forgets what it should have written: trusting a later sync would lose the commit.
#[test]
fn a_failed_sync_is_final_until_the_store_is_opened_again() {
    for failing in 0..2 {
        let disk = SimDisk::new();
        let store = open(&disk).expect("it opens");
        disk.set_faults(Faults { failing_sync: Some(failing), ..Faults::default() });
        let mut txn = store.begin_write().expect("the first");
        txn.put(TREE, b"a", b"1").expect("it is put");
        assert!(block_on(txn.commit(1)).is_err());
        assert!(matches!(store.begin_write().map(|_| ()), Err(WriteError::Poisoned)));
        for seed in 0..12 {
            let store = open(&disk.after_power_cut(seed)).expect("it opens");
            assert!(contents(&store).len() <= 1);
        }
    }
}

/// A page that decays after it was written is named by its number, and its bytes are not served.
#[test]
fn a_decayed_page_is_named() {
    let disk = SimDisk::new();
    let store = open(&disk).expect("it opens");
    let mut txn = store.begin_write().expect("the first");
    txn.put(TREE, b"key", &[3; 100]).expect("it is put");
    block_on(txn.commit(1)).expect("it commits");
    let place = (0..store.file_bytes() as usize / PAGE_BYTES).skip(2).find(|page| {
        let copy = disk.after_power_cut(1);
        copy.flip_bit(Path::new(FILE), page * PAGE_BYTES + 40, 3);
        open(&copy).is_ok_and(|store| store.snapshot().get(TREE, b"key").is_err())
    });
    let page = place.expect("the entry lies on some page") as u64;
    assert!(disk.flip_bit(Path::new(FILE), page as usize * PAGE_BYTES + 40, 3));
    let error = open(&disk).expect("it opens").snapshot().get(TREE, b"key").map(|_| ()).expect_err("it is damaged");
    assert_eq!(error, ReadError::Damaged { file: FILE.into(), page });
}
