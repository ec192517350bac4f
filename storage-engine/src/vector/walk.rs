//! Search of one layer (algorithm 2 of the HNSW paper) as a step machine: each step does some microseconds of work and says
//! whether it is done or which pages it needs. It never waits.
//!
//! With a filter, the search still visits all nodes, so that it stays connected, and keeps those that pass.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use roaring::RoaringBitmap;

use super::LINKS_BOTTOM;
use super::codes::{Comparer, Probe};
use super::kernels::prefetch;
use super::links::PageNo;
use super::state::State;

/// Nodes expanded in a step: about thirty microseconds.
const HOPS_PER_STEP: usize = 16;
/// Candidates whose links are fetched into the processor's cache ahead.
const LINKS_AHEAD: usize = 3;
/// Codes of the fresh nodes that are fetched into the processor's cache ahead of the one compared: some more requests than it has in
/// flight at once, so that it compares while they are under way.
const CODES_AHEAD: usize = 8;
/// Pages asked for at once when one is missing: those of the next candidates, too.
const PAGES_AHEAD: usize = 4;
/// Standard deviations of a code's error by which a walk reaches farther.
const DEVIATIONS: f32 = 2.0;

/// A distance and a node as one number: nearer first, then the lesser node.
pub(super) fn key(distance: f32, node: u32) -> u64 {
    let bits = distance.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(node)
}

/// The node of a key.
pub(super) fn node_of(key: u64) -> u32 {
    key as u32
}

/// The distance of a key.
pub(super) fn distance_of(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

/// The nodes that a search has seen: a bit for each, and the words to clear afterwards.
#[derive(Default)]
pub(super) struct Visited {
    words: Vec<u64>,
    touched: Vec<u32>,
}

impl Visited {
    /// Forgets all, and makes room for nodes below `nodes`.
    pub fn clear(&mut self, nodes: u32) {
        for word in self.touched.drain(..) {
            self.words[word as usize] = 0;
        }
        let words = nodes as usize / 64 + 1;
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
    }

    /// Adds a node; whether it is new.
    #[inline(always)]
    pub fn insert(&mut self, node: u32) -> bool {
        let (at, bit) = ((node / 64) as usize, 1u64 << (node % 64));
        let word = &mut self.words[at];
        if *word & bit != 0 {
            return false;
        }
        if *word == 0 {
            self.touched.push(at as u32);
        }
        *word |= bit;
        true
    }
}

/// Which nodes a search may return.
#[derive(Clone, Copy)]
pub(super) enum Accept<'a> {
    /// All.
    All,
    /// Those of these documents, and if a number is given only the documents' vectors of that number.
    Some { docs: Option<&'a RoaringBitmap>, ordinal: Option<u16> },
}

impl Accept<'_> {
    #[inline(always)]
    pub fn takes(&self, state: &State, node: u32) -> bool {
        match self {
            Self::All => true,
            Self::Some { docs, ordinal } => {
                let head = state.head(node);
                docs.is_none_or(|docs| docs.contains(head.doc)) && ordinal.is_none_or(|ordinal| head.ordinal == ordinal)
            }
        }
    }
}

/// What a step came to.
pub(super) enum Step {
    /// The search is done.
    Done,
    /// There is more to do.
    More,
    /// These pages must be loaded first.
    Need(Vec<PageNo>),
}

/// How far from the query a walk looks, beside what its width says: to some times the distance of one of the nearest that it knows.
/// Where what is near lies close together and the rest far off, that ends a walk long before its view is full (adaptive beam
/// search, arXiv 2505.15636).
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// The last of so many of the nearest is the one; at least 1.
    pub known: usize,
    /// Nodes that are found first, however far they are.
    pub found: usize,
    /// Times its distance; only as far as codes cannot tell apart where none is given.
    pub factor: Option<f32>,
}

/// A search of one layer.
pub(super) struct Walk<'a> {
    pub comparer: Comparer,
    pub query: &'a Probe,
    pub level: u8,
    /// Nodes kept in view (the paper's ef).
    pub width: usize,
    pub accept: Accept<'a>,
    /// Where none is given, the width alone ends the walk.
    pub reach: Option<Reach>,
    pub visited: &'a mut Visited,
    candidates: BinaryHeap<Reverse<u64>>,
    found: BinaryHeap<u64>,
    /// The nearest of `found`, as many as the reach asks for.
    best: BinaryHeap<u64>,
    /// What is beyond is out of reach.
    farthest: u64,
    fresh: Vec<u32>,
    compared: u64,
    /// So many of the nodes that it goes through from the nearest on are asked whether they are accepted.
    pub sample: u32,
    nearest: u64,
    sampled: u32,
    taken: u32,
}

