//! All back ends against the same promises.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::io::{AsyncReadExt, AsyncWriteExt, split};
use futures_util::future::{LocalBoxFuture, join, join_all};
use storage_engine::io::OpenMode;
use storage_engine::io::mem::MemDisk;
use storage_engine::io::ring::Ring;
use storage_engine::io::system::SystemDisk;

use super::*;
use crate::mesh::Mesh;

type Start = fn(Rc<dyn Runtime>, Mesh<(), ()>) -> LocalBoxFuture<'static, ()>;

fn config(backend: Backend) -> CoresConfig {
    let config = CoresConfig::new(Arc::new(|_| Rc::new(MemDisk::default())));
    CoresConfig { backend, cores: Some(1), pin: false, ..config }
}

fn on_real_cores(start: Start) {
    for backend in [Backend::Glommio, Backend::Epoll] {
        assert_eq!(run_cores(config(backend), start).unwrap().join(), [], "{backend:?}");
    }
}

fn simulated(seed: u64, start: Start) -> SimCluster {
    let config = SimConfig::new(seed, 1, Rc::new(|_| Rc::new(MemDisk::default())));
    let cluster = SimCluster::new(&config, start);
    assert_eq!(cluster.run(1_000_000, Nanos(u64::MAX)), SimEnd::Finished(Vec::new()), "seed {seed}");
    cluster
}

fn on_all(start: Start) {
    on_real_cores(start);
    for seed in 0..20 {
        simulated(seed, start);
    }
}

/// Timers end in the order of their deadlines, none before its own.
#[test]
fn timers_end_in_order_and_not_early() {
    on_all(|runtime, _| {
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
    on_all(|runtime, _| {
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
    on_all(|runtime, _| {
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
    on_all(|runtime, _| {
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

/// Bytes go both ways through sockets that are full and empty in turn, and the end of a stream is seen.
#[test]
fn sockets_carry_what_is_sent() {
    on_real_cores(|runtime, _| {
        Box::pin(async move {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            let listener = runtime.listen(socket).unwrap();
            let served = runtime.clone();
            runtime.spawn(
                Queue::Search,
                Box::pin(async move {
                    loop {
                        let stream = listener.accept().await.unwrap();
                        let echo = async move {
                            let (reader, mut writer) = split(stream);
                            futures_lite::io::copy(reader, &mut writer).await.unwrap();
                            writer.close().await.unwrap();
                        };
                        served.spawn(Queue::Search, Box::pin(echo));
                    }
                }),
            );
            let talk = |length: usize| {
                let runtime = runtime.clone();
                async move {
                    let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
                    let (mut reader, mut writer) = split(runtime.connect(address).await.unwrap());
                    let write = async {
                        writer.write_all(&sent).await.unwrap();
                        writer.close().await.unwrap();
                    };
                    let mut received = Vec::new();
                    let read = async { reader.read_to_end(&mut received).await.unwrap() };
                    assert_eq!(join(write, read).await.1, length);
                    assert!(received == sent);
                }
            };
            // Larger than what the kernel takes at once.
            join_all([0, 1, 4096, 20_000_000].map(talk)).await;
        })
    });
}

/// A connection that nobody takes is an error for whoever asked for it, and not a wait.
#[test]
fn refused_connections_are_errors() {
    on_real_cores(|runtime, _| {
        Box::pin(async move {
            let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let refused = runtime.connect(unused).await.map(drop).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        })
    });
}

/// Indexing goes on beside searches that never stop, with a share of its own.
#[test]
fn no_queue_starves() {
    on_real_cores(|runtime, _| {
        Box::pin(async move {
            let turns: [Rc<std::cell::Cell<u64>>; 3] = Default::default();
            for (queue, turns) in [Queue::Search, Queue::Indexing, Queue::Upkeep].into_iter().zip(&turns) {
                let (busy, turns) = (runtime.clone(), turns.clone());
                let task = async move {
                    loop {
                        let until = busy.now().after(Duration::from_micros(100));
                        while busy.now() < until {}
                        turns.set(turns.get() + 1);
                        busy.yield_now().await;
                    }
                };
                runtime.spawn(queue, Box::pin(task));
            }
            // Few turns say little where other programs take the processor in the midst of some.
            let counted = || turns.each_ref().map(|turns| turns.get());
            let is_fair =
                |[search, indexing, upkeep]: [u64; 3]| upkeep >= 100 && search > indexing && indexing > upkeep;
            while !is_fair(counted()) && counted().iter().any(|turns| *turns < 2000) {
                runtime.sleep(Duration::from_millis(1)).await;
            }
            let [search, indexing, upkeep] = counted();
            assert!(search > indexing && indexing > upkeep, "{search} {indexing} {upkeep}");
        })
    });
}

/// What tasks hold is dropped when the core ends, also what waits for other threads.
#[test]
fn ending_a_core_drops_its_tasks() {
    static HELD: AtomicU64 = AtomicU64::new(0);
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            HELD.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let start: Start = |runtime, _| {
        Box::pin(async move {
            for _ in 0..100 {
                HELD.fetch_add(1, Ordering::SeqCst);
                let (held, busy) = (Held, runtime.clone());
                let task = async move {
                    let _held = held;
                    let _ = busy.side_thread(Box::new(|| ())).await;
                    busy.sleep(Duration::from_secs(3600)).await;
                };
                runtime.spawn(Queue::Upkeep, Box::pin(task));
            }
            runtime.yield_now().await;
        })
    };
    assert_eq!(run_cores(config(Backend::Epoll), start).unwrap().join(), []);
    assert_eq!(HELD.load(Ordering::SeqCst), 0);
}

/// A core that sleeps must hear of the end of a read, and not only when something else wakes it.
#[test]
fn a_ring_wakes_its_core() {
    let start: Start = |runtime, _| {
        Box::pin(async move {
            // Not where temporary files are: that may be memory, which has no reads past the page cache.
            let folder = tempfile::tempdir_in(".").unwrap();
            let opened = runtime.disk().open(&folder.path().join("file"), OpenMode::CreateNew).await;
            let (file, content) = (opened.unwrap(), (0..1 << 20).map(|at| (at / 5) as u8).collect::<Vec<u8>>());
            file.write_groups(vec![vec![(0, content.clone())]]).await.unwrap();
            let runtime = &runtime;
            for round in 0..50 {
                let reads = (0..=round).map(|number| (number * 7_919 + round, 3_000));
                let (file, content) = (&file, &content);
                let reads = reads.map(|(at, len)| async move {
                    let read = file.read_direct(at as u64, len);
                    let given_up = async { runtime.sleep(Duration::from_secs(20)).await };
                    let read = or(async { Some(read.await.unwrap()) }, async {
                        given_up.await;
                        None
                    })
                    .await;
                    assert!(read.expect("it ends") == content[at..at + len]);
                });
                join_all(reads).await;
            }
        })
    };
    let disk = |_| Rc::new(SystemDisk::over(Ring::new().unwrap())) as Rc<dyn Disk>;
    let config = CoresConfig { disk: Arc::new(disk), ..config(Backend::IoUring) };
    assert_eq!(run_cores(config, start).unwrap().join(), []);
}

/// Asking for no cores is a mistake of the caller, told as such.
#[test]
fn no_cores_is_an_error() {
    for backend in [Backend::Glommio, Backend::Epoll] {
        let started = run_cores(CoresConfig { cores: Some(0), ..config(backend) }, |_, _: Mesh<(), ()>| async {});
        assert!(matches!(started.err(), Some(StartError::NoCores)));
    }
}
