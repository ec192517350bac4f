//! How much of the truth walks find, fresh, filtered and after churn, and that they find the same however little is in memory.

use super::*;
use crate::io::mem::MemDisk;

const COUNT: usize = 1500;
const DIMS: usize = 20;
const LIMIT: usize = 10;

fn config(metric: Metric) -> Config {
    Config { build_width: 60, ..Config::new(DIMS as u32, metric) }
}

fn fill(partition: &VectorPartition, documents: &Documents, epoch: u64) -> Vec<u8> {
    let mut draft = partition.begin().expect("the only one");
    for (doc, vectors) in documents {
        put(&mut draft, *doc, vectors);
    }
    commit(partition, draft, epoch)
}

fn documents() -> Documents {
    (0..).zip(points(11, COUNT, DIMS).into_iter().map(|vector| vec![vector])).collect()
}

fn recall(snapshot: &VectorSnapshot, documents: &Documents, allowed: Option<&RoaringBitmap>, plan: Plan) -> f64 {
    let options = SearchOptions { limit: LIMIT, width: 60, allowed, plan: Some(plan), ..SearchOptions::default() };
    let (mut hits, mut wanted) = (0, 0);
    for query in points(12, 50, DIMS) {
        let truth = exact(snapshot.config().metric, documents, &query, allowed);
        let truth = &truth[..truth.len().min(LIMIT)];
        let last = truth.last().map_or(0.0, |last| last.distance);
        wanted += truth.len();
        hits += search(snapshot, &query, &options).iter().filter(|found| found.distance <= last + 1e-5).count();
    }
    hits as f64 / wanted as f64
}

/// A budget that makes codes of four bits such of two.
const NARROW: Budget = Budget { code_bytes: 0, ..Budget::DEFAULT };

#[test]
fn walks_find_nearly_all() {
    for (metric, codes, budget) in [
        (Metric::Cosine, CodeKind::Int8, Budget::default()),
        (Metric::Euclidean, CodeKind::Int8, Budget::default()),
        (Metric::Cosine, CodeKind::Int4, Budget::default()),
        (Metric::Euclidean, CodeKind::Int4, Budget::default()),
        (Metric::Euclidean, CodeKind::Int4, NARROW),
        (Metric::Cosine, CodeKind::Int4, NARROW),
        (Metric::Hamming, CodeKind::Bits, Budget::default()),
    ] {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        let partition = create(&disk, Config { codes, ..config(metric) }, budget);
        let documents = documents();
        fill(&partition, &documents, 1);
        let snapshot = partition.snapshot();
        assert_eq!(check(&snapshot), COUNT);
        let found = recall(&snapshot, &documents, None, Plan::Walk);
        // Two bits for each of so few dimensions tell little.
        let least = if budget.code_bytes == 0 { 0.94 } else { 0.97 };
        assert!(found > least, "{metric:?} {codes:?} {found}");
        assert!(recall(&snapshot, &documents, None, Plan::Scan) > 0.9999, "{metric:?} {codes:?}");
    }
}

/// Codes of two bits are made of those in the file, so opening the partition again changes nothing.
#[test]
fn narrow_codes_are_the_same_after_opening() {
    let documents = documents();
    let answers = |reopen: bool| {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        let mut partition = create(&disk, Config { codes: CodeKind::Int4, ..config(Metric::Cosine) }, NARROW);
        for (epoch, part) in (1..).zip(0..4u32) {
            let part: Documents = documents.clone().into_iter().filter(|(doc, _)| doc % 4 == part).collect();
            let manifest = fill(&partition, &part, epoch);
            if reopen {
                partition = open(&disk, &manifest, NARROW).expect("it opens");
            }
        }
        let snapshot = partition.snapshot();
        assert_eq!(snapshot.state.comparer.kind(), CodeKind::Int2);
        let options = SearchOptions { limit: LIMIT, plan: Some(Plan::Walk), ..SearchOptions::default() };
        points(13, 40, DIMS).iter().map(|query| search(&snapshot, query, &options)).collect::<Vec<_>>()
    };
    assert_eq!(answers(true), answers(false));
}

