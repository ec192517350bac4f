//! Opens any bytes as the only segment of a log: errors are fine, panics are not, and what was opened can be appended to.
#![no_main]

use std::path::Path;
use std::rc::Rc;

use futures_lite::future::block_on;
use libfuzzer_sys::fuzz_target;
use storage_engine::io::mem::MemDisk;
use storage_engine::log::{Log, LogOptions, Position, Visitor};
use storage_engine::{Disk, OpenMode};

/// Counts frames, and wants of each what its first byte says.
#[derive(Default)]
struct Counted(usize);

impl Visitor for Counted {
    fn wanted(&self, head: &[u8]) -> usize {
        head.first().map_or(1, |len| usize::from(*len))
    }

    fn frame(&mut self, position: Position, head: Vec<u8>) {
        assert!(head.len() <= position.len as usize);
        self.0 += 1;
    }
}

fuzz_target!(|bytes: &[u8]| {
    let disk = MemDisk::new();
    block_on(async {
        disk.create_dir_all(Path::new("log")).await.expect("it is made");
        let path = Path::new("log/0000000000000000.log");
        let file = disk.open(path, OpenMode::CreateNew).await.expect("it is new");
        file.write_at(0, bytes.to_vec()).await.expect("it is written");
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let (mut found, mut again) = (Counted::default(), Counted::default());
        let opened = Log::open(shared.clone(), Path::new("log"), LogOptions::default(), &mut found).await;
        let Ok(log) = opened else { return };
        let position = log.append(vec![b"more".to_vec()]).await.expect("it is appended");
        assert_eq!(log.read(position).await.expect("it is there"), b"more");
        Log::open(shared, Path::new("log"), LogOptions::default(), &mut again).await.expect("it opens again");
        assert_eq!(again.0, found.0 + 1);
    });
});
