//! Nearest-neighbour search: an exact scan of the codes if few documents pass the filter, otherwise a graph search. Then the full
//! vectors of possible results are read, many at once, and decide the order.
//!
//! The error bounds of the codes decide how many vectors are read: a vector is skipped if its distance cannot be small enough. A
//! scan uses the strict bound, so its result is that of comparing all vectors; with codes of rotated vectors it is practically
//! so. A graph search, which is approximate itself, uses the sum that errors of independent signs are expected to reach.

use super::codes::{self, Comparer, Probe};
use super::kernels::prefetch;
use super::nearest::Nearest;
use super::state::{State, VectorSnapshot};
use super::walk::{Accept, Reach, Step, Walk, descend, distance_of, node_of};
use super::{CodeKind, FetchError, LINKS_BOTTOM, Metric, Neighbor, Pace, SearchError};
use roaring::RoaringBitmap;

/// Nodes that every partition's walk keeps in view unless told how many, and as many more as are shared among all of them: each has
/// its share of the nearest only, and finds them in a narrower view than one that has all.
const VIEW_EACH: usize = 48;
const VIEW_SHARED: usize = 80;
/// How many times as far as the last of the nearest that it must find a walk looks. Against a view alone, with 10 wanted: of
/// groups far apart all are found with half the comparisons, of vectors of 20 numbers without any structure 0.99 with two thirds
/// (1.08 would find 0.96 with half), and of WordNet's glosses, with a view of 160, 0.994 instead of 0.995 at 1.17 times as many
/// searches a second.
const REACH: f32 = 1.12;
/// That last is one of at least so many: the distance of one or two says little.
const REACH_MIN: usize = 10;
/// A scan is always taken up to this many documents: it is exact, and costs little more than a walk.
const SCAN_MIN: u64 = 4096;
/// What a node in view costs a walk, in comparisons of a scan. On the machine of the benches a scan compares 16 million codes of
/// 384 bytes a second, and a walk takes 1.5 us for each node in view.
const VIEW_COST: f64 = 18.0;
/// Nodes in view for each that is wanted, at least.
const VIEW_MIN: usize = 2;
/// The same with a filter: what passes may lie on the far side of what does not.
const FILTERED_VIEW_MIN: usize = 4;
/// Where so much less than its share of all passes a filter near the query, what passes is elsewhere, and a walk is likely to end
/// before it gets to the nearest of it.
const SPARSE: f64 = 0.5;
/// That is told by so many of the nodes around the query that from half as many as this to this should pass: a small cluster of
/// the query's own that does not is noticed before the walk is out of it, and an even filter is seldom taken for such a one.
const SPARSE_SAMPLE: f64 = 16.0;
/// A query lies apart from what passes where the tenth nearest of it, the last that [`REACH_MIN`] counts, is so many times as far as
/// these are from their own neighbours. With most data it is 0.9 to 1.3 times as far (WordNet, also of one document in ten: 1.1), and
/// 1.5 to 2.1 times where a filter has left out the clusters around the query.
const OUTLYING: f32 = 1.4;
/// So many of the nearest are asked for that, and more than half of them must say so.
const OUTLYING_SAMPLE: usize = 3;
/// One in so many of a node's links is not longer than those to its neighbours; others lead out of its cluster.
const OUTLYING_NEIGHBORS: usize = 4;
/// Either way, the nearest are in several clusters, between which few links lead. Unless a scan costs less, a walk then has a view so
/// many times as wide, and looks farther: of 200,000 clustered vectors on two cores it finds 0.99 of the nearest instead of 0.68.
const WIDE_VIEW: usize = 8;
const WIDE_REACH: f32 = 1.2;
/// Where codes leave open what is nearest a scan is taken up to this many documents: some milliseconds.
const OPEN_SCAN_MAX: u64 = 100_000;
/// Codes leave open what is nearest where a view from its first nodes on, a wanted one of them and of so many in view at most one,
/// to its last is narrower than their errors.
const OPEN_SHARE: usize = 8;
/// The view of a walk is then as wide as what a scan costs, within these.
const OPEN_VIEW_MIN: usize = 1024;
const OPEN_VIEW_MAX: usize = 8192;
/// It begins at many nodes: links, which were chosen by codes, may not lead everywhere.
const OPEN_STARTS: usize = 64;
/// Where more than this is open in a full view, few documents are scanned instead.
const OPEN_SCAN: f32 = 0.5;
/// Full vectors that are read at most to tell them apart: of few documents, all.
const OPEN_READ_MAX: usize = 32_768;
/// Codes compared between two looks at the pace.
const SCAN_BATCH: usize = 1024;
/// A scan gives up what cannot be among the nearest when it holds this many.
const NARROW_MIN: usize = 8 * SCAN_BATCH;
/// Codes that a scan fetches into the processor's cache ahead of the one looked at.
const CODES_AHEAD: usize = 8;
/// Vectors read for each wanted one where codes have no error bound.
const OVERSAMPLING: usize = 20;
/// Full vectors read at first, for each that is wanted, and at least.
const FIRST_READ: usize = 2;
const FIRST_READ_MIN: usize = 16;
/// Bytes of each full vector that are fetched into the processor's cache before the first is looked at, and of the next one ahead of
/// it; the processor goes on by itself.
const BEGIN_BYTES: usize = 64;
const AHEAD_BYTES: usize = 1024;
/// Full vectors read at once.
const READ_BATCH: usize = 64;
/// Standard deviations that a walk's re-ranking allows for: twice as many have up to three times as many vectors read, for a
/// thousandth of recall.
const DEVIATIONS: f32 = 2.0;
/// And a scan's, where codes are of so few bits that the strict bound would have almost all vectors read: a chance in a million
/// that one of the nearest is passed over.
const SCAN_DEVIATIONS: f32 = 5.0;

