//! Reading a state: snapshots, and the code they share with transactions.

use std::rc::Rc;

use super::meta::{Meta, Root};
use super::node::{HEADER_BYTES, KIND_BRANCH, KIND_LEAF, KIND_RUN, NodeRef, PageRef, ValueRef};
use super::store::{Shared, StoreFile};
use super::{Cursor, Finder, PAGE_BYTES, PageNo, ReadError, TreeId};
use crate::io::View;

/// Where nodes and runs come from.
pub(crate) trait Source {
    fn node(&self, page: PageNo) -> Result<NodeRef<'_>, ReadError>;
    /// The bytes of a value that lies in a run.
    fn run(&self, page: PageNo, len: usize) -> Result<&[u8], ReadError>;
    fn root(&self, tree: TreeId) -> Root;
    /// Name of the file, for errors.
    fn file(&self) -> &str;

    fn misplaced(&self, page: PageNo, reason: &'static str) -> ReadError {
        ReadError::Misplaced { file: self.file().to_owned(), page: page.0, reason }
    }
}

/// Looks a key up.
pub(crate) fn get<'a>(source: &'a dyn Source, tree: TreeId, key: &[u8]) -> Result<Option<&'a [u8]>, ReadError> {
    let mut page = source.root(tree).page;
    if page == PageNo::NONE {
        return Ok(None);
    }
    loop {
        let node = source.node(page)?;
        let broken = |reason| source.misplaced(page, reason);
        if node.is_leaf() {
            let Ok(at) = node.search(key).map_err(broken)? else { return Ok(None) };
            return value_of(source, page, node, at).map(Some);
        }
        page = node.child(node.child_for(key).map_err(broken)?).map_err(broken)?;
    }
}

pub(crate) fn value_of<'a>(
    source: &'a dyn Source,
    page: PageNo,
    node: NodeRef<'a>,
    at: usize,
) -> Result<&'a [u8], ReadError> {
    match node.value(at).map_err(|reason| source.misplaced(page, reason))? {
        ValueRef::Inline(bytes) => Ok(bytes),
        ValueRef::Run { page, len } => source.run(page, len),
    }
}

/// A state of a store that can be read: a [`Snapshot`], or a transaction with its own changes. Bytes are borrowed from
/// the file's map or from the transaction's pages.
pub trait ReadTree {
    /// The value of a key.
    ///
    /// # Errors
    /// [`ReadError`] when a page on the way is damaged.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, ReadError>;
    /// How many entries a tree holds.
    fn entry_count(&self, tree: TreeId) -> u64;
    /// A cursor before the first entry of a tree.
    fn cursor(&self, tree: TreeId) -> Cursor<'_>;
    /// Looks up many keys of a tree.
    fn finder(&self, tree: TreeId) -> Finder<'_>;
}

struct Inner {
    shared: Rc<Shared>,
    file: Rc<StoreFile>,
    view: View,
    meta: Meta,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.forget_reader(self.meta.epoch);
    }
}

/// One state of a store, for as long as it is held: cheap to make and to clone, and never changing.
#[derive(Clone)]
pub struct Snapshot(Rc<Inner>);

impl Snapshot {
    pub(crate) fn new(shared: Rc<Shared>, file: Rc<StoreFile>, view: View, meta: Meta) -> Self {
        shared.add_reader(meta.epoch);
        Self(Rc::new(Inner { shared, file, view, meta }))
    }

    /// The epoch of this state.
    pub fn epoch(&self) -> u64 {
        self.0.meta.epoch
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.0.meta
    }

    /// A page's bytes and those behind it, `pages` in all.
    fn pages(&self, page: PageNo, pages: u64) -> Result<&[u8], ReadError> {
        let inner = &*self.0;
        let end = page.0.checked_add(pages).filter(|end| page.0 >= 2 && *end <= inner.meta.page_count);
        let bytes: &[u8] = (*inner.view).as_ref();
        let found = end.and_then(|end| bytes.get(page.offset() as usize..PageNo(end).offset() as usize));
        found.ok_or_else(|| self.misplaced(page, "it lies outside of the file"))
    }

    /// Bytes of a run's data and the pages it takes.
    pub(crate) fn run_pages(len: usize) -> u64 {
        (HEADER_BYTES + len).div_ceil(PAGE_BYTES) as u64
    }
}

impl Source for Snapshot {
    fn node(&self, page: PageNo) -> Result<NodeRef<'_>, ReadError> {
        let bytes = self.pages(page, 1)?;
        self.0.file.verify(page, bytes)?;
        let node = PageRef::new(bytes);
        match node.kind() {
            KIND_LEAF | KIND_BRANCH => Ok(NodeRef::Clean(node)),
            _ => Err(self.misplaced(page, "it is no node")),
        }
    }

    fn run(&self, page: PageNo, len: usize) -> Result<&[u8], ReadError> {
        let bytes = self.pages(page, Self::run_pages(len))?;
        self.0.file.verify(page, bytes)?;
        if bytes[8] != KIND_RUN {
            return Err(self.misplaced(page, "it is no run"));
        }
        bytes.get(HEADER_BYTES..HEADER_BYTES + len).ok_or_else(|| self.misplaced(page, "the run is too short"))
    }

    fn root(&self, tree: TreeId) -> Root {
        let none = Root { page: PageNo::NONE, entries: 0 };
        self.0.meta.roots.get(usize::from(tree.0)).copied().unwrap_or(none)
    }

    fn file(&self) -> &str {
        self.0.file.name()
    }
}

impl ReadTree for Snapshot {
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
