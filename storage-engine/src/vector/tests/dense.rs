//! Vectors that lie closer together than their codes can tell, more of them than a walk keeps in view.

use super::*;
use crate::io::mem::MemDisk;

const COUNT: usize = 4800;
const LIMIT: usize = 10;

/// Numbers of a mean of 0 and a variance of 1.
fn normal(rng: &mut StdRng) -> f32 {
    ((0..6).map(|_| rng.random::<f32>()).sum::<f32>() - 3.0) * std::f32::consts::SQRT_2
}

fn normals(rng: &mut StdRng, dims: usize) -> Vec<f32> {
    (0..dims).map(|_| normal(rng)).collect()
}

/// Groups of 600, as far from their centres as `noise` times the centres' length.
fn clusters(dims: usize, noise: f32) -> Vec<Vec<f32>> {
    let mut rng = StdRng::seed_from_u64(5);
    let centres: Vec<Vec<f32>> = (0..COUNT / 600).map(|_| normals(&mut rng, dims)).collect();
    let mut near = |at: usize| centres[at % centres.len()].iter().map(|c| c + noise * normal(&mut rng)).collect();
    (0..COUNT).map(&mut near).collect()
}

fn arc(dims: usize) -> Vec<Vec<f32>> {
    let mut rng = StdRng::seed_from_u64(5);
    let (along, beside) = (normals(&mut rng, dims), normals(&mut rng, dims));
    let at = |at: usize| 5.0 * at as f32 / COUNT as f32;
    (0..COUNT).map(|n| along.iter().zip(&beside).map(|(a, b)| a * at(n) + b * 3.0).collect()).collect()
}

fn with_constant(dims: usize, constant: f32) -> Vec<Vec<f32>> {
    let mut rng = StdRng::seed_from_u64(5);
    (0..COUNT).map(|_| [vec![constant], normals(&mut rng, dims - 1)].concat()).collect()
}

/// The share of the nearest that are found with defaults, and how often a vector finds itself.
fn recall(vectors: &[Vec<f32>], budget: Budget) -> (f64, f64) {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let partition = create(&disk, Config::new(vectors[0].len() as u32, Metric::Cosine), budget);
    let mut draft = partition.begin().expect("the only one");
    for (doc, vector) in (0..).zip(vectors) {
        put(&mut draft, doc, std::slice::from_ref(vector));
    }
    commit(&partition, draft, 1);
    let (snapshot, options) = (partition.snapshot(), SearchOptions { limit: LIMIT, ..SearchOptions::default() });
    let scan = SearchOptions { plan: Some(Plan::Scan), ..options };
    let queries = (0..COUNT).step_by(COUNT / 60);
    let (mut hits, mut own) = (0, 0);
    for doc in queries.clone() {
        let truth = search(&snapshot, &vectors[doc], &scan);
        let found = search(&snapshot, &vectors[doc], &options);
        hits += found.iter().filter(|near| near.distance <= truth[LIMIT - 1].distance).count();
        own += usize::from(found.iter().any(|near| near.doc as usize == doc));
    }
    (hits as f64 / (queries.len() * LIMIT) as f64, own as f64 / queries.len() as f64)
}

#[test]
fn nearest_of_dense_vectors_are_found() {
    let two_bits = Budget { code_bytes: 0, ..Budget::DEFAULT };
    for (name, vectors, budget) in [
        ("clusters, 0.03", clusters(32, 0.03), Budget::default()),
        ("clusters, 0.01", clusters(32, 0.01), Budget::default()),
        ("clusters, four bits", clusters(128, 0.05), Budget::default()),
        ("clusters, two bits", clusters(128, 0.2), two_bits),
        ("arc", arc(24), Budget::default()),
        ("constant", with_constant(24, 1000.0), Budget::default()),
    ] {
        let (found, own) = recall(&vectors, budget);
        assert!(found >= 0.95 && own >= 0.95, "{name}: {found}, itself {own}");
    }
}