/// How a search goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Compares the codes of all that may be returned. Exact, but for 1-bit codes of metrics other than Hamming; with codes of four
    /// or two bits but for errors of more than five standard deviations.
    Scan,
    /// Walks the graph through all nodes and returns those that may be.
    Walk,
}

/// What to search for.
#[derive(Clone, Copy, Default)]
pub struct SearchOptions<'a> {
    /// Documents to return at most.
    pub limit: usize,
    /// Nodes that the walk keeps in view (the paper's ef): more find more and cost more. At least the limit; where this is 0,
    /// what finds about as many of the nearest of all partitions however many these are.
    pub width: usize,
    /// Over how many partitions the documents are spread, of which this is one; 0 is 1. The nearest of all of them are then in
    /// several.
    pub partitions: u16,
    /// The documents that may be returned; all where none are given.
    pub allowed: Option<&'a RoaringBitmap>,
    /// Whether a filter chose them, even if all documents of this partition pass: what is near the query may have been in others.
    pub filtered: bool,
    /// Compares only documents' vectors of this number (counted from 0).
    pub ordinal: Option<u16>,
    /// The way to go, for measurements; the one that should cost least where none is given.
    pub plan: Option<Plan>,
}

/// A node that may be among the nearest: its distance is off by the bound at most.
#[derive(Clone, Copy)]
struct Contender {
    distance: f32,
    bound: f32,
    node: u32,
}

/// What a walk came to.
struct Walked {
    /// The nodes in view with their distances, nearest first; none where it was given up.
    keys: Option<Vec<u64>>,
    /// See [`Walk::taken_share`].
    taken_share: f64,
}

/// How far a walk goes.
#[derive(Clone, Copy)]
struct Extent {
    /// Nodes in view.
    width: usize,
    /// Nodes compared at most; more would cost more than a scan.
    most: u64,
    /// So many of the first nodes tell what share is accepted near the query.
    sample: u32,
    /// A walk of which a smaller share is accepted there is given up.
    share_min: f64,
    /// How far it looks from the query.
    reach: Reach,
    /// Nodes of the layer above where it begins.
    starts: usize,
}

impl Extent {
    /// That of a walk to what passes a filter and is not around the query.
    fn widened(self) -> Self {
        let reach = Reach { factor: Some(WIDE_REACH), ..self.reach };
        Self { width: self.width.saturating_mul(WIDE_VIEW), sample: 0, share_min: 0.0, reach, ..self }
    }

    /// That of a walk among vectors nearer to each other than codes tell: it sees all that may be among the nearest, or so many that
    /// a scan would cost less.
    fn opened(self, eligible: u64) -> Self {
        let width = ((eligible as f64 / VIEW_COST) as usize).clamp(OPEN_VIEW_MIN, OPEN_VIEW_MAX).max(self.width);
        Self {
            width,
            sample: 0,
            share_min: 0.0,
            reach: Reach { factor: None, ..self.reach },
            starts: OPEN_STARTS,
            ..self
        }
    }
}

