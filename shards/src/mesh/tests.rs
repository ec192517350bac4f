//! One body of code on both back ends: what holds on real cores is explored in the simulator under many interleavings.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture, join_all};
use storage_engine::io::mem::MemDisk;

use super::*;
use crate::runtime::{Backend, CoresConfig, Nanos, SimCluster, SimConfig, SimEnd, run_cores};

/// Questions of the tests; the answers are numbers.
enum Ask {
    Double(u64),
    /// Asks the core this one came from, which then answers without waiting.
    Back(u64),
    Panic,
    Never,
    /// Goes on until it is dropped. The tally counts one at its begin and [`ENDED`] at its end.
    Search(Tally),
    /// Is long and may not be dropped. The tally counts [`WRITTEN`] when all is done.
    Write(Tally),
    /// Counts one core as done.
    Done,
}

/// What the end of a search counts.
const ENDED: u64 = 1 << 20;
/// What a write counts.
const WRITTEN: u64 = 1 << 40;

struct Ended(Tally);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(ENDED, Ordering::Relaxed);
    }
}

fn manner_of(ask: &Ask) -> Manner {
    let queue = if matches!(ask, Ask::Back(_)) { Queue::Indexing } else { Queue::Search };
    Manner { queue, is_droppable: matches!(ask, Ask::Search(_)) }
}

type TestMesh = Mesh<Ask, u64>;
type Body = fn(Rc<dyn Runtime>, TestMesh, Rc<Cell<u16>>, Tally) -> LocalBoxFuture<'static, ()>;
/// What the cores report to the test.
type Tally = Arc<AtomicU64>;

fn handler(mesh: TestMesh, runtime: Rc<dyn Runtime>, done: Rc<Cell<u16>>) -> Handler<Ask, u64> {
    Rc::new(move |from, ask| {
        let (mesh, runtime, done) = (mesh.clone(), runtime.clone(), done.clone());
        Box::pin(async move {
            match ask {
                Ask::Double(number) => number * 2,
                Ask::Back(number) => mesh.ask(from, Ask::Double(number)).await.map_or(0, |twice| twice + 1),
                Ask::Panic => panic!("asked to"),
                Ask::Never => {
                    runtime.sleep(Duration::from_secs(3600)).await;
                    0
                }
                Ask::Search(tally) => {
                    tally.fetch_add(1, Ordering::Relaxed);
                    let _ended = Ended(tally);
                    loop {
                        runtime.yield_now().await;
                    }
                }
                Ask::Write(tally) => {
                    for _ in 0..100 {
                        runtime.yield_now().await;
                    }
                    tally.fetch_add(WRITTEN, Ordering::Relaxed)
                }
                Ask::Done => {
                    done.set(done.get() + 1);
                    0
                }
            }
        })
    })
}

/// Runs a body on every core, then waits until every core is done before any closes.
fn whole(
    body: Body,
    tally: Tally,
) -> impl Fn(Rc<dyn Runtime>, TestMesh) -> LocalBoxFuture<'static, ()> + Clone + Send + 'static {
    move |runtime, mesh| {
        let tally = tally.clone();
        Box::pin(async move {
            let done = Rc::new(Cell::new(0));
            mesh.serve_in(Rc::new(manner_of), handler(mesh.clone(), runtime.clone(), done.clone()));
            body(runtime.clone(), mesh.clone(), done.clone(), tally).await;
            for core in 0..runtime.core_count() {
                mesh.ask(CoreId(core), Ask::Done).await.unwrap();
            }
            while done.get() < runtime.core_count() {
                runtime.sleep(Duration::from_micros(200)).await;
            }
        })
    }
}

fn config(backend: Backend, cores: u16) -> CoresConfig {
    let config = CoresConfig::new(Arc::new(|_| Rc::new(MemDisk::default())));
    CoresConfig { backend, cores: Some(cores), pin: false, ..config }
}

/// On both backends; what the tally says after each.
fn on_real_cores(cores: u16, in_flight_max: u16, body: Body) -> [u64; 2] {
    [Backend::Glommio, Backend::Epoll].map(|backend| {
        let tally = Tally::default();
        let config = CoresConfig { in_flight_max, ..config(backend, cores) };
        let failed = run_cores(config, whole(body, tally.clone())).unwrap().join();
        assert_eq!(failed, [], "{backend:?}");
        tally.load(Ordering::Relaxed)
    })
}

