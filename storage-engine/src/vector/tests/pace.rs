//! Searches that give way to each other, and those that run out of time.

use std::cell::Cell;
use std::task::Poll;

use futures_util::future::join_all;

use super::*;
use crate::io::mem::MemDisk;

/// Somebody always waits, until so many pauses have been made.
struct Busy(Cell<usize>);

impl Pace for Busy {
    fn due(&self) -> bool {
        true
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.0.set(self.0.get().saturating_sub(1));
        let mut first = true;
        Box::pin(std::future::poll_fn(move |context| {
            if std::mem::take(&mut first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        }))
    }

    fn stopped(&self) -> bool {
        self.0.get() == 0
    }
}

fn partition_of(vectors: &[Vec<f32>], budget: Budget) -> VectorPartition {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let config = Config { build_width: 40, ..Config::new(vectors[0].len() as u32, Metric::Cosine) };
    let partition = create(&disk, config, budget);
    let mut draft = partition.begin().expect("the only one");
    for (doc, vector) in (0..).zip(vectors) {
        put(&mut draft, doc, std::slice::from_ref(vector));
    }
    commit(&partition, draft, 1);
    partition
}

/// The cache has room for the pages of some of the searches only. Once they paused between loading pages and using them, found
/// them gone, and began again for ever.
#[test]
fn many_searches_share_few_pages() {
    const SEARCHES: usize = 300;
    let vectors = points(3, 9000, 8);
    let snapshot = partition_of(&vectors, TIGHT).snapshot();
    let options = SearchOptions { limit: 10, plan: Some(Plan::Walk), ..SearchOptions::default() };
    let pace = Busy(Cell::new(100 * SEARCHES));
    let all = (0..SEARCHES).map(|at| snapshot.search(&vectors[at * 29], &options, &pace));
    for (at, found) in block_on(join_all(all)).into_iter().enumerate() {
        let found = found.expect("memory does not fail");
        assert!(found.first().is_some_and(|nearest| nearest.doc == at as u32 * 29), "{at}: {found:?}");
    }
    assert!(!pace.stopped());
}

/// However little time there was, a page of results is there: what there was no time to read is ordered by codes.
#[test]
fn searches_out_of_time_answer_with_what_they_have() {
    let vectors = points(3, 2000, 8);
    let snapshot = partition_of(&vectors, Budget::default()).snapshot();
    for plan in [Plan::Scan, Plan::Walk] {
        for limit in [1, 10, 200] {
            let options = SearchOptions { limit, plan: Some(plan), width: 400, ..SearchOptions::default() };
            let found = block_on(snapshot.search(&vectors[7], &options, &Busy(Cell::new(0)))).expect("no failure");
            let least = if plan == Plan::Scan { limit } else { limit.min(50) };
            assert!(found.len() >= least, "{plan:?} {limit}: {}", found.len());
            assert!(found.is_sorted_by(|a, b| (a.distance, a.doc) < (b.distance, b.doc)));
            assert!(plan == Plan::Walk || found[0].doc == 7);
            for near in &found {
                let truth = distance(Metric::Cosine, &vectors[7], &vectors[near.doc as usize]);
                assert!((near.distance - truth).abs() < 0.02, "{near:?} {truth}");
            }
        }
    }
}
