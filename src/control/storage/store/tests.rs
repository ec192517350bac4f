//! The control store on a disk that is full for a while.

use futures_lite::future::block_on;
use futures_util::future::FutureExt;
use shards::mesh::Mesh;
use shards::runtime::{Queue, SimCluster, SimConfig, SimEnd};
use storage_engine::io::mem::MemDisk;
use storage_engine::io::sim::{Faults, SimDisk};
use uuid::Uuid;

use super::*;
use crate::control::testing::TestRuntime;

/// No file can grow.
const FULL: Faults = Faults { cut_before: None, capacity: Some(0), failing_sync: None, failing_views: false };

/// Longer than a full disk is left alone.
const LATER: Duration = Duration::from_secs(3);

/// So much that it has no room in pages that are free already.
fn large(first: u128) -> Changes {
    let dropping = (first..first + 20_000).map(|id| (Uuid::from_u128(id), true)).collect();
    Changes { dropping, ..Changes::default() }
}

fn small() -> Changes {
    Changes { dropping: vec![(Uuid::max(), true)], ..Changes::default() }
}

/// What could not be read was once told without the file, and without what to do about it.
#[test]
fn a_store_that_cannot_be_read_is_told_with_its_file_and_what_to_do() {
    let told = |key: &'static [u8], value: &'static [u8]| {
        let disk: Rc<dyn storage_engine::Disk> = Rc::new(MemDisk::new());
        let runtime = Rc::new(TestRuntime::new(disk.clone()));
        let path = Path::new("/data/control.store");
        block_on(async {
            let options = StoreOptions { create: true, ..StoreOptions::default() };
            let store = PageStore::open(disk, path, options).await.unwrap();
            let mut txn = store.begin_write().unwrap();
            txn.put(record::META, record::FORMAT, record::FORMAT_VERSION).unwrap();
            txn.put(record::META, key, value).unwrap();
            txn.commit(1).await.unwrap();
            drop(store);
            ControlStore::open(runtime, path).await.map(|_| ()).unwrap_err().to_string()
        })
    };
    let version = "/data/control.store: the control store has format version 7, this program reads version 1; start the version of \
                   the program that wrote it, or start anew with a dump that it makes";
    assert_eq!(told(record::FORMAT, b"7"), version);
    let damaged = "/data/control.store: the control store is damaged (the number of the next batch cannot be read); restore the \
                   whole database from a snapshot, a dump or a replica";
    assert_eq!(told(record::NEXT_BATCH, b"x"), damaged);
}

/// A task that had ended while the disk was full kept every later change waiting for room, whose askers were never told.
#[test]
fn changes_are_refused_while_what_has_happened_waits_for_room() {
    let disk = SimDisk::new();
    let of_core = disk.clone();
    let config = SimConfig::new(3, 1, Rc::new(move |_| Rc::new(of_core.clone())));
    let start = move |runtime: Rc<dyn Runtime>, _: Mesh<(), ()>| {
        let disk = disk.clone();
        async move {
            let (store, _) = ControlStore::open(runtime.clone(), Path::new("/control.store")).await.expect("it opens");
            runtime.spawn(Queue::Indexing, store.clone().run().boxed_local());
            store.commit(small()).await.expect("there is room");

            disk.set_faults(FULL);
            let mut happened = store.submit(large(0));
            assert_eq!(store.commit(large(1 << 64)).await, Err(ControlError::OutOfSpace));
            runtime.sleep(LATER).await;
            let began = runtime.now();
            assert_eq!(store.commit(small()).await, Err(ControlError::OutOfSpace));
            let mut later = store.submit(small());
            assert!(store.compact().await.is_err(), "a copy has no room");
            assert!(runtime.now().since(began) < OUT_OF_SPACE_PAUSE, "one waited for the disk");
            assert_eq!((happened.try_recv(), later.try_recv()), (Ok(None), Ok(None)), "these are kept");

            disk.set_faults(Faults::default());
            assert_eq!((happened.await, later.await), (Ok(Ok(())), Ok(Ok(()))));
            assert_eq!(store.commit(small()).await, Ok(()));
        }
        .boxed_local()
    };
    let cluster = SimCluster::new(&config, start);
    let end = cluster.run(5_000_000, cluster.now().after(Duration::from_secs(60)));
    assert_eq!(end, SimEnd::Finished(Vec::new()));
}
