//! Searches through engines.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use crate::engine::*;
use crate::search::SearchRequest;
use crate::settings::Settings;
use crate::timestamp::Timestamp;

async fn hits(bench: &Bench, view: &IndexView, query: &str) -> (u64, Value) {
    let request = SearchRequest { query: Some(query.to_owned()), show_ranking_score: true, ..SearchRequest::default() };
    let answer = bench.engine.search(view, request).await.unwrap();
    (answer.total, serde_json::from_slice(&answer.hits).unwrap())
}

fn searched(cores: u16, partitions: u16) -> Vec<(u64, Value)> {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 5, cores, config(Some(partitions), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let texts = ["sun flower field", "sunflower field", "field of sun and flower", "flower sun", "sun. flower"];
        let documents: Vec<Value> = (0..40).map(|id| json!({"id": id, "text": texts[id % 5], "n": id / 7})).collect();
        let settings = Settings { sortable_attributes: ["n".to_owned()].into(), ..Settings::default() };
        let whole =
            Batch { settings: Some(Arc::new(settings)), ..batch(vec![add(Method::Replace, &json!(documents))]) };
        let (view, _) = bench.batch(&view, whole).await;
        let mut found = Vec::new();
        for query in ["sun flower", "sunflwer", "fi", "\"sun flower\"", "field -sunflower", ""] {
            found.push(hits(&bench, &view, query).await);
        }
        found
    })
}

/// Hits, their order and their scores must not show how an index is spread.
#[test]
fn searches_answer_the_same_with_any_number_of_partitions() {
    let whole = searched(1, 1);
    assert_eq!(whole[0].0, 40);
    assert_eq!(whole[0].1[0]["text"], "sun flower field");
    assert!(whole.iter().all(|(total, hits)| *total > 0 && hits[0]["_rankingScore"].is_number()));
    for (cores, partitions) in [(2, 2), (3, 5)] {
        assert_eq!(searched(cores, partitions), whole);
    }
}
