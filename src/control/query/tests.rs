//! Lists are what they would be if they were made in one piece, and the ids of large deletions are nowhere in the way.

use std::pin::pin;

use futures_lite::future::{block_on, poll_once};
use shards::document::DocumentIds;

use super::*;
use crate::control::storage::store::IDS_APART_MIN;
use crate::control::testing::{Instance, World, add, remove};
use crate::tasks::filter::Filter;

fn query(page: Page) -> ListQuery {
    ListQuery { filter: Filter::default(), page, scope: Scope::All }
}

/// An instance with the tasks 0 to 5, each in a batch of its own.
fn six_tasks() -> Instance {
    let instance = World::new().start();
    for number in 0..6 {
        instance.accept(add(&format!("i{number}"), r#"[{"id":"1"},{"id":"2"}]"#));
        instance.runtime.settle();
    }
    instance
}

fn page_of(objects: &[Vec<u8>], total: u64, page: Page) -> String {
    let objects: Vec<Value> = objects.iter().map(|object| serde_json::from_slice(object).unwrap()).collect();
    let uid = |object: &Value| object["uid"].clone();
    let from = objects.first().map(uid).filter(|_| page.limit > 0);
    let next = objects.get(page.limit as usize).map(uid);
    let results: Vec<&Value> = objects.iter().take(page.limit as usize).collect();
    json!({ "results": results, "total": total, "limit": page.limit, "from": from, "next": next }).to_string()
}

#[test]
fn lists_have_their_members_in_order() {
    let instance = six_tasks();
    let newest_first = |uid: u32| (0..=uid).rev();
    for (limit, from) in [(0, 5), (1, 5), (5, 5), (6, 5), (7, 5), (u32::MAX - 1, 5), (2, 3), (2, 1)] {
        let page = Page { limit, from: Some(from), reverse: false };
        let task = |uid| instance.plane.task_json(TaskUid(uid), &Scope::All).unwrap();
        let tasks: Vec<Vec<u8>> = newest_first(from).map(task).collect();
        let listed = instance.runtime.run(instance.plane.tasks_json(query(page))).unwrap().unwrap();
        assert_eq!(String::from_utf8(listed).unwrap(), page_of(&tasks, 6, page), "{limit} from {from}");
        let batch = |uid| instance.plane.batch_json(BatchUid(uid), &Scope::All).unwrap();
        let batches: Vec<Vec<u8>> = newest_first(from).map(batch).collect();
        let listed = instance.runtime.run(instance.plane.batches_json(query(page))).unwrap().unwrap();
        assert_eq!(String::from_utf8(listed).unwrap(), page_of(&batches, 6, page), "{limit} from {from}");
    }
}

/// A list of all tasks was encoded in one go at the end, which kept everything else on the control core waiting.
#[test]
fn others_have_their_turn_between_the_objects_of_a_list() {
    let instance = six_tasks();
    let page = Page { limit: 100, ..Page::default() };
    let turns = |mut list: std::pin::Pin<&mut dyn Future<Output = Result<Vec<u8>, ControlError>>>| {
        let mut turns = 1;
        while block_on(poll_once(&mut list)).is_none() {
            turns += 1;
        }
        turns
    };
    assert!(turns(pin!(instance.plane.tasks_json(query(page)))) > 6);
    assert!(turns(pin!(instance.plane.batches_json(query(page)))) > 6);
}

/// The ids of a deletion were read, millions of them, wherever the task was shown.
#[test]
fn many_ids_are_kept_apart_from_their_task() {
    let instance = World::new().start();
    let ids: Vec<String> = (0..IDS_APART_MIN).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    instance.accept(add("films", r#"[{"id":"1"},{"id":"2"}]"#));
    for count in [IDS_APART_MIN, IDS_APART_MIN - 1] {
        instance.accept(remove("films", &ids[..count]));
        instance.runtime.settle();
    }
    let check = |instance: &Instance| {
        for (uid, count) in [(1, IDS_APART_MIN), (2, IDS_APART_MIN - 1)] {
            assert_eq!(instance.task(uid)["status"], "succeeded");
            assert_eq!(instance.task(uid)["details"]["providedIds"], count);
            let given = |task: &Task| match &task.content {
                Content::DocumentDeletion { ids, .. } => ids.clone(),
                _ => DocumentIds::default(),
            };
            let whole = instance.plane.whole_task(TaskUid(uid)).unwrap().unwrap();
            assert_eq!(given(&whole), ids[..count].iter().collect());
            assert_eq!(whole.ids_apart, None);
            let stored = instance.plane.store.task(TaskUid(uid)).unwrap().unwrap();
            assert_eq!(given(&stored).is_empty(), count == IDS_APART_MIN);
        }
    };
    check(&instance);
    let renamed = Content::IndexUpdate {
        index: "films".into(),
        primary_key: None,
        new_index: Some("movies".into()),
        renamed: None,
    };
    instance.accept((renamed, None));
    instance.runtime.settle();
    assert_eq!(instance.task(1)["indexUid"], "movies");
    check(&instance);
    let restarted = instance.world.start();
    check(&restarted);
    restarted.select(false, &[1]);
    restarted.runtime.settle();
    assert!(restarted.task(1).is_null());
    assert_eq!(restarted.plane.store.whole_task(TaskUid(1)), Ok(None));
}
