//! What a client asks of the lists of tasks and batches, decoded.

use std::ops::Bound;

use roaring::RoaringBitmap;
use shards::timestamp::Timestamp;

use super::column::Range;
use super::task::{Kind, Status, Task};

/// Dates strictly between two others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dates {
    /// Later than this one.
    pub after: Option<Timestamp>,
    /// Earlier than this one.
    pub before: Option<Timestamp>,
}

/// Restrictions, all of which must hold; `None` is no restriction, an empty list matches nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Numbers of tasks.
    pub uids: Option<RoaringBitmap>,
    /// Numbers of batches.
    pub batches: Option<RoaringBitmap>,
    /// Any of these.
    pub statuses: Option<Vec<Status>>,
    /// Any of these.
    pub kinds: Option<Vec<Kind>>,
    /// Names of indexes; any of these.
    pub indexes: Option<Vec<String>>,
    /// Numbers of cancelations.
    pub canceled_by: Option<RoaringBitmap>,
    /// When accepted.
    pub enqueued: Dates,
    /// When begun.
    pub started: Dates,
    /// When ended.
    pub finished: Dates,
}

/// Which part of the matching ones is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most this many.
    pub limit: u32,
    /// The first number that may be shown.
    pub from: Option<u32>,
    /// Oldest first.
    pub reverse: bool,
}

/// The indexes that the client's key covers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Scope {
    /// Everything, also what belongs to no index.
    #[default]
    All,
    /// Indexes of these names, or whose name begins with the part before a final `*`.
    Indexes(Vec<String>),
}

impl Default for Page {
    fn default() -> Self {
        Self { limit: 20, from: None, reverse: false }
    }
}

impl Dates {
    /// As a range of nanoseconds; `None` when there is no restriction.
    pub fn range(self) -> Option<Range> {
        let bound = |date: Option<Timestamp>| date.map_or(Bound::Unbounded, |date| Bound::Excluded(date.0));
        (self != Self::default()).then(|| (bound(self.after), bound(self.before)))
    }
}

impl Scope {
    /// Whether an index of this name is covered.
    pub fn covers(&self, index: &str) -> bool {
        match self {
            Self::All => true,
            Self::Indexes(patterns) => patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => index.starts_with(start),
                None => index == pattern,
            }),
        }
    }

    /// Whether a task may be shown: what belongs to no single index is for unlimited keys only.
    pub fn shows(&self, task: &Task) -> bool {
        *self == Self::All || task.content.index().is_some_and(|index| self.covers(index))
    }
}

impl Page {
    /// The numbers of the page out of `matching`, and one more when there is one.
    pub fn cut(&self, matching: &RoaringBitmap) -> Vec<u32> {
        let room = self.limit as usize + 1;
        match (self.reverse, self.from) {
            (false, from) => matching.range(..=from.unwrap_or(u32::MAX)).rev().take(room).collect(),
            (true, from) => matching.range(from.unwrap_or(0)..).take(room).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_start_where_asked_and_look_one_ahead() {
        let all: RoaringBitmap = [1, 3, 5, 7].into_iter().collect();
        let cut = |limit, from, reverse| Page { limit, from, reverse }.cut(&all);
        assert_eq!(cut(2, None, false), [7, 5, 3]);
        assert_eq!(cut(2, Some(4), false), [3, 1]);
        assert_eq!(cut(1, Some(4), true), [5, 7]);
        assert_eq!(cut(0, Some(99), false), [7]);
        assert_eq!(cut(u32::MAX, Some(99), true), Vec::<u32>::new());
    }

    #[test]
    fn patterns_end_in_a_star() {
        let scope = Scope::Indexes(vec!["a*".into(), "b".into()]);
        assert!(scope.covers("a") && scope.covers("ab") && scope.covers("b") && !scope.covers("bc"));
    }
}
