//! Batches that fail in one partition while others are at work on them, and the batches after those.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use futures_lite::future::zip;
use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::sim::{Faults, SimDisk};

use super::harness::*;
use super::vectors::{fake, settings, stored};
use crate::engine::*;
use crate::ids::LocalDocId;
use crate::partition::reader::PartitionReader;
use crate::settings::Settings;
use crate::timestamp::Timestamp;

type Documents = BTreeMap<u32, Value>;

fn only(embedder: &str) -> Settings {
    let mut settings = settings(false);
    settings.embedders.retain(|name, _| name == embedder);
    settings
}

/// Documents whose vectors tell which batch they are of.
fn of_batch(number: u32, ids: impl IntoIterator<Item = u32>) -> Documents {
    let document = |id: u32| {
        let vectors =
            json!({"given": {"embeddings": [[f64::from(number), f64::from(id), 1.0, 2.0]], "regenerate": false}});
        (id, json!({"id": id, "text": format!("batch {number} document {id}"), "_vectors": vectors}))
    };
    ids.into_iter().map(document).collect()
}

fn replace(documents: &Documents) -> Batch {
    batch(vec![add(Method::Replace, &json!(documents.values().collect::<Vec<_>>()))])
}

/// Reads beside a batch that fails.
const READS: usize = 40;

/// Readers of all partitions at one epoch, as searches under way hold them, and what they read at first.
struct Held(Vec<(Rc<PartitionReader>, Vec<Vec<u8>>)>);

impl Held {
    fn new(bench: &Bench, view: &IndexView) -> Self {
        let readers = view.owners().map(|(partition, _)| bench.reader(view, partition));
        Self(readers.map(|reader| (reader.clone(), Self::records(&reader))).collect())
    }

    fn records(reader: &PartitionReader) -> Vec<Vec<u8>> {
        let record = |doc| {
            let mut text = Vec::new();
            let document = reader.raw_document(LocalDocId(doc)).unwrap().unwrap();
            document.write_json(reader.fields(), &mut text);
            text
        };
        reader.documents().iter().map(record).collect()
    }

    fn check(&self) {
        self.0.iter().for_each(|(reader, records)| assert_eq!(Self::records(reader), *records));
    }
}

/// A batch under faults, which end with it, beside requests that read; then batches that must not find anything of it, unless it succeeded. Tells whether
/// it did.
fn goes_on_after(faults: Faults, seed: u64) -> bool {
    let disk = SimDisk::new();
    let shared: Rc<dyn Disk> = Rc::new(disk.clone());
    let (committed, documents) = run(&shared, seed, 3, config(Some(3), 0), move |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let first = Batch { settings: Some(Arc::new(only("given"))), ..batch(Vec::new()) };
        let (view, _) = bench.batch(&view, first).await;
        let mut documents = of_batch(1, 0..12);
        let (mut view, _) = bench.batch(&view, replace(&documents)).await;
        disk.set_delays(seed);
        let held = Held::new(&bench, &view);
        let next = of_batch(2, 0..20);
        disk.set_faults(faults);
        let failing = async {
            match bench.engine.prepare(&view, replace(&next)).await {
                Ok(prepared) => bench.engine.commit(prepared, Vec::new()).await,
                Err(error) => Err(error),
            }
        };
        let reading = async {
            for _ in 0..READS {
                assert_eq!(bench.documents(&view).await.len(), documents.len(), "{faults:?} seed {seed}");
            }
        };
        let (done, ()) = zip(failing, reading).await;
        disk.set_faults(Faults::default());
        let committed = done.is_ok();
        if let Ok(after) = done {
            documents.extend(next);
            view = after;
        }
        assert_eq!(stored(&bench, &view).await, documents, "{faults:?} seed {seed}");
        // The first one has something to do in partition 0 alone.
        for next in [of_batch(3, [0]), of_batch(4, 5..15)] {
            (view, _) = bench.batch(&view, replace(&next)).await;
            documents.extend(next);
            assert_eq!(stored(&bench, &view).await, documents, "{faults:?} seed {seed}");
            held.check();
        }
        (committed, documents)
    });
    run(&shared, seed, 3, config(Some(3), 0), move |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!(stored(&bench, &view).await, documents, "{faults:?} seed {seed}");
    });
    committed
}

