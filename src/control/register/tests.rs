//! Numbers that cannot be given, tasks that say they are another's, and the clean-up of the queue.

use std::sync::Arc;

use futures_util::future::join;
use uuid::Uuid;

use crate::control::testing::{Instance, NO_LIMITS, World, add};
use crate::control::{ControlChange, FeaturesPatch};
use crate::network::task::{Origin, TaskNetwork};
use crate::network::{Network, Remote};
use crate::tasks::task::{Content, NewTask, Numbering};

fn create(index: &str) -> Content {
    Content::IndexCreation { index: index.into(), primary_key: None }
}

fn register(instance: &Instance, new: NewTask, payload: Option<&str>) -> Result<u32, &'static str> {
    let payload = payload.map(|payload| payload.as_bytes().to_vec());
    let registered = instance.runtime.run(instance.handle.register(new, payload)).expect("accepting ends");
    instance.runtime.settle();
    registered.map(|task| task.uid.0).map_err(|error| error.code.name())
}

/// The number after the last was 0 again: the task that got it took the place of an older one.
#[test]
fn numbers_do_not_begin_anew() {
    let instance = World::new().start();
    let numbered = |uid| NewTask {
        numbering: Numbering { uid: Some(uid), is_dry: false },
        ..NewTask::from(create(&format!("i{uid}")))
    };
    assert_eq!(register(&instance, numbered(u32::MAX), None), Err("bad_request"));
    assert_eq!(register(&instance, create("a").into(), None), Ok(0));
    assert_eq!(register(&instance, numbered(u32::MAX - 1), None), Ok(u32::MAX - 1));
    assert_eq!(register(&instance, create("b").into(), None), Err("bad_request"));
    assert_eq!(instance.fates(0..1), ["succeeded@0"]);
    let restarted = instance.world.start();
    assert_eq!(register(&restarted, create("c").into(), None), Err("bad_request"));
}

/// Where nobody leads, headers that name a later version of the network once held a task back for ever, and the log with it.
#[test]
fn nothing_waits_for_a_network_that_nobody_leads() {
    let instance = World::new().start();
    let origin = Origin { remote_name: "x".into(), task_uid: 7, network_version: Uuid::max() };
    let (content, payload) = add("a", r#"[{"id":1}]"#);
    let new = NewTask { network: Some(TaskNetwork::Origin(origin)), ..NewTask::from(content) };
    assert_eq!(register(&instance, new, payload), Ok(0));
    assert_eq!(instance.fates(0..1), ["succeeded@0 1"]);
    assert!(instance.plane.origins.borrow().is_empty());
    assert!(instance.plane.ahead.borrow().is_empty());
}

/// The leader sends a task again where the answer was lost. When its record had been deleted here, it got an error each time, and
/// nothing after it was sent.
#[test]
fn a_task_of_the_leader_is_known_after_its_deletion() {
    let instance = World::new().start();
    let remotes = ["a", "b"].map(|name| (name.to_owned(), Remote::default())).into();
    let (own_name, leader) = (Some("a".into()), Some("b".into()));
    instance.plane.use_network(Arc::new(Network { own_name, leader, remotes, ..Network::default() }));
    let sent = || {
        let origin = Origin { remote_name: "b".into(), task_uid: 7, network_version: Uuid::nil() };
        NewTask { network: Some(TaskNetwork::Origin(origin)), ..NewTask::from(create("a")) }
    };
    assert_eq!(register(&instance, sent(), None), Ok(0));
    instance.select(false, &[0]);
    instance.runtime.settle();
    assert!(instance.task(0).is_null());
    assert_eq!(register(&instance, sent(), None), Ok(0));
    assert!(instance.task(0).is_null() && instance.task(2).is_null());
}

#[test]
fn the_oldest_finished_tasks_go_when_there_are_too_many() {
    let instance = World::new().try_start_bounded(NO_LIMITS, true, Some(20)).expect("opening ends");
    for number in 0..20 {
        assert_eq!(register(&instance, create(&format!("i{number}")).into(), None), Ok(number));
    }
    let deletion = instance.task(20);
    assert_eq!((&deletion["type"], &deletion["status"]), (&"taskDeletion".into(), &"succeeded".into()));
    assert_eq!(deletion["details"]["deletedTasks"], 2);
    assert!(instance.task(0).is_null() && instance.task(1).is_null());
    assert_eq!(instance.task(2)["status"], "succeeded");
    let unbounded = World::new().start();
    for number in 0..21 {
        assert_eq!(register(&unbounded, create(&format!("i{number}")).into(), None), Ok(number));
    }
    assert_eq!(unbounded.task(20)["type"], "indexCreation");
}

/// Two requests at once each sent all switches as they had found them, so that one took back what the other had set.
#[test]
fn switches_are_set_one_by_one() {
    let instance = World::new().start();
    let set = |name| instance.handle.change(ControlChange::SetFeatures(FeaturesPatch(vec![(name, true)])));
    let (first, second) = instance.runtime.run(join(set("metrics"), set("network"))).expect("changing ends");
    assert!(first.is_ok() && second.is_ok());
    let features = instance.handle.state().features;
    assert!(features.metrics && features.network);
}
