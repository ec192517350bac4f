//! How well and how fast vectors are searched on real files: building, recall and queries a second of one core, filters, churn,
//! and a budget smaller than the data. `cargo bench -p storage-engine --bench vector -- [options]`, with options
//! `data=FOLDER` (WordNet embedded with MiniLM), `clustered=COUNT` (a seeded generator), `dims=N`, `codes=bits|int8|int2` (four bits else), `metric=...`, `only=PART,...`.
//!
//! Prints one line for each measurement, rates per second of processor time (one thread); p50 and p99 are of the clock on the wall.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use glommio::LocalExecutorBuilder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roaring::RoaringBitmap;
use storage_engine::Disk;
use storage_engine::io::glommio::GlommioDisk;
use storage_engine::vector::kernels::kernels;
use storage_engine::vector::{
    Budget, CodeKind, Config, Metric, Plan, SearchOptions, Unpaced, VectorPartition, VectorSnapshot,
};

const LIMIT: usize = 10;
/// Vectors put between two commits.
const BATCH: usize = 20_000;
const WIDTHS: [usize; 6] = [24, 40, 64, 100, 160, 256];

struct Data {
    vectors: Vec<Vec<f32>>,
    queries: Vec<Vec<f32>>,
}

/// Processor time of this thread: what a query costs however busy the machine is.
fn busy_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer, and the clock exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The int8 matrix of a NumPy file, two-dimensional and in C order.
fn npy(path: &Path) -> Vec<Vec<f32>> {
    #[expect(clippy::disallowed_methods, reason = "nothing else runs yet")]
    let bytes = std::fs::read(path).expect("the file can be read");
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let text = String::from_utf8_lossy(&bytes[10..10 + header]).into_owned();
    assert!(text.contains("'|i1'") && text.contains("'fortran_order': False"), "{text}");
    let shape = text.split('(').nth(1).and_then(|rest| rest.split(')').next()).expect("a shape");
    let columns: usize = shape.split(',').nth(1).expect("two numbers").trim().parse().expect("a number");
    bytes[10 + header..].chunks_exact(columns).map(|row| row.iter().map(|v| f32::from(*v as i8)).collect()).collect()
}

/// Points around random centres, and queries around the same.
fn clustered(count: usize, dims: usize) -> Data {
    let mut rng = StdRng::seed_from_u64(1);
    let mut point = |centre: Option<&Vec<f32>>, spread: f32| -> Vec<f32> {
        let mut normal = || (0..6).map(|_| rng.random::<f32>()).sum::<f32>() - 3.0;
        (0..dims).map(|at| centre.map_or(0.0, |c| c[at]) + spread * normal()).collect()
    };
    let centres: Vec<Vec<f32>> = (0..(count / 200).max(1)).map(|_| point(None, 1.0)).collect();
    let mut around = |at: usize| point(Some(&centres[at * 7919 % centres.len()]), 0.7);
    Data { vectors: (0..count).map(&mut around).collect(), queries: (0..1000).map(around).collect() }
}

fn unit(vectors: &mut [Vec<f32>]) {
    for vector in vectors {
        let norm = (kernels().dot_f32)(vector, vector).sqrt().max(f32::MIN_POSITIVE);
        vector.iter_mut().for_each(|v| *v /= norm);
    }
}

/// The true nearest among the allowed, by cosine of unit vectors.
fn truth(data: &Data, allowed: Option<&RoaringBitmap>) -> Vec<Vec<u32>> {
    let near = |query: &Vec<f32>| {
        let nodes = (0..data.vectors.len() as u32).filter(|doc| allowed.is_none_or(|allowed| allowed.contains(*doc)));
        let mut keys: Vec<(f32, u32)> =
            nodes.map(|doc| (-(kernels().dot_f32)(query, &data.vectors[doc as usize]), doc)).collect();
        let limit = LIMIT.min(keys.len());
        keys.select_nth_unstable_by(limit - 1, |a, b| a.0.total_cmp(&b.0));
        keys[..limit].iter().map(|(_, doc)| *doc).collect()
    };
    data.queries.iter().map(near).collect()
}

