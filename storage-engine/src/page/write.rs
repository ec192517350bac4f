//! Building the next state: copy on write in memory, with no disk access before the commit.
//!
//! To change a node, the transaction decodes its entries, gives it a fresh page and releases its old page. Ascending inserts
//! remember the last leaf and skip the descent.

use ahash::AHashMap;

use super::alloc::Allocator;
use super::commit::YIELD_NODES;
use super::meta::{Meta, Root};
use super::node::{BranchEntry, DirtyNode, INLINE_BYTES_MAX, LeafEntry, LeafValue, NodeRef, leaf_bytes};
use super::page_set::PageSet;
use super::read::{Snapshot, Source, get};
use super::values::Values;
use super::{
    Cursor, Finder, KEY_BYTES_MAX, PAGE_BYTES, PageNo, PageStore, ReadError, ReadTree, TREES_MAX, TreeId,
    VALUE_BYTES_MAX, WriteError,
};

/// The leaf that the last insert went to, and which keys belong there.
pub(super) struct Finger {
    tree: TreeId,
    leaf: PageNo,
    low: Box<[u8]>,
    high: Option<Box<[u8]>>,
}

/// Changes that become the next state when they are committed; dropped, they are gone.
pub struct WriteTxn {
    pub(super) store: PageStore,
    pub(super) base: Snapshot,
    pub(super) meta: Meta,
    pub(super) nodes: AHashMap<u64, DirtyNode>,
    pub(super) values: Values,
    pub(super) alloc: Allocator,
    /// Pages of the base state that this one no longer uses.
    pub(super) given_up: PageSet,
    pub(super) finger: Option<Finger>,
    /// A change stopped half-way at a damaged page: pages may be given up that the trees still refer to.
    pub(super) broken: Option<ReadError>,
}

impl Drop for WriteTxn {
    fn drop(&mut self) {
        self.store.0.writing.set(false);
    }
}

/// What a change below a branch means for the branch.
struct Changed {
    page: PageNo,
    /// Nodes split off to the right, with the keys that separate them.
    split: Vec<(Box<[u8]>, PageNo)>,
}

pub(super) fn tree_index(tree: TreeId) -> Result<usize, WriteError> {
    let at = usize::from(tree.0);
    if at < TREES_MAX { Ok(at) } else { Err(WriteError::NoSuchTree(tree.0)) }
}

impl WriteTxn {
    pub(super) fn begin(store: &PageStore) -> Result<Self, WriteError> {
        if store.0.poisoned.get() {
            return Err(WriteError::Poisoned);
        }
        if store.0.writing.replace(true) {
            return Err(WriteError::Busy);
        }
        let base = store.snapshot();
        let mut alloc = store.0.current.borrow().alloc.clone();
        alloc.release_held(store.0.oldest_read());
        alloc.join_held(|epochs| store.0.is_read(epochs));
        let meta = base.meta().clone();
        Ok(Self {
            store: store.clone(),
            base,
            meta,
            nodes: AHashMap::new(),
            values: Values::default(),
            alloc,
            given_up: PageSet::default(),
            finger: None,
            broken: None,
        })
    }

    /// Bytes of memory that the changes take, about.
    pub fn dirty_bytes(&self) -> usize {
        self.nodes.len() * PAGE_BYTES + self.values.bytes()
    }

    pub(super) fn give_up(&mut self, page: PageNo, pages: u64) {
        // The reference to a value may name any pages where a page of ours holds nonsense: they are none of this state's.
        if page.0 >= 2 && page.0.saturating_add(pages) <= self.base.meta().page_count {
            self.given_up.insert(page.0, pages);
        }
    }

    /// Makes a node the transaction's own and returns where it now lies.
    pub(super) fn own(&mut self, page: PageNo) -> Result<PageNo, ReadError> {
        if self.nodes.contains_key(&page.0) {
            return Ok(page);
        }
        let node = self.base.node(page)?.to_dirty(self.base.file(), page)?;
        self.give_up(page, 1);
        let own = self.alloc.allocate(1);
        self.nodes.insert(own.0, node);
        Ok(own)
    }

    pub(super) fn drop_node(&mut self, page: PageNo) {
        if self.nodes.remove(&page.0).is_some() {
            self.alloc.release(page, 1);
        } else {
            self.give_up(page, 1);
        }
    }

    pub(super) fn drop_value(&mut self, value: &LeafValue) {
        if let LeafValue::Run { page, len } = value {
            let pages = Snapshot::run_pages(*len as usize);
            if self.values.remove(page.0) {
                self.alloc.release(*page, pages);
            } else {
                self.give_up(*page, pages);
            }
        }
    }