fn simulated(seed: u64, cores: u16, in_flight_max: u16, body: Body) -> (u64, u64) {
    let tally = Tally::default();
    let mut config = SimConfig::new(seed, cores, Rc::new(|_| Rc::new(MemDisk::default())));
    config.in_flight_max = in_flight_max;
    let cluster = SimCluster::new(&config, whole(body, tally.clone()));
    let end = cluster.run(5_000_000, Nanos(u64::MAX));
    assert_eq!(end, SimEnd::Finished(Vec::new()), "seed {seed}");
    (tally.load(Ordering::Relaxed), cluster.trace_hash())
}

fn everybody_asks_everybody(
    runtime: Rc<dyn Runtime>,
    mesh: TestMesh,
    _: Rc<Cell<u16>>,
    tally: Tally,
) -> LocalBoxFuture<'static, ()> {
    Box::pin(async move {
        let questions =
            (0..runtime.core_count()).flat_map(|core| (0..100u64).map(move |number| (CoreId(core), number)));
        let answers = join_all(questions.map(|(core, number)| {
            let answer = mesh.ask(core, Ask::Double(number));
            async move { (number, answer.await) }
        }));
        for (number, answer) in answers.await {
            assert_eq!(answer, Ok(number * 2));
            tally.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Every question reaches the right core and its answer the one who asked it. Each pair has 100 askers in both directions at
/// once over 8 credits: with both directions full, everybody must still get through.
#[test]
fn every_question_has_its_answer_on_real_cores() {
    for cores in [1, 2, 5] {
        let asked = 100 * u64::from(cores) * u64::from(cores);
        assert_eq!(on_real_cores(cores, 8, everybody_asks_everybody), [asked; 2], "{cores} cores");
    }
}

#[test]
fn every_question_has_its_answer_in_simulation() {
    for seed in 0..20 {
        for cores in [1, 2, 5] {
            let asked = 100 * u64::from(cores) * u64::from(cores);
            assert_eq!(simulated(seed, cores, 8, everybody_asks_everybody).0, asked);
        }
    }
}

/// Reproducing a failure needs the interleaving back from its seed; exploring needs other seeds to give others.
#[test]
fn the_seed_decides_the_interleaving() {
    let hashes: Vec<u64> = (0..10).map(|seed| simulated(seed, 3, 4, everybody_asks_everybody).1).collect();
    let again: Vec<u64> = (0..10).map(|seed| simulated(seed, 3, 4, everybody_asks_everybody).1).collect();
    assert_eq!(hashes, again);
    for (place, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..place].contains(hash), "two seeds with one interleaving");
    }
}

fn questions_within_questions(
    runtime: Rc<dyn Runtime>,
    mesh: TestMesh,
    _: Rc<Cell<u16>>,
    tally: Tally,
) -> LocalBoxFuture<'static, ()> {
    Box::pin(async move {
        let others = (0..runtime.core_count()).filter(|&core| core != mesh.core().0);
        let questions = others.flat_map(|core| (0..200u64).map(move |number| (CoreId(core), number)));
        let answers = join_all(questions.map(|(core, number)| {
            let answer = mesh.ask(core, Ask::Back(number));
            async move { (number, answer.await) }
        }));
        for (number, answer) in answers.await {
            assert_eq!(answer, Ok(number * 2 + 1));
            tally.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Handlers may ask while they answer, in both directions at once, as long as credits are left for their questions.
#[test]
fn handlers_that_ask_back_get_through() {
    assert_eq!(on_real_cores(2, 256, questions_within_questions), [400; 2]);
    for seed in 0..20 {
        assert_eq!(simulated(seed, 2, 256, questions_within_questions).0, 400);
    }
}

fn panics_are_answers(
    runtime: Rc<dyn Runtime>,
    mesh: TestMesh,
    _: Rc<Cell<u16>>,
    tally: Tally,
) -> LocalBoxFuture<'static, ()> {
    Box::pin(async move {
        for core in (0..runtime.core_count()).map(CoreId) {
            assert_eq!(mesh.ask(core, Ask::Panic).await, Err(AskError::HandlerPanicked { core }));
            assert_eq!(mesh.ask(core, Ask::Double(4)).await, Ok(8));
        }
        let nobody = CoreId(runtime.core_count());
        assert_eq!(mesh.ask(nobody, Ask::Double(1)).await, Err(AskError::Nobody { core: nobody }));
        tally.fetch_add(1, Ordering::Relaxed);
    })
}

/// A defect in one handler must reach its asker as an error and must not cost the core.
#[test]
fn a_panicking_handler_is_an_error_for_the_asker_only() {
    assert_eq!(on_real_cores(2, 4, panics_are_answers), [2; 2]);
    assert_eq!(simulated(1, 3, 4, panics_are_answers).0, 3);
}

fn credits_run_out(
    runtime: Rc<dyn Runtime>,
    mesh: TestMesh,
    _: Rc<Cell<u16>>,
    tally: Tally,
) -> LocalBoxFuture<'static, ()> {
    Box::pin(async move {
        if mesh.core() != CoreId(0) {
            return;
        }
        let peer = CoreId(1);
        let open: Vec<_> = (0..4).map(|number| mesh.try_ask(peer, Ask::Double(number)).unwrap()).collect();
        assert_eq!(mesh.try_ask(peer, Ask::Double(9)).err(), Some(AskError::Busy { core: peer }));
        // Giving up on an answer does not free its credit before the answer is here: the peer still works on it.
        drop(open);
        assert_eq!(mesh.try_ask(peer, Ask::Double(9)).err(), Some(AskError::Busy { core: peer }));
        assert_eq!(mesh.ask(peer, Ask::Double(9)).await, Ok(18));
        runtime.sleep(Duration::from_millis(20)).await;
        for _ in 0..4 {
            tally.fetch_add(u64::from(mesh.try_ask(peer, Ask::Double(9)).is_ok()), Ordering::Relaxed);
        }
    })
}

/// A search that finds no credit must be refused at once, and credits of answers nobody waits for must come back.
#[test]
fn exhausted_credits_refuse_and_return() {
    assert_eq!(on_real_cores(2, 4, credits_run_out), [4; 2]);
    for seed in 0..20 {
        assert_eq!(simulated(seed, 2, 4, credits_run_out).0, 4);
    }
}

fn askers_give_up(
    runtime: Rc<dyn Runtime>,
    mesh: TestMesh,
    _: Rc<Cell<u16>>,
    tally: Tally,
) -> LocalBoxFuture<'static, ()> {
    Box::pin(async move {
        if mesh.core() != CoreId(0) {
            return;
        }
        // The own core's handler runs within the future.
        for core in (0..2).map(CoreId) {
            let counted = Tally::default();
            let until = async |reached: &dyn Fn(u64) -> bool| {
                while !reached(counted.load(Ordering::Relaxed)) {
                    runtime.sleep(Duration::from_millis(1)).await;
                }
            };
            // More of them than there are credits.
            for round in 1..=5 {
                let mut answer = mesh.ask(core, Ask::Search(counted.clone()));
                assert_eq!((&mut answer).now_or_never(), None);
                until(&|count| count == round + (round - 1) * ENDED).await;
                assert_eq!((&mut answer).now_or_never(), None);
                drop(answer);
                until(&|count| count == round * (1 + ENDED)).await;
            }
            // One that is given up before the other core has seen it.
            assert_eq!(mesh.ask(core, Ask::Search(counted.clone())).now_or_never(), None);
            assert_eq!(mesh.ask(core, Ask::Double(4)).await, Ok(8));
            until(&|count| count % ENDED == count / ENDED).await;
            if core != mesh.core() {
                assert_eq!(mesh.ask(core, Ask::Write(counted.clone())).now_or_never(), None);
                until(&|count| count >= WRITTEN).await;
            }
            tally.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// A search whose client has gone once went on on the other cores to its end. What writes has to.
#[test]
fn what_may_be_dropped_ends_with_its_asker_and_nothing_else() {
    assert_eq!(on_real_cores(2, 2, askers_give_up), [2; 2]);
    for seed in 0..20 {
        assert_eq!(simulated(seed, 2, 2, askers_give_up).0, 2);
    }
}

fn answers_are_left(
    runtime: Rc<dyn Runtime>,
    mesh: TestMesh,
    _: Rc<Cell<u16>>,
    tally: Tally,
) -> LocalBoxFuture<'static, ()> {
    Box::pin(async move {
        if mesh.core() != CoreId(0) {
            return;
        }
        let core = CoreId(1);
        let first = mesh.try_ask(core, Ask::Double(1)).unwrap();
        // Once there is a credit again, the first answer is here, and its ticket another's.
        let counted = Tally::default();
        let mut second = mesh.ask(core, Ask::Search(counted.clone()));
        while counted.load(Ordering::Relaxed) == 0 {
            assert_eq!((&mut second).now_or_never(), None);
            runtime.sleep(Duration::from_millis(1)).await;
        }
        drop(first);
        runtime.sleep(Duration::from_millis(5)).await;
        assert_eq!(((&mut second).now_or_never(), counted.load(Ordering::Relaxed)), (None, 1));
        drop(second);
        tally.fetch_add(1, Ordering::Relaxed);
    })
}

/// An answer that has come and is dropped unread marks no question, though its ticket names another by then.
#[test]
fn an_unread_answer_gives_nobody_elses_question_up() {
    assert_eq!(on_real_cores(2, 1, answers_are_left), [1; 2]);
    for seed in 0..20 {
        assert_eq!(simulated(seed, 2, 1, answers_are_left).0, 1);
    }
}

/// Core 1 ends at once; core 0 has questions open there and asks more.
fn core_one_leaves(tally: Tally) -> impl Fn(Rc<dyn Runtime>, TestMesh) -> LocalBoxFuture<'static, ()> + Clone + Send {
    move |runtime, mesh| {
        let tally = tally.clone();
        Box::pin(async move {
            mesh.serve(handler(mesh.clone(), runtime.clone(), Rc::default()));
            if mesh.core() == CoreId(1) {
                runtime.sleep(Duration::from_millis(5)).await;
                assert!(tally.load(Ordering::Relaxed) > 100, "a panic of the start future ends the core");
            }
            let core = CoreId(1);
            let closed = Err(AskError::Closed { core });
            // Two wait for the answer, the third for a credit.
            let open = join_all((0..3).map(|_| mesh.ask(core, Ask::Never)));
            assert_eq!(open.await, vec![closed.clone(), closed.clone(), closed.clone()]);
            assert_eq!(mesh.ask(core, Ask::Double(1)).await, closed);
            mesh.ended(core).await;
            tally.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// An instance that shuts down, or loses a core to a defect, must not leave requests on other cores waiting for ever.
#[test]
fn a_core_that_ends_fails_the_questions_it_has() {
    for backend in [Backend::Glommio, Backend::Epoll] {
        let tally = Tally::default();
        let config = CoresConfig { in_flight_max: 2, ..config(backend, 2) };
        let failed = run_cores(config, core_one_leaves(tally.clone())).unwrap().join();
        assert_eq!(failed.iter().map(|(core, _)| *core).collect::<Vec<_>>(), [CoreId(1)], "{backend:?}");
        assert_eq!(tally.load(Ordering::Relaxed), 1);
    }
    for seed in 0..20 {
        let tally = Tally::default();
        let mut config = SimConfig::new(seed, 2, Rc::new(|_| Rc::new(MemDisk::default())));
        config.in_flight_max = 2;
        let end = SimCluster::new(&config, core_one_leaves(tally.clone())).run(100_000, Nanos(u64::MAX));
        assert!(matches!(end, SimEnd::Finished(failed) if failed.len() == 1));
        assert_eq!(tally.load(Ordering::Relaxed), 1);
    }
}

/// Core 1 ends after a while; core 0 has nothing open there. The tally counts what has happened.
fn core_one_leaves_unasked(
    tally: Tally,
) -> impl Fn(Rc<dyn Runtime>, TestMesh) -> LocalBoxFuture<'static, ()> + Clone + Send {
    move |runtime, mesh| {
        let tally = tally.clone();
        Box::pin(async move {
            mesh.serve(handler(mesh.clone(), runtime.clone(), Rc::default()));
            if mesh.core() == CoreId(1) {
                while tally.load(Ordering::Relaxed) == 0 {
                    runtime.sleep(Duration::from_millis(1)).await;
                }
                runtime.sleep(Duration::from_millis(5)).await;
                tally.fetch_add(1, Ordering::Relaxed);
                return;
            }
            assert_eq!(mesh.ended(CoreId(1)).now_or_never(), None);
            tally.fetch_add(1, Ordering::Relaxed);
            mesh.ended(CoreId(1)).await;
            assert_eq!(tally.load(Ordering::Relaxed), 2);
            mesh.ended(CoreId(1)).await;
            mesh.ended(CoreId(7)).await;
            tally.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// Who waits for what a core sends on its own has no question open there, and must hear of its end all the same.
#[test]
fn the_end_of_a_core_is_heard_without_a_question() {
    for backend in [Backend::Glommio, Backend::Epoll] {
        let tally = Tally::default();
        let started = run_cores(config(backend, 2), core_one_leaves_unasked(tally.clone()));
        assert_eq!(started.unwrap().join(), [], "{backend:?}");
        assert_eq!(tally.load(Ordering::Relaxed), 3);
    }
    for seed in 0..20 {
        let tally = Tally::default();
        let config = SimConfig::new(seed, 2, Rc::new(|_| Rc::new(MemDisk::default())));
        let end = SimCluster::new(&config, core_one_leaves_unasked(tally.clone())).run(100_000, Nanos(u64::MAX));
        assert_eq!(end, SimEnd::Finished(Vec::new()), "seed {seed}");
        assert_eq!(tally.load(Ordering::Relaxed), 3);
    }
}