/// A sync that fails in one partition once left the others at work: the batch was taken back under them, what they made durable
/// afterwards was built upon, vectors of the failed batch were published by the next one, and that met open transactions.
#[test]
fn a_batch_that_fails_in_one_partition_leaves_nothing_behind() {
    for seed in 0..6 {
        let mut number = 0;
        while !goes_on_after(Faults { failing_sync: Some(number), ..Faults::default() }, seed) {
            number += 1;
        }
        assert!(number > 8, "preparing and committing were both met");
    }
}

/// When the disk fails for a while, a batch cannot be taken back at once; the next one must do that first.
#[test]
fn a_batch_is_taken_back_later_when_that_fails_at_first() {
    let mut number = 0;
    while !goes_on_after(Faults { cut_before: Some(number), ..Faults::default() }, number) {
        number += 3;
    }
    assert!(number > 20, "the faults came in the middle");
}

/// The vectors of one document are refused by its partition while the others still take theirs: the next batch must not meet
/// their transactions.
#[test]
fn a_refused_document_does_not_fail_the_next_batch() {
    for seed in 0..8 {
        let disk: Rc<dyn Disk> = Rc::new(SimDisk::new());
        run(&disk, seed, 3, config(Some(3), 0), move |bench| async move {
            bench.set_embedders(&fake());
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let first = Batch { settings: Some(Arc::new(only("made"))), ..batch(Vec::new()) };
            let (view, _) = bench.batch(&view, first).await;
            let texts = |wrong: u32| {
                let text = |id: u32| if id == wrong { "wrong".to_owned() } else { format!("text {id}") };
                let documents: Vec<Value> = (0..60).map(|id| json!({"id": id, "t": text(id)})).collect();
                batch(vec![add(Method::Replace, &json!(documents))])
            };
            let refused = bench.engine.prepare(&view, texts(seed as u32 % 3)).await.map(drop);
            assert!(matches!(refused, Err(EngineError::User(error)) if error.code == "vector_embedding_error"));
            let (view, _) = bench.batch(&view, texts(u32::MAX)).await;
            assert_eq!((view.documents, view.vectors.embeddings), (60, 60), "seed {seed}");
        });
    }
}

/// The key of an addition that was refused for its vectors was once kept by the batch, and its names with it.
#[test]
fn a_refused_addition_leaves_no_primary_key() {
    let disk: Rc<dyn Disk> = Rc::new(SimDisk::new());
    run(&disk, 1, 1, config(None, 10), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let first = Batch { settings: Some(Arc::new(only("given"))), ..batch(Vec::new()) };
        let (view, _) = bench.batch(&view, first).await;
        let names = view.fields.len();
        let without_vectors = add(Method::Replace, &json!([{"bookId": 1, "title": "x"}]));
        let (view, outcomes) = bench.batch(&view, batch(vec![without_vectors, BatchOp::Clear])).await;
        assert_eq!(outcomes, [Err("vector_embedding_error"), Ok(OpOutcome::default())]);
        assert_eq!((view.primary_key.as_deref(), view.fields.len()), (None, names));
        let other_key = add(Method::Replace, &json!([{"id": 1, "_vectors": {"given": [1, 2, 3, 4]}}]));
        let (view, outcomes) = bench.batch(&view, batch(vec![other_key])).await;
        assert_eq!((outcomes[0], view.primary_key.as_deref()), (Ok(OpOutcome { documents: 1, named: 1 }), Some("id")));
    });
}

/// A full disk that was met elsewhere, or by a compaction, once became a task that failed with `internal`.
#[test]
fn a_full_disk_stays_one_wherever_it_was_met() {
    use crate::partition::PartitionError;
    use storage_engine::{CommitError, CompactError, DiskError, OpenError};
    let full = || DiskError::NoSpace { path: "p.store".into() };
    for error in [
        PartitionError::Compact(full().into()),
        PartitionError::Compact(CommitError::from(full()).into()),
        PartitionError::Compact(OpenError::from(full()).into()),
        PartitionError::Elsewhere(Box::new(EngineError::NoSpace)),
    ] {
        assert!(matches!(EngineError::from(error), EngineError::NoSpace));
    }
    let busy = CompactError::from(DiskError::TooManyFiles { path: "p.store".into() });
    assert!(matches!(EngineError::from(PartitionError::Compact(busy)), EngineError::TooManyFiles));
}
