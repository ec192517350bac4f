//! Queues of instances that come and go, and the times of long bodies.

use super::*;
use crate::control::testing::{NO_LIMITS, World};

/// The queue of an instance that was taken out of the network stayed, with the loop that works through it.
#[test]
fn a_queue_ends_with_its_instance() {
    let instance = World::new().start_with(NO_LIMITS, false);
    let plane = &instance.plane;
    let network = |names: &[&str]| {
        let remotes = names.iter().map(|name| ((*name).to_owned(), Remote::default())).collect();
        Arc::new(Network { own_name: Some("a".into()), remotes, ..Network::default() })
    };
    let queues = || plane.outbox.queues.borrow().keys().cloned().collect::<Vec<_>>();
    plane.use_network(network(&["a", "b", "c"]));
    // No such task is here, so there is nothing to be sent.
    for name in ["b", "c"] {
        drop(plane.enqueue_for(name.into(), 7));
    }
    instance.runtime.settle();
    assert_eq!((queues(), plane.outbox.is_pending(7)), (vec!["b".to_owned(), "c".to_owned()], false));

    plane.use_network(network(&["a", "c"]));
    let told = plane.enqueue_for("b".into(), 8);
    instance.runtime.settle();
    assert_eq!((queues(), plane.outbox.is_pending(8)), (vec!["c".to_owned()], false));
    assert!(instance.runtime.run(told).is_some_and(|told| told.is_ok()), "what still waited is settled first");

    plane.use_network(network(&["a", "b", "c"]));
    drop(plane.enqueue_for("b".into(), 9));
    instance.runtime.settle();
    assert_eq!((queues(), plane.outbox.is_pending(9)), (vec!["b".to_owned(), "c".to_owned()], false));
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
