//! Queues of instances that come and go, and the times of long bodies.

use shards::timestamp::Timestamp;
use uuid::Uuid;

use super::*;
use crate::control::testing::{NO_LIMITS, World, clear};

/// The queue of an instance that was taken out of the network stayed, with the loop that works through it.
#[test]
fn a_queue_ends_with_its_instance() {
    let instance = World::new().start_with(NO_LIMITS, false);
    let plane = &instance.plane;
    let queues = || plane.outbox.queues.borrow().keys().cloned().collect::<Vec<_>>();
    // A task of this kind concerns its own instance alone.
    let nothing_to_send = instance.select(false, &[]);
    plane.use_network(network(&["a", "b", "c"]));
    for name in ["b", "c"] {
        drop(plane.enqueue_for(name.into(), nothing_to_send));
    }
    instance.runtime.settle();
    assert_eq!((queues(), plane.outbox.is_pending(nothing_to_send)), (vec!["b".to_owned(), "c".to_owned()], false));

    plane.use_network(network(&["a", "c"]));
    let told = plane.enqueue_for("b".into(), 8);
    instance.runtime.settle();
    assert_eq!((queues(), plane.outbox.is_pending(8)), (vec!["c".to_owned()], false));
    assert!(instance.runtime.run(told).is_some_and(|told| told.is_ok()), "what still waited is settled first");

    plane.use_network(network(&["a", "b", "c"]));
    drop(plane.enqueue_for("b".into(), nothing_to_send));
    instance.runtime.settle();
    assert_eq!((queues(), plane.outbox.is_pending(nothing_to_send)), (vec!["b".to_owned(), "c".to_owned()], false));
}

/// A deletion of finished tasks took those along that an instance which was away had still to receive; these were then
/// passed over, and the instance differed from the others for ever.
#[test]
fn what_an_instance_has_still_to_receive_is_not_deleted() {
    let instance = World::new().try_start_bounded(NO_LIMITS, true, Some(10)).expect("opening ends");
    let plane = &instance.plane;
    plane.use_network(network(&["a", "b"]));
    for at in 0..5 {
        instance.accept(clear(&format!("i{at}")));
    }
    instance.runtime.settle();
    // The instance is away: nobody works through its queue.
    let queue = Rc::new(RemoteQueue::default());
    queue.pending.borrow_mut().extend([0, 3]);
    plane.outbox.queues.borrow_mut().insert("b".into(), queue.clone());
    let deletion = instance.select(false, &[0, 1, 2, 3]);
    instance.runtime.settle();
    assert_eq!(instance.task(deletion)["details"]["deletedTasks"], 2);
    let is_there = |uid: u32| !instance.task(uid).is_null();
    assert_eq!([0, 1, 2, 3, 4].map(is_there), [true, false, false, true, true]);

    // Nor does the clean-up of a full queue take them; its share is one task.
    for at in 5..13 {
        instance.accept(clear(&format!("i{at}")));
        instance.runtime.settle();
    }
    assert_eq!([0, 3, 4].map(is_there), [true, true, false]);
    queue.pending.borrow_mut().clear();
    let deletion = instance.select(false, &[0, 3]);
    instance.runtime.settle();
    assert_eq!(instance.task(deletion)["details"]["deletedTasks"], 2);
}

/// A task that was gone was taken for one that the instance had refused, and those after it were sent.
#[test]
fn what_is_gone_stops_the_queue() {
    let instance = World::new().start_with(NO_LIMITS, false);
    let plane = &instance.plane;
    plane.use_network(network(&["a", "b"]));
    let nothing_to_send = instance.select(false, &[]);
    let told = plane.enqueue_for("b".into(), nothing_to_send + 7);
    drop(plane.enqueue_for("b".into(), nothing_to_send + 8));
    instance.runtime.settle();
    assert!(instance.runtime.run(told).is_some_and(|told| told.is_ok()), "the client is told");
    assert!(plane.outbox.is_pending(nothing_to_send + 7) && plane.outbox.is_pending(nothing_to_send + 8));
    // The way out is to remove the instance.
    plane.use_network(network(&["a"]));
    instance.runtime.settle();
    assert!(plane.outbox.pending().is_empty() && plane.outbox.queues.borrow().is_empty());
}

/// A canceled write stayed done on the instances that had it already.
#[test]
fn what_another_instance_has_is_not_canceled() {
    let instance = World::new().start_with(NO_LIMITS, false);
    let plane = &instance.plane;
    plane.use_network(network(&["a", "b"]));
    let accept = |uid, remote_tasks: &[(&str, Option<u32>)]| {
        let of_remote = |(name, task_uid): &(&str, Option<u32>)| {
            ((*name).to_owned(), RemoteTask { task_uid: *task_uid, ..RemoteTask::default() })
        };
        let remote_tasks = remote_tasks.iter().map(of_remote).collect();
        let network = TaskNetwork::Leader { remote_tasks, network_version: Uuid::nil() };
        let new = NewTask { network: Some(network), ..NewTask::from(clear("i").0) };
        plane.queue.borrow_mut().insert(Task::accepted(TaskUid(uid), new, Timestamp(0)));
    };
    accept(90, &[("b", Some(4))]);
    accept(91, &[("b", None)]);
    accept(92, &[]);
    let queue = Rc::new(RemoteQueue::default());
    queue.pending.borrow_mut().insert(92);
    plane.outbox.queues.borrow_mut().insert("b".into(), queue.clone());
    let may_cancel = |uid| plane.queue.borrow().held(TaskUid(uid)).map(|task| plane.may_cancel(task));
    assert_eq!([90, 91, 92].map(may_cancel), [Some(false), Some(true), Some(false)]);
    queue.pending.borrow_mut().clear();
    assert_eq!(may_cancel(92), Some(true));

    // Where the leader's tasks are taken in, one for a network that nobody knows may still be canceled.
    let led = Network { leader: Some("b".into()), ..Network::clone(&network(&["a", "b"])) };
    plane.use_network(Arc::new(led));
    let of = |remote_name: &str, network_version| {
        let origin = Origin { remote_name: remote_name.into(), task_uid: 1, network_version };
        let new = NewTask { network: Some(TaskNetwork::Origin(origin)), ..NewTask::from(clear("i").0) };
        plane.may_cancel(&Task::accepted(TaskUid(95), new, Timestamp(0)))
    };
    assert!(!of("b", Uuid::nil()) && of("b", Uuid::max()) && of("c", Uuid::nil()));
}

fn network(names: &[&str]) -> Arc<Network> {
    let remotes = names.iter().map(|name| ((*name).to_owned(), Remote::default())).collect();
    Arc::new(Network { own_name: Some("a".into()), remotes, ..Network::default() })
}

/// A body that took longer than one try may was sent from its beginning for ever, and held up all tasks after it.
#[test]
fn long_bodies_have_the_time_that_they_take_at_the_least_rate() {
    let patience = Patience::default();
    let seconds = Duration::from_secs;
    assert_eq!(patience.deadlines(0), Deadlines { connect: seconds(3), idle: seconds(30), total: seconds(30) });
    let long = patience.deadlines(100 << 20);
    assert_eq!(long, Deadlines { connect: seconds(3), idle: seconds(30 + 64), total: seconds(30 + 1600) });
    // As long as bytes move, only the whole body's time ends a try.
    for body_bytes in [1 << 10, 64 << 10, 4 << 20, 1 << 30] {
        let deadlines = patience.deadlines(body_bytes);
        assert!(deadlines.idle <= deadlines.total);
        assert!(deadlines.total.as_secs() * RATE_MIN >= body_bytes as u64);
    }
}