async fn fresh(folder: &Path, config: Config, budget: Budget) -> VectorPartition {
    let disk: Rc<dyn Disk> = Rc::new(GlommioDisk);
    VectorPartition::create(disk, folder, config, budget).await.expect("it can be made")
}

/// Puts the documents in batches; the manifest of the last.
async fn put(partition: &VectorPartition, data: &Data, docs: &[u32], epoch: &mut u64) -> Vec<u8> {
    let mut manifest = Vec::new();
    for batch in docs.chunks(BATCH) {
        let mut draft = partition.begin().expect("the only one");
        for doc in batch {
            draft.put(*doc, &[&data.vectors[*doc as usize]], &Unpaced).await.expect("it is put");
        }
        *epoch += 1;
        let prepared = draft.prepare(*epoch, &Unpaced).await.expect("it is prepared");
        manifest = prepared.manifest().to_vec();
        partition.publish(prepared);
        partition.collect().await.expect("old files go");
    }
    manifest
}

async fn remove(partition: &VectorPartition, docs: &[u32], epoch: &mut u64) {
    let mut draft = partition.begin().expect("the only one");
    for doc in docs {
        draft.remove(*doc, &Unpaced).await.expect("it goes");
    }
    *epoch += 1;
    partition.publish(draft.prepare(*epoch, &Unpaced).await.expect("it is prepared"));
}

async fn measure(
    name: &str,
    snapshot: &VectorSnapshot,
    data: &Data,
    truth: &[Vec<u32>],
    allowed: Option<&RoaringBitmap>,
    plan: Option<Plan>,
    widths: &[usize],
) {
    for width in widths {
        let options =
            SearchOptions { limit: LIMIT, width: *width, partitions: 1, allowed, plan, ..SearchOptions::default() };
        let (mut hits, mut times, mut busy) = (0, Vec::new(), 0.0);
        for round in 0..2 {
            hits = 0;
            times.clear();
            let busy_before = busy_seconds();
            for (query, truth) in data.queries.iter().zip(truth) {
                let began = Instant::now();
                let found = snapshot.search(query, &options, &Unpaced).await.expect("it is found");
                times.push(began.elapsed().as_secs_f64());
                hits += found.iter().filter(|neighbor| truth.contains(&neighbor.doc)).count();
            }
            busy = busy_seconds() - busy_before;
            if round == 0 && times.iter().sum::<f64>() > 20.0 {
                break;
            }
        }
        let wanted: usize = truth.iter().map(Vec::len).sum();
        times.sort_by(f64::total_cmp);
        println!(
            "{name:24} width {width:4}  recall {:.4}  {:7.0} q/s  p50 {:6.0} us  p99 {:6.0} us",
            hits as f64 / wanted as f64,
            times.len() as f64 / busy,
            times[times.len() / 2] * 1e6,
            times[times.len() * 99 / 100] * 1e6
        );
    }
}