/// What is preloaded is there: no page of the graph is asked for any more.
#[test]
fn a_preloaded_graph_is_in_memory() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let tight = Budget { overlay_bytes: 0, ..Budget::default() };
    let manifest = fill(&create(&disk, config(Metric::Cosine), tight), &documents(), 1);
    let snapshot = open(&disk, &manifest, tight).expect("it opens").snapshot();
    let missing = |state: &State| state.live.iter().filter(|node| state.bottom(*node).is_err()).count();
    assert_eq!(missing(&snapshot.state), COUNT);
    block_on(snapshot.preload(&Unpaced)).expect("the pages are read");
    assert_eq!(missing(&snapshot.state), 0);
}

/// Full vectors are there after a start where all have room, and are then not read again; deleted ones are left out. Where not
/// all have room none is read.
#[test]
fn vectors_that_fit_whole_are_preloaded() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, config(Metric::Cosine), Budget { vector_bytes: 0, ..Budget::default() });
    fill(&partition, &documents(), 1);
    let mut draft = partition.begin().expect("the only one");
    for doc in (0..COUNT as u32).step_by(3) {
        block_on(draft.remove(doc, &Unpaced)).expect("it goes");
    }
    let manifest = commit(&partition, draft, 2);
    let left = partition.snapshot().len();
    let bytes = left * DIMS as u64 * 4;
    for (vector_bytes, kept) in [(bytes, left), (bytes - 1, 0)] {
        let partition = open(&disk, &manifest, Budget { vector_bytes, ..Budget::default() }).expect("it opens");
        block_on(partition.preload_whole(&Unpaced)).expect("they are read");
        let snapshot = partition.snapshot();
        assert_eq!(snapshot.sizes().vectors_cached_bytes, kept * DIMS as u64 * 4);
        let documents = documents();
        for doc in [1, 2, COUNT as u32 - 2] {
            assert_eq!(block_on(snapshot.vectors(doc)).expect("its vectors"), documents[&doc]);
        }
    }
}

#[test]
fn filtered_walks_find_nearly_all() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, config(Metric::Cosine), Budget::default());
    let documents = documents();
    fill(&partition, &documents, 1);
    for (name, allowed) in [
        ("half", (0..COUNT as u32).filter(|doc| doc * 7919 % 100 < 50).collect::<RoaringBitmap>()),
        ("tenth", (0..COUNT as u32).filter(|doc| doc * 7919 % 100 < 10).collect()),
        ("a cluster's", (0..COUNT as u32).filter(|doc| doc % 15 == 4).collect()),
    ] {
        for plan in [Plan::Scan, Plan::Walk] {
            let found = recall(&partition.snapshot(), &documents, Some(&allowed), plan);
            assert!(found > 0.97, "{name} {plan:?} {found}");
        }
    }
}

/// The allowed documents are all far from the query: the walk must get to them, or give way to a scan.
#[test]
fn filters_that_exclude_all_that_is_near_are_answered() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, config(Metric::Cosine), Budget::default());
    let documents = documents();
    fill(&partition, &documents, 1);
    for query in points(12, 10, DIMS) {
        let order = exact(Metric::Cosine, &documents, &query, None);
        let allowed: RoaringBitmap = order[COUNT * 3 / 4..].iter().map(|far| far.doc).collect();
        for plan in [None, Some(Plan::Walk)] {
            let options = SearchOptions { limit: LIMIT, allowed: Some(&allowed), plan, ..SearchOptions::default() };
            let found = search(&partition.snapshot(), &query, &options);
            let wanted = &order[COUNT * 3 / 4..][..LIMIT];
            assert!(found.iter().filter(|a| wanted.iter().any(|b| a.doc == b.doc)).count() >= LIMIT - 1, "{plan:?}");
        }
    }
}