struct Query<'a> {
    vector: &'a [f32],
    probe: Probe,
    comparer: Comparer,
    /// Standard deviations of codes' errors that are reckoned with.
    deviations: Option<f32>,
    /// After so many full vectors no more are read.
    read_max: usize,
}

impl<'a> Query<'a> {
    fn new(vector: &'a [f32], probe: Probe, comparer: Comparer) -> Self {
        let bounded = matches!(comparer.kind(), CodeKind::Int8 | CodeKind::Bits);
        Self { vector, probe, comparer, deviations: (!bounded).then_some(SCAN_DEVIATIONS), read_max: usize::MAX }
    }

    /// The distance of a node by its code, and what it can be off by.
    fn contender(&self, state: &State, node: u32) -> Contender {
        let code = state.codes.get(node);
        if self.comparer.too_short(&self.probe, code) {
            return Contender { distance: -1.0, bound: 0.0, node };
        }
        self.contender_at(state, node, self.comparer.distance(&self.probe, code))
    }

    /// How far codes leave open which nodes are the nearest: above 0 where the view ends with one that may be as near as one of the
    /// first in it, and those that it has no room for may be, too; 1 where they all look equally near.
    fn openness(&self, state: &State, keys: &[u64], wanted: usize, width: usize) -> f32 {
        let first = keys.get(wanted.min(width / OPEN_SHARE).saturating_sub(1));
        let Some((first, last)) = first.zip(keys.last()) else { return 0.0 };
        let bound = |key| self.comparer.error_bound(&self.probe, state.codes.get(node_of(key)), Some(DEVIATIONS));
        let off = bound(*first) + bound(*last);
        // Without errors, equal distances are just that.
        if off > 0.0 && off.is_finite() { 1.0 - (distance_of(*last) - distance_of(*first)) / off } else { 0.0 }
    }

    /// The same for a node of the graph, whose distance by its code is known.
    fn contender_at(&self, state: &State, node: u32, distance: f32) -> Contender {
        let bound = self.comparer.error_bound(&self.probe, state.codes.get(node), self.deviations);
        // Of norms beyond all numbers nothing follows.
        let distance = if distance.is_nan() { 0.0 } else { distance };
        Contender { distance, bound, node }
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
        let mut query = Query::new(query, self.shared.coder.probe(query), state.comparer);
        let exactly = query.deviations;
        let wanted = options.limit.min(eligible as usize);
        let share = eligible as f64 / state.documents.len() as f64;
        let accept = match (options.allowed.filter(|_| share < 1.0), options.ordinal) {
            (None, None) => Accept::All,
            (docs, ordinal) => Accept::Some { docs, ordinal },
        };
        // Vectors of one document may crowd the view.
        let vectors = state.live.len() as f64 / state.documents.len() as f64;
        let width = (view(options, wanted, share) * vectors).ceil() as usize;
        let reach = reach(options, wanted, vectors);
        let plan = options.plan.unwrap_or_else(|| plan(eligible, width, share));
        let Some(entry) =
            state.entry.filter(|_| plan != Plan::Scan && !codes::is_loose(config.metric, query.probe.norm))
        else {
            return self.scan(&query, options, accept, pace).await;
        };
        // A filter that lets pass what is far from the query makes a walk long: it ends where a scan would have.
        let sample = if share < 1.0 { (SPARSE_SAMPLE / share).ceil() as u32 } else { 0 };
        let mut extent = match options.plan {
            Some(_) => Extent { width, most: u64::MAX, sample: 0, share_min: 0.0, reach, starts: 1 },
            None => Extent { width, most: eligible, sample, share_min: share * SPARSE, reach, starts: 1 },
        };
        let mut walked = self.walk(&query, entry, accept, extent, pace).await?;
        let is_filtered = (options.filtered || share < 1.0) && options.plan.is_none();
        if is_filtered && !pace.stopped() && self.is_elsewhere(&query, &walked, extent).await? {
            extent = extent.widened();
            if self::plan(eligible, extent.width, share) == Plan::Scan {
                return self.scan(&query, options, accept, pace).await;
            }
            walked = self.walk(&query, entry, accept, extent, pace).await?;
        }
        let width = extent.width;
        let openness = walked.keys.as_ref().map_or(0.0, |keys| query.openness(state, keys, wanted, width));
        if openness > 0.0 && !pace.stopped() {
            (query.deviations, query.read_max) = (Some(DEVIATIONS), OPEN_READ_MAX);
            let is_full = walked.keys.as_ref().is_some_and(|keys| keys.len() >= width);
            let may_scan = eligible <= OPEN_SCAN_MAX && options.plan.is_none();
            if may_scan && openness > OPEN_SCAN && is_full {
                return self.scan(&query, options, accept, pace).await;
            }
            extent = extent.opened(eligible);
            walked = self.walk(&query, entry, accept, extent, pace).await?;
            // What is left out of so wide a view is as near by its code as what is in it.
            walked.keys = walked.keys.filter(|keys| !may_scan || keys.len() < extent.width);
        }
        let Some(keys) = walked.keys else { return self.scan(&query, options, accept, pace).await };
        let loose = state.loose.iter().filter(|node| accept.takes(state, *node));
        query.deviations = Some(DEVIATIONS);
        let walked = keys.into_iter().map(|key| query.contender_at(state, node_of(key), distance_of(key)));
        let contenders = walked.chain(loose.map(|node| query.contender(state, node)));
        let found = self.rank(&query, contenders.collect(), options.limit, pace).await?;
        // An ordinal that few documents have, or nodes that cannot be reached.
        if found.len() < wanted && !pace.stopped() {
            (query.deviations, query.read_max) = (exactly, usize::MAX);
            return self.scan(&query, options, accept, pace).await;
        }
        Ok(found)
    }