async fn bench(options: HashMap<String, String>, folder: PathBuf, mut data: Data) {
    unit(&mut data.vectors);
    unit(&mut data.queries);
    let wants = |part: &str| options.get("only").is_none_or(|only| only.split(',').any(|name| name == part));
    let all: Vec<u32> = (0..data.vectors.len() as u32).collect();
    let mut config = Config::new(data.vectors[0].len() as u32, Metric::Cosine);
    let narrow = match options.get("codes").map(String::as_str) {
        Some("bits") => Some((CodeKind::Bits, u64::MAX)),
        Some("int8") => Some((CodeKind::Int8, u64::MAX)),
        Some("int2") => Some((CodeKind::Int4, 0)),
        _ => None,
    };
    let code_bytes = narrow.map_or(u64::MAX, |(codes, bytes)| {
        config.codes = codes;
        bytes
    });
    if let Some(width) = options.get("build") {
        config.build_width = width.parse().expect("a number");
    }
    let ample = Budget { code_bytes, graph_bytes: 8 << 30, vector_bytes: 8 << 30, ..Budget::DEFAULT };
    let partition = fresh(&folder, config, ample).await;
    let (began, mut epoch) = (busy_seconds(), 0);
    let manifest = put(&partition, &data, &all, &mut epoch).await;
    let seconds = busy_seconds() - began;
    println!("{} vectors of {} dimensions, {}", all.len(), config.dimensions, kernels().name);
    println!("built in {seconds:.1} s, {:.0} vectors/s", all.len() as f64 / seconds);
    let (sizes, n) = (partition.snapshot().sizes(), all.len() as f64);
    println!(
        "bytes a vector: codes {:.0}, graph {:.0}, disk {:.0}",
        sizes.code_bytes as f64 / n,
        sizes.graph_bytes as f64 / n,
        sizes.disk_bytes as f64 / n
    );
    let exact = truth(&data, None);
    measure("resident", &partition.snapshot(), &data, &exact, None, None, &WIDTHS).await;
    if wants("filter") {
        for percent in [50, 25, 10, 5, 2, 1] {
            let mut rng = StdRng::seed_from_u64(percent);
            let allowed: RoaringBitmap = all.iter().copied().filter(|_| rng.random_range(0..100) < percent).collect();
            let exact = truth(&data, Some(&allowed));
            let plans = [None, Some(Plan::Scan), Some(Plan::Walk)];
            for plan in plans.into_iter().take(if options.contains_key("plans") { 3 } else { 1 }) {
                let name = format!("filter {percent} %{}", plan.map(|plan| format!(" {plan:?}")).unwrap_or_default());
                measure(&name, &partition.snapshot(), &data, &exact, Some(&allowed), plan, &[64, 100]).await;
            }
        }
    }
    if wants("disk") {
        let disk: Rc<dyn Disk> = Rc::new(GlommioDisk);
        let pages = (sizes.graph_bytes / 10, 0);
        let tight =
            Budget { code_bytes, graph_bytes: pages.0, vector_bytes: pages.1, direct_bytes: 0, ..Budget::DEFAULT };
        let began = Instant::now();
        let cold = VectorPartition::open(disk, &folder, &manifest, tight, &Unpaced).await.expect("it opens");
        println!("opened in {:.2} s", began.elapsed().as_secs_f64());
        measure("a tenth of the graph", &cold.snapshot(), &data, &exact, None, None, &[64, 100]).await;
    }
    if wants("churn") {
        let (odd, even): (Vec<u32>, Vec<u32>) = all.iter().partition(|doc| *doc % 2 == 1);
        for (name, half) in [("odd half again", odd), ("even half again", even)] {
            let began = busy_seconds();
            remove(&partition, &half, &mut epoch).await;
            println!("removed {} a second", (half.len() as f64 / (busy_seconds() - began)).round());
            put(&partition, &data, &half, &mut epoch).await;
            measure(name, &partition.snapshot(), &data, &exact, None, None, &[64, 100]).await;
        }
    }
}

fn main() {
    let options: HashMap<String, String> = std::env::args()
        .filter_map(|argument| argument.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    let number = |name: &str, or: usize| options.get(name).map_or(or, |v| v.parse().expect("a number"));
    let data = match options.get("data") {
        Some(folder) => {
            let folder = Path::new(folder);
            Data { vectors: npy(&folder.join("vectors.i8.npy")), queries: npy(&folder.join("queries.i8.npy")) }
        }
        None => clustered(number("clustered", 50_000), number("dims", 256)),
    };
    let temporary = tempfile::tempdir_in(options.get("folder").map_or(".", String::as_str)).expect("a folder");
    let folder = temporary.path().join("vectors");
    let executor = LocalExecutorBuilder::default().spawn(|| bench(options, folder, data)).expect("an executor");
    executor.join().expect("it ends well");
}
