//! How far the work of a batch is.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, select};
use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use super::vectors::{fake, settings};
use crate::engine::*;
use crate::stages::{Stage, StageProgress};
use crate::timestamp::Timestamp;

/// Nothing is under way any more once a batch has failed.
#[test]
fn failed_batches_end_their_stages() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), move |bench| async move {
        bench.set_embedders(&fake());
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let added = batch(vec![add(Method::Replace, &json!([{"id": 1, "_vectors": {"given": [1, 2, 3]}}]))]);
        let (view, _) = bench.batch(&view, added).await;
        let longer = Batch { settings: Some(Arc::new(settings(false))), ..batch(Vec::new()) };
        let failed = bench.engine.prepare(&view, longer).await;
        assert!(
            matches!(&failed, Err(EngineError::User(error)) if error.code == "invalid_vector_dimensions"),
            "{failed:?}"
        );
        assert_eq!(bench.engine.progress(&view).await.unwrap(), None);
    });
}

/// Prepares and commits a batch; what was seen of its progress, and its stages.
async fn watched(bench: &Bench, view: &IndexView, batch: Batch) -> (IndexView, Vec<StageProgress>, Vec<Stage>) {
    let mut seen = Vec::new();
    let mut work = std::pin::pin!(bench.engine.prepare(view, batch));
    let prepared = loop {
        let progress = std::pin::pin!(bench.engine.progress(view));
        match select(work, progress).await {
            Either::Left((prepared, _)) => break prepared.unwrap(),
            Either::Right((progress, rest)) => {
                seen.extend(progress.unwrap());
                work = rest;
            }
        }
    };
    let stages = prepared.stages.iter().map(|(stage, _)| *stage).collect();
    (bench.engine.commit(prepared, Vec::new()).await.unwrap(), seen, stages)
}

fn check(seen: &[StageProgress], stages: &[Stage]) {
    assert!(stages.is_sorted() && seen.iter().all(|progress| stages.contains(&progress.stage)), "{stages:?}, {seen:?}");
    let order = |progress: &StageProgress| (progress.stage, progress.finished);
    assert!(seen.iter().is_sorted_by_key(order), "{seen:?}");
    assert!(seen.iter().all(|progress| progress.finished <= progress.total), "{seen:?}");
    assert!(seen.iter().any(|progress| progress.stage == Stage::Applying), "{seen:?}");
}

#[test]
fn batches_tell_their_stages() {
    use Stage::{Applying, Cataloging, Embedding, Finishing, Reading};
    // The last one is laid out anew.
    for (cores, config) in [(1, config(Some(1), 0)), (2, config(Some(4), 0)), (2, config(None, 100))] {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        run(&disk, 1, cores, config, move |bench| async move {
            bench.set_embedders(&fake());
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let documents: Vec<Value> = (0..300)
                .map(|id| json!({"id": id, "t": format!("text {id}"), "_vectors": {"given": [1, 2, 3, 4]}}))
                .collect();
            let added = batch(vec![add(Method::Replace, &json!(documents))]);
            let (view, seen, stages) = watched(&bench, &view, added).await;
            assert_eq!(stages, [Reading, Applying, Finishing, Cataloging]);
            check(&seen, &stages);
            assert!(seen.iter().any(|progress| progress.stage == Reading && progress.finished > 0), "{seen:?}");
            let embedded = Batch { settings: Some(Arc::new(settings(false))), ..batch(Vec::new()) };
            let (_, seen, stages) = watched(&bench, &view, embedded).await;
            assert_eq!(stages, [Reading, Applying, Embedding, Finishing, Cataloging]);
            check(&seen, &stages);
        });
    }
}
