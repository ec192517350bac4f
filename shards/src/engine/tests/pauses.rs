//! Long work of a batch gives way to other tasks of its core.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use serde_json::json;
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use crate::engine::*;
use crate::ids::{DocId, PartitionNo};
use crate::index::{Catalog, Draft};
use crate::timestamp::Timestamp;

/// How often a future waits before it ends.
async fn pauses<T>(work: impl Future<Output = T>) -> (T, u32) {
    let mut work = pin!(work);
    let mut count = 0;
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        count += u32::from(polled.is_pending());
        polled.map(|value| (value, count))
    })
    .await
}

/// A filter may choose all documents: deleting them in one step holds the core for tenths of a second.
#[test]
fn deleting_chosen_documents_gives_way() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 10_000), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let documents: Vec<_> = (0..400).map(|id| json!({"id": id})).collect();
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &json!(documents))])).await;
        let snapshot = bench.reader(&view, PartitionNo(0)).snapshot().clone();
        let catalog = Catalog::load(&snapshot).unwrap().unwrap();
        let runtime = bench.engine.runtime.clone();
        let mut draft = Draft::new(runtime, snapshot, &catalog, catalog.settings.clone(), &catalog.embedders);
        // In any order.
        let chosen: Vec<_> = (0..400).rev().map(|id: u32| (DocId(id), id.to_string())).collect();
        let (outcome, paused) = pauses(draft.delete_chosen(chosen)).await;
        assert_eq!((outcome.unwrap(), draft.documents()), (OpOutcome { documents: 400, named: 400 }, 0));
        assert!(paused > 20, "{paused}");
    });
}