/// Whole clusters pass the filter, and the query's is none of them: a narrow walk is full before it has seen the nearest of
/// those that pass.
#[test]
fn filters_that_exclude_the_whole_neighbourhood_are_answered() {
    const MANY: usize = 9000;
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let config = Config { build_width: 20, ..Config::new(8, Metric::Cosine) };
    let partition = create(&disk, config, Budget::default());
    let documents: Documents = (0..).zip(points(15, MANY, 8).into_iter().map(|vector| vec![vector])).collect();
    fill(&partition, &documents, 1);
    let of_cluster = |doc: u32| doc as usize * 31 % (MANY / 100);
    let (mut hits, mut wanted) = (0, 0);
    for doc in (0..MANY as u32).step_by(450) {
        let allowed: RoaringBitmap =
            (0..MANY as u32).filter(|other| of_cluster(*other) % 2 != of_cluster(doc) % 2).collect();
        let options = SearchOptions { limit: LIMIT, width: 40, allowed: Some(&allowed), ..SearchOptions::default() };
        let found = search(&partition.snapshot(), &documents[&doc][0], &options);
        let truth = exact(Metric::Cosine, &documents, &documents[&doc][0], Some(&allowed));
        wanted += LIMIT;
        hits += found.iter().filter(|a| a.distance <= truth[LIMIT - 1].distance + 1e-6).count();
    }
    assert!(hits as f64 / wanted as f64 > 0.97, "{hits} of {wanted}");
}

/// What passes a filter may be all of a partition, if the clusters around the query are in others: the nearest are then in several
/// clusters, of which a narrow walk finds some.
#[test]
fn filters_that_leave_the_neighbourhood_to_other_partitions_are_answered() {
    const MANY: usize = 8000;
    const CLUSTERS: usize = 80;
    let mut rng = StdRng::seed_from_u64(31);
    let mut normal = || (0..6).map(|_| rng.random::<f32>()).sum::<f32>() - 3.0;
    let centres: Vec<Vec<f32>> = (0..2 * CLUSTERS).map(|_| (0..DIMS).map(|_| normal()).collect()).collect();
    let mut near = |cluster: usize| -> Vec<f32> { centres[cluster].iter().map(|c| c + 0.3 * normal()).collect() };
    let documents: Documents = (0..).zip((0..MANY).map(|at| vec![near(at % CLUSTERS)])).collect();
    let queries: Vec<Vec<f32>> = (0..40).map(|at| near(CLUSTERS + at)).collect();
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, Config::new(DIMS as u32, Metric::Cosine), TIGHT);
    fill(&partition, &documents, 1);
    let found = |filtered: bool| {
        let options = SearchOptions { limit: LIMIT, width: 40, filtered, ..SearchOptions::default() };
        let hits = queries.iter().map(|query| {
            let last = exact(Metric::Cosine, &documents, query, None)[LIMIT - 1].distance;
            let found = search(&partition.snapshot(), query, &options);
            found.iter().filter(|found| found.distance <= last + 1e-6).count()
        });
        hits.sum::<usize>() as f64 / (queries.len() * LIMIT) as f64
    };
    let (plain, filtered) = (found(false), found(true));
    assert!(plain < 0.9 && filtered > 0.97, "{plain} without a filter, {filtered} with one");
}

/// Groups of vectors that are almost the same, one after the other or mixed: a walk finds its way to a group, and within it.
#[test]
fn groups_of_vectors_almost_alike_are_found() {
    const SIZE: usize = 60;
    const GROUPS: usize = 60;
    for (spread, in_order, least) in [(0.02, true, 0.96), (0.02, false, 0.96), (0.3, true, 0.99), (0.3, false, 0.99)] {
        let mut rng = StdRng::seed_from_u64(22);
        let mut normal = || (0..6).map(|_| rng.random::<f32>()).sum::<f32>() - 3.0;
        let centres: Vec<Vec<f32>> = (0..GROUPS).map(|_| (0..DIMS).map(|_| normal()).collect()).collect();
        let mut near = |group: usize| -> Vec<f32> { centres[group].iter().map(|c| c + spread * normal()).collect() };
        let group = |at: usize| if in_order { at / SIZE } else { at % GROUPS };
        let mut documents: Documents = (0..).zip((0..GROUPS * SIZE).map(|at| vec![near(group(at))])).collect();
        let queries: Vec<Vec<f32>> = (0..100).map(|at| near(at * 37 % GROUPS)).collect();
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        let partition = create(&disk, Config::new(DIMS as u32, Metric::Cosine), Budget::default());
        fill(&partition, &documents, 1);
        for when in ["fresh", "after deletions"] {
            let options = SearchOptions { limit: LIMIT, plan: Some(Plan::Walk), ..SearchOptions::default() };
            let snapshot = partition.snapshot();
            let hits = queries.iter().map(|query| {
                let last = exact(Metric::Cosine, &documents, query, None)[LIMIT - 1].distance;
                search(&snapshot, query, &options).iter().filter(|found| found.distance <= last + 1e-6).count()
            });
            let found = hits.sum::<usize>() as f64 / (queries.len() * LIMIT) as f64;
            assert!(found > least, "{spread} {in_order} {when}: {found}");
            if when == "fresh" {
                let mut draft = partition.begin().expect("the only one");
                for doc in (0..(GROUPS * SIZE) as u32).step_by(2) {
                    block_on(draft.remove(doc, &Unpaced)).expect("it goes");
                    documents.remove(&doc);
                }
                commit(&partition, draft, 2);
            }
        }
    }
}

