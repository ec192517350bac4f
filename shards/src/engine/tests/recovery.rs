//! Crashes between the steps of a commit, and states that are asked for too late.

use std::rc::Rc;

use serde_json::json;
use storage_engine::io::OpenMode;
use storage_engine::io::mem::MemDisk;
use storage_engine::io::sim::{Faults, SimDisk};
use storage_engine::{Disk, PageStore, StoreOptions};

use super::harness::*;
use crate::engine::messages::{PartitionQuestion, Place};
use crate::engine::*;
use crate::ids::PartitionNo;
use crate::partition::trees::META;
use crate::timestamp::Timestamp;

fn numbered(count: u32, word: &str) -> BatchOp {
    let documents: Vec<_> = (0..count).map(|id| json!({"id": id, "text": format!("{word} {id}")})).collect();
    add(Method::Replace, &json!(documents))
}

/// Prepares a batch, and makes it durable in some of its partitions.
async fn commit_in(bench: &Bench, view: &IndexView, layout: u32, partitions: &[u16]) -> Prepared {
    let prepared = bench.engine.prepare(view, batch(vec![numbered(20, "new")])).await.unwrap();
    for number in partitions {
        let place = Place { index: INDEX, layout, partition: PartitionNo(*number) };
        let answer = bench.engine.ask_partition(place, PartitionQuestion::Commit(prepared.epoch)).await;
        assert!(matches!(answer, Ok(Answer::Done)));
    }
    prepared
}

/// Partition 1 made its state durable, partition 0 did not: the commit never happened, and the epoch can be used again.
#[test]
fn a_crash_before_the_commit_of_partition_0_loses_the_whole_batch() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(3), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (view, _) = bench.batch(&view, batch(vec![numbered(10, "old")])).await;
        commit_in(&bench, &view, view.layout, &[1]).await;
    });
    run(&disk, 2, 2, config(Some(3), 0), |bench| async move {
        let (view, record) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!(record, Some(Vec::new()));
        assert_eq!(bench.documents(&view).await.len(), 10);
        assert!(!bench.postings(&view).contains_key("new"));
        let prepared = bench.engine.prepare(&view, batch(vec![numbered(30, "newer")])).await.unwrap();
        let view = bench.engine.commit(prepared, b"record".to_vec()).await.unwrap();
        assert_eq!(bench.documents(&view).await.len(), 30);
    });
    run(&disk, 3, 2, config(Some(3), 0), |bench| async move {
        let (view, record) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!((view.documents, record), (30, Some(b"record".to_vec())));
        assert_eq!(bench.postings(&view)["newer"].len(), 30);
    });
}

/// The file of partition 0 says whether a batch is committed: as long as it says so, the others keep what they have of it. They were
/// once taken back before it was known that partition 0 could be.
#[test]
fn what_partition_0_keeps_the_others_keep() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let renamed = disk.clone();
    run(&disk, 1, 2, config(Some(3), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (view, _) = bench.batch(&view, batch(vec![numbered(10, "old")])).await;
        let prepared = commit_in(&bench, &view, view.layout, &[1, 2, 0]).await;
        let first = Place { index: INDEX, layout: view.layout, partition: PartitionNo(0) }.file(&config(None, 0).root);
        let away = first.with_extension("away");
        renamed.rename(&first, &away).await.unwrap();
        bench.engine.abort(prepared).await;
        renamed.rename(&away, &first).await.unwrap();
    });
    run(&disk, 2, 2, config(Some(3), 0), |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!((view.documents, bench.postings(&view)["new"].len()), (20, 20));
    });
}

/// A layout whose commit failed at the very end can be whole on the disk. Once it was taken back, a power cut could bring it back
/// instead of what was committed since.
#[test]
fn a_layout_that_was_taken_back_does_not_return() {
    for seed in 0..4 {
        let disk = SimDisk::new();
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        run(&shared, seed, 2, config(None, 10), |bench| async move {
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let (view, _) = bench.batch(&view, batch(vec![numbered(10, "old")])).await;
            let prepared = commit_in(&bench, &view, view.layout + 1, &[1, 0]).await;
            bench.engine.abort(prepared).await;
            let (view, _) = bench.batch(&view, batch(vec![numbered(5, "newer")])).await;
            assert_eq!(view.layout, 0);
        });
        let after: Rc<dyn Disk> = Rc::new(disk.after_power_cut(seed));
        run(&after, seed, 2, config(None, 10), |bench| async move {
            let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
            assert_eq!((view.layout, view.documents, bench.postings(&view)["newer"].len()), (0, 10, 5));
        });
    }
}

