//! Before a large commit, fills up adjacent leaves that are written anyway: inserts between existing keys have left them half
//! full.

use super::PAGE_BYTES;
use super::node::{BranchEntry, DirtyNode, HEADER_BYTES, LeafEntry, common_prefix, leaf_entry_bytes};
use super::write::WriteTxn;

/// Transactions of fewer nodes are left as they are: they touch leaves here and there.
const NODES_MIN: usize = 64;
/// Leaves are filled up to this many bytes, so that the next key put between others does not split them again.
const PACKED_BYTES_MAX: usize = PAGE_BYTES * 15 / 16;
/// Leaves put together at once: some ten microseconds of work.
const RUN_LEAVES_MAX: usize = 32;

/// A leaf being filled: how many entries it has, and the bytes that they take without and with a prefix in common.
#[derive(Default)]
struct Filling<'e> {
    first: Option<&'e LeafEntry>,
    entries: usize,
    whole_bytes: usize,
    prefix: usize,
}

impl<'e> Filling<'e> {
    /// Adds an entry; false when the leaf is full without it.
    fn takes(&mut self, entry: &'e LeafEntry) -> bool {
        let first = self.first.unwrap_or(entry);
        let prefix = common_prefix(&first.key[..self.prefix.min(first.key.len())], &entry.key);
        let prefix = if self.first.is_none() { entry.key.len() } else { prefix };
        let (entries, whole_bytes) = (self.entries + 1, self.whole_bytes + leaf_entry_bytes(entry));
        let takes = HEADER_BYTES + prefix + whole_bytes - entries * prefix <= PACKED_BYTES_MAX || entries == 1;
        if takes {
            *self = Self { first: Some(first), entries, whole_bytes, prefix };
        }
        takes
    }
}

/// How the entries of some leaves could be spread anew: for each leaf its smallest key in the branch, and its entries.
type Plan = Vec<(Box<[u8]>, usize)>;

impl WriteTxn {
    /// Fills up leaves, giving way to other tasks in between.
    pub(super) async fn pack(&mut self) {
        if self.nodes.len() < NODES_MIN {
            return;
        }
        let is_branch = |node: &DirtyNode| matches!(node, DirtyNode::Branch(_));
        let mut branches: Vec<u64> =
            self.nodes.iter().filter(|(_, node)| is_branch(node)).map(|(page, _)| *page).collect();
        // The file must not depend on the order of a hash table.
        branches.sort_unstable();
        for page in branches {
            let Some(DirtyNode::Branch(entries)) = self.nodes.get_mut(&page) else { continue };
            let old = std::mem::take(entries);
            let mut packed: Vec<BranchEntry> = Vec::with_capacity(old.len());
            let mut run: Vec<BranchEntry> = Vec::new();
            for entry in old {
                let own_leaf = matches!(self.nodes.get(&entry.child.0), Some(DirtyNode::Leaf(_)));
                if !own_leaf || run.len() == RUN_LEAVES_MAX {
                    self.pack_run(&mut run, &mut packed);
                    futures_lite::future::yield_now().await;
                }
                if own_leaf { run.push(entry) } else { packed.push(entry) }
            }
            self.pack_run(&mut run, &mut packed);
            self.nodes.insert(page, DirtyNode::Branch(packed));
        }
    }

    /// Moves the children `run` of a branch, all leaves of this transaction, to `packed`, in fewer pages where that is
    /// possible.
    fn pack_run(&mut self, run: &mut Vec<BranchEntry>, packed: &mut Vec<BranchEntry>) {
        let Some(plan) = self.plan(run) else { return packed.append(run) };
        let leaves = run.iter().map(|entry| match self.nodes.remove(&entry.child.0) {
            Some(DirtyNode::Leaf(entries)) => entries,
            _ => Vec::new(),
        });
        let mut entries = leaves.collect::<Vec<_>>().into_iter().flatten();
        let mut pages = run.drain(..).map(|entry| entry.child);
        for (key, count) in plan {
            // A plan has fewer leaves than there were.
            let child = pages.next().unwrap_or_else(|| self.alloc.allocate(1));
            self.nodes.insert(child.0, DirtyNode::Leaf(entries.by_ref().take(count).collect()));
            packed.push(BranchEntry { key, child });
        }
        pages.for_each(|page| self.alloc.release(page, 1));
    }

    /// Spreads the entries of leaves over fewer of them; `None` where that gains nothing, or their branch would grow.
    fn plan(&self, run: &[BranchEntry]) -> Option<Plan> {
        let leaf = |entry: &BranchEntry| match self.nodes.get(&entry.child.0) {
            Some(DirtyNode::Leaf(entries)) => Some(entries.as_slice()),
            _ => None,
        };
        if run.len() < 2 {
            return None;
        }
        let (mut plan, mut filling): (Plan, Filling<'_>) = (vec![(run[0].key.clone(), 0)], Filling::default());
        let mut before: &[u8] = &[];
        for entry in run.iter().filter_map(leaf).flatten() {
            if !filling.takes(entry) {
                plan.push((separator(before, &entry.key), 0));
                filling = Filling::default();
                filling.takes(entry);
            }
            if let Some((_, entries)) = plan.last_mut() {
                *entries = filling.entries;
            }
            before = &entry.key;
        }
        let key_bytes = |keys: &mut dyn Iterator<Item = &Box<[u8]>>| keys.map(|key| key.len()).sum::<usize>();
        let grown =
            key_bytes(&mut plan.iter().map(|(key, _)| key)) > key_bytes(&mut run.iter().map(|entry| &entry.key));
        (plan.len() < run.len() && !grown).then_some(plan)
    }
}

/// The shortest key above `before` and not above `first`.
fn separator(before: &[u8], first: &[u8]) -> Box<[u8]> {
    let shared = common_prefix(before, first);
    first[..(shared + 1).min(first.len())].into()
}
