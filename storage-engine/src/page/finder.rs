//! Looks up many keys of one tree.

use super::node::NodeRef;
use super::read::{Source, value_of};
use super::{PageNo, ReadError, TreeId};

/// Looks up keys one after the other. One that lies between two keys of the leaf that the one before led to is found, or found
/// missing, without going down the tree anew; so keys that rise, and are not far apart, cost little each.
pub struct Finder<'a> {
    source: &'a dyn Source,
    tree: TreeId,
    leaf: Option<(PageNo, NodeRef<'a>)>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(source: &'a dyn Source, tree: TreeId) -> Self {
        Self { source, tree, leaf: None }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`ReadError`] when a page on the way is damaged.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&'a [u8]>, ReadError> {
        if let Some((page, leaf)) = self.leaf {
            match leaf.search(key).map_err(|reason| self.source.misplaced(page, reason))? {
                Ok(at) => return value_of(self.source, page, leaf, at).map(Some),
                // In front of the first key, or behind the last one, the leaf does not tell.
                Err(at) if at > 0 && at < leaf.len() => return Ok(None),
                Err(_) => {}
            }
        }
        let mut page = self.source.root(self.tree).page;
        while page != PageNo::NONE {
            let node = self.source.node(page)?;
            let broken = |reason| self.source.misplaced(page, reason);
            if node.is_leaf() {
                self.leaf = Some((page, node));
                let Ok(at) = node.search(key).map_err(broken)? else { return Ok(None) };
                return value_of(self.source, page, node, at).map(Some);
            }
            page = node.child(node.child_for(key).map_err(broken)?).map_err(broken)?;
        }
        Ok(None)
    }
}
