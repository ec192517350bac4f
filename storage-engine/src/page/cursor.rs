//! Iterates over a tree in key order.

use super::node::NodeRef;
use super::read::{Source, value_of};
use super::{PageNo, ReadError, TreeId};

/// A place in a tree, between two entries. After an error it gives that error for ever: nothing is skipped silently.
pub struct Cursor<'a> {
    source: &'a dyn Source,
    tree: TreeId,
    /// From the root to a leaf; in the leaf, the entry that `next` gives.
    path: Vec<(PageNo, NodeRef<'a>, usize)>,
    key: Vec<u8>,
    started: bool,
    /// The error that ended the walk: every further movement gives it again.
    failed: Option<ReadError>,
}

/// A key, valid until the cursor moves, and its value.
pub type Entry<'c, 'a> = (&'c [u8], &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a dyn Source, tree: TreeId) -> Self {
        Self { source, tree, path: Vec::new(), key: Vec::new(), started: false, failed: None }
    }

    /// Moves before the first entry whose key is `key` or greater.
    ///
    /// # Errors
    /// [`ReadError`] when a page on the way is damaged.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), ReadError> {
        self.check()?;
        let result = self.seek_unchecked(key);
        self.noting(result)
    }

    fn seek_unchecked(&mut self, key: &[u8]) -> Result<(), ReadError> {
        self.path.clear();
        self.started = true;
        let mut page = self.source.root(self.tree).page;
        while page != PageNo::NONE {
            let node = self.source.node(page)?;
            let broken = |reason| self.source.misplaced(page, reason);
            if node.is_leaf() {
                let (Ok(at) | Err(at)) = node.search(key).map_err(broken)?;
                self.path.push((page, node, at));
                break;
            }
            let at = node.child_for(key).map_err(broken)?;
            let child = node.child(at).map_err(broken)?;
            self.path.push((page, node, at));
            page = child;
        }
        Ok(())
    }

    /// As [`Self::seek`], for a key that often lies in the leaf where the cursor is.
    ///
    /// # Errors
    /// [`ReadError`] when a page on the way is damaged.
    pub fn seek_near(&mut self, key: &[u8]) -> Result<(), ReadError> {
        self.check()?;
        if let Some((page, node, at)) = self.path.last_mut()
            && node.is_leaf()
        {
            let found = node.search(key).map_err(|reason| self.source.misplaced(*page, reason));
            match found {
                // At either end it may as well belong to a neighbour.
                Ok(Ok(place) | Err(place)) if (1..node.len()).contains(&place) => {
                    *at = place;
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => return self.noting(Err(error)),
            }
        }
        self.seek(key)
    }

    /// Moves behind the last entry.
    ///
    /// # Errors
    /// [`ReadError`] when a page on the way is damaged.
    pub fn seek_to_end(&mut self) -> Result<(), ReadError> {
        self.check()?;
        let result = self.seek_to_end_unchecked();
        self.noting(result)
    }

    fn seek_to_end_unchecked(&mut self) -> Result<(), ReadError> {
        self.path.clear();
        self.started = true;
        let page = self.source.root(self.tree).page;
        if page != PageNo::NONE { self.descend(page, true) } else { Ok(()) }
    }

    /// Goes down to the first or behind the last entry below `page`.
    fn descend(&mut self, mut page: PageNo, last: bool) -> Result<(), ReadError> {
        loop {
            let node = self.source.node(page)?;
            if node.is_leaf() {
                self.path.push((page, node, if last { node.len() } else { 0 }));
                return Ok(());
            }
            if node.len() == 0 {
                return Err(self.source.misplaced(page, "a branch without children"));
            }
            let at = if last { node.len() - 1 } else { 0 };
            let child = node.child(at).map_err(|reason| self.source.misplaced(page, reason))?;
            self.path.push((page, node, at));
            page = child;
        }
    }

    /// Leaves the leaf for its neighbour; false at the tree's end.
    fn step(&mut self, forward: bool) -> Result<bool, ReadError> {
        let mut above = self.path.len() - 1;
        while above > 0 {
            above -= 1;
            let (page, node, at) = self.path[above];
            let next = if forward { at + 1 } else { at.wrapping_sub(1) };
            if next < node.len() {
                self.path.truncate(above + 1);
                self.path[above].2 = next;
                let child = node.child(next).map_err(|reason| self.source.misplaced(page, reason))?;
                return self.descend(child, !forward).map(|()| true);
            }
        }
        Ok(false)
    }

    fn check(&self) -> Result<(), ReadError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn noting<T>(&mut self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// The next entry, or `None` behind the last.
    ///
    /// # Errors
    /// [`ReadError`] when a page on the way is damaged, now or on an earlier way.
    #[allow(clippy::should_implement_trait)] // The key is lent: no iterator can do that.
    pub fn next(&mut self) -> Result<Option<Entry<'_, 'a>>, ReadError> {
        self.move_by_one(true)
    }

    /// The entry before, or `None` before the first.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn prev(&mut self) -> Result<Option<Entry<'_, 'a>>, ReadError> {
        self.move_by_one(false)
    }

    fn move_by_one(&mut self, forward: bool) -> Result<Option<Entry<'_, 'a>>, ReadError> {
        self.check()?;
        let passed = self.pass(forward);
        let value = self.noting(passed)?;
        Ok(value.map(|value| (&*self.key, value)))
    }

    /// Passes one entry, whose key goes to `self.key`; its value.
    fn pass(&mut self, forward: bool) -> Result<Option<&'a [u8]>, ReadError> {
        if !self.started {
            self.seek(&[])?;
        }
        loop {
            let Some((page, node, at)) = self.path.last().copied() else { return Ok(None) };
            let passed = if forward { Some(at).filter(|at| *at < node.len()) } else { at.checked_sub(1) };
            if let Some(entry) = passed {
                if let Some(place) = self.path.last_mut() {
                    place.2 = if forward { at + 1 } else { entry };
                }
                node.key_into(entry, &mut self.key).map_err(|reason| self.source.misplaced(page, reason))?;
                return value_of(self.source, page, node, entry).map(Some);
            }
            if !self.step(forward)? {
                return Ok(None);
            }
        }
    }
}
