//! Links between nodes: choosing them, keeping them symmetric, and repairing them around a deleted node.
//!
//! Both nodes of a link store it. A deleted node is therefore linked from exactly its own neighbours, which are repaired at once:
//! nothing points to it afterwards.
//!
//! Neighbours are chosen by algorithm 4 of the HNSW paper: nearest first, and only if a candidate is nearer to the node than to
//! every neighbour already chosen.

use super::codes::Probe;
use super::draft::Draft;
use super::links::{Links, PageNo};
use super::state::State;
use super::walk::{distance_of, key, node_of};
use super::{FetchError, LINKS_BOTTOM, LINKS_UPPER};

/// Links of a node at most in a layer.
fn links_max(level: u8) -> usize {
    if level == 0 { LINKS_BOTTOM } else { LINKS_UPPER }
}

/// The nearest of those not chosen fill a node's links up to this share of the most. Of vectors that are almost the same few are
/// chosen, since each is nearer to the others than to the rest: without more links among them a walk finds some of them only (of
/// groups of 60, 0.8 of the nearest instead of 0.96).
const FILL: usize = 2;

/// A mended neighbour gets at most this many links for the one it lost.
const MENDED_MAX: usize = 2;

impl Draft {
    /// A node's links in a layer.
    async fn links(&self, level: u8, node: u32) -> Result<Links, FetchError> {
        if level > 0 {
            let levels = self.state.upper.levels(node);
            return Ok(levels.get(usize::from(level) - 1).map_or_else(Links::default, |links| Links::of(links)));
        }
        self.state.loaded_bottom(node).await
    }

    /// Loads the pages with these nodes' links, all at once.
    pub(super) async fn preload(&self, level: u8, nodes: &[u32]) -> Result<(), FetchError> {
        if level > 0 {
            return Ok(());
        }
        let mut missing: Vec<PageNo> = nodes.iter().filter_map(|node| self.state.bottom(*node).err()).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() { Ok(()) } else { self.state.load(&missing).await }
    }

    fn set_links(&mut self, level: u8, node: u32, nodes: &[u32]) {
        if level == 0 {
            self.changed_bottom.insert(node);
            self.state.overlay.set(node, Links::of(nodes));
        } else {
            let mut levels = self.state.upper.levels(node).to_vec();
            levels[usize::from(level) - 1] = nodes.to_vec();
            self.set_levels(node, levels);
        }
    }

    /// Sets a node's links in all layers above the bottom.
    pub(super) fn set_levels(&mut self, node: u32, levels: Vec<Vec<u32>>) {
        self.changed_upper.insert(node);
        self.state.upper.set(node, levels);
    }

    fn distance(&self, from: &Probe, node: u32) -> f32 {
        self.state.comparer.distance(from, self.state.codes.get(node))
    }

    /// Makes `probe` one of this node.
    fn probe(&self, node: u32, probe: &mut Probe) {
        self.state.comparer.probe(self.state.codes.get(node), probe);
    }

    /// The distances of nodes from one, nearest first.
    fn keys_from(&self, node: u32, others: impl Iterator<Item = u32>) -> Vec<u64> {
        let mut probe = Probe::default();
        self.probe(node, &mut probe);
        let mut keys: Vec<u64> = others.map(|other| key(self.distance(&probe, other), other)).collect();
        keys.sort_unstable();
        keys
    }

    /// At most `most` of the nodes with these keys (distances from one node, nearest first), spread in all directions.
    pub(super) fn choose(&self, keys: &[u64], most: usize) -> Vec<u32> {
        let mut chosen: Vec<u32> = Vec::with_capacity(most);
        let mut probe = Probe::default();
        for key in keys {
            let (node, distance) = (node_of(*key), distance_of(*key));
            self.probe(node, &mut probe);
            if chosen.iter().all(|other| self.distance(&probe, *other) > distance) {
                chosen.push(node);
                if chosen.len() == most {
                    break;
                }
            }
        }
        chosen
    }

    /// Links a new node, which has no links yet, with those of `keys` (its distances, nearest first) that are chosen.
    pub(super) async fn connect(&mut self, level: u8, node: u32, keys: &[u64]) -> Result<(), FetchError> {
        let mut chosen = self.choose(keys, LINKS_UPPER);
        let nearest = keys.iter().map(|key| node_of(*key)).filter(|near| !chosen.contains(near));
        let fill: Vec<u32> = nearest.take((LINKS_UPPER / FILL).saturating_sub(chosen.len())).collect();
        chosen.extend(fill);
        self.preload(level, &chosen).await?;
        for other in &chosen {
            self.link(level, node, *other).await?;
        }
        if let Some(nearest) = chosen.first()
            && self.links(level, node).await?.as_slice().is_empty()
        {
            self.force(level, node, *nearest).await?;
        }
        Ok(())
    }

    async fn unlink(&mut self, level: u8, node: u32, other: u32) -> Result<(), FetchError> {
        let links = self.links(level, node).await?;
        let kept: Vec<u32> = links.as_slice().iter().copied().filter(|linked| *linked != other).collect();
        self.set_links(level, node, &kept);
        Ok(())
    }

