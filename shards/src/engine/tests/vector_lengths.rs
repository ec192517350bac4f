//! An embedder's dimensions change: documents keep the vectors that they brought until they bring others.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use super::vectors::{fake, settings, stored};
use crate::engine::*;
use crate::search::{PageRequest, SearchRequest, SemanticQuery, SimilarRequest};
use crate::timestamp::Timestamp;

fn of_length(dimensions: usize) -> Batch {
    let mut settings = settings(false);
    settings.embedders.remove("made");
    settings.embedders.get_mut("given").unwrap()["dimensions"] = dimensions.into();
    Batch { settings: Some(Arc::new(settings)), ..batch(Vec::new()) }
}

fn put(documents: Value) -> Batch {
    batch(vec![add(Method::Update, &documents)])
}

fn ids(hits: &[u8]) -> Vec<u64> {
    let hits: Vec<Value> = serde_json::from_slice(hits).unwrap();
    hits.iter().map(|hit| hit["id"].as_u64().unwrap()).collect()
}

async fn near(bench: &Bench, view: &IndexView, vector: &[f32]) -> Vec<u64> {
    let request = SearchRequest {
        page: PageRequest::Window { offset: 0, limit: 3 },
        semantic: Some(SemanticQuery {
            embedder: "given".into(),
            ratio: 1.0,
            vector: Some(vector.into()),
            media: None,
        }),
        ..SearchRequest::default()
    };
    ids(&bench.engine.search(view, request).await.unwrap().hits)
}

async fn similar(bench: &Bench, view: &IndexView, id: u32) -> Vec<u64> {
    let request = SimilarRequest {
        id: id.to_string(),
        embedder: "given".into(),
        offset: 0,
        limit: 3,
        filter: None,
        attributes_to_retrieve: None,
        retrieve_vectors: false,
        show_ranking_score: false,
        show_ranking_score_details: false,
        ranking_score_threshold: None,
    };
    ids(&bench.engine.similar(view, request).await.unwrap().hits)
}

/// The lengths of all documents' vectors.
async fn lengths(bench: &Bench, view: &IndexView) -> BTreeMap<u32, Vec<usize>> {
    let lengths = |document: &Value| {
        let vectors = document["_vectors"]["given"]["embeddings"].as_array().unwrap();
        vectors.iter().map(|vector| vector.as_array().unwrap().len()).collect()
    };
    stored(bench, view).await.iter().map(|(id, document)| (*id, lengths(document))).collect()
}

/// Once the first vector of the new length took away those of all other documents of its partition.
#[test]
fn vectors_of_the_length_before_are_kept() {
    for (cores, partitions) in [(1, 1), (2, 4)] {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        let all = BTreeMap::from_iter((0..12).map(|id| (id, vec![3])));
        let mut expected = all.clone();
        let kept = run(&disk, 1, cores, config(Some(partitions), 0), move |bench| async move {
            bench.set_embedders(&fake());
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let (view, _) = bench.batch(&view, of_length(3)).await;
            let documents: Vec<Value> =
                (0..12).map(|id| json!({"id": id, "_vectors": {"given": [1, id, 2]}})).collect();
            let (view, _) = bench.batch(&view, put(json!(documents))).await;
            assert_eq!(similar(&bench, &view, 0).await, [1, 2, 3]);
            let (view, _) = bench.batch(&view, of_length(4)).await;
            assert_eq!(lengths(&bench, &view).await, all);
            assert_eq!(similar(&bench, &view, 0).await, [1, 2, 3]);
            let new = json!([
                {"id": 0, "_vectors": {"given": [1, 2, 3, 4]}},
                {"id": 7, "_vectors": {"given": [1, 2, 3, 5]}},
            ]);
            let (view, outcomes) = bench.batch(&view, put(new)).await;
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            expected.extend([(0, vec![4]), (7, vec![4])]);
            assert_eq!(lengths(&bench, &view).await, expected);
            assert_eq!((view.vectors.embeddings, view.vectors.documents), (12, 12));
            assert_eq!(similar(&bench, &view, 0).await, [7]);
            assert_eq!(similar(&bench, &view, 1).await, [2, 3, 4]);
            assert_eq!(near(&bench, &view, &[1.0, 2.0, 3.0, 5.0]).await[..2], [7, 0]);
            let (view, _) = bench.batch(&view, put(json!([{"id": 1, "t": "of no concern"}]))).await;
            let (view, _) = bench.batch(&view, batch(vec![BatchOp::DeleteIds(["2"].iter().collect())])).await;
            expected.remove(&2);
            assert_eq!(lengths(&bench, &view).await, expected);
            // Back again, and every document has brought one.
            let (view, _) = bench.batch(&view, of_length(3)).await;
            let (view, _) = bench.batch(&view, put(json!([{"id": 0, "_vectors": {"given": [1, 0, 2]}}]))).await;
            expected.insert(0, vec![3]);
            assert_eq!(lengths(&bench, &view).await, expected);
            assert_eq!(near(&bench, &view, &[1.0, 0.0, 2.0]).await, [0, 1, 3]);
            assert_eq!(similar(&bench, &view, 7).await, [0u64; 0]);
            expected
        });
        run(&disk, 1, cores, config(Some(partitions), 0), move |bench| async move {
            let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
            assert_eq!(lengths(&bench, &view).await, kept);
            assert_eq!(view.vectors.embeddings, 11);
        });
    }
}
