//! Whole histories of tasks, with indexes that only know ids.

mod made;

use std::rc::Rc;

use serde_json::{Value, json};
use storage_engine::io::sim::{Faults, SimDisk};

use crate::control::indexes::IndexError;
use crate::control::testing::{Fuse, Instance, NO_LIMITS, Stop, World, add, clear, remove};
use crate::control::{ControlChange, Features, FeaturesPatch};
use crate::tasks::batch::EmbedderRequests;
use crate::tasks::batcher::Limits;
use crate::tasks::filter::Scope;
use crate::tasks::task::{BatchUid, Content, Swap};

fn delete_index(index: &str) -> (Content, Option<&'static str>) {
    (Content::IndexDeletion { index: index.into() }, None)
}

fn create(index: &str) -> (Content, Option<&'static str>) {
    (Content::IndexCreation { index: index.into(), primary_key: None }, None)
}

fn swap(pairs: &[(&str, &str, bool)]) -> (Content, Option<&'static str>) {
    let swaps =
        pairs.iter().map(|(a, b, rename)| Swap { indexes: [a.to_string(), b.to_string()], rename: *rename }).collect();
    (Content::IndexSwap { swaps }, None)
}

/// Accepts everything before anything is processed, then processes it.
fn processed(world: &World, contents: Vec<(Content, Option<&str>)>) -> Instance {
    let waiting = world.start_with(NO_LIMITS, false);
    for content in contents {
        waiting.accept(content);
    }
    drop(waiting);
    let instance = world.start();
    instance.runtime.settle();
    instance
}

