//! Nearest documents: an exact scan of the codes where few documents may be returned, the graph otherwise; then the full vectors
//! of those that may be among the nearest are read, many at once, and decide.
//!
//! How many must be read follows from the codes' errors: nothing is read whose distance cannot be small enough. A scan takes
//! the error's strict bound, so that its answer is that of comparing all vectors. A walk, which is approximate itself, takes
//! what errors of independent signs add up to.

use super::codes::{self, Comparer};
use super::kernels::kernels;
use super::state::{State, VectorSnapshot};
use super::walk::{Accept, Step, Visited, Walk, descend, distance_of, key, node_of};
use super::{CodeKind, FetchError, LINKS_BOTTOM, Metric, Neighbor, Pace, SearchError};
use roaring::RoaringBitmap;

/// Nodes in view unless more are asked for.
const WIDTH_MIN: usize = 100;
/// A scan is always taken up to this many vectors: it costs no more than a walk.
const SCAN_MIN: u64 = 4096;
/// Below this share of accepted documents the walk looks past those that are not.
const TWO_HOPS_SHARE: f64 = 0.4;
/// Codes compared between two looks at the pace.
const SCAN_BATCH: usize = 1024;
/// Vectors read for each wanted one where codes have no error bound.
const OVERSAMPLING: usize = 20;
/// Full vectors read at once.
const READ_BATCH: usize = 64;
/// Standard deviations that a walk's re-ranking allows for.
const DEVIATIONS: f32 = 4.0;

/// What to search for.
#[derive(Clone, Copy, Default)]
pub struct SearchOptions<'a> {
    /// Documents to return at most.
    pub limit: usize,
    /// Nodes that the walk keeps in view (the paper's ef): more find more and cost more. At least the limit, and 100 where
    /// this is 0.
    pub width: usize,
    /// The documents that may be returned; all where none are given.
    pub allowed: Option<&'a RoaringBitmap>,
    /// Compares only documents' vectors of this number (counted from 0).
    pub ordinal: Option<u16>,
}

/// The nearest so far: by distance, then by document, each document once.
struct Nearest {
    limit: usize,
    found: Vec<Neighbor>,
}

impl Nearest {
    fn offer(&mut self, doc: u32, distance: f32) {
        let after = |other: &Neighbor| (other.distance, other.doc) < (distance, doc);
        let at = self.found.partition_point(after);
        if at >= self.limit || self.found[..at].iter().any(|other| other.doc == doc) {
            return;
        }
        self.found.insert(at, Neighbor { doc, distance });
        let worse = self.found[at + 1..].iter().position(|other| other.doc == doc);
        match worse {
            Some(worse) => drop(self.found.remove(at + 1 + worse)),
            None => self.found.truncate(self.limit),
        }
    }

    /// Whether nothing at this distance or beyond can be among them.
    fn excludes(&self, distance: f32) -> bool {
        self.found.len() >= self.limit && self.found.last().is_none_or(|last| distance > last.distance)
    }
}

/// A node that may be among the nearest.
struct Contender {
    /// Its distance is this at least.
    least: f32,
    /// And this at most.
    most: f32,
    node: u32,
}

struct Query<'a> {
    vector: &'a [f32],
    code: Vec<u8>,
    squared: f32,
    comparer: Comparer,
}

impl Query<'_> {
    /// The distance of a code and what it can be off by.
    fn coded(&self, code: &[u8]) -> (f32, f32) {
        if self.comparer.too_short(&self.code, code) {
            return (-1.0, 0.0);
        }
        let bound = self.comparer.error_bound(&self.code, code);
        (self.comparer.distance(&self.code, code), if bound.is_nan() { f32::INFINITY } else { bound })
    }
}

