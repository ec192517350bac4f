//! Space usage of a store, tree by tree, for tools and for tests that watch its size.

use super::node::ValueRef;
use super::read::{Snapshot, Source};
use super::{PAGE_BYTES, PageNo, ReadError, TreeId};

/// The pages of one tree and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Keys with their values.
    pub entries: u64,
    /// Pages of leaves.
    pub leaf_pages: u64,
    /// Pages of branches.
    pub branch_pages: u64,
    /// Pages of runs that hold one value each.
    pub run_pages: u64,
    /// Values in runs.
    pub run_values: u64,
    /// Bytes of all keys, as they were put.
    pub key_bytes: u64,
    /// Bytes of all values, as they were put.
    pub value_bytes: u64,
    /// Bytes of leaf pages that are in use, headers included.
    pub leaf_bytes: u64,
}

impl TreeUsage {
    /// Bytes of all pages of the tree.
    pub fn page_bytes(&self) -> u64 {
        (self.leaf_pages + self.branch_pages + self.run_pages) * PAGE_BYTES as u64
    }
}

impl Snapshot {
    /// Counts the pages of a tree, reading all but the values in runs.
    ///
    /// # Errors
    /// [`ReadError`] when a page is damaged.
    pub fn usage(&self, tree: TreeId) -> Result<TreeUsage, ReadError> {
        let mut usage = TreeUsage::default();
        let mut pages = vec![self.root(tree).page];
        let mut key = Vec::new();
        while let Some(page) = pages.pop().filter(|page| *page != PageNo::NONE) {
            let node = self.node(page)?;
            let broken = |reason| self.misplaced(page, reason);
            if !node.is_leaf() {
                usage.branch_pages += 1;
                for at in 0..node.len() {
                    pages.push(node.child(at).map_err(broken)?);
                }
                continue;
            }
            usage.leaf_pages += 1;
            usage.leaf_bytes += node.to_dirty(self.file(), page)?.encoded_bytes() as u64;
            for at in 0..node.len() {
                node.key_into(at, &mut key).map_err(broken)?;
                usage.entries += 1;
                usage.key_bytes += key.len() as u64;
                match node.value(at).map_err(broken)? {
                    ValueRef::Inline(bytes) => usage.value_bytes += bytes.len() as u64,
                    ValueRef::Run { len, .. } => {
                        usage.run_values += 1;
                        usage.run_pages += Self::run_pages(len);
                        usage.value_bytes += len as u64;
                    }
                }
            }
        }
        Ok(usage)
    }
}