impl<'a> Walk<'a> {
    pub fn new(comparer: Comparer, query: &'a Probe, level: u8, width: usize, visited: &'a mut Visited) -> Self {
        let (candidates, found) = (BinaryHeap::with_capacity(2 * width), BinaryHeap::with_capacity(width + 1));
        let fresh = Vec::with_capacity(LINKS_BOTTOM);
        Self {
            comparer,
            query,
            level,
            width,
            accept: Accept::All,
            reach: None,
            visited,
            candidates,
            found,
            best: BinaryHeap::new(),
            farthest: u64::MAX,
            fresh,
            compared: 0,
            sample: 0,
            nearest: u64::MAX,
            sampled: 0,
            taken: 0,
        }
    }

    /// Begins at these nodes, whether they are accepted or not.
    pub fn start(&mut self, state: &State, nodes: impl Iterator<Item = u32>) {
        self.visited.clear(state.node_count);
        for node in nodes {
            if self.visited.insert(node) {
                let key = key(self.comparer.distance(self.query, state.codes.get(node)), node);
                self.candidates.push(Reverse(key));
                if self.accept.takes(state, node) {
                    self.found.push(key);
                    self.know(key);
                }
            }
        }
        self.look_no_farther(state);
    }

    /// The keys found, nearest first.
    pub fn finish(self) -> Vec<u64> {
        self.found.into_sorted_vec()
    }

    /// Goes on for a while.
    pub fn step(&mut self, state: &State) -> Step {
        for _ in 0..HOPS_PER_STEP {
            let Some(Reverse(next)) = self.candidates.peek().copied() else { return Step::Done };
            let is_worse = self.found.len() >= self.width && self.found.peek().is_some_and(|worst| next > *worst);
            if is_worse || next > self.farthest {
                return Step::Done;
            }
            self.fresh.clear();
            let (visited, fresh) = (&mut *self.visited, &mut self.fresh);
            let look = |node| {
                if visited.insert(node) {
                    fresh.push(node);
                }
            };
            let found = match self.level.checked_sub(1) {
                None => state.each_bottom(node_of(next), look),
                Some(above) => {
                    let levels = state.upper.levels(node_of(next));
                    levels.get(usize::from(above)).into_iter().flatten().copied().for_each(look);
                    Ok(())
                }
            };
            if found.is_err() {
                return Step::Need(self.pages_ahead(state));
            }
            self.candidates.pop();
            if next < self.nearest {
                // Still on the way to the query: what was met is not around it.
                (self.nearest, self.sampled, self.taken) = (next, 0, 0);
            }
            if self.sampled < self.sample {
                self.sampled += 1;
                self.taken += u32::from(self.accept.takes(state, node_of(next)));
            }
            if self.level == 0 {
                // Where none of the fresh nodes is nearer, one of these is next.
                for Reverse(likely) in self.candidates.as_slice().iter().take(LINKS_AHEAD) {
                    state.prefetch_bottom(node_of(*likely));
                }
            }
            self.compare_fresh(state);
        }
        Step::More
    }

