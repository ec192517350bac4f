//! The order in which a search meets documents.

use std::cmp::Ordering;
use std::vec::IntoIter;

use super::part::{Pacer, pause};
use crate::facets::distinct::GroupValue;
use crate::rank::RankedDoc;
use crate::rank::runs::Runs;

/// A document and the values of its distinct groups.
pub(super) type Grouped = (RankedDoc, Vec<GroupValue>);

/// Documents that are put in order between two looks at whether others wait.
const DOCS_PER_LOOK: usize = 128;

/// Documents by rank, and from some point on by number.
pub(super) struct Walk {
    ranked: IntoIter<Grouped>,
    rest: Option<Runs<Grouped>>,
}

impl Walk {
    /// All of them by rank.
    pub fn new(ranked: Vec<Grouped>) -> Self {
        Self { ranked: ranked.into_iter(), rest: None }
    }

    /// Takes the next one.
    pub fn next(&mut self) -> Option<Grouped> {
        match &mut self.rest {
            Some(rest) => rest.pop(by_number),
            None => self.ranked.next(),
        }
    }

    /// Whether those that follow come by rank.
    pub fn is_by_rank(&self) -> bool {
        self.rest.is_none()
    }

    /// Has `next`, which was just taken, and all behind it follow by number.
    pub async fn go_on_by_number(&mut self, next: Grouped, pacer: &dyn Pacer) {
        let mut rest = Runs::default();
        rest.push(vec![next], by_number);
        loop {
            let mut run: Vec<Grouped> = self.ranked.by_ref().take(DOCS_PER_LOOK).collect();
            if run.is_empty() {
                break;
            }
            run.sort_unstable_by(by_number);
            rest.push(run, by_number);
            pause(pacer).await;
        }
        self.rest = Some(rest);
    }
}

fn by_number(a: &Grouped, b: &Grouped) -> Ordering {
    a.0.doc.cmp(&b.0.doc)
}