    /// Whether what passes the filter is not around the query, as the walk tells.
    async fn is_elsewhere(&self, query: &Query<'_>, walked: &Walked, extent: Extent) -> Result<bool, FetchError> {
        if walked.taken_share < extent.share_min {
            return Ok(true);
        }
        let (state, comparer) = (&*self.state, query.comparer);
        let Some((keys, last)) = walked.keys.as_ref().and_then(|keys| Some((keys, *keys.get(REACH_MIN - 1)?))) else {
            return Ok(false);
        };
        let off = comparer.error_bound(&query.probe, state.codes.get(node_of(last)), Some(DEVIATIONS));
        let (mut apart, mut probe, mut distances) = (0, Probe::default(), Vec::with_capacity(LINKS_BOTTOM));
        for key in &keys[..OUTLYING_SAMPLE] {
            let links = state.loaded_bottom(node_of(*key)).await?;
            comparer.probe(state.codes.get(node_of(*key)), &mut probe);
            distances.clear();
            distances.extend(links.as_slice().iter().map(|link| comparer.distance(&probe, state.codes.get(*link))));
            if distances.is_empty() {
                continue;
            }
            let at = distances.len() / OUTLYING_NEIGHBORS;
            let neighbor = *distances.select_nth_unstable_by(at, f32::total_cmp).1;
            apart += usize::from(distance_of(last) > comparer.farther(neighbor, OUTLYING) + 2.0 * off);
        }
        Ok(2 * apart > OUTLYING_SAMPLE)
    }

    /// Walks the graph from above.
    async fn walk(
        &self,
        query: &Query<'_>,
        entry: (u32, u8),
        accept: Accept<'_>,
        extent: Extent,
        pace: &dyn Pace,
    ) -> Result<Walked, FetchError> {
        let state = &*self.state;
        let mut visited = self.shared.take_visited();
        let above = u8::from(extent.starts > 1).min(entry.1);
        let mut starts = vec![descend(state, query.comparer, &query.probe, entry, above)];
        if above > 0 {
            let mut walk = Walk::new(query.comparer, &query.probe, above, extent.starts, &mut visited);
            walk.start(state, starts.into_iter());
            finish(&mut walk, state, &extent, pace).await?;
            starts = walk.finish().into_iter().map(node_of).collect();
        }
        let mut walk = Walk::new(query.comparer, &query.probe, 0, extent.width, &mut visited);
        walk.accept = accept;
        walk.sample = extent.sample;
        walk.reach = Some(extent.reach);
        walk.start(state, starts.into_iter());
        let done = finish(&mut walk, state, &extent, pace).await;
        let (taken_share, keys) = (walk.taken_share(), walk.finish());
        self.shared.give_visited(visited);
        Ok(Walked { keys: done?.then_some(keys), taken_share })
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
        let allowed = options.allowed.map(|docs| docs & &*state.documents);
        let mut nodes: Box<dyn Iterator<Item = u32>> = match &allowed {
            None => Box::new(state.live.iter()),
            Some(docs) => Box::new(docs.iter().flat_map(|doc| state.nodes_of(doc))),
        };
        let (mut contenders, mut begun) = (Vec::new(), false);
        let mut narrow_at = NARROW_MIN.max(options.limit.saturating_mul(4));
        loop {
            let batch: Vec<u32> = nodes.by_ref().take(SCAN_BATCH).collect();
            // However little time there is, something is found.
            if batch.is_empty() || (begun && pace.stopped()) {
                break;
            }
            begun = true;
            for (at, node) in batch.iter().enumerate() {
                if let Some(ahead) = batch.get(at + CODES_AHEAD) {
                    prefetch(state.codes.get(*ahead));
                }
                if options.ordinal.is_none() || accept.takes(state, *node) {
                    contenders.push(query.contender(state, *node));
                }
            }
            if contenders.len() > narrow_at {
                self.narrow(&mut contenders, options.limit);
                narrow_at = narrow_at.max(contenders.len() * 2);
            }
            if pace.due() {
                pace.pause().await;
            }
        }
        Ok(self.rank(query, contenders, options.limit, pace).await?)
    }

