//! Where the bytes of page stores go: `cargo run --release -p storage-engine --example store_usage -- FILE...`.
//!
//! Opening a store may write to it: give it the files of a server that has ended, or copies.

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use glommio::LocalExecutorBuilder;
use storage_engine::io::glommio::GlommioDisk;
use storage_engine::{PageStore, StoreOptions, TREES_MAX, TreeId};

async fn print_usage(path: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let options = StoreOptions { create: false, at_most_epoch: None };
    let store = PageStore::open(Rc::new(GlommioDisk), &path, options).await?;
    let (file, used) = (store.file_bytes(), store.used_bytes());
    println!("{}: epoch {}, file {:.2} MB, used {:.2} MB", path.display(), store.epoch(), mb(file), mb(used));
    println!(
        "{:>4} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9} {:>9} {:>6}",
        "tree", "entries", "pages MB", "keys MB", "vals MB", "leaves", "branches", "in runs", "fill"
    );
    let snapshot = store.snapshot();
    for tree in (0..TREES_MAX).map(|at| TreeId(at as u8)) {
        let usage = snapshot.usage(tree)?;
        if usage.entries == 0 {
            continue;
        }
        println!(
            "{:>4} {:>9} {:>9.2} {:>8.2} {:>8.2} {:>9} {:>9} {:>9} {:>5.1}%",
            tree.0,
            usage.entries,
            mb(usage.page_bytes()),
            mb(usage.key_bytes),
            mb(usage.value_bytes),
            usage.leaf_pages,
            usage.branch_pages,
            usage.run_values,
            usage.leaf_bytes as f64 / (usage.leaf_pages * 4096) as f64 * 100.0
        );
    }
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn main() -> ExitCode {
    let mut failed = false;
    for path in std::env::args().skip(1).map(PathBuf::from) {
        let printed = LocalExecutorBuilder::default()
            .spawn(move || async move { print_usage(path).await.map_err(|error| error.to_string()) });
        match printed.map_err(|error| error.to_string()).and_then(|it| it.join().map_err(|error| error.to_string())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