    async fn push(&mut self, level: u8, node: u32, other: u32) -> Result<(), FetchError> {
        let links = self.links(level, node).await?;
        self.set_links(level, node, &[links.as_slice(), &[other]].concat());
        Ok(())
    }

    /// Links two nodes, of which `node` has room. Where the other has none it chooses again, and those it gives up lose their
    /// link to it; `node` itself may be given up.
    async fn link(&mut self, level: u8, node: u32, other: u32) -> Result<(), FetchError> {
        let links = self.links(level, other).await?;
        let most = links_max(level);
        if links.as_slice().len() < most {
            self.push(level, other, node).await?;
            return self.push(level, node, other).await;
        }
        let all = links.as_slice().iter().copied().chain([node]);
        let keys = self.keys_from(other, all);
        let mut kept = self.choose(&keys, most);
        let mut dropped: Vec<u32> = keys.iter().map(|key| node_of(*key)).filter(|n| !kept.contains(n)).collect();
        let fill = (most / FILL).saturating_sub(kept.len()).min(dropped.len());
        kept.extend(dropped.drain(..fill));
        self.preload(level, &dropped).await?;
        for lost in dropped {
            if lost == node {
                continue;
            }
            // A node must not lose its last link, as long as there is room for it.
            if kept.len() < most && self.links(level, lost).await?.as_slice().len() == 1 {
                kept.push(lost);
            } else {
                self.unlink(level, lost, other).await?;
            }
        }
        self.set_links(level, other, &kept);
        if kept.contains(&node) { self.push(level, node, other).await } else { Ok(()) }
    }

    /// Links a node that nobody chose with the one nearest to it, in place of that one's farthest that has others.
    async fn force(&mut self, level: u8, node: u32, nearest: u32) -> Result<(), FetchError> {
        let mut links = self.links(level, nearest).await?.as_slice().to_vec();
        if links.len() == links_max(level) {
            let keys = self.keys_from(nearest, links.iter().copied());
            let mut lost = node_of(keys[keys.len() - 1]);
            for key in keys.iter().rev() {
                if self.links(level, node_of(*key)).await?.as_slice().len() > 1 {
                    lost = node_of(*key);
                    break;
                }
            }
            self.unlink(level, lost, nearest).await?;
            links.retain(|linked| *linked != lost);
        }
        links.push(node);
        self.set_links(level, nearest, &links);
        self.push(level, node, nearest).await
    }

    /// Takes a node out of a layer: its neighbours lose it and are linked among themselves.
    pub(super) async fn disconnect(&mut self, level: u8, node: u32) -> Result<(), FetchError> {
        let neighbors = self.links(level, node).await?;
        let neighbors = neighbors.as_slice();
        self.preload(level, neighbors).await?;
        for other in neighbors {
            self.unlink(level, *other, node).await?;
        }
        for other in neighbors {
            self.mend(level, *other, neighbors).await?;
        }
        if level == 0 {
            self.set_links(level, node, &[]);
        }
        Ok(())
    }

    /// Gives a node that lost a link others among `orphans`: the nearest that are in a direction of their own, or just the nearest
    /// where it has few links.
    async fn mend(&mut self, level: u8, node: u32, orphans: &[u32]) -> Result<(), FetchError> {
        let most = links_max(level);
        let mut links = self.links(level, node).await?.as_slice().to_vec();
        let others = orphans.iter().copied().filter(|other| *other != node && !links.contains(other));
        let keys = self.keys_from(node, others);
        let (mut mended, mut probe) = (0, Probe::default());
        for key in keys {
            let (other, distance) = (node_of(key), distance_of(key));
            if mended == MENDED_MAX || links.len() == most {
                break;
            }
            self.probe(other, &mut probe);
            let own = links.iter().all(|linked| self.distance(&probe, *linked) > distance);
            if (own || links.len() < most / 4) && self.links(level, other).await?.as_slice().len() < most {
                self.push(level, other, node).await?;
                self.push(level, node, other).await?;
                links.push(other);
                mended += 1;
            }
        }
        Ok(())
    }
}

/// The layer of a vector, from its document, its number in it and the seed alone: layer n with the probability 16^-n.
pub(super) fn level_of(seed: u64, doc: u32, ordinal: u16, level_max: u8) -> u8 {
    let bytes = (u64::from(doc) << 16 | u64::from(ordinal)).to_le_bytes();
    let hash = super::files::checksum(seed, &bytes);
    // Each four zero bits are a chance of one in sixteen.
    ((hash.leading_zeros() / 4) as u8).min(level_max)
}

/// The node where searches begin once `gone` is no longer: in the highest layer, the least of them.
pub(super) fn entry_without(state: &State, gone: u32) -> Option<(u32, u8)> {
    state.upper.highest().or_else(|| {
        let in_graph = |node: &u32| *node != gone && !state.loose.contains(*node);
        state.live.iter().find(in_graph).map(|node| (node, 0))
    })
}
