//! How far the work of a batch on an index is, and how long its stages took.

use std::cell::RefCell;
use std::time::Duration;

use crate::runtime::{Nanos, Runtime};

/// A stage of the work of a batch, in order. One without anything to do is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Reads the operations: payloads, in bytes, and others.
    Reading,
    /// Puts the changed documents into the partitions, and all where settings ask for it.
    Applying,
    /// Has vectors made of documents.
    Embedding,
    /// Ends the next state of each partition.
    Finishing,
    /// Writes the catalog.
    Cataloging,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Reading, Self::Applying, Self::Embedding, Self::Finishing, Self::Cataloging];

    /// What clients read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading operations",
            Self::Applying => "applying changes",
            Self::Embedding => "embedding documents",
            Self::Finishing => "finishing partitions",
            Self::Cataloging => "writing the catalog",
        }
    }
}

/// How far a stage is, in units of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageProgress {
    /// Which stage.
    pub stage: Stage,
    /// Units done, at most [`Self::total`].
    pub finished: u64,
    /// All units, as far as is known.
    pub total: u64,
}

/// The stages of one batch, kept by whoever does its work.
#[derive(Default)]
pub struct Stages(RefCell<Tracked>);

#[derive(Default)]
struct Tracked {
    now: Option<(StageProgress, Nanos)>,
    took: Vec<(Stage, Duration)>,
}

impl Tracked {
    fn end(&mut self, at: Nanos) {
        if let Some((progress, since)) = self.now.take() {
            self.took.push((progress.stage, at.since(since)));
        }
    }
}

impl Stages {
    /// Begins a stage, which ends the one before.
    pub fn begin(&self, stage: Stage, total: u64, runtime: &dyn Runtime) {
        let (mut tracked, now) = (self.0.borrow_mut(), runtime.now());
        tracked.end(now);
        tracked.now = Some((StageProgress { stage, finished: 0, total }, now));
    }

    /// Counts units as done.
    pub fn advance(&self, units: u64) {
        self.reach(self.finished() + units);
    }

    /// Says how many units are done.
    pub fn reach(&self, finished: u64) {
        if let Some((progress, _)) = &mut self.0.borrow_mut().now {
            progress.finished = finished.min(progress.total);
        }
    }

    /// Units done of the stage under way.
    pub fn finished(&self) -> u64 {
        self.now().map_or(0, |progress| progress.finished)
    }

    /// The stage under way.
    pub fn now(&self) -> Option<StageProgress> {
        self.0.borrow().now.map(|(progress, _)| progress)
    }

    /// Ends the last stage, and with it the batch; how long each took.
    pub fn end(&self, runtime: &dyn Runtime) -> Vec<(Stage, Duration)> {
        let mut tracked = self.0.borrow_mut();
        tracked.end(runtime.now());
        std::mem::take(&mut tracked.took)
    }
}
