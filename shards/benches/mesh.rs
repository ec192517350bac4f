//! What a question to another core costs: with both cores asleep, awake, and with the other core indexing. The same round
//! trip over glommio's own channel stands beside it. Medians count: on a shared machine the tails are the neighbours'.
//!
//! `cargo bench -p shards --bench mesh`

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use glommio::channels::shared_channel;
use glommio::{LocalExecutorBuilder, Placement, PoolPlacement};
use shards::ids::CoreId;
use shards::mesh::Mesh;
use shards::runtime::{Checkpoint, CoresConfig, Queue, Runtime, once, run_cores};
use storage_engine::io::mem::MemDisk;

const ASLEEP_ROUNDS: usize = 1_000;
const AWAKE_ROUNDS: usize = 20_000;
const PIPELINED_ROUNDS: usize = 500;
const PIPELINED_OPEN: u64 = 64;
/// Long enough for a core to fall asleep.
const PAUSE: Duration = Duration::from_micros(300);

fn show(what: &str, mut samples: Vec<Duration>) {
    samples.sort_unstable();
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1000.0;
    println!("{what:<44} p50 {:>8.2}  p90 {:>8.2}  p99 {:>9.2} us", at(0.5), at(0.9), at(0.99));
}

async fn ask_in_turn(runtime: &dyn Runtime, mesh: &Mesh<u64, u64>, rounds: usize, pause: Duration) -> Vec<Duration> {
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..rounds as u64 {
        if !pause.is_zero() {
            runtime.sleep(pause).await;
        }
        let before = Instant::now();
        let answer = mesh.ask(CoreId(1), round).await;
        samples.push(before.elapsed());
        assert_eq!(answer, Ok(round + 1));
    }
    samples
}

/// Keeps core 1 indexing for as long as the sender lives.
const INDEX_ON: u64 = u64::MAX - 1;
/// Ends it, and core 1's own wait.
const END: u64 = u64::MAX;

fn mesh_rounds() {
    let mut config = CoresConfig::new(Arc::new(|_| Rc::new(MemDisk::default())));
    config.cores = Some(2);
    let cores = run_cores(config, move |runtime, mesh: Mesh<u64, u64>| async move {
        let (end, ended) = once::<()>();
        let end = Rc::new(std::cell::RefCell::new(Some(end)));
        let own = runtime.clone();
        mesh.serve(Rc::new(move |_, question| {
            match question {
                INDEX_ON => index_for_ever(&own),
                END => drop(end.borrow_mut().take()),
                _ => {}
            }
            Box::pin(std::future::ready(question.wrapping_add(1)))
        }));
        if mesh.core() == CoreId(1) {
            ended.await;
            return;
        }
        show("mesh, both asleep", ask_in_turn(&*runtime, &mesh, ASLEEP_ROUNDS, PAUSE).await);
        show("mesh, one after the other", ask_in_turn(&*runtime, &mesh, AWAKE_ROUNDS, Duration::ZERO).await);
        let mut samples = Vec::new();
        for _ in 0..PIPELINED_ROUNDS {
            let before = Instant::now();
            join_all((0..PIPELINED_OPEN).map(|number| mesh.ask(CoreId(1), number))).await;
            samples.push(before.elapsed() / PIPELINED_OPEN as u32);
        }
        show("mesh, 64 open, each", samples);
        // The answer is the greeting of a core that indexes from then on.
        assert_eq!(mesh.ask(CoreId(1), INDEX_ON).await, Ok(END));
        show("mesh, the other core indexing", ask_in_turn(&*runtime, &mesh, ASLEEP_ROUNDS, PAUSE).await);
        let _ = mesh.ask(CoreId(1), END).await;
    });
    assert!(cores.expect("cores start").join().is_empty());
}

fn index_for_ever(runtime: &Rc<dyn Runtime>) {
    let own = runtime.clone();
    runtime.spawn(
        Queue::Indexing,
        Box::pin(async move {
            let (mut checkpoint, mut sum) = (Checkpoint::default(), 0u64);
            loop {
                for number in 0..200u64 {
                    sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
                }
                checkpoint.tick(&*own).await;
            }
        }),
    );
}

/// The alternative: glommio's channel, one for each direction.
fn channel_rounds() {
    let (to, at) = shared_channel::new_bounded::<u64>(256);
    let (back, here) = shared_channel::new_bounded::<u64>(256);
    let builder = |cpu| {
        LocalExecutorBuilder::new(Placement::Fixed(cpu))
            .io_memory(64 << 10)
            .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
    };
    let server = builder(1).spawn(move || async move {
        let (at, back) = futures_util::future::join(at.connect(), back.connect()).await;
        while let Some(question) = at.recv().await {
            if back.send(question + 1).await.is_err() {
                return;
            }
        }
    });
    let client = builder(0).spawn(move || async move {
        let (to, here) = futures_util::future::join(to.connect(), here.connect()).await;
        for (what, rounds, pause) in [
            ("glommio channel, both asleep", ASLEEP_ROUNDS, PAUSE),
            ("glommio channel, one after the other", AWAKE_ROUNDS, Duration::ZERO),
        ] {
            let mut samples = Vec::new();
            for round in 0..rounds as u64 {
                if !pause.is_zero() {
                    glommio::timer::sleep(pause).await;
                }
                let before = Instant::now();
                to.send(round).await.expect("the server lives");
                assert_eq!(here.recv().await, Some(round + 1));
                samples.push(before.elapsed());
            }
            show(what, samples);
        }
    });
    client.expect("an executor").join().expect("no panic");
    server.expect("an executor").join().expect("no panic");
}

fn main() {
    // `cargo test --benches` only wants to know that this builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    mesh_rounds();
    channel_rounds();
}
