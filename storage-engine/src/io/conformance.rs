//! Conformance tests for disk back ends; every back end must pass them.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_lite::future::{block_on, or, yield_now};

use super::glommio::GlommioDisk;
use super::mem::MemDisk;
use super::ring::Ring;
use super::sim::SimDisk;
use super::system::SystemDisk;
use super::{Disk, DiskError, OpenMode};

async fn conform(disk: Rc<dyn Disk>, root: PathBuf) {
    let (folder, path) = (root.join("a/b"), root.join("a/b/file"));
    assert!(!disk.exists(&path).await.expect("it is asked"));
    disk.create_dir_all(&folder).await.expect("it is made");
    disk.create_dir_all(&folder).await.expect("twice is no error");
    let missing = disk.open(&path, OpenMode::Existing).await.map(|_| ()).expect_err("there is none");
    assert!(matches!(missing, DiskError::NotFound { .. }), "{missing}");
    let file = disk.open(&path, OpenMode::CreateNew).await.expect("it is made");
    let exists = disk.open(&path, OpenMode::CreateNew).await.map(|_| ()).expect_err("there is one");
    assert!(matches!(exists, DiskError::Exists { .. }), "{exists}");
    contents(&*file).await;
    disk.sync_dir(&folder).await.expect("it syncs");
    let again = disk.open(&path, OpenMode::OpenOrCreate).await.expect("it opens");
    assert_eq!(again.read_at(0, 5).await.expect("it reads"), b"hello");
    names(&*disk, &root, &path).await;
}

async fn contents(file: &dyn super::DiskFile) {
    assert!(file.is_empty());
    file.write_at(0, b"hello world".to_vec()).await.expect("it writes");
    file.write_at(6, b"there".to_vec()).await.expect("it writes over");
    // A gap reads as zeros.
    file.write_at(10_000, vec![7; 10]).await.expect("it writes far off");
    assert_eq!(file.len(), 10_010);
    assert_eq!(file.read_at(0, 12).await.expect("it reads"), b"hello there\0");
    assert!(file.read_at(10_005, 6).await.is_err(), "past the end");
    assert_eq!(file.read_direct(9_998, 12).await.expect("it reads"), [&[0; 2][..], &[7; 10]].concat());
    assert!(file.read_direct(10_005, 6).await.is_err(), "past the end");
    file.sync().await.expect("it syncs");
    let view = file.view().expect("it maps");
    assert_eq!(&(*view).as_ref()[9_999..10_010], [&[0][..], &[7; 10]].concat());
    file.set_len(20_000).await.expect("it grows");
    assert_eq!(file.read_at(19_999, 1).await.expect("it reads"), [0]);
    file.set_len(5).await.expect("it is cut");
    assert_eq!((file.len(), file.read_at(0, 5).await.expect("it reads")), (5, b"hello".to_vec()));
    assert_eq!(file.read_direct(1, 4).await.expect("it reads"), b"ello");
}

async fn names(disk: &dyn Disk, root: &Path, path: &Path) {
    let other = root.join("a/other");
    disk.rename(path, &other).await.expect("it is renamed");
    assert_eq!(disk.list_dir(&root.join("a")).await.expect("it is listed"), ["b", "other"]);
    assert!(disk.list_dir(&root.join("a/b")).await.expect("it is listed").is_empty());
    let moved = disk.open(&other, OpenMode::Existing).await.expect("it opens");
    assert_eq!(moved.len(), 5);
    disk.remove_file(&other).await.expect("it is removed");
    assert!(matches!(disk.remove_file(&other).await, Err(DiskError::NotFound { .. })));
    disk.remove_dir_all(&root.join("a")).await.expect("it is removed");
    disk.remove_dir_all(&root.join("a")).await.expect("twice is no error");
    assert!(!disk.exists(&root.join("a")).await.expect("it is asked"));
    assert!(matches!(disk.list_dir(&root.join("a")).await, Err(DiskError::NotFound { .. })));
}

#[test]
fn memory_conforms() {
    block_on(conform(Rc::new(MemDisk::new()), PathBuf::from("root")));
}

#[test]
fn the_simulated_disk_conforms() {
    block_on(conform(Rc::new(SimDisk::new()), PathBuf::from("root")));
}

#[test]
fn real_files_without_a_ring_conform() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    block_on(conform(Rc::new(SystemDisk::default()), folder.path().to_path_buf()));
    let folder = tempfile::tempdir_in(".").expect("a temporary folder");
    block_on(conform(Rc::new(SystemDisk::default()), PathBuf::from(folder.path().file_name().expect("it has a name"))));
}

#[test]
fn real_files_over_a_ring_conform() {
    let disk = SystemDisk::over(Ring::new().expect("a ring"));
    let driver = disk.driver().expect("the ring is its driver");
    let folder = tempfile::tempdir_in(".").expect("a temporary folder");
    let turning = async {
        loop {
            driver.turn();
            yield_now().await;
        }
    };
    block_on(or(conform(Rc::new(disk), folder.path().to_path_buf()), turning));
}

#[test]
fn real_files_of_glommio_conform() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().to_path_buf();
    let executor = glommio::LocalExecutorBuilder::default().spawn(|| conform(Rc::new(GlommioDisk), root));
    executor.expect("an executor starts").join().expect("the checks pass");
}

#[test]
fn relative_names_conform_with_glommio() {
    let folder = tempfile::tempdir_in(".").expect("a temporary folder");
    let root = PathBuf::from(folder.path().file_name().expect("it has a name"));
    let executor = glommio::LocalExecutorBuilder::default().spawn(|| conform(Rc::new(GlommioDisk), root));
    executor.expect("an executor starts").join().expect("the checks pass");
}
