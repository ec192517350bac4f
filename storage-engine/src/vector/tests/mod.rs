//! Tests of whole partitions, and what they share: seeded vectors, the search that compares everything, and the invariants of a
//! graph.

mod crash;
mod damage;
mod dense;
mod model;
mod pace;
mod recall;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use futures_lite::future::block_on;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roaring::RoaringBitmap;

use super::kernels::scalar;
use super::links::Links;
use super::state::State;
use super::*;
use crate::io::Disk;

const FOLDER: &str = "vectors-of-one";

/// Nothing beyond what must be in memory is, and every commit writes a new file for the graph.
const TIGHT: Budget = Budget {
    graph_bytes: 0,
    vector_bytes: 0,
    overlay_bytes: 0,
    code_bytes: 0,
    kept_bytes: 0,
    with_pinned_bytes: 0,
    direct_bytes: 0,
};

fn folder() -> &'static Path {
    Path::new(FOLDER)
}

/// Points around a few centres.
fn points(seed: u64, count: usize, dims: usize) -> Vec<Vec<f32>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut normal = move || (0..6).map(|_| rng.random::<f32>()).sum::<f32>() - 3.0;
    let centres: Vec<Vec<f32>> = (0..count.div_ceil(100)).map(|_| (0..dims).map(|_| normal()).collect()).collect();
    let near = |at: usize| centres[at * 31 % centres.len()].clone();
    (0..count).map(near).map(|centre| centre.iter().map(|c| c + 0.8 * normal()).collect()).collect()
}

/// The metric's distance, by plain sums.
fn distance(metric: Metric, a: &[f32], b: &[f32]) -> f32 {
    match metric {
        Metric::Cosine => {
            let norms = scalar::dot_f32(a, a).sqrt() * scalar::dot_f32(b, b).sqrt();
            if norms <= f32::EPSILON { 0.0 } else { (1.0 - scalar::dot_f32(a, b) / norms) / 2.0 }
        }
        Metric::Dot => -scalar::dot_f32(a, b),
        Metric::Euclidean => scalar::squared_f32(a, b).sqrt(),
        Metric::Hamming => {
            let differ = a.iter().zip(b).filter(|(a, b)| (**a > 0.0) != (**b > 0.0)).count();
            differ as f32 / (a.len().div_ceil(64) * 64) as f32
        }
    }
}

type Documents = BTreeMap<u32, Vec<Vec<f32>>>;

/// All documents by distance.
fn exact(metric: Metric, documents: &Documents, query: &[f32], allowed: Option<&RoaringBitmap>) -> Vec<Neighbor> {
    let nearest =
        |vectors: &Vec<Vec<f32>>| vectors.iter().map(|v| distance(metric, query, v)).fold(f32::INFINITY, f32::min);
    let allowed = documents.iter().filter(|(doc, _)| allowed.is_none_or(|allowed| allowed.contains(**doc)));
    let mut all: Vec<Neighbor> =
        allowed.map(|(doc, vectors)| Neighbor { doc: *doc, distance: nearest(vectors) }).collect();
    all.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.doc.cmp(&b.doc)));
    all
}

fn put(draft: &mut Draft, doc: u32, vectors: &[Vec<f32>]) {
    let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
    block_on(draft.put(doc, &vectors, &Unpaced)).expect("it is put");
}

/// Prepares and publishes; the manifest.
fn commit(partition: &VectorPartition, draft: Draft, epoch: u64) -> Vec<u8> {
    let prepared = block_on(draft.prepare(epoch, &Unpaced)).expect("it is prepared");
    let manifest = prepared.manifest().to_vec();
    partition.publish(prepared);
    block_on(partition.collect()).expect("old files go");
    manifest
}

fn search(snapshot: &VectorSnapshot, query: &[f32], options: &SearchOptions<'_>) -> Vec<Neighbor> {
    block_on(snapshot.search(query, options, &Unpaced)).expect("it is found")
}

/// A node's links in the bottom layer, loaded if need be.
fn bottom(state: &State, node: u32) -> Links {
    loop {
        match state.bottom(node) {
            Ok(links) => return links,
            Err(page) => block_on(state.load(&[page])).expect("the page can be read"),
        }
    }
}

/// Every link has its counterpart and leads to a live node, and every node is reached from the entry. Returns the number of
/// nodes in the graph.
fn check(snapshot: &VectorSnapshot) -> usize {
    let state = &*snapshot.state;
    let nodes: BTreeSet<u32> = state.live.iter().filter(|node| !state.loose.contains(*node)).collect();
    let links: BTreeMap<u32, Vec<u32>> = nodes.iter().map(|n| (*n, bottom(state, *n).as_slice().to_vec())).collect();
    for (node, linked) in &links {
        assert_eq!(linked.iter().collect::<BTreeSet<_>>().len(), linked.len(), "{node} has a link twice");
        for other in linked {
            assert!(other != node && links.get(other).is_some_and(|back| back.contains(node)), "{node} -> {other}");
        }
    }
    for (node, levels) in state.upper.iter() {
        assert!(nodes.contains(&node), "{node} is in an upper layer and gone");
        for (level, linked) in levels.iter().enumerate() {
            let back = |other: &u32| state.upper.levels(*other).get(level).is_some_and(|back| back.contains(&node));
            assert!(linked.iter().all(back), "{node} in layer {}", level + 1);
        }
    }
    let top = state.upper.highest().map_or(0, |(_, level)| level);
    match state.entry {
        None => assert!(nodes.is_empty()),
        Some((entry, level)) => {
            assert!(nodes.contains(&entry) && level == top && state.upper.levels(entry).len() == usize::from(top));
            let (mut reached, mut next) = (BTreeSet::from([entry]), vec![entry]);
            while let Some(node) = next.pop() {
                next.extend(links[&node].iter().copied().filter(|other| reached.insert(*other)));
            }
            assert_eq!(reached.len(), nodes.len(), "nodes that cannot be reached");
        }
    }
    nodes.len()
}

fn create(disk: &Rc<dyn Disk>, config: Config, budget: Budget) -> VectorPartition {
    block_on(VectorPartition::create(disk.clone(), folder(), config, budget)).expect("it can be made")
}

fn open(disk: &Rc<dyn Disk>, manifest: &[u8], budget: Budget) -> Result<VectorPartition, OpenError> {
    block_on(VectorPartition::open(disk.clone(), folder(), manifest, budget, &Unpaced))
}
