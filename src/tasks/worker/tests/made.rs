//! Indexes that a batch makes, when it fails, is canceled or cut short by a crash.

use std::sync::Arc;

use super::{create, processed};
use crate::control::indexes::IndexError;
use crate::control::testing::{Instance, NO_LIMITS, Stop, World, add};
use crate::network::{Network, Shard};
use crate::tasks::task::Content;

/// An index whose first batch fails or is canceled is seen by everybody, but another creation once passed for the repeated first
/// one, which a crash had cut short.
#[test]
fn an_index_stands_though_the_batch_that_made_it_failed_or_was_canceled() {
    let code = |instance: &Instance, uid| instance.task(uid)["error"]["code"].clone();
    let made_again = |instance: &Instance| {
        let uid = instance.accept(create("a"));
        instance.runtime.settle();
        code(instance, uid)
    };
    let world = World::new();
    let instance = world.start();
    world.indexes.failure.replace(Some(IndexError::Failed("it was to fail".into())));
    instance.accept(add("a", r#"[{"id":1}]"#));
    instance.runtime.settle();
    assert_eq!(code(&instance, 0), "internal");
    assert_eq!(made_again(&instance), "index_already_exists");
    drop(instance);
    assert_eq!(made_again(&world.start()), "index_already_exists");

    for is_killed in [false, true] {
        let world = World::new();
        world.indexes.set_stop(Stop::DuringPrepare);
        let mut instance = processed(&world, vec![add("a", r#"[{"id":1}]"#)]);
        if is_killed {
            drop(instance);
            instance = world.start_with(NO_LIMITS, false);
        }
        instance.select(true, &[0]);
        world.indexes.set_stop(Stop::Nowhere);
        if is_killed {
            drop(instance);
            instance = world.start();
        }
        instance.runtime.settle();
        assert_eq!(instance.fates(0..2), ["canceled@0 0", "succeeded@0 1"]);
        assert_eq!((instance.ids("a"), made_again(&instance)), (Some(Vec::new()), "index_already_exists".into()));
    }
}

/// A creation that a crash cut short is repeated, and finds what it made.
#[test]
fn a_creation_that_was_cut_short_succeeds() {
    let world = World::new();
    world.indexes.set_stop(Stop::DuringPrepare);
    let with_key = Content::IndexCreation { index: "a".into(), primary_key: Some("id".into()) };
    drop(processed(&world, vec![(with_key, None)]));
    world.indexes.set_stop(Stop::Nowhere);
    let instance = world.start();
    instance.runtime.settle();
    assert_eq!((instance.fates(0..1), world.indexes.len()), (vec!["succeeded@0".to_string()], 1));
}

/// As above; what is canceled meanwhile is about the same index, but has not begun it.
#[test]
fn a_creation_that_was_cut_short_succeeds_though_a_later_task_is_canceled() {
    let world = World::new();
    world.indexes.set_stop(Stop::DuringPrepare);
    let with_key = Content::IndexCreation { index: "a".into(), primary_key: Some("id".into()) };
    drop(processed(&world, vec![(with_key, None), add("a", r#"[{"id":1}]"#)]));
    world.indexes.set_stop(Stop::Nowhere);
    let waiting = world.start_with(NO_LIMITS, false);
    waiting.select(true, &[1]);
    drop(waiting);
    let instance = world.start();
    instance.runtime.settle();
    assert_eq!(instance.fates(0..2), ["succeeded@1", "canceled@0 0"]);
}

/// Has the instance be the only one of a network, as it would be after a start.
fn join_network(instance: &Instance) {
    let shard = Shard { remotes: ["me".to_string()].into() };
    let network = Network {
        own_name: Some("me".into()),
        leader: Some("me".into()),
        shards: [("s1".to_string(), shard)].into(),
        ..Network::default()
    };
    instance.plane.network.replace(Arc::new(network));
}

/// A crash between the making of an index and the second commit, which has it know the network shards, once kept it outside of
/// them for good: each search asked for a shard that it did not know.
#[test]
fn an_index_knows_the_network_shards_after_a_crash_while_it_was_made() {
    let shards = |instance: &Instance| instance.handle.state().index("a").unwrap().settings.network_shards.clone();
    for stop in [Stop::BeforeCreate, Stop::DuringPrepare, Stop::BeforeCommit, Stop::AfterCommit] {
        for new in [add("a", r#"[{"id":1}]"#), create("a")] {
            let world = World::new();
            let killed = world.start();
            join_network(&killed);
            world.indexes.set_stop(stop);
            killed.accept(new);
            killed.runtime.settle();
            drop(killed);
            world.indexes.set_stop(Stop::Nowhere);
            let instance = world.start();
            join_network(&instance);
            instance.runtime.settle();
            assert_eq!(instance.task(0)["status"], "succeeded", "{stop:?}");
            assert_eq!(shards(&instance), ["s1".to_string()].into(), "{stop:?}");
            assert_eq!(world.indexes.len(), 1, "{stop:?}");
        }
    }
}

/// An index that could not be told the network shards was never seen, and the next of its name left its storage lying.
#[test]
fn nothing_is_left_of_an_index_that_cannot_know_the_network_shards() {
    let world = World::new();
    let instance = world.start();
    join_network(&instance);
    world.indexes.failure.replace(Some(IndexError::Failed("it was to fail".into())));
    instance.accept(create("a"));
    instance.runtime.settle();
    assert_eq!((instance.ids("a"), world.indexes.len()), (None, 0));
    drop(instance);
    let instance = world.start();
    assert_eq!(instance.ids("a"), None);
    instance.accept(create("a"));
    instance.runtime.settle();
    let status = |uid| instance.task(uid)["status"].clone();
    assert_eq!((status(0), status(1), world.indexes.len()), ("failed".into(), "succeeded".into(), 1));
}