    /// The nearest documents of these nodes, by their full vectors.
    async fn rank(
        &self,
        query: &Query<'_>,
        mut contenders: Vec<Contender>,
        limit: usize,
        pace: &dyn Pace,
    ) -> Result<Vec<Neighbor>, FetchError> {
        let comparer = query.comparer;
        let (mut nearest, mut read) = (Nearest::new(limit, self.has_several()), 0);
        self.narrow(&mut contenders, limit);
        let least = |c: &Contender| c.distance - c.bound;
        contenders.sort_unstable_by(|a, b| least(a).total_cmp(&least(b)).then(a.node.cmp(&b.node)));
        // Mostly the first few decide, and none of the others need be read.
        let (first, others) =
            contenders.split_at(contenders.len().min(limit.saturating_mul(FIRST_READ).max(FIRST_READ_MIN)));
        for batch in first.chunks(READ_BATCH).chain(others.chunks(READ_BATCH)) {
            let near = batch.partition_point(|contender| !nearest.excludes(comparer.reported(least(contender))));
            if near == 0 || read >= query.read_max || (read > 0 && pace.stopped()) {
                break;
            }
            let batch = &batch[..near];
            read += near;
            if self.shared.config.metric == Metric::Hamming {
                for contender in batch {
                    nearest.offer(self.doc(contender.node), comparer.reported(contender.distance));
                }
            } else {
                self.offer_all(query, batch, &mut nearest).await?;
            }
            if pace.due() {
                pace.pause().await;
            }
        }
        if pace.stopped() && comparer.kind() != CodeKind::Bits {
            // What there was no time to read is as near as its code says, or almost.
            let unread = contenders.iter().skip(read).filter(|contender| contender.bound.is_finite());
            for contender in unread.take(limit.saturating_mul(FIRST_READ)) {
                nearest.offer(self.doc(contender.node), comparer.reported(contender.distance));
            }
        }
        Ok(nearest.found)
    }

    /// Offers nodes by their full vectors. Most are in memory, and what the first that is not makes necessary is read at once.
    async fn offer_all(&self, query: &Query<'_>, batch: &[Contender], nearest: &mut Nearest) -> Result<(), FetchError> {
        let (shared, comparer) = (&*self.shared, query.comparer);
        batch.iter().for_each(|contender| shared.prefetch_vector(contender.node, BEGIN_BYTES));
        let mut read = Vec::new().into_iter();
        for (at, contender) in batch.iter().enumerate() {
            if let Some(next) = batch.get(at + 1) {
                shared.prefetch_vector(next.node, AHEAD_BYTES);
            }
            let norm = codes::norm(self.state.codes.get(contender.node));
            let measure = |vector: &[f32]| comparer.true_distance(query.vector, vector, query.probe.norm, norm);
            let kept = if read.len() == 0 { shared.cache.with(contender.node, measure) } else { None };
            let distance = match kept {
                Some(distance) => distance,
                None => {
                    if read.len() == 0 {
                        let nodes: Vec<u32> = batch[at..].iter().map(|contender| contender.node).collect();
                        read = shared.fetch(&nodes).await?.into_iter();
                    }
                    let Some(vector) = read.next() else { break };
                    measure(&vector)
                }
            };
            nearest.offer(self.doc(contender.node), comparer.reported(distance));
        }
        Ok(())
    }

