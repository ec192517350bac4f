//! Opens any bytes as a page store and reads and writes whatever can be read: errors are fine, panics are not.
//!
//! The input is a list of patches to a sound file, so that the fuzzer need not find the checksums of the meta pages itself:
//! offset (u16, in units of 8 bytes), then 8 bytes to put there.
#![no_main]

use std::path::Path;
use std::rc::Rc;
use std::sync::OnceLock;

use futures_lite::future::block_on;
use libfuzzer_sys::fuzz_target;
use storage_engine::io::mem::MemDisk;
use storage_engine::{Disk, OpenMode, PageStore, ReadTree, StoreOptions, TreeId};

const PATH: &str = "store";
const TREE: TreeId = TreeId(0);

async fn open(disk: &MemDisk) -> Option<PageStore> {
    let disk: Rc<dyn Disk> = Rc::new(disk.clone());
    PageStore::open(disk, Path::new(PATH), StoreOptions { create: true, at_most_epoch: None }).await.ok()
}

fn sound_file() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let disk = MemDisk::new();
        block_on(async {
            let store = open(&disk).await.expect("a new store opens");
            for epoch in 1..4u64 {
                let mut txn = store.begin_write().expect("the only one");
                for number in 0..200u64 {
                    let len = if number % 50 == 0 { 5000 } else { number as usize % 90 };
                    txn.put(TREE, &(number * epoch).to_be_bytes(), &vec![epoch as u8; len]).expect("it is put");
                }
                txn.commit(epoch).await.expect("it commits");
            }
            let file = disk.open(Path::new(PATH), OpenMode::Existing).await.expect("it is there");
            file.read_at(0, file.len() as usize).await.expect("it can be read")
        })
    })
}

fuzz_target!(|patches: &[u8]| {
    let mut bytes = sound_file().to_vec();
    for patch in patches.chunks_exact(10) {
        let at = usize::from(u16::from_le_bytes([patch[0], patch[1]])) * 8;
        if let Some(place) = bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&patch[2..]);
        }
    }
    let disk = MemDisk::new();
    block_on(async {
        let file = disk.open(Path::new(PATH), OpenMode::CreateNew).await.expect("it is new");
        file.write_at(0, bytes).await.expect("it is written");
        let Some(store) = open(&disk).await else { return };
        let snapshot = store.snapshot();
        let mut cursor = snapshot.cursor(TREE);
        while let Ok(Some(_)) = cursor.next() {}
        while let Ok(Some(_)) = cursor.prev() {}
        let Ok(mut txn) = store.begin_write() else { return };
        for number in 0..300u64 {
            let _ = txn.put(TREE, &number.to_be_bytes(), &[1; 20]);
            let _ = txn.delete(TREE, &(number * 2).to_be_bytes());
        }
        let _ = txn.clear(TREE).await;
        let _ = txn.commit(10).await;
    });
});
