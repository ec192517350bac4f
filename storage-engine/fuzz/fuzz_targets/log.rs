//! Opens any bytes as the only segment of a log: errors are fine, panics are not, and what was opened can be appended to.
#![no_main]

use std::path::Path;
use std::rc::Rc;

use futures_lite::future::block_on;
use libfuzzer_sys::fuzz_target;
use storage_engine::io::mem::MemDisk;
use storage_engine::log::{Log, LogOptions};
use storage_engine::{Disk, OpenMode};

fuzz_target!(|bytes: &[u8]| {
    let disk = MemDisk::new();
    block_on(async {
        disk.create_dir_all(Path::new("log")).await.expect("it is made");
        let path = Path::new("log/0000000000000000.log");
        let file = disk.open(path, OpenMode::CreateNew).await.expect("it is new");
        file.write_at(0, bytes.to_vec()).await.expect("it is written");
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let Ok((log, found)) = Log::open(shared.clone(), Path::new("log"), LogOptions::default()).await else { return };
        let position = log.append(vec![b"more".to_vec()]).await.expect("it is appended");
        assert_eq!(log.read(position).await.expect("it is there"), b"more");
        let (_, again) = Log::open(shared, Path::new("log"), LogOptions::default()).await.expect("it opens again");
        assert_eq!(again.len(), found.len() + 1);
    });
});
