//! Whole engines on simulated cores.

mod failures;
mod harness;
mod model;
mod pauses;
mod recovery;
mod search;
mod vectors;
