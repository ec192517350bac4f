//! How fast the page store is on a real file: `cargo bench -p storage-engine --bench store [folder]`.
//!
//! Prints the time of one operation, the median of several rounds; the machine's drift is larger than small differences.

use std::hint::black_box;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use glommio::LocalExecutorBuilder;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use storage_engine::io::glommio::GlommioDisk;
use storage_engine::{Disk, PageStore, ReadTree, StoreOptions, TreeId};

const ENTRIES: u32 = 400_000;
const ROUNDS: usize = 5;
const TREE: TreeId = TreeId(0);

fn key(number: u32) -> [u8; 12] {
    let mut key = *b"term....\0\0\0\0";
    key[4..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn report(name: &str, operations: usize, mut seconds: Vec<f64>) {
    seconds.sort_by(f64::total_cmp);
    let each = seconds[seconds.len() / 2] / operations as f64;
    println!("{name:32} {:10.0} ns  {:12.0} a second", each * 1e9, 1.0 / each);
}

async fn fresh(folder: &std::path::Path, name: &str) -> PageStore {
    let disk: Rc<dyn Disk> = Rc::new(GlommioDisk);
    let path = folder.join(name);
    if disk.exists(&path).await.expect("the folder can be read") {
        disk.remove_file(&path).await.expect("the old file can be removed");
    }
    PageStore::open(disk, &path, StoreOptions { create: true, at_most_epoch: None }).await.expect("it opens")
}

async fn bench(folder: PathBuf) {
    let mut order: Vec<u32> = (0..ENTRIES).collect();
    let mut rng = StdRng::seed_from_u64(1);
    let (mut ascending, mut random, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    let mut store = fresh(&folder, "ascending").await;
    for _ in 0..ROUNDS {
        store = fresh(&folder, "ascending").await;
        let mut txn = store.begin_write().expect("the first");
        let began = Instant::now();
        for number in 0..ENTRIES {
            txn.put(TREE, &key(number), &[7; 60]).expect("it is put");
        }
        ascending.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        txn.commit(1).await.expect("it commits");
        commits.push(began.elapsed().as_secs_f64());
    }
    report("put, ascending", ENTRIES as usize, ascending);
    report("commit of all, per entry", ENTRIES as usize, commits);
    println!(
        "{:32} {:10.1} bytes an entry (76 of them key and value)",
        "file",
        store.used_bytes() as f64 / f64::from(ENTRIES)
    );
    for round in 0..ROUNDS {
        order.shuffle(&mut rng);
        let other = fresh(&folder, "random").await;
        let mut txn = other.begin_write().expect("the first");
        let began = Instant::now();
        for number in &order {
            txn.put(TREE, &key(*number), &[round as u8; 60]).expect("it is put");
        }
        random.push(began.elapsed().as_secs_f64());
    }
    report("put, random", ENTRIES as usize, random);
    let snapshot = store.snapshot();
    let (mut gets, mut walks) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for number in &order {
            black_box(snapshot.get(TREE, &key(*number)).expect("nothing is damaged"));
        }
        gets.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        let mut cursor = snapshot.cursor(TREE);
        while let Some(entry) = cursor.next().expect("nothing is damaged") {
            black_box(entry);
        }
        walks.push(began.elapsed().as_secs_f64());
    }
    report("get, random", ENTRIES as usize, gets);
    report("cursor, per entry", ENTRIES as usize, walks);
    drop(snapshot);
    let mut small = Vec::new();
    for epoch in 2..102 {
        let mut txn = store.begin_write().expect("the last one ended");
        let began = Instant::now();
        for _ in 0..30 {
            txn.put(TREE, &key(rng.random_range(0..ENTRIES)), &[9; 61]).expect("it is put");
        }
        txn.commit(epoch).await.expect("it commits");
        small.push(began.elapsed().as_secs_f64());
    }
    report("commit of 30 scattered entries", 1, small);
}

fn main() {
    let folder = std::env::args().skip(1).find(|word| !word.starts_with("--"));
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from).join("page-store-bench");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let executor = LocalExecutorBuilder::default().spawn({
        let folder = folder.clone();
        move || bench(folder)
    });
    executor.expect("an executor starts").join().expect("the bench ends");
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}