    /// The missing pages of the next candidates.
    fn pages_ahead(&mut self, state: &State) -> Vec<PageNo> {
        let mut kept = Vec::with_capacity(PAGES_AHEAD);
        let mut pages: Vec<PageNo> = Vec::with_capacity(PAGES_AHEAD);
        while kept.len() < PAGES_AHEAD {
            let Some(candidate) = self.candidates.pop() else { break };
            if let Err(page) = state.bottom(node_of(candidate.0)) {
                pages.push(page);
            }
            kept.push(candidate);
        }
        self.candidates.extend(kept);
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Nodes compared so far.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// Whether enough nodes were asked whether they are accepted: half of the sample.
    pub fn is_sampled(&self) -> bool {
        self.sampled >= self.sample.div_ceil(2)
    }

    /// The share that is accepted of the nodes around the query; 1 where too few were asked, since then what was wanted was
    /// found among few.
    pub fn taken_share(&self) -> f64 {
        if self.sampled == 0 || !self.is_sampled() { 1.0 } else { f64::from(self.taken) / f64::from(self.sampled) }
    }

    /// Compares the nodes met last.
    fn compare_fresh(&mut self, state: &State) {
        self.compared += self.fresh.len() as u64;
        self.fresh.iter().take(CODES_AHEAD).for_each(|node| prefetch(state.codes.get(*node)));
        let mut worst = self.worst();
        for at in 0..self.fresh.len() {
            let node = self.fresh[at];
            if let Some(ahead) = self.fresh.get(at + CODES_AHEAD) {
                prefetch(state.codes.get(*ahead));
            }
            let key = key(self.comparer.distance(self.query, state.codes.get(node)), node);
            if key > worst.min(self.farthest) {
                continue;
            }
            self.candidates.push(Reverse(key));
            if !self.accept.takes(state, node) {
                continue;
            }
            self.know(key);
            if worst < u64::MAX
                && let Some(mut last) = self.found.peek_mut()
            {
                *last = key;
            } else {
                self.found.push(key);
            }
            worst = self.worst();
        }
        self.look_no_farther(state);
    }

    /// The last in a full view; above every key where the view is not full.
    #[inline(always)]
    fn worst(&self) -> u64 {
        self.found.peek().copied().filter(|_| self.found.len() >= self.width).unwrap_or(u64::MAX)
    }

    /// Keeps an accepted node if it is among the nearest.
    #[inline(always)]
    fn know(&mut self, key: u64) {
        let Some(reach) = self.reach else { return };
        if self.best.len() < reach.known {
            self.best.push(key);
        } else if let Some(mut last) = self.best.peek_mut()
            && key < *last
        {
            *last = key;
        }
    }

    /// Sets what is out of reach by the nearest known. To that comes what the code of the last of them may be off, and at least as
    /// much again for what is compared with it: vectors may be nearer to each other than their codes are exact.
    fn look_no_farther(&mut self, state: &State) {
        let Some((reach, last)) = self.reach.zip(self.best.peek()) else { return };
        if self.best.len() < reach.known || self.found.len() < reach.found {
            return;
        }
        let off = self.comparer.error_bound(self.query, state.codes.get(node_of(*last)), Some(DEVIATIONS));
        let (last, farther) = (distance_of(*last), |factor| self.comparer.farther(distance_of(*last), factor) + off);
        self.farthest = key(reach.factor.map_or(f32::MIN, farther).max(last + 2.0 * off), u32::MAX);
    }
}

/// The node nearest to the query that is reached through layers above the bottom, from the entry down to `level`.
pub(super) fn descend(state: &State, comparer: Comparer, query: &Probe, entry: (u32, u8), level: u8) -> u32 {
    let (mut node, top) = entry;
    let mut best = key(comparer.distance(query, state.codes.get(node)), node);
    for layer in (level + 1..=top).rev() {
        loop {
            let links = state.upper.levels(node).get(usize::from(layer) - 1).map_or(&[][..], Vec::as_slice);
            // All at once: the memory answers many such requests in the time of one.
            links.iter().for_each(|next| prefetch(state.codes.get(*next)));
            let keys = links.iter().map(|next| key(comparer.distance(query, state.codes.get(*next)), *next));
            match keys.min() {
                Some(nearer) if nearer < best => (best, node) = (nearer, node_of(nearer)),
                _ => break,
            }
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_distance_and_then_by_node() {
        let distances = [-1e30f32, -1.0, -1e-30, 0.0, 1e-30, 0.5, 1.0, 1e30];
        for pair in distances.windows(2) {
            assert!(key(pair[0], 9) < key(pair[1], 3));
        }
        assert!(key(0.5, 3) < key(0.5, 4));
        for distance in distances {
            assert_eq!((distance_of(key(distance, 7)), node_of(key(distance, 7))), (distance, 7));
        }
    }

    #[test]
    fn visited_nodes_are_forgotten() {
        let mut visited = Visited::default();
        visited.clear(200);
        assert!(visited.insert(5) && !visited.insert(5) && visited.insert(199) && visited.insert(6));
        visited.clear(200);
        assert!(visited.insert(5) && visited.insert(199));
    }
}