    fn store_value(&mut self, key: &[u8], value: &[u8]) -> LeafValue {
        if key.len() + value.len() <= INLINE_BYTES_MAX {
            return LeafValue::Inline(value.into());
        }
        let page = self.alloc.allocate(Snapshot::run_pages(value.len()));
        self.values.insert(page.0, value.to_vec());
        LeafValue::Run { page, len: value.len() as u32 }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`WriteError`] when key or value are too long or a page on the way is damaged.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let at = tree_index(tree)?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(WriteError::KeyLength(key.len()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(WriteError::ValueLength(value.len()));
        }
        let entry = LeafEntry { key: key.into(), value: self.store_value(key, value) };
        let result = self.put_entry(tree, at, entry);
        self.noting_damage(result)
    }

    /// Passes a result on; a failed read ends the transaction.
    pub(super) fn noting_damage<T>(&mut self, result: Result<T, WriteError>) -> Result<T, WriteError> {
        if let Err(WriteError::Read(error)) = &result {
            self.broken.get_or_insert_with(|| error.clone());
        }
        result
    }

    fn put_entry(&mut self, tree: TreeId, at: usize, entry: LeafEntry) -> Result<(), WriteError> {
        let Some(entry) = self.put_at_finger(tree, entry) else { return Ok(()) };
        let root = self.meta.roots[at].page;
        if root == PageNo::NONE {
            let page = self.alloc.allocate(1);
            self.nodes.insert(page.0, DirtyNode::Leaf(vec![entry]));
            self.meta.roots[at] = Root { page, entries: 1 };
            return Ok(());
        }
        self.finger = Some(Finger { tree, leaf: PageNo::NONE, low: Box::default(), high: None });
        let changed = self.insert(tree, root, entry)?;
        self.meta.roots[at].page = changed.page;
        if !changed.split.is_empty() {
            let first = BranchEntry { key: Box::default(), child: changed.page };
            let others = changed.split.into_iter().map(|(key, child)| BranchEntry { key, child });
            let branch = DirtyNode::Branch(std::iter::once(first).chain(others).collect());
            let page = self.alloc.allocate(1);
            self.nodes.insert(page.0, branch);
            self.meta.roots[at].page = page;
        }
        Ok(())
    }

    /// Inserts without the way down, where the last leaf takes the key and has room; gives the entry back otherwise.
    fn put_at_finger(&mut self, tree: TreeId, entry: LeafEntry) -> Option<LeafEntry> {
        let Some(finger) = &self.finger else { return Some(entry) };
        let inside = finger.tree == tree
            && *finger.low <= *entry.key
            && finger.high.as_ref().is_none_or(|high| *entry.key < **high);
        let Some(DirtyNode::Leaf(entries)) = self.nodes.get_mut(&finger.leaf.0).filter(|_| inside) else {
            return Some(entry);
        };
        if entries.last().is_none_or(|last| *last.key >= *entry.key) {
            return Some(entry);
        }
        entries.push(entry);
        if leaf_bytes(entries) > PAGE_BYTES {
            return entries.pop();
        }
        self.meta.roots[usize::from(tree.0)].entries += 1;
        None
    }

    /// Inserts below `page`; remembers in the finger where that was.
    fn insert(&mut self, tree: TreeId, page: PageNo, entry: LeafEntry) -> Result<Changed, WriteError> {
        let page = self.own(page)?;
        let found = self.position(page, &entry.key)?;
        let Some(DirtyNode::Branch(entries)) = self.nodes.get(&page.0) else {
            return Ok(self.insert_into_leaf(tree, page, entry, found));
        };
        let at = match found {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        };
        let child = entries[at].child;
        let (low, high) = (entries[at].key.clone(), entries.get(at + 1).map(|next| next.key.clone()));
        if let Some(finger) = &mut self.finger {
            // Going down, bounds only get closer; an empty key or none is no bound of this level.
            if !low.is_empty() {
                finger.low = low;
            }
            finger.high = high.or(finger.high.take());
        }
        let changed = self.insert(tree, child, entry)?;
        let Some(DirtyNode::Branch(entries)) = self.nodes.get_mut(&page.0) else {
            unreachable!("a branch that was made the transaction's own stays one")
        };
        entries[at].child = changed.page;
        let at_end = at + 1 == entries.len();
        let new = changed.split.into_iter().map(|(key, child)| BranchEntry { key, child });
        entries.splice(at + 1..at + 1, new);
        Ok(Changed { page, split: self.split(page, at_end) })
    }

