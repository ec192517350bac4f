//! Writes out, before the commit, what a transaction will not change any more. A copy of a store, whose entries come in their order,
//! takes little memory that way.

use ahash::{AHashMap, AHashSet};

use super::commit::{GROWTH_BYTES_MIN, encode_all, make_room, neighbours_together};
use super::node::DirtyNode;
use super::read::Source;
use super::write::WriteTxn;
use super::{PageNo, TreeId};
use crate::io::DiskError;

impl WriteTxn {
    /// Writes all pages but those on the way to the last entry of a tree, and forgets them. Until the commit, no state names them,
    /// and nothing reads them. Only for a transaction that builds a store anew, and goes on behind that entry or in a later tree.
    pub(super) async fn spill(&mut self, tree: TreeId) -> Result<(), DiskError> {
        let open = self.way_to_the_end(tree);
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        let (kept, done): (AHashMap<_, _>, AHashMap<_, _>) = nodes.partition(|(page, _)| open.contains(page));
        self.nodes = kept;
        let mut writes = Vec::with_capacity(done.len() + self.values.len());
        encode_all(done, self.values.take(), &mut writes).await;
        writes.sort_unstable_by_key(|(page, _)| *page);
        let file = self.store.0.current.borrow().file.clone();
        // What is left to the commit fits, too, as a rule.
        make_room(&*file.file, PageNo(self.alloc.page_count()).offset(), GROWTH_BYTES_MIN).await?;
        // Synced at once: all of it together would hold up what other files have to write.
        let pieces = neighbours_together(writes, |page| file.forget(page)).await;
        file.file.write_groups(vec![pieces]).await
    }

    /// The nodes, of this transaction, from the root of a tree to its last leaf.
    fn way_to_the_end(&self, tree: TreeId) -> AHashSet<u64> {
        let (mut way, mut page) = (AHashSet::new(), self.root(tree).page);
        while let Some(node) = self.nodes.get(&page.0) {
            way.insert(page.0);
            let DirtyNode::Branch(entries) = node else { break };
            let Some(last) = entries.last() else { break };
            page = last.child;
        }
        way
    }
}
