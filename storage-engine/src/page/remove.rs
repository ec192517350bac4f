//! Removing entries: those of a sorted run of keys in one descent, so that a leaf that loses many is gone through once.

use super::node::{DirtyNode, LeafEntry, LeafValue, ValueRef};
use super::read::{Source, value_of};
use super::write::{WriteTxn, tree_index};
use super::{PAGE_BYTES, PageNo, ReadError, TreeId, WriteError};

/// A node that holds less is joined with a neighbour, if both fit well below a page.
const UNDERFULL_BYTES: usize = PAGE_BYTES / 4;
/// A joined node may hold this much, so that the next insert does not split it again.
const JOINED_BYTES_MAX: usize = PAGE_BYTES * 3 / 4;

/// Called with the place of a key in its run and with its value; whether it is to be removed.
pub type Doomed<'d> = dyn FnMut(usize, &[u8]) -> bool + 'd;

impl WriteTxn {
    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// [`WriteError`] when a page on the way is damaged.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<bool, WriteError> {
        Ok(self.delete_run(tree, &[key], &mut |_, _| true)? > 0)
    }

    /// Removes those of some keys, which rise, that are there and that `doomed` names; how many these were.
    ///
    /// # Errors
    /// [`WriteError`] when a page on the way is damaged.
    pub fn delete_run<K: AsRef<[u8]>>(
        &mut self,
        tree: TreeId,
        keys: &[K],
        doomed: &mut Doomed<'_>,
    ) -> Result<usize, WriteError> {
        debug_assert!(keys.is_sorted_by(|a, b| a.as_ref() < b.as_ref()), "keys rise");
        let at = tree_index(tree)?;
        let root = self.meta.roots[at].page;
        if root == PageNo::NONE || keys.is_empty() {
            return Ok(0);
        }
        let result = self.remove_below(root, (keys, 0), doomed).map_err(WriteError::from);
        let (root, removed) = self.noting_damage(result)?;
        if removed > 0 {
            self.finger = None;
            self.meta.roots[at].entries -= removed as u64;
            let root = self.collapse(root).map_err(WriteError::from);
            self.meta.roots[at].page = self.noting_damage(root)?;
        }
        Ok(removed)
    }

    /// Removes keys below a page; where it lies then, and how many there were. What has none of them stays as it is. The number tells
    /// how many keys of the run come before these.
    fn remove_below<K: AsRef<[u8]>>(
        &mut self,
        page: PageNo,
        (keys, before): (&[K], usize),
        doomed: &mut Doomed<'_>,
    ) -> Result<(PageNo, usize), ReadError> {
        if self.node(page)?.is_leaf() {
            return self.remove_from_leaf(page, (keys, before), doomed);
        }
        let (mut own, mut removed) = (page, 0);
        // From the last child to the first, so that places in the branch stay as they are when children go.
        for (at, range) in self.by_child(page, keys)?.into_iter().rev() {
            let child = self.node(own)?.child(at).map_err(|reason| self.misplaced(own, reason))?;
            let first = before + range.start;
            let (child, count) = self.remove_below(child, (&keys[range], first), doomed)?;
            if count == 0 {
                continue;
            }
            removed += count;
            own = self.own(own)?;
            if let Some(DirtyNode::Branch(entries)) = self.nodes.get_mut(&own.0) {
                entries[at].child = child;
            }
            self.mend(own, at)?;
        }
        Ok((own, removed))
    }

    /// The keys that belong to each child of a branch, as far as it has any.
    fn by_child<K: AsRef<[u8]>>(
        &self,
        page: PageNo,
        keys: &[K],
    ) -> Result<Vec<(usize, std::ops::Range<usize>)>, ReadError> {
        let broken = |reason| self.misplaced(page, reason);
        let node = self.node(page)?;
        let (mut parts, mut start, mut next) = (Vec::new(), 0, Vec::new());
        while let Some(key) = keys.get(start) {
            let at = node.child_for(key.as_ref()).map_err(broken)?;
            let mut end = keys.len();
            if at + 1 < node.len() {
                node.key_into(at + 1, &mut next).map_err(broken)?;
                end = start + keys[start..].partition_point(|key| key.as_ref() < next.as_slice());
            }
            // The key itself belongs to the child, in whatever order a damaged branch has its keys.
            let end = end.max(start + 1);
            parts.push((at, start..end));
            start = end;
        }
        if parts.is_sorted_by(|(a, _), (b, _)| a < b) { Ok(parts) } else { Err(broken("its keys do not rise")) }
    }

    fn remove_from_leaf<K: AsRef<[u8]>>(
        &mut self,
        page: PageNo,
        (keys, before): (&[K], usize),
        doomed: &mut Doomed<'_>,
    ) -> Result<(PageNo, usize), ReadError> {
        let mut gone: Vec<usize> = Vec::new();
        let node = self.node(page)?;
        for (number, key) in keys.iter().enumerate() {
            let found = node.search(key.as_ref()).map_err(|reason| self.misplaced(page, reason))?;
            if let Ok(at) = found
                && doomed(before + number, value_of(self, page, node, at)?)
            {
                gone.push(at);
            }
        }
        if gone.is_empty() {
            return Ok((page, 0));
        }
        if let Some(DirtyNode::Leaf(entries)) = self.nodes.get_mut(&page.0) {
            let values = take_out(entries, &gone);
            values.iter().for_each(|value| self.drop_value(value));
            return Ok((page, gone.len()));
        }
        // What goes need not be decoded.
        let node = self.node(page)?;
        let broken = |reason| self.misplaced(page, reason);
        let (mut entries, mut key) = (Vec::with_capacity(node.len() - gone.len()), Vec::new());
        let (mut dropped, mut next) = (Vec::new(), gone.iter().copied().peekable());
        for at in 0..node.len() {
            let value = node.value(at).map_err(broken)?;
            if next.next_if_eq(&at).is_some() {
                if let ValueRef::Run { page, len } = value {
                    dropped.push(LeafValue::Run { page, len: len as u32 });
                }
                continue;
            }
            node.key_into(at, &mut key).map_err(broken)?;
            entries.push(LeafEntry { key: key.as_slice().into(), value: value.into() });
        }
        dropped.iter().for_each(|value| self.drop_value(value));
        self.give_up(page, 1);
        let own = self.alloc.allocate(1);
        self.nodes.insert(own.0, DirtyNode::Leaf(entries));
        Ok((own, gone.len()))
    }

    /// A root without entries is none; a root branch with one child is that child.
    fn collapse(&mut self, mut root: PageNo) -> Result<PageNo, ReadError> {
        loop {
            let node = self.node(root)?;
            let next = match (node.is_leaf(), node.len()) {
                (_, 0) => PageNo::NONE,
                (false, 1) => node.child(0).map_err(|reason| self.misplaced(root, reason))?,
                _ => return Ok(root),
            };
            self.drop_node(root);
            if next == PageNo::NONE {
                return Ok(next);
            }
            root = next;
        }
    }

    /// After child `at` of a branch, both of this transaction, lost entries: drops it when empty, joins it with a neighbour when small.
    fn mend(&mut self, branch: PageNo, at: usize) -> Result<(), ReadError> {
        let Some(DirtyNode::Branch(entries)) = self.nodes.get(&branch.0) else { return Ok(()) };
        let (child, count) = (entries[at].child, entries.len());
        let Some(node) = self.nodes.get(&child.0) else { return Ok(()) };
        if node.len() == 0 {
            self.drop_node(child);
            if let Some(DirtyNode::Branch(entries)) = self.nodes.get_mut(&branch.0) {
                entries.remove(at);
                if let Some(first) = entries.first_mut() {
                    first.key = Box::default();
                }
            }
            return Ok(());
        }
        if node.encoded_bytes() >= UNDERFULL_BYTES || count < 2 {
            return Ok(());
        }
        let left = if at + 1 < count { at } else { at - 1 };
        self.join(branch, left)
    }

    /// Puts child `left + 1` of a branch into child `left`, if both together fit.
    fn join(&mut self, branch: PageNo, left: usize) -> Result<(), ReadError> {
        let Some(DirtyNode::Branch(entries)) = self.nodes.get(&branch.0) else { return Ok(()) };
        let (left_page, right_page) = (entries[left].child, entries[left + 1].child);
        // Both are copied only where that is not in vain.
        let rest = |page| self.node(page)?.rest_bytes().map_err(|reason| self.misplaced(page, reason));
        if rest(left_page)? + rest(right_page)? > JOINED_BYTES_MAX {
            return Ok(());
        }
        let separator = entries[left + 1].key.clone();
        let (keep, drop) = (self.own(left_page)?, self.own(right_page)?);
        let mut joins = false;
        if let [Some(a), Some(b)] = [self.nodes.remove(&keep.0), self.nodes.remove(&drop.0)] {
            let (a, b) = match a.joined(b, separator, JOINED_BYTES_MAX) {
                Ok(joined) => {
                    joins = true;
                    (joined, None)
                }
                Err((a, b)) => (a, Some(b)),
            };
            self.nodes.insert(keep.0, a);
            match b {
                Some(b) => {
                    self.nodes.insert(drop.0, b);
                }
                None => self.alloc.release(drop, 1),
            }
        }
        if let Some(DirtyNode::Branch(entries)) = self.nodes.get_mut(&branch.0) {
            entries[left].child = keep;
            if joins {
                entries.remove(left + 1);
            } else {
                entries[left + 1].child = drop;
            }
        }
        Ok(())
    }
}

/// Takes the entries at these places, which rise, out of a leaf; their values.
fn take_out(entries: &mut Vec<LeafEntry>, gone: &[usize]) -> Vec<LeafValue> {
    let (mut values, mut next, mut at) = (Vec::with_capacity(gone.len()), gone.iter().copied().peekable(), 0);
    entries.retain_mut(|entry| {
        let goes = next.next_if_eq(&at).is_some();
        if goes {
            values.push(std::mem::replace(&mut entry.value, LeafValue::Inline(Box::default())));
        }
        at += 1;
        !goes
    });
    values
}
