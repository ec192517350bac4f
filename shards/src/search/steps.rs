//! How long the steps of a search take, for those who ask.

use std::cell::{Cell, RefCell};
use std::time::Duration;

/// A step of a search, on the core that received it: what partitions do at once is one step. In order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Cuts the query into words.
    Tokenize,
    /// Looks the words up in the dictionaries.
    Resolve,
    /// Ranks the documents that have the words; filters and facets are part of it.
    Keyword,
    /// The same without words.
    Placeholder,
    /// Writes the hits of the page.
    Format,
}

impl Step {
    /// As the interface names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokenize => "search > tokenize",
            Self::Resolve => "search > resolve universe",
            Self::Keyword => "search > keyword search",
            Self::Placeholder => "search > placeholder search",
            Self::Format => "search > format",
        }
    }
}

/// A watch on the steps of a search.
pub(super) struct Steps {
    since: Cell<Duration>,
    took: RefCell<Vec<(Step, Duration)>>,
}

impl Steps {
    /// For a search that begins now.
    pub(super) fn new(now: Duration) -> Self {
        Self { since: Cell::new(now), took: RefCell::default() }
    }

    /// A step has ended, and the next one begins.
    pub(super) fn end(&self, step: Step, now: Duration) {
        let took = now.saturating_sub(self.since.replace(now));
        self.took.borrow_mut().push((step, took));
    }

    /// The steps so far.
    pub(super) fn take(&self) -> Vec<(Step, Duration)> {
        self.took.take()
    }
}
