//! What counts as a change of an index, and what is passed over.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::json;
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use crate::engine::*;
use crate::settings::Settings;
use crate::timestamp::Timestamp;

/// Documents that are passed over once failed the whole addition, for fields that nobody would have read.
#[test]
fn what_is_passed_over_need_not_be_right() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let embedders = [("e".to_owned(), json!({"source": "userProvided", "dimensions": 2}))].into();
        let filterable_attributes = vec![crate::settings::FilterableRule::Name("_geo".into())];
        let settings = Settings { filterable_attributes, embedders, ..Settings::default() };
        let first = add(Method::Replace, &json!([{"id": 5, "x": 1, "_vectors": {"e": [1, 2]}}]));
        let first = Batch { settings: Some(Arc::new(settings)), ..batch(vec![first]) };
        let (mut view, _) = bench.batch(&view, first).await;
        let passing = |documents| match add(Method::Replace, &documents) {
            BatchOp::Add { payload, format, method, primary_key, .. } => {
                BatchOp::Add { payload, format, method, primary_key, skip_creation: true }
            }
            other => other,
        };
        for (at, wrong) in
            [json!({"_geo": [1]}), json!({"_vectors": [1]}), json!({"_vectors": {"e": [1]}})].into_iter().enumerate()
        {
            let mut missing = wrong.clone();
            missing["id"] = 4.into();
            let op = passing(json!([missing, {"id": 5, "x": at + 2}]));
            let (after, outcomes) = bench.batch(&view, batch(vec![op])).await;
            assert_eq!(outcomes, [Ok(OpOutcome { documents: 2, named: 2 })], "{wrong}");
            let found = bench.documents(&after).await;
            assert_eq!((found.len(), &found[0]["x"]), (1, &json!(at + 2)));
            let mut there = wrong.clone();
            there["id"] = 5.into();
            let (after, outcomes) = bench.batch(&after, batch(vec![passing(json!([there]))])).await;
            assert!(outcomes[0].is_err(), "{wrong}");
            view = after;
        }
    });
}

/// As the reference has it, an index from which nothing was deleted is not updated.
#[test]
fn deleting_nothing_is_no_change() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 10), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let (mut view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &json!([{"id": 1}]))])).await;
        assert_eq!(view.updated_at, Timestamp(1));
        let ids = |ids: &[&str]| BatchOp::DeleteIds(ids.iter().collect());
        let missing = || BatchOp::DeleteByFilter(json!("nothing = 1"));
        for (changes, ops) in [
            (false, vec![ids(&["7"])]),
            (false, vec![ids(&[]), ids(&["8", "9"]), missing()]),
            (true, vec![ids(&["7"]), add(Method::Replace, &json!([]))]),
            (true, vec![ids(&["1", "7"])]),
            (true, vec![BatchOp::Clear]),
            (true, vec![]),
        ] {
            let (after, _) = bench.batch(&view, Batch { updated_at: None, ..batch(ops) }).await;
            assert_eq!(after.updated_at != view.updated_at, changes);
            let (after, _) = bench.batch(&after, batch(vec![add(Method::Replace, &json!([{"id": 1}]))])).await;
            view = after;
        }
    });
}