/// The files of an older layout were once removed before it was known whether the newest could be opened.
#[test]
fn a_layout_that_cannot_be_opened_leaves_the_others() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        bench.batch(&view, batch(vec![numbered(10, "old")])).await;
    });
    let [healthy, alone] = [0, 1].map(|layout| Place { index: INDEX, layout, partition: PartitionNo(0) });
    let root = config(None, 0).root;
    futures_lite::future::block_on(async {
        let from = disk.open(&healthy.file(&root), OpenMode::Existing).await.unwrap();
        disk.create_dir_all(&alone.folder(&root)).await.unwrap();
        let to = disk.open(&alone.file(&root), OpenMode::CreateNew).await.unwrap();
        to.write_at(0, from.read_at(0, from.len() as usize).await.unwrap()).await.unwrap();
    });
    run(&disk, 2, 2, config(Some(2), 0), |bench| async move {
        assert!(bench.engine.open_index(INDEX).await.is_err(), "a partition is missing");
    });
    futures_lite::future::block_on(disk.remove_dir_all(&alone.folder(&root))).unwrap();
    run(&disk, 3, 2, config(Some(2), 0), |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!(bench.documents(&view).await.len(), 10);
    });
}

/// What is damaged, or of another version, was once told without the file, and with the same words for both.
#[test]
fn a_catalog_that_cannot_be_read_is_told_with_its_file_and_what_to_do() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 100), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        bench.batch(&view, batch(vec![numbered(3, "old")])).await;
    });
    let file = Place { index: INDEX, layout: 0, partition: PartitionNo(0) }.file(&config(None, 0).root);
    let put = |key: &'static [u8], value: &'static [u8]| {
        let (disk, file) = (disk.clone(), file.clone());
        futures_lite::future::block_on(async move {
            let store = PageStore::open(disk, &file, StoreOptions::default()).await.unwrap();
            let mut txn = store.begin_write().unwrap();
            txn.put(META, key, value).unwrap();
            txn.commit(store.snapshot().epoch() + 1).await.unwrap();
        });
    };
    let told = || {
        run(&disk, 2, 1, config(None, 100), |bench| async move {
            let error = bench.engine.open_index(INDEX).await.map(|_| ()).unwrap_err();
            error.to_string()
        })
    };
    let begin = format!("storage: {}: the catalog of the index ", file.display());
    put(b"settings", b"[");
    let restore = "restore the index from a dump or a replica";
    assert_eq!(told(), format!("{begin}is damaged (its settings cannot be read); {restore}"));
    // A later version may have changed all but the number of its version.
    put(b"catalog", br#"{"version": 3, "sums": "elsewhere"}"#);
    let version = "has format version 3, this program reads version 1; start the version of the program that wrote it, or start anew \
                   with a dump that it makes";
    assert_eq!(told(), format!("{begin}{version}"));
    put(b"catalog", b"{}");
    assert_eq!(told(), format!("{begin}is damaged (its head cannot be read); {restore}"));
}

/// The new files of an index that is being spread must not be taken for the index before they are complete.
#[test]
fn a_crash_while_an_index_is_spread_leaves_the_old_layout() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(None, 10), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (view, _) = bench.batch(&view, batch(vec![numbered(10, "old")])).await;
        commit_in(&bench, &view, view.layout + 1, &[1]).await;
    });
    run(&disk, 2, 2, config(None, 10), |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!((view.documents, view.layout, view.partition_count()), (10, 0, 1));
        let (view, _) = bench.batch(&view, batch(vec![numbered(20, "new")])).await;
        assert_eq!((view.documents, view.layout, view.partition_count()), (20, 1, 2));
        assert_eq!(bench.postings(&view)["new"].len(), 20);
    });
    run(&disk, 3, 1, config(None, 10), |bench| async move {
        // Fewer cores than partitions: one core owns both.
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!((view.documents, view.partition_count()), (20, 2));
        assert_eq!(bench.documents(&view).await.len(), 20);
    });
}

/// A request that began with an older state is answered from it, whatever has been committed in the meantime.
#[test]
fn readers_keep_their_epoch_while_batches_are_committed() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (old, _) = bench.batch(&view, batch(vec![numbered(4, "old")])).await;
        let (new, _) = bench.batch(&old, batch(vec![BatchOp::Clear, numbered(3, "new")])).await;
        assert_eq!((bench.documents(&old).await.len(), bench.documents(&new).await.len()), (4, 3));
        let mut latest = new;
        for _ in 0..100 {
            (latest, _) = bench.batch(&latest, batch(vec![numbered(3, "newer")])).await;
        }
        // Far too many epochs later the old one is gone, and the newest answers.
        assert_eq!(bench.documents(&old).await.len(), 3);
    });
}

