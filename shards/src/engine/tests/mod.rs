//! Whole engines on simulated cores.

mod changes;
mod cutting;
mod failures;
mod harness;
mod model;
mod pauses;
mod pins;
mod recovery;
mod search;
mod stages;
mod thresholds;
mod vector_lengths;
mod vectors;
