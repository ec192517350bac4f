//! Both runtimes against the same promises.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, join_all};
use storage_engine::io::mem::MemDisk;

use super::*;
use crate::mesh::Mesh;

type Start = fn(Rc<dyn Runtime>, Mesh<(), ()>) -> LocalBoxFuture<'static, ()>;

fn on_glommio(start: Start) {
    let mut config = CoresConfig::new(Arc::new(|_| Rc::new(MemDisk::default())));
    (config.cores, config.pin) = (Some(1), false);
    assert_eq!(run_cores(config, start).unwrap().join(), []);
}

fn simulated(seed: u64, start: Start) -> SimCluster {
    let config = SimConfig::new(seed, 1, Rc::new(|_| Rc::new(MemDisk::default())));
    let cluster = SimCluster::new(&config, start);
    assert_eq!(cluster.run(1_000_000, Nanos(u64::MAX)), SimEnd::Finished(Vec::new()), "seed {seed}");
    cluster
}

fn on_both(start: Start) {
    on_glommio(start);
    for seed in 0..20 {
        simulated(seed, start);
    }
}

/// Timers end in the order of their deadlines, none before its own.
#[test]
fn timers_end_in_order_and_not_early() {
    on_both(|runtime, _| {
        Box::pin(async move {
            let ended = Rc::new(RefCell::new(Vec::new()));
            let sleepers = [30u64, 10, 20].map(|millis| {
                let (runtime, ended) = (runtime.clone(), ended.clone());
                async move {
                    let before = runtime.now();
                    runtime.sleep(Duration::from_millis(millis)).await;
                    assert!(runtime.now().since(before) >= Duration::from_millis(millis));
                    ended.borrow_mut().push(millis);
                }
            });
            join_all(sleepers).await;
            assert_eq!(*ended.borrow(), [10, 20, 30]);
        })
    });
}

/// A day of waiting must cost no time in simulation.
#[test]
fn virtual_time_jumps() {
    let cluster = simulated(3, |runtime, _| {
        Box::pin(async move {
            let before = runtime.unix_time();
            runtime.sleep(Duration::from_secs(86_400)).await;
            assert!(runtime.unix_time() - before >= Duration::from_secs(86_400));
        })
    });
    assert!(cluster.steps() < 100);
    assert!(cluster.now() >= Nanos(86_400_000_000_000));
}

/// Waiting for what never comes must be found, not waited for.
#[test]
fn a_deadlock_is_found() {
    let config = SimConfig::new(1, 2, Rc::new(|_| Rc::new(MemDisk::default())));
    let cluster = SimCluster::new(&config, |_, _: Mesh<(), ()>| std::future::pending());
    assert_eq!(cluster.run(1_000, Nanos(u64::MAX)), SimEnd::Stuck);
}

/// A simulated crash drops everything; what a test counts as leaked would otherwise add up over thousands of seeds.
#[test]
fn dropping_the_cluster_drops_its_tasks() {
    let witness = Rc::new(());
    let config = SimConfig::new(1, 1, Rc::new(|_| Rc::new(MemDisk::default())));
    let held = witness.clone();
    let cluster = SimCluster::new(&config, move |runtime: Rc<dyn Runtime>, _: Mesh<(), ()>| {
        let held = held.clone();
        async move {
            runtime.sleep(Duration::from_secs(1)).await;
            drop(held);
        }
    });
    cluster.run(2, Nanos(u64::MAX));
    assert!(Rc::strong_count(&witness) > 1);
    drop(cluster);
    assert_eq!(Rc::strong_count(&witness), 1);
}

/// A task's panic ends that task alone; its core and the others on it go on.
#[test]
fn a_panic_ends_only_its_task() {
    on_both(|runtime, _| {
        Box::pin(async move {
            let (sender, receiver) = once::<u32>();
            runtime.spawn(
                Queue::Indexing,
                Box::pin(async move {
                    let _held = sender;
                    panic!("on purpose");
                }),
            );
            assert_eq!(receiver.await, None, "what the task held is dropped");
            let (sender, receiver) = once();
            runtime.spawn(Queue::Upkeep, Box::pin(async move { sender.send(7) }));
            assert_eq!(receiver.await, Some(7));
        })
    });
}

/// A long loop with checkpoints must let a search in; without them it would wait for the whole loop.
#[test]
fn checkpoints_let_others_in() {
    on_both(|runtime, _| {
        Box::pin(async move {
            let loops = Rc::new(std::cell::Cell::new(0u64));
            let (stop, stopped) = once::<()>();
            let (counted, background) = (loops.clone(), runtime.clone());
            runtime.spawn(
                Queue::Indexing,
                Box::pin(async move {
                    let mut checkpoint = Checkpoint::default();
                    while !stop.is_abandoned() {
                        counted.set(counted.get() + 1);
                        checkpoint.tick(&*background).await;
                    }
                }),
            );
            for _ in 0..3 {
                let before = loops.get();
                runtime.sleep(Duration::from_millis(2)).await;
                assert!(loops.get() > before, "the loop goes on in between");
            }
            drop(stopped);
        })
    });
}

/// Jobs on side threads: results, panics, and that waiting for one does not stop the core.
#[test]
fn side_threads_work_beside_the_core() {
    on_both(|runtime, _| {
        Box::pin(async move {
            let count = Arc::new(AtomicU64::new(0));
            let counted = count.clone();
            let job = runtime.side_thread(Box::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }));
            assert_eq!(job.await, Ok(()));
            assert_eq!(count.load(Ordering::Relaxed), 1);
            let failed = runtime.side_thread(Box::new(|| panic!("broken"))).await;
            assert_eq!(failed, Err(SideThreadError::Panicked("broken".to_owned())));
        })
    });
}

/// Asking for no cores is a mistake of the caller, told as such.
#[test]
fn no_cores_is_an_error() {
    let mut config = CoresConfig::new(Arc::new(|_| Rc::new(MemDisk::default())));
    config.cores = Some(0);
    let started = run_cores(config, |_, _: Mesh<(), ()>| async {});
    assert!(matches!(started.err(), Some(StartError::NoCores)));
}
