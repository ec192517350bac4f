//! The table of what goes together, cell by cell.

use serde_json::json;
use shards::timestamp::Timestamp;

use super::*;
use crate::api::settings::SettingsPatch;
use crate::export::ExportRequest;
use crate::tasks::task::{Format, Method, Swap};

const NO_LIMITS: Limits = Limits { tasks_max: usize::MAX, payload_bytes_max: u64::MAX };

/// `a`: addition (of key `k`: `ak`, of key `l`: `al`, that may not create the index: `an`), `d`: deletion by id,
/// `f`: by filter, `c`: clear, `s`: settings, `r`: settings reset, `x`: index deletion, then those that stand alone.
fn content(letters: &str) -> Content {
    let index = "i".to_string();
    let addition = |key: Option<&str>, may_create_index| Content::DocumentAddition {
        index: "i".into(),
        format: Format::Json,
        method: Method::Replace,
        primary_key: key.map(Into::into),
        may_create_index,
        skip_creation: false,
        received: 1,
        payload_bytes: 10,
    };
    let settings = |is_reset| Content::Settings {
        index: "i".into(),
        change: SettingsPatch::default(),
        is_reset,
        may_create_index: true,
    };
    match letters {
        "a" => addition(None, true),
        "ak" => addition(Some("k"), true),
        "al" => addition(Some("l"), true),
        "an" => addition(None, false),
        "d" => Content::DocumentDeletion { index, ids: ["1"].iter().collect() },
        "f" => Content::DocumentDeletionByFilter { index, filter: json!("a = 1") },
        "c" => Content::DocumentClear { index },
        "s" => settings(false),
        "r" => settings(true),
        "x" => Content::IndexDeletion { index },
        "create" => Content::IndexCreation { index, primary_key: None },
        "update" => Content::IndexUpdate { index, primary_key: None, new_index: None, renamed: None },
        "swap" => Content::IndexSwap { swaps: vec![Swap { indexes: ["i".into(), "j".into()], rename: false }] },
        "edit" => Content::DocumentEdition { index, filter: None, context: None, function: "doc = null".into() },
        "compact" => Content::IndexCompaction { index },
        "dump" => Content::DumpCreation,
        "snapshot" => Content::SnapshotCreation,
        "export" => Content::Export { request: ExportRequest::default() },
        "cancel" => Content::TaskCancelation { query: "?".into(), tasks: RoaringBitmap::new() },
        "forget" => Content::TaskDeletion { query: "?".into(), tasks: RoaringBitmap::new() },
        _ => unreachable!("{letters}"),
    }
}

fn tasks(letters: &str) -> Vec<Task> {
    (0..)
        .zip(letters.split(' '))
        .map(|(uid, kind)| Task::accepted(TaskUid(uid), content(kind).into(), Timestamp(0)))
        .collect()
}

fn collect_with(facts: IndexFacts, limits: Limits, letters: &str) -> (usize, Work, Stop) {
    let mut collector = Collector::new(facts, limits);
    for task in &tasks(letters) {
        if !collector.offer(task) {
            break;
        }
    }
    let (tasks, work, stop) = collector.finish();
    (tasks.len(), work, stop)
}

fn collect(facts: &IndexFacts, letters: &str) -> (usize, Work) {
    let (count, work, _) = collect_with(facts.clone(), NO_LIMITS, letters);
    (count, work)
}

fn with_key(key: &str) -> IndexFacts {
    IndexFacts::Present { primary_key: Some(key.into()) }
}

#[test]
fn every_cell_of_the_table() {
    let present = with_key("k");
    for (letters, count, work) in [
        // additions, and deletions by id among them
        ("a a", 2, Work::Additions),
        ("a d a", 3, Work::Additions),
        ("a f", 1, Work::Additions),
        ("a d f", 2, Work::Additions),
        ("a c", 2, Work::Clear),
        ("a s", 1, Work::Additions),
        ("a x a", 2, Work::IndexDeletion),
        // an addition that is there to fail
        ("al x", 1, Work::Additions),
        ("al d", 1, Work::Additions),
        // deletions
        ("d a", 2, Work::Additions),
        ("f a", 1, Work::Deletions),
        ("d f a", 2, Work::Deletions),
        ("d d", 2, Work::Deletions),
        ("d f d", 3, Work::Deletions),
        ("f c", 2, Work::Clear),
        ("d s", 1, Work::Deletions),
        ("f x d", 2, Work::IndexDeletion),
        // clear
        ("c a", 1, Work::Clear),
        ("c d f c", 4, Work::Clear),
        ("c s", 1, Work::Clear),
        ("c x", 2, Work::IndexDeletion),
        // settings
        ("s a", 1, Work::Settings),
        ("s d", 1, Work::Settings),
        ("s f", 1, Work::Settings),
        ("s r s", 3, Work::Settings),
        ("s c", 2, Work::ClearAndSettings),
        ("s x", 2, Work::IndexDeletion),
        // clear and settings
        ("s c a", 2, Work::ClearAndSettings),
        ("s c d f c s", 6, Work::ClearAndSettings),
        ("s c x s", 3, Work::IndexDeletion),
        // index deletion ends it
        ("x x", 1, Work::IndexDeletion),
    ] {
        assert_eq!(collect(&present, letters), (count, work), "{letters}");
    }
}