/// Deletions mend the graph. Without mending, or with links left to deleted nodes, recall falls with each round.
#[test]
fn recall_stays_under_churn() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, config(Metric::Cosine), Budget::default());
    let documents = documents();
    fill(&partition, &documents, 1);
    let fresh = recall(&partition.snapshot(), &documents, None, Plan::Walk);
    for round in 0..6u64 {
        let half: Documents =
            documents.clone().into_iter().filter(|(doc, _)| (doc + round as u32).is_multiple_of(2)).collect();
        let mut draft = partition.begin().expect("the only one");
        for doc in half.keys() {
            block_on(draft.remove(*doc, &Unpaced)).expect("it goes");
        }
        commit(&partition, draft, 2 + 2 * round);
        assert_eq!(check(&partition.snapshot()), COUNT - half.len());
        fill(&partition, &half, 3 + 2 * round);
        assert_eq!(check(&partition.snapshot()), COUNT);
    }
    let churned = recall(&partition.snapshot(), &documents, None, Plan::Walk);
    assert!(churned > fresh - 0.015, "{fresh} before, {churned} after");
}

/// What is in memory, and how often the graph was merged or opened, decides how long a search takes and nothing else.
#[test]
fn answers_do_not_depend_on_memory() {
    let documents = documents();
    let queries = points(13, 40, DIMS);
    let answers = |budget: Budget, reopen: bool| {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        let mut partition = create(&disk, config(Metric::Cosine), budget);
        for (epoch, part) in (1..).zip(0..5u32) {
            let part: Documents = documents.clone().into_iter().filter(|(doc, _)| doc % 5 == part).collect();
            let manifest = fill(&partition, &part, epoch);
            if reopen {
                partition = open(&disk, &manifest, budget).expect("it opens");
            }
        }
        let options = SearchOptions { limit: LIMIT, plan: Some(Plan::Walk), ..SearchOptions::default() };
        let snapshot = partition.snapshot();
        queries.iter().map(|query| search(&snapshot, query, &options)).collect::<Vec<_>>()
    };
    let ample = answers(Budget::default(), false);
    assert_eq!(answers(Budget::default(), true), ample);
    assert_eq!(answers(TIGHT, false), ample);
    assert_eq!(answers(TIGHT, true), ample);
}

/// A document's n-th vector is compared where only n-th ones are asked for.
#[test]
fn ordinals_are_told_apart() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, config(Metric::Cosine), Budget::default());
    let vectors = points(14, 900, DIMS);
    let pairs: Documents = (0..).zip(vectors.chunks(3).map(<[Vec<f32>]>::to_vec)).collect();
    fill(&partition, &pairs, 1);
    for ordinal in 0..3u16 {
        let own: Documents =
            pairs.iter().map(|(doc, vectors)| (*doc, vec![vectors[usize::from(ordinal)].clone()])).collect();
        for plan in [Plan::Scan, Plan::Walk] {
            let options =
                SearchOptions { limit: 5, ordinal: Some(ordinal), plan: Some(plan), ..SearchOptions::default() };
            for doc in [3, 77, 205] {
                let query = &pairs[&doc][usize::from(ordinal)];
                let found = search(&partition.snapshot(), query, &options);
                let wanted = &exact(Metric::Cosine, &own, query, None)[..5];
                assert_eq!(found[0].doc, doc);
                let same = found.iter().filter(|a| wanted.iter().any(|b| a.doc == b.doc)).count();
                assert!(same >= 4, "{plan:?} {ordinal} {found:?} {wanted:?}");
            }
        }
    }
}
