//! Partitions against a map of documents and a search that compares everything.

use proptest::prelude::*;

use super::*;
use crate::io::mem::MemDisk;

#[derive(Clone, Debug)]
enum Op {
    Put { doc: u32, seed: u64, count: usize },
    Remove { doc: u32 },
    Commit,
    Abort,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..60u32, 0..1000u64, 1..4usize).prop_map(|(doc, seed, count)| Op::Put { doc, seed, count }),
        4 => (0..60u32).prop_map(|doc| Op::Remove { doc }),
        2 => Just(Op::Commit),
        1 => Just(Op::Abort),
        1 => Just(Op::Reopen),
    ]
}

fn near(found: &[Neighbor], wanted: &[Neighbor]) -> bool {
    let close = |(a, b): (&Neighbor, &Neighbor)| (a.distance - b.distance).abs() <= 2e-4 * (1.0 + b.distance.abs());
    found.len() == wanted.len() && found.iter().zip(wanted).all(close)
}

fn compare(snapshot: &VectorSnapshot, metric: Metric, documents: &Documents) {
    check(snapshot);
    assert!(snapshot.documents().iter().eq(documents.keys().copied()));
    for (doc, vectors) in documents {
        let found = block_on(snapshot.vectors(*doc)).expect("they are read");
        let bits = |v: &f32| if metric == Metric::Hamming { f32::from(u8::from(*v > 0.0)) } else { *v };
        assert_eq!(found, vectors.iter().map(|v| v.iter().map(bits).collect()).collect::<Vec<Vec<f32>>>());
    }
    let allowed: RoaringBitmap = (0..60).filter(|doc| doc % 3 == 0).collect();
    for query in points(5, 4, 12) {
        for allowed in [None, Some(&allowed)] {
            let options = SearchOptions { limit: 7, allowed, ..SearchOptions::default() };
            let wanted = exact(metric, documents, &query, allowed);
            let found = search(snapshot, &query, &options);
            assert!(near(&found, &wanted[..wanted.len().min(7)]), "{found:?} {wanted:?}");
        }
    }
}

fn run(metric: Metric, budget: Budget, ops: &[Op]) {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let mut config = Config::new(12, metric);
    config.build_width = 20;
    let mut partition = create(&disk, config, budget);
    let (mut committed, mut documents) = (Documents::new(), Documents::new());
    let (mut draft, mut epoch, mut manifest) = (None, 0, Vec::new());
    for op in ops.iter().chain([&Op::Commit, &Op::Reopen]) {
        match op {
            Op::Put { doc, seed, count } => {
                let draft = draft.get_or_insert_with(|| partition.begin().expect("the only one"));
                put(draft, *doc, &points(*seed, *count, 12));
                documents.insert(*doc, points(*seed, *count, 12));
            }
            Op::Remove { doc } => {
                let draft = draft.get_or_insert_with(|| partition.begin().expect("the only one"));
                block_on(draft.remove(*doc, &Unpaced)).expect("it goes");
                documents.remove(doc);
            }
            Op::Commit => {
                let draft = draft.take().unwrap_or_else(|| partition.begin().expect("the only one"));
                epoch += 1;
                manifest = commit(&partition, draft, epoch);
                committed = documents.clone();
                compare(&partition.snapshot(), metric, &committed);
            }
            Op::Abort => {
                if let Some(draft) = draft.take() {
                    drop(block_on(draft.prepare(epoch + 1, &Unpaced)).expect("it is prepared, and dropped"));
                    documents = committed.clone();
                    compare(&partition.snapshot(), metric, &committed);
                }
            }
            Op::Reopen if epoch > 0 => {
                draft = None;
                documents = committed.clone();
                partition = open(&disk, &manifest, budget).expect("it opens");
                compare(&partition.snapshot(), metric, &committed);
            }
            Op::Reopen => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn partitions_do_as_the_model(
        ops in proptest::collection::vec(op(), 1..120),
        metric in prop_oneof![Just(Metric::Cosine), Just(Metric::Dot), Just(Metric::Euclidean), Just(Metric::Hamming)],
        tight: bool,
    ) {
        run(metric, if tight { TIGHT } else { Budget::default() }, &ops);
    }
}

/// A search may last over many commits: nodes deleted since must not be used again while it does, and are afterwards.
#[test]
fn snapshots_stay_and_free_nodes_are_used_again() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, Config::new(8, Metric::Cosine), TIGHT);
    let (old, new) = (points(1, 200, 8), points(2, 200, 8));
    let fill = |vectors: &[Vec<f32>], epoch: u64| {
        let mut draft = partition.begin().expect("the only one");
        for (doc, vector) in vectors.iter().enumerate() {
            put(&mut draft, doc as u32, std::slice::from_ref(vector));
        }
        commit(&partition, draft, epoch);
    };
    fill(&old, 1);
    let held = partition.snapshot();
    let options = SearchOptions { limit: 9, plan: Some(Plan::Walk), ..SearchOptions::default() };
    let before = search(&held, &new[7], &options);
    fill(&new, 2);
    fill(&old, 3);
    assert_eq!(search(&held, &new[7], &options), before);
    assert_eq!(block_on(held.vectors(5)).expect("they are read"), [old[5].clone()]);
    assert_eq!(partition.snapshot().state.node_count, 600, "nothing was used again while the first state was read");
    drop(held);
    fill(&new, 4);
    fill(&old, 5);
    assert_eq!(partition.snapshot().state.node_count, 600, "the nodes of the first two states were");
    assert_eq!(check(&partition.snapshot()), 200);
}