    /// Whether documents have several vectors.
    fn has_several(&self) -> bool {
        self.state.live.len() > self.state.documents.len()
    }

    fn doc(&self, node: u32) -> u32 {
        self.state.head(node).doc
    }

    /// Leaves out those that cannot be among the `limit` nearest documents, each of which is as near as its nearest vector.
    fn narrow(&self, contenders: &mut Vec<Contender>, limit: usize) {
        if self.shared.config.code_kind() == CodeKind::Bits && self.shared.config.metric != Metric::Hamming {
            // The error has no bound: a number of the nearest by their codes is read instead.
            let read = limit.saturating_mul(OVERSAMPLING).max(SCAN_BATCH);
            if contenders.len() > read {
                let by_code =
                    |a: &Contender, b: &Contender| a.distance.total_cmp(&b.distance).then(a.node.cmp(&b.node));
                contenders.select_nth_unstable_by(read - 1, by_code);
                contenders.truncate(read);
            }
            return;
        }
        let most = |c: &Contender| c.distance + c.bound;
        let mut nearest: Vec<f32> = if !self.has_several() {
            contenders.iter().map(most).collect()
        } else {
            let mut by_doc: Vec<(u32, f32)> = contenders.iter().map(|c| (self.doc(c.node), most(c))).collect();
            by_doc.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            by_doc.dedup_by_key(|(doc, _)| *doc);
            by_doc.into_iter().map(|(_, most)| most).collect()
        };
        if nearest.len() > limit {
            let last = *nearest.select_nth_unstable_by(limit - 1, f32::total_cmp).1;
            contenders.retain(|contender| contender.distance - contender.bound <= last);
        }
    }
}

/// Nodes that a walk keeps in view where each document has one. A filter makes the walk see more nodes than it keeps, so fewer need
/// be kept for the same recall (measured: with the square root of the share recall stays above that of a search without filter).
fn view(options: &SearchOptions<'_>, wanted: usize, share: f64) -> f64 {
    let width = match options.width {
        0 => VIEW_EACH + VIEW_SHARED / usize::from(options.partitions.max(1)),
        width => width,
    };
    let least = wanted.saturating_mul(if share < 1.0 { FILTERED_VIEW_MIN } else { VIEW_MIN });
    (width as f64 * share.sqrt()).max(least as f64)
}

/// How far a walk looks. Of what is wanted of all partitions one has its even share, and half of the rest may be there by chance.
fn reach(options: &SearchOptions<'_>, wanted: usize, vectors: f64) -> Reach {
    let share = 0.5 + 0.5 / f64::from(options.partitions.max(1));
    Reach {
        known: (wanted.max(REACH_MIN) as f64 * vectors * share).ceil() as usize,
        found: (wanted as f64 * vectors).ceil() as usize,
        factor: Some(REACH),
    }
}

/// The plan of less cost for a search that may return `eligible` documents, a `share` of all. A walk goes through the others,
/// too: looking past them for accepted nodes behind (ACORN-1, arXiv 2403.04871) was measured and found slower at
/// equal recall for every share at which a scan is not faster than both.
fn plan(eligible: u64, width: usize, share: f64) -> Plan {
    let walk = width as f64 * VIEW_COST / share;
    if eligible <= SCAN_MIN || eligible as f64 <= walk { Plan::Scan } else { Plan::Walk }
}

/// Takes a walk to its end; false where it was given up before, as its extent says.
async fn finish(walk: &mut Walk<'_>, state: &State, extent: &Extent, pace: &dyn Pace) -> Result<bool, FetchError> {
    loop {
        let step = walk.step(state);
        let loaded = matches!(step, Step::Need(_));
        match step {
            Step::Done => return Ok(true),
            Step::More => {}
            Step::Need(pages) => state.load(&pages).await?,
        }
        if walk.compared() > extent.most || (walk.is_sampled() && walk.taken_share() < extent.share_min) {
            return Ok(false);
        }
        if pace.stopped() {
            return Ok(true);
        }
        // Pages are used before others can push them out again: else many searches at once, with room for the pages of few,
        // would all load theirs over and over. Loading was a pause.
        if !loaded && pace.due() {
            pace.pause().await;
        }
    }
}