#[test]
fn some_tasks_stand_alone_and_stop_the_others() {
    for alone in ["create", "update", "swap", "edit"] {
        for other in ["a", "d", "f", "c", "s", "x", "create"] {
            assert_eq!(collect(&with_key("k"), &format!("{alone} {other}")), (1, Work::Single));
            if other != "x" && other != "create" {
                assert_eq!(collect(&with_key("k"), &format!("{other} {alone}")).0, 1, "{other} {alone}");
            }
        }
    }
}

#[test]
fn primary_keys_must_agree() {
    let keyless = IndexFacts::Present { primary_key: None };
    for (facts, letters, count) in [
        (with_key("k"), "a ak a ak", 4),
        (with_key("k"), "a al", 1),
        (with_key("k"), "al a", 1),
        (with_key("k"), "al d", 1),
        (with_key("k"), "al al", 1),
        (with_key("k"), "d al", 1),
        (with_key("k"), "d ak", 2),
        (keyless.clone(), "a ak", 1),
        (keyless.clone(), "ak a ak al", 3),
        (keyless.clone(), "d ak ak al", 3),
        (IndexFacts::Absent, "ak a al", 2),
    ] {
        assert_eq!(collect(&facts, letters).0, count, "{facts:?} {letters}");
    }
}

/// Were a task that may create the index taken into a batch that may not, the tasks before it would see an index which
/// they alone would not have seen.
#[test]
fn batches_that_may_not_create_do_not_take_tasks_that_may() {
    for (letters, count) in [("an a", 1), ("a an", 2), ("an an", 2), ("d a", 1), ("d an", 2), ("r s", 1), ("s r", 2)] {
        assert_eq!(collect(&IndexFacts::Absent, letters).0, count, "{letters}");
    }
    assert_eq!(collect(&with_key("k"), "an a").0, 2);
}

#[test]
fn limits_end_a_batch_but_never_leave_it_empty() {
    let limits = Limits { tasks_max: 2, payload_bytes_max: u64::MAX };
    assert_eq!(collect_with(with_key("k"), limits, "a a a"), (2, Work::Additions, Stop::TaskLimit(2)));
    let limits = Limits { tasks_max: usize::MAX, payload_bytes_max: 25 };
    assert_eq!(collect_with(with_key("k"), limits, "a a d a d"), (3, Work::Additions, Stop::PayloadLimit(25)));
    let limits = Limits { tasks_max: usize::MAX, payload_bytes_max: 1 };
    assert_eq!(collect_with(with_key("k"), limits, "a d a").0, 2);
}

#[test]
fn the_reason_names_what_stopped_it() {
    let stop = |letters| collect_with(with_key("k"), NO_LIMITS, letters).2;
    assert_eq!(stop("a a"), Stop::QueueEmpty);
    assert_eq!(stop("a s"), Stop::NextDoesNotFit(TaskUid(1), Kind::SettingsUpdate));
    assert_eq!(stop("a create"), Stop::NextStandsAlone(TaskUid(1), Kind::IndexCreation));
    assert_eq!(stop("a al"), Stop::OtherPrimaryKey(TaskUid(1)));
    assert_eq!(stop("a x"), Stop::IndexDeletion(TaskUid(1)));
    assert_eq!(stop("create"), Stop::KindStandsAlone(Kind::IndexCreation));
}

/// The ranks of kinds, found by taking away the winner again and again.
#[test]
fn kinds_have_ranks() {
    let mut queue = Queue::default();
    for task in tasks("a dump snapshot swap export compact snapshot forget cancel compact forget cancel d") {
        queue.insert(task);
    }
    let mut order = Vec::new();
    while let Some(choice) = choose(&queue, &Gate::default()) {
        let uids: Vec<u32> = match choice {
            Choice::Tasks(_, uids) => uids.iter().map(|uid| uid.0).collect(),
            Choice::OfIndex(index, uids) => {
                assert_eq!(index, "i");
                uids.iter().collect()
            }
            Choice::Alone(uid) => vec![uid.0],
        };
        queue.forget(&uids.iter().copied().collect());
        order.push(uids);
    }
    // The swap (3) is found among the tasks of its index, where it stops the collecting.
    let wanted: [&[u32]; 9] = [&[11], &[8], &[7, 10], &[5], &[9], &[4], &[2, 6], &[1], &[0, 3, 12]];
    assert_eq!(order, wanted);
}

#[test]
fn a_swap_begins_alone() {
    let mut queue = Queue::default();
    for task in tasks("swap a") {
        queue.insert(task);
    }
    assert_eq!(choose(&queue, &Gate::default()), Some(Choice::Alone(TaskUid(0))));
    assert_eq!(choose(&Queue::default(), &Gate::default()), None);
}
