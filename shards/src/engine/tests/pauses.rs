//! Long work of a batch gives way to other tasks of its core.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::json;
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use crate::engine::*;
use crate::ids::{DocId, LocalDocId, PartitionNo};
use crate::index::{Catalog, Draft};
use crate::partition::terms::{TermNo, Terms};
use crate::partition::words::{DocumentWords, WordReader};
use crate::text::TextTokenizer;
use crate::timestamp::Timestamp;

/// How often a future waits before it ends.
pub async fn pauses<T>(work: impl Future<Output = T>) -> (T, u32) {
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

/// Cutting a text of megabytes takes up to seconds, which the core must not spend; what is found in it stays the same.
#[test]
fn long_documents_are_cut_aside_or_in_steps() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 10_000), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let words: Vec<String> = (0..30_000).map(|number| format!("w{}", number % 9_000)).collect();
        // Accents take longer than ASCII, and are cut in steps.
        let shorter = words[..3_000].join(" ");
        let documents = json!([
            {"id": 1, "text": "red w7 fox"},
            {"id": 2, "text": format!("{} fox", words.join(" "))},
            {"id": 3, "text": shorter},
            {"id": 4, "text": [format!("{shorter} é"), null, 12.50, true, {"b": "naïve café. Straße"}, "a; b"], "c": {"d": "été"}}
        ]);
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &documents)])).await;
        let found = bench.postings(&view);
        let positions =
            |word: &str, doc: u32| -> Vec<u16> { found[word][&doc].iter().map(|(_, position)| *position).collect() };
        assert_eq!((positions("w7", 0), positions("fox", 0)), (vec![1], vec![2]));
        assert_eq!((positions("w7", 1), positions("fox", 1)), (vec![7, 9_007, 18_007, 27_007], vec![30_000]));
        let reader = bench.reader(&view, PartitionNo(0));
        let (runtime, settings, mut terms) = (bench.engine.runtime.clone(), view.settings.clone(), Terms::default());
        let mut cutter = WordReader::new(settings.clone(), Arc::new(TextTokenizer::new(&settings)));
        // Whether the third pauses is left to whether others wait at its two values.
        for (doc, is_long) in [(0u32, Some(false)), (1, Some(true)), (2, None), (3, Some(true))] {
            let record = reader.record(LocalDocId(doc)).unwrap().unwrap();
            let mut aside = DocumentWords::default();
            let cut = cutter.read_aside(&*runtime, &view.fields, record, &mut terms, &mut aside);
            let (done, paused) = pauses(cut).await;
            done.unwrap();
            assert!(is_long.is_none_or(|is_long| is_long == (paused > 0)), "{doc}");
            let mut here = DocumentWords::default();
            cutter.read(&view.fields, record, &mut terms, &mut here).unwrap();
            let lists = |words: &DocumentWords| -> Vec<_> {
                let of_term = |(term, range, tolerant): &(TermNo, Range<u32>, bool)| {
                    (*term, words.list(range).to_vec(), *tolerant)
                };
                words.terms.iter().map(of_term).collect()
            };
            assert!(lists(&aside) == lists(&here) && aside.counts == here.counts);
        }
    });
}
