//! A bounded per-term cache for one epoch.

use crate::kept::Kept;

/// Things kept of one term: the oldest goes when a client asks for it in ever new ways, and looking among them stays quick.
pub const OF_TERM_MAX: usize = 16;

/// Things by the text of the term that they are about, each with its weight in documents.
pub struct ByTerm<T>(Kept<String, Vec<(T, usize)>>);

impl<T> Default for ByTerm<T> {
    fn default() -> Self {
        Self(Kept::default())
    }
}

impl<T> ByTerm<T> {
    /// The one of a term that `fits`.
    pub fn find(&self, term: &str, fits: impl Fn(&T) -> bool) -> Option<&T> {
        self.0.get(term)?.iter().map(|(thing, _)| thing).find(|thing| fits(thing))
    }

    /// Keeps a thing that weighs `docs` documents in the place of those that it `replaces`, and forgets other terms until all
    /// things weigh no more than `docs_max`.
    pub fn keep(&mut self, term: &str, (thing, docs): (T, usize), docs_max: usize, replaces: impl Fn(&T) -> bool) {
        let mut things = self.0.take(term).unwrap_or_default();
        things.retain(|(other, _)| !replaces(other));
        if things.len() >= OF_TERM_MAX {
            things.remove(0);
        }
        things.push((thing, docs));
        let all = things.iter().map(|(_, docs)| docs).sum();
        self.0.keep(term.to_owned(), things, all, docs_max);
    }

    /// What all of them weigh, in documents.
    pub fn docs(&self) -> usize {
        self.0.weight()
    }

    /// Forgets a bounded part of it; false when there is nothing.
    pub fn forget_some(&mut self) -> bool {
        self.0.forget_some()
    }
}

#[cfg(test)]
impl<T> ByTerm<T> {
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.things().flatten().map(|(thing, _)| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_term_is_bounded() {
        let mut kept = ByTerm::default();
        (0..2 * OF_TERM_MAX).for_each(|at| kept.keep("a", (at, 10), 1000, |_| false));
        let known = |kept: &ByTerm<usize>| {
            (0..2 * OF_TERM_MAX).filter(|at| kept.find("a", |thing| thing == at).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(known(&kept), (OF_TERM_MAX..2 * OF_TERM_MAX).collect::<Vec<_>>());
        assert_eq!(kept.docs(), OF_TERM_MAX * 10);
        kept.keep("a", (99, 5), 1000, |thing| *thing == OF_TERM_MAX);
        assert_eq!((known(&kept).len(), kept.docs()), (OF_TERM_MAX - 1, OF_TERM_MAX * 10 - 5));
        kept.keep("b", (1, 900), 1000, |_| false);
        assert_eq!((known(&kept).len(), kept.docs()), (0, 900));
    }
}