    fn insert_into_leaf(
        &mut self,
        tree: TreeId,
        page: PageNo,
        entry: LeafEntry,
        found: Result<usize, usize>,
    ) -> Changed {
        let mut replaced = None;
        let mut at_end = false;
        if let Some(DirtyNode::Leaf(entries)) = self.nodes.get_mut(&page.0) {
            match found {
                Ok(at) => replaced = Some(std::mem::replace(&mut entries[at].value, entry.value)),
                Err(at) => {
                    at_end = at == entries.len();
                    entries.insert(at, entry);
                }
            }
        }
        match replaced {
            Some(old) => self.drop_value(&old),
            None => self.meta.roots[usize::from(tree.0)].entries += 1,
        }
        let split = self.split(page, at_end);
        if let Some(finger) = &mut self.finger {
            finger.leaf = page;
            // After a split the next ascending key belongs to the last part.
            if let Some((key, last)) = split.last() {
                (finger.leaf, finger.low) = (*last, key.clone());
            }
        }
        Changed { page, split }
    }

    fn split(&mut self, page: PageNo, at_end: bool) -> Vec<(Box<[u8]>, PageNo)> {
        let parts = self.nodes.get_mut(&page.0).map(|node| node.split_to_fit(at_end)).unwrap_or_default();
        let mut out = Vec::with_capacity(parts.len());
        for (key, node) in parts {
            let place = self.alloc.allocate(1);
            self.nodes.insert(place.0, node);
            out.push((key, place));
        }
        out
    }

    pub(super) fn position(&self, page: PageNo, key: &[u8]) -> Result<Result<usize, usize>, ReadError> {
        self.node(page)?.search(key).map_err(|reason| self.misplaced(page, reason))
    }

    /// Removes everything from a tree, in steps between which others have their turn.
    ///
    /// # Errors
    /// [`WriteError`] when a page of the tree is damaged.
    pub async fn clear(&mut self, tree: TreeId) -> Result<(), WriteError> {
        let at = tree_index(tree)?;
        self.finger = None;
        let root = std::mem::replace(&mut self.meta.roots[at], Root { page: PageNo::NONE, entries: 0 });
        let result = self.drop_below(root.page).await;
        self.noting_damage(result)
    }

    async fn drop_below(&mut self, root: PageNo) -> Result<(), WriteError> {
        let (mut pages, mut dropped) = (vec![root], 0);
        while let Some(page) = pages.pop().filter(|page| *page != PageNo::NONE) {
            dropped += 1;
            if dropped % YIELD_NODES == 0 {
                futures_lite::future::yield_now().await;
            }
            let node = self.node(page)?.to_dirty(self.base.file(), page)?;
            match node {
                DirtyNode::Leaf(entries) => entries.iter().for_each(|entry| self.drop_value(&entry.value)),
                DirtyNode::Branch(entries) => pages.extend(entries.iter().map(|entry| entry.child)),
            }
            self.drop_node(page);
        }
        Ok(())
    }
}

impl Source for WriteTxn {
    fn node(&self, page: PageNo) -> Result<NodeRef<'_>, ReadError> {
        match self.nodes.get(&page.0) {
            Some(DirtyNode::Leaf(entries)) => Ok(NodeRef::Leaf(entries)),
            Some(DirtyNode::Branch(entries)) => Ok(NodeRef::Branch(entries)),
            None => self.base.node(page),
        }
    }

    fn run(&self, page: PageNo, len: usize) -> Result<&[u8], ReadError> {
        match self.values.get(page.0) {
            Some(bytes) => Ok(bytes),
            None => self.base.run(page, len),
        }
    }

    fn root(&self, tree: TreeId) -> Root {
        let none = Root { page: PageNo::NONE, entries: 0 };
        self.meta.roots.get(usize::from(tree.0)).copied().unwrap_or(none)
    }

    fn file(&self) -> &str {
        self.base.file()
    }
}

impl ReadTree for WriteTxn {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        get(self, tree, key)
    }

    fn entry_count(&self, tree: TreeId) -> u64 {
        self.root(tree).entries
    }

    fn cursor(&self, tree: TreeId) -> Cursor<'_> {
        Cursor::new(self, tree)
    }

    fn finder(&self, tree: TreeId) -> Finder<'_> {
        Finder::new(self, tree)
    }
}
