//! Indexes that a batch makes, when it fails, is canceled or cut short by a crash.

use super::{create, processed};
use crate::control::indexes::IndexError;
use crate::control::testing::{Instance, NO_LIMITS, Stop, World, add};
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