/// The numbers of deleted documents are used again, smallest first, in the order of the payload.
#[test]
fn freed_numbers_are_used_again() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 10), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (view, _) = bench.batch(&view, batch(vec![numbered(5, "w")])).await;
        let ids = |ids: &[&str]| BatchOp::DeleteIds(ids.iter().collect());
        let (view, _) = bench.batch(&view, batch(vec![ids(&["1", "3", "77"])])).await;
        let more = add(Method::Replace, &json!([{"id": "x"}, {"id": "y"}, {"id": "z"}]));
        let (view, outcomes) = bench.batch(&view, batch(vec![more, ids(&[""])])).await;
        assert_eq!(outcomes[1], Err("internal"));
        let order: Vec<_> = bench.documents(&view).await.iter().map(|document| document["id"].clone()).collect();
        assert_eq!(order, [json!(0), json!("x"), json!(2), json!("y"), json!(4), json!("z")]);
    });
}

#[test]
fn primary_keys_are_inferred_once_and_kept() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 10), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let failing = add(Method::Replace, &json!([{"bookId": 1, "new": 1}, {"bookId": null}]));
        let (view, outcomes) = bench.batch(&view, batch(vec![failing])).await;
        // The names go, the key stays: an addition behind this one in the batch would have it.
        assert_eq!(outcomes[0], Err("invalid_document_id"));
        assert_eq!((view.primary_key.as_deref(), view.fields.len()), (Some("bookId"), 1));
        let (view, _) =
            bench.batch(&view, batch(vec![add(Method::Replace, &json!([{"bookId": 1}])), BatchOp::Clear])).await;
        assert_eq!((view.primary_key.as_deref(), view.documents), (Some("bookId"), 0));
        let mut other = add(Method::Replace, &json!([{"id": 1}]));
        if let BatchOp::Add { primary_key, .. } = &mut other {
            *primary_key = Some("id".into());
        }
        let (view, outcomes) = bench.batch(&view, batch(vec![other, add(Method::Replace, &json!([{"id": 1}]))])).await;
        assert_eq!(outcomes[0], Err("index_primary_key_already_exists"));
        assert_eq!(outcomes[1], Err("missing_document_id"));
        let change = Batch { primary_key: Some(Some("id".into())), ..batch(Vec::new()) };
        let (view, _) = bench.batch(&view, change).await;
        assert_eq!(view.primary_key.as_deref(), Some("id"));
    });
}

/// A file that was compacted has no state before its newest: one that is not committed once became the only one.
#[test]
fn a_compaction_first_takes_back_what_was_not_committed() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(3), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (view, _) = bench.batch(&view, batch(vec![numbered(10, "old")])).await;
        commit_in(&bench, &view, view.layout, &[1]).await;
        bench.engine.compact(&view).await.unwrap();
        assert_eq!(bench.documents(&view).await.len(), 10);
        let (view, _) = bench.batch(&view, batch(vec![numbered(5, "newer")])).await;
        assert_eq!((bench.documents(&view).await.len(), bench.postings(&view)["newer"].len()), (10, 5));
    });
    run(&disk, 2, 2, config(Some(3), 0), |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!((bench.documents(&view).await.len(), bench.postings(&view)["newer"].len()), (10, 5));
    });
}

/// The old file's bytes are given back when nobody reads it any more; published epochs once read it until two more came.
#[test]
fn a_compacted_file_is_let_go_of() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), |bench| async move {
        let mut view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let mut old = Vec::new();
        for round in ["a", "b", "c"] {
            view = bench.batch(&view, batch(vec![numbered(50, round)])).await.0;
            old.extend((0..2).map(|number| Rc::downgrade(&bench.reader(&view, PartitionNo(number)))));
        }
        bench.engine.compact(&view).await.unwrap();
        while old.iter().any(|reader| reader.strong_count() > 0) {
            futures_lite::future::yield_now().await;
        }
        assert_eq!((bench.documents(&view).await.len(), bench.postings(&view)["c"].len()), (50, 50));
    });
}

/// A compaction that failed after its file was written once failed the next batch, too.
#[test]
fn a_failed_compaction_does_not_fail_the_next_batch() {
    let mut number = 0;
    loop {
        let disk = SimDisk::new();
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let failed = run(&shared, number, 2, config(Some(2), 0), move |bench| async move {
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let (view, _) = bench.batch(&view, batch(vec![numbered(20, "old")])).await;
            disk.set_faults(Faults { cut_before: Some(number), ..Faults::default() });
            let failed = bench.engine.compact(&view).await.is_err();
            disk.set_faults(Faults::default());
            let (view, _) = bench.batch(&view, batch(vec![numbered(5, "newer")])).await;
            assert_eq!((bench.documents(&view).await.len(), bench.postings(&view)["newer"].len()), (20, 5));
            failed
        });
        run(&shared, number, 2, config(Some(2), 0), |bench| async move {
            let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
            assert_eq!((bench.documents(&view).await.len(), bench.postings(&view)["newer"].len()), (20, 5));
        });
        if !failed {
            break;
        }
        number += 1;
    }
    assert!(number > 10, "faults came in the middle");
}