impl VectorSnapshot {
    /// The documents nearest to `query`, nearest first, equal distances by document. As many as the limit, or as there are: also
    /// where the graph alone would find fewer. With few documents to choose from the answer is exact; how many that is depends
    /// on numbers of documents only.
    ///
    /// # Errors
    /// [`SearchError`].
    pub async fn search(
        &self,
        query: &[f32],
        options: &SearchOptions<'_>,
        pace: &dyn Pace,
    ) -> Result<Vec<Neighbor>, SearchError> {
        let config = &self.shared.config;
        config.check(query)?;
        let state = &*self.state;
        let eligible = options.allowed.map_or(state.documents.len(), |docs| docs.intersection_len(&state.documents));
        if options.limit == 0 || eligible == 0 {
            return Ok(Vec::new());
        }
        let mut code = vec![0; codes::code_stride(config)];
        codes::encode(config, 0, query, &mut code);
        let squared = (kernels().dot_f32)(query, query);
        let query = Query { vector: query, code, squared, comparer: self.shared.comparer };
        let wanted = options.limit.min(eligible as usize);
        let width = options.width.max(if options.width == 0 { WIDTH_MIN } else { 1 }).max(wanted);
        let accept = match (options.allowed, options.ordinal) {
            (None, None) => Accept::All,
            (docs, ordinal) => Accept::Some { docs, ordinal },
        };
        let Some(entry) = state.entry else { return self.scan(&query, options, accept, pace).await };
        if codes::is_loose(config, &query.code) || scan_is_cheaper(eligible, width, state.live.len()) {
            return self.scan(&query, options, accept, pace).await;
        }
        let mut visited = self.shared.take_visited();
        let share = eligible as f64 / state.documents.len() as f64;
        let two_hops = !matches!(accept, Accept::All) && share < TWO_HOPS_SHARE;
        let walked = walk(state, &query, entry, width, (accept, two_hops), &mut visited, pace).await;
        self.shared.give_visited(visited);
        let mut keys = walked?;
        let loose = state.loose.iter().filter(|node| accept.takes(state, *node));
        keys.extend(loose.map(|node| key(query.coded(state.codes.get(node)).0, node)));
        let deviations = (DEVIATIONS / (config.dimensions as f32).sqrt()).min(1.0);
        let found = self.rank(&query, keys, options.limit, deviations, pace).await?;
        // Vectors of one document, an ordinal that few have, or a part of the graph cut off by the filter.
        if found.len() < wanted && !pace.stopped() {
            return self.scan(&query, options, accept, pace).await;
        }
        Ok(found)
    }

    /// Compares the codes of all accepted vectors.
    async fn scan(
        &self,
        query: &Query<'_>,
        options: &SearchOptions<'_>,
        accept: Accept<'_>,
        pace: &dyn Pace,
    ) -> Result<Vec<Neighbor>, SearchError> {
        let state = &*self.state;
        let nodes: Vec<u32> = match options.allowed {
            None => state.live.iter().collect(),
            Some(docs) => (docs & &*state.documents).iter().flat_map(|doc| state.nodes_of(doc)).collect(),
        };
        let mut keys = Vec::with_capacity(nodes.len());
        for batch in nodes.chunks(SCAN_BATCH) {
            let ordinal_fits = |node: &&u32| options.ordinal.is_none() || accept.takes(state, **node);
            let batch = batch.iter().filter(ordinal_fits);
            keys.extend(batch.map(|node| key(query.coded(state.codes.get(*node)).0, *node)));
            if pace.stopped() {
                break;
            }
            if pace.due() {
                pace.pause().await;
            }
        }
        Ok(self.rank(query, keys, options.limit, 1.0, pace).await?)
    }