#[test]
fn tasks_of_an_index_go_together_and_fail_alone() {
    let world = World::new();
    let instance = processed(
        &world,
        vec![
            add("a", r#"[{"id":1},{"id":2}]"#),
            add("a", r#"[{"id":3}]"#),
            remove("a", &["2", "9", "9"]),
            add("b", r#"[{"id":9}]"#),
            add("a", r#"[{"id":4},{"name":"no id"}]"#),
            add("a", r#"[{"id":5}]"#),
        ],
    );
    let wanted = ["succeeded@0 2", "succeeded@0 1", "succeeded@0 2", "succeeded@1 1", "failed@0 0", "succeeded@0 1"];
    assert_eq!(instance.fates(0..6), wanted);
    assert_eq!(instance.task(4)["error"]["code"], "missing_document_id");
    assert_eq!(instance.ids("a").unwrap(), ["1", "3", "5"]);
    assert_eq!(world.indexes.commits.get(), 2);
}

#[test]
fn clears_swallow_what_goes_with_them() {
    let world = World::new();
    let instance = world.start();
    instance.accept(add("c", r#"[{"id":1},{"id":2},{"id":3}]"#));
    drop(instance);
    let instance = processed(
        &world,
        vec![add("c", r#"[{"id":4}]"#), remove("c", &["1"]), clear("c"), clear("c"), add("c", r#"[{"id":5}]"#)],
    );
    let wanted = ["succeeded@1 null", "succeeded@1 null", "succeeded@1 3", "succeeded@1 0", "succeeded@2 1"];
    assert_eq!(instance.fates(1..6), wanted);
    assert_eq!(instance.ids("c").unwrap(), ["5"]);
}

#[test]
fn index_deletions_swallow_what_goes_before() {
    let world = World::new();
    let instance = processed(
        &world,
        vec![
            add("e", r#"[{"id":1}]"#),
            delete_index("e"),
            remove("f", &["1"]),
            delete_index("f"),
            create("g"),
            add("g", r#"[{"id":1},{"id":2}]"#),
            delete_index("g"),
        ],
    );
    let wanted =
        ["succeeded@0 0", "succeeded@0 0", "failed@1 0", "failed@1 0", "succeeded@2", "succeeded@3 0", "succeeded@3 0"];
    assert_eq!(instance.fates(0..7), wanted);
    assert_eq!((instance.ids("e"), instance.ids("g"), world.indexes.len()), (None, None, 0));
}

#[test]
fn limits_split_batches() {
    let world = World::new();
    let waiting = world.start_with(NO_LIMITS, false);
    for id in 0..5 {
        waiting.accept(add("a", ["[{\"id\":0}]", "[{\"id\":1}]", "[{\"id\":2}]", "[]", "[]"][id]));
    }
    drop(waiting);
    let instance = world.start_with(Limits { tasks_max: 2, ..NO_LIMITS }, true);
    instance.runtime.settle();
    let wanted = ["succeeded@0 1", "succeeded@0 1", "succeeded@1 1", "succeeded@1 0", "succeeded@2 0"];
    assert_eq!(instance.fates(0..5), wanted);
}

#[test]
fn creations_and_their_errors() {
    let world = World::new();
    let instance = world.start();
    instance.accept(create("a"));
    instance.accept(create("a"));
    let patch = |key: Option<&str>, new: Option<&str>| {
        let renamed = new.map(|new| ["a".to_string(), new.to_string()]);
        let (primary_key, new_index) = (key.map(Into::into), new.map(Into::into));
        (Content::IndexUpdate { index: "a".into(), primary_key, new_index, renamed }, None)
    };
    instance.accept(patch(Some("id"), None));
    instance.accept(add("a", r#"[{"id":1}]"#));
    instance.accept(patch(Some("other"), Some("b")));
    instance.accept(patch(Some("id"), Some("b")));
    instance.accept(patch(None, None));
    instance.runtime.settle();
    let codes: Vec<Value> = (0..7).map(|uid| instance.task(uid)["error"]["code"].clone()).collect();
    let wanted =
        json!([null, "index_already_exists", null, null, "index_primary_key_already_exists", null, "index_not_found"]);
    assert_eq!(Value::from(codes), wanted);
    assert_eq!((instance.ids("a"), instance.ids("b").unwrap()), (None, vec!["1".to_string()]));
    // History follows the index, but the task that renamed it keeps the old name.
    assert_eq!((&instance.task(3)["indexUid"], &instance.task(5)["indexUid"]), (&json!("b"), &json!("a")));
}

#[test]
fn swaps_move_indexes_and_history_together() {
    let world = World::new();
    let instance = world.start();
    instance.accept(add("a", r#"[{"id":1}]"#));
    instance.accept(add("b", r#"[{"id":2}]"#));
    instance.accept(swap(&[("a", "b", false)]));
    instance.accept(swap(&[("a", "c", true)]));
    instance.accept(swap(&[("b", "zz", false)]));
    instance.accept(swap(&[("b", "c", true)]));
    instance.accept(swap(&[("b", "c", true), ("c", "y", false), ("x", "zz", true)]));
    instance.runtime.settle();
    assert_eq!(instance.ids("b").unwrap(), ["1"]);
    assert_eq!(instance.ids("c").unwrap(), ["2"]);
    assert_eq!((&instance.task(0)["indexUid"], &instance.task(1)["indexUid"]), (&json!("b"), &json!("c")));
    assert_eq!(instance.task(2)["details"]["swaps"][0]["indexes"], json!(["c", "b"]));
    assert_eq!(instance.task(4)["error"]["code"], "index_not_found");
    assert_eq!(instance.task(5)["error"]["code"], "index_already_exists");
    // What is missing in any pair comes first, all of it.
    assert_eq!(instance.task(6)["error"]["message"], "Indexes `x`, `y` not found.");
    // All of it survives a restart.
    drop(instance);
    let instance = world.start();
    assert_eq!(instance.ids("c").unwrap(), ["2"]);
    assert_eq!(instance.task(1)["indexUid"], "c");
}

#[test]
fn cancelations_end_what_waits_in_their_own_batch() {
    let world = World::new();
    let waiting = world.start_with(NO_LIMITS, false);
    waiting.accept(add("a", r#"[{"id":1}]"#));
    waiting.accept(add("a", r#"[{"id":2}]"#));
    waiting.accept(create("b"));
    assert_eq!(waiting.select(true, &[0, 2, 99]), 3);
    drop(waiting);
    let instance = world.start();
    instance.runtime.settle();
    assert_eq!(instance.fates(0..4), ["canceled@0 0", "succeeded@1 1", "canceled@0", "succeeded@0 2"]);
    assert_eq!(instance.task(0)["canceledBy"], 3);
    assert_eq!((instance.ids("a").unwrap(), instance.ids("b")), (vec!["2".to_string()], None));
}

/// The batch in progress is aborted, the members that were not meant run again, and the cancelation takes its number.
#[test]
fn a_cancelation_stops_the_batch_in_progress() {
    let world = World::new();
    world.indexes.set_stop(Stop::DuringPrepare);
    let instance = processed(&world, vec![add("a", r#"[{"id":1}]"#), add("a", r#"[{"id":2}]"#)]);
    assert_eq!(instance.fates(0..2), ["processing@0 null", "processing@0 null"]);
    instance.select(true, &[1]);
    instance.runtime.settle();
    // The next batch waits until the work of the aborted one is undone.
    assert_eq!(instance.fates(0..3), ["processing@1 null", "canceled@0 0", "succeeded@0 1"]);
    world.indexes.set_stop(Stop::Nowhere);
    instance.runtime.settle();
    assert_eq!(instance.fates(0..3), ["succeeded@1 1", "canceled@0 0", "succeeded@0 1"]);
    assert_eq!(instance.ids("a").unwrap(), ["1"]);
}

/// While the server stops, cores leave one after another; a batch that then misses one must not end its tasks for good.
#[test]
fn tasks_outlive_a_stop_in_the_middle_of_their_batch() {
    let world = World::new();
    world.indexes.failure.replace(Some(IndexError::Stopping("core 1 is shutting down".into())));
    let instance = processed(&world, vec![add("a", r#"[{"id":1}]"#)]);
    assert_eq!(instance.fates(0..1), ["succeeded@0 1"]);
}

/// As an embedder does for the batch in progress: one request more, which fails.
fn fail_request(instance: &Instance) {
    let requests = EmbedderRequests { total: 1, failed: 1, last_error: Some("it slept".into()) };
    instance.runtime.run(instance.handle.count_requests(requests)).expect("counting ends").unwrap();
}

fn batch(instance: &Instance, uid: u32) -> Value {
    let body = instance.runtime.run(instance.handle.batch(BatchUid(uid), Scope::All)).expect("reading ends").unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn requests(instance: &Instance, uid: u32) -> Value {
    batch(instance, uid)["stats"].get("embedderRequests").cloned().unwrap_or_default()
}

#[test]
fn requests_to_embedders_are_shown_while_a_batch_runs_and_kept() {
    let world = World::new();
    world.indexes.set_stop(Stop::DuringPrepare);
    let instance = processed(&world, vec![add("a", r#"[{"id":1}]"#)]);
    assert_eq!(requests(&instance, 0), Value::Null);
    fail_request(&instance);
    let wanted = json!({"total": 1, "failed": 1, "lastError": "it slept"});
    assert_eq!(requests(&instance, 0), wanted);
    world.indexes.set_stop(Stop::Nowhere);
    instance.runtime.settle();
    // Nothing is in progress that these could be of.
    fail_request(&instance);
    instance.accept(create("b"));
    instance.runtime.settle();
    assert_eq!((requests(&instance, 0), requests(&instance, 1)), (wanted.clone(), Value::Null));
    drop(instance);
    assert_eq!(requests(&world.start(), 0), wanted);
}

#[test]
fn progress_is_shown_while_a_batch_runs_and_its_stages_are_kept() {
    let world = World::new();
    world.indexes.set_stop(Stop::DuringPrepare);
    let instance = processed(&world, vec![add("a", r#"[{"id":1}]"#)]);
    let wanted = json!([
        {"currentStep": "processing tasks", "finished": 1, "total": 6},
        {"currentStep": "applying changes", "finished": 1, "total": 4},
    ]);
    assert_eq!(batch(&instance, 0)["progress"]["steps"], wanted);
    world.indexes.set_stop(Stop::Nowhere);
    instance.runtime.settle();
    let ended = batch(&instance, 0);
    let trace = &ended["stats"]["progressTrace"];
    assert_eq!((&ended["progress"], &trace["processing tasks > reading operations"]), (&Value::Null, &json!("3.00ms")));
    drop(instance);
    assert_eq!(&batch(&world.start(), 0)["stats"]["progressTrace"], trace);
}

/// The work of an interrupted batch goes on for a while, and must not count for those that come next.
#[test]
fn requests_of_an_interrupted_batch_count_for_no_other() {
    let world = World::new();
    world.indexes.set_stop(Stop::DuringPrepare);
    let instance = processed(&world, vec![add("a", r#"[{"id":1}]"#), add("a", r#"[{"id":2}]"#)]);
    fail_request(&instance);
    instance.select(true, &[1]);
    instance.runtime.settle();
    assert_eq!(instance.fates(0..3), ["processing@1 null", "canceled@0 0", "succeeded@0 1"]);
    fail_request(&instance);
    world.indexes.set_stop(Stop::Nowhere);
    instance.runtime.settle();
    assert_eq!(instance.fates(0..1), ["succeeded@1 1"]);
    assert_eq!((requests(&instance, 0), requests(&instance, 1)), (Value::Null, Value::Null));
}

#[test]
fn deletions_forget_finished_tasks_and_empty_batches() {
    let world = World::new();
    let instance = world.start();
    for _ in 0..3 {
        instance.accept(add("a", r#"[{"id":1}]"#));
        instance.runtime.settle();
    }
    drop(instance);
    let waiting = world.start_with(NO_LIMITS, false);
    waiting.select(false, &[0, 1]);
    waiting.select(false, &[1, 2, 3]);
    drop(waiting);
    let instance = world.start();
    instance.runtime.settle();
    let wanted = ["none@null", "none@null", "none@null", "succeeded@3 2", "succeeded@3 1"];
    assert_eq!(instance.fates(0..5), wanted);
    assert_eq!(
        instance.plane.batches.borrow().matching(&Default::default(), &instance.plane.queue.borrow(), None).len(),
        1
    );
    // Numbers are never used again, not even after a restart.
    drop(instance);
    assert_eq!(world.start().accept(create("b")), 5);
}

/// Wherever the process is killed, an accepted task is processed exactly once.
#[test]
fn kills_lose_nothing_and_apply_nothing_twice() {
    for stop in [Stop::BeforeCreate, Stop::DuringPrepare, Stop::BeforeCommit, Stop::AfterCommit, Stop::Nowhere] {
        let world = World::new();
        world.indexes.set_stop(stop);
        let killed = world.start();
        killed.accept(add("a", r#"[{"id":1},{"id":2}]"#));
        killed.accept(remove("a", &["2"]));
        killed.runtime.settle();
        drop(killed);
        world.indexes.set_stop(Stop::Nowhere);
        let instance = world.start();
        instance.accept(add("a", r#"[{"id":3}]"#));
        instance.runtime.settle();
        let statuses: Vec<Value> = (0..3).map(|uid| instance.task(uid)["status"].clone()).collect();
        assert_eq!(statuses, ["succeeded"; 3], "{stop:?}");
        assert_eq!(instance.ids("a").unwrap(), ["1", "3"], "{stop:?}");
        let additions = instance.task(0)["details"]["indexedDocuments"].clone();
        assert_eq!(additions, 2, "{stop:?}");
        assert_eq!((world.indexes.len(), world.indexes.added.get()), (1, 3), "{stop:?}");
        // A second restart finds nothing left to do.
        let commits = world.indexes.commits.get();
        drop(instance);
        let instance = world.start();
        instance.runtime.settle();
        assert_eq!((world.indexes.commits.get(), instance.ids("a").unwrap().len()), (commits, 2), "{stop:?}");
    }
}

/// What clients do until the disk is cut off: how many tasks they were promised.
fn live(world: &World) -> u32 {
    let history = [
        add("a", r#"[{"id":1},{"id":2}]"#),
        remove("a", &["2"]),
        create("b"),
        swap(&[("a", "b", false)]),
        add("b", r#"[{"id":3}]"#),
        delete_index("a"),
        add("c", r#"[{"id":4}]"#),
    ];
    let Some(instance) = world.try_start(NO_LIMITS, true) else { return 0 };
    let mut promised = 0;
    for (at, new) in history.into_iter().enumerate() {
        if instance.try_accept(new).is_none() {
            break;
        }
        promised += 1;
        // Some are processed one by one, others together.
        if at % 3 != 1 {
            instance.runtime.settle();
        }
    }
    promised
}

/// What must hold after a restart, when so many tasks had been promised: each has happened, once.
fn check_after_restart(world: &World, promised: u32, what: &str) {
    let instance = world.start();
    instance.runtime.settle();
    let fates: Vec<String> = (0..promised).map(|uid| instance.task(uid)["status"].to_string()).collect();
    assert!(fates.iter().all(|status| status == "\"succeeded\""), "{what}: {fates:?}");
    // A task that was not promised may be there or not, but not by half.
    let additions = [(0, 2), (4, 1), (6, 1)];
    let added: u64 = additions.iter().filter(|(uid, _)| !instance.task(*uid).is_null()).map(|(_, n)| n).sum();
    assert_eq!(world.indexes.added.get(), added, "{what}");
    if promised > 4 {
        assert_eq!(instance.ids("b").unwrap(), ["1", "3"], "{what}");
    }
}

/// The process is killed at each operation on the disk, a write half done included.
#[test]
fn kills_at_any_operation_on_the_disk() {
    for operations in 0.. {
        let (world, fuse) = (World::new(), Fuse::of(operations));
        let promised = live(&world.fused(&fuse));
        check_after_restart(&world, promised, &format!("killed at operation {operations}"));
        if !fuse.is_burnt() {
            assert_eq!((promised, world.indexes.len()), (7, 2));
            return;
        }
    }
}

/// The power is cut before each operation on the disk, and takes with it any part of what was not synced.
#[test]
fn power_cuts_at_any_operation_on_the_disk() {
    for operation in 0.. {
        let disk = SimDisk::new();
        disk.set_faults(Faults { cut_before: Some(operation), ..Faults::default() });
        let world = World::new().on(Rc::new(disk.clone()));
        let promised = live(&world);
        for seed in 0..4 {
            let after = world.on(Rc::new(disk.after_power_cut(seed)));
            check_after_restart(&after, promised, &format!("cut before operation {operation}, seed {seed}"));
        }
        if disk.operations() <= operation {
            assert_eq!(promised, 7);
            return;
        }
    }
}

#[test]
fn switches_and_keys_survive_a_restart() {
    let world = World::new();
    let instance = world.start();
    let uids: Vec<_> = instance.handle.state().keys.newest_first().iter().map(|key| key.uid).collect();
    assert_eq!(uids.len(), 4);
    let features = Features { metrics: true, ..Features::default() };
    let change = |change| instance.runtime.run(instance.handle.change(change)).expect("changing ends");
    change(ControlChange::SetFeatures(FeaturesPatch(vec![("metrics", true)]))).unwrap();
    change(ControlChange::DeleteKey(uids[0])).unwrap();
    let code = change(ControlChange::DeleteKey(uids[0])).map_err(|error| error.code.name());
    assert_eq!(code, Err("api_key_not_found"));
    drop(instance);
    let state = world.start().handle.state();
    assert_eq!((state.features, state.keys.len()), (features, 3));
    assert!(state.keys.by_uid(uids[0]).is_none());
}