#[test]
fn null_vectors_are_near_to_everything() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, Config::new(4, Metric::Cosine), TIGHT);
    let mut draft = partition.begin().expect("the only one");
    for (doc, vector) in points(3, 100, 4).into_iter().enumerate() {
        put(&mut draft, doc as u32, &[vector]);
    }
    put(&mut draft, 150, &[vec![0.0; 4]]);
    commit(&partition, draft, 1);
    let snapshot = partition.snapshot();
    for plan in [Plan::Scan, Plan::Walk] {
        let options = SearchOptions { limit: 3, plan: Some(plan), ..SearchOptions::default() };
        let found = search(&snapshot, &[1.0, -0.5, 0.0, 2.0], &options);
        assert_eq!(found[0], Neighbor { doc: 150, distance: 0.0 });
        let found = search(&snapshot, &[0.0; 4], &options);
        let wanted = [0, 1, 2].map(|doc| Neighbor { doc, distance: 0.0 });
        assert_eq!(found, wanted, "a null query is equally near to all");
    }
}

#[test]
fn what_is_no_vector_is_refused() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, Config::new(2, Metric::Dot), TIGHT);
    let mut draft = partition.begin().expect("the only one");
    assert_eq!(partition.begin().err(), Some(BeginError::Busy));
    let refused = block_on(draft.put(1, &[&[1.0, 2.0], &[1.0]], &Unpaced)).err();
    assert_eq!(refused, Some(PutError::Vector(BadVector::Dimensions { expected: 2, found: 1 })));
    let refused = block_on(draft.put(1, &[&[1.0, f32::NAN]], &Unpaced)).err();
    assert_eq!(refused, Some(PutError::Vector(BadVector::NotFinite { at: 1 })));
    assert_eq!(block_on(draft.put(u32::MAX, &[&[1.0, 2.0]], &Unpaced)).err(), Some(PutError::Full));
    assert!(draft.documents().is_empty());
    let options = SearchOptions { limit: 1, ..SearchOptions::default() };
    let refused = block_on(partition.snapshot().search(&[1.0], &options, &Unpaced)).err();
    assert_eq!(refused, Some(SearchError::Vector(BadVector::Dimensions { expected: 2, found: 1 })));
}

/// A pace for which somebody always waits: no loop may go on for long without asking.
#[derive(Default)]
struct Impatient {
    pauses: std::cell::Cell<usize>,
    stop: bool,
}

impl Pace for Impatient {
    fn due(&self) -> bool {
        true
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.pauses.set(self.pauses.get() + 1);
        Box::pin(std::future::ready(()))
    }

    fn stopped(&self) -> bool {
        self.stop
    }
}

#[test]
fn loops_let_others_work_and_can_be_stopped() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, Config { build_width: 20, ..Config::new(6, Metric::Cosine) }, TIGHT);
    let vectors = points(21, 9000, 6);
    let mut draft = partition.begin().expect("the only one");
    // Several vectors of few documents: quick to put where the graph is small.
    for (doc, vectors) in (0..).zip(vectors.chunks(9)) {
        put(&mut draft, doc, vectors);
    }
    commit(&partition, draft, 1);
    let snapshot = partition.snapshot();
    for (plan, least) in [(Plan::Scan, 8), (Plan::Walk, 5)] {
        let options = SearchOptions { limit: 5, plan: Some(plan), ..SearchOptions::default() };
        let calm = search(&snapshot, &vectors[7], &options);
        let pace = Impatient::default();
        let found = block_on(snapshot.search(&vectors[7], &options, &pace)).expect("it is found");
        assert_eq!(found, calm);
        assert!(pace.pauses.get() >= least, "{plan:?} {}", pace.pauses.get());
        let pace = Impatient { stop: true, ..Impatient::default() };
        let stopped = block_on(snapshot.search(&vectors[7], &options, &pace)).expect("what there is");
        assert!(stopped.len() <= 5);
    }
    let options = SearchOptions { limit: 2000, ..SearchOptions::default() };
    let all = search(&snapshot, &vectors[7], &options);
    assert_eq!(all.len(), 1000, "every document once");
    assert!(all.is_sorted_by(|a, b| (a.distance, a.doc) < (b.distance, b.doc)));
}