    /// The nearest documents of the nodes with these keys, by their full vectors; `share` is the part of the codes' error bounds
    /// that is allowed for.
    async fn rank(
        &self,
        query: &Query<'_>,
        mut keys: Vec<u64>,
        limit: usize,
        share: f32,
        pace: &dyn Pace,
    ) -> Result<Vec<Neighbor>, FetchError> {
        let (state, comparer) = (&*self.state, query.comparer);
        let mut nearest = Nearest { limit, found: Vec::with_capacity(limit.min(keys.len()) + 1) };
        let document = |node: u32| codes::doc(state.codes.get(node));
        if self.shared.config.metric == Metric::Hamming {
            keys.sort_unstable();
            for key in keys {
                let distance = comparer.reported(distance_of(key), 0.0);
                if nearest.excludes(distance) {
                    break;
                }
                nearest.offer(document(node_of(key)), distance);
            }
            return Ok(nearest.found);
        }
        if self.shared.config.code_kind() == CodeKind::Bits {
            keys.sort_unstable();
            keys.truncate((limit * OVERSAMPLING).max(SCAN_BATCH));
        }
        for batch in self.contenders(query, &keys, limit, share).chunks(READ_BATCH) {
            let least = batch[0].least;
            if nearest.excludes(comparer.reported(least, query.squared)) || pace.stopped() {
                break;
            }
            let nodes: Vec<u32> = batch.iter().map(|contender| contender.node).collect();
            for (node, vector) in nodes.iter().zip(self.shared.fetch(&nodes).await?) {
                let squared = codes::squared_norm(state.codes.get(*node));
                let distance = comparer.true_distance(query.vector, &vector, query.squared, squared);
                nearest.offer(document(*node), comparer.reported(distance, query.squared));
            }
            if pace.due() {
                pace.pause().await;
            }
        }
        Ok(nearest.found)
    }

    /// The nodes that may be among the `limit` nearest documents, by the least distance they may have.
    fn contenders(&self, query: &Query<'_>, keys: &[u64], limit: usize, share: f32) -> Vec<Contender> {
        let state = &*self.state;
        let mut contenders: Vec<Contender> = keys
            .iter()
            .map(|key| {
                let node = node_of(*key);
                let (distance, bound) = query.coded(state.codes.get(node));
                let bound = if bound.is_finite() { bound * share } else { bound };
                Contender { least: distance - bound, most: distance + bound, node }
            })
            .collect();
        // Each document is as near as its nearest vector; those beyond the limit-th of these are out.
        let mut nearest: Vec<(u32, f32)> =
            contenders.iter().map(|c| (codes::doc(state.codes.get(c.node)), c.most)).collect();
        if state.live.len() > state.documents.len() {
            nearest.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            nearest.dedup_by_key(|(doc, _)| *doc);
        }
        if nearest.len() > limit {
            let last = nearest.select_nth_unstable_by(limit - 1, |a, b| a.1.total_cmp(&b.1)).1.1;
            contenders.retain(|contender| contender.least <= last);
        }
        contenders.sort_unstable_by(|a, b| a.least.total_cmp(&b.least).then(a.node.cmp(&b.node)));
        contenders
    }
}

/// Whether comparing all `eligible` of `all` vectors costs less than a walk that must pass over the others: each of the nodes in
/// view has up to 32 neighbours, and `all / eligible` times as many are seen as are accepted. A scan goes through
/// memory in order, which halves the cost of a comparison.
fn scan_is_cheaper(eligible: u64, width: usize, all: u64) -> bool {
    let walk = (width * LINKS_BOTTOM) as f64 * (all as f64 / eligible.max(1) as f64).min(8.0);
    eligible <= SCAN_MIN || (eligible as f64) < walk * 2.0
}

/// Walks the bottom layer from where the descent ends.
async fn walk(
    state: &State,
    query: &Query<'_>,
    entry: (u32, u8),
    width: usize,
    (accept, two_hops): (Accept<'_>, bool),
    visited: &mut Visited,
    pace: &dyn Pace,
) -> Result<Vec<u64>, FetchError> {
    let start = descend(state, query.comparer, &query.code, entry, 0);
    let mut walk = Walk::new(query.comparer, &query.code, 0, width, visited);
    (walk.accept, walk.two_hops) = (accept, two_hops);
    walk.start(state, std::iter::once(start));
    loop {
        match walk.step(state) {
            Step::Done => break,
            Step::More => {}
            Step::Need(pages) => state.load(&pages).await?,
        }
        if pace.stopped() {
            break;
        }
        if pace.due() {
            pace.pause().await;
        }
    }
    Ok(walk.finish())
}
